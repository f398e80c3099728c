/* ring.h: the single-producer, single-consumer ring between two processes.
 *
 * One memfd per pair of processes holds two rings, one for each direction. A ring is an array of
 * 64-byte slots, each a decoded packet header with its payload if that is small, and a data area
 * for larger payloads. A slot is one cache line and carries its own sequence number, so a small
 * message costs one line. Everything in shared memory is untrusted: the receiver copies a slot,
 * then judges it; the sender believes `consumed` only within what it has sent.
 *
 *   producer: fill slot, store seq (release)         pairs with   consumer: load seq (acquire)
 *   consumer: copy out, store consumed (release)    pairs with
 * producer: load consumed (acquire), reuse
 */
#ifndef PATH_SHM_RING_H
#define PATH_SHM_RING_H

#include "path/path.h"

enum {
	RING_SLOTS = 1024,
	RING_DATA = 256 << 10, /* stays in the L2 cache */
	RING_PUBLISH = RING_SLOTS / 8, /* the producer hears of room at least this often */
	RING_MTU = 16 << 10,   /* payload of one packet */
	RING_INLINE = 32,
	RING_GRH = 40, /* in front of the payload, with PKT_HAS_GRH */
};

struct CACHE_ALIGNED ring_slot {
	u32 seq; /* position + 1 once valid */
	u8 opcode, flags, qp_type, syndrome;
	u32 dqpn, sqpn;
	u32 psn;
	u32 ack_psn; /* UD: the Q_Key */
	u32 imm;     /* ACK: the MSN */
	u32 length;
	union {
		u8 inlined[RING_INLINE];
		struct {
			u64 va;
			u32 rkey;
			u32 data; /* offset in the data area */
			u64 dma_length;
		} reth;
		struct {
			u64 va;
			u32 rkey;
			u32 unused;
			u64 compare, swap;
		} atomic;
	};
};

/* One direction, as it lies in the memfd. */
struct ring_shared {
	u32 consumed CACHE_ALIGNED; /* slots that the consumer is done with; consumer writes */
	/* the producer wants to hear of room; producer sets, consumer clears */
	u32 waiting CACHE_ALIGNED;
	struct ring_slot slots[RING_SLOTS];
	u8 data[RING_DATA] CACHE_ALIGNED;
};

struct ring_pair {
	struct ring_shared ring[2]; /* [0]: from the process with the lower number to the higher */
};

/* The producer's private half. */
struct ring_tx {
	struct lock lock;
	struct ring_shared *shared FIXED;
	u32 head GUARDED_BY(lock);	/* next slot to fill, free running */
	u32 consumed GUARDED_BY(lock);	/* last believed value */
	u32 data_head GUARDED_BY(lock); /* free running byte position */
	u32 data_tail GUARDED_BY(lock);
	u32 data_end[RING_SLOTS] GUARDED_BY(lock); /* data_head after each slot */
};

/* The consumer's private half. Its owner sees to it that one thread at a time uses it. */
struct ring_rx {
	struct ring_shared *shared;
	u32 tail;       /* next slot to read */
	u32 published;  /* as far as the producer knows */
	u32 data_taken; /* bytes of data consumed since then */
};

/* A memfd for a pair, sealed in size. Descriptor or negative errno. */
int ring_pair_create(void);
/* Maps one (checks size and seals). NULL if it is not one. Not inherited by children. */
struct ring_pair *ring_pair_map(int fd);
/* The same without a descriptor, for a process' traffic with itself. */
struct ring_pair *ring_pair_private(void);
void ring_pair_unmap(struct ring_pair *p);

void ring_tx_init(struct ring_tx *tx, struct ring_shared *shared);
void ring_rx_init(struct ring_rx *rx, struct ring_shared *shared);

/* Puts one packet into the ring: 0 or -EAGAIN (and `waiting` is set). */
int ring_push(struct ring_tx *tx, const struct pkt *p, const struct iovec *iov, int iovcnt)
	EXCLUDES(tx->lock);
/* Is there room for a packet of full size? */
bool ring_has_room(struct ring_tx *tx) EXCLUDES(tx->lock);

static inline bool ring_looks_empty(const struct ring_rx *rx)
{
	u32 tail = rx->tail;

	/* A hint: ring_peek loads again with acquire. */
	return __atomic_load_n(&rx->shared->slots[tail % RING_SLOTS].seq, __ATOMIC_RELAXED) !=
	       tail + 1;
}

/* A received packet: header copied, payload still in the ring, where its sender may change it. */
struct ring_item {
	struct pkt pkt;
	const u8 *payload;
	u32 data_bytes; /* of the data area that it holds */
	u8 grh[RING_GRH];
};

/* 1: *item filled; 0: empty; -EBADMSG: a malformed slot, to be consumed and counted. */
int ring_peek(struct ring_rx *rx, struct ring_item *item);
/* Done with what ring_peek gave. */
void ring_consume(struct ring_rx *rx, const struct ring_item *item);
/* Has so much been consumed that the producer should know? */
static inline bool ring_should_publish(const struct ring_rx *rx)
{
	return rx->tail - rx->published >= RING_PUBLISH || rx->data_taken >= RING_DATA / 8;
}

/* Is there anything that the producer does not know? For an idle moment. */
static inline bool ring_may_publish(const struct ring_rx *rx)
{
	return rx->tail != rx->published;
}

/* Tells the producer how far we are. True: it waits for room and must be rung. */
bool ring_publish(struct ring_rx *rx);

#endif
