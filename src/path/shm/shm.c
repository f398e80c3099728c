/* shm.c: the path's table: destinations, sending, receiving, death.
 * In: packets of the engine, slots that peers filled    Out: slots, calls of path_user
 * Runs: any thread; receiving is one thread at a time
 * Locks: poll_lock, then lock; tx.lock of a link is a leaf
 */
#include "path/shm/reach.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limit.h"
#include "base/log.h"

enum { SHM_ASK_AGAIN_MS = 20, SHM_RUN = 16 /* brief packets that are received together */ };

static void shm_dest_hold(struct path_dest *d)
{
	struct shm_link *l = link_of(d);

	lock_acquire(&l->shm->lock);
	l->refs++;
	lock_release(&l->shm->lock);
}

static void shm_dest_put(struct path_dest *d)
{
	struct shm_link *l = link_of(d);
	struct shm *shm = l->shm;
	bool over;

	lock_acquire(&shm->lock);
	over = --l->refs == 0 && link_state(link_real(d)) == LINK_DEAD;
	lock_release(&shm->lock);
	if (over) /* no other event would wake the thread that buries it and frees its maps */
		shm->cfg.kick(shm->cfg.kick_arg);
}

void shm_ask(struct shm *shm, struct shm_link *l)
{
	if (list_empty(&l->node))
		list_push_back(&shm->asking, &l->node);
}

/* What processes hand to each other has no address, and is on no wire. */
static bool shm_is_handed(const struct path_av *av)
{
	static const u8 none[16];

	return memcmp(av->dgid, none, sizeof(none)) == 0;
}

/* As shm_slot_is_wire_only; `l`: the slot's link, or NULL. Until its owner is known the directory
 * is asked, for the slot may pass to another process. */
static bool shm_is_by_wire(const struct shm *shm, const struct shm_link *l, u32 slot)
{
	if (l != NULL && link_is_settled(l))
		return __atomic_load_n(&l->wire_only, __ATOMIC_RELAXED);
	return link_slot_is_wire_only(shm, slot);
}

bool shm_slot_is_wire_only(struct shm *shm, u32 slot)
{
	bool wire_only;

	lock_acquire(&shm->lock);
	wire_only = shm_is_by_wire(shm, shm->slots[slot % NODE_SLOTS], slot);
	lock_release(&shm->lock);
	return wire_only;
}

/* The slot has no link, or one whose owner is not known, so that the next one may have other paths,
 * or one whose owner has this path for what is handed only. */
static NOINLINE struct shm_link *shm_look(struct shm *shm, const struct path_av *av, u32 slot,
					  bool *fresh) REQUIRES(shm->lock)
{
	struct shm_link **at = &shm->slots[slot % NODE_SLOTS];

	if (shm_is_by_wire(shm, *at, slot) && !shm_is_handed(av))
		return NULL;
	if (*at == NULL) {
		*at = link_create(shm, slot);
		*fresh = *at != NULL;
		if (*fresh)
			shm_ask(shm, *at);
	}
	return *at;
}

static struct path_dest *shm_dest_get(struct path *p, const struct path_av *av, u32 qpn)
{
	struct shm *shm = container_of(p, struct shm, path);
	u32 slot = qpn >> NODE_INDEX_BITS;
	struct shm_link *l;
	bool fresh = false;

	lock_acquire(&shm->lock);
	l = shm->slots[slot % NODE_SLOTS];
	if (unlikely(l == NULL || __atomic_load_n(&l->must_look, __ATOMIC_RELAXED)))
		l = shm_look(shm, av, slot, &fresh);
	if (l != NULL)
		l->refs++;
	lock_release(&shm->lock);
	if (fresh)
		shm->cfg.kick(shm->cfg.kick_arg);
	return l == NULL ? NULL : &l->dest;
}

static struct path_dest *shm_dest_nowhere(struct path *p)
{
	struct shm *shm = container_of(p, struct shm, path);

	shm_dest_hold(&shm->nowhere->dest);
	return &shm->nowhere->dest;
}

