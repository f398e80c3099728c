/* streams.h: rsocket streams in virtual time: librdmacm's own files (lib/rdmacm/rsocket) over the
 * transport engine and a lossy wire (test/engine/net.h). One thread.
 *
 *   streams_verbs.c  what the streams use of verbs: queue pairs, completion queues, memory
 *   streams_cm.c     connection manager: requests, answers, ends, with delays; the service's work
 *   streams_wait.c   calls that sleep: time passes, packets and the connection manager go on
 *   streams_user.c   programs: connect, send, receive, shut down, close, die
 *   streams_world.c  rounds of connections, and what may be left after each
 */
#ifndef SIM_STREAMS_H
#define SIM_STREAMS_H

#include "rsocket/stream.h"
#include "../engine/net.h"
#include "rng.h"

enum { STREAMS_SIDES = 2, STREAMS_USERS = 24, STREAMS_PORT = 4000 };

extern struct net streams_net;
extern struct rng streams_rng;

void streams_fail(const char *fmt, ...) PRINTF_LIKE(1, 2) __attribute__((noreturn));
#define streams_check(ok, ...)                                                                     \
	do {                                                                                       \
		if (unlikely(!(ok)))                                                               \
			streams_fail(__VA_ARGS__);                                                 \
	} while (0)

/* ---- streams_world.c: what happens when ---- */

/* Runs fn(arg, n) at the virtual instant. A program's turn waits while another one sleeps inside a
 * call. */
void agenda_add(u64 when, bool program, void (*fn)(void *arg, u64 n), void *arg, u64 n);
/* Time passes until the next packet, timer or event, `limit` at the latest. False: nothing is to
 * come, and no limit is set (UINT64_MAX). */
bool agenda_step(u64 limit, bool programs);

/* ---- streams_verbs.c ---- */

struct rdma_cm_id;
struct ibv_context *verbs_context(int side);
/* INIT to RTS toward the peer. */
void verbs_connect_qp(struct ibv_qp *qp, u32 peer, u32 psn, u32 peer_psn);
void verbs_break_qp(struct ibv_qp *qp);
/* Objects that exist: domains, queue pairs, completion queues, regions. */
u32 verbs_live(void);

/* ---- streams_cm.c ---- */

/* The side whose program calls next: channels that it makes are of that side. */
void cm_enter(int side);
/* Ids, channels and messages that exist. */
u32 cm_live(void);
/* Nothing gets through between the sides, or it does again. */
void cm_cut(bool cut);
bool cm_is_cut(void);

/* ---- streams_user.c ---- */

void user_listen(void);
void user_unlisten(void);
/* From now on nobody rests for long, or somebody does again. */
void user_hurry(bool on);
/* A new connection, unless there are many. */
void user_open(void);
/* All of them are over: nothing is remembered. */
void user_forget(void);
u32 user_count(void);
/* Says of each end how far it is. */
void user_print(void);
/* The wire has failed: connections that live now may break. */
void user_forgive(void);

/* What happened, for the report. */
struct streams_tally {
	u64 connections, bytes, broken, resets;
};
extern struct streams_tally streams_tally;

#endif
