/* ring.c: records on their way from many processes to one reader.
 *
 * A slot's sequence number says whose turn it is: `position` a writer's, `position + 1` the
 * reader's, `position + CAPTURE_SLOTS` the next round's writer's. A writer takes slots by moving
 * `head`, and only where the last of them is free: then all are, for the reader frees them in
 * order. Everything may be written by any process of this user: it is checked before it is used as
 * a length.
 *
 * In: packets    Out: records, copied    Runs: any thread    Locks: capture.lock, for the mapping's
 * life only
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/memfile.h"
#include "capture/capture.h"

enum {
	RING_STUCK_MS = 1000,
	RING_NEXT_MS = 1, /* for each further slot of the same writer, most likely */
};

static struct capture_shared *capture_ring_map(int fd)
{
	struct capture_shared *s;

	s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (s == MAP_FAILED)
		return NULL;
	madvise(s, sizeof(*s), MADV_DONTFORK);
	return s;
}

static void capture_ring_unmap(struct capture_shared *s)
{
	if (s != NULL)
		munmap(s, sizeof(*s));
}

static struct capture_slot *capture_ring_slot(struct capture_shared *s, u64 position)
{
	return &s->slots[position % CAPTURE_SLOTS];
}

/* ---- writers ---- */

void capture_init(struct capture *c) NO_THREAD_SAFETY /* nobody else sees it yet */
{
	memset(c, 0, sizeof(*c));
	lock_init(&c->lock);
}

static void capture_switch(struct capture *c, struct capture_shared *to)
{
	struct capture_shared *old;

	lock_acquire(&c->lock);
	old = c->shared;
	c->shared = to;
	__atomic_store_n(&c->on, to != NULL, __ATOMIC_RELAXED);
	/* Whoever is inside still writes there. One that left before is forgotten, not unmapped:
	 * it happens where recorders come and go while a thread stands still. */
	if (old != NULL && c->users != 0) {
		c->leaving = old;
		old = NULL;
	}
	lock_release(&c->lock);
	capture_ring_unmap(old);
}

int capture_start(struct capture *c, int fd)
{
	struct capture_shared *s;
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &st) != 0 ||
	    st.st_size != (off_t)sizeof(*s))
		return -EBADF;
	s = capture_ring_map(fd);
	if (s == NULL)
		return -errno;
	if (s->magic != CAPTURE_MAGIC || s->version != CAPTURE_VERSION ||
	    s->size_check != sizeof(*s)) {
		capture_ring_unmap(s);
		return -EINVAL;
	}
	capture_switch(c, s);
	return 0;
}

void capture_stop(struct capture *c)
{
	capture_switch(c, NULL);
}

void capture_drop_in_child(struct capture *c)
{
	capture_init(c); /* the mapping was not inherited */
}

static struct capture_shared *capture_get(struct capture *c)
{
	struct capture_shared *s;

	lock_acquire(&c->lock);
	s = c->shared;
	if (s != NULL)
		c->users++;
	lock_release(&c->lock);
	return s;
}

static void capture_put(struct capture *c)
{
	struct capture_shared *leaving = NULL;

	lock_acquire(&c->lock);
	if (--c->users == 0) {
		leaving = c->leaving;
		c->leaving = NULL;
	}
	lock_release(&c->lock);
	capture_ring_unmap(leaving);
}

static u32 capture_frames(const struct capture_packet *p)
{
	return p->length == 0 ? 1 : (u32)((p->length + p->mtu - 1) / p->mtu);
}