/* Takes the link off the list of those to be resolved, and resolves it unless another thread has.
 * As path_ops.resolve. */
static int shm_resolve_one(struct shm_link *l)
{
	struct shm *shm = l->shm;
	int err = 0;

	lock_acquire(&shm->resolve_lock);
	lock_acquire(&shm->lock);
	list_remove(&l->node);
	lock_release(&shm->lock);
	if (link_state(l) == LINK_ASKING || link_state(l) == LINK_ABSENT) {
		err = link_resolve(l);
		if (err != 0) {
			link_set_state(l, LINK_ABSENT);
			if (limit_refuses(err))
				node_say_no_pair(err);
			else if (err != -ENOENT && err != -EAGAIN)
				log_warn("shm", "slot %u: no link: %s", l->slot, strerror(-err));
		}
	}
	lock_release(&shm->resolve_lock);
	if (limit_refuses(err) || err == -EAGAIN)
		return err;
	return link_state(l) == LINK_ABSENT ? -ENETUNREACH : 0;
}

static int shm_dest_resolve(struct path_dest *d)
{
	struct shm_link *l = link_of(d);
	const struct shm_link *end = link_real(d);
	int err;

	if (link_state(end) == LINK_DEAD) /* it waits to be buried */
		return end->refusal;
	err = link_state(l) == LINK_UP || link_state(l) == LINK_ALIAS ? 0 : shm_resolve_one(l);
	if (err == 0)
		reach_want_shown(link_real(d));
	return err;
}

static bool shm_dest_same(const struct path_dest *d, const struct path_dest *from)
{
	const struct shm_link *l = container_of(d, const struct shm_link, dest);

	return d == from || (link_state(l) == LINK_ALIAS && &l->real->dest == from);
}

/* The slot had no owner at the last request: requests again, at intervals. */
static int shm_send_absent(struct shm_link *l)
{
	struct shm *shm = l->shm;

	if (clock_now_ns() - __atomic_load_n(&l->asked_ns, __ATOMIC_RELAXED) <
	    SHM_ASK_AGAIN_MS * NS_PER_MS)
		return -ENETUNREACH;
	lock_acquire(&shm->lock);
	__atomic_store_n(&l->asked_ns, clock_now_ns(), __ATOMIC_RELAXED);
	shm_ask(shm, l);
	lock_release(&shm->lock);
	shm->cfg.kick(shm->cfg.kick_arg);
	return -ENETUNREACH;
}

/* The same for what an XRC target hands on: its sender refuses a request for good where there is
 * nobody, so it waits for the answer. */
static int shm_hand_absent(struct shm_link *l)
{
	struct shm *shm = l->shm;

	if (clock_now_ns() - __atomic_load_n(&l->asked_ns, __ATOMIC_RELAXED) <
	    SHM_ASK_AGAIN_MS * NS_PER_MS)
		return -ENETUNREACH;
	lock_acquire(&shm->lock);
	if (link_state(l) == LINK_ABSENT)
		link_set_state(l, LINK_ASKING);
	shm_ask(shm, l);
	lock_release(&shm->lock);
	shm->cfg.kick(shm->cfg.kick_arg);
	return -EAGAIN;
}

static int shm_send_slow(struct shm_link *l, const struct pkt *p, const struct iovec *iov,
			 int iovcnt)
{
	switch (link_state(l)) {
	case LINK_UP:
		/* what processes hand to each other is on no wire */
		if (p->qp_type == PKT_TYPE_FORWARDED || pkt_is_done(p->qp_type))
			return ring_push(&l->tx, p, iov, iovcnt);
		return tap_push(l, p, iov, iovcnt);
	case LINK_ASKING:
		return -EAGAIN;
	case LINK_ABSENT:
		return p->qp_type == PKT_TYPE_FORWARDED ? shm_hand_absent(l) : shm_send_absent(l);
	case LINK_NOWHERE:
		return -ENETUNREACH;
	default:
		return -EPIPE;
	}
}

