/* crew.h: processes of their own (fork and exec) that hold XRC objects and do one thing at a time,
 * as a test tells them over a socket.
 *
 * Each has a context, an XRC domain by the crew's file, a region of CREW_BYTES, an SRQ and a
 * target.
 */
#ifndef VERBS_CREW_H
#define VERBS_CREW_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { CREW_BYTES = 4 << 20, CREW_PSN = 0xfffff0, CREW_WAIT_MS = 20000 };

enum crew_op {
	CREW_DOMAIN,	 /* a: oflags */
	CREW_CLOSE_DOMAIN,
	CREW_SRQ,	 /* values: number, rkey, address */
	CREW_END_SRQ,
	CREW_TARGET,	 /* values: number */
	CREW_NAME,	 /* values: the GID's two halves */
	CREW_PEER,	 /* a, b: the GID of whom it will connect with; before: its own */
	CREW_OPEN_QP,	 /* a: number of another process' target */
	CREW_END_QP,
	CREW_CONNECT,	 /* a: peer's number, b: qp_access_flags, c: min_rnr_timer */
	CREW_MODIFY,	 /* a: to this state */
	CREW_QUERY,	 /* values: state, dest_qp_num, rq_psn */
	CREW_POST,	 /* a: wr_id, b: offset, c: length */
	CREW_POLL,	 /* wc; CREW_NOTHING without one within `a` ms */
	CREW_FILL,	 /* a: offset, b: length, c: seed */
	CREW_CHECK,	 /* a: offset, b: length, c: seed; EBADMSG: other bytes */
	CREW_EVENT,	 /* values: type of the next event within `a` ms, or CREW_NOTHING */
	CREW_LIMIT,	 /* a: srq_limit */
};

enum { CREW_NOTHING = 1000 };

struct crew_order {
	enum crew_op op;
	uint64_t a, b, c;
};

struct crew_reply {
	int error; /* 0, or an errno */
	uint64_t value[4];
	struct ibv_wc wc;
};

/* A process of the crew. */
struct crew_hand {
	pid_t pid;
	int socket;
};

/* In main, before anything else: does not return in a process of the crew. */
void crew_main(int argc, char **argv);
/* Starts a process whose domain is that of the file at `path`, on the node of this name; NULL: on
 * the test's. `is_peer`: with VERBS_PEER_PATHS it has these paths. */
struct crew_hand crew_start(const char *path, const char *node, bool is_peer);
/* Ends it by closing its socket, which it obeys, or by SIGKILL; and waits. */
void crew_end(struct crew_hand *h);
void crew_kill(struct crew_hand *h);
/* Tells it to begin, and waits for the reply. */
void crew_tell(const struct crew_hand *h, enum crew_op op, uint64_t a, uint64_t b, uint64_t c);
struct crew_reply crew_hear(const struct crew_hand *h);
struct crew_reply crew_try(const struct crew_hand *h, enum crew_op op, uint64_t a, uint64_t b,
			   uint64_t c);
/* The same, which must succeed. */
struct crew_reply crew_do(const struct crew_hand *h, enum crew_op op, uint64_t a, uint64_t b,
			  uint64_t c);
/* Bytes that depend on the place and the seed. */
void crew_fill(uint8_t *at, uint64_t length, uint64_t seed);
bool crew_is_filled(const uint8_t *at, uint64_t length, uint64_t seed);
/* Brings a queue pair of XRC to RTS, connected with `peer` at `gid`. 0 or an errno. */
int crew_connect(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid, unsigned access,
		 uint8_t rnr_timer);

#endif
