/* direct.c: one-sided operations by the initiator alone, and the target's wait for them.
 *
 * In: a target named by (QP, rkey, va) and local pieces    Out: the peer's memory, or a refusal
 * Runs: the poster, under its queue pair's lock
 * Locks: none; a hazard in our board tells the peer
 *
 * Initiator: raise hazard (A) -> read the board's generation -> judge key and QP, unless they were
 * judged in this same generation -> copy -> read the generation again; if it has changed, judge
 * again, and send as packets what is not allowed any more -> lower
 *            hazard (release).
 * Target:    make key or QP invalid -> next generation -> fence (B) -> wait until no hazard names
 *            it, up to a limit.
 * A pairs with B: either the initiator sees the new generation, and so the invalid key, or the
 * target sees the hazard.
 *
 * The target's wait for an initiator that is stopped under its hazard ends at a limit. What the
 * initiator does when it continues depends on the hazard's kind. A read harms nobody; its initiator
 * sees the new generation, and discards what it has read. A store through a map goes to the memory
 * file, where the pages are nobody's by then if the target has taken them out of it. A write at the
 * target's addresses can be neither revoked nor told from one that has ended: the target keeps key
 * and memory as they are (-EBUSY).
 */
#include "path/shm/reach.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "path/shm/space.h"

enum {
	DRAIN_LIMIT_MS = 2000,	 /* for a hazard that writes at this process' addresses */
	DRAIN_HARMLESS_MS = 100, /* for a hazard that is harmless but costs a slot */
	DRAIN_LOOK_MS = 5,	 /* after so long a peer is checked for being stopped */
	PULL_PIECES = 4,	 /* beyond this the kernel copies */
	JOIN_LONGEST =
		8 << 10, /* bytes of a WRITE that shares a system call; drive.c's DRIVE_MOST */
	/* for a hazard without a key: no entry of the table has this index */
	NO_KEY = SHM_ANY_KEY - 1,
};

/* A peer, or this process itself, may be changing the entry, here and in direct_qp_allows. Each
 * load acquires, so that the second load of the key or the word comes after it. */
static bool direct_entry_allows(const struct mem_entry *e, const struct path_target *t, u32 need,
				u32 pd, u64 *addr)
{
	u32 access = __atomic_load_n(&e->access, __ATOMIC_ACQUIRE);
	u32 flags = __atomic_load_n(&e->flags, __ATOMIC_ACQUIRE);
	u64 iova = __atomic_load_n(&e->iova, __ATOMIC_ACQUIRE);
	u64 length = __atomic_load_n(&e->length, __ATOMIC_ACQUIRE);

	if ((access & need) == 0 || __atomic_load_n(&e->pd, __ATOMIC_ACQUIRE) != pd ||
	    (flags & (MEM_CONTIGUOUS | MEM_AWAY | MEM_ON_DEMAND)) != MEM_CONTIGUOUS)
		return false;
	if ((flags & MEM_WINDOW_TYPE2) != 0 &&
	    __atomic_load_n(&e->qpn, __ATOMIC_ACQUIRE) != t->dqpn)
		return false;
	if (t->va < iova || t->va - iova > length || t->length > length - (t->va - iova))
		return false;
	*addr = __atomic_load_n(&e->addr, __ATOMIC_ACQUIRE) + (t->va - iova);
	return true;
}

/* Tells whether the entry is that of `qpn`, connected to `peer`. */
static bool direct_qp_is(const struct board_qp *q, u32 qpn, u32 peer)
{
	return __atomic_load_n(&q->qpn, __ATOMIC_ACQUIRE) == qpn &&
	       __atomic_load_n(&q->peer_qpn, __ATOMIC_ACQUIRE) == peer;
}

static inline bool direct_is_receiving(u32 word)
{
	u32 state = word & 0xf;

	return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD ||
	       state == IBV_QPS_SQE;
}

static bool direct_qp_allows(const struct board_qp *q, u32 word, const struct path_target *t,
			     u32 need)
{
	return board_qp_is_type(word, t->type) && direct_is_receiving(word) &&
	       (word >> 8 & need) != 0 && direct_qp_is(q, t->dqpn, t->sqpn);
}

const struct board_qp *link_find_qp(const struct board *b, u32 qpn)
{
	u32 count = board_shown_count(&b->slot_count, BOARD_SLOTS);

	for (u32 i = 0; i < count; i++)
		if (b->slots[i] == qpn >> NODE_INDEX_BITS)
			return &b->qps[i * BOARD_QPS_PER_SLOT + qpn % BOARD_QPS_PER_SLOT];
	return NULL;
}