static int shm_send(struct path_dest *d, const struct pkt *p, const struct iovec *iov, int iovcnt)
{
	struct shm_link *l = link_real(d);

	if (unlikely(!link_is_plain(l)))
		return shm_send_slow(l, p, iov, iovcnt);
	return ring_push(&l->tx, p, iov, iovcnt);
}

static NOINLINE u32 shm_send_list(struct shm_link *l, const struct pkt_brief *b,
				  const void *const *payload, u32 n)
{
	return ring_push_briefs(&l->tx, b, payload, n);
}

static u32 shm_send_briefs(struct path_dest *d, const struct pkt_brief *b,
			   const void *const *payload, u32 n)
{
	struct shm_link *l = link_real(d);

	if (unlikely(!link_is_plain(l)))
		return 0;
	return n == 1 ? ring_push_brief(&l->tx, b, payload[0]) : shm_send_list(l, b, payload, n);
}

static void shm_flush(struct path_dest *d)
{
	struct shm_link *l = link_real(d);

	if (likely(link_state(l) == LINK_UP))
		link_ring_bell(l);
}

static NOINLINE void shm_publish(struct shm_link *l)
{
	if (unlikely(ring_publish(&l->rx)))
		link_ring_bell(l);
}

static NOINLINE void shm_receive_any(struct shm *shm, struct shm_link *l) REQUIRES(shm->poll_lock)
{
	struct ring_item item;
	int got = ring_peek(&l->rx, &item);

	if (unlikely(got == 0))
		return;
	if (likely(got == 1))
		shm->path.user_ops->receive(shm->path.user, &l->dest, &item.pkt, item.payload);
	else
		board_count(shm->cfg.board, COUNT_RX_MALFORMED);
	ring_consume(&l->rx, &item);
	if (ring_should_publish(&l->rx))
		shm_publish(l);
}

static ALWAYS_INLINE void shm_receive_one(struct shm *shm, struct shm_link *l)
	REQUIRES(shm->poll_lock)
{
	struct pkt_brief brief;

	if (likely(ring_peek_brief(&l->rx, &brief)) &&
	    likely(shm->path.user_ops->receive_brief(shm->path.user, &l->dest, &brief,
						     ring_brief_payload(&l->rx)))) {
		ring_step(&l->rx);
		if (unlikely(ring_should_publish_slots(&l->rx)))
			shm_publish(l);
	} else {
		shm_receive_any(shm, l);
	}
}

/* Receives the brief packets that come next, together. 0: they are left for the other functions. */
static inline int shm_receive_run(struct shm *shm, struct shm_link *l, u32 budget)
	REQUIRES(shm->poll_lock)
{
	struct pkt_brief brief[SHM_RUN];
	const void *payload[SHM_RUN];
	u32 n = ring_peek_run(&l->rx, brief, payload, MIN(budget, (u32)SHM_RUN));

	if (n != 0)
		n = shm->path.user_ops->receive_run(shm->path.user, &l->dest, brief, payload, n);
	for (u32 i = 0; i < n; i++)
		ring_step(&l->rx);
	if (unlikely(ring_should_publish_slots(&l->rx)))
		shm_publish(l);
	return (int)n;
}

/* Receives the packets behind the first. After a run of which the engine takes none, no further run
 * is tried, since each reads all slots. */
static NOINLINE int shm_receive_more(struct shm *shm, struct shm_link *l, int budget)
	REQUIRES(shm->poll_lock)
{
	bool in_runs = true;
	int n = 0;

	do {
		int run = in_runs ? shm_receive_run(shm, l, (u32)(budget - n)) : 0;

		in_runs = run != 0;
		n += run;
		if (run == 0) {
			shm_receive_one(shm, l);
			n++;
		}
	} while (n < budget && !ring_looks_empty(&l->rx));
	return n;
}

