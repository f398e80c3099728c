/* pkt.h: a packet of the transport engine, decoded: headers as fields, named as in IBA vol 1 ch. 9.
 *
 * Its payload travels beside it, as pieces of memory. Local paths carry it as it is; roce.h puts it
 * on a wire.
 */
#ifndef WIRE_PKT_H
#define WIRE_PKT_H

#include "base/compiler.h"

/* BTH opcodes without the transport's bits (the QP's type says which): IBA vol 1, 9.2.1 (OpCode).
 * */
enum pkt_opcode {
	PKT_SEND_FIRST,
	PKT_SEND_MIDDLE,
	PKT_SEND_LAST,
	PKT_SEND_LAST_IMM,
	PKT_SEND_ONLY,
	PKT_SEND_ONLY_IMM,
	PKT_WRITE_FIRST,
	PKT_WRITE_MIDDLE,
	PKT_WRITE_LAST,
	PKT_WRITE_LAST_IMM,
	PKT_WRITE_ONLY,
	PKT_WRITE_ONLY_IMM,
	PKT_READ_REQUEST,
	PKT_READ_FIRST,
	PKT_READ_MIDDLE,
	PKT_READ_LAST,
	PKT_READ_ONLY,
	PKT_ACK,
	PKT_ATOMIC_ACK,
	PKT_COMPARE_SWAP,
	PKT_FETCH_ADD,
	PKT_RESYNC,
	PKT_SEND_LAST_INV,
	PKT_SEND_ONLY_INV,
	/* no wire form: a reliable path's answer that the QP is absent or not receiving */
	PKT_ABSENT,
	/* RoCEv2's congestion notification, BTH opcode 0x81: for whoever sends to `dqpn`'s peer */
	PKT_CNP,
	/* no wire form: an XRC target's process begins, or ends, to hand requests to the process of
	 * an SRQ (ibt/xrc/forward.h) */
	PKT_FORWARD_OPEN = 26,
	PKT_FORWARD_CLOSE = 27,
	/* IBA vol 1, A19 (memory placement extensions). Both are answered by an empty READ
	 * response */
	PKT_FLUSH = 28,
	PKT_ATOMIC_WRITE = 29,
	PKT_OPCODES
};

/* enum ibv_qp_type's numbers, which this header does not see. An XRC packet has the type of the
 * queue pair that takes it: an initiator (IBV_QPT_XRC_SEND) takes responses, a target requests. */
enum { PKT_TYPE_RC = 2, PKT_TYPE_UD = 4, PKT_TYPE_XRC_INI = 9, PKT_TYPE_XRC_TGT = 10 };
/* No wire form. Requests that an XRC target hands to the process of the SRQ: dqpn is the SRQ's
 * number, sqpn the target's. And that process' answers: the low bits tell the target's connections
 * apart. */
enum { PKT_TYPE_FORWARDED = 0x80, PKT_TYPE_DONE = 0x40, PKT_DONE_SERIAL = 0x3f };

enum pkt_flags {
	PKT_SOLICITED = 1,
	PKT_ACK_REQUEST = 2,
	/* ack_psn acknowledges the reverse direction; only where the path is reliable */
	PKT_HAS_ACK = 4,
	/* sgid and dgid are set (UD) */
	PKT_HAS_GRH = 8,
	PKT_MULTICAST = 16,
	/* RC, UC, where the path does not cut packets at the path MTU: cut there, this one would
	 * have a size that one of the ends does not take */
	PKT_MISFIT = 16,
	/* WRITE with immediate: a direct path has placed the data already, only the notice
	 * travels */
	PKT_PLACED = 32,
	/* the payload is a list of iovecs in the sender's memory, of dma_length bytes */
	PKT_PULL = 64,
	/* WRITE, READ: the sender has tried by itself and could not reach the memory; whoever
	 * executes it asks the kernel first */
	PKT_UNREACHED = 128,
};

/* FETH: what is to be flushed, and how far. IBA vol 1, A19. */
enum {
	FETH_GLOBAL = 1,     /* placement type: visible to all of the host */
	FETH_PERSISTENT = 2, /* placement type: survives a loss of power */
	FETH_TYPE = 15,
	FETH_LEVEL_SHIFT = 4,
	FETH_RANGE = 0, /* selectivity: the range of the RETH */
	FETH_REGION = 1, /* the whole region of its key */
};

/* AETH syndromes, IBA vol 1, 9.7.5.2 (AETH format). */
enum { AETH_ACK = 0x1f, AETH_RNR = 0x20, AETH_NAK = 0x60 };
enum {
	NAK_PSN_SEQUENCE = 0,
	NAK_INVALID_REQUEST = 1,
	NAK_REMOTE_ACCESS = 2,
	NAK_REMOTE_OPERATION = 3,
	NAK_CANNOT_PULL = 31 /* no wire form: send the bytes instead */
};

