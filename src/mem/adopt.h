/* adopt.h: registered memory that peers reach by loads and stores.
 *
 * A registration may *adopt* its pages: they are moved, at the same address, into a memory file of
 * this process, which peers map. docs/adoption.md says when, and how the application is kept from
 * noticing. There is one such file per process, sparse and huge, made for the first region; a
 * region has a *slot* of it to itself, so that memory that the application grows (mremap) finds
 * zeroes behind it and not another region.
 *
 * All functions may block (bounded), but those that say otherwise.
 */
#ifndef MEM_ADOPT_H
#define MEM_ADOPT_H

#include "base/compiler.h"

enum {
	ADOPT_SLOT_SHIFT = 38, /* a slot is so large; its number is offset >> this, never 0 */
	ADOPT_REGIONS = 1024,  /* at once; no two of them have the same slot number modulo this */
};
#define ADOPT_SLOT_BYTES (1ull << ADOPT_SLOT_SHIFT)
#define ADOPT_FILE_BYTES (1ull << 62)

/* A registration of [addr, addr + length) begins: its pages are adopted if that is allowed, safe
 * and worth it. Returns where in the file `addr` lies, or 0: not there, and everything is as it
 * was. Either way adopt_leave must follow. To be called before any key names the memory. */
u64 adopt_enter(u64 addr, u64 length);
/* The same for memory that other registrations have adopted already: what adopt_enter would return,
 * if all of it is still mapped as it was and may be read, and written if `write` says so. Then none
 * of its pages needs to be looked at. 0: not so, nothing has begun. */
u64 adopt_again(u64 addr, u64 length, bool write);
/* It has ended: no key names it any more, and nobody of this process copies. When the last
 * registration of adopted pages ends they are private memory again before this returns. `clean`: no
 * peer does either; else (a peer is stopped in the midst of it) what it still writes is lost. */
void adopt_leave(u64 addr, u64 length, bool clean);
/* Is this registration the only one of adopted pages, so that adopt_leave takes them out of the
 * file? */
bool adopt_is_last(u64 addr, u64 length);
/* A registration that names no range (the whole address space, page lists): nothing is adopted
 * from now on. Never blocks. */
void adopt_enter_all(void);

/* Where adopted pages lie, for peers that know an address and no key. */
struct adopt_shown {
	u64 offset; /* in the file; 0: none. Cleared first and stored last, with release */
	u64 addr, length;
};

struct adopt_table {
	u32 high; /* entries in use or ever used */
	struct adopt_shown at[ADOPT_REGIONS];
};

struct mem_table;

/* Regions are shown in `t`, which is zeroed, from now on, and `keys` may name them; NULL: nowhere.
 */
void adopt_show(struct adopt_table *t, struct mem_table *keys);

/* Is adoption allowed in this process at all? */
bool adopt_is_on(void);
/* May a process that has mapped `count` slots of peers map one more? */
bool adopt_may_map(u32 count);
/* The file, for peers: its descriptor in this process and its inode. False: there is none. */
bool adopt_file(int *fd, u64 *inode);
/* Is this a descriptor of another process' such file, safe to map and touch? */
bool adopt_is_file(int fd, u64 inode);

/* Around whatever the one thread of ours that runs unasked does, beside the application's: it must
 * stand still while pages move. adopt_engine_expect:
 * before it is made; adopt_engine_begin: when it has started. */
void adopt_engine_expect(void);
void adopt_engine_begin(void);
void adopt_engine_enter(void);
void adopt_engine_leave(void);
/* In a forked child: other threads may have held locks of ours. The regions are the business of
 * handlers of their own (adopt_fork.c). */
void adopt_drop_in_child(void);

#endif
