/* board.h: what a process shows its peers: one sealed memfd that only its owner can write.
 *
 * Peers map it read-only (F_SEAL_FUTURE_WRITE) and check keys, queue pairs and doorbells in it by
 * themselves; whatever they read there is a claim of the owner about its own memory, never about
 * anybody else's. `anyverbs status` reads it as well.
 */
#ifndef PATH_SHM_BOARD_H
#define PATH_SHM_BOARD_H

#include "base/compiler.h"
#include "mem/mem.h"
#include "path/path.h"
#include "shared/shared.h"

enum {
	BOARD_VERSION = 5,
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
	u32 peer_qpn; /* RC, UC: whom it is connected to */
	u32 qpn;
	/* where its packets go and come from, as indexes of the port's table, BOARD_NO_GID:
	 * unknown; enum ibv_mtu. For captures */
	u8 sgid_index, dgid_index, mtu;
};

/* What a queue pair has done, for status. Apart from struct board_qp, which peers read for each
 * operation. */
struct CACHE_ALIGNED board_tally {
	u64 sent;     /* messages completed by the requester */
	u64 received; /* messages completed by the responder */
	u64 sent_bytes, received_bytes;
	u64 errors; /* completions with an error */
};

enum { BOARD_QP_EXISTS = 1u << 31, BOARD_NO_GID = 0xff };

static inline u32 board_qp_word(u32 state, u32 type, u32 access)
{
	return BOARD_QP_EXISTS | (access & 0xff) << 8 | (type & 0xf) << 4 | (state & 0xf);
}

/* Does it exist, and of this type? */
static inline bool board_qp_is_type(u32 word, u32 type)
{
	return (word & (BOARD_QP_EXISTS | 0xf0)) == (BOARD_QP_EXISTS | type << 4);
}

/* An initiator is about to touch, or touches, a peer's memory by itself. */
struct CACHE_ALIGNED board_hazard {
	/* 0: free. Else bit 63, what is done under it (enum hazard_kind) in bits 61 and 62, in bits
	 * 32-55 the peer's queue pair, whose slot says which process it is, and in bits 0-31 the
	 * index of a key of that process. */
	u64 word;
	/* How many operations have been done under it: COUNT_DIRECT is the sum of all. Only who has
	 * raised it writes here, which takes no locked instruction. */
	u64 done;
};

/* What may come of an operation that ends late, in the order of how bad that is. */
enum hazard_kind {
	HAZARD_READS,  /* nothing: its initiator looks again and discards what it has read */
	HAZARD_STORES, /* stores to the owner's memory file, through a map */
	HAZARD_WRITES, /* writes at the owner's addresses, whatever lies there by then */
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
	u64 magic;
	u32 version;
	u32 size_check; /* sizeof(struct board), so that two builds never mix */
	/* also kept at nonce_addr in the owner's private memory: proves an address space */
	u64 nonce;
	u64 nonce_addr;
	s32 pid;
	u32 direct; /* the owner lets peers of the same user reach its memory by themselves */
	char command[32];
	u32 slot_count;
	u32 slots[BOARD_SLOTS];
	/* The owner's memory file (shared/shared.h), there if a key speaks of it: its descriptor in
	 * the owner's process, and its inode. */
	s32 memory_fd;
	u64 memory_inode;
	struct adopt_table memory;
	/* bit 0: armed, somebody sleeps; bit 1: which bell; the rest counts arms, so that a peer
	 * rings once per arm. */
	u32 bell CACHE_ALIGNED;
	/* Counts whatever may make a key or a queue pair of this process unfit for peers. What a
	 * peer has found fit stays so while this is the same. */
	u64 generation CACHE_ALIGNED;
	u32 hazard_high; /* hazards[] in use or ever used */
	struct board_hazard hazards[BOARD_HAZARDS];
	u64 counters[PATH_COUNTERS] CACHE_ALIGNED;
	struct board_qp qps[BOARD_QPS] CACHE_ALIGNED;
	struct board_tally tallies[BOARD_QPS] CACHE_ALIGNED;
	struct mem_entry keys[MEM_MAX_KEYS] CACHE_ALIGNED;
};

enum { BELL_ARMED = 1, BELL_SECOND = 2, BELL_STEP = 4 };

/* A new board, mapped for writing here, sealed against everybody else; *fd is for peers. NULL
 * and *err on failure. */
struct board *board_create(int *fd, int *err);
/* Maps a peer's board read-only after checking its size, seals and header. NULL if it is not
 * one. */
const struct board *board_map(int fd);
void board_unmap(const struct board *b);

static inline void board_count(struct board *b, enum path_counter c)
{
	__atomic_fetch_add(&b->counters[c], 1, __ATOMIC_RELAXED);
}

/* A count that the board's owner shows, at most `most`: read once, for he may be changing it. Pairs
 * with the release that shows what it counts. */
static inline u32 board_shown_count(const u32 *count, u32 most)
{
	u32 n = __atomic_load_n(count, __ATOMIC_ACQUIRE);

	return MIN(n, most);
}

/* After a key has been cleared, or a queue pair's word stored: peers look again at everything. */
static inline void board_change(struct board *b)
{
	__atomic_fetch_add(&b->generation, 1, __ATOMIC_RELEASE); /* pairs with hazard_raise */
}

#endif
