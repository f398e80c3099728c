/* migrate.h: the move of a connection to its alternate path. */
#ifndef IBT_MIGRATE_MIGRATE_H
#define IBT_MIGRATE_MIGRATE_H

#include "ibt/migrate/alternate.h"

/* A packet for a watched queue pair, in a callback of its path: arms it, or moves it as the peer
 * asks. False: the packet is dropped. Takes both locks. */
bool migrate_receive(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p);
/* Moves the queue pair, if it is still armed. May block: no callback of a path runs it. Takes both
 * locks. `event`: the consumer hears of it. */
void migrate_run(struct ibt_qp *qp, struct path *path, bool event);
/* The function of requester.timer: sched_timer, and the move that it may ask for. */
void migrate_timer(struct timer *t);

#endif
