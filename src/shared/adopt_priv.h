/* adopt_priv.h: what the parts of adoption share.
 *
 *   adopt.c        regions, and when to adopt
 *   adopt_allow.c  whether this process may at all
 *   adopt_cgroup.c how much memory its control groups allow
 *   adopt_look.c   what the kernel says of this process: threads, maps, pins
 *   adopt_move.c   pages in and out
 *   adopt_stash.c  an empty copy of a map, to be put back
 *   adopt_back.c   all pages out, for good, before the first fork
 *   adopt_fork.c   what a forked child gets
 */
#ifndef SHARED_ADOPT_PRIV_H
#define SHARED_ADOPT_PRIV_H

#include "base/lock.h"
#include "shared/shared.h"

enum {
	ADOPT_RANGES = 1024, /* registrations that are remembered one by one */
	ADOPT_WIPED = 64,
	/* pages move so many bytes at a time: more than that is never there twice */
	ADOPT_CHUNK = 4 << 20,
};

/* Adopted pages. The range's own pages went to `stash`, emptied, but with all that the kernel knows
 * of them (advice, policies): there the content is put when they return. */
struct adopt_region {
	u64 addr, length; /* whole pages */
	u64 offset;	  /* of its slot, in the file; stays when the region is free */
	u64 stash;	  /* 0: born there */
	u32 turn; /* counts its slots: one is given up if something may still be there */
	u32 refs; /* registrations that touch it; 0 and not `lingers`: free */
	bool lingers; /* without registrations, but its pages cannot be put back yet */
	bool unclean; /* its slot is not to be used again */
	bool stays; /* adopt_back.c: some of it could not be given back */
	bool keeps; /* a private map may need the file's pages still: they are not given up */
	bool lost; /* something else lies at its address: keys name it, addresses do not */
};

/* A piece of the file that this process has mapped, as the kernel tells. */
struct adopt_piece {
	u64 start, end;
	u64 offset; /* of start, in the file */
	int prot;
	u64 copy;  /* fork: where the child's copy lies */
	u8 heir; /* of born memory: what the child is to have of it (enum born_heir) */
};

struct adopt_pieces {
	struct adopt_piece *at;
	u32 count, space;
	bool held; /* there are requests to the kernel that may name any page */
};

struct adopt_range {
	u64 start, end;
};

struct adopt {
	struct lock lock;
	int fd GUARDED_BY(lock); /* -1: no file yet */
	u64 inode GUARDED_BY(lock);
	u64 device GUARDED_BY(lock);
	/* The list of maps, kept open: later there may be no descriptor left, or no right to. */
	int maps_fd GUARDED_BY(lock);
	u64 maps_inode GUARDED_BY(lock);
	u64 bytes GUARDED_BY(lock); /* of all regions */
	u32 lingering GUARDED_BY(lock); /* regions */
	u64 swept_ns GUARDED_BY(lock);	/* when these were tried again */
	/* since when the right to adopt has gathered: anything, and what is small */
	u64 credit_ns GUARDED_BY(lock);
	u64 small_ns GUARDED_BY(lock);
	u32 maps GUARDED_BY(lock);  /* of this process, when they were last counted */
	u32 looks GUARDED_BY(lock); /* since then */
	struct adopt_region regions[ADOPT_REGIONS] GUARDED_BY(lock);
	struct adopt_table *shown GUARDED_BY(lock);
	struct mem_table *keys GUARDED_BY(lock); /* entries of it name regions; NULL: none do */
	/* All was given back at a fork (adopt_back.c): nothing is adopted any more. */
	bool given_back GUARDED_BY(lock);
	/* Pages of private maps of the file that a child is to have zeroed, for which the kernel
	 * has no advice: a child does not inherit them. */
	struct adopt_range wiped[ADOPT_WIPED] GUARDED_BY(lock);
	u32 wiped_count GUARDED_BY(lock);
	u32 region_high GUARDED_BY(lock); /* regions[] in use or ever used */
	struct adopt_range ranges[ADOPT_RANGES] GUARDED_BY(lock);
	u32 range_count GUARDED_BY(lock);
	u32 untracked GUARDED_BY(lock); /* registrations beside those in ranges */
	struct adopt_pieces pieces GUARDED_BY(lock);
	bool watches_forks GUARDED_BY(lock);
	bool born_is_lost GUARDED_BY(lock);
	bool everywhere ATOMIC_ONLY; /* adopt_enter_all was called */
};

/* The only one of the process. */
extern struct adopt adopt;
/* Held by our thread while it is awake. */
extern struct lock adopt_engine_lock;
extern bool adopt_engine_runs GUARDED_BY(adopt_engine_lock);
/* It is being made: to be counted it must have said that it runs. */
extern bool adopt_engine_comes GUARDED_BY(adopt_engine_lock);

/* ---- adopt.c ---- */

/* The application may have closed a descriptor that it never opened, and opened another. */
bool adopt_file_is_there(void) REQUIRES(&adopt.lock);
/* The same without the lock; and the descriptor. */
bool adopt_file_is_open(void);
int adopt_file_fd(void);
/* Makes [base, base + length) the region of memory that is born in the file (shared.h). Returns
 * where it lies there; 0: not allowed, or no file. */
