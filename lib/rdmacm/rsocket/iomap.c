/* iomap.c: memory of the application that the peer of a stream writes to by itself: riomap,
 * riounmap, riowrite.
 *
 * An end offers a number of places for mappings (RDMA_IOMAPSIZE) behind its table of entries. The
 * peer's riomap chooses a free place, and its next call that sends writes there: an offset, and
 * where the memory lies. riowrite looks in this end's own places, which the peer has filled, and
 * writes. The memory's end (riounmap) makes the place one of length 0.
 * In:    the application's calls           Out: RDMA writes, entries of the peer's table
 * Runs:  the application's threads         Locks: stream.send_lock, not while it waits
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "stream.h"
#include "user.h"

enum { IOMAP_FIRST = 2048 };
enum { IOMAP_PLACE_MAX = 127 << 8 };

struct mapping {
	struct list_head node;
	struct ibv_mr *mr; /* NULL: unmapped, which the peer is still to be told */
	u64 offset;
	int place; /* in the peer's table; -1: for this end only */
	bool told; /* the peer has its entry */
} OWNED_BY(stream.send_lock);

/* ---- telling the peer ------------------------------------------------------------------------ */

static struct stream_iomap iomap_entry(const struct stream *s, const struct mapping *m)
{
	struct stream_iomap entry = { .offset = m->offset };

	if (m->mr != NULL)
		entry.sge = (struct stream_sge){ .addr = (uintptr_t)m->mr->addr,
						 .key = m->mr->rkey,
						 .length = (u32)m->mr->length };
	if (s->swap) {
		entry.offset = __builtin_bswap64(entry.offset);
		entry.sge = stream_sge_swap(entry.sge);
	}
	return entry;
}

/* These messages use up no credit: the peer keeps none of them. */
static int iomap_tell(struct stream *s, const struct mapping *m) REQUIRES(s->send_lock)
{
	struct stream_iomap entry = iomap_entry(s, m);
	u32 message = stream_message(STREAM_IOMAP, (u32)m->place);
	struct ibv_sge sge = { .addr = (uintptr_t)&entry, .length = sizeof(entry) };
	struct ibv_send_wr *bad, wr = {
		.wr_id = stream_signal(s, stream_message(STREAM_IOMAP, 0), true),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		/* cq_make_queues has seen to the room */
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
		.imm_data = stream_host_is_network() ? message : __builtin_bswap32(message),
	};

	wr.wr.rdma.rkey = s->peer_iomaps.key;
	wr.wr.rdma.remote_addr = s->peer_iomaps.addr + (u64)m->place * sizeof(entry);
	counter_add(&s->sent_wrs, 1);
	return ibv_post_send(s->id->qp, &wr, &bad) != 0 ? -ECONNRESET : 0;
}

static void mapping_free(struct stream *s, struct mapping *m) REQUIRES(s->send_lock)
{
	if (m->mr != NULL)
		ibv_dereg_mr(m->mr);
	if (m->place >= 0)
		s->map_places[m->place] = 0;
	list_remove(&m->node);
	free(m);
}

/* Tells what there is room for. 0, -EAGAIN: there is more, or why the connection fails. */
static int iomap_tell_some(struct stream *s) REQUIRES(s->send_lock)
{
	list_for_each_safe(m, &s->mappings, struct mapping, node) {
		int err;

		if (m->told)
			continue;
		if (!stream_can_send(s))
			return -EAGAIN;
		err = iomap_tell(s, m);
		if (err < 0)
			return err;
		m->told = true;
		if (m->mr == NULL)
			mapping_free(s, m);
	}
	__atomic_store_n(&s->maps_untold, 0, __ATOMIC_RELAXED);
	return 0;
}

static bool iomap_is_ready(struct stream *s)
{
	return (stream_ended(s) & STREAM_NO_SEND) || stream_can_send(s);
}

int stream_tell_maps(struct stream *s, bool nonblock)
{
	int err = -EAGAIN;

	while (err == -EAGAIN) {
		if (stream_ended(s) & STREAM_NO_SEND)
			return stream_send_error(s);
		lock_acquire(&s->send_lock);
		err = iomap_tell_some(s);
		lock_release(&s->send_lock);
		if (err < 0 && err != -EAGAIN)
			stream_break(s, err);
		if (err != -EAGAIN)
			break;
		err = stream_wait(s, iomap_is_ready, nonblock, 0);
		if (err < 0)
			break;
		err = -EAGAIN;
	}
	return err;
}