static ALWAYS_INLINE int shm_receive(struct shm *shm, struct shm_link *l, int budget)
	REQUIRES(shm->poll_lock)
{
	int n = 1;

	shm_receive_one(shm, l);
	if (unlikely(budget > 1 && !ring_looks_empty(&l->rx)))
		n += shm_receive_more(shm, l, budget - 1);
	if (unlikely(path_batch_owes(&l->dest)))
		shm->path.user_ops->batch_end(shm->path.user, &l->dest, false);
	return n;
}

static void shm_wake_blocked(struct shm *shm, struct path_dest *d)
{
	struct shm_link *l = link_real(d);
	enum link_state state = link_state(l);

	if (state == LINK_ASKING || (state == LINK_UP && !ring_has_room(&l->tx)))
		return;
	shm->path.user_ops->writable(shm->path.user, d);
}

/* What a poll does beside receiving: acknowledgements that wait to travel with another packet, a
 * peer that was to be faster, queue pairs that wait for room. */
static NOINLINE void shm_chores(struct shm *shm, struct shm_link *l, bool idle)
	REQUIRES(shm->poll_lock)
{
	if (idle && path_owes_acks(&l->dest))
		shm->path.user_ops->batch_end(shm->path.user, &l->dest, true);
	if (idle && path_presses(&l->dest))
		drive_look(l);
	for (struct shm_link *a = l; a != NULL; a = a->next_alias)
		if (path_is_awaited(&a->dest))
			shm_wake_blocked(shm, &a->dest);
}

static inline bool shm_has_chores(const struct shm_link *l, bool idle)
{
	if (idle ? path_has_chores(&l->dest) : path_is_awaited(&l->dest))
		return true;
	for (l = l->next_alias; l != NULL; l = l->next_alias)
		if (path_is_awaited(&l->dest))
			return true;
	return false;
}

static ALWAYS_INLINE int shm_poll_link(struct shm *shm, struct shm_link *l, int budget)
	REQUIRES(shm->poll_lock)
{
	int n = 0;

	if (!ring_looks_empty(&l->rx))
		n = shm_receive(shm, l, budget);
	if (unlikely(shm_has_chores(l, n == 0)))
		shm_chores(shm, l, n == 0);
	return n;
}

static void shm_note_cold(struct shm *shm) REQUIRES(shm->poll_lock)
{
	__atomic_store_n(&shm->has_cold, shm->warm_count != shm->count, __ATOMIC_RELAXED);
}

void shm_add_warm(struct shm *shm, struct shm_link *l)
{
	if (shm->warm_count < SHM_WARM) {
		shm->warm[shm->warm_count++] = l;
		l->is_warm = true;
	}
	shm_note_cold(shm);
}

static void shm_drop_warm(struct shm *shm, struct shm_link *l) REQUIRES(shm->poll_lock)
{
	for (u32 i = 0; i < shm->warm_count; i++)
		if (shm->warm[i] == l) {
			shm->warm[i] = shm->warm[--shm->warm_count];
			l->is_warm = false;
			shm->turn = shm->hand = 0;
			break;
		}
	shm_note_cold(shm);
}

/* Makes a link warm that was heard of. The place is that of the first one, from the hand on, that
 * was not heard of since the hand has passed it, or else of the one at the hand. */
static void shm_warm_up(struct shm *shm, struct shm_link *l) REQUIRES(shm->poll_lock)
{
	shm_add_warm(shm, l);
	for (u32 i = 0; !l->is_warm && i <= SHM_WARM; i++) {
		struct shm_link *other = shm->warm[shm->hand];

		if (!other->self && (other->rx.tail == other->tail_seen || i == SHM_WARM)) {
			other->is_warm = false;
			shm->warm[shm->hand] = l;
			l->is_warm = true;
		}
		other->tail_seen = other->rx.tail;
		shm->hand = (shm->hand + 1) % SHM_WARM;
	}
}

/* Looks at `left` entries of links[], in turn. */
static int shm_poll_cold(struct shm *shm, u32 left, int budget) REQUIRES(shm->poll_lock)
{
	int n = 0;

	for (; left != 0 && n < budget; left--) {
		struct shm_link *l;

		if (++shm->cold_at >= shm->count)
			shm->cold_at = 0;
		l = shm->links[shm->cold_at];
		if (l->is_warm || (ring_looks_empty(&l->rx) && !shm_has_chores(l, true)))
			continue;
		n += shm_poll_link(shm, l, budget - n);
		shm_warm_up(shm, l);
	}
	return n;
}