bool link_peer_has_qp(const struct shm_link *l, u32 qpn, u32 type)
{
	const struct board_qp *q = link_find_qp(l->board, qpn);

	u32 word;

	if (q == NULL || __atomic_load_n(&q->qpn, __ATOMIC_RELAXED) != qpn)
		return false;
	word = __atomic_load_n(&q->word, __ATOMIC_ACQUIRE);
	return type != 0 ? board_qp_is_type(word, type) : (word & BOARD_QP_EXISTS) != 0;
}

/* Raises a free hazard of this process' board: from here on the owner of key and queue pair waits
 * for it before it revokes them. *generation (out) is that of the owner's board. NULL if all
 * hazards are in use. */
static inline struct board_hazard *hazard_raise(const struct shm_link *l, u32 key_index, u32 qpn,
						enum hazard_kind kind, u64 *generation)
{
	struct board *b = l->shm->cfg.board;
	u64 word = board_hazard_word(key_index, qpn, kind);

	for (u32 i = 0; i < BOARD_HAZARDS; i++) {
		u64 nobody = 0;

		if (__atomic_load_n(&b->hazards[i].word, __ATOMIC_RELAXED) != 0)
			continue;
		/* A. It is in one order with the load below and with B; on a processor where all
		 * locked instructions are, it needs no fence of its own. */
		if (!__atomic_compare_exchange_n(&b->hazards[i].word, &nobody, word, false,
						 __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
			continue;
		if (unlikely(i >= __atomic_load_n(&b->hazard_high, __ATOMIC_RELAXED))) {
			__atomic_store_n(&b->hazard_high, i + 1, __ATOMIC_RELEASE);
			__atomic_thread_fence(__ATOMIC_SEQ_CST); /* likewise */
		}
		/* Pairs with board_change. */
		*generation = __atomic_load_n(&l->board->generation, __ATOMIC_SEQ_CST);
		return &b->hazards[i];
	}
	return NULL;
}

/* Lowers it after `done` operations under it. */
static inline void hazard_lower(struct board_hazard *h, u32 done)
{
	__atomic_store_n(&h->done, h->done + done, __ATOMIC_RELAXED);
	__atomic_store_n(&h->word, 0, __ATOMIC_RELEASE); /* pairs with drain_busy */
}

static int direct_copy_process(struct shm_link *l, const struct path_target *t, u64 addr,
			       const struct iovec *iov)
{
	struct iovec there = { (void *)(uintptr_t)addr, t->length };
	int err = t->write ? space_write(l->space_fd, addr, t->length, iov)
			   : space_read(l->space_fd, &l->owner, &there, 1, iov);

	if (err == -EIO)
		return -EFAULT; /* the peer's memory is gone */
	return err == 0 ? 0 : -EOPNOTSUPP;
}

/* Copies where the target's memory is mapped here, at `there`. */
static int direct_copy_here(const struct path_target *t, u8 *there, const struct iovec *iov,
			    int iovcnt)
{
	int err = 0;

	for (int i = 0; i < iovcnt && err == 0; i++) {
		if (t->write)
			err = mem_copy_ordered(there, iov[i].iov_base, iov[i].iov_len);
		else
			err = fault_copy(iov[i].iov_base, there, iov[i].iov_len);
		there += iov[i].iov_len;
	}
	/* as packets the operation shows whose memory is gone */
	return likely(err == 0) ? 0 : -EOPNOTSUPP;
}

/* The place of an operation: an address of the target, and one here if it is mapped. Valid for this
 * generation of the target's board. */
struct direct_place {
	u64 addr;
	u8 *here;
	bool adopted; /* it lies in the target's memory file, and may be mapped here soon */
	u32 given_up; /* of the target's board, before the hazard */
	u64 generation;
} OWNED_BY(the caller);

/* Judges by the target's board. Returns its entry of the key, or NULL. The fields beside a queue
 * pair's word change only while the word refuses access. */
static const struct mem_entry *direct_judge(const struct shm_link *l, const struct path_target *t,
					    u32 need, u64 *addr)
{
	const struct mem_entry *e = &l->board->keys[t->rkey >> MEM_TAG_BITS];
	const struct board_qp *q = link_find_qp(l->board, t->dqpn);
	u32 word;

	if (__atomic_load_n(&e->key, __ATOMIC_ACQUIRE) != t->rkey || q == NULL)
		return NULL; /* pairs with mem_register */
	word = __atomic_load_n(&q->word, __ATOMIC_ACQUIRE); /* pairs with soft_publish */
	if (!direct_qp_allows(q, word, t, need) ||
	    !direct_entry_allows(e, t, need, __atomic_load_n(&q->pd, __ATOMIC_ACQUIRE), addr))
		return NULL;
	return __atomic_load_n(&q->word, __ATOMIC_RELAXED) == word ? e : NULL;
}

static u8 *direct_find(struct shm_link *l, const struct mem_entry *e, u64 addr, u64 length,
		       bool *adopted)
{
	u64 shared = __atomic_load_n(&e->shared, __ATOMIC_RELAXED);

	*adopted = shared != 0;
	if (unlikely(l->self))
		return (u8 *)(uintptr_t)addr;
	if (unlikely(shared == 0))
		return NULL;
	return reach_find(l, shared + (addr - e->addr), length, shared + e->length);
}

static bool direct_look(struct shm_link *l, const struct path_target *t, u32 need,
			struct direct_place *place)
{
	const struct mem_entry *e;

	/* Pairs with board_change. */
	place->generation = __atomic_load_n(&l->board->generation, __ATOMIC_ACQUIRE);
	place->given_up = __atomic_load_n(&l->board->given_up, __ATOMIC_ACQUIRE);
	e = direct_judge(l, t, need, &place->addr);
	if (e != NULL)
		place->here = direct_find(l, e, place->addr, t->length, &place->adopted);
	return e != NULL;
}

/* Tells whether the place is still valid. `now` is the board's generation. */
static bool direct_holds(struct shm_link *l, const struct path_target *t, u32 need,
			 const struct direct_place *place, u64 now)
{
	struct direct_place again;

	return likely(now == place->generation) ||
	       (direct_look(l, t, need, &again) && again.addr == place->addr &&
		again.here == place->here);
}

static enum hazard_kind direct_kind(const struct shm_link *l, const struct path_target *t,
				    const struct direct_place *place)
{
	if (!t->write)
		return HAZARD_READS;
	return place->here != NULL && !l->self ? HAZARD_STORES : HAZARD_WRITES;
}

/* Tells whether the place is to be copied to or from. If it is not mapped the kernel has to be
 * permitted to, and faster than the peer's engine. */
static bool direct_is_taken(struct shm_link *l, const struct path_target *t, u32 need,
			    const struct direct_place *place, int *err)
{
	if (likely(place->here != NULL))
		return true;
	*err = -EOPNOTSUPP;
	if (l->space_fd < 0 || need == IBV_ACCESS_REMOTE_ATOMIC)
		return false;
	if (place->adopted) /* a copy keeps the queue idle for the map */
		return true;
	*err = -EBUSY;
	return !drive_is_faster(l, t);
}

/* Raises the hazard and judges again what was judged before it. NULL: refused, *err says why, and
 * the hazard is lowered. */
static struct board_hazard *direct_enter(struct shm_link *l, const struct path_target *t, u32 need,
					 struct direct_place *place, int *err)
{
	struct board_hazard *h;
	u64 now;

	*err = -EACCES;
	if (!direct_look(l, t, need, place))
		return NULL;
	if (unlikely(!direct_is_taken(l, t, need, place, err)))
		return NULL;
	h = hazard_raise(l, t->rkey >> MEM_TAG_BITS, t->dqpn, direct_kind(l, t, place), &now);
	if (h == NULL) {
		*err = -EOPNOTSUPP;
	} else if (unlikely(!direct_holds(l, t, need, place, now))) {
		hazard_lower(h, 0);
		*err = -EACCES;
		h = NULL;
	}
	return h;
}

static int direct_refuse(struct shm_link *l, int err)
{
	board_count(l->shm->cfg.board, err == -EBUSY ? COUNT_DIRECT_LEFT : COUNT_DIRECT_REFUSED);
	return err;
}

/* Tells whether an operation that is done counts although access was revoked meanwhile: it does if
 * the owner still waits for its hazard, or has waited for all. By another way it would be done once
 * more. Behind a locked instruction. Pairs with drain_give_up. */
static bool direct_counts(const struct shm_link *l, u32 given_up)
{
	return __atomic_load_n(&l->board->given_up, __ATOMIC_SEQ_CST) == given_up;
}

/* The same behind stores, where the board has changed. */
static NOINLINE bool direct_stands(const struct shm_link *l, u32 given_up)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* pairs with drain_give_up */
	return direct_counts(l, given_up);
}

/* Tells whether what was done at `place` counts. If the owner has stopped waiting for it, and
 * access was revoked, the memory may lie elsewhere. A READ may be done again. */
static bool direct_is_done(struct shm_link *l, const struct path_target *t, u32 need,
			   const struct direct_place *place)
{
	u64 now = __atomic_load_n(&l->board->generation, __ATOMIC_ACQUIRE);

	return likely(now == place->generation) ||
	       (t->write && direct_stands(l, place->given_up)) ||
	       direct_holds(l, t, need, place, now);
}

/* Ends an operation that was done, or failed with `err`. */
static int direct_leave(struct shm_link *l, const struct path_target *t, u32 need,
			const struct direct_place *place, struct board_hazard *h, int err)
{
	if (err == 0 && !direct_is_done(l, t, need, place))
		err = -EACCES;
	hazard_lower(h, err == 0);
	return likely(err == 0) ? 0 : direct_refuse(l, err);
}

static int direct_copy(struct shm_link *l, const struct path_target *t, const struct iovec *iov,
		       int iovcnt)
{
	u32 need = t->write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
	struct direct_place place;
	int err;
	struct board_hazard *h = direct_enter(l, t, need, &place, &err);

	if (unlikely(h == NULL))
		return direct_refuse(l, err);
	err = place.here != NULL ? direct_copy_here(t, place.here, iov, iovcnt) :
				   direct_copy_process(l, t, place.addr, iov);
	return direct_leave(l, t, need, &place, h, err);
}

/* False: it is not mapped any more (on the self path). */
static bool direct_change_here(struct path_atomic *a, u64 *here)
{
	return a->swap ? fault_compare_swap(here, a->compare, a->operand, &a->before)
		       : fault_fetch_add(here, a->operand, &a->before);
}

static int direct_change(struct shm_link *l, const struct path_target *t, struct path_atomic *a)
{
	struct direct_place place;
	int err;
	struct board_hazard *h = direct_enter(l, t, IBV_ACCESS_REMOTE_ATOMIC, &place, &err);

	if (unlikely(h == NULL))
		return direct_refuse(l, err);
	err = place.here != NULL && ((uintptr_t)place.here & 7) == 0 &&
			      direct_change_here(a, (u64 *)(void *)place.here)
		      ? 0
		      : -EOPNOTSUPP;
	if (err == 0 && direct_counts(l, place.given_up)) {
		hazard_lower(h, 1);
		return 0;
	}
	return direct_leave(l, t, IBV_ACCESS_REMOTE_ATOMIC, &place, h, err);
}

/* ---- the ends of a connection ---- */

/* The fields are of one connection, for the generation changes with each. */
static bool direct_find_end(const struct shm_link *l, u32 sqpn, u32 dqpn, struct path_end *out)
{
	const struct board *b = l->board;
	u64 generation = __atomic_load_n(&b->generation, __ATOMIC_ACQUIRE);
	const struct board_qp *q = link_find_qp(b, dqpn);
	u32 word = q == NULL ? 0 : __atomic_load_n(&q->word, __ATOMIC_ACQUIRE);
	struct path_end end;

	if ((word & BOARD_QP_EXISTS) == 0 || !direct_is_receiving(word) ||
	    !direct_qp_is(q, dqpn, sqpn))
		return false;
	end.mtu = __atomic_load_n(&q->mtu, __ATOMIC_ACQUIRE);
	end.psn = __atomic_load_n(&b->firsts[q - b->qps].rq, __ATOMIC_ACQUIRE);
	if (__atomic_load_n(&b->generation, __ATOMIC_ACQUIRE) != generation)
		return false;
	*out = end;
	return true;
}

bool link_peer_end(struct path_dest *d, u32 sqpn, u32 dqpn, struct path_end *out)
{
	struct shm_link *l = link_of(d);

	if (link_state(l) == LINK_ALIAS)
		l = l->real;
	return link_state(l) == LINK_UP && direct_find_end(l, sqpn, dqpn, out);
}

/* Tells whether an RC queue pair of this process and its peer agree on path MTU and PSN. */
static bool direct_ends_agree(const struct shm_link *l, u32 sqpn, u32 dqpn)
{
	const struct board *ours = l->shm->cfg.board;
	const struct board_qp *q = link_find_qp(ours, sqpn);
	struct path_end end;
	u8 mtu;

	if (q == NULL || !direct_find_end(l, sqpn, dqpn, &end))
		return false;
	mtu = __atomic_load_n(&q->mtu, __ATOMIC_RELAXED);
	return mtu == end.mtu &&
	       __atomic_load_n(&ours->firsts[q - ours->qps].sq, __ATOMIC_RELAXED) == end.psn;
}

/* ---- several WRITEs, by the grant of the last one ---- */

/* Looks up on the board where `w` goes, and grants all that its key names. Each field of the peer's
 * is read once. False: not allowed, or not mapped here; the grant stays that of its own key. */
static NOINLINE bool grant_renew(struct shm_link *l, u32 sqpn, u32 dqpn, struct path_grant *g,
				 const struct path_write *w, u64 generation)
{
	struct path_target t = { .sqpn = sqpn,
				 .dqpn = dqpn,
				 .rkey = w->rkey,
				 .va = w->va,
				 .length = w->length,
				 .write = true,
				 .type = IBV_QPT_RC };
	struct path_grant found = { .generation = generation, .rkey = w->rkey };
	const struct mem_entry *e;
	u64 addr, shared;

	found.given_up = __atomic_load_n(&l->board->given_up, __ATOMIC_ACQUIRE);
	e = direct_judge(l, &t, IBV_ACCESS_REMOTE_WRITE, &addr);
	if (e == NULL || !direct_ends_agree(l, sqpn, dqpn))
		return false;
	found.va = __atomic_load_n(&e->iova, __ATOMIC_RELAXED);
	found.length = __atomic_load_n(&e->length, __ATOMIC_RELAXED);
	shared = __atomic_load_n(&e->shared, __ATOMIC_RELAXED);
	if (l->self)
		found.here = (u8 *)(uintptr_t)__atomic_load_n(&e->addr, __ATOMIC_RELAXED);
	else if (shared != 0 && found.length <= ADOPT_SLOT_BYTES)
		found.here = reach_find(l, shared, found.length, shared + found.length);
	if (found.here == NULL)
		return false;
	*g = found;
	return true;
}

static inline bool grant_holds(const struct path_grant *g, const struct path_write *w, u64 *offset)
{
	*offset = w->va - g->va;
	return w->rkey == g->rkey && w->length <= g->length && *offset <= g->length - w->length;
}

/* False: source or target is not mapped any more. */
static inline bool grant_store(u8 *to, const void *from, u32 length)
{
	if (likely(length == 8 && ((uintptr_t)to & 7) == 0))
		/* Releases the stores before; pairs with a peer that polls on it. */
		return fault_copy_u64(to, from);
	return mem_copy_ordered(to, from, length) == 0;
}

/* Does the first WRITEs, up to one with another key. shm_drain takes each hazard of the link to
 * this process itself for the worst kind. */
static inline u32 grant_use(struct shm_link *l, u32 sqpn, u32 dqpn, struct path_grant *g,
			    const struct path_write *w, u32 n)
{
	u64 generation, offset;
	struct board_hazard *h;
	u32 done = 0;

	h = hazard_raise(l, w->rkey >> MEM_TAG_BITS, dqpn, HAZARD_STORES, &generation);
	if (unlikely(h == NULL))
		return 0;
	if (likely(g->generation == generation && g->rkey == w->rkey) ||
	    grant_renew(l, sqpn, dqpn, g, w, generation))
		while (done < n && grant_holds(g, &w[done], &offset) &&
		       likely(grant_store(g->here + offset, w[done].from, w[done].length)))
			done++;
	/* As direct_leave. link_direct does again what counts as not done. */
	if (unlikely(__atomic_load_n(&l->board->generation, __ATOMIC_ACQUIRE) != generation) &&
	    done != 0 && !direct_stands(l, g->given_up))
		done = 0;
	hazard_lower(h, done);
	return done;
}

u32 link_writes(struct path_dest *d, u32 sqpn, u32 dqpn, struct path_grant *g,
		const struct path_write *w, u32 n)
{
	struct shm_link *l = link_of(d);
	u32 done = 0, more;

	if (link_state(l) == LINK_ALIAS)
		l = l->real;
	if (unlikely(!link_is_plain(l) || !l->direct))
		return 0;
	do {
		more = grant_use(l, sqpn, dqpn, g, w + done, n - done);
		done += more;
	} while (unlikely(more != 0 && done < n));
	return done;
}

/* ---- several WRITEs that adjoin, where nothing is mapped ---- */

/* Lists the first WRITEs whose targets adjoin: *length bytes. */
static u32 join_list(const struct path_write *w, u32 n, struct iovec list[SPACE_JOINED],
		     u64 *length)
{
	u32 count = 0;

	for (*length = 0; count < MIN(n, (u32)SPACE_JOINED); count++) {
		if (w[count].rkey != w->rkey || w[count].va != w->va + *length ||
		    w[count].length > JOIN_LONGEST)
			break;
		list[count] = (struct iovec){ (void *)(uintptr_t)w[count].from, w[count].length };
		*length += w[count].length;
	}
	return count;
}

/* As direct_is_taken. Together they cost little more than the first of them alone. */
static bool join_is_taken(struct shm_link *l, struct path_target t, const struct path_write *w,
			  const struct direct_place *place)
{
	if (place->here != NULL)
		return false;
	t.length = w->length;
	return place->adopted || !drive_is_faster(l, &t);
}

/* Copies while a hazard is up. As direct_leave. */
static u32 join_copy(struct shm_link *l, const struct path_target *t,
		     const struct direct_place *place, const struct iovec *list, u32 n)
{
	const u32 need = IBV_ACCESS_REMOTE_WRITE;
	struct board_hazard *h;
	u32 done = 0;
	u64 now;

	h = hazard_raise(l, t->rkey >> MEM_TAG_BITS, t->dqpn, HAZARD_WRITES, &now);
	if (h == NULL)
		return 0;
	if (direct_holds(l, t, need, place, now) && direct_ends_agree(l, t->sqpn, t->dqpn))
		done = space_write_each(l->space_fd, place->addr, list, n);
	if (done != 0 && !direct_is_done(l, t, need, place))
		done = 0;
	hazard_lower(h, done);
	return done;
}

u32 link_writes_joined(struct path_dest *d, u32 sqpn, u32 dqpn, const struct path_write *w, u32 n)
{
	struct shm_link *l = link_real(d);
	struct path_target t = { .sqpn = sqpn,
				 .dqpn = dqpn,
				 .rkey = w->rkey,
				 .va = w->va,
				 .write = true,
				 .type = IBV_QPT_RC };
	struct iovec list[SPACE_JOINED];
	struct direct_place place;
	u32 done;

	if (!link_is_plain(l) || !l->direct || l->self || l->space_fd < 0)
		return 0;
	n = join_list(w, n, list, &t.length);
	/* all of the targets are judged as one */
	if (n < 2 || !direct_look(l, &t, IBV_ACCESS_REMOTE_WRITE, &place) ||
	    !join_is_taken(l, t, w, &place))
		return 0;
	done = join_copy(l, &t, &place, list, n);
	if (done > 1 && !place.adopted)
		drive_joined(l, done - 1);
	return done;
}

/* During a capture it goes as a packet, which can be recorded. */
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
	if (link_state(l) != LINK_UP || !l->direct)
		return -EOPNOTSUPP;
	if (likely(!link_is_watched(l)))
		return direct_copy(l, t, iov, iovcnt);
	tap_begin(l, t, &tap);
	err = direct_copy(l, t, iov, iovcnt);
	tap_end(l, &tap, iov, iovcnt, err == 0);
	return err;
}

