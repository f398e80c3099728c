/* done.h: stands on the list, and need not. */
struct done {
	int kept FIXED;
};
