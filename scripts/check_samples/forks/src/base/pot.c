#include "base/pot.h"
static struct lock lid_lock ONE_AT_A_TIME;
FORK_TAKES(FORK_LID, &lid_lock);
static struct lock handle_lock ONE_AT_A_TIME;
extern struct lock others_lock ONE_AT_A_TIME;
static struct {
	struct lock lock;
	int spoons GUARDED_BY(lock);
} drawer = { .spoons = 1 };
static struct {
	struct lock lock;
	int forks GUARDED_BY(lock);
} rack;
FORK_MAKES_ANEW(FORK_RACK, &rack.lock, .child = rack_in_child);
struct pot the_pot = { .soup = 0 };
static struct pot pots[4];
FORK_HOOK(FORK_POTS, .child = pots_in_child);
static struct pot *chosen;
static struct pot dropped;
static void pots_in_child(void) NO_THREAD_SAFETY
{
	pot_drop_in_child(&dropped);
}
FORK_TAKES(FORK_LID, &pots[0].lock);
static struct lock last_lock ONE_AT_A_TIME;
static void pots_watch(void)
{
	pthread_atfork(NULL, NULL, pots_in_child);
}
