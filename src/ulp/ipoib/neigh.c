/* neigh.c: neighbours: who is known, who is asked, aging.
 *
 * A neighbour that is asked gets IPOIB_ASKS questions, a second apart; one that was known is asked
 * alone first. One that nobody has used for two minutes is forgotten.
 * In:    frames to send, what neighbours say, time    Out: frames, questions, news for the stack
 * Runs:  senders, the completion handler, the thread of works    Locks: ipoib.lock
 * Spec:  RFC 4861, 7.3.2 (states), which this does for ARP, too
 */
#include <stdlib.h>
#include <string.h>

#include "ulp/ipoib/ipoib_priv.h"

static struct list_head *ipoib_neigh_bucket(struct ipoib *ip, const u8 addr[16]) REQUIRES(ip->lock)
{
	u32 hash = 2166136261u;

	for (u32 i = 0; i < 16; i++)
		hash = (hash ^ addr[i]) * 16777619u;
	return &ip->bucket[(hash >> 16 ^ hash) % IPOIB_BUCKETS];
}

struct ipoib_neigh *ipoib_neigh_find(struct ipoib *ip, const u8 addr[16])
{
	list_for_each(n, ipoib_neigh_bucket(ip, addr), struct ipoib_neigh, node)
		if (memcmp(n->ip, addr, 16) == 0)
			return n;
	return NULL;
}

static void ipoib_neigh_unpath(struct ipoib_neigh *n)
{
	if (n->ah != NULL)
		ib_destroy_ah(n->ah);
	n->ah = NULL;
	n->path_stale = false;
	n->path_again_ns = 0;
}

static void ipoib_neigh_free(struct ipoib *ip, struct ipoib_neigh *n) REQUIRES(ip->lock)
{
	ipoib_wait_drop(ip, &n->waiting, IPOIB_DROP_NEIGHBOUR);
	ipoib_neigh_unpath(n);
	list_remove(&n->node);
	ip->neigh_count--;
	free(n);
}

static bool ipoib_neigh_is_shown(const struct ipoib_neigh *n)
{
	return n->shown || n->news;
}

/* One that the stack above knows stays, as one that nothing is known of, until that is told. */
static void ipoib_neigh_forget(struct ipoib *ip, struct ipoib_neigh *n) REQUIRES(ip->lock)
{
	ipoib_wait_move(ip, &n->waiting, &ip->refused);
	ipoib_neigh_unpath(n);
	n->state = NEIGH_ASKED;
	n->asks = 0;
	n->known = false;
	if (n->shown)
		n->news = ip->tell = true;
	else
		ipoib_neigh_free(ip, n);
}

/* The one that has not been used for the longest time: of those of which the stack above knows and
 * has not been told to forget, or of the others. NULL: none. */
static struct ipoib_neigh *ipoib_neigh_oldest(struct ipoib *ip, bool shown) REQUIRES(ip->lock)
{
	struct ipoib_neigh *oldest = NULL;

	for (u32 i = 0; i < IPOIB_BUCKETS; i++)
		list_for_each(n, &ip->bucket[i], struct ipoib_neigh, node)
			if (ipoib_neigh_is_shown(n) == shown && (n->known || !shown) &&
			    (oldest == NULL || n->used_ns < oldest->used_ns))
				oldest = n;
	return oldest;
}

/* Room for one more: the oldest of which the stack above does not know goes at once. Where it knows
 * all of them, the oldest goes when that has been told: there is room a moment later. */
static bool ipoib_neigh_make_room(struct ipoib *ip) REQUIRES(ip->lock)
{
	struct ipoib_neigh *oldest;

	if (ip->neigh_count < IPOIB_NEIGHBOURS)
		return true;
	oldest = ipoib_neigh_oldest(ip, false);
	if (oldest != NULL) {
		ipoib_neigh_free(ip, oldest);
		return true;
	}
	oldest = ipoib_neigh_oldest(ip, true);
	if (oldest != NULL)
		ipoib_neigh_forget(ip, oldest);
	ipoib_kick(ip);
	return false;
}

/* NULL: there is no room. */
static struct ipoib_neigh *ipoib_neigh_new(struct ipoib *ip, const u8 addr[16]) REQUIRES(ip->lock)
{
	struct ipoib_neigh *n = ipoib_neigh_make_room(ip) ? calloc(1, sizeof(*n)) : NULL;

