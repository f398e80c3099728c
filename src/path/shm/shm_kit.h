/* shm_kit.h: shared by the tests of this room. */
#ifndef PATH_SHM_SHM_KIT_H
#define PATH_SHM_SHM_KIT_H

#include <stdlib.h>

#include "path/shm/shm_priv.h"

/* Destroys a path without a node. No other thread is left, hence NO_THREAD_SAFETY. */
static inline void kit_destroy(struct shm *shm) NO_THREAD_SAFETY
{
	for (u32 i = 1; i < shm->count; i++) {
		link_close(shm->links[i]);
		if (shm->links[i]->slot == UINT32_MAX) /* a peer has made it */
			free(shm->links[i]);
	}
	ring_pair_unmap(shm->self->pair);
	for (u32 i = 0; i < NODE_SLOTS; i++)
		if (shm->slots[i] != NULL && shm->slots[i] != shm->self)
			free(shm->slots[i]);
	free(shm->self);
	free(shm->nowhere);
	free(shm);
}

#endif
