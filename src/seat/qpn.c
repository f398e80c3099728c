/* qpn.c: queue pair numbers: slots of the node's table, and the numbers in use.
 * In: adapters that create and destroy queue pairs    Out: numbers and places on the board
 * Runs: any thread that may sleep    Locks: id_lock
 */
#include "seat/seat.h"

#include <errno.h>
#include <stdlib.h>

static int qpn_take_slot(struct seat *s) REQUIRES(s->id_lock)
{
	u32 slot, n = s->slot_count;
	int err;

	if (n == BOARD_SLOTS)
		return -ENOSPC;
	if (s->qp_bitmap == NULL &&
	    (s->qp_bitmap = calloc(BOARD_QPS / 64, sizeof(u64))) == NULL)
		return -ENOMEM;
	err = node_slot_take(s->a.node, &slot);
	if (err != 0)
		return err;
	s->slots[n] = s->a.board->slots[n] = slot;
	s->slot_count = n + 1;
	__atomic_store_n(&s->a.board->slot_count, n + 1, __ATOMIC_RELEASE);
	shm_slot_own(s->a.shm, slot);
	if (s->paths & SEAT_PATH_UDP)
		/* without sockets the slot still serves this host */
		(void)udp_slot_own(s->a.udp, slot);
	/* QPNs 0, 1 and 0xffffff are reserved. */
	if (slot == 0)
		s->qp_bitmap[n * SEAT_INDEXES / 64] |= 3;
	if (slot == NODE_SLOTS - 1)
		s->qp_bitmap[(n + 1) * SEAT_INDEXES / 64 - 1] |= 1ull << 63;
	return 0;
}

static int qpn_find_free(struct seat *s, u32 *index) REQUIRES(s->id_lock)
{
	u32 limit = s->slot_count * SEAT_INDEXES;

	for (u32 step = 0; step < limit; step++) {
		u32 i = (s->qp_cursor + step) % limit;

		if (i % 64 == 0 && s->qp_bitmap[i / 64] == UINT64_MAX) {
			step += 63;
			continue;
		}
		if ((s->qp_bitmap[i / 64] & 1ull << i % 64) == 0) {
			*index = i;
			return 0;
		}
	}
	return -ENOSPC;
}

int seat_qpn_take(struct seat *s, u32 *index, u32 *qpn)
{
	int err;

	lock_acquire(&s->id_lock);
	err = qpn_find_free(s, index);
	if (err == -ENOSPC) {
		err = qpn_take_slot(s);
		if (err == 0)
			err = qpn_find_free(s, index);
	}
	if (err == 0) {
		s->qp_bitmap[*index / 64] |= 1ull << *index % 64;
		s->qp_cursor = *index + 1;
		*qpn = s->slots[*index / SEAT_INDEXES] << NODE_INDEX_BITS | *index % SEAT_INDEXES;
	}
	lock_release(&s->id_lock);
	return err;
}

int seat_slot(struct seat *s)
{
	int slot;

	lock_acquire(&s->id_lock);
	slot = s->slot_count == 0 ? qpn_take_slot(s) : 0;
	if (slot == 0)
		slot = (int)s->slots[0];
	lock_release(&s->id_lock);
	return slot;
}

void seat_qpn_give(struct seat *s, u32 index)
{
	lock_acquire(&s->id_lock);
	s->qp_bitmap[index / 64] &= ~(1ull << index % 64);
	lock_release(&s->id_lock);
}
