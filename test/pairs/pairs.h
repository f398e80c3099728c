/* pairs.h: the tests' library: connected queue pairs of plain libibverbs, in one process or in two.
 *
 *   checks      must
 *   time        now_ms, fd_is_readable
 *   device      device_open
 *   connecting  conn_attr, conn_mask, conn_to, conn_up; conn_pair, conn_pairs
 *   completions cq_wait
 *   processes   other_fork, other_tell, other_hear
 *
 * What is not `must` returns what the verb returns, 0 or an errno, so that a cmocka test asserts it
 * and a program reports it in its own way. The library calls nothing but libibverbs and libc: each
 * program chooses the libibverbs that it is linked with.
 *
 * Queue pairs of the midlayer's API (ib_*) come from test/contract/rig.h, those of the engine alone
 * (ibt_*) from test/engine/net.h.
 */
#ifndef TEST_PAIRS_PAIRS_H
#define TEST_PAIRS_PAIRS_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CONN_PORT = 1 };

/* ---- checks ---- */

/* For programs without cmocka: prints the place, the condition, errno and the pid, and exits. */
#define must(condition) ((condition) ? (void)0 : must_fail(__FILE__, __LINE__, #condition))
_Noreturn void must_fail(const char *file, int line, const char *what);

/* ---- time ---- */

/* Milliseconds of the monotonic clock. */
uint64_t now_ms(void);
/* True once the descriptor is readable, false after `timeout_ms`. Sleeps meanwhile. */
bool fd_is_readable(int fd, int timeout_ms);

/* ---- device ---- */

/* The device of this name, or without one the first; NULL if there is none. */
struct ibv_context *device_open(const char *name);

/* ---- connecting ---- */

/* RC, UC or UD by the name's two letters; RC for any other name. */
enum ibv_qp_type conn_type(const char *name);
/* An address of GID `gid`, seen from the own GID at `gid_index`. */
struct ibv_ah_attr conn_address(const union ibv_gid *gid, uint8_t gid_index);
/* Attributes for all three steps of a queue pair toward QP number `peer` at `gid`: MTU 1024, PSNs
 * 0, no remote access, one READ at a time, timeout 14, seven retries of either kind, RNR timer 12.
 * A test changes the fields that it is about. */
struct ibv_qp_attr conn_attr(uint32_t peer, const union ibv_gid *gid, uint8_t gid_index);
/* The attributes that the step to INIT, RTR or RTS requires, the access flags included. */
int conn_mask(enum ibv_qp_type type, enum ibv_qp_state to);
/* One step, to INIT, RTR or RTS, with those of the attributes that it requires. */
int conn_to(struct ibv_qp *qp, const struct ibv_qp_attr *attr, enum ibv_qp_state to);
/* From RESET through INIT and RTR up to `until`; stops at the first step that fails. */
int conn_up(struct ibv_qp *qp, const struct ibv_qp_attr *attr, enum ibv_qp_state until);
/* Connects two queue pairs of this process to each other, `a` last; `attr` is of both. */
int conn_pair(struct ibv_qp *a, struct ibv_qp *b, const struct ibv_qp_attr *attr);
/* Connects each a[i] to b[i]. */
int conn_pairs(struct ibv_qp **a, struct ibv_qp **b, int n, const struct ibv_qp_attr *attr);

/* ---- completions ---- */

/* Polls until `want` completions lie in wc[] or `timeout_ms` have passed; sleeps 20 us after each
 * poll in vain. Returns how many lie there, or -1 if polling fails. */
int cq_wait(struct ibv_cq *cq, struct ibv_wc *wc, int want, int timeout_ms);

/* ---- processes ---- */

/* Forks, with a socket pair in between. *fd is the caller's end of it; returns the child's pid, 0
 * in the child, -1 on failure. The child dies with its parent. */
int other_fork(int *fd);
/* The same; the parent stays on the first core that it may use, the child on the second, if there
 * is one. */
int other_fork_pinned(int *fd);
/* All `n` bytes. False: the other process has ended. */
bool other_tell(int fd, const void *bytes, size_t n);
/* Blocks for `n` bytes; fewer have come if the other process has ended meanwhile. */
size_t other_hear(int fd, void *bytes, size_t n);

#endif
