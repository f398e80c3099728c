/* pot.h: a type with a lock. */
struct pot {
	struct lock lock;
	int soup GUARDED_BY(lock);
};
