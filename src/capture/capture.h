/* capture.h: what adapters send and receive, on its way to somebody who records it.
 *
 * The recorder makes a memory file and has the node hand it to every process, which puts a record
 * per frame into it, or counts that there was no room: nobody ever waits. Without a recorder a
 * process pays for one test of a flag per packet at most.
 *
 *   ring.c    the memory file: many writers, one reader
 *   flow.c    sequence numbers as a wire would have them
 *   frames.c  records become frames of Ethernet, or of an InfiniBand fabric
 */
#ifndef CAPTURE_CAPTURE_H
#define CAPTURE_CAPTURE_H

#include <sys/uio.h>

#include "base/list.h"
#include "base/lock.h"
#include "wire/roce.h"

enum {
	CAPTURE_VERSION = 3,
	CAPTURE_SLOTS = 8192,
	CAPTURE_DATA = 4160, /* holds a whole UDP payload */
	CAPTURE_NO_GID = 0xffff,
	CAPTURE_GIDS = 512, /* of all devices of a node */
	CAPTURE_MTU = 4096,
};
#define CAPTURE_MAGIC 0x616e796361707475ull

enum capture_kind {
	CAPTURE_VOID,   /* nothing came of it */
	CAPTURE_LOCAL,  /* a packet of a local path, decoded */
	CAPTURE_DIRECT, /* a one-sided copy: PKT_WRITE_ONLY, or PKT_READ_ONLY for the answer */
	CAPTURE_WIRE,   /* a datagram, as it is */
};

/* What the link layer of a fabric says of a packet. dlid 0: it goes over Ethernet. */
struct capture_lids {
	u16 slid, dlid, pkey;
	u8 sl;
	u8 has_grh;
} OWNED_BY(the caller);

/* One frame. Whoever reads it believes nothing of it. */
struct capture_record {
	u64 time_ns; /* CLOCK_MONOTONIC */
	s32 pid;     /* whose, as itself sees it */
	u8 kind;     /* enum capture_kind */
	u8 inbound;
	/* CAPTURE_LOCAL, CAPTURE_DIRECT: numbers of GIDs (frames.gids), if flow has no addresses */
	u16 sgid_index, dgid_index;
	struct capture_lids lids; /* CAPTURE_LOCAL, CAPTURE_DIRECT */
	u32 mtu;         /* payload of a frame: the queue pair's path MTU */
	u32 path_bytes;  /* payload that a packet of the path has at most, each with one PSN */
	u32 part, parts; /* which frame of the packet this is */
	u64 total;       /* payload of the packet */
	struct roce_flow flow;
	struct pkt pkt; /* decoded; its pointers mean nothing here */
	u32 length;     /* payload of this frame; CAPTURE_WIRE: of UDP */
	u32 kept;       /* bytes of it in data */
	u8 data[CAPTURE_DATA];
} OWNED_BY(the thread that fills or reads it);

struct CACHE_ALIGNED capture_slot {
	/* its position: free; position + 1: a record is there. Pairs with itself: acquire to take
	 * the slot, release to hand it on */
	u64 seq ATOMIC_ONLY;
	struct capture_record record OWNED_BY(the process or reader that seq names);
};

struct capture_shared {
	u64 magic FIXED;
	u32 version FIXED;
	u32 size_check FIXED; /* of this struct */
	u32 snaplen FIXED;    /* bytes of a frame that are kept */
	u64 head CACHE_ALIGNED ATOMIC_ONLY;    /* next position to be taken */
	u64 dropped CACHE_ALIGNED ATOMIC_ONLY; /* frames that found no room */
	struct capture_slot slots[CAPTURE_SLOTS] CACHE_ALIGNED GUARDS_ITSELF;
};

/* ---- the writers' side ---- */

struct capture {
	bool on ATOMIC_ONLY; /* hint for the fast path; written under the lock */
	struct lock lock;
	struct capture_shared *shared GUARDED_BY(lock);
	struct capture_shared *leaving GUARDED_BY(lock); /* to be unmapped by the last user */
	u32 users GUARDED_BY(lock);
};

void capture_init(struct capture *c);
/* Records into the memory file from now on; the descriptor stays the caller's. 0; -EBADF, -EINVAL:
 * it is none. */
int capture_start(struct capture *c, int fd);
void capture_stop(struct capture *c);
/* In a forked child, with one thread: the parent's recorder is not ours. */
void capture_drop_in_child(struct capture *c);

static inline bool capture_is_on(const struct capture *c)
{
	return unlikely(__atomic_load_n(&c->on, __ATOMIC_RELAXED));
}

