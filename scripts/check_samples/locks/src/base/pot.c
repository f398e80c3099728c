#include "base/pot.h"
static struct lock shelf_lock ONE_AT_A_TIME, other_lock;
static struct {
	struct lock lock;
	int pots GUARDED_BY(lock);
} shelf;
static struct lock cellar_lock ONE_AT_A_TIME;
struct jar {
	int lid OWNED_BY(shelf.lock);
	int label OWNED_BY(shop.lock);
	int top OWNED_BY(attic_lock);
	int jam OWNED_BY(whoever eats);
};
FORK_TAKES(FORK_A, &shelf_lock);
FORK_TAKES(FORK_B, &other_lock);
FORK_TAKES(FORK_C, &shelf.lock);
FORK_TAKES(FORK_D, &cellar_lock);
