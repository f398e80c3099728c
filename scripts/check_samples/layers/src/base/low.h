int low;