/* The others' turns: those that are due, or all before a sleep. A process that polls seldom looks
 * at all of them, too. */
static NOINLINE int shm_poll_others(struct shm *shm, int budget, bool must)
	REQUIRES(shm->poll_lock)
{
	u64 now = clock_now_ns(), due = (now - shm->cold_ns) / SHM_COLD_NS;

	if (!must && due == 0)
		return 0;
	shm->cold_ns = now;
	return shm_poll_cold(shm, must ? shm->count : (u32)MIN(due, (u64)shm->count), budget);
}

/* The rest of a pass: `left` links from warm[at] on. */
static ALWAYS_INLINE int shm_poll_warm(struct shm *shm, u32 at, u32 left, int budget)
	REQUIRES(shm->poll_lock)
{
	int n = 0;

	for (; left != 0 && n < budget; left--) {
		n += shm_poll_link(shm, shm->warm[at], budget - n);
		if (++at >= shm->warm_count)
			at = 0;
	}
	/* Each pass begins where the last one ran out of budget, so that a busy peer starves no
	 * other. */
	if (unlikely(n >= budget))
		shm->turn = at;
	return n;
}

static NOINLINE int shm_poll_links(struct shm *shm, u32 at, u32 left, int budget)
	RELEASE(shm->poll_lock)
{
	int n = shm_poll_warm(shm, at, left, budget);

	lock_release(&shm->poll_lock);
	return n;
}

/* The caller is about to sleep. */
static NOINLINE void shm_begin_last(struct shm *shm) ACQUIRE(shm->poll_lock)
{
	lock_acquire(&shm->poll_lock);
	drive_look_all(shm);
}

/* A pass of a process with more links than are warm. */
static NOINLINE int shm_poll_many(struct shm *shm, int budget, bool must)
{
	int n;

	if (must)
		shm_begin_last(shm);
	else if (!lock_try(&shm->poll_lock))
		return 0;
	n = shm_poll_warm(shm, shm->turn, shm->warm_count, budget);
	n += shm_poll_others(shm, MAX(budget - n, 1), must);
	lock_release(&shm->poll_lock);
	return n;
}

/* Most passes find nothing: NOINLINE functions do the rest, so that an empty pass saves no
 * register. */
static int shm_poll(struct path *p, int budget, bool must)
{
	struct shm *shm = container_of(p, struct shm, path);
	u32 at, count, left;

	/* A link that is added just now has the engine's thread woken (link_publish). */
	if (unlikely(__atomic_load_n(&shm->has_cold, __ATOMIC_RELAXED)))
		return shm_poll_many(shm, budget, must);
	if (must)
		shm_begin_last(shm);
	else if (!lock_try(&shm->poll_lock))
		return 0;
	left = count = shm->warm_count; /* not 0: this process' own is one of them */
	at = shm->turn;
	do {
		const struct shm_link *l = shm->warm[at];

		if (!ring_looks_empty(&l->rx) || shm_has_chores(l, true))
			return shm_poll_links(shm, at, left, budget);
		if (++at >= count)
			at = 0;
	} while (--left != 0);
	lock_release(&shm->poll_lock);
	return 0;
}

static bool shm_dest_holds(const struct path_dest *d, u32 qpn, u32 type)
{
	const struct shm_link *l = container_of(d, const struct shm_link, dest);

	if (link_state(l) == LINK_ALIAS)
		l = l->real;
	return l->board != NULL && link_peer_has_qp(l, qpn, type);
}

static bool shm_dest_behind(const struct path_dest *d, u32 qpn)
{
	const struct shm_link *l = container_of(d, const struct shm_link, dest);
	const struct board_qp *q;

	if (link_state(l) == LINK_ALIAS)
		l = l->real;
	q = l->board != NULL ? link_find_qp(l->board, qpn) : NULL;
	/* pairs with req_show_behind */
	return q != NULL &&
	       __atomic_load_n(&l->board->tallies[q - l->board->qps].behind, __ATOMIC_ACQUIRE);
}