u64 adopt_born(u64 base, u64 length);
/* It is not all of the file's any more: peers find none of it by address. */
void adopt_born_lost(void);
/* Are its pages, or may they be, in the file? */
bool region_is_used(const struct adopt_region *r);
/* Is it the arena of born memory? It never moves, and has no stash. */
bool region_is_born(const struct adopt_region *r);
/* No peer finds it by address any more. */
void region_hide(const struct adopt_region *r) REQUIRES(&adopt.lock);
/* Its pages are out: it is free. `reusable`: so is its slot. */
void region_end(struct adopt_region *r, bool reusable) REQUIRES(&adopt.lock);
/* Does it have the stack that we run on, say? Then its pages do not move, not even alone. */
bool adopt_stands_on(const struct adopt_region *r);

/* ---- adopt_allow.c ---- */

/* What limits and settings say now. */
bool allow_limits(void);
/* So much of the machine's memory, at once. */
u64 allow_bytes(void);
/* Does `length` more fit the limits of the control groups, beside `bytes` that are adopted: an
 * eighth of the limit at most, and room to move? */
bool allow_fits(u64 bytes, u64 length);
/* So many maps may there be when one more region is adopted, or a peer's slot mapped. */
u32 allow_maps(void);

/* ---- adopt_cgroup.c ---- */

struct cgroup_room {
	u64 limit; /* the tightest */
	u64 left;  /* of any limit, the least that is not in use */
};
#define CGROUP_NO_LIMIT (1ull << 62)

/* What the groups of the process allow that `proc` describes (/proc/self). Files' pages that the
 * kernel can give up are counted where less than `need` is left otherwise. */
struct cgroup_room cgroup_ask(const char *proc, u64 need);

/* ---- adopt_look.c ---- */

/* Does this process have no thread but the caller, and ours that stands still? */
bool look_is_alone(void) REQUIRES(&adopt_engine_lock);
/* Opens the list of maps, to be kept. */
bool look_keep(void) REQUIRES(&adopt.lock);
/* Closes that. */
void look_drop(void) REQUIRES(&adopt.lock);
/* Is [start, end) plain memory, and does nobody else hold pages of this process? */
bool look_is_plain(u64 start, u64 end) REQUIRES(&adopt.lock);
/* The map in which `at` lies. False: there is none, or it is not known. */
bool look_bounds(u64 at, u64 *start, u64 *end) REQUIRES(&adopt.lock);
/* Are pages locked, or held by a device or by io_uring? They stay where they are. */
bool look_is_held(void);
/* Is [start, end) a shared map of our file, from `offset` on, with all of `prot`? */
bool look_is_ours(u64 start, u64 end, u64 offset, int prot) REQUIRES(&adopt.lock);
/* Calls fn for every map of this process that a child does not inherit (`withheld`), or only
 * zeroed. False: they cannot be read. */
bool look_advice(void (*fn)(u64 start, u64 end, bool withheld, void *arg), void *arg);
/* Fills adopt.pieces with the shared maps of [offset, offset + length) of our file. False: they are
 * not known, or not all. */
bool look_pieces(u64 offset, u64 length) REQUIRES(&adopt.lock);

/* ---- adopt_move.c ---- */

/* The region of a piece; NULL: none. */
struct adopt_region *region_of_piece(const struct adopt_piece *p) REQUIRES(&adopt.lock);
/* The region's addr, length and offset are set. 0 or a negative errno: then all is as it was.
 * Nobody but the caller runs. */
int move_in(struct adopt_region *r) REQUIRES(&adopt.lock);
enum move_result {
	MOVE_DONE,
	MOVE_UNCLEAN, /* done, but the slot is not to be used again */
	MOVE_NOT_YET, /* somebody else holds pages, or a call failed: memory stays the file's */
};
/* Gives the application private pages back, wherever the region's pieces have gone. `alone`:
 * nobody but the caller runs. */
enum move_result move_out(struct adopt_region *r, bool alone) REQUIRES(&adopt.lock);
/* One of adopt.pieces, of `r`. False: it stays shared, or part of it. *clean is cleared if the
 * slot is not to be used again. */
bool move_piece_out(struct adopt_region *r, const struct adopt_piece *p, bool alone, bool *clean)
	REQUIRES(&adopt.lock);
/* All pieces of the region are out. */
void move_finish(const struct adopt_region *r) REQUIRES(&adopt.lock);
/* Copies part of a piece: from the file or, if its descriptor has gone or must not be read, from
 * the map. move_content: only what the file has; the rest is zeroes at `to` already. */
int move_read(u64 to, u64 length, const struct adopt_piece *p, u64 at) REQUIRES(&adopt.lock);
int move_content(u64 to, u64 length, const struct adopt_piece *p, u64 at) REQUIRES(&adopt.lock);

/* ---- adopt_stash.c ---- */

/* Addresses for a stash, without memory; 0: none. The kernel puts new maps right below others: a
 * page above the stash stays free, for stash_copy_map. */
u64 stash_reserve(u64 length);
/* An empty copy of [from, from + length), which is one private map or part of it, at `stash`, over
 * whatever is there. False: the map cannot be copied, and all is as it was. */
bool stash_copy_map(u64 from, u64 length, u64 stash) REQUIRES(&adopt.lock);

/* ---- adopt_back.c ---- */

/* Before a fork: all that is the file's becomes private memory, and nothing is adopted any more.
 * Where others hold pages nothing happens, and some may stay where a call fails. */
void back_give(void) REQUIRES(&adopt.lock);

/* ---- adopt_fork.c ---- */

/* Before the first region. False: the C library has no room for handlers. */
bool fork_watch(void) REQUIRES(&adopt.lock);

#endif