	if (n == NULL)
		return NULL;
	memcpy(n->ip, addr, 16);
	n->state = NEIGH_ASKED;
	n->used_ns = clock_now_ns();
	ipoib_wait_init(&n->waiting);
	list_push_back(ipoib_neigh_bucket(ip, addr), &n->node);
	ip->neigh_count++;
	return n;
}

/* ---- sending --------------------------------------------------------------------------------- */

static void ipoib_neigh_ask(struct ipoib *ip, struct ipoib_neigh *n, u64 now) REQUIRES(ip->lock)
{
	bool alone = n->state == NEIGH_PROBED;

	n->asked_ns = now;
	n->asks++;
	ipoib_speak_ask(ip, n, alone);
	ipoib_kick_at(ip, now + IPOIB_AGAIN_NS);
}

void ipoib_neigh_push(struct ipoib *ip, struct ipoib_neigh *n)
{
	struct ipoib_buffer *b;

	if (!n->known)
		return;
	if (n->ah == NULL) {
		ipoib_path_ask(ip, n);
		return;
	}
	while ((b = ipoib_wait_pop(ip, &n->waiting)) != NULL)
		ipoib_ring_post(ip, b, n->ah, ipoib_hw_qpn(&n->hw));
}

/* What is known is used; a neighbour that has been silent for long is asked meanwhile. */
static void ipoib_neigh_use(struct ipoib *ip, struct ipoib_neigh *n, u64 now) REQUIRES(ip->lock)
{
	n->used_ns = now;
	if (n->state == NEIGH_REACHABLE && now > n->confirmed_ns + IPOIB_REACHABLE_NS)
		n->state = NEIGH_STALE;
	if (n->state == NEIGH_STALE) {
		n->state = NEIGH_PROBED;
		n->asks = 0;
		ipoib_neigh_ask(ip, n, now);
	}
	if (n->path_stale)
		ipoib_path_ask(ip, n);
}

void ipoib_neigh_send(struct ipoib *ip, const u8 addr[16], struct ipoib_buffer *b)
{
	struct ipoib_neigh *n = ipoib_neigh_find(ip, addr);
	u64 now = clock_now_ns();

	if (n == NULL)
		n = ipoib_neigh_new(ip, addr);
	if (n == NULL) {
		ipoib_ring_drop(ip, b, IPOIB_DROP_ROOM);
		return;
	}
	if (n->known)
		ipoib_neigh_use(ip, n, now);
	n->used_ns = now;
	if (n->known && n->ah != NULL) {
		ipoib_ring_post(ip, b, n->ah, ipoib_hw_qpn(&n->hw));
		return;
	}
	ipoib_wait_push(ip, &n->waiting, b);
	if (n->known) {
		ipoib_path_ask(ip, n);
		ipoib_kick_at(ip, now + IPOIB_AGAIN_NS);
	} else if (n->asks == 0) {
		ipoib_neigh_ask(ip, n, now);
	}
}

/* ---- what neighbours say --------------------------------------------------------------------- */

static void ipoib_neigh_take(struct ipoib *ip, struct ipoib_neigh *n, const struct ipoib_hw *hw)
	REQUIRES(ip->lock)
{
	bool moved = !n->known || memcmp(ipoib_hw_gid(&n->hw), ipoib_hw_gid(hw), 16) != 0;

	if (moved)
		ipoib_neigh_unpath(n);
	n->hw = *hw;
	n->known = true;
}

/* The stack above is told of who has answered: questions come from anybody, in any number. */
static void ipoib_neigh_show(struct ipoib *ip, struct ipoib_neigh *n) REQUIRES(ip->lock)
{
	n->news = ip->tell = true;
	ipoib_kick(ip);
}

struct ipoib_neigh *ipoib_neigh_learn(struct ipoib *ip, const u8 addr[16],
				      const struct ipoib_hw *hw, bool create, bool confirmed)
{
	struct ipoib_neigh *n = ipoib_neigh_find(ip, addr);
	bool differs = n == NULL || !n->known || memcmp(&n->hw, hw, sizeof(*hw)) != 0;

	if (n == NULL && create)
		n = ipoib_neigh_new(ip, addr);
	if (n == NULL)
		return NULL;
	ipoib_neigh_take(ip, n, hw);
	if (n->shown ? differs : confirmed)
		ipoib_neigh_show(ip, n);
	if (confirmed) {
		n->state = NEIGH_REACHABLE;
		n->confirmed_ns = clock_now_ns();
		n->asks = 0;
	} else if (differs || n->state == NEIGH_ASKED) {
		n->state = NEIGH_STALE;
		n->asks = 0;
	}
	ipoib_neigh_push(ip, n);
	return n;
}

