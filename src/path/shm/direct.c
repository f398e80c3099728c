/* direct.c: one-sided operations by the initiator alone, and waiting for peers that do so to us.
 *
 * In: a target named by (QP, rkey, va) and local pieces    Out: the peer's memory, or a refusal
 * Runs: the poster, under its queue pair's lock
 * Locks: none; a hazard in our board tells the peer
 *
 * Initiator: read key and QP -> publish hazard -> fence (A) -> read both again -> copy -> clear
 * hazard (release).
 * Target:    make key or QP invalid -> fence (B) -> wait until no hazard names it.
 * A pairs with B: either the initiator sees the invalid key, or the target sees the hazard.
 */
#include "path/shm/reach.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

enum {
	DRAIN_LIMIT_MS = 2000,
	PULL_PIECES = 4, /* more are copied by the kernel */
	NO_KEY = SHM_ANY_KEY - 1, /* a hazard's, that uses no key: no entry of the table has it */
};

static bool direct_entry_allows(const struct mem_entry *e, const struct path_target *t, u32 need,
				u32 pd, u64 *addr)
{
	if ((e->access & need) == 0 || e->pd != pd || (e->flags & MEM_CONTIGUOUS) == 0)
		return false;
	if ((e->flags & MEM_WINDOW_TYPE2) != 0 && e->qpn != t->dqpn)
		return false;
	if (t->va < e->iova || t->va - e->iova > e->length ||
	    t->length > e->length - (t->va - e->iova))
		return false;
	*addr = e->addr + (t->va - e->iova);
	return true;
}

static bool direct_qp_allows(const struct board_qp *q, u32 word, const struct path_target *t,
			     u32 need)
{
	u32 state = word & 0xf;

	return (word & BOARD_QP_EXISTS) != 0 &&
	       (state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD ||
		state == IBV_QPS_SQE) &&
	       (word >> 8 & need) != 0 && q->qpn == t->dqpn && q->peer_qpn == t->sqpn;
}

const struct board_qp *link_find_qp(const struct board *b, u32 qpn)
{
	u32 count = MIN(b->slot_count, (u32)BOARD_SLOTS);

	for (u32 i = 0; i < count; i++)
		if (b->slots[i] == qpn >> NODE_INDEX_BITS)
			return &b->qps[i * BOARD_QPS_PER_SLOT + qpn % BOARD_QPS_PER_SLOT];
	return NULL;
}

bool link_peer_has_qp(const struct shm_link *l, u32 qpn)
{
	const struct board_qp *q = link_find_qp(l->board, qpn);

	return q != NULL && q->qpn == qpn &&
	       (__atomic_load_n(&q->word, __ATOMIC_ACQUIRE) & BOARD_QP_EXISTS) != 0;
}

