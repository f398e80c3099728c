/* adopt_priv.h: inside adoption.
 *
 *   adopt.c        regions, and when to adopt
 *   adopt_allow.c  whether this process may adopt
 *   adopt_cgroup.c how much memory its control groups allow
 *   adopt_look.c   asks the kernel about this process: threads, maps, pins
 *   adopt_move.c   moves pages into the file and out
 *   adopt_stash.c  keeps an empty copy of a map, to be put back
 *   adopt_back.c   moves all pages out before the first fork
 *   adopt_fork.c   gives a forked child its memory
 *   own.c          memory of the stack's libraries
 */
#ifndef SHARED_ADOPT_PRIV_H
#define SHARED_ADOPT_PRIV_H

#include "base/lock.h"
#include "shared/shared.h"

enum {
	ADOPT_RANGES = 1024, /* registrations that are tracked one by one */
	ADOPT_WIPED = 64,
	/* bytes that move at a time: no more than that exists twice */
	ADOPT_CHUNK = 4 << 20,
};

/* Adopted pages. The range's own map went to `stash`, without pages but with all that the kernel
 * keeps of it (advice, policies). The content goes back there when the pages return. */
struct adopt_region {
	u64 addr, length; /* in bytes, whole pages */
	u64 offset;	  /* of its slot in the file; kept while the region is free */
	u64 stash;	  /* 0: born there */
	/* slots it has had: it takes the next one if stores may still go to the old one */
	u32 turn;
	u32 refs; /* registrations that touch it; 0 and not `lingers`: free */
	bool lingers; /* without registrations, but its pages cannot be put back yet */
	bool unclean; /* its slot must not be used again */
	bool stays; /* adopt_back.c: part of it could not be moved out */
	bool keeps; /* a private map may still need the file's pages: they are not dropped */
	bool lost; /* its address holds other memory: keys find it, addresses do not */
} OWNED_BY(adopt.lock);

/* A piece of the file that this process has mapped, as the kernel shows it. */
struct adopt_piece {
	u64 start, end;
	u64 offset; /* of start, in the file */
	int prot;
	u64 copy;  /* fork: address of the child's copy */
	u8 heir; /* of born memory: what a child gets of it (enum born_heir) */
} OWNED_BY(the caller);

struct adopt_pieces {
	struct adopt_piece *at;
	u32 count, space;
	bool held; /* requests to the kernel may name any page */
} OWNED_BY(adopt.lock);

struct adopt_range {
	u64 start, end;
} OWNED_BY(the caller);

struct adopt {
	struct lock lock;
	int fd GUARDED_BY(lock); /* -1: no file yet */
	u64 inode GUARDED_BY(lock);
	u64 device GUARDED_BY(lock);
	/* The list of maps, kept open: later the process may lack a descriptor, or the right to
	 * open it. */
	int maps_fd GUARDED_BY(lock);
	u64 maps_inode GUARDED_BY(lock);
	u64 bytes GUARDED_BY(lock); /* of all regions */
	u32 lingering GUARDED_BY(lock); /* number of lingering regions */
	u64 swept_ns GUARDED_BY(lock);	/* clock: when these were last tried */
	/* clock: since when the credit to adopt has gathered, for any length and for short ones */
	u64 credit_ns GUARDED_BY(lock);
	u64 small_ns GUARDED_BY(lock);
	u32 maps GUARDED_BY(lock);  /* maps of this process at the last count */
	u32 looks GUARDED_BY(lock); /* registrations since then */
	struct adopt_region regions[ADOPT_REGIONS] GUARDED_BY(lock);
	struct adopt_table *shown GUARDED_BY(lock);
	struct mem_table *keys GUARDED_BY(lock); /* its entries may name regions; NULL: no table */
	/* A fork has moved everything out (adopt_back.c): nothing is adopted any more. */
	bool given_back GUARDED_BY(lock);
	/* Pages of private maps of the file that a child gets zeroed. The kernel has no such advice
	 * for them: a child does not inherit them. */
	struct adopt_range wiped[ADOPT_WIPED] GUARDED_BY(lock);
	u32 wiped_count GUARDED_BY(lock);
	u32 region_high GUARDED_BY(lock); /* regions[] in use or ever used */
	struct adopt_range ranges[ADOPT_RANGES] GUARDED_BY(lock);
	u32 range_count GUARDED_BY(lock);
	u32 untracked GUARDED_BY(lock); /* registrations beyond those in ranges */
	struct adopt_pieces pieces GUARDED_BY(lock);
	bool born_is_lost GUARDED_BY(lock);
	bool everywhere ATOMIC_ONLY; /* adopt_enter_all was called */
};

