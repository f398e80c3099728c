/* traffic.h: what has crossed the ports of a process' devices.
 *
 * Shared memory has no packets, and a send must not pay for counting them: the sums are made of
 * what queue pairs tally anyway, when somebody reads. So the initiator's tally tells what crossed
 * the ports of both ends. A datagram may go to any port, so there each end tells its own part.
 * Paths that have packets count them in board.traffic.
 */
#ifndef PATH_SHM_TRAFFIC_H
#define PATH_SHM_TRAFFIC_H

#include "path/shm/board.h"

/* ---- for the owner of the board ---- */

/* The tally of qps[index], which is all zeroes, counts from now on, as the entry's `link` says. The
 * queue pair is of a RoCE device. */
void board_traffic_begin(struct board *b, u32 index);
/* It counts no longer: adds what it tells to board.traffic. Nothing, if it did not count. The
 * tally does not change meanwhile. */
void board_traffic_end(struct board *b, u32 index);

/* ---- for readers ---- */

/* Adds what the board tells of each device, by its index. Any process; the owner may count
 * meanwhile: what a queue pair that ends just now has counted may be missing, and comes with the
 * next sum. Values are the owner's claims. */
void board_traffic_sum(const struct board *b, struct path_traffic sum[NODE_DEVICES]);

#endif