static void shm_exclude(struct path *p, void (*fn)(void *arg), void *arg)
{
	struct shm *shm = container_of(p, struct shm, path);

	lock_acquire(&shm->poll_lock);
	fn(arg);
	lock_release(&shm->poll_lock);
}

static const struct path_ops shm_ops = {
	.name = "shm",
	.dest_get = shm_dest_get,
	.dest_nowhere = shm_dest_nowhere,
	.dest_hold = shm_dest_hold,
	.dest_put = shm_dest_put,
	.resolve = shm_dest_resolve,
	.same = shm_dest_same,
	.send = shm_send,
	.send_briefs = shm_send_briefs,
	.flush = shm_flush,
	.direct = link_direct,
	.answered = link_answered,
	.writes = link_writes,
	.writes_joined = link_writes_joined,
	.peer_end = link_peer_end,
	.atomic = link_atomic,
	.reaches = link_reaches,
	.pullable = link_pullable,
	.pull = link_pull,
	.poll = shm_poll,
	.holds = shm_dest_holds,
	.behind = shm_dest_behind,
	.exclude = shm_exclude,
};

/* Buries some of the dead links without users. Returns how many. */
static u32 shm_bury_some(struct shm *shm)
{
	struct shm_link *gone[32];
	u32 n = 0;

	lock_acquire(&shm->poll_lock);
	lock_acquire(&shm->lock);
	list_for_each_safe(l, &shm->dead, struct shm_link, node)
		if (l->refs == 0 && n < ARRAY_LEN(gone)) {
			list_remove(&l->node);
			if (l->real != NULL)
				l->real->refs--;
			gone[n++] = l;
		}
	lock_release(&shm->lock);
	lock_release(&shm->poll_lock);
	for (u32 i = 0; i < n; i++) {
		link_close(gone[i]);
		free(gone[i]);
	}
	return n;
}

/* An alias holds a reference to its process' link: a later pass buries that one. */
static void shm_bury(struct shm *shm)
{
	while (shm_bury_some(shm) != 0)
		continue;
}

void shm_each_link(struct shm *shm, void (*fn)(struct shm_link *l, void *arg), void *arg)
{
	struct shm_link *held[64];
	u32 i = SHM_LINKS, n;

	/* From the last on: shm_forget_link puts the last one into the gap, so that what was not
	 * visited yet stays in front of i. */
	do {
		lock_acquire(&shm->lock);
		i = MIN(i, shm->count);
		for (n = 0; n < ARRAY_LEN(held) && i != 0; n++) {
			held[n] = shm->links[--i];
			held[n]->refs++;
		}
		lock_release(&shm->lock);
		for (u32 k = 0; k < n; k++) {
			fn(held[k], arg);
			shm_dest_put(&held[k]->dest);
		}
	} while (n == ARRAY_LEN(held));
}

void shm_background(struct shm *shm)
{
	struct shm_link *l;

	for (;;) {
		lock_acquire(&shm->lock);
		l = list_empty(&shm->asking) ? NULL
					     : list_first(&shm->asking, struct shm_link, node);
		if (l != NULL)
			l->refs++;
		lock_release(&shm->lock);
		if (l == NULL)
			break;
		shm_resolve_one(l);
		lock_acquire(&shm->poll_lock);
		shm_wake_blocked(shm, &l->dest);
		lock_release(&shm->poll_lock);
		shm_dest_put(&l->dest);
	}
	reach_serve(shm);
	shm_bury(shm);
}

