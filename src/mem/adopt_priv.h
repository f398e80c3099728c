/* adopt_priv.h: what the parts of adoption share.
 *
 *   adopt.c        regions, and whether to adopt
 *   adopt_look.c   what the kernel says of this process: threads, maps, pins
 *   adopt_move.c   pages in and out
 *   adopt_fork.c   what a forked child gets
 */
#ifndef MEM_ADOPT_PRIV_H
#define MEM_ADOPT_PRIV_H

#include "base/lock.h"
#include "mem/adopt.h"

enum {
	ADOPT_RANGES = 1024, /* registrations that are remembered one by one */
	/* pages move so many bytes at a time: more than that is never there twice */
	ADOPT_CHUNK = 4 << 20,
};

/* Adopted pages. The range's own pages went to `stash`, emptied, but with all that the kernel knows
 * of them (advice, policies): there the content is put when they return. */
struct adopt_region {
	u64 addr, length; /* whole pages */
	u64 offset;	  /* of its slot, in the file; stays when the region is free */
	u64 stash;
	u32 turn; /* counts its slots: one is given up if something may still be there */
	u32 refs; /* registrations that touch it; 0: free */
};

/* A piece of the file that this process has mapped, as the kernel tells. */
struct adopt_piece {
	u64 start, end;
	u64 offset; /* of start, in the file */
	int prot;
	u64 copy; /* fork: where the child's copy lies */
};

struct adopt_pieces {
	struct adopt_piece *at;
	u32 count, space;
};

struct adopt_range {
	u64 start, end;
};

struct adopt {
	struct lock lock;
	int fd GUARDED_BY(lock); /* -1: no file yet */
	u64 inode GUARDED_BY(lock);
	u64 device GUARDED_BY(lock);
	u64 credit_ns GUARDED_BY(lock); /* since when the right to adopt has gathered */
	struct adopt_region regions[ADOPT_REGIONS] GUARDED_BY(lock);
	struct adopt_table *shown GUARDED_BY(lock);
	u32 region_high GUARDED_BY(lock); /* regions[] in use or ever used */
	struct adopt_range ranges[ADOPT_RANGES] GUARDED_BY(lock);
	u32 range_count GUARDED_BY(lock);
	u32 untracked GUARDED_BY(lock); /* registrations beside those in ranges */
	struct adopt_pieces pieces GUARDED_BY(lock);
	bool watches_forks GUARDED_BY(lock);
	bool everywhere ATOMIC_ONLY; /* adopt_enter_all was called */
};

/* The only one of the process. */
extern struct adopt adopt;
/* Held by our thread while it is awake. */
extern struct lock adopt_engine_lock;
extern bool adopt_engine_runs GUARDED_BY(adopt_engine_lock);
/* It is being made: to be counted it must have said that it runs. */
extern bool adopt_engine_comes GUARDED_BY(adopt_engine_lock);

/* ---- adopt_look.c ---- */

/* One line of the list of maps. */
struct look_map {
	u64 start, end, offset, device, inode;
	int prot;
	bool shared;
	const char *name;
};

/* Does this process have no thread but the caller, and ours that stands still? */
bool look_is_alone(void) REQUIRES(&adopt_engine_lock);
/* Calls fn for every map. False: they cannot be read. */
bool look_maps(void (*fn)(const struct look_map *m, void *arg), void *arg);
/* Is [start, end) plain memory, and does nobody else hold pages of this process? */
bool look_is_plain(u64 start, u64 end);
/* Fills adopt.pieces with the shared maps of [offset, offset + length) of our file. */
bool look_pieces(u64 offset, u64 length) REQUIRES(&adopt.lock);

/* ---- adopt_move.c ---- */

/* The region's addr, length and offset are set. 0 or a negative errno: then all is as it was.
 * Nobody but the caller runs. */
int move_in(struct adopt_region *r) REQUIRES(&adopt.lock);
/* Gives the application private pages back, wherever the region's pieces have gone. `alone`:
 * nobody but the caller runs. Returns whether the slot may be used again. */
bool move_out(struct adopt_region *r, bool alone) REQUIRES(&adopt.lock);
/* Copies from the file. */
int move_read(u64 to, u64 length, u64 offset) REQUIRES(&adopt.lock);

/* ---- adopt_fork.c ---- */

/* Before the first region. False: the C library has no room for handlers. */
bool fork_watch(void) REQUIRES(&adopt.lock);

#endif
