/* pot.h: locks with and without a place in the order. */
struct pot {
	struct lock table_lock CACHE_ALIGNED ONE_AT_A_TIME;
	struct lock lid_lock ACQUIRED_BEFORE(table_lock) ONE_AT_A_TIME;
	struct lock handle_lock ONE_AT_A_TIME; /* nobody knows when it may be taken */
	struct {
		int spoons;
	} in FIXED;
	struct lock *borrowed FIXED;
};
void pot_close(struct lock *l);
