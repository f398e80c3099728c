/* duo.h: two processes with a connected RC queue pair each, plain verbs, for programs that do to
 * their own memory what pair.h's children cannot: poll it, free it, grow it.
 *
 * Every call ends the process with a message if a verb fails.
 */
#ifndef TEST_VERBS_DUO_H
#define TEST_VERBS_DUO_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "../pairs/pairs.h"

struct duo {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	int fd;	   /* to the other process */
	int child; /* its pid; 0: we are the child */
};

/* Where a peer may write and read. */
struct duo_place {
	uint64_t addr;
	uint32_t rkey, length;
};

/* Forks, opens the device in both and connects them. */
void duo_start(struct duo *d);
/* Closes; the parent waits for its child. Returns whether all went well, in the parent. */
bool duo_end(struct duo *d);
void duo_tell(struct duo *d, const void *bytes, size_t n);
/* False: the other one has ended. */
bool duo_hear(struct duo *d, void *bytes, size_t n);
/* Returns once the other process has called it as often: neither goes on before both are here. */
void duo_step(struct duo *d);
static inline bool duo_is_child(const struct duo *d)
{
	return d->child == 0;
}
struct ibv_mr *duo_register(struct duo *d, void *p, size_t n);
struct duo_place duo_place(const struct ibv_mr *mr);
/* One signalled request from or to the beginning of `place`, and its completion. An atomic adds 1.
 */
void duo_do(struct duo *d, enum ibv_wr_opcode op, struct ibv_mr *mr, void *local, uint32_t length,
	    uint64_t remote, uint32_t rkey);
/* Files of adopted memory that a process has mapped: its own, and peers'. */
unsigned int duo_files_mapped(int pid);

#endif
