/* view.h: the queue pairs and counters that a process shows, for `status`. */
#ifndef ANYVERBS_VIEW_H
#define ANYVERBS_VIEW_H

#include <stdio.h>

#include "path/shm/board.h"

/* A queue pair, copied. */
struct view_qp {
	u32 word, qpn, peer_qpn; /* as in struct board_qp */
	u32 place; /* on the board: they are in this order */
	u16 sgid_index, dgid_index;
	u8 mtu; /* enum ibv_mtu */
	u64 sent, received, sent_bytes, received_bytes, errors;
	u32 last_error; /* as in struct board_tally */
	u64 inside; /* its address in the process' memory; 0: none */
};

struct view {
	bool valid; /* the process has a board of this version */
	u64 counters[PATH_COUNTERS];
	u64 nonce, nonce_addr; /* of the process' memory */
	struct path_place inside[INSIDE_COUNT];
	u32 adopted_regions; /* of registered memory that peers may map */
	u64 adopted_bytes;
	struct view_qp *qps; /* in the order of their numbers, per slot */
	u32 qp_count;
};

/* Copies the board behind `fd`. Its owner may write meanwhile, so numbers may be of slightly
 * different instants. The caller frees the result by view_free. */
void view_read(int fd, struct view *out);
void view_free(struct view *v);
/* The type and state of a queue pair in the words of the specification; "?": no such. */
const char *view_type(const struct view_qp *q);
const char *view_state(const struct view_qp *q);
void view_print(const struct view *v);
/* Prints the members of the process' JSON object, each with a comma in front. */
void view_print_json(const struct view *v);

#endif
