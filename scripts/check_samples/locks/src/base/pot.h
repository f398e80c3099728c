/* pot.h: locks with and without a place in the order. */
struct pot {
	struct lock table_lock CACHE_ALIGNED;
	struct lock lid_lock ACQUIRED_BEFORE(table_lock);
	struct lock handle_lock; /* nobody knows when it may be taken */
	struct {
		int spoons;
	} in;
	struct lock *borrowed;
};
void pot_close(struct lock *l);