/* ---- time ------------------------------------------------------------------------------------ */

/* A question has had no answer. True: the neighbour is to be forgotten. */
static bool ipoib_neigh_again(struct ipoib *ip, struct ipoib_neigh *n, u64 now) REQUIRES(ip->lock)
{
	if (n->asks < IPOIB_ASKS) {
		ipoib_neigh_ask(ip, n, now);
		return false;
	}
	if (n->state == NEIGH_ASKED)
		return true;
	/* not at its old address any more */
	n->state = NEIGH_ASKED;
	n->asks = 0;
	ipoib_neigh_ask(ip, n, now);
	return false;
}

/* True: the neighbour is to be forgotten. */
static bool ipoib_neigh_age(struct ipoib *ip, struct ipoib_neigh *n, u64 now) REQUIRES(ip->lock)
{
	bool asking = n->state == NEIGH_ASKED || n->state == NEIGH_PROBED;

	if (asking && now >= n->asked_ns + IPOIB_AGAIN_NS)
		return ipoib_neigh_again(ip, n, now);
	if (n->known && n->waiting.count > 0)
		ipoib_neigh_push(ip, n);
	return !asking && now > n->used_ns + IPOIB_UNUSED_NS &&
	       now > n->confirmed_ns + IPOIB_UNUSED_NS;
}

void ipoib_neigh_tick(struct ipoib *ip, u64 now)
{
	bool some = false;

	for (u32 i = 0; i < IPOIB_BUCKETS; i++) {
		list_for_each_safe(n, &ip->bucket[i], struct ipoib_neigh, node) {
			some = true;
			if (n->asks == 0 && n->state == NEIGH_ASKED && n->waiting.count == 0) {
				if (!ipoib_neigh_is_shown(n))
					ipoib_neigh_free(ip, n);
			} else if (ipoib_neigh_age(ip, n, now)) {
				ipoib_neigh_forget(ip, n);
			}
		}
	}
	if (some)
		ipoib_kick_at(ip, now + IPOIB_TICK_NS);
}

void ipoib_neigh_refuse(struct ipoib *ip)
{
	u8 refusal[REFUSAL_BYTES];
	struct ipoib_buffer *b;

	lock_acquire(&ip->lock);
	while ((b = ipoib_wait_pop(ip, &ip->refused)) != NULL) {
		u32 size = ipoib_frame_refuse(ipoib_packet(b), b->size - IPOIB_HEAD, refusal);

		ipoib_ring_drop(ip, b, IPOIB_DROP_NEIGHBOUR);
		lock_release(&ip->lock);
		if (size != 0)
			ip->ops->receive(ip->arg, refusal, size);
		lock_acquire(&ip->lock);
	}
	lock_release(&ip->lock);
}

/* The next one that is to be told. */
static bool ipoib_neigh_next_news(struct ipoib *ip, u8 addr[16], struct ipoib_hw *hw, bool *known)
	REQUIRES(ip->lock)
{
	for (u32 i = 0; i < IPOIB_BUCKETS; i++) {
		list_for_each(n, &ip->bucket[i], struct ipoib_neigh, node) {
			if (!n->news)
				continue;
			n->news = false;
			n->shown = n->known;
			memcpy(addr, n->ip, 16);
			*hw = n->hw;
			*known = n->known;
			return true;
		}
	}
	return false;
}

void ipoib_neigh_tell(struct ipoib *ip)
{
	struct ipoib_hw hw;
	bool known, some;
	u8 addr[16];

	lock_acquire(&ip->lock);
	while (ip->tell) {
		some = ipoib_neigh_next_news(ip, addr, &hw, &known);
		ip->tell = some;
		lock_release(&ip->lock);
		if (some)
			ip->ops->neighbour(ip->arg, addr, known ? &hw : NULL);
		lock_acquire(&ip->lock);
	}
	lock_release(&ip->lock);
}

void ipoib_tell_again(struct ipoib *ip)
{
	lock_acquire(&ip->lock);
	for (u32 i = 0; i < IPOIB_BUCKETS; i++)
		list_for_each(n, &ip->bucket[i], struct ipoib_neigh, node)
			n->news = n->shown && n->known;
	ip->tell = true;
	ipoib_kick(ip);
	lock_release(&ip->lock);
}

void ipoib_neigh_end(struct ipoib *ip)
{
	for (u32 i = 0; i < IPOIB_BUCKETS; i++)
		list_for_each_safe(n, &ip->bucket[i], struct ipoib_neigh, node)
			ipoib_neigh_free(ip, n);
}