/* The process has one. */
extern struct adopt adopt;
/* Held by the engine's thread while it is awake. */
extern struct lock adopt_engine_lock;
extern bool adopt_engine_runs GUARDED_BY(adopt_engine_lock);
/* The engine's thread is being created. It counts once it has called adopt_engine_begin. */
extern bool adopt_engine_comes GUARDED_BY(adopt_engine_lock);

/* ---- adopt.c ---- */

/* Tells whether the descriptor is still the file's: the application may have closed it and opened
 * another. */
bool adopt_file_is_there(void) REQUIRES(&adopt.lock);
/* Makes the file if there is none. False: there is none, or the descriptor is not its own any
 * more. */
bool adopt_file_make(void) REQUIRES(&adopt.lock);
/* adopt_file_is_there without the lock; and reads the descriptor. */
bool adopt_file_is_open(void);
int adopt_file_fd(void);
/* Makes [base, base + length) the region of born memory (shared.h). Returns its offset in the file;
 * 0: not allowed, or no file. */
u64 adopt_born(u64 base, u64 length);
/* Other memory has been mapped within it: peers find none of it by address any more. */
void adopt_born_lost(void);
/* Tells whether its pages are, or may be, in the file. */
bool region_is_used(const struct adopt_region *r);
/* Tells whether it is the arena of born memory, which never moves and has no stash. */
bool region_is_born(const struct adopt_region *r);
/* Hides it: no peer finds it by address any more. */
void region_hide(const struct adopt_region *r) REQUIRES(&adopt.lock);
/* Frees a region whose pages are out. `reusable`: its slot may be used again. */
void region_end(struct adopt_region *r, bool reusable) REQUIRES(&adopt.lock);
/* Tells whether it contains the stack of this thread. Then its pages do not move, even in a process
 * with one thread. */
bool adopt_stands_on(const struct adopt_region *r);

/* ---- adopt_allow.c ---- */

/* Tells whether limits and settings allow adoption now. */
bool allow_limits(void);
/* Tells whether settings allow own memory. */
bool allow_own(void);
/* Bytes that may be adopted at once, of the machine's memory. */
u64 allow_bytes(void);
/* Tells whether `length` more bytes fit the limits of the control groups, beside `bytes` adopted
 * ones: an eighth of the limit at most, with room to move. */
bool allow_fits(u64 bytes, u64 length) REQUIRES(&adopt.lock);
/* Maps that may exist when one more region is adopted, or a peer's slot mapped. */
u32 allow_maps(void);

/* ---- adopt_cgroup.c ---- */

struct cgroup_room {
	u64 limit; /* the tightest */
	u64 left;  /* of any limit, the least that is unused */
} OWNED_BY(the caller);
#define CGROUP_NO_LIMIT (1ull << 62)

enum { CGROUP_PATH = 1024 };

/* What cgroup_ask works in: 11 KiB, too much for a small stack. */
struct cgroup_ask {
	char v1[CGROUP_PATH], v2[CGROUP_PATH]; /* this process' group; "": none */
	char root[CGROUP_PATH], mount[CGROUP_PATH], folder[2 * CGROUP_PATH];
	char path[2 * CGROUP_PATH + 64];
	char stat[4096]; /* bytes of memory.stat that are read */
	u64 need;
	struct cgroup_room room;
} OWNED_BY(the caller);

/* Asks what the groups of a process allow; `proc` is its folder (/proc/self). Counts pages of files
 * that the kernel can reclaim only if less than `need` is left without them. */
struct cgroup_room cgroup_ask(const char *proc, u64 need, struct cgroup_ask *a);

/* ---- adopt_look.c ---- */

