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

#include "base/fault.h"
#include "path/path.h"

enum {
	RING_SLOTS = 1024,
	RING_DATA = 256 << 10, /* stays in the L2 cache */
	RING_LAP = 32 << 10,   /* as much of it as a new ring uses */
	RING_SPARE = 8 << 20,  /* by which the rings of a process may grow together */
	RING_PUBLISH = RING_SLOTS / 8, /* the producer is notified of room at least this often */
	RING_MTU = 16 << 10,   /* payload of one packet */
	RING_INLINE = PKT_BRIEF_BYTES,
	/* in front of the payload, with PKT_HAS_GRH: the GRH, then the words of the local route
	 * header: SLID, DLID, P_Key, SL, no_grh */
	RING_ROUTE = 48,
};

struct CACHE_ALIGNED ring_slot {
	u32 seq; /* position + 1 once valid */
	/* beside the fields of struct pkt the words of struct pkt_brief */
	union {
		struct {
			u8 opcode, flags, qp_type, syndrome;
		};
		u32 kind;
	};
	union {
		struct {
			u32 dqpn, sqpn;
		};
		u64 qpns;
	};
	union {
		struct {
			u32 psn;
			u32 ack_psn; /* UD: the Q_Key; XRC requests: the SRQ's number */
		};
		u64 psns;
	};
	u32 imm; /* ACK: the MSN */
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
		/* a short WRITE with immediate data, all of which is here */
		struct {
			u64 va;
			u32 rkey;
			u8 bytes[PATH_NOTICE_BYTES];
		} write;
	};
} OWNED_BY(the producer until seq shows it, then the consumer);

/* One direction, as it lies in the memfd. */
struct ring_shared {
	/* slots that the consumer has consumed; it alone writes */
	u32 consumed CACHE_ALIGNED OWNED_BY(the consumer: atomic);
	/* the producer requests a notification of room; the producer sets it, the consumer clears
	 * it */
	u32 waiting CACHE_ALIGNED OWNED_BY(nobody: atomic);
	struct ring_slot slots[RING_SLOTS] GUARDS_ITSELF;
	/* each piece as the slot that names it */
	u8 data[RING_DATA] CACHE_ALIGNED OWNED_BY(the producer until seq shows it,
						  then the consumer);
};

struct ring_pair {
	struct ring_shared ring[2]; /* [0]: from the process with the lower number to the higher */
} GUARDS_ITSELF;

/* The producer's private half.
 *
 * The producer alone decides where in the data area a piece lies. It uses the first `lap` bytes, so
 * that of a ring that is little used few pages exist, and doubles that when there was no room. */
struct ring_tx {
	struct lock lock;
	struct ring_shared *shared FIXED;
	u32 head GUARDED_BY(lock);	/* next slot to fill, free running */
	u32 consumed GUARDED_BY(lock);	/* last accepted value */
	u32 data_head GUARDED_BY(lock); /* free running byte position */
	u32 data_tail GUARDED_BY(lock);
	u32 lap GUARDED_BY(lock);   /* pieces end at this offset at most */
	bool tight GUARDED_BY(lock); /* there was no room: the lap is to grow */
	u32 grown GUARDED_BY(lock); /* bytes taken from *spare */
	u32 *spare FIXED; /* bytes by which the process' rings may still grow, atomic; NULL: any */
	u32 data_end[RING_SLOTS] GUARDED_BY(lock); /* data_head after each slot */
};

/* The consumer's private half. Its owner ensures that one thread at a time uses it. */
struct ring_rx {
	struct ring_shared *shared;
	const struct ring_slot *next; /* the slot at `tail`, to be read next */
	u32 tail;
	u32 published;  /* the position that the producer was told */
	u32 data_taken; /* bytes of data consumed since then */
	u32 reach;	/* the highest offset at which a piece of data has ended */
} OWNED_BY(the thread that receives);