/* Adds the slots that the link was for to `slots`. */
static void shm_forget_link(struct shm *shm, struct shm_link *l, u64 slots[NODE_SLOTS / 64])
	REQUIRES(shm->poll_lock)
{
	lock_acquire(&shm->lock);
	for (u32 i = 0; i < shm->count; i++)
		if (shm->links[i] == l) {
			shm->links[i] = shm->links[shm->count - 1];
			__atomic_store_n(&shm->count, shm->count - 1, __ATOMIC_RELEASE);
			break;
		}
	shm_drop_warm(shm, l);
	for (u32 s = 0; s < NODE_SLOTS; s++) {
		struct shm_link *at = shm->slots[s];

		if (at != NULL && (at == l || (link_state(at) == LINK_ALIAS && at->real == l))) {
			shm->slots[s] = NULL;
			slots[s / 64] |= 1ull << s % 64;
		}
	}
	for (struct shm_link *at = l; at != NULL; at = at->next_alias) {
		list_remove(&at->node);
		list_push_back(&shm->dead, &at->node);
	}
	lock_release(&shm->lock);
}

/* No room will ever come: queue pairs that wait for it try again and get the error. */
static void shm_let_go(struct shm *shm, struct shm_link *l) REQUIRES(shm->poll_lock)
{
	for (struct shm_link *a = l; a != NULL; a = a->next_alias)
		while (path_is_awaited(&a->dest))
			shm->path.user_ops->writable(shm->path.user, &a->dest);
}

