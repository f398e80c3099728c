int left;