/* Creates a memfd for a pair, sealed in size. Descriptor or negative errno. */
int ring_pair_create(void);
/* Maps a pair after checking size and seals. NULL if the checks fail. Children do not inherit
 * it. */
struct ring_pair *ring_pair_map(int fd);
/* The same without a descriptor, for a process' messages to itself. */
struct ring_pair *ring_pair_private(void);
void ring_pair_unmap(struct ring_pair *p);

/* `spare`: RING_SPARE, once for all rings of the process; NULL: this one may grow as it likes. */
void ring_tx_init(struct ring_tx *tx, struct ring_shared *shared, u32 *spare);
/* Gives back what the ring has grown by. */
void ring_tx_end(struct ring_tx *tx) EXCLUDES(tx->lock);
void ring_rx_init(struct ring_rx *rx, struct ring_shared *shared);

/* Puts one packet into the ring: 0, -EAGAIN (and `waiting` is set), or -EFAULT (the payload is not
 * mapped any more). */
int ring_push(struct ring_tx *tx, const struct pkt *p, const struct iovec *iov, int iovcnt)
	EXCLUDES(tx->lock);
/* Tells whether a packet of full size fits. */
bool ring_has_room(struct ring_tx *tx) EXCLUDES(tx->lock);

/* Pushes a brief packet that has a payload. False: no room by the last accepted position, or the
 * payload is not mapped. */
static inline bool ring_push_brief(struct ring_tx *tx, const struct pkt_brief *b,
				   const void *payload) EXCLUDES(tx->lock);
/* Pushes brief packets in a row: as many as fit, up to one without payload. Returns how many. */
static inline u32 ring_push_briefs(struct ring_tx *tx, const struct pkt_brief *b,
				   const void *const *payload, u32 n) EXCLUDES(tx->lock);

static inline bool ring_looks_empty(const struct ring_rx *rx)
{
	/* pairs with ring_show */
	return __atomic_load_n(&rx->next->seq, __ATOMIC_ACQUIRE) != rx->tail + 1;
}

/* A received packet: the header is a copy; the payload is still in the ring, where its sender may
 * change it. */
struct ring_item {
	struct pkt pkt;
	const u8 *payload;
	u32 data_bytes; /* bytes of the data area that it occupies */
	u8 route[RING_ROUTE];
} OWNED_BY(the caller);

/* The ring is not empty (!ring_looks_empty). True: the next packet is brief, and *b its content;
 * its payload is at ring_brief_payload, and ring_step follows. */
static inline bool ring_peek_brief(const struct ring_rx *rx, struct pkt_brief *b);
/* Returns how many brief packets come next, n at most: b[] is their content, payload[] the place of
 * each payload. ring_step follows for each that is taken. */
static inline u32 ring_peek_run(const struct ring_rx *rx, struct pkt_brief *b, const void **payload,
				u32 n);
/* 1: *item filled; 0: empty; -EBADMSG: a malformed slot, to be consumed and counted. */
int ring_peek(struct ring_rx *rx, struct ring_item *item);
/* Consumes the packet that ring_peek returned. */
void ring_consume(struct ring_rx *rx, const struct ring_item *item);
/* Tells whether enough has been consumed to notify the producer: an eighth of its lap. What a full
 * ring holds is more than that: it ends less than a third of a lap before the end, and less than a
 * largest packet before where it begins. */
static inline bool ring_should_publish(const struct ring_rx *rx)
{
	return rx->tail - rx->published >= RING_PUBLISH ||
	       rx->data_taken >= MAX(rx->reach, (u32)RING_LAP) / 8;
}

/* The same after a brief packet, which occupies no data area. */
static inline bool ring_should_publish_slots(const struct ring_rx *rx)
{
	return rx->tail - rx->published >= RING_PUBLISH;
}

/* Publishes the consumer's position. True: the producer waits for room and must be rung. */
bool ring_publish(struct ring_rx *rx);

/* ---- brief packets: each word of a slot is written, and read, once ---- */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && sizeof(struct ring_slot) == CACHE_LINE,
	       "a slot's words are those of struct pkt_brief");

