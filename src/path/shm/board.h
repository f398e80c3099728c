/* board.h: what a process shows its peers, in one sealed memfd that only its owner can write.
 *
 * Peers map it read-only (F_SEAL_FUTURE_WRITE) and check keys, queue pairs and doorbells in it. All
 * of its content is a claim of the owner about its own memory, never about another process'.
 * `anyverbs status` reads it as well.
 */
#ifndef PATH_SHM_BOARD_H
#define PATH_SHM_BOARD_H

#include "base/compiler.h"
#include "mem/mem.h"
#include "node/node.h"
#include "path/path.h"
#include "shared/shared.h"

enum {
	BOARD_VERSION = 17,
	BOARD_SLOTS = 8, /* slots of the QPN space that one process may hold */
	BOARD_QPS_PER_SLOT = 1 << 14,
	BOARD_QPS = BOARD_SLOTS * BOARD_QPS_PER_SLOT,
	BOARD_HAZARDS = 64,
};
#define BOARD_MAGIC 0x616e7976626f6172ull

/* A queue pair as peers see it. `word` is stored last, with release. */
struct board_qp {
	/* bit 31: exists; bits 0-3 state, 4-7 type (enum ibv_qp_*), 8-15 the remote access flags.
	 * Aligned, so that one line of the cache holds all of it */
	_Alignas(32) u32 word;
	u32 pd;
	u32 peer_qpn; /* RC, UC: the queue pair it is connected to */
	u32 qpn;
	/* for captures: where its packets come from and go to: with BOARD_LIDS, LIDs; else numbers
	 * of GIDs among all of the node's (soft_kind.find_gid), BOARD_NO_GID: unknown */
	u16 from, to;
	u8 mtu;	  /* enum ibv_mtu; also for peers, which compare it with their own */
	/* BOARD_LIDS, BOARD_GRH and, in the upper four bits, the SL; or, of a RoCE device,
	 * BOARD_TALLIED, BOARD_DATAGRAMS and the device's index in the upper three bits */
	u8 link;
	u16 pkey; /* with BOARD_LIDS */
	u64 inside; /* where the owner has it in its own memory, laid out as board.inside says */
} OWNED_BY(its queue pair: peers only load);

/* The PSNs that a connected queue pair was given: of the first packet that it sends, and of the one
 * that it expects. Stored before the word that shows RTS, and RTR. Apart from struct board_qp, for
 * peers read them once per connection. */
struct board_first {
	u32 sq, rq;
} OWNED_BY(its queue pair : peers only load);

/* Counters of a queue pair, for status. Apart from struct board_qp, which peers read for each
 * operation. */
struct CACHE_ALIGNED board_tally {
	u64 sent OWNED_BY(requester.sq_lock);	  /* messages completed by the requester */
	u64 received OWNED_BY(responder.rq_lock); /* messages completed by the responder */
	u64 sent_bytes OWNED_BY(requester.sq_lock), received_bytes OWNED_BY(responder.rq_lock);
	u64 errors OWNED_BY(nobody: atomic); /* completions with an error */
	/* The last of them that was no flush: BOARD_ERROR_*, or 0. */
	u32 last_error OWNED_BY(nobody: atomic);
	u32 behind OWNED_BY(requester.sq_lock); /* 1: requests are posted that have not been sent */
	/* READs among `sent`; stored before it */
	u64 reads OWNED_BY(requester.sq_lock), read_bytes OWNED_BY(requester.sq_lock);
};

/* enum ibv_wc_status lies in the low bits. */
enum { BOARD_ERROR_STATUS = 0xff, BOARD_ERROR_OF_RECEIVE = 0x100 };

enum { BOARD_QP_EXISTS = 1u << 31, BOARD_NO_GID = 0xffff };
enum { BOARD_LIDS = 1, BOARD_GRH = 2, BOARD_SL_SHIFT = 4 };
/* BOARD_TALLIED: the connection's tally tells what has crossed its port, for its path counts
 * nothing. BOARD_DATAGRAMS: the queue pair's tally tells it in any case. */
enum { BOARD_TALLIED = 4, BOARD_DATAGRAMS = 8, BOARD_DEVICE_SHIFT = 5 };

static inline u32 board_qp_word(u32 state, u32 type, u32 access)
{
	return BOARD_QP_EXISTS | (access & 0xff) << 8 | (type & 0xf) << 4 | (state & 0xf);
}

/* Tells whether it exists and has this type. */
static inline bool board_qp_is_type(u32 word, u32 type)
{
	return (word & (BOARD_QP_EXISTS | 0xf0)) == (BOARD_QP_EXISTS | type << 4);
}

/* Announces that an initiator is about to touch, or touches, a peer's memory. */
struct CACHE_ALIGNED board_hazard {
	/* 0: free. Else bit 63, the kind of operation (enum hazard_kind) in bits 61 and 62, in bits
	 * 32-55 the peer's queue pair, whose slot names the process, and in bits 0-31 the index of
	 * a key of that process. */
	u64 word OWNED_BY(nobody: atomic);
	/* Operations done under it: COUNT_DIRECT is the sum of all. Only the thread that has raised
	 * it writes here, without a locked instruction. */
	u64 done OWNED_BY(the thread that has raised it);
};

