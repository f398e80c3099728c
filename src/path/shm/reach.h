/* reach.h: inside the shm room: a peer's memory file (shared/shared.h), as far as it is mapped
 * here.
 *
 * A slot of the file is mapped from its beginning, as a whole, when it is first asked for, or when
 * a connection is made and there are few of them, by the engine's thread; until then operations go
 * another way. A map stays until its link is buried: a region that comes into the slot later is
 * found there, too. So whoever has an address of a region need only know that the region is still
 * there (the hazard, direct.c).
 */
#ifndef PATH_SHM_REACH_H
#define PATH_SHM_REACH_H

#include "path/shm/shm_priv.h"
#include "shared/shared.h"

struct reach_map {
	u64 slot;
	u8 *base;
	u64 length;
	u64 touch;		/* so much from its beginning is made present, */
	u64 touched;		/* and so much already */
	struct reach_map *next; /* all maps of the link */
};

struct reach {
	int fd;			/* the peer's file */
	struct reach_map *maps; /* all */
	/* by slot number; stored with release, loaded with acquire (reach_find) */
	struct reach_map *slots[ADOPT_REGIONS];
};

/* Asks the engine's thread for a map of the slot's first `length` bytes. Never blocks. */
void reach_want(struct shm_link *l, u64 slot, u64 length);
/* Asks it for what the peer shows now, if that is little: a connection to it is made. Never blocks.
 */
void reach_want_shown(struct shm_link *l);
/* Maps what was asked for, and makes some more pages of it present. Engine's thread; may block. */
void reach_serve(struct shm *shm);
/* Unmaps all; nobody uses it any more. In a forked child nothing was inherited but the
 * descriptor. */
void reach_close(struct shm_link *l);
void reach_drop_in_child(struct shm_link *l);

/* Where [offset, offset + length) of the peer's file lies here; NULL: not mapped yet, or never. The
 * region that the peer says it is of ends at `end`: so much is asked for. Never blocks. */
static inline u8 *reach_find(struct shm_link *l, u64 offset, u64 length, u64 end)
{
	const struct reach *r = __atomic_load_n(&l->reach, __ATOMIC_ACQUIRE);
	u64 slot = offset >> ADOPT_SLOT_SHIFT, at = offset & (ADOPT_SLOT_BYTES - 1);
	const struct reach_map *m =
		r == NULL ? NULL
			  : __atomic_load_n(&r->slots[slot % ADOPT_REGIONS], __ATOMIC_ACQUIRE);

	if (likely(m != NULL && m->slot == slot && at + length <= m->length))
		return m->base + at;
	reach_want(l, slot, end - (offset - at));
	return NULL;
}

/* The same for an address of the peer's: NULL also where no region has all of it. */
u8 *reach_address(struct shm_link *l, u64 addr, u64 length);

#endif
