/* match.h: two plain models of tag matching, written from MPI's rules and ibv_post_srq_ops(3).
 *
 *   mpi_*   what software sees: receives in the order of posting, messages in the order in which
 *           they become known, a queue of unexpected messages. There are no phases.
 *   tmq_*   what a tag-matching SRQ sees: entries in the order of posting, of which some do not
 *           match yet because their poster does not know all unexpected messages.
 *
 * Both are arrays that are searched from the front; no cleverness that could be wrong. A receive
 * or an entry matches a message if message.tag & mask == tag. Ids are the caller's, and unique
 * among what the model holds. One thread; memory that runs out ends the program.
 */
#ifndef TEST_MATCH_MATCH_H
#define TEST_MATCH_MATCH_H

#include "base/compiler.h"

/* A posted receive, an entry or an unexpected message (its mask is 0). */
struct match_item {
	u64 id, tag, mask;
	bool enabled; /* an entry: it matches */
};

/* Items in order. */
struct match_queue {
	struct match_item *item;
	u32 count, room;
};

/* ---- MPI ---- */

/* Begin with zeros. */
struct mpi_match {
	struct match_queue posted, unexpected;
};

/* Frees what it holds. */
void mpi_close(struct mpi_match *m);
/* A receive is posted. True: the oldest unexpected message that it matches takes it, *message;
 * else it waits. */
bool mpi_post(struct mpi_match *m, u64 recv, u64 tag, u64 mask, u64 *message);
/* A message becomes known. True: the receive *recv takes it; else it is unexpected. */
bool mpi_arrive(struct mpi_match *m, u64 message, u64 tag, u64 *recv);
/* A receive is cancelled. False: no such receive waits. */
bool mpi_cancel(struct mpi_match *m, u64 recv);

/* ---- the SRQ ---- */

/* Begin with zeros. */
struct tmq {
	struct match_queue entries;
	u16 unexpected, told;
};

void tmq_close(struct tmq *q);
/* The consumer knows of `count` unexpected messages, modulo 2^16. */
void tmq_sync(struct tmq *q, u32 count);
/* The consumer knows of all unexpected messages. */
bool tmq_in_phase(const struct tmq *q);
void tmq_add(struct tmq *q, u64 id, u64 tag, u64 mask);
/* False: no such entry waits. */
bool tmq_delete(struct tmq *q, u64 id);
/* True: the entry *id takes the message; else it is unexpected, and counted. */
bool tmq_arrive(struct tmq *q, u64 tag, u64 *id);
/* The entry that would take a message now; NULL: none. */
const struct match_item *tmq_would_take(const struct tmq *q, u64 tag);

#endif
