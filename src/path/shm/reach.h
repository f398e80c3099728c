/* reach.h: inside the shm room: maps of a peer's memory file (shared/shared.h).
 *
 * A slot of the file is mapped from its beginning, as a whole, by the engine's thread: at the first
 * request, or when a connection is made and the slots are few. Until then operations use system
 * calls or packets. A map stays until its link is buried: a region that comes into the slot later
 * is found there, too. So a holder of an address needs only the guarantee that the region still
 * exists (the hazard, direct.c).
 */
#ifndef PATH_SHM_REACH_H
#define PATH_SHM_REACH_H

#include "path/shm/shm_priv.h"
#include "shared/shared.h"

struct reach_map {
	u64 slot FIXED;
	u8 *base FIXED;
	u64 length FIXED;
	u64 touch FIXED; /* bytes from its beginning to be made present */
	u64 touched OWNED_BY(the engine thread); /* bytes made present so far */
	struct reach_map *next FIXED; /* all maps of the link */
};

struct reach {
	int fd FIXED; /* the peer's file */
	struct reach_map *maps OWNED_BY(the engine thread); /* all */
	/* by slot number; stored with release, loaded with acquire (reach_find) */
	struct reach_map *slots[ADOPT_REGIONS] ATOMIC_ONLY;
};

/* Requests a map of the slot's first `length` bytes from the engine's thread. Never blocks. */
void reach_want(struct shm_link *l, u64 slot, u64 length);
/* Requests maps of the regions that the peer shows now, if those are few: a connection to it is
 * made. Never blocks.
 */
void reach_want_shown(struct shm_link *l);
/* Serves the requests, and makes some more pages of maps present. Engine's thread; may block. */
void reach_serve(struct shm *shm);
/* Unmaps all; no thread uses the maps any more. In a forked child only the descriptor was
 * inherited. */
void reach_close(struct shm_link *l);
void reach_drop_in_child(struct shm_link *l);

/* Returns the address of [offset, offset + length) of the peer's file here; NULL: not mapped yet,
 * or never. The region that the peer claims it is part of ends at `end`: a request maps up to
 * there. Never blocks. */
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

/* The same for an address of the peer's. NULL also where no region contains all of it. */
u8 *reach_address(struct shm_link *l, u64 addr, u64 length);

#endif
