/* tm_kit.h: a sender (side 0) and a receiver with a tag-matching SRQ (side 1), over each kind of
 * path; messages with headers, list operations, and completions with their tags.
 */
#ifndef ENGINE_TM_KIT_H
#define ENGINE_TM_KIT_H

#include <endian.h>
#include <errno.h>
#include <infiniband/tm_types.h>
#include <string.h>

#include "watch.h"

enum {
	TM_QPN = 0x22,
	TM_SENDER = 0x11,
	TM_TMH = 16,
	TM_REQUEST = 32,
	TM_DATA = 2 << 20, /* where a rendezvous' data lies, in the sender's memory */
	TM_BUFFERS = 2 << 20, /* ordinary buffers, in the receiver's memory */
	TM_BUFFER = 64 << 10,
	TM_TAGS = 64,
	TM_OPS = 32,
};

/* The kinds of path that a message can take. */
enum tm_path { TM_LOSSY, TM_RELIABLE, TM_DIRECT, TM_UNREADABLE, TM_PATHS };

struct tm_bed {
	struct net net;
	struct ibt_qp *qp[2];
	struct ibt_srq *srq;
	struct cq cq; /* of the SRQ */
	struct watch watch;
	u32 sent; /* messages: where the next one's bytes lie */
};

/* A completion of the SRQ's CQ. */
struct tm_got {
	struct ibv_wc wc;
	u64 tag;
	u32 priv;
};

void tm_open(struct tm_bed *b, enum tm_path path);
/* The same with a CQ of `cqe` entries, and a receiver whose send queue takes `depth` requests and
 * that stays in RTR until tm_start. */
struct tm_options {
	u32 cqe, depth;
	bool receives;
};
void tm_open_with(struct tm_bed *b, enum tm_path path, struct tm_options o);
void tm_start(struct tm_bed *b);
/* Destroys what is left, and expects that nothing has to be polled any more. */
void tm_close(struct tm_bed *b);
/* Posts an ordinary buffer of TM_BUFFER bytes, the wr_id-th. */
void tm_buffer(struct tm_bed *b, u64 wr_id);
u8 *tm_buffer_at(struct tm_bed *b, u64 wr_id);
/* Adds an entry whose buffer lies at `offset` of the receiver's memory. Signalled, with TM_SYNC if
 * `count` is not negative. Returns its handle. */
u32 tm_add(struct tm_bed *b, u64 recv_wr_id, u64 tag, u64 mask, u32 offset, u32 length, int count);
/* One operation; 0 or what the engine answers. */
int tm_op(struct tm_bed *b, struct ibv_ops_wr *wr);
int tm_sync(struct tm_bed *b, u32 count);
int tm_delete(struct tm_bed *b, u32 handle);
/* Sends a message of `length` bytes behind the TMH; byte i is i + tag. */
void tm_eager(struct tm_bed *b, u64 tag, u32 app_ctx, u32 length);
/* Sends a request for `length` bytes of TM_DATA; `more` bytes follow the RVH. */
void tm_rndv(struct tm_bed *b, u64 tag, u32 length, u32 more);
void tm_send(struct tm_bed *b, const void *message, u32 length, enum ibv_wr_opcode opcode);
void tm_run(struct tm_bed *b);
/* The next completion; fails where there is none. */
struct tm_got tm_next(struct tm_bed *b);
/* The same, and expects it to be so. */
struct tm_got tm_expect(struct tm_bed *b, enum ibv_wc_opcode opcode, u64 wr_id, u32 flags);
void tm_expect_status(struct tm_bed *b, u64 wr_id, enum ibv_wc_status status);
void tm_expect_none(struct tm_bed *b);
/* Takes the completion of an operation. */
void tm_expect_op(struct tm_bed *b, enum ibv_wc_opcode opcode, u32 flags);
/* Do `length` bytes of the receiver's memory hold what tm_eager or tm_rndv sent? */
void tm_expect_payload(struct tm_bed *b, u32 offset, u64 tag, u32 length);
void tm_expect_data(struct tm_bed *b, u32 offset, u32 length);

#endif