/* Tells whether this process has no thread but the caller, and the engine's, which stands still. */
bool look_is_alone(void) REQUIRES(&adopt_engine_lock);
/* Opens the list of maps and keeps it open. */
bool look_keep(void) REQUIRES(&adopt.lock);
/* Closes it. */
void look_drop(void) REQUIRES(&adopt.lock);
/* Tells whether [start, end) is plain memory of which nothing outside the process holds pages. */
bool look_is_plain(u64 start, u64 end) REQUIRES(&adopt.lock);
/* Finds the map that contains `at`. False: no such map, or the list cannot be read. */
bool look_bounds(u64 at, u64 *start, u64 *end) REQUIRES(&adopt.lock);
/* Tells whether pages are locked, or held by a device or by io_uring: then they stay in place. */
bool look_is_held(void);
/* Tells whether [start, end) is a shared map of the file, from `offset` on, with all of `prot`. */
bool look_is_ours(u64 start, u64 end, u64 offset, int prot) REQUIRES(&adopt.lock);
/* Calls fn for every map of this process that a child does not inherit (`withheld`) or gets zeroed.
 * False: the list cannot be read. */
bool look_advice(void (*fn)(u64 start, u64 end, bool withheld, void *arg), void *arg);
/* Fills adopt.pieces with the shared maps of [offset, offset + length) of the file. False: they are
 * unknown, or too many. */
bool look_pieces(u64 offset, u64 length) REQUIRES(&adopt.lock);

/* ---- adopt_move.c ---- */

/* Returns the region of a piece; NULL: none. */
struct adopt_region *region_of_piece(const struct adopt_piece *p) REQUIRES(&adopt.lock);
/* Adopts the region's pages; addr, length and offset are set. 0, or a negative errno: nothing has
 * changed. No other thread runs. */
int move_in(struct adopt_region *r) REQUIRES(&adopt.lock);
enum move_result {
	MOVE_DONE,
	MOVE_UNCLEAN, /* done, but the slot must not be used again */
	MOVE_NOT_YET, /* pages are held, or a call failed: memory stays the file's */
};
/* Makes the pages of a region private again, at each place where a piece of it is mapped now.
 * `alone`: no other thread runs. */
enum move_result move_out(struct adopt_region *r, bool alone) REQUIRES(&adopt.lock);
/* Does so for one of adopt.pieces, which is of `r`. False: it stays shared, or part of it. Clears
 * *clean if the slot must not be used again. */
bool move_piece_out(struct adopt_region *r, const struct adopt_piece *p, bool alone, bool *clean)
	REQUIRES(&adopt.lock);
/* Ends a move of which all pieces are out. */
void move_finish(const struct adopt_region *r) REQUIRES(&adopt.lock);
/* Copies part of a piece: from the file, or from the map if the file's descriptor is gone or may
 * not be read. move_content copies only what the file holds; `to` holds zeroes for the rest
 * already. */
int move_read(u64 to, u64 length, const struct adopt_piece *p, u64 at) REQUIRES(&adopt.lock);
int move_content(u64 to, u64 length, const struct adopt_piece *p, u64 at) REQUIRES(&adopt.lock);

/* ---- adopt_stash.c ---- */

/* Reserves addresses for a stash, without memory; 0: none. The kernel puts new maps right below
 * others: a page above the stash stays free, for stash_copy_map. */
u64 stash_reserve(u64 length);
/* Makes an empty copy of [from, from + length), which is one private map or part of it, at `stash`,
 * over any map there. False: the map cannot be copied, and nothing has changed. */
bool stash_copy_map(u64 from, u64 length, u64 stash) REQUIRES(&adopt.lock);

/* ---- adopt_back.c ---- */

/* Before a fork: turns all memory of the file into private memory and ends adoption. Does nothing
 * while requests hold pages. Memory stays shared where a call fails. */
void back_give(void) REQUIRES(&adopt.lock);

/* ---- own.c ---- */

/* In a forked child, its only thread: forgets all own memory, which it has not inherited. */
void own_drop_in_child(void);

/* ---- adopt_fork.c ---- */

/* False: no handler runs at a fork, so nothing may be adopted. */
bool inherit_is_watched(void);

#endif
