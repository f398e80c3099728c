/* side.h: one end of a connection, as tests drive it: plain libibverbs objects behind calls that
 * are plain data, so that an end may live in this process or in a child (pair.h).
 *
 * A side has one protection domain and a second one for wrong-domain tests, one buffer, a send CQ
 * and a receive CQ, up to SIDE_QPS queue pairs, maybe an SRQ.
 */
#ifndef TEST_VERBS_SIDE_H
#define TEST_VERBS_SIDE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "../pairs/pairs.h"

enum {
	SIDE_QPS = 8,
	SIDE_MRS = 8,
	SIDE_WCS = 64,
	SIDE_SGES = 33, /* one more than the device takes */
	SIDE_QKEY = 0x11111111,
	SIDE_PSN = 0xfffff0, /* wraps soon */
};

/* Does everything go over UDP (ANYVERBS_PATHS=udp, of one end or of both)? */
bool side_on_wire(void);

/* Zeroes mean what each line says. */
struct side_options {
	int type; /* enum ibv_qp_type */
	uint32_t qps;	 /* 0: one */
	uint64_t bytes;	 /* of the buffer */
	int mr_access;	 /* -1: everything */
	int qp_access;	 /* -1: everything */
	uint32_t send_wr, recv_wr; /* 0: 64 */
	uint32_t send_sge, recv_sge; /* 0: 4 */
	uint32_t inline_bytes;
	uint32_t cqe;	   /* of the send CQ; 0: 1024 */
	uint32_t recv_cqe; /* 0: 1024 */
	uint32_t srq_wr;   /* 0: no SRQ */
	bool sig_all, channel;
};

/* What the other side must know. */
struct side_address {
	union ibv_gid gid;
	uint32_t qpn[SIDE_QPS];
	uint64_t addr;
	uint32_t lkey, rkey;
	uint32_t max_inline;
};

/* How a queue pair is brought up to RTS, or to an earlier state. */
struct side_link {
	enum ibv_qp_state until; /* 0: RTS */
	uint32_t dest_qpn, psn;	 /* psn: of both directions */
	union ibv_gid gid;
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer;
	uint8_t rd_atomic, dest_rd_atomic;
	uint8_t mtu;	   /* enum ibv_mtu; 0: conn_attr's */
	uint32_t rq_ahead; /* rq_psn is so far ahead of `psn` */
};

/* A work request without pointers. Addresses and keys are those of the side that it is posted to,
 * remote ones the peer's. */
struct side_wr {
	uint64_t wr_id;
	enum ibv_wr_opcode opcode;
	int flags;
	int num_sge;
	struct ibv_sge sge[SIDE_SGES];
	uint32_t imm; /* or the key to invalidate */
	uint64_t remote_addr;
	uint32_t rkey;
	uint64_t compare, swap;
	uint32_t remote_qpn, qkey; /* UD: to the side's ah */
};

enum side_op {
	SIDE_OPEN,
	SIDE_CLOSE,
	SIDE_CONNECT,
	SIDE_MODIFY,
	SIDE_QUERY,
	SIDE_SEND,
	SIDE_RECV,
	SIDE_POLL,
	SIDE_FILL,
	SIDE_CHECK,
	SIDE_REGISTER,
	SIDE_DEREGISTER,
	SIDE_DESTROY_QP,
	SIDE_CREATE_QP,
	SIDE_EVENT,
	SIDE_CQ_EVENT,
	SIDE_ARM,
	SIDE_SRQ_LIMIT,
	SIDE_MCAST,
	SIDE_AH,
	SIDE_WORD,
};

struct side_call {
	enum side_op op;
	uint32_t qp; /* which one */
	union {
		struct side_options open;
		struct side_link connect;
		struct {
			struct ibv_qp_attr attr;
			int mask;
		} modify;
		struct {
			struct side_wr wr;
			uint32_t count;	 /* so many alike, wr_id counting up */
			uint32_t signal; /* 0: flags as given; N: every Nth is signalled */
		} post;
		struct {
			bool recv;
			uint32_t want;
			int timeout_ms;
		} poll;
		struct {
			uint64_t offset, length;
			uint64_t seed;
			uint64_t or_seed; /* SIDE_CHECK: each word is of this one or of that */
		} bytes;
		struct {
			uint64_t offset, length;
			int access;
			bool other_pd;
		} reg;
		struct {
			uint32_t mr;
		} dereg;
		struct {
			int timeout_ms;
		} event;
		struct {
			bool solicited_only;
		} arm;
		struct {
			uint32_t limit;
		} srq;
		struct {
			union ibv_gid gid;
			bool leave;
		} mcast;
		struct {
			union ibv_gid gid;
			bool from_wc; /* of the last receive polled, whose GRH lies at `grh` */
			uint64_t grh;
		} ah;
		struct {
			uint64_t offset;
		} word;
	};
};

struct side_reply {
	int err; /* an errno, as the verb returns it */
	union {
		struct side_address address;
		struct {
			struct ibv_qp_attr attr;
			struct ibv_qp_init_attr init;
		} query;
		struct {
			uint32_t posted; /* before the bad one */
		} post;
		struct {
			uint32_t count;
			struct ibv_wc wc[SIDE_WCS];
		} poll;
		struct {
			int64_t wrong; /* offset of the first wrong byte, or -1 */
		} check;
		struct {
			uint32_t mr, lkey, rkey;
		} reg;
		struct {
			int type; /* enum ibv_event_type; -1: none came */
			uint32_t element; /* QP number, if it has one */
			bool recv;	  /* CQ event: which CQ */
		} event;
		uint64_t word;
	};
};

struct side;
struct side *side_create(void);
void side_destroy(struct side *s);
/* Carries out one call. */
void side_serve(struct side *s, const struct side_call *c, struct side_reply *r);
/* For tests whose requests no call describes. */
struct ibv_qp *side_qp(const struct side *s, uint32_t qp);

#endif