/* Tells whether direct access reaches all of the peer's memory. */
static bool direct_is_whole(const struct shm_link *l)
{
	return link_state(l) == LINK_UP && l->direct && (l->self || l->space_fd >= 0);
}

/* A region in the peer's memory file is mapped already, or soon: the first operation asks for it.
 */
bool link_reaches(struct path_dest *d, const struct path_target *t)
{
	u32 need = t->write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
	struct shm_link *l = link_of(d);
	const struct mem_entry *e;
	u64 addr;

	if (link_state(l) == LINK_ALIAS)
		l = l->real;
	if (likely(direct_is_whole(l)))
		return true;
	if (link_state(l) != LINK_UP || !l->direct ||
	    __atomic_load_n(&l->reach_none, __ATOMIC_RELAXED))
		return false;
	e = direct_judge(l, t, need, &addr);
	return e != NULL && __atomic_load_n(&e->shared, __ATOMIC_RELAXED) != 0;
}

bool link_pullable(struct path_dest *d)
{
	struct shm_link *l = link_of(d);

	return direct_is_whole(link_state(l) == LINK_ALIAS ? l->real : l);
}

/* Pulls from memory that is mapped here. False: it is gone, or the memory of this process is. */
static bool direct_pull_here(const struct iovec *theirs, int n, const struct iovec *ours)
{
	size_t done = 0;

	for (int i = 0; i < n; i++)
		for (size_t from = 0; from < theirs[i].iov_len;) {
			size_t piece = MIN(theirs[i].iov_len - from, ours->iov_len - done);

			if (fault_copy((u8 *)ours->iov_base + done, (u8 *)theirs[i].iov_base + from,
				       piece) != 0)
				return false;
			from += piece;
			done += piece;
			if (done == ours->iov_len) {
				ours++;
				done = 0;
			}
		}
	return true;
}

