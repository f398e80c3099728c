/* opcode.h: what each request of a connected peer is. */
#ifndef IBT_RECEIVE_OPCODE_H
#define IBT_RECEIVE_OPCODE_H

#include "ibt/ibt_qp.h"

enum {
	OP_SEND = 1,
	OP_WRITE = 2,
	OP_MESSAGE = OP_SEND | OP_WRITE,
	OP_FIRST = 4,
	OP_LAST = 8,
	OP_NOTICE = 16,	  /* WRITE with immediate: consumes a receive request */
	OP_ANSWERED = 32, /* READ, atomic, atomic write, flush */
};

/* By enum pkt_opcode; 0: it is no request. */
extern const u8 opcode_ops[PKT_OPCODES];

/* Tells whether the packet's length fits its opcode. A path that cuts no packets at the path MTU
 * has an upper limit only, and a sender that says so (PKT_MISFIT). IBA vol 1, 9.7.4.1 (length).
 * Either lock of the queue pair. */
static inline bool opcode_has_size(const struct ibt_qp *qp, const struct pkt *p)
{
	u8 op = opcode_ops[p->opcode];

	if (likely(!qp->lossy))
		return likely((p->flags & PKT_MISFIT) == 0);
	if ((op & OP_MESSAGE) == 0)
		return p->length == (p->opcode == PKT_ATOMIC_WRITE ? ATOMIC_WRITE_BYTES : 0);
	if ((op & OP_LAST) == 0)
		return p->length == qp_packet_bytes(qp);
	return p->length <= qp_packet_bytes(qp) && (p->length != 0 || (op & OP_FIRST) != 0);
}

/* The opcode of a part of the answer to a READ. */
static inline u8 opcode_of_answer(bool first, bool last)
{
	if (first)
		return last ? PKT_READ_ONLY : PKT_READ_FIRST;
	return last ? PKT_READ_LAST : PKT_READ_MIDDLE;
}

/* May this be a part of a READ's response that has been requested in one piece? It may have been
 * requested again from any packet on, so it may begin anywhere, but it ends where it is to end. */
static inline bool opcode_fits_answer(u8 opcode, bool first, bool last)
{
	bool begins = opcode == PKT_READ_FIRST || opcode == PKT_READ_ONLY;
	bool ends = opcode == PKT_READ_LAST || opcode == PKT_READ_ONLY;

	return ends == last && (begins || !first);
}

/* Does the packet name the sender's memory instead of carrying it? */
static inline bool opcode_is_pulled(const struct ibt_qp *qp, const struct pkt *p)
{
	return (p->flags & PKT_PULL) != 0 && qp_is_reliable(qp) && !qp->lossy;
}

#endif
