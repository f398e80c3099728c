/* shared.h: memory of this process that peers reach by loads and stores.
 *
 * A process has at most one memory file: sparse, sealed against shrinking, made for the first
 * region. Peers map it. Memory gets into it in three ways, and docs/adoption.md has the rules:
 *
 *   adopted  A registration moves its pages into the file, at the same address, and its end moves
 *            them back. The application notices neither.
 *   born     With shim/born under malloc and mmap, long blocks and plain maps are of the file from
 *            the beginning, so that a registration need not move them, whatever threads there are.
 *   own      Buffers that the stack's libraries allocate for themselves are of the file from the
 *            beginning, in every process.
 *
 * An adopted region has a *slot* of the file to itself, so that memory that the application grows
 * (mremap) finds zeroes behind it and not another region. All born memory lies in the *arena*, a
 * range of addresses reserved at the start, which is region 0: an address has the same place in the
 * file for ever. Pages of the arena that nobody has are not mapped.
 *
 * What the room promises: no store of the application is lost, a child of fork has the memory that
 * fork promises, a limit of the process or its control groups is kept, and where a system call is
 * refused memory stays as it was. The first fork ends sharing, for good, but for own memory.
 *
 * Callers: the verbs that register memory (adopt_enter to adopt_enter_all), the seat of the process
 * (adopt_show, adopt_engine_*), path/shm for peers' files (adopt_file, adopt_is_file), shim/born
 * (born_*), the software adapters for the doors (own_*). Functions may block, bounded, unless their
 * block says otherwise. None is called from a signal handler. Locks: adopt.lock,
 * adopt_engine_lock, born.lock (docs/locking.md).
 */
#ifndef SHARED_SHARED_H
#define SHARED_SHARED_H

#include "base/compiler.h"

/* ---- adopted memory ---- */

enum {
	/* log2 of a slot's bytes; a slot's number is offset >> this, never 0 */
	ADOPT_SLOT_SHIFT = 38,
	ADOPT_REGIONS = 1024,  /* regions at once; no two have the same slot number modulo this */
};
#define ADOPT_SLOT_BYTES (1ull << ADOPT_SLOT_SHIFT)
#define ADOPT_FILE_BYTES (1ull << 62)
/* The slot of own memory. No region has its number modulo ADOPT_REGIONS. */
#define ADOPT_OWN_OFFSET ((u64)(ADOPT_REGIONS - 1) << ADOPT_SLOT_SHIFT)

/* Begins a registration of [addr, addr + length), any numbers. Its pages are adopted if
 * docs/adoption.md allows it. Returns the offset of `addr` in the file, in bytes; 0: the memory
 * is not in the file, and stays as it was. The caller calls adopt_leave for the same range in
 * both cases. Called before a key names the memory. Blocks while pages move (some 0.5 us for
 * each KiB). */
u64 adopt_enter(u64 addr, u64 length);
/* Begins a registration of [addr, addr + length) whose pages stay where they are until adopt_leave
 * for the same range: on-demand regions, whose memory the application may map anew. Never blocks
 * for long. */
void adopt_hold(u64 addr, u64 length);
/* Begins a registration of memory that other registrations have adopted. Returns what adopt_enter
 * would return, if the whole range is still mapped as it was adopted, may be read, and, if `write`
 * is set, written: then no page needs to be populated, and the caller calls adopt_leave at the end.
 * Returns 0 otherwise: no registration has begun. Blocks for a question to the kernel. */
u64 adopt_again(u64 addr, u64 length, bool write);
/* Ends the registration of exactly that range. No key names the memory any more, and no thread of
 * this process copies by one. The last registration that touches a region ends it: its pages are
 * private memory again before this returns, or, while other requests hold them, later. `clean`: no
 * peer stores to the memory any more. If it is false (a peer is stopped in the middle of a store),
 * the slot is not used again, and what the peer still stores is lost. */
void adopt_leave(u64 addr, u64 length, bool clean);
/* Tells whether that registration is the only one of its region, so that adopt_leave takes the
 * pages out of the file. */
bool adopt_is_last(u64 addr, u64 length);
/* Begins a registration that names no range (the whole address space, page lists). From now on
 * nothing is adopted in this process. Never blocks. */
void adopt_enter_all(void);

/* The place of one region, for peers that know an address and no key. */
struct adopt_shown {
	u64 offset; /* in the file, bytes; 0: none. Cleared first and stored last, with release */
	u64 addr, length;
} WRITTEN_UNDER(adopt.lock);

/* In shared memory that peers map. Written under adopt.lock, read by peers without a lock. */
struct adopt_table {
	u32 high; /* entries in use or ever used */
	struct adopt_shown at[ADOPT_REGIONS];
} WRITTEN_UNDER(adopt.lock);

struct mem_table;

/* Shows regions in `t` from now on. `t` is zeroed and stays the caller's; `keys` is the table whose
 * entries may name regions. The caller takes both back by a second call, with NULL for both. */
void adopt_show(struct adopt_table *t, struct mem_table *keys);

/* Tells whether this process may adopt at all. It may not with ANYVERBS_ADOPT=0, under strict
 * memory accounting, with another malloc than the C library's, and under valgrind or a
 * sanitizer. */