/* The harm that an operation can do that ends late, in ascending order. */
enum hazard_kind {
	HAZARD_READS,  /* none: its initiator checks again and discards the bytes it has read */
	HAZARD_STORES, /* stores to the owner's memory file, through a map */
	/* writes at the owner's addresses, even if other memory lies there by then */
	HAZARD_WRITES,
};

static inline u64 board_hazard_word(u32 key_index, u32 qpn, enum hazard_kind kind)
{
	return 1ull << 63 | (u64)kind << 61 | (u64)qpn << 32 | key_index;
}

static inline enum hazard_kind board_hazard_kind(u64 word)
{
	u32 kind = (u32)(word >> 61) & 3;

	return kind < HAZARD_WRITES ? (enum hazard_kind)kind : HAZARD_WRITES;
}

static inline u32 board_hazard_key(u64 word)
{
	return (u32)word;
}

static inline u32 board_hazard_qpn(u64 word)
{
	return (u32)(word >> 32) & 0xffffff;
}

struct board {
	u64 magic FIXED;
	u32 version FIXED;
	/* sizeof(struct board): two builds with different layouts never mix */
	u32 size_check FIXED;
	/* also kept at nonce_addr in the owner's private memory: identifies an address space */
	u64 nonce FIXED;
	u64 nonce_addr FIXED;
	s32 pid FIXED;
	/* the owner permits peers of the same user to reach its memory directly */
	u32 direct FIXED;
	char command[32] FIXED;
	struct path_place inside[INSIDE_COUNT] FIXED;
	u32 slot_count OWNED_BY(the owner: atomic);
	u32 slots[BOARD_SLOTS] OWNED_BY(the owner until slot_count shows it); /* then fixed */
	/* The owner's memory file (shared/shared.h), set if a key names it: its descriptor in the
	 * owner's process, and its inode. */
	s32 memory_fd OWNED_BY(the owner: atomic);
	u64 memory_inode OWNED_BY(the owner: atomic);
	struct adopt_table memory GUARDS_ITSELF;
	/* bit 0: armed, a thread sleeps; bit 1: which doorbell; the rest counts arms, so that a
	 * peer rings once per arm. */
	u32 bell CACHE_ALIGNED OWNED_BY(nobody: atomic);
	/* passes of the owner's threads that poll: a peer sees whether one does */
	u32 drives CACHE_ALIGNED OWNED_BY(nobody : atomic);
	/* Counts events that may revoke a key or a queue pair of this process. A check by a peer
	 * stays valid while this is unchanged. */
	u64 generation CACHE_ALIGNED ATOMIC_ONLY;
	u32 hazard_high OWNED_BY(nobody: atomic); /* hazards[] in use or ever used */
	/* counts waits for peers' hazards that the owner has given up. While it is the same the
	 * owner takes what was done under a hazard along */
	u32 given_up ATOMIC_ONLY;
	struct board_hazard hazards[BOARD_HAZARDS] GUARDS_ITSELF;
	u64 counters[PATH_COUNTERS] CACHE_ALIGNED OWNED_BY(nobody: atomic);
	/* By the device's index: what has crossed its port by paths that count packets, and by
	 * queue pairs that are no longer in `summed`. A reader loads this first:
	 * board_traffic_sum */
	struct path_traffic traffic[NODE_DEVICES] CACHE_ALIGNED OWNED_BY(nobody : atomic);
	/* bit N of all words: qps[N] is of a RoCE device, and its tally counts in sums */
	u64 summed[BOARD_QPS / 64] OWNED_BY(nobody : atomic);
	struct board_qp qps[BOARD_QPS] CACHE_ALIGNED GUARDS_ITSELF;
	struct board_tally tallies[BOARD_QPS] CACHE_ALIGNED GUARDS_ITSELF;
	struct mem_entry keys[MEM_MAX_KEYS] CACHE_ALIGNED GUARDS_ITSELF;
	struct board_first firsts[BOARD_QPS] CACHE_ALIGNED GUARDS_ITSELF;
};

enum { BELL_ARMED = 1, BELL_SECOND = 2, BELL_STEP = 4 };

/* Creates a board, mapped here for writing, sealed against all other writers; *fd is for peers.
 * NULL and *err on failure. */
struct board *board_create(int *fd, int *err);
/* Maps a peer's board read-only after checking its size, seals and header. NULL if it is not
 * one. */
const struct board *board_map(int fd);
void board_unmap(const struct board *b);

static inline void board_count(struct board *b, enum path_counter c)
{
	__atomic_fetch_add(&b->counters[c], 1, __ATOMIC_RELAXED);
}

/* Reads a count of a peer's board once, limited to `most`, since its owner may change it. Pairs
 * with the release that publishes the counted entries. */
static inline u32 board_shown_count(const u32 *count, u32 most)
{
	u32 n = __atomic_load_n(count, __ATOMIC_ACQUIRE);

	return MIN(n, most);
}

/* After a key was cleared, or a queue pair's word stored: has peers check again. */
static inline void board_change(struct board *b)
{
	__atomic_fetch_add(&b->generation, 1, __ATOMIC_RELEASE); /* pairs with hazard_raise */
}

#endif
