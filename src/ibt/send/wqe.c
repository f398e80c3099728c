/* wqe.c: the memory of work queues, and receive requests copied into it.
 * In: ibv_recv_wr    Out: recv_wqe    Runs: the poster
 * Locks: the caller holds the queue's
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "ibt/send/wqe.h"

static u32 wqe_pow2(u32 n)
{
	u32 p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

static u32 wqe_align(u32 n)
{
	return (n + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

u32 wqe_send_stride(u32 max_sge, u32 max_inline)
{
	return wqe_align((u32)sizeof(struct send_wqe) +
			 MAX(max_sge * (u32)sizeof(struct ibv_sge), max_inline));
}

int wqe_ring_init(struct wqe_ring *r, u32 size, u32 stride, u32 max_sge, struct wqe_memory *memory)
{
	u32 slots = wqe_pow2(MAX(size, 1));
	void *given = NULL;
	size_t bytes;
	int err;

	r->stride = stride != 0 ? stride
				: wqe_align((u32)(sizeof(struct recv_wqe) +
						  max_sge * sizeof(struct ibv_sge)));
	r->mask = slots - 1;
	r->size = size == 0 ? 0 : slots;
	r->max_sge = max_sge;
	r->memory = NULL;
	if (size == 0)
		return 0;
	bytes = (size_t)slots * r->stride;
	err = queue_memory_get(memory->from, bytes, memory->kind, &given);
	if (err != 0)
		return err;
	memory->is_given = given != NULL;
	r->memory = given != NULL ? given : aligned_alloc(CACHE_LINE, bytes);
	return r->memory == NULL ? -ENOMEM : 0;
}

void wqe_ring_fini(struct wqe_ring *r, const struct wqe_memory *memory)
{
	if (r->memory != NULL && memory->is_given)
		queue_memory_put(memory->from, r->memory, memory->kind);
	else
		free(r->memory);
	r->memory = NULL;
}

int wqe_fill_recv(const struct wqe_ring *r, struct recv_wqe *w, const struct ibv_recv_wr *wr)
{
	u64 length = 0;

	if (wr->num_sge < 0 || (u32)wr->num_sge > r->max_sge)
		return -EINVAL;
	w->wr_id = wr->wr_id;
	w->sge_count = (u32)wr->num_sge;
	if (likely(wr->num_sge == 1)) {
		w->sge[0].addr = wr->sg_list[0].addr;
		w->sge[0].length = w->length = wr->sg_list[0].length;
		w->sge[0].lkey = wr->sg_list[0].lkey;
		return 0;
	}
	for (int i = 0; i < wr->num_sge; i++) {
		w->sge[i] = wr->sg_list[i];
		length += wr->sg_list[i].length;
	}
	w->length = (u32)MIN(length, (u64)UINT32_MAX);
	return 0;
}