/* A free hazard record of our board, claimed by the marker UINT64_MAX; NULL if all are in use. */
static struct board_hazard *direct_claim(struct board *b)
{
	for (u32 i = 0; i < BOARD_HAZARDS; i++) {
		u64 nobody = 0;

		if (__atomic_load_n(&b->hazards[i].process, __ATOMIC_RELAXED) != 0)
			continue;
		if (!__atomic_compare_exchange_n(&b->hazards[i].process, &nobody, UINT64_MAX, false,
						 __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			continue;
		if (unlikely(i >= __atomic_load_n(&b->hazard_high, __ATOMIC_RELAXED)))
			__atomic_store_n(&b->hazard_high, i + 1, __ATOMIC_RELEASE);
		return &b->hazards[i];
	}
	return NULL;
}

/* From here on the owner of the key and of the queue pair waits for us: the caller looks once more
 * whether they are still there. */
static void direct_publish(struct board_hazard *h, u64 process, u32 key_index, u32 qpn)
{
	__atomic_store_n(&h->key_index, key_index, __ATOMIC_RELAXED);
	__atomic_store_n(&h->qpn, qpn, __ATOMIC_RELAXED);
	__atomic_store_n(&h->process, process, __ATOMIC_RELEASE);
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* A */
}

static void direct_withdraw(struct board_hazard *h)
{
	__atomic_store_n(&h->process, 0, __ATOMIC_RELEASE); /* pairs with drain_busy */
}

/* The last 8 bytes are a piece of their own, so that a peer that polls on the last byte sees the
 * others before it. */
static int direct_remote_pieces(struct iovec remote[2], u64 addr, u64 length, bool write)
{
	u64 tail = write && length > 8 ? 8 : 0;

	remote[0].iov_base = (void *)(uintptr_t)addr;
	remote[0].iov_len = length - tail;
	remote[1].iov_base = (void *)(uintptr_t)(addr + length - tail);
	remote[1].iov_len = tail;
	return tail != 0 ? 2 : 1;
}

static int direct_copy_process(const struct shm_link *l, const struct path_target *t, u64 addr,
			       const struct iovec *iov, int iovcnt)
{
	struct iovec remote[2];
	int n = direct_remote_pieces(remote, addr, t->length, t->write);
	ssize_t done;

	if (t->write)
		done = process_vm_writev(l->pid, iov, (unsigned long)iovcnt, remote,
					 (unsigned long)n, 0);
	else
		done = process_vm_readv(l->pid, iov, (unsigned long)iovcnt, remote,
					(unsigned long)n, 0);
	return done == (ssize_t)t->length ? 0 : -EOPNOTSUPP;
}

/* The target's memory is mapped here, at `there`. */
static int direct_copy_here(const struct path_target *t, u8 *there, const struct iovec *iov,
			    int iovcnt)
{
	for (int i = 0; i < iovcnt; i++) {
		if (t->write)
			mem_copy_ordered(there, iov[i].iov_base, iov[i].iov_len);
		else
			memmove(iov[i].iov_base, there, iov[i].iov_len);
		there += iov[i].iov_len;
	}
	return 0;
}

/* Where an operation may go: an address of the target, and here, if it is mapped. */
struct direct_place {
	u64 addr;
	u8 *here;
};

/* Judges by the target's board, with the hazard up from then on. 0 or -EACCES. */
static int direct_enter(struct shm_link *l, struct board_hazard *h, const struct path_target *t,
			u32 need, struct direct_place *place)
{
	const struct mem_entry *e = &l->board->keys[t->rkey >> MEM_TAG_BITS];
	const struct board_qp *q = link_find_qp(l->board, t->dqpn);
	u32 word, key = __atomic_load_n(&e->key, __ATOMIC_ACQUIRE); /* pairs with mem_register */
	u64 shared;

	if (key != t->rkey || q == NULL)
		return -EACCES;
	word = __atomic_load_n(
		&q->word, __ATOMIC_ACQUIRE); /* pairs with the engine's store of the QP's state */
	if (!direct_qp_allows(q, word, t, need) ||
	    !direct_entry_allows(e, t, need, q->pd, &place->addr))
		return -EACCES;
	direct_publish(h, l->process, t->rkey >> MEM_TAG_BITS, t->dqpn);
	if (__atomic_load_n(&e->key, __ATOMIC_RELAXED) != key ||
	    __atomic_load_n(&q->word, __ATOMIC_RELAXED) != word)
		return -EACCES;
	shared = __atomic_load_n(&e->shared, __ATOMIC_RELAXED);
	place->here = NULL;
	if (unlikely(l->self))
		place->here = (u8 *)(uintptr_t)place->addr;
	else if (likely(shared != 0))
		place->here = reach_find(l, shared + (place->addr - e->addr), t->length,
					 shared + e->length);
	return 0;
}

/* Ends what direct_claim began, and counts it; returns `err`. */
static int direct_leave(struct shm_link *l, struct board_hazard *h, int err)
{
	direct_withdraw(h);
	board_count(l->shm->cfg.board, err == 0 ? COUNT_DIRECT : COUNT_DIRECT_REFUSED);
	return err;
}

static int direct_copy(struct shm_link *l, const struct path_target *t, const struct iovec *iov,
		       int iovcnt)
{
	u32 need = t->write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
	struct direct_place place;
	struct board_hazard *h;
	int err;

	h = direct_claim(l->shm->cfg.board);
	if (h == NULL)
		return -EOPNOTSUPP;
	err = direct_enter(l, h, t, need, &place);
	if (err == 0)
		err = place.here != NULL ? direct_copy_here(t, place.here, iov, iovcnt) :
					   direct_copy_process(l, t, place.addr, iov, iovcnt);
	return direct_leave(l, h, err);
}

static int direct_change(struct shm_link *l, const struct path_target *t, struct path_atomic *a)
{
	struct direct_place place;
	struct board_hazard *h;
	int err;

	h = direct_claim(l->shm->cfg.board);
	if (h == NULL)
		return -EOPNOTSUPP;
	err = direct_enter(l, h, t, IBV_ACCESS_REMOTE_ATOMIC, &place);
	if (err == 0 && (place.here == NULL || ((uintptr_t)place.here & 7) != 0))
		err = -EOPNOTSUPP;
	else if (err == 0 && a->swap)
		a->before = mem_compare_swap((u64 *)(void *)place.here, a->compare, a->operand);
	else if (err == 0)
		a->before = mem_fetch_add((u64 *)(void *)place.here, a->operand);
	return direct_leave(l, h, err);
}

/* While somebody captures it goes as packets, which can be shown. */
int link_atomic(struct path_dest *d, const struct path_target *t, struct path_atomic *a)
{
	struct shm_link *l = link_of(d);

	if (link_state(l) == LINK_ALIAS)
		l = l->real;
	if (!link_is_plain(l) || !l->direct || (t->va & 7) != 0)
		return -EOPNOTSUPP;
	return direct_change(l, t, a);
}

int link_direct(struct path_dest *d, const struct path_target *t, const struct iovec *iov,
		int iovcnt)
{
	struct shm_link *l = link_of(d);
	struct tap tap;
	int err;

	if (link_state(l) == LINK_ALIAS)
		l = l->real;
	if (!link_carries(l) || !l->direct)
		return -EOPNOTSUPP;
	if (likely(!link_is_watched(l)))
		return direct_copy(l, t, iov, iovcnt);
	tap_begin(l, t, &tap);
	err = direct_copy(l, t, iov, iovcnt);
	tap_end(l, &tap, iov, iovcnt, err == 0);
	return err;
}

bool link_pullable(struct path_dest *d)
{
	struct shm_link *l = link_of(d);

	if (link_state(l) == LINK_ALIAS)
		l = l->real;
	return link_state(l) == LINK_UP && l->direct;
}

/* From memory that is mapped here. */
static void pull_here(const struct iovec *theirs, int n, const struct iovec *ours)
{
	size_t done = 0;

	for (int i = 0; i < n; i++)
		for (size_t from = 0; from < theirs[i].iov_len;) {
			size_t piece = MIN(theirs[i].iov_len - from, ours->iov_len - done);

			memmove((u8 *)ours->iov_base + done, (u8 *)theirs[i].iov_base + from,
				piece);
			from += piece;
			done += piece;
			if (done == ours->iov_len) {
				ours++;
				done = 0;
			}
		}
}

/* Finds where the sender's pieces lie here; false: one of them is not mapped. */
static bool pull_is_mapped(struct shm_link *l, const struct iovec *theirs, int n,
			   struct iovec here[PULL_PIECES])
{
	if (n > PULL_PIECES)
		return false;
	for (int i = 0; i < n; i++) {
		here[i].iov_len = theirs[i].iov_len;
		here[i].iov_base = reach_address(l, (u64)(uintptr_t)theirs[i].iov_base,
						 theirs[i].iov_len);
		if (here[i].iov_base == NULL)
			return false;
	}
	return true;
}

/* While the sender's queue pair says that it is sending, its buffers are what it was asked to
 * send. */
static bool pull_is_valid(const struct shm_link *l, u32 sqpn, u32 dqpn)
{
	const struct board_qp *q = link_find_qp(l->board, sqpn);
	u32 word = q == NULL ? 0 : __atomic_load_n(&q->word, __ATOMIC_ACQUIRE);
	u32 state = word & 0xf;

	return (word & BOARD_QP_EXISTS) != 0 && q->qpn == sqpn && q->peer_qpn == dqpn &&
	       (state == IBV_QPS_RTS || state == IBV_QPS_SQD);
}

/* The hazard makes the sender wait (shm_drain) before its queue pair is gone and its buffers are
 * the application's again: what has been copied into a receive buffer is what was sent. */
static int pull_checked_copy(struct shm_link *l, struct board_hazard *h, u32 sqpn, u32 dqpn,
			     const struct iovec *theirs, int n, const struct iovec *ours, int m,
			     u64 bytes)
{
	struct iovec here[PULL_PIECES];
	ssize_t got = (ssize_t)bytes;

	direct_publish(h, l->process, NO_KEY, sqpn);
	if (!pull_is_valid(l, sqpn, dqpn))
		return -EPIPE;
	if (l->self)
		pull_here(theirs, n, ours);
	else if (pull_is_mapped(l, theirs, n, here))
		pull_here(here, n, ours);
	else
		got = process_vm_readv(l->pid, ours, (unsigned long)m, theirs, (unsigned long)n, 0);
	/* Once more: a queue pair that fails by itself does not wait, and its flush completions
	 * come later than the word (qp_fail_both). */
	if (!pull_is_valid(l, sqpn, dqpn))
		return -EPIPE;
	return got == (ssize_t)bytes ? 0 : -EOPNOTSUPP;
}

int link_pull(struct path_dest *from, u32 sqpn, u32 dqpn, const struct iovec *theirs, int n,
	      const struct iovec *ours, int m, u64 bytes)
{
	struct shm_link *l = link_of(from);
	struct board_hazard *h;
	int err;

	if (!l->direct)
		return -EOPNOTSUPP;
	h = direct_claim(l->shm->cfg.board);
	if (h == NULL)
		return -EOPNOTSUPP;
	err = pull_checked_copy(l, h, sqpn, dqpn, theirs, n, ours, m, bytes);
	direct_withdraw(h);
	return err;
}

bool link_probe_direct(const struct shm_link *l)
{
	u64 nonce = 0;
	struct iovec local = { &nonce, sizeof(nonce) };
	struct iovec remote = { (void *)(uintptr_t)l->board->nonce_addr, sizeof(nonce) };

	if (!l->shm->cfg.direct || !l->board->direct)
		return false;
	if (l->self)
		return true;
	if (l->pid <= 0 ||
	    process_vm_readv(l->pid, &local, 1, &remote, 1, 0) != (ssize_t)sizeof(nonce)) {
		log_info("shm", "process %d cannot be reached directly; its own engine will copy",
			 (int)l->pid);
		return false;
	}
	return nonce == l->board->nonce;
}

/* Does this process' board hold a hazard on the key or queue pair of ours? */
static bool drain_busy(const struct shm *shm, const struct board *b, u32 key_index, u32 qpn)
{
	u32 high = MIN(__atomic_load_n(&b->hazard_high, __ATOMIC_ACQUIRE), (u32)BOARD_HAZARDS);

	for (u32 i = 0; i < high; i++) {
		const struct board_hazard *h = &b->hazards[i];

		if (__atomic_load_n(&h->process, __ATOMIC_ACQUIRE) ==
			    shm->cfg.process && /* pairs with the releases above */
		    (__atomic_load_n(&h->key_index, __ATOMIC_RELAXED) == key_index ||
		     __atomic_load_n(&h->qpn, __ATOMIC_RELAXED) == qpn))
			return true;
	}
	return false;
}

static void drain_link(struct shm *shm, const struct shm_link *l, u32 key_index, u32 qpn)
{
	u64 limit = 0;

	while (link_state(l) == LINK_UP && drain_busy(shm, l->board, key_index, qpn)) {
		u64 now = clock_now_ns();

		if (limit == 0)
			limit = now + DRAIN_LIMIT_MS * NS_PER_MS;
		if (now > limit) {
			__atomic_fetch_add(&shm->stuck, 1, __ATOMIC_RELAXED);
			log_warn("shm", "process %d is stopped inside an operation on our memory",
				 (int)l->pid);
			return;
		}
		sched_yield();
	}
}

u32 shm_stuck(const struct shm *shm)
{
	return __atomic_load_n(&shm->stuck, __ATOMIC_RELAXED);
}

void shm_drain(struct shm *shm, u32 key_index, u32 qpn)
{
	struct shm_link *held[64];
	u32 i = 0, n;

	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* B */
	do {
		lock_acquire(&shm->lock);
		for (n = 0; n < ARRAY_LEN(held) && i < shm->count; i++) {
			if (!shm->links[i]->direct)
				continue;
			held[n] = shm->links[i];
			held[n++]->refs++;
		}
		lock_release(&shm->lock);
		for (u32 k = 0; k < n; k++) {
			drain_link(shm, held[k], key_index, qpn);
			shm->path.ops->dest_put(&held[k]->dest);
		}
	} while (n == ARRAY_LEN(held));
}
