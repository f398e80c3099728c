/* ring.c: moves packets through shared memory.
 * In: decoded packets with their payload, or slots that a peer filled
 * Out: slots, or decoded packets
 * Runs: senders under tx->lock, one receiver at a time    Never blocks
 */
#include "path/shm/ring.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memfile.h"

int ring_pair_create(void)
{
	int fd = memfile_create("anyverbs-ring", sizeof(struct ring_pair));
	int err;

	if (fd < 0)
		return fd;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		return fd;
	err = -errno;
	close(fd);
	return err;
}

static struct ring_pair *ring_pair_adopt(void *p)
{
	if (p == MAP_FAILED)
		return NULL;
	madvise(p, sizeof(struct ring_pair), MADV_DONTFORK);
	return p;
}

struct ring_pair *ring_pair_map(int fd)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &st) != 0 ||
	    st.st_size != (off_t)sizeof(struct ring_pair))
		return NULL;
	return ring_pair_adopt(
		mmap(NULL, sizeof(struct ring_pair), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
}

struct ring_pair *ring_pair_private(void)
{
	return ring_pair_adopt(mmap(NULL, sizeof(struct ring_pair), PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
}

void ring_pair_unmap(struct ring_pair *p)
{
	if (p != NULL)
		munmap(p, sizeof(*p));
}

void ring_tx_init(struct ring_tx *tx, struct ring_shared *shared, u32 *spare)
	NO_THREAD_SAFETY /* not yet visible to other threads */
{
	memset(tx, 0, sizeof(*tx));
	tx->shared = shared;
	tx->spare = spare;
	tx->lap = RING_LAP;
}

void ring_tx_end(struct ring_tx *tx)
{
	lock_acquire(&tx->lock);
	if (tx->grown != 0)
		__atomic_fetch_add(tx->spare, tx->grown, __ATOMIC_RELAXED);
	tx->grown = 0;
	lock_release(&tx->lock);
}

void ring_rx_init(struct ring_rx *rx, struct ring_shared *shared)
{
	memset(rx, 0, sizeof(*rx));
	rx->shared = shared;
	rx->next = &shared->slots[0];
}

/* Accepts the consumer's position only between the last accepted one and what was sent. Pairs with
 * ring_publish. */
static void ring_refresh(struct ring_tx *tx) REQUIRES(tx->lock)
{
	u32 consumed = __atomic_load_n(&tx->shared->consumed, __ATOMIC_ACQUIRE);

	if (consumed - tx->consumed > tx->head - tx->consumed || consumed == tx->consumed)
		return;
	tx->consumed = consumed;
	tx->data_tail = tx->data_end[(consumed - 1) % RING_SLOTS];
}

static bool ring_take_spare(struct ring_tx *tx, u32 bytes) REQUIRES(tx->lock)
{
	u32 left;

	if (tx->spare == NULL)
		return true;
	left = __atomic_load_n(tx->spare, __ATOMIC_RELAXED);
	do
		if (left < bytes)
			return false;
	while (!__atomic_compare_exchange_n(tx->spare, &left, left - bytes, true, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED));
	tx->grown += bytes;
	return true;
}

_Static_assert((RING_MTU + RING_ROUTE) * 3 <= RING_DATA && RING_LAP * 8 == RING_DATA,
	       "a lap can be long enough, and doubles up to all of the data area");

/* The lap ends before `bytes` more. True: not any more, it has grown. It must if they are more than
 * a third of it; else it may if there was no room since it began. */
static NOINLINE bool ring_goes_on(struct ring_tx *tx, u32 bytes) REQUIRES(tx->lock)
{
	u32 end = tx->data_head % RING_DATA + bytes;

	while (tx->lap < bytes * 3)
		tx->lap *= 2;
	while (tx->lap < end && tx->tight && tx->lap < RING_DATA && ring_take_spare(tx, tx->lap))
		tx->lap *= 2;
	tx->tight = false;
	return end <= tx->lap;
}

/* Finds where `bytes` contiguous bytes of the data area begin (free running); false if they do not
 * fit. */
static bool ring_fit_data(struct ring_tx *tx, u32 bytes, u32 *start) REQUIRES(tx->lock)
{
	u32 at = tx->data_head;
	u32 offset = at % RING_DATA;

	if (unlikely(offset + bytes > tx->lap) && !ring_goes_on(tx, bytes))
		at += RING_DATA - offset;
	*start = at;
	return at + bytes - tx->data_tail <= RING_DATA;
}

static bool ring_fit(struct ring_tx *tx, u32 bytes, u32 *start) REQUIRES(tx->lock)
{
	*start = tx->data_head;
	if (likely(tx->head - tx->consumed < RING_SLOTS &&
		   (bytes == 0 || ring_fit_data(tx, bytes, start))))
		return true;
	ring_refresh(tx);
	if (tx->head - tx->consumed >= RING_SLOTS)
		return false;
	if (bytes == 0 || ring_fit_data(tx, bytes, start))
		return true;
	tx->tight = true;
	return false;
}

/* No room: sets `waiting`, then checks once more, so that a consumer that has just made room is not
 * missed. The fence pairs with the one in ring_publish: either the consumer sees `waiting`, or this
 * sees `consumed`. */
static bool ring_fit_or_wait(struct ring_tx *tx, u32 bytes, u32 *start) REQUIRES(tx->lock)
{
	if (likely(ring_fit(tx, bytes, start)))
		return true;
	__atomic_store_n(&tx->shared->waiting, 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return ring_fit(tx, bytes, start);
}

static inline int ring_copy_payload(u8 *to, const struct iovec *iov, int iovcnt)
{
	for (int i = 0; i < iovcnt; i++) {
		if (unlikely(fault_copy(to, iov[i].iov_base, iov[i].iov_len) != 0))
			return -EFAULT;
		to += iov[i].iov_len;
	}
	return 0;
}

enum { ROUTE_SLID = 40, ROUTE_DLID = 42, ROUTE_PKEY = 44, ROUTE_SL = 46, ROUTE_NO_GRH = 47 };

static void ring_copy_route(u8 *to, const struct pkt *p)
{
	u32 first = htobe32(6u << 28 | (u32)p->traffic_class << 20 | (p->flow_label & 0xfffff));

	memset(to, 0, 8);
	memcpy(to, &first, 4);
	to[7] = p->hop_limit;
	memcpy(to + 8, p->sgid, 16);
	memcpy(to + 24, p->dgid, 16);
	memcpy(to + ROUTE_SLID, &p->slid, 2);
	memcpy(to + ROUTE_DLID, &p->dlid, 2);
	memcpy(to + ROUTE_PKEY, &p->pkey, 2);
	to[ROUTE_SL] = p->sl;
	to[ROUTE_NO_GRH] = p->no_grh;
}

static void ring_read_route(const u8 *route, struct pkt *p)
{
	p->sgid = route + 8;
	p->dgid = route + 24;
	p->traffic_class = (u8)(route[0] << 4 | route[1] >> 4);
	p->flow_label = (u32)(route[1] & 15) << 16 | (u32)route[2] << 8 | route[3];
	p->hop_limit = route[7];
	memcpy(&p->slid, route + ROUTE_SLID, 2);
	memcpy(&p->dlid, route + ROUTE_DLID, 2);
	memcpy(&p->pkey, route + ROUTE_PKEY, 2);
	p->sl = route[ROUTE_SL] & 15;
	p->no_grh = route[ROUTE_NO_GRH] != 0;
}

static inline bool ring_has_reth(const struct pkt *p)
{
	return p->opcode == PKT_WRITE_FIRST || p->opcode == PKT_WRITE_ONLY ||
	       p->opcode == PKT_WRITE_ONLY_IMM || p->opcode == PKT_READ_REQUEST ||
	       p->opcode == PKT_FLUSH || p->opcode == PKT_ATOMIC_WRITE;
}

static inline bool ring_has_atomic(const struct pkt *p)
{
	return p->opcode == PKT_COMPARE_SWAP || p->opcode == PKT_FETCH_ADD ||
	       p->opcode == PKT_ATOMIC_ACK;
}

static inline bool ring_is_short_write(const struct pkt *p)
{
	return p->opcode == PKT_WRITE_ONLY_IMM && p->length - 1 < PATH_NOTICE_BYTES &&
	       !(p->flags & (PKT_HAS_GRH | PKT_PULL | PKT_PLACED));
}

/* Fills the fields that every packet has. */
static inline void ring_fill_head(struct ring_slot *s, const struct pkt *p)
{
	s->opcode = p->opcode;
	s->flags = p->flags;
	s->qp_type = p->qp_type;
	s->syndrome = p->syndrome;
	s->dqpn = p->dqpn;
	s->sqpn = p->sqpn;
	s->psn = p->psn;
	s->ack_psn = p->qp_type >= IBV_QPT_UD ? p->qkey : p->ack_psn;
	s->imm = p->opcode == PKT_ACK || p->opcode == PKT_ATOMIC_ACK ? p->msn : p->imm;
	s->length = p->length;
}

static inline void ring_fill_slot(struct ring_slot *s, const struct pkt *p, u32 data)
{
	ring_fill_head(s, p);
	if (ring_has_atomic(p)) {
		s->atomic.va = p->va;
		s->atomic.rkey = p->rkey;
		s->atomic.compare = p->compare;
		s->atomic.swap = p->swap;
	} else if (ring_is_short_write(p)) {
		s->write.va = p->va;
		s->write.rkey = p->rkey;
	} else if (ring_has_reth(p)) {
		s->reth.va = p->va;
		s->reth.rkey = p->rkey;
		s->reth.dma_length = p->dma_length;
		s->reth.data = data;
	} else if (p->flags & PKT_PULL) {
		s->reth.dma_length = p->dma_length;
	}
}

static inline bool ring_fits_slot(const struct pkt *p)
{
	return p->length <= RING_INLINE && !(p->flags & (PKT_HAS_GRH | PKT_PULL)) &&
	       !ring_has_reth(p) && !ring_has_atomic(p);
}

static int ring_push_data(struct ring_tx *tx, struct ring_slot *s, const struct pkt *p,
			  const struct iovec *iov, int iovcnt, u32 start, u32 bytes)
	REQUIRES(tx->lock)
{
	u8 *to = tx->shared->data + start % RING_DATA;

	if (p->flags & PKT_HAS_GRH) {
		ring_copy_route(to, p);
		to += RING_ROUTE;
	}
	if (unlikely(ring_copy_payload(to, iov, iovcnt) != 0))
		return -EFAULT;
	s->reth.data = start % RING_DATA;
	tx->data_head = (start + bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
	return 0;
}

static int ring_push_locked(struct ring_tx *tx, const struct pkt *p, const struct iovec *iov,
			    int iovcnt) REQUIRES(tx->lock)
{
	bool write = ring_is_short_write(p), small = write || ring_fits_slot(p);
	u32 bytes = small ? 0 : p->length + (p->flags & PKT_HAS_GRH ? RING_ROUTE : 0);
	struct ring_slot *s;
	u32 start;
	int err = 0;

	if (!ring_fit_or_wait(tx, bytes, &start))
		return -EAGAIN;
	s = &tx->shared->slots[tx->head % RING_SLOTS];
	ring_fill_slot(s, p, 0);
	if (small)
		err = ring_copy_payload(write ? s->write.bytes : s->inlined, iov, iovcnt);
	else if (bytes != 0)
		err = ring_push_data(tx, s, p, iov, iovcnt, start, bytes);
	if (likely(err == 0))
		ring_show(tx, s, tx->head++);
	return err;
}

/* Pushes a packet whose header and data fit its slot, as most do. */
static inline bool ring_push_small(struct ring_tx *tx, const struct pkt *p,
				   const struct iovec *iov) REQUIRES(tx->lock)
{
	struct ring_slot *s = &tx->shared->slots[tx->head % RING_SLOTS];

	if (unlikely(tx->head - tx->consumed >= RING_SLOTS))
		return false;
	ring_fill_head(s, p);
	if (iov != NULL &&
	    unlikely(!fault_small_copy(s->inlined, iov->iov_base, (u32)iov->iov_len)))
		return false;
	ring_show(tx, s, tx->head++);
	return true;
}

static inline bool ring_is_small(const struct pkt *p, int iovcnt)
{
	return (p->opcode == PKT_SEND_ONLY || p->opcode == PKT_ACK) && p->length <= RING_INLINE &&
	       iovcnt <= 1 && p->qp_type < IBV_QPT_UD &&
	       (p->flags & (PKT_HAS_GRH | PKT_PULL)) == 0;
}

int ring_push(struct ring_tx *tx, const struct pkt *p, const struct iovec *iov, int iovcnt)
{
	int err;

	lock_acquire(&tx->lock);
	if (likely(ring_is_small(p, iovcnt)) && likely(ring_push_small(tx, p, iovcnt ? iov : NULL)))
		err = 0;
	else
		err = ring_push_locked(tx, p, iov, iovcnt);
	lock_release(&tx->lock);
	return err;
}

bool ring_has_room(struct ring_tx *tx)
{
	bool room;
	u32 start;

	lock_acquire(&tx->lock);
	/* Without room, the consumer's notification that led here is used up: request another. */
	room = ring_fit_or_wait(tx, RING_MTU + RING_ROUTE, &start);
	lock_release(&tx->lock);
	return room;
}

/* Returns the payload's place outside the slot; NULL: the slot's offset or length is invalid. */
static const u8 *ring_item_payload(struct ring_rx *rx, struct ring_item *it, u32 data)
{
	struct pkt *p = &it->pkt;
	u32 route = p->flags & PKT_HAS_GRH ? RING_ROUTE : 0;

	if (data >= RING_DATA || p->length + route > RING_DATA - data)
		return NULL;
	it->data_bytes = (p->length + route + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
	rx->reach = MAX(rx->reach, data + p->length + route);
	if (route != 0) {
		memcpy(it->route, rx->shared->data + data, RING_ROUTE);
		ring_read_route(it->route, p);
	}
	return rx->shared->data + data + route;
}

/* Reads each field once: the judged value is the used value. */
static inline void ring_decode(const volatile struct ring_slot *s, struct pkt *p)
{
	u32 word;

	p->opcode = s->opcode;
	p->flags = s->flags;
	p->qp_type = s->qp_type;
	p->syndrome = s->syndrome;
	p->dqpn = s->dqpn & 0xffffff;
	p->sqpn = s->sqpn & 0xffffff;
	p->psn = s->psn & 0xffffff;
	word = s->ack_psn;
	p->ack_psn = word & 0xffffff;
	p->qkey = word;
	p->imm = p->msn = s->imm;
	p->length = s->length;
}

static inline void ring_decode_rest(const volatile struct ring_slot *s, struct pkt *p)
{
	p->va = s->reth.va;
	p->rkey = s->reth.rkey;
	p->dma_length = s->reth.dma_length;
	p->compare = s->atomic.compare;
	p->swap = s->atomic.swap;
}

int ring_peek(struct ring_rx *rx, struct ring_item *item)
{
	const struct ring_slot *s = rx->next;
	struct pkt *p = &item->pkt;

	/* Pairs with the release in ring_show. */
	if (__atomic_load_n(&s->seq, __ATOMIC_ACQUIRE) != rx->tail + 1)
		return 0;
	ring_decode(s, p);
	item->payload = s->inlined;
	item->data_bytes = 0;
	if (likely(p->opcode == PKT_SEND_ONLY && p->length <= RING_INLINE &&
		   (p->flags & (PKT_HAS_GRH | PKT_PULL)) == 0))
		return 1;
	ring_decode_rest(s, p);
	if (p->opcode >= PKT_OPCODES || p->length > RING_MTU)
		return -EBADMSG;
	if (ring_is_short_write(p)) {
		p->dma_length = p->length;
		item->payload = s->write.bytes;
		return 1;
	}
	if (ring_fits_slot(p) || (p->length == 0 && (p->flags & PKT_HAS_GRH) == 0))
		return 1;
	item->payload = ring_item_payload(rx, item, *(const volatile u32 *)&s->reth.data);
	return item->payload == NULL ? -EBADMSG : 1;
}

void ring_consume(struct ring_rx *rx, const struct ring_item *item)
{
	ring_step(rx);
	rx->data_taken += item->data_bytes;
}

bool ring_publish(struct ring_rx *rx)
{
	if (rx->published == rx->tail)
		return false;
	rx->published = rx->tail;
	rx->data_taken = 0;
	__atomic_store_n(&rx->shared->consumed, rx->tail,
			 __ATOMIC_RELEASE);	 /* pairs with ring_refresh */
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* pairs with ring_fit_or_wait */
	if (likely(__atomic_load_n(&rx->shared->waiting, __ATOMIC_RELAXED) == 0))
		return false;
	__atomic_store_n(&rx->shared->waiting, 0, __ATOMIC_RELAXED);
	return true;
}
