int stack;