/* Gives back the MADs to QP1 that wait in the ring of a peer that has not read it and will not. */
static void shm_return_mads(struct shm *shm, struct shm_link *l) REQUIRES(shm->poll_lock)
{
	struct ring_item item;
	struct ring_rx rx;
	int got = 1;

	if (shm->cfg.returned == NULL)
		return;
	/* Pairs with the fence in link_ring_bell: either this sees a MAD, or its sender sees
	 * LINK_DEAD when it asks once more. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	ring_rx_init(&rx, l->tx.shared);
	for (u32 i = 0; i < RING_SLOTS && got != 0; i++) {
		got = ring_peek(&rx, &item);
		if (got == 1 && item.pkt.qp_type == IBV_QPT_UD && item.pkt.dqpn == SHM_GENERAL)
			shm->cfg.returned(shm->cfg.kick_arg, &item.pkt, item.payload);
		if (got != 0)
			ring_consume(&rx, &item);
	}
}

/* `err`: 0, or why the peer refuses the link. */
static void shm_end_link(struct shm *shm, struct shm_link *l, int err)
{
	u64 slots[NODE_SLOTS / 64] = { 0 };
	bool died = false;

	lock_acquire(&shm->poll_lock);
	if (link_state(l) == LINK_UP) {
		died = link_has_died(l);
		while (!ring_looks_empty(&l->rx) && shm_receive(shm, l, RING_SLOTS) == RING_SLOTS)
			continue;
		l->refusal = err;
		link_set_state(l, LINK_DEAD);
		shm_forget_link(shm, l, slots);
		link_unwatch(l);
		board_count(shm->cfg.board, COUNT_PEER_DEATHS);
		shm->path.user_ops->dead(shm->path.user, &l->dest);
		shm_let_go(shm, l);
		if (err != 0)
			shm_return_mads(shm, l);
	}
	lock_release(&shm->poll_lock);
	if (died && shm->cfg.died != NULL)
		shm->cfg.died(shm->cfg.kick_arg, slots);
}

void shm_peer_dead(struct shm *shm, struct shm_link *l)
{
	shm_end_link(shm, l, 0);
}

void shm_set_watched(struct shm *shm, bool watched)
{
	lock_acquire(&shm->poll_lock);
	lock_acquire(&shm->lock);
	shm->watched = watched;
	for (u32 i = 0; i < shm->count; i++)
		link_set_open(shm->links[i]);
	lock_release(&shm->lock);
	lock_release(&shm->poll_lock);
}

/* Returns the link to that process, with a reference; NULL: none. */
static struct shm_link *shm_find_peer(struct shm *shm, u64 process)
{
	struct shm_link *l = NULL;

	lock_acquire(&shm->lock);
	for (u32 i = 1; i < shm->count && l == NULL; i++)
		if (shm->links[i]->process == process) {
			l = shm->links[i];
			l->refs++;
		}
	lock_release(&shm->lock);
	return l;
}

void shm_peer_gone(struct shm *shm, u64 process, int err)
{
	struct shm_link *l = shm_find_peer(shm, process);

	if (l == NULL) {
		/* A peer that could not open the pair may report so before the local thread that
		 * requested it has opened the link. No second report comes. */
		lock_acquire(&shm->resolve_lock);
		l = shm_find_peer(shm, process);
		lock_release(&shm->resolve_lock);
	}
	if (l == NULL)
		return;
	shm_end_link(shm, l, err);
	shm_dest_put(&l->dest);
}

void shm_slot_own(struct shm *shm, u32 slot)
{
	lock_acquire(&shm->lock);
	shm->slots[slot % NODE_SLOTS] = shm->self;
	lock_release(&shm->lock);
}

static int shm_open_self(struct shm *shm) NO_THREAD_SAFETY /* not yet visible to other threads */
{
	struct shm_link *l = link_create(shm, UINT32_MAX);

	if (l == NULL)
		return -ENOMEM;
	l->self = true;
	l->process = shm->cfg.process;
	l->pid = getpid();
	l->board = shm->cfg.board;
	l->pair = ring_pair_private();
	if (l->pair == NULL) {
		free(l);
		return -ENOMEM;
	}
	l->bell_fd[0] = shm->cfg.bell_fd[0];
	l->bell_fd[1] = shm->cfg.bell_fd[1];
	ring_tx_init(&l->tx, &l->pair->ring[0], &shm->ring_spare);
	ring_rx_init(&l->rx, &l->pair->ring[0]);
	link_open_space(l);
	link_set_state(l, LINK_UP);
	shm->nowhere = link_create(shm, UINT32_MAX);
	if (shm->nowhere == NULL) {
		ring_pair_unmap(l->pair);
		free(l);
		return -ENOMEM;
	}
	link_set_state(shm->nowhere, LINK_NOWHERE);
	shm->self = shm->links[0] = l;
	shm->count = 1;
	shm_add_warm(shm, l);
	return 0;
}

struct shm *shm_create(const struct shm_config *cfg, int *err)
{
	struct shm *shm = calloc(1, sizeof(*shm));

	*err = -ENOMEM;
	if (shm == NULL)
		return NULL;
	shm->cfg = *cfg;
	__atomic_store_n(&shm->ring_spare, RING_SPARE, __ATOMIC_RELAXED);
	shm->path.ops = &shm_ops;
	shm->path.counters = cfg->board->counters;
	shm->path.guarantees = (struct path_guarantees){
		.ordered = true, .reliable = true, .direct = true, .mtu = RING_MTU
	};
	list_init(&shm->asking);
	list_init(&shm->dead);
	*err = shm_open_self(shm);
	if (*err != 0) {
		free(shm);
		return NULL;
	}
	return shm;
}

struct path *shm_path(struct shm *shm)
{
	return &shm->path;
}

void shm_drop_in_child(struct shm *shm)
{
	for (u32 i = 1; i < shm->count; i++) {
		struct shm_link *l = shm->links[i];

		close(l->bell_fd[0]);
		close(l->bell_fd[1]);
		reach_drop_in_child(l);
		if (l->pid_fd >= 0)
			close(l->pid_fd);
		if (l->space_fd >= 0)
			close(l->space_fd);
	}
}

void shm_bell_arm(struct shm *shm, int which)
{
	struct board *b = shm->cfg.board;
	u32 word = __atomic_load_n(&b->bell, __ATOMIC_RELAXED), next;

	/* In one step. Otherwise two threads could store the same arm count, and a peer would take
	 * the later one for the arm that it has answered. */
	do
		next = ((word + BELL_STEP) & ~(u32)BELL_SECOND) | BELL_ARMED |
		       (which != 0 ? BELL_SECOND : 0);
	while (!__atomic_compare_exchange_n(&b->bell, &word, next, true, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED));
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* pairs with link_ring_bell */
}
