/* speak.c: ARP and neighbour discovery: questions, answers, announcements.
 * In:    neighbours to ask, what others say    Out: frames
 * Runs:  senders, the completion handler, the thread of works    Locks: ipoib.lock
 * Spec:  RFC 826 (whose question updates what is known); RFC 4861, 7.2
 */
#include <string.h>

#include "base/log.h"
#include "ulp/ipoib/ipoib_priv.h"

static const u8 speak_broadcast[16] = { [10] = 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
static const u8 speak_all_nodes[16] = { 0xff, 2, [15] = 1 };

static bool ipoib_speak_is_own(const struct ipoib *ip, const u8 addr[16]) REQUIRES(ip->lock)
{
	for (u32 i = 0; i < ip->prefix_count; i++)
		if (memcmp(ip->prefix[i].ip, addr, 16) == 0)
			return true;
	return false;
}

/* An address of the interface to ask from: of the subnet, else any of the family. NULL: none. */
static const u8 *ipoib_speak_source(const struct ipoib *ip, const u8 about[16]) REQUIRES(ip->lock)
{
	const u8 *any = NULL;

	for (u32 i = 0; i < ip->prefix_count; i++) {
		const struct ipoib_prefix *p = &ip->prefix[i];

		if (ipoib_ip_is_v4(p->ip) != ipoib_ip_is_v4(about))
			continue;
		if (ipoib_ip_fits(about, p))
			return p->ip;
		if (any == NULL)
			any = p->ip;
	}
	return any;
}

/* To one neighbour, by what is known of it; `to` NULL: to a group. */
static void ipoib_speak_send(struct ipoib *ip, const struct ipoib_frame *f, struct ipoib_neigh *n,
			     const u8 *group) REQUIRES(ip->lock)
{
	struct ipoib_buffer *b = ip->link ? ipoib_ring_get(ip) : NULL;
	const struct ipoib_hw *to = n != NULL ? &n->hw : NULL;

	if (b == NULL)
		return;
	b->size = f->kind == FRAME_ASK ? ipoib_frame_write_ask(b->frame, f, to)
				       : ipoib_frame_write_answer(b->frame, f, to);
	if (n == NULL) {
		ipoib_group_send(ip, group, b);
	} else if (n->ah != NULL) {
		ipoib_ring_post(ip, b, n->ah, ipoib_hw_qpn(&n->hw));
	} else {
		ipoib_wait_push(ip, &n->waiting, b);
		ipoib_neigh_push(ip, n);
	}
}

void ipoib_speak_ask(struct ipoib *ip, struct ipoib_neigh *n, bool alone)
{
	const u8 *source = ipoib_speak_source(ip, n->ip);
	struct ipoib_frame f = { .kind = FRAME_ASK, .hw = ip->own };
	u8 group[16];

	if (source == NULL)
		return;
	memcpy(f.from, source, 16);
	memcpy(f.about, n->ip, 16);
	if (ipoib_ip_is_v4(n->ip))
		memcpy(group, speak_broadcast, 16);
	else
		ipoib_ip_solicited(n->ip, group);
	ipoib_speak_send(ip, &f, alone && n->known ? n : NULL, group);
}

static void ipoib_speak_answer(struct ipoib *ip, const struct ipoib_frame *asked,
			       struct ipoib_neigh *n) REQUIRES(ip->lock)
{
	struct ipoib_frame f = { .kind = FRAME_ANSWER, .hw = ip->own };

	memcpy(f.about, asked->about, 16);
	if (n != NULL && n->known)
		memcpy(f.from, asked->from, 16);
	if (n != NULL && n->known)
		ipoib_speak_send(ip, &f, n, NULL);
	else
		ipoib_speak_send(ip, &f, NULL,
				 ipoib_ip_is_v4(f.about) ? speak_broadcast : speak_all_nodes);
}

static void ipoib_speak_hear_ask(struct ipoib *ip, const struct ipoib_frame *f) REQUIRES(ip->lock)
{
	bool about_us = ipoib_speak_is_own(ip, f->about);
	struct ipoib_neigh *n = NULL;

	if (f->has_hw && ipoib_is_on_link(ip, f->from))
		n = ipoib_neigh_learn(ip, f->from, &f->hw, about_us, false);
	else if (!ipoib_ip_is_none(f->from))
		n = ipoib_neigh_find(ip, f->from);
	if (about_us)
		ipoib_speak_answer(ip, f, n);
}

static void ipoib_speak_hear_answer(struct ipoib *ip, const struct ipoib_frame *f)
	REQUIRES(ip->lock)
{
	struct ipoib_neigh *n = ipoib_neigh_find(ip, f->about);

	if (n == NULL)
		return; /* nobody asked */
	if (f->has_hw && (f->override || !n->known))
		(void)ipoib_neigh_learn(ip, f->about, &f->hw, false, f->solicited);
	else if (n->known && f->solicited && !f->has_hw)
		(void)ipoib_neigh_learn(ip, f->about, &n->hw, false, true);
}

void ipoib_speak_hear(struct ipoib *ip, const struct ipoib_frame *f)
{
	const u8 *who = f->kind == FRAME_ASK ? f->from : f->about;

	if (ipoib_speak_is_own(ip, who)) {
		log_warn("ipoib", "another host has an address of this interface");
		return;
	}
	if (f->kind == FRAME_ASK)
		ipoib_speak_hear_ask(ip, f);
	else
		ipoib_speak_hear_answer(ip, f);
}

void ipoib_speak_announce(struct ipoib *ip)
{
	for (u32 i = 0; i < ip->prefix_count; i++) {
		bool v4 = ipoib_ip_is_v4(ip->prefix[i].ip);
		struct ipoib_frame f = { .kind = v4 ? FRAME_ASK : FRAME_ANSWER, .hw = ip->own };

		memcpy(f.about, ip->prefix[i].ip, 16);
		if (v4)
			memcpy(f.from, f.about, 16);
		ipoib_speak_send(ip, &f, NULL, v4 ? speak_broadcast : speak_all_nodes);
	}
	ip->announce = false;
}
