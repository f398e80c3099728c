/* wqe.h: work queue elements and the rings that hold them; no queue pair is known here. */
#ifndef IBT_SEND_WQE_H
#define IBT_SEND_WQE_H

#include "base/queue_memory.h"
#include "ibt/ibt.h"

/* A send work request. Followed by its SGEs or its inline data. */
struct send_wqe {
	u64 wr_id;
	u8 opcode; /* enum ibv_wr_opcode, or WQE_* */
	u8 flags;  /* enum ibv_send_flags; SIGNALED is set where sq_sig_all says so */
	u8 sge_count;
	bool answered; /* READ, atomic: the response has come */
	bool pull;     /* the receiver copies from our memory */
	/* WRITE_WITH_IMM: its data was placed by a direct copy; only the notice is a packet */
	bool placed;
	u8 stretch;    /* READ: its requests have stream.segment << stretch packets */
	u32 imm;       /* immediate data; the key to invalidate, bind or register */
	u32 length;
	u32 first_psn; /* set when first transmitted */
	/* The same, with `pull` and `placed`; 0 before. Sent again it keeps them: the peer may have
	 * counted its PSNs, and then a part of it would seem new */
	u32 psn_count;
	u32 rkey;
	u32 first_cost; /* stream.cost_next when it was first transmitted */
	union {
		struct {
			u64 va, compare, swap; /* FETCH_ADD: the addend is in `compare` */
			u32 srqn; /* XRC: the SRQ of the peer */
		};
		struct {		     /* with WQE_LEFT */
			u64 va_too, left_ns; /* clock: the first of them was left */
			u64 left;	     /* so many */
		};
		struct { /* WQE_BIND_MW, WQE_REG_MR; `rkey`: the region's, or 0: bound already */
			u64 addr, range;
			u32 access;
		} bind;
		struct {
			struct path_av av;
			u32 remote_qpn, qkey;
		} ud;
	};
	struct ibv_sge sge[];
} OWNED_BY(requester.sq_lock);

enum {
	/* send_wqe.flags: the last WRITE or READ of those that were left to the peer's engine */
	WQE_LEFT = 0x20,
	WQE_COUNTED = 0x40, /* send_wqe.flags: counted_send wants to see its end */
	WQE_TM = 0x80,	    /* send_wqe.flags: perhaps of a rendezvous (tm_rndv.h) */
	WQE_TM_FIN = 0x40,  /* send_wqe.opcode: a SEND of the adapter's own */
	/* send_wqe.opcode: the request touches this side only; with an enum ibv_wr_opcode, or alone
	 * fast registration, which only the midlayer posts (ibt_post_reg) */
	WQE_LOCAL = 0x20,
	WQE_LOCAL_INV = WQE_LOCAL | IBV_WR_LOCAL_INV,
	WQE_BIND_MW = WQE_LOCAL | IBV_WR_BIND_MW,
	WQE_REG_MR = WQE_LOCAL,
	WQE_WC_REG_MR = 10, /* the opcode of the last one's completion: IB_WC_REG_MR */
	/* send_wqe.opcode of IBV_WR_ATOMIC_WRITE, whose value is inline or in the list, and of a
	 * FLUSH: the range is `compare` bytes from `va` on, the FETH `swap`. `length` is 0, that of
	 * the response. They follow the other requests that are answered with data */
	WQE_ATOMIC_WRITE = IBV_WR_ATOMIC_FETCH_AND_ADD + 1,
	WQE_FLUSH,
	/* of later headers: enum ibv_wr_opcode, enum ibv_wc_opcode */
	WQE_WR_FLUSH = 14,
	WQE_WC_FLUSH = 8,
	ATOMIC_WRITE_BYTES = 8,
};
_Static_assert(IBV_WR_ATOMIC_CMP_AND_SWP == IBV_WR_RDMA_READ + 1 &&
		       IBV_WR_ATOMIC_FETCH_AND_ADD == IBV_WR_RDMA_READ + 2,
	       "what is answered lies in a row");

_Static_assert(sizeof(struct send_wqe) == 96, "one and a half cache lines before its pieces");

struct recv_wqe {
	u64 wr_id;
	u32 sge_count;
	u32 length;
	struct ibv_sge sge[];
} OWNED_BY(whoever has its queue; a copy: the message that took it);

/* A ring of work queue elements. Free-running indexes. */
struct wqe_ring {
	u8 *memory;
	u32 stride, mask, size; /* size: what the consumer may have outstanding */
	u32 max_sge;
} OWNED_BY(whoever has its queue);

/* The memory for a ring: `from` (NULL: the heap), and of which kind it is there. wqe_ring_init sets
 * is_given if it is memory of `from`. */
struct wqe_memory {
	const struct queue_memory *from;
	enum queue_kind kind;
	bool is_given;
} OWNED_BY(the caller);

/* Makes room for `size` elements, rounded up to a power of two, of `stride` bytes each; 0: as
 * receive requests with max_sge need. 0; -ENOMEM, -EINVAL: see queue_memory_get. */
int wqe_ring_init(struct wqe_ring *r, u32 size, u32 stride, u32 max_sge, struct wqe_memory *memory);
/* Gives the memory back to where it came from. Blocks as queue_memory.put may. */
void wqe_ring_fini(struct wqe_ring *r, const struct wqe_memory *memory);

/* Checks and copies a receive request into `w`. 0, -EINVAL: more SGEs than the ring has. */
int wqe_fill_recv(const struct wqe_ring *r, struct recv_wqe *w, const struct ibv_recv_wr *wr);
/* Bytes of an element of a send queue with these limits: whole cache lines. */
u32 wqe_send_stride(u32 max_sge, u32 max_inline);

static inline struct recv_wqe *wqe_recv_at(const struct wqe_ring *r, u32 index)
{
	return (struct recv_wqe *)(r->memory + (size_t)(index & r->mask) * r->stride);
}

/* Does the peer answer the request: a READ, an atomic, an atomic write, a flush? */
static inline bool wqe_is_answered_op(const struct send_wqe *w)
{
	return (u8)(w->opcode - IBV_WR_RDMA_READ) <= WQE_FLUSH - IBV_WR_RDMA_READ;
}

/* Is its answer an empty READ response? */
static inline bool wqe_is_confirmed_op(const struct send_wqe *w)
{
	return w->opcode == WQE_ATOMIC_WRITE || w->opcode == WQE_FLUSH;
}

/* Does the request touch this side only? */
static inline bool wqe_is_local(const struct send_wqe *w)
{
	return (w->opcode & WQE_LOCAL) != 0;
}

#endif