struct pkt {
	u8 opcode;   /* enum pkt_opcode */
	u8 flags;    /* enum pkt_flags */
	u8 qp_type;  /* enum ibv_qp_type: RC, UC, UD; XRC: of the queue pair that takes it */
	u8 syndrome; /* AETH */
	u32 dqpn;
	u32 sqpn;    /* the sender's queue pair; on a wire only UD's packets name it, else 0 */
	u32 psn;     /* 24 bits */
	u32 ack_psn; /* PKT_HAS_ACK */
	/* immediate data, network order as in ibv_wc; the key of SEND_WITH_INV; the FETH of a
	 * FLUSH */
	u32 imm;
	u32 length;  /* payload bytes */
	u16 pkey;    /* of datagrams, and on a wire; 0: the default P_Key */
	u8 sl;	     /* UD with LIDs */
	bool no_grh; /* UD: sgid and dgid are for the path, the receiver sees no GRH */
	union {
		u32 qkey; /* UD */
		u32 srqn; /* XRC requests: the SRQ that is addressed (XRCETH), 24 bits */
	};
	u32 msn;     /* AETH */
	u32 rkey;    /* RETH, AtomicETH */
	u64 va;	     /* RETH, AtomicETH */
	u64 dma_length;	       /* RETH: bytes of the whole message */
	u64 compare, swap;     /* AtomicETH; ATOMIC_ACK: the original value is in `swap` */
	const u8 *sgid, *dgid; /* 16 bytes each, with PKT_HAS_GRH */
	u8 traffic_class, hop_limit;
	u16 slid, dlid; /* UD; 0: the link layer has none */
	bool unmigrated; /* on a wire: MigReq is 0 */
	u32 flow_label;
} OWNED_BY(the caller);

/* Is the opcode a response: of a READ, an atomic, an acknowledgement? */
static inline bool pkt_is_response(u8 opcode)
{
	return opcode >= PKT_READ_FIRST && opcode <= PKT_ATOMIC_ACK;
}

/* Do packets of this type belong to RC or XRC: are they acknowledged? */
static inline bool pkt_is_reliable(u8 qp_type)
{
	return qp_type == PKT_TYPE_RC || qp_type == PKT_TYPE_XRC_INI || qp_type == PKT_TYPE_XRC_TGT;
}

/* Does the packet answer a request that was handed on? */
static inline bool pkt_is_done(u8 qp_type)
{
	return (qp_type & ~PKT_DONE_SERIAL) == PKT_TYPE_DONE;
}

/* A SEND of an RC queue pair that is one packet of a few bytes, in words: what most messages are.
 * Whoever only passes it on need not take it apart. */
struct pkt_brief {
	u32 kind; /* opcode, flags, qp_type and syndrome of struct pkt, a byte each */
	u32 length; /* 1 to PKT_BRIEF_BYTES */
	u64 qpns; /* dqpn; sqpn in the upper half */
	u64 psns; /* psn; ack_psn in the upper half */
} OWNED_BY(the caller);

enum {
	PKT_BRIEF_BYTES = 32,
	PKT_BRIEF_KIND = PKT_SEND_ONLY | PKT_TYPE_RC << 16,
	/* flags that one may have */
	PKT_BRIEF_FLAGS = (PKT_SOLICITED | PKT_ACK_REQUEST | PKT_HAS_ACK) << 8,
};

static inline bool pkt_brief_is_valid(u32 kind, u32 length)
{
	return (kind & ~(u32)PKT_BRIEF_FLAGS) == PKT_BRIEF_KIND && length - 1 < PKT_BRIEF_BYTES;
}

/* The same packet in the two forms. */
static inline struct pkt pkt_from_brief(const struct pkt_brief *b)
{
	return (struct pkt){ .opcode = (u8)b->kind,
			     .flags = (u8)(b->kind >> 8),
			     .qp_type = (u8)(b->kind >> 16),
			     .syndrome = (u8)(b->kind >> 24),
			     .dqpn = (u32)b->qpns,
			     .sqpn = (u32)(b->qpns >> 32),
			     .psn = (u32)b->psns,
			     .ack_psn = (u32)(b->psns >> 32),
			     .pkey = 0xffff,
			     .length = b->length };
}

/* False: it has none. */
static inline bool pkt_to_brief(const struct pkt *p, struct pkt_brief *b)
{
	b->kind = (u32)p->syndrome << 24 | (u32)p->qp_type << 16 | (u32)p->flags << 8 | p->opcode;
	b->length = p->length;
	b->qpns = (u64)p->sqpn << 32 | p->dqpn;
	b->psns = (u64)p->ack_psn << 32 | p->psn;
	return pkt_brief_is_valid(b->kind, b->length);
}

#endif