/* What a record says of the packet beside its payload. */
struct capture_packet {
	enum capture_kind kind;
	bool inbound;
	u16 sgid_index, dgid_index;
	struct capture_lids lids;
	u32 mtu, path_bytes;
	u64 length;                   /* of the payload */
	const struct pkt *pkt;        /* CAPTURE_LOCAL, CAPTURE_DIRECT */
	const struct roce_flow *flow; /* CAPTURE_WIRE */
} OWNED_BY(the thread that sends or receives it);

/* Room that was taken before the packet went, so that records lie in the order in which packets
 * went. */
struct capture_hold {
	struct capture_shared *shared; /* NULL: nobody records, or there was no room */
	u64 first, time_ns;
	u32 count, parts; /* frames that room was taken for, the first ones; and that it has */
} OWNED_BY(the thread between capture_begin and capture_end);

/* Takes room for the packet, or for as much of its beginning as there is room for. Every begin has
 * its end. */
void capture_begin(struct capture *c, const struct capture_packet *p, struct capture_hold *h);
/* Fills it with the packet, whose payload is that of the pieces, or with nothing unless it
 * `went`. */
void capture_end(struct capture *c, const struct capture_hold *h, const struct capture_packet *p,
		 const struct iovec *iov, int iovcnt, bool went);
/* A datagram's UDP payload, in one step. */
void capture_datagram(struct capture *c, bool inbound, const struct roce_flow *flow,
		      const void *data, u32 length);

/* ---- the reader's side ---- */

struct capture_reader {
	struct capture_shared *shared;
	u64 tail;
	u64 stuck_ns; /* since when a writer has not finished the next record; 0: it has */
	u64 lost;     /* records that were given up for that */
} OWNED_BY(the recorder);

/* A memory file of this kind, and its mapping: the descriptor, or a negative errno. */
int capture_create(u32 snaplen, struct capture_reader *r);
void capture_destroy(struct capture_reader *r);
/* Copies the next record; false: there is none. One whose writer has died is given up after a
 * second. */
bool capture_next(struct capture_reader *r, struct capture_record *out, u64 now_ns);
/* Frames that found no room so far. */
u64 capture_dropped(const struct capture_reader *r);

/* ---- flow.c ---- */

struct flows;

struct flows *flows_create(void);
void flows_destroy(struct flows *f);
/* The PSN of the frame that the record is, or that acknowledges it. The path numbers its own
 * packets, of up to path_bytes; a wire's frames need numbers of their own. */
u32 flows_psn(struct flows *f, const struct capture_record *r);
/* The PSN as which the packet that went from sqpn to dqpn with the engine's `psn` is
 * acknowledged (its last frame's), or refused (its first one's). */
u32 flows_acked(struct flows *f, u32 sqpn, u32 dqpn, u32 psn, bool refused);
/* The message sequence number for an acknowledgement of what goes from sqpn to dqpn. `msn`: what
 * the engine says now; NULL: as it said last. */
u32 flows_msn(struct flows *f, u32 sqpn, u32 dqpn, const u32 *msn);

/* ---- frames.c ---- */

enum { FRAME_ETHERNET = 14, FRAME_MAX = FRAME_ETHERNET + ROCE_IP_MAX + ROCE_UDP_MAX };
enum frame_link { FRAME_LINK_ETHERNET, FRAME_LINK_INFINIBAND, FRAME_LINKS };

struct frame {
	u64 time_ns;
	enum frame_link link; /* what the frame begins with */
	bool inbound;
	const char *comment; /* what of it was never on a wire; NULL: nothing */
	u32 length;          /* as on the wire */
	u32 kept;
	u8 data[FRAME_MAX];
} OWNED_BY(the recorder);

/* What the fabric's tables say of a packet. */
struct frames_way {
	u8 vl;
	u8 sgid[16], dgid[16]; /* of the ports that have the LIDs */
} OWNED_BY(the recorder);

struct frames {
	struct flows *flows;
	u32 snaplen;
	/* of all devices: the node's table of each, one after the other */
	u8 gids[CAPTURE_GIDS][16];
	void (*emit)(void *arg, const struct frame *f);
	/* Fills *way, as far as the fabric knows it. NULL: nobody knows. */
	void (*find_way)(void *arg, const struct capture_lids *lids, struct frames_way *way);
	void *arg;
	struct frame frame; /* the one being made */
} OWNED_BY(the recorder);

/* Makes a record's frames: none if it has no wire form, more than one if something travelled
 * along. */
void frames_make(struct frames *m, const struct capture_record *r);

#endif
