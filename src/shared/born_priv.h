/* born_priv.h: what the parts of born memory share.
 *
 *   born.c         the arena: memory given out and taken back
 *   born_pages.c   which of its pages are what
 *   born_over.c    other maps over it, mremap, advice
 *   born_fork.c    what a forked child is to have of it
 */
#ifndef SHARED_BORN_PRIV_H
#define SHARED_BORN_PRIV_H

#include "base/lock.h"
#include "shared/shared.h"

/* A bit for each page. */
enum born_bit {
	BORN_TAKEN,   /* not to be given out */
	BORN_FOREIGN, /* the application has mapped something else there; taken, too */
	BORN_MAPPED,  /* the file is mapped there: taken, or free and left so (maps_close) */
	BORN_NO_FORK, /* MADV_DONTFORK, */
	BORN_WIPED,   /* MADV_WIPEONFORK: the kernel has neither for a file */
	BORN_BITS
};

struct born {
	struct lock lock;
	u64 base FIXED, pages FIXED; /* 0: there is no arena */
	u64 page_bytes FIXED;
	u64 offset FIXED;  /* in the file */
	u64 longest FIXED; /* the kernel would refuse more than all its memory */
	u64 low GUARDED_BY(lock); /* no free page lies before this one */
	u64 edges GUARDED_BY(lock); /* between mapped and other pages: about so many maps */
	u64 *bits[BORN_BITS] GUARDED_BY(lock);
	u64 *lengths GUARDED_BY(lock); /* of the block that begins on a page; else 0 */
	bool shared ATOMIC_ONLY; /* until a fork: from then on it is private memory, in both */
	/* Nothing is given out any more, and free pages are the kernel's again. */
	bool retired ATOMIC_ONLY;
	/* Private maps of the file are left of it: the first touch of a page makes one there,
	 * too. */
	bool in_place GUARDED_BY(lock);
	bool hidden ATOMIC_ONLY; /* peers find nothing by address */
};

extern struct born born;

/* ---- born_pages.c ---- */

/* Sets a bit of `count` pages, or clears it. */
void pages_mark(enum born_bit bit, u64 page, u64 count, bool set) REQUIRES(&born.lock);
/* The first page from `page` on, before `end`, that has the bit, or has not; or `end`. */
u64 pages_next(enum born_bit bit, u64 page, u64 end, bool set) REQUIRES(&born.lock);
/* Do all of them have it? */
bool pages_are(enum born_bit bit, u64 page, u64 end, bool set) REQUIRES(&born.lock);
/* `count` free pages; born.pages: there are none. */
u64 pages_find(u64 count, u64 alignment) REQUIRES(&born.lock);

/* ---- born.c ---- */

void *born_pointer(u64 page);
/* In which page the address lies. */
u64 born_page(u64 addr);
bool born_is_shared(void);
bool born_is_retired(void);
/* Whatever this thread maps from here on goes past tools/born. */
bool born_enter(void) ACQUIRE(&born.lock);
void born_leave(bool before) RELEASE(&born.lock);

/* Not all that lies there is the file's any more. Peers that know an address only would look in the
 * file: they find nothing by address from now on. Without born.lock. */
void born_hide(void);

/* Maps pages of the file there, whatever was. False: not mapped, or not all. */
bool maps_open(u64 page, u64 count) REQUIRES(&born.lock);
/* Nothing is mapped there any more. */
void maps_close(u64 page, u64 count) REQUIRES(&born.lock);
/* The arena has ended: its free pages are the kernel's. */
void maps_close_free(void) REQUIRES(&born.lock);
/* Makes holes in the file. False: the content is still there. */
bool maps_zero(u64 page, u64 count) REQUIRES(&born.lock);
/* The same, of those pages that are of the file. */
bool maps_zero_ours(u64 page, u64 end) REQUIRES(&born.lock);
/* What is remembered of pages ends. */
void maps_forget(u64 page, u64 count) REQUIRES(&born.lock);
/* Gives pages back, the application's own maps there, too. */
void maps_end(u64 page, u64 count) REQUIRES(&born.lock);

/* ---- born_over.c ---- */

/* The `count` pages from `page` on become `wanted` in place. False: there is no room. */
bool born_grow(u64 page, u64 count, u64 wanted) REQUIRES(&born.lock);

/* ---- born_fork.c ---- */

enum born_heir { BORN_COPIED, BORN_ZEROED, BORN_WITHHELD };

/* All of it becomes private memory: as in a forked child from now on, here too. born_unshared
 * follows; `all`: it has, and `in_place`: as private maps of the file. Both between born_fork_begin
 * and born_fork_end. */
void born_unshare(void);
void born_unshared(bool all, bool in_place);

/* What becomes of the memory at addr in a child, and up to where (`end` at most) that holds.
 * Between born_fork_begin and born_fork_end; any address. */
enum born_heir born_at_fork(u64 addr, u64 end, u64 *stop);

#endif