bool adopt_is_on(void);
/* Tells whether a process that has mapped `count` slots of peers may map one more. */
bool adopt_may_map(u32 count);
/* Writes the file's descriptor in this process and its inode, for peers. The descriptor stays the
 * room's. False: there is no file, and the descriptor is -1. */
bool adopt_file(int *fd, u64 *inode);
/* Tells whether `fd` is the memory file of another process, with that inode: sealed, so that it is
 * safe to map and touch. Needs no lock. */
bool adopt_is_file(int fd, u64 inode);

/* The engine's thread is the only one that may run beside the application's one thread, and stands
 * still while pages move. adopt_engine_expect: before the thread is created, and with false when it
 * could not be. adopt_engine_begin: the thread has started; called by it. adopt_engine_enter and
 * adopt_engine_leave enclose what the thread does while it is awake; enter takes adopt_engine_lock,
 * leave releases it. */
void adopt_engine_expect(bool comes);
void adopt_engine_begin(void);
void adopt_engine_enter(void);
void adopt_engine_leave(void);

/* ---- own memory ----
 *
 * A forked child does not inherit it: there neither a pointer nor own_free may be used.
 */

/* Allocates zeroed, readable and writable memory of the file, rounded up to whole pages. The caller
 * frees it with own_free. NULL: ANYVERBS_ADOPT=0, a limit of the process, strict memory accounting,
 * no file or no memory; the caller takes ordinary memory instead. */
void *own_alloc(u64 length);
/* Frees what own_alloc returned. No region names it any more. False: it is not own memory. */
bool own_free(void *p);
/* Returns the offset of [addr, addr + length), any numbers, in the file; 0: not own memory, or not
 * all of it. */
u64 own_offset(u64 addr, u64 length);

/* ---- born memory ----
 *
 * Lengths and addresses are whole pages where nothing else is said. Any thread may call these
 * functions. They take born.lock, and none may be called from a signal handler.
 */

enum {
	BORN_FROM = 64 << 10, /* bytes: shorter memory is not worth a map of its own */
	/* the number of the arena's region: no other has it while there is an arena */
	BORN_REGION = 0,
};

/* Reserves the arena. Called once, before the first thread is created. False: this process has no
 * arena, and never gets one. */
AV_EXPORT bool born_begin(void);
/* Writes the bounds of the arena, which stay the same until the process ends. Both 0: no arena. */
AV_EXPORT void born_bounds(u64 *base, u64 *end);
/* Allocates zeroed memory, readable and writable. alignment: bytes, a power of 2, or 0 for a
 * page's. `block`: malloc gives it out, `length` may be any number, and born_length answers it;
 * else it is a map. The caller frees a block with born_free, a map with born_unmap. NULL: the
 * arena has no such memory, and the caller asks the kernel. */
AV_EXPORT void *born_alloc(u64 length, u64 alignment, bool block);
/* Returns the length in bytes of the block that begins at `p`; 0: none does. */
AV_EXPORT u64 born_length(const void *p);
/* Frees the block that begins at `p`. False: none does. */
AV_EXPORT bool born_free(void *p);
/* Gives the block that begins at `p` another length (any but 0) in place. False: it does not fit
 * there, and the block is as it was. */
AV_EXPORT bool born_resize(const void *p, u64 length);
/* Does what munmap does to private memory, to a range within the arena. */
AV_EXPORT void born_unmap(u64 addr, u64 length);
/* Does what mremap does, to a range that begins in the arena. flags: MREMAP_*; target: the
 * address of MREMAP_FIXED. Returns the new address, or a negative errno; -ENOSYS: the memory is
 * not born, and the caller asks the kernel. */
AV_EXPORT s64 born_remap(u64 addr, u64 length, u64 wanted, int flags, u64 target);
/* Does what mremap does with other memory and a target range that touches the arena. Returns as
 * born_remap. */
AV_EXPORT s64 born_move_onto(u64 from, u64 length, u64 wanted, int flags, u64 addr);
/* Does what mmap does with MAP_FIXED or MAP_FIXED_NOREPLACE and a range that touches the arena.
 * Returns as born_remap. */
AV_EXPORT s64 born_put(u64 addr, u64 length, int prot, int flags, int fd, s64 offset);
/* Does what madvise does, to a range that touches the arena. Returns 0, or as born_remap. */
AV_EXPORT int born_advise(u64 addr, u64 length, int advice);
/* Ends the arena, since a limit now counts addresses, or all memory is being locked. Addresses that
 * are reserved and not in use go back to the kernel, and new memory is ordinary. Memory that is
 * given out stays born. */
AV_EXPORT void born_retire(void);
/* Tells whether this thread is inside one of these functions, or has asked for ordinary memory
 * (born_set_busy). */
AV_EXPORT bool born_is_busy(void);

/* true: this thread gets ordinary memory. Returns the value before, which the caller sets again. */
bool born_set_busy(bool busy);
/* Tells whether all of [addr, addr + length), any numbers, is born memory of the file. */
bool born_has(u64 addr, u64 length);

#endif
