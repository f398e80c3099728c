/* later.h: stands on the list. */
struct later {
	int free;
};