/* ---- riomap, riounmap ------------------------------------------------------------------------ */

/* A place whose memory has been unmapped, before the peer hears of it. */
static int iomap_take_over(struct stream *s) REQUIRES(s->send_lock)
{
	int place;

	list_for_each_safe(m, &s->mappings, struct mapping, node) {
		if (m->mr != NULL)
			continue;
		place = m->place;
		mapping_free(s, m);
		return place;
	}
	return -ENOMEM;
}

/* A place of the peer's that nothing is in. */
static int iomap_find_place(struct stream *s) REQUIRES(s->send_lock)
{
	u32 count = MIN(s->peer_iomaps.length, (u32)IOMAP_PLACE_MAX);

	if (s->map_places == NULL && count > 0)
		s->map_places = calloc(count, 1);
	if (s->map_places == NULL)
		return -ENOMEM;
	for (u32 i = 0; i < count; i++)
		if (!s->map_places[i])
			return (int)i;
	return iomap_take_over(s);
}

static int iomap_add(struct stream *s, struct mapping *m, bool remote) REQUIRES(s->send_lock)
{
	m->place = remote ? iomap_find_place(s) : -1;
	if (remote && m->place < 0)
		return m->place;
	if (remote) {
		s->map_places[m->place] = 1;
		__atomic_store_n(&s->maps_untold, 1, __ATOMIC_RELAXED);
	}
	m->told = !remote;
	list_push_back(&s->mappings, &m->node);
	return 0;
}

/* What the peer offers is known: also while it is being accepted. */
static bool iomap_has_peer(struct stream *s)
{
	u32 phase = stream_phase(s);

	return phase == STREAM_CONNECTED || phase == STREAM_ACCEPTING;
}

off_t stream_iomap(struct rsocket *rs, void *buf, size_t len, int prot, int flags, off_t offset)
{
	struct stream *s = stream_of(rs);
	int access = IBV_ACCESS_LOCAL_WRITE, err;
	struct mapping *m;

	(void)flags;
	if (!iomap_has_peer(s) || (prot & ~(PROT_WRITE | PROT_NONE)) != 0 ||
	    len == 0 || len > UINT32_MAX || offset < -1)
		return -EINVAL;
	m = calloc(1, sizeof(*m));
	if (m == NULL)
		return -ENOMEM;
	if (prot & PROT_WRITE)
		access |= IBV_ACCESS_REMOTE_WRITE;
	m->mr = ibv_reg_mr(s->pd, buf, len, (unsigned)access);
	if (m->mr == NULL) {
		err = -errno;
		free(m);
		return err;
	}
	m->offset = offset == -1 ? (uintptr_t)buf : (u64)offset;
	lock_acquire(&s->send_lock);
	err = iomap_add(s, m, prot & PROT_WRITE);
	lock_release(&s->send_lock);
	if (err == 0)
		return (off_t)m->offset;
	ibv_dereg_mr(m->mr);
	free(m);
	return err;
}

static struct mapping *iomap_find(struct stream *s, const void *buf, size_t len)
	REQUIRES(s->send_lock)
{
	list_for_each(m, &s->mappings, struct mapping, node)
		if (m->mr != NULL && m->mr->addr == buf && m->mr->length == len)
			return m;
	return NULL;
}

/* From the end of this call on the peer cannot write there; its next riowrite to the offset breaks
 * the connection unless it has heard of it. */
int stream_iounmap(struct rsocket *rs, void *buf, size_t len)
{
	struct stream *s = stream_of(rs);
	struct mapping *m;

	lock_acquire(&s->send_lock);
	m = iomap_find(s, buf, len);
	if (m != NULL && m->place >= 0 && m->told) {
		ibv_dereg_mr(m->mr);
		m->mr = NULL;
		m->told = false;
		__atomic_store_n(&s->maps_untold, 1, __ATOMIC_RELAXED);
	} else if (m != NULL) {
		mapping_free(s, m);
	}
	lock_release(&s->send_lock);
	return m != NULL ? 0 : -EINVAL;
}