/* Finds where the sender's pieces lie here. False: one of them is not mapped. */
static bool direct_pull_is_mapped(struct shm_link *l, const struct iovec *theirs, int n,
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

/* While the board shows the sender's queue pair in a sending state, its buffers hold the posted
 * message. */
static bool direct_pull_is_valid(const struct shm_link *l, u32 sqpn, u32 dqpn)
{
	const struct board_qp *q = link_find_qp(l->board, sqpn);
	u32 word = q == NULL ? 0 : __atomic_load_n(&q->word, __ATOMIC_ACQUIRE);
	u32 state = word & 0xf;

	return (word & BOARD_QP_EXISTS) != 0 && direct_qp_is(q, sqpn, dqpn) &&
	       (state == IBV_QPS_RTS || state == IBV_QPS_SQD);
}

/* Tells whether the memory has left the sender's file since it was found here. */
static bool direct_pull_is_moved(struct shm_link *l, const struct iovec *theirs, int n,
			  const struct iovec here[PULL_PIECES], u64 generation)
{
	struct iovec again[PULL_PIECES];

	if (likely(__atomic_load_n(&l->board->generation, __ATOMIC_ACQUIRE) == generation))
		return false;
	if (!direct_pull_is_mapped(l, theirs, n, again))
		return true;
	for (int i = 0; i < n; i++)
		if (again[i].iov_base != here[i].iov_base)
			return true;
	return false;
}

/* The hazard makes the sender wait (shm_drain) before its queue pair is destroyed and its buffers
 * return to the application: the receive buffer gets the posted message. */
static int direct_pull_checked_copy(struct shm_link *l, u32 sqpn, u32 dqpn,
				    const struct iovec *theirs, int n, const struct iovec *ours,
				    u64 generation)
{
	struct iovec here[PULL_PIECES];
	bool mapped, done = true;

	if (!direct_pull_is_valid(l, sqpn, dqpn))
		return -EPIPE;
	mapped = !l->self && direct_pull_is_mapped(l, theirs, n, here);
	if (l->self || mapped)
		done = direct_pull_here(mapped ? here : theirs, n, ours);
	if (!l->self && (!mapped || direct_pull_is_moved(l, theirs, n, here, generation)))
		done = space_read(l->space_fd, &l->owner, theirs, n, ours) == 0;
	/* Judged again: a queue pair that fails by itself does not wait, and its flush completions
	 * come later than the word (finish_both). */
	if (!direct_pull_is_valid(l, sqpn, dqpn))
		return -EPIPE;
	return done ? 0 : -EOPNOTSUPP;
}

int link_pull(struct path_dest *from, u32 sqpn, u32 dqpn, const struct iovec *theirs, int n,
	      const struct iovec *ours, int m, u64 bytes)
{
	struct shm_link *l = link_of(from);
	struct board_hazard *h;
	u64 generation;
	int err;

	if (!l->direct || (!l->self && l->space_fd < 0))
		return -EOPNOTSUPP;
	h = hazard_raise(l, NO_KEY, sqpn, HAZARD_READS, &generation);
	if (h == NULL)
		return -EOPNOTSUPP;
	err = direct_pull_checked_copy(l, sqpn, dqpn, theirs, n, ours, generation);
	hazard_lower(h, 0);
	return err;
}

void shm_expect(struct shm *shm, struct path_dest *d)
{
	struct shm_link *l = link_of(d);

	if (d->path != &shm->path)
		return;
	lock_acquire(&shm->lock);
	link_set_expected(l);
	if (link_state(l) == LINK_ALIAS)
		link_set_expected(l->real);
	lock_release(&shm->lock);
}

/* Tells whether a key of this process lets peers do what the hazard says. The entry of a key that
 * is being revoked keeps its content until the wait has ended. */
static bool drain_is_permitted(const struct board *ours, u64 word)
{
	u32 key = board_hazard_key(word);

	if (board_hazard_kind(word) == HAZARD_READS)
		return true;
	return key < MEM_MAX_KEYS && (__atomic_load_n(&ours->keys[key].access, __ATOMIC_RELAXED) &
				      (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
}

/* Tells whether a hazard names the key or the queue pair of this process. */
static bool drain_concerns(const struct board *ours, u64 word, u32 key_index, u32 qpn)
{
	u32 named = board_hazard_qpn(word);

	return word != 0 && drain_is_permitted(ours, word) &&
	       (named == qpn ||
		((key_index == MEM_EVERY_KEY || board_hazard_key(word) == key_index) &&
		 link_find_qp(ours, named) != NULL));
}

/* A wait for the peers' hazards that name the key or the queue pair. */
struct drain {
	struct shm *shm;
	u32 key_index, qpn;
	u64 began; /* clock: when the first wait began; 0: no wait yet */
	enum shm_left left;
	/* the hazards of the link at hand that are waited for; 0: none, or it has ended */
	u64 words[BOARD_HAZARDS];
} OWNED_BY(the caller);

/* Notes the peer's hazards that name the key or queue pair. One that is raised later comes too late
 * for what is to end, so a peer that raises hazards without end delays nobody. */
static void drain_note(struct drain *d, const struct shm_link *l)
{
	u32 high = board_shown_count(&l->board->hazard_high, BOARD_HAZARDS);

	memset(d->words, 0, sizeof(d->words));
	for (u32 i = 0; i < high; i++) {
		/* pairs with hazard_lower */
		u64 word = __atomic_load_n(&l->board->hazards[i].word, __ATOMIC_ACQUIRE);

		if (drain_concerns(d->shm->cfg.board, word, d->key_index, d->qpn))
			d->words[i] = word;
	}
}

/* Finds the worst of the noted hazards that have not changed. False: there is none. */
static bool drain_busy(struct drain *d, const struct shm_link *l, enum hazard_kind *worst)
{
	bool busy = false;

	*worst = HAZARD_READS;
	for (u32 i = 0; i < BOARD_HAZARDS; i++) {
		if (d->words[i] == 0)
			continue;
		/* pairs with hazard_lower */
		if (__atomic_load_n(&l->board->hazards[i].word, __ATOMIC_ACQUIRE) != d->words[i]) {
			d->words[i] = 0;
			continue;
		}
		busy = true;
		*worst = MAX(*worst, board_hazard_kind(d->words[i]));
	}
	/* The own threads store at the own addresses. */
	if (l->self && busy)
		*worst = HAZARD_WRITES;
	return busy;
}

static void drain_give_up(struct drain *d, const struct shm_link *l, enum hazard_kind worst)
{
	static const enum shm_left left[] = { SHM_LEFT_NOTHING, SHM_LEFT_STORES, SHM_LEFT_WRITES };

	d->left = MAX(d->left, left[worst]);
	/* Before the owner takes or moves anything: pairs with direct_counts. */
	__atomic_fetch_add(&d->shm->cfg.board->given_up, 1, __ATOMIC_SEQ_CST);
	board_count(d->shm->cfg.board, COUNT_DIRECT_HELD);
	log_info("shm", "process %d is stopped inside an operation on our memory", (int)l->pid);
}

/* Tells whether the wait has reached its limit. */
static bool drain_is_over(struct drain *d, const struct shm_link *l, enum hazard_kind worst,
			  u64 *look)
{
	u64 now = clock_now_ns();

	if (d->began == 0)
		d->began = now;
	if (*look == 0)
		*look = now + DRAIN_LOOK_MS * NS_PER_MS;
	if (now - d->began >
	    (worst == HAZARD_WRITES ? DRAIN_LIMIT_MS : DRAIN_HARMLESS_MS) * NS_PER_MS)
		return true;
	if (now <= *look)
		return false;
	*look = 0;
	return !l->self && space_is_stopped(l->pid);
}

/* Tells whether a queue pair of this process names the peer, or a slot whose owner is not known. */
static bool drain_expects(struct shm *shm, const struct shm_link *l)
{
	bool expects = l->self || link_is_expected(l);

	if (expects)
		return true;
	lock_acquire(&shm->lock);
	for (u32 i = 0; i < NODE_SLOTS && !expects; i++)
		expects = shm->slots[i] != NULL && link_is_expected(shm->slots[i]) &&
			  (link_state(shm->slots[i]) == LINK_ASKING ||
			   link_state(shm->slots[i]) == LINK_ABSENT);
	lock_release(&shm->lock);
	return expects;
}

/* A peer that this process cannot reach may still reach this process. */
static void drain_link(struct shm_link *l, void *arg)
{
	struct drain *d = arg;
	enum hazard_kind worst;
	u64 look = 0;

	drain_note(d, l);
	if (!drain_busy(d, l, &worst) || !drain_expects(d->shm, l))
		return;
	while (drain_busy(d, l, &worst) && link_state(l) == LINK_UP) {
		if (drain_is_over(d, l, worst, &look)) {
			drain_give_up(d, l, worst);
			return;
		}
		sched_yield();
	}
}

u32 shm_stuck(const struct shm *shm)
{
	return __atomic_load_n(&shm->stuck, __ATOMIC_RELAXED);
}

enum shm_left shm_drain(struct shm *shm, u32 key_index, u32 qpn)
{
	struct drain d = { .shm = shm, .key_index = key_index, .qpn = qpn };

	board_change(shm->cfg.board);
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* B */
	shm_each_link(shm, drain_link, &d);
	if (d.left == SHM_LEFT_STORES)
		__atomic_fetch_add(&shm->stuck, 1, __ATOMIC_RELAXED);
	return d.left;
}