/* Publishes a filled slot: its sequence number shows it to the consumer. */
static inline void ring_show(struct ring_tx *tx, struct ring_slot *s, u32 at) REQUIRES(tx->lock)
{
	tx->data_end[at % RING_SLOTS] = tx->data_head;
	/* pairs with ring_looks_empty and ring_peek */
	__atomic_store_n(&s->seq, at + 1, __ATOMIC_RELEASE);
}

/* Writes a slot without publishing it. False: the payload is not mapped any more. */
static ALWAYS_INLINE bool ring_put_brief(struct ring_tx *tx, u32 at, const struct pkt_brief *b,
					 const void *payload) REQUIRES(tx->lock)
{
	struct ring_slot *s = &tx->shared->slots[at % RING_SLOTS];

	s->kind = b->kind;
	s->qpns = b->qpns;
	s->psns = b->psns;
	s->length = b->length;
	if (unlikely(!fault_small_copy(s->inlined, payload, b->length)))
		return false;
	ring_show(tx, s, at);
	return true;
}

static inline bool ring_push_brief(struct ring_tx *tx, const struct pkt_brief *b,
				   const void *payload)
{
	bool done;

	lock_acquire(&tx->lock);
	done = likely(tx->head - tx->consumed < RING_SLOTS) &&
	       likely(ring_put_brief(tx, tx->head, b, payload));
	if (done)
		tx->head++;
	lock_release(&tx->lock);
	return done;
}

/* Withdraws slots that no consumer has seen, since the slot before `from` was not published. */
static NOINLINE void ring_hide(struct ring_tx *tx, u32 from, u32 to) REQUIRES(tx->lock)
{
	for (u32 at = from; at != to; at++)
		__atomic_store_n(&tx->shared->slots[at % RING_SLOTS].seq, at, __ATOMIC_RELAXED);
}

/* Publishes the first slot last: a consumer that watches it takes its line away again and again,
 * but not the others' until it sees all of them. */
static inline u32 ring_push_briefs(struct ring_tx *tx, const struct pkt_brief *b,
				   const void *const *payload, u32 n)
{
	u32 at;

	lock_acquire(&tx->lock);
	at = tx->head;
	n = MIN(n, RING_SLOTS - (at - tx->consumed));
	for (u32 i = n; i-- != 0;)
		if (unlikely(!ring_put_brief(tx, at + i, &b[i], payload[i]))) {
			ring_hide(tx, at + i + 1, at + n);
			n = i;
		}
	tx->head = at + n;
	lock_release(&tx->lock);
	return n;
}

static inline const void *ring_brief_payload(const struct ring_rx *rx)
{
	return rx->next->inlined;
}

/* Consumes one brief packet. */
static inline void ring_step(struct ring_rx *rx)
{
	rx->next = &rx->shared->slots[++rx->tail % RING_SLOTS];
}

static inline bool ring_read_brief(const volatile struct ring_slot *s, struct pkt_brief *b)
{
	b->kind = s->kind;
	b->length = s->length;
	b->qpns = s->qpns;
	b->psns = s->psns;
	return pkt_brief_is_valid(b->kind, b->length);
}

static inline bool ring_peek_brief(const struct ring_rx *rx, struct pkt_brief *b)
{
	return ring_read_brief(rx->next, b);
}

/* One load behind the other, with no lock between, so that their cache lines arrive in parallel. */
static inline u32 ring_peek_run(const struct ring_rx *rx, struct pkt_brief *b, const void **payload,
				u32 n)
{
	for (u32 i = 0; i < n; i++) {
		const struct ring_slot *s = &rx->shared->slots[(rx->tail + i) % RING_SLOTS];

		/* pairs with ring_show */
		if (__atomic_load_n(&s->seq, __ATOMIC_ACQUIRE) != rx->tail + i + 1 ||
		    !ring_read_brief(s, &b[i]))
			return i;
		payload[i] = s->inlined;
	}
	return n;
}

#endif