void stream_free_maps(struct stream *s)
{
	lock_acquire(&s->send_lock);
	while (!list_empty(&s->mappings))
		mapping_free(s, list_first(&s->mappings, struct mapping, node));
	free(s->map_places);
	s->map_places = NULL;
	lock_release(&s->send_lock);
}

/* ---- riowrite -------------------------------------------------------------------------------- */

static bool iomap_target(struct stream *s, u64 offset, struct stream_sge *out)
{
	const volatile struct stream_iomap *list =
		(const volatile struct stream_iomap *)(s->table + STREAM_ENTRIES);

	for (u32 i = 0; i < s->iomaps; i++)
		if (stream_iomap_covers(&list[i], offset, out))
			return true;
	return false;
}

static int iomap_piece(struct stream *s, const u8 *from, u32 len, const struct stream_sge *target)
	REQUIRES(s->send_lock)
{
	u8 *copy = s->send_buf + s->send_at;
	bool small = len <= s->sq_inline;
	struct ibv_sge sge = { .addr = (uintptr_t)copy,
			       .length = len,
			       .lkey = s->send_mem.mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED | (small ? IBV_SEND_INLINE : 0),
		.wr.rdma = { .remote_addr = target->addr, .rkey = target->key },
	};

	if (user_copy(copy, from, len) < 0)
		return -EFAULT;
	wr.wr_id = stream_signal(s, stream_message(STREAM_WRITE, small ? 0 : len), true);
	if (!small) {
		s->send_at = s->send_at + len == s->send_size ? 0 : s->send_at + len;
		counter_add(&s->sent_bytes, len);
	}
	counter_add(&s->sent_wrs, 1);
	return ibv_post_send(s->id->qp, &wr, &bad) != 0 ? -ECONNRESET : 0;
}

/* As much as there is room for now. -EINVAL: no mapping has the offset; -EFAULT. */
static int iomap_write_now(struct stream *s, const u8 *buf, size_t count, u64 offset, size_t *done,
			   u32 *piece) REQUIRES(s->send_lock)
{
	struct stream_sge target;

	while (*done < count && !(stream_ended(s) & STREAM_NO_SEND) && stream_can_send(s)) {
		u32 len = (u32)MIN(count - *done, (size_t)*piece);
		int err;

		if (!iomap_target(s, offset + *done, &target))
			return -EINVAL;
		len = MIN(MIN(len, target.length), stream_send_room(s));
		len = MIN(len, s->send_size - s->send_at);
		err = iomap_piece(s, buf + *done, len, &target);
		if (err < 0)
			return err;
		*done += len;
		if (*piece < STREAM_PIECE_MAX)
			*piece *= 2;
	}
	return 0;
}

ssize_t stream_iowrite(struct rsocket *rs, const void *buf, size_t count, off_t offset, int flags)
{
	struct stream *s = stream_of(rs);
	bool nonblock = rsocket_is_nonblocking(rs, flags);
	u32 piece = IOMAP_FIRST;
	size_t done = 0;
	int err = 0;

	if (stream_phase(s) != STREAM_CONNECTED)
		return -ENOTCONN;
	if (offset < 0)
		return -EINVAL;
	/* A program may wait for bytes in its memory and call nothing meanwhile. So
	 * acknowledgements go out and come in here; a write behind unacknowledged requests takes
	 * the slow path. */
	stream_drive(s);
	if (__atomic_load_n(&s->maps_untold, __ATOMIC_RELAXED))
		err = stream_tell_maps(s, nonblock);
	while (err == 0 && done < count) {
		lock_acquire(&s->send_lock);
		err = iomap_write_now(s, buf, count, (u64)offset, &done, &piece);
		lock_release(&s->send_lock);
		if (err == -ECONNRESET)
			stream_break(s, err);
		if (err < 0 || done == count)
			break;
		if (stream_ended(s) & STREAM_NO_SEND)
			err = stream_send_error(s);
		else
			err = stream_wait(s, iomap_is_ready, nonblock, 0);
	}
	return done > 0 || count == 0 ? (ssize_t)done : err;
}
