/* pair.h: two (or three) ends for a test: `a` in this process, the others in children or, with
 * VERBS_PEER=self, in this process as well. Each program has a node of its own and stops it.
 *
 * Every call fails the test if the verb fails, unless its name says `try`.
 */
#ifndef TEST_VERBS_PAIR_H
#define TEST_VERBS_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "side.h"

struct end {
	struct side *local; /* or */
	int fd;		    /* the child that serves */
	int pid;
	struct side_address at;
	bool open;
};

struct pair {
	struct end a, b, c;
};

enum { PAIR_WAIT_MS = 20000, PAIR_QUIET_MS = 50 };

extern struct pair pair;

/* First of all in main(): gives the program a node of its own, which is stopped after it. */
void pair_supervise(void);
/* cmocka's group fixtures: the children; and each test's: closes what it opened. */
int pair_group_setup(void **state);
int pair_group_teardown(void **state);
int pair_teardown(void **state);
/* Is one-sided access by the initiator alone allowed? */
bool pair_is_direct(void);
bool pair_is_one_process(void);

/* Opens a and b alike and connects their queue pairs one to one, with generous timeouts. */
void pair_open(const struct side_options *o);
void pair_open_two(const struct side_options *a, const struct side_options *b);
/* What pair_connect uses. */
struct side_link pair_default_link(const struct end *to, uint32_t qp);
void pair_connect(uint32_t qps, const struct side_link *a, const struct side_link *b);

void end_open(struct end *e, const struct side_options *o);
void end_close(struct end *e);
void end_connect(struct end *e, uint32_t qp, const struct side_link *l);
int end_try_modify(struct end *e, uint32_t qp, const struct ibv_qp_attr *attr, int mask);
void end_state(struct end *e, uint32_t qp, enum ibv_qp_state state);
struct side_reply end_query(struct end *e, uint32_t qp);
void end_expect_state(struct end *e, uint32_t qp, enum ibv_qp_state state);
/* Waits a while for the state. */
void end_await_state(struct end *e, uint32_t qp, enum ibv_qp_state state);
int end_try_send(struct end *e, uint32_t qp, const struct side_wr *w, uint32_t count,
		 uint32_t signal, uint32_t *posted);
void end_send(struct end *e, uint32_t qp, const struct side_wr *w);
void end_send_many(struct end *e, uint32_t qp, const struct side_wr *w, uint32_t count,
		   uint32_t signal);
int end_try_recv(struct end *e, uint32_t qp, const struct side_wr *w, uint32_t count,
		 uint32_t *posted);
void end_recv(struct end *e, uint32_t qp, const struct side_wr *w, uint32_t count);
/* Polls the send or the receive CQ; returns how many came in time. */
enum { SENDS = 0, RECVS = 1 };
uint32_t end_poll(struct end *e, int which, uint32_t want, int timeout_ms, struct ibv_wc *wc);
/* Exactly one completion with this status. */
struct ibv_wc end_expect(struct end *e, int which, enum ibv_wc_status status);
/* `count` of them in the order posted, from wr_id `first` on. */
void end_expect_in_order(struct end *e, int which, uint32_t count, uint64_t first,
			 enum ibv_wc_status status);
void end_expect_none(struct end *e, int which);
void end_fill(struct end *e, uint64_t offset, uint64_t length, uint64_t seed);
void end_check(struct end *e, uint64_t offset, uint64_t length, uint64_t seed);
/* Each word, for itself, is of one of the two patterns. */
void end_check_either(struct end *e, uint64_t offset, uint64_t length, uint64_t seed,
		      uint64_t or_seed);
uint64_t end_word(struct end *e, uint64_t offset);
struct side_reply end_register(struct end *e, uint64_t offset, uint64_t length, int access,
			       bool other_pd);
void end_deregister(struct end *e, uint32_t mr);
void end_destroy_qp(struct end *e, uint32_t qp);
void end_create_qp(struct end *e, uint32_t qp);
/* The next asynchronous event; -1 in `type` if none comes. */
struct side_reply end_event(struct end *e, int timeout_ms);
void end_expect_event(struct end *e, int type, uint32_t qpn);
bool end_cq_event(struct end *e, int timeout_ms, bool *recv);
void end_arm(struct end *e, bool solicited_only);
void end_srq_limit(struct end *e, uint32_t limit);
int end_try_mcast(struct end *e, uint32_t qp, const union ibv_gid *gid, bool leave);
void end_ah(struct end *e, const union ibv_gid *gid);
void end_ah_from_wc(struct end *e, uint64_t grh);

/* A request with one SGE in the end's own buffer. */
struct side_wr end_wr(const struct end *e, uint64_t offset, uint32_t length);
/* The same, signalled, of an opcode, and toward the peer's buffer. */
struct side_wr end_op(const struct end *e, enum ibv_wr_opcode op, uint64_t offset, uint32_t length,
		      const struct end *peer, uint64_t remote_offset);

#endif