/* Moves head by `count`; false: there is no room. */
static bool capture_ring_take(struct capture_shared *s, u32 count, u64 *first)
{
	u64 head = __atomic_load_n(&s->head, __ATOMIC_RELAXED);

	for (int tries = 0; tries < 1000; tries++) {
		u64 last = head + count - 1;

		/* pairs with the release in capture_next */
		if (__atomic_load_n(&capture_ring_slot(s, last)->seq, __ATOMIC_ACQUIRE) != last) {
			u64 now = __atomic_load_n(&s->head, __ATOMIC_RELAXED);

			if (now == head)
				return false;
			head = now; /* another writer has used it meanwhile */
			continue;
		}
		if (__atomic_compare_exchange_n(&s->head, &head, head + count, false,
						__ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
			*first = head;
			return true;
		}
	}
	return false;
}

/* The same for about as many as there is room for; returns how many. */
static u32 capture_ring_take_some(struct capture_shared *s, u32 wanted, u64 *first)
{
	u32 count = MIN(wanted, (u32)CAPTURE_SLOTS);

	while (count != 0 && !capture_ring_take(s, count, first))
		count /= 2;
	return count;
}

void capture_begin(struct capture *c, const struct capture_packet *p, struct capture_hold *h)
{
	h->shared = capture_get(c);
	if (h->shared == NULL)
		return;
	h->parts = capture_frames(p);
	h->time_ns = clock_now_ns();
	h->count = capture_ring_take_some(h->shared, h->parts, &h->first);
	if (likely(h->count == h->parts))
		return;
	__atomic_fetch_add(&h->shared->dropped, h->parts - h->count, __ATOMIC_RELAXED);
	if (h->count != 0)
		return;
	h->shared = NULL;
	capture_put(c);
}

/* Where the next bytes of a list of pieces lie. */
struct capture_cursor {
	const struct iovec *iov;
	int left;
	size_t offset;
} OWNED_BY(the thread that copies);

/* Copies `keep` of the next `bytes` bytes; returns how many there were to keep. */
static u32 capture_cursor_copy(struct capture_cursor *at, u8 *to, u32 bytes, u32 keep)
{
	u32 kept = 0;

	while (bytes != 0 && at->left != 0) {
		u32 n = (u32)MIN(at->iov->iov_len - at->offset, (size_t)bytes);
		u32 k = MIN(n, keep - kept);

		/* What the consumer has taken away meanwhile is shown as zeroes. */
		if (fault_copy(to + kept, (const u8 *)at->iov->iov_base + at->offset, k) != 0)
			memset(to + kept, 0, k);
		kept += k;
		bytes -= n;
		at->offset += n;
		if (at->offset == at->iov->iov_len) {
			at->iov++;
			at->left--;
			at->offset = 0;
		}
	}
	return kept;
}

static void capture_fill(struct capture_record *r, const struct capture_hold *h, u32 part,
			 const struct capture_packet *p, struct capture_cursor *at)
{
	u64 begin = (u64)part * p->mtu;

	r->time_ns = h->time_ns;
	r->pid = getpid();
	r->kind = (u8)p->kind;
	r->inbound = p->inbound;
	r->sgid_index = p->sgid_index;
	r->dgid_index = p->dgid_index;
	r->lids = p->lids;
	r->mtu = p->mtu;
	r->path_bytes = p->path_bytes;
	r->part = part;
	r->parts = h->parts;
	r->total = p->length;
	r->length = (u32)MIN(p->length - begin, (u64)p->mtu);
	if (p->flow != NULL)
		r->flow = *p->flow;
	else
		memset(&r->flow, 0, sizeof(r->flow));
	if (p->pkt != NULL)
		r->pkt = *p->pkt;
	r->pkt.sgid = r->pkt.dgid = NULL;
	if (p->pkt != NULL && p->pkt->flags & PKT_HAS_GRH) {
		memcpy(r->flow.sgid, p->pkt->sgid, 16);
		memcpy(r->flow.dgid, p->pkt->dgid, 16);
	}
	r->kept = capture_cursor_copy(at, r->data, r->length,
				      MIN(h->shared->snaplen, (u32)CAPTURE_DATA));
}

void capture_end(struct capture *c, const struct capture_hold *h, const struct capture_packet *p,
		 const struct iovec *iov, int iovcnt, bool went)
{
	struct capture_cursor at = { .iov = iov, .left = iovcnt };

	if (h->shared == NULL)
		return;
	for (u32 i = 0; i < h->count; i++) {
		u64 position = h->first + i;
		struct capture_slot *s = capture_ring_slot(h->shared, position);

		if (went)
			capture_fill(&s->record, h, i, p, &at);
		else
			s->record.kind = CAPTURE_VOID;
		/* Pairs with the acquire in capture_next. It fails if the reader has given it
		 * up. */
		__atomic_compare_exchange_n(&s->seq, &position, position + 1, false,
					    __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	}
	capture_put(c);
}

void capture_datagram(struct capture *c, bool inbound, const struct roce_flow *flow,
		      const void *data, u32 length)
{
	struct capture_packet p = { .kind = CAPTURE_WIRE,
				    .inbound = inbound,
				    .mtu = CAPTURE_DATA,
				    .length = length,
				    .flow = flow };
	struct iovec iov = { (void *)(uintptr_t)data, length };
	struct capture_hold h;

	if (length > CAPTURE_DATA)
		return;
	capture_begin(c, &p, &h);
	capture_end(c, &h, &p, &iov, 1, true);
}

/* ---- the reader ---- */

int capture_create(u32 snaplen, struct capture_reader *r)
	NO_THREAD_SAFETY /* nobody else has the memory file yet */
{
	int fd = memfile_create("anyverbs-capture", sizeof(struct capture_shared)), err;
	struct capture_shared *s = NULL;

	memset(r, 0, sizeof(*r));
	if (fd < 0)
		return fd;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		s = capture_ring_map(fd);
	if (s == NULL) {
		err = -errno;
		close(fd);
		return err;
	}
	for (u32 i = 0; i < CAPTURE_SLOTS; i++)
		s->slots[i].seq = i;
	s->version = CAPTURE_VERSION;
	s->size_check = sizeof(*s);
	s->snaplen = snaplen;
	s->magic = CAPTURE_MAGIC;
	r->shared = s;
	return fd;
}

void capture_destroy(struct capture_reader *r)
{
	capture_ring_unmap(r->shared);
	r->shared = NULL;
}

u64 capture_dropped(const struct capture_reader *r)
{
	return __atomic_load_n(&r->shared->dropped, __ATOMIC_RELAXED) + r->lost;
}

/* The next slot is not ready. Was it taken so long ago that its writer must have died? Then it is
 * free for the next round. */
static void reader_wait(struct capture_reader *r, struct capture_slot *s, u64 now_ns)
{
	u64 expected = r->tail;

	if (__atomic_load_n(&r->shared->head, __ATOMIC_RELAXED) == r->tail) {
		r->stuck_ns = 0;
	} else if (r->stuck_ns == 0) {
		r->stuck_ns = now_ns;
	} else if (now_ns - r->stuck_ns > RING_STUCK_MS * NS_PER_MS &&
		   __atomic_compare_exchange_n(&s->seq, &expected, r->tail + CAPTURE_SLOTS, false,
					       __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
		r->tail++;
		r->lost++;
		r->stuck_ns = now_ns - (RING_STUCK_MS - RING_NEXT_MS) * NS_PER_MS;
	}
}

/* Whatever byte a writer has put there is no bool but 0 and 1. */
static void reader_judge_bool(bool *b)
{
	u8 byte;

	memcpy(&byte, b, 1);
	*b = (byte & 1) != 0;
}

bool capture_next(struct capture_reader *r, struct capture_record *out, u64 now_ns)
{
	struct capture_slot *s = capture_ring_slot(r->shared, r->tail);

	/* pairs with the release in capture_end */
	if (__atomic_load_n(&s->seq, __ATOMIC_ACQUIRE) != r->tail + 1) {
		reader_wait(r, s, now_ns);
		return false;
	}
	memcpy(out, &s->record, offsetof(struct capture_record, data));
	out->kept = MIN(MIN(out->kept, out->length), (u32)CAPTURE_DATA);
	reader_judge_bool(&out->flow.df);
	reader_judge_bool(&out->pkt.no_grh);
	reader_judge_bool(&out->pkt.unmigrated);
	memcpy(out->data, s->record.data, out->kept);
	/* pairs with the acquire in capture_ring_take */
	__atomic_store_n(&s->seq, r->tail + CAPTURE_SLOTS, __ATOMIC_RELEASE);
	r->tail++;
	r->stuck_ns = 0;
	return true;
}
