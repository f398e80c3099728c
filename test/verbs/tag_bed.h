/* tag_bed.h: a receiver with a tag-matching SRQ in this process, and senders: plain queue pairs in
 * children or, with VERBS_PEER=self, in this process.
 *
 * Calls fail the test if the verb fails, unless their name says `try`.
 */
#ifndef TEST_VERBS_TAG_BED_H
#define TEST_VERBS_TAG_BED_H

#include <infiniband/tm_types.h>

#include "pair.h"

enum {
	TAG_QPS = 2,
	TAG_SENDERS = 5,
	TAG_BYTES = 16 << 20, /* of the receiver's and of each sender's buffer */
	TAG_DATA = 8 << 20,   /* at the sender: where the first rendezvous' data begins */
	TAG_RECVS = 4096,     /* at the sender: the end of its buffer, for receives */
	TAG_TMH = sizeof(struct ibv_tmh),
	TAG_HEADERS = TAG_TMH + sizeof(struct ibv_rvh),
	TAG_ANY = 0,	 /* a mask that lets every tag match */
	TAG_DEPTH = 128, /* of queues */
};
#define TAG_EXACT (~0ull)

/* What a sender sends. Payload and data are a pattern of `seed`. */
struct tag_message {
	uint32_t qp;
	uint8_t opcode; /* enum ibv_tmh_op */
	uint64_t tag;
	uint32_t app_ctx;
	uint32_t bytes; /* behind the headers */
	uint32_t seed;
	uint32_t cut; /* only so many bytes of it are sent; 0: all */
	/* RNDV and FIN. rkey 0: the sender's own. */
	uint32_t data_bytes, rkey;
	bool imm;
	uint32_t imm_value;
};

/* A sender's completion. */
struct tag_sent {
	int count; /* 0: none has come */
	struct ibv_wc wc;
	uint8_t bytes[TAG_HEADERS]; /* of a receive: what lies in its buffer */
};

/* A completion of the SRQ's CQ. */
struct tag_got {
	uint64_t wr_id, tag;
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	uint32_t flags, bytes, priv, qp_num, src_qp, imm;
};

struct tag_options {
	uint32_t max_num_tags, max_ops, max_wr; /* 0: 64 */
	uint32_t max_sge;			 /* of ordinary buffers; 0: 2 */
	uint32_t rnr_retry;			 /* of senders; 0: for ever */
	const char *device;			 /* NULL: the first */
};

extern struct tag_bed {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq_ex *cq;
	struct ibv_cq *sends; /* of the receiver's queue pairs; nothing ever completes there */
	struct ibv_srq *srq;
	struct ibv_qp *qp[TAG_QPS];
	struct ibv_mr *mr;
	uint8_t *bytes;
	int sender; /* whose turn it is; those before have been killed */
} bed;

/* First of all in the group's setup: forks the senders. */
int tag_group_setup(void **state);
int tag_group_teardown(void **state);
/* Opens receiver and sender and connects TAG_QPS queue pairs. */
void tag_open(const struct tag_options *o);
void tag_close(void);
/* What a test opened and did not close, since it failed. */
int tag_teardown(void **state);

/* ---- the sender ---- */
void tag_send(const struct tag_message *m);
/* Its next completion; count 0 after `timeout_ms`. */
struct tag_sent tag_sender_poll(int timeout_ms);
/* A send that succeeds. */
void tag_sent_ok(void);
/* A receive of the sender's, for a FIN. */
void tag_sender_recv(uint32_t qp);
/* SIGKILL, or SIGSTOP and SIGCONT. After SIGKILL the next tag_open has another sender. */
void tag_sender_signal(int signal);
uint64_t tag_sender_address(void);
bool tag_has_child(void);

/* ---- the receiver ---- */
/* A TAG_ADD of `bytes` at `at`; returns the handle. */
uint32_t tag_add(uint64_t wr_id, uint64_t tag, uint64_t mask, uint32_t at, uint32_t bytes);
struct ibv_ops_wr tag_add_wr(uint64_t wr_id, uint64_t tag, uint64_t mask, struct ibv_sge *sge,
			     uint32_t at, uint32_t bytes);
int tag_try_op(enum ibv_ops_wr_opcode opcode, uint64_t wr_id, uint32_t handle, int flags,
	       uint32_t count);
/* An ordinary buffer. */
void tag_recv(uint64_t wr_id, uint32_t at, uint32_t bytes);
struct tag_got tag_next(void);
/* False: nothing comes within the time. */
bool tag_try_next(struct tag_got *got, int timeout_ms);
/* The receiver's queue pair enters ERR, a while after the completion that says why. */
void tag_await_error(uint32_t qp);
void tag_expect_none(void);
/* The next completion is that of a list operation. */
struct tag_got tag_expect_op(enum ibv_wc_opcode opcode, uint64_t wr_id, enum ibv_wc_status status);
/* The match of entry `wr_id` with the message, and its data: one completion or two. */
void tag_expect_match(uint64_t wr_id, const struct tag_message *m);
/* An ordinary buffer of `wr_id` has taken all of it. */
void tag_expect_unmatched(uint64_t wr_id, const struct tag_message *m, uint32_t at);
/* The pattern of `seed`. */
void tag_check(uint32_t at, uint32_t bytes, uint32_t seed);

#endif
