/* sockets.c: the sockets of this process, one per address and slot, from the node.
 *
 * All share one epoll descriptor, which sleeping threads watch. A socket that has lost its address
 * is taken out of the table first, then from every destination, then it is closed: poll_lock and
 * each tx_lock have been held in between, so no thread uses it any more.
 *
 * In: the node's sockets    Out: struct udp_socket    Runs: threads that may block
 * Locks: slots_lock, then poll_lock, tx_lock or lock
 */
#include "path/udp/udp_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"

#ifndef IPV6_FLOWINFO_SEND
#define IPV6_FLOWINFO_SEND 33
#endif

struct udp_socket *sockets_find(struct udp *udp, const u8 gid[16])
{
	for (u32 i = 0; i < udp->socket_count; i++)
		if (udp->sockets[i]->lane == 0 && memcmp(udp->sockets[i]->gid, gid, 16) == 0)
			return udp->sockets[i];
	return NULL;
}

void sockets_want_room(struct udp *udp, struct udp_socket *s, bool want)
{
	struct epoll_event ev = { .events = EPOLLIN | (want ? EPOLLOUT : 0), .data.ptr = s };

	if (epoll_ctl(udp->epoll_fd, EPOLL_CTL_MOD, s->port.fd, &ev) != 0)
		log_debug("udp", "epoll: errno %d", errno);
}

/* A child may hold a copy of the socket, which would keep it in the epoll set after the close. */
static void sockets_unwatch(struct udp *udp, const struct udp_socket *s)
{
	epoll_ctl(udp->epoll_fd, EPOLL_CTL_DEL, s->port.fd, NULL);
}

static void sockets_close(struct udp_socket *s)
{
	close(s->port.fd);
	free(s);
}

/* Sets the traffic class of connected queue pairs, which send most packets: those need not state
 * it. */
void sockets_set_class(struct udp_socket *s)
{
	int capable = PATH_ECN_CAPABLE, one = 1;

	/* a flow label is stated per destination */
	if (!s->v4)
		(void)setsockopt(s->port.fd, IPPROTO_IPV6, IPV6_FLOWINFO_SEND, &one, sizeof(one));
	if (setsockopt(s->port.fd, s->v4 ? IPPROTO_IP : IPPROTO_IPV6, s->v4 ? IP_TOS : IPV6_TCLASS,
		       &capable, sizeof(capable)) == 0)
		s->traffic_class = PATH_ECN_CAPABLE;
}

void sockets_set_hops(struct udp_socket *s, u8 hops)
{
	int value = hops;

	s->hops = UDP_DEFAULT_HOPS;
	if (hops != UDP_DEFAULT_HOPS &&
	    setsockopt(s->port.fd, s->v4 ? IPPROTO_IP : IPPROTO_IPV6,
		       s->v4 ? IP_TTL : IPV6_UNICAST_HOPS, &value, sizeof(value)) == 0)
		s->hops = hops;
}

/* Makes room for one more: consumers determine the number of groups. */
static bool sockets_have_room(struct udp *udp) REQUIRES(udp->lock)
{
	u32 space = udp->socket_space == 0 ? UDP_SOCKETS : 2 * udp->socket_space;
	struct udp_socket **grown;

	if (udp->socket_count < udp->socket_space)
		return true;
	grown = realloc(udp->sockets, space * sizeof(struct udp_socket *));
	if (grown == NULL)
		return false;
	udp->sockets = grown;
	udp->socket_space = space;
	return true;
}

bool sockets_insert(struct udp *udp, struct udp_socket *s)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = s };

	/* The kernel passes the pointer to the receiver; this pairs with the load in udp_ready. */
	__atomic_fetch_add(&udp->sockets_shown, 1, __ATOMIC_RELEASE);
	if (!sockets_have_room(udp) ||
	    epoll_ctl(udp->epoll_fd, EPOLL_CTL_ADD, s->port.fd, &ev) != 0)
		return false;
	udp->sockets[udp->socket_count] = s;
	__atomic_store_n(&udp->socket_count, udp->socket_count + 1, __ATOMIC_RELEASE);
	return true;
}

/* Tells whether the socket is in the table already. */
static bool sockets_is_known(struct udp *udp, u64 id) REQUIRES(udp->slots_lock)
	REQUIRES(udp->lock)
{
	bool known = false;

	for (u32 i = 0; i < udp->socket_count; i++) {
		struct udp_socket *s = udp->sockets[i];

		if (s->group != NULL || s->lane != 0 || s->id != id)
			continue;
		s->gone = false;
		known = true;
	}
	return known;
}

/* A unicast datagram's destination is the address that its socket is bound to: the kernel need not
 * report it. Without it a multicast packet would be taken for a unicast one. */
static void sockets_leave_out_destination(const struct udp_socket *s)
{
	int off = 0;

	if (s->group == NULL)
		(void)setsockopt(s->port.fd, s->v4 ? IPPROTO_IP : IPPROTO_IPV6,
				 s->v4 ? IP_PKTINFO : IPV6_RECVPKTINFO, &off, sizeof(off));
}

bool sockets_add(struct udp *udp, u32 slot, u32 device, const struct node_socket *from,
		 struct udp_group *group)
{
	struct udp_socket *s = calloc(1, sizeof(*s));
	bool added;

	if (s == NULL)
		return false;
	s->port.fd = from->fd;
	s->v4 = roce_gid_is_ipv4(from->gid);
	memcpy(s->gid, from->gid, 16);
	s->ifindex = from->ifindex;
	s->slot = slot;
	s->traffic = udp_port_of(udp, device);
	s->port.ops = &udp_port_ops_shared;
	s->port.sport = NODE_UDP_PORT;
	s->id = from->id;
	s->group = group;
	sockets_set_class(s);
	sockets_set_hops(s, UDP_DEFAULT_HOPS);
	sockets_leave_out_destination(s);
	lock_acquire(&udp->lock);
	added = (group != NULL || !sockets_is_known(udp, from->id)) && sockets_insert(udp, s);
	if (added && group == NULL && !udp->cfg.loop) /* an own address, from now on */
		dest_judge(udp, s->gid);
	lock_release(&udp->lock);
	if (!added)
		free(s);
	return added;
}

static int sockets_ask_device(struct udp *udp, u32 device, u32 slot) REQUIRES(udp->slots_lock)
{
	struct node_socket got[NODE_GIDS];
	int n = node_udp_sockets(udp->cfg.node, device, slot, got, NODE_GIDS);

	for (int i = 0; i < n; i++)
		if (!sockets_add(udp, slot, device, &got[i], NULL))
			close(got[i].fd);
	return n < 0 ? n : 0;
}

/* Of its own, so that the answer is off the stack when the device is asked. */
static NOINLINE bool sockets_have_device(struct udp *udp, u32 device)
{
	struct node_config c;

	return node_device_get(udp->cfg.node, device, &c) == 0;
}

/* A device that was removed meanwhile has no sockets. Those of an added device come with its
 * event. */
static int sockets_ask(struct udp *udp, u32 slot) REQUIRES(udp->slots_lock)
{
	int err = 0;

	for (u32 i = 0; i < NODE_DEVICES && err == 0; i++) {
		if (sockets_have_device(udp, i))
			err = sockets_ask_device(udp, i, slot);
		if (err == -ENODEV)
			err = 0;
	}
	if (err != 0)
		log_warn("udp", "no sockets for slot %u: %s", slot, strerror(-err));
	return err;
}

/* Gives every destination the socket that its source address has now. */
static void sockets_reassign(struct udp *udp)
{
	struct udp_dest *dest[64];

	for (u32 b = 0; b < UDP_BUCKETS; b++) {
		u32 n = dest_take_bucket(udp, b, dest, ARRAY_LEN(dest));

		for (u32 i = 0; i < n; i++) {
			struct udp_dest *d = dest[i];
			struct udp_socket *s;

			lock_acquire(&d->tx_lock);
			lock_acquire(&udp->lock);
			s = d->key.slot == UDP_ANY_SLOT ? NULL : lanes_choose(udp, &d->key);
			lock_release(&udp->lock);
			send_from(d, s);
			lock_acquire(&udp->lock);
			d->refs--;
			lock_release(&udp->lock);
			lock_release(&d->tx_lock);
		}
	}
}

/* A lane stays until its address leaves. */
static void sockets_mark_lanes(struct udp *udp) REQUIRES(udp->slots_lock) REQUIRES(udp->lock)
{
	for (u32 i = 0; i < udp->socket_count; i++) {
		struct udp_socket *s = udp->sockets[i], *own;

		if (s->lane == 0)
			continue;
		s->gone = true;
		for (u32 k = 0; k < udp->socket_count; k++) {
			own = udp->sockets[k];
			if (own->lane == 0 && !own->gone && memcmp(own->gid, s->gid, 16) == 0)
				s->gone = false;
		}
	}
}

/* Takes sockets that are `gone` out of the table and the epoll set; a receiver, which holds
 * poll_lock too, finds them no more. Returns the first of them. */
static struct udp_socket *sockets_take_gone(struct udp *udp) REQUIRES(udp->slots_lock)
	REQUIRES(udp->poll_lock)
{
	struct udp_socket *gone = NULL;
	u32 kept = 0;

	lock_acquire(&udp->lock);
	sockets_mark_lanes(udp);
	for (u32 i = 0; i < udp->socket_count; i++) {
		struct udp_socket *s = udp->sockets[i];

		if (s->gone) {
			sockets_unwatch(udp, s);
			s->next_gone = gone;
			gone = s;
		} else {
			udp->sockets[kept++] = s;
		}
	}
	__atomic_store_n(&udp->socket_count, kept, __ATOMIC_RELEASE);
	if (gone != NULL) {
		udp->hot = NULL;
		receive_forget_rest(udp);
	}
	lock_release(&udp->lock);
	return gone;
}

static void sockets_close_gone(struct udp_socket *gone)
{
	while (gone != NULL) {
		struct udp_socket *s = gone;

		gone = s->next_gone;
		sockets_close(s);
	}
}

void udp_refresh(struct udp *udp)
{
	struct udp_socket *gone = NULL;
	int err = 0;

	lock_acquire(&udp->slots_lock);
	lock_acquire(&udp->lock);
	for (u32 i = 0; i < udp->socket_count; i++)
		udp->sockets[i]->gone = true;
	lock_release(&udp->lock);
	for (u32 i = 0; i < udp->slot_count && err == 0; i++)
		err = sockets_ask(udp, udp->slots[i]);
	/* without the node's answer it is unknown which addresses have left */
	if (err == 0) {
		group_open_all(udp);
		lock_acquire(&udp->poll_lock);
		gone = sockets_take_gone(udp);
		lock_release(&udp->poll_lock);
	}
	sockets_reassign(udp);
	sockets_close_gone(gone);
	lock_release(&udp->slots_lock);
}

bool sockets_keep(struct udp *udp, const struct udp_group *g, u32 ifindex)
{
	bool found = false;

	lock_acquire(&udp->lock);
	for (u32 i = 0; i < udp->socket_count; i++) {
		struct udp_socket *s = udp->sockets[i];

		if (s->group != g || s->ifindex != ifindex)
			continue;
		s->gone = false;
		found = true;
	}
	lock_release(&udp->lock);
	return found;
}

u32 sockets_of_groups(struct udp *udp)
{
	u32 n = 0;

	lock_acquire(&udp->lock);
	for (u32 i = 0; i < udp->socket_count; i++)
		n += udp->sockets[i]->group != NULL;
	lock_release(&udp->lock);
	return n;
}

void sockets_drop_group(struct udp *udp, const struct udp_group *g)
{
	struct udp_socket *gone;

	lock_acquire(&udp->lock);
	for (u32 i = 0; i < udp->socket_count; i++)
		udp->sockets[i]->gone = udp->sockets[i]->group == g;
	lock_release(&udp->lock);
	lock_acquire(&udp->poll_lock);
	gone = sockets_take_gone(udp);
	lock_release(&udp->poll_lock);
	sockets_close_gone(gone);
}

int udp_slot_own(struct udp *udp, u32 slot)
{
	int err;

	lock_acquire(&udp->slots_lock);
	lock_acquire(&udp->poll_lock);
	if (udp->slot_count < UDP_SLOTS)
		udp->slots[udp->slot_count++] = slot;
	lock_release(&udp->poll_lock);
	err = sockets_ask(udp, slot);
	lock_release(&udp->slots_lock);
	if (err == 0)
		sockets_reassign(udp);
	return err;
}

bool sockets_is_own(struct udp *udp, const u8 gid[16])
{
	return !udp->cfg.loop && sockets_find(udp, gid) != NULL;
}

bool udp_has_source(struct udp *udp, const u8 sgid[16])
{
	bool has;

	lock_acquire(&udp->lock);
	has = sockets_find(udp, sgid) != NULL;
	lock_release(&udp->lock);
	return has;
}

bool udp_may_have_source(struct udp *udp, const u8 sgid[16])
{
	bool may;

	lock_acquire(&udp->lock);
	may = udp->socket_count == 0 || sockets_find(udp, sgid) != NULL;
	lock_release(&udp->lock);
	return may;
}

bool udp_is_own(struct udp *udp, const u8 sgid[16])
{
	bool own;

	lock_acquire(&udp->lock);
	own = sockets_is_own(udp, sgid);
	lock_release(&udp->lock);
	return own;
}

bool udp_slot_is_wire_only(const struct udp *udp, u32 slot)
{
	return udp->cfg.node != NULL && node_slot_is_wire_only(udp->cfg.node, slot);
}

void sockets_close_all(struct udp *udp)
{
	lock_acquire(&udp->lock);
	for (u32 i = 0; i < udp->socket_count; i++) {
		sockets_unwatch(udp, udp->sockets[i]);
		sockets_close(udp->sockets[i]);
	}
	udp->socket_count = udp->socket_space = 0;
	free(udp->sockets);
	udp->sockets = NULL;
	lock_release(&udp->lock);
}

/* The descriptors are copies: the epoll set is the parent's and stays unchanged. */
void udp_drop_in_child(struct udp *udp) NO_THREAD_SAFETY /* one thread */
{
	for (u32 i = 0; i < udp->socket_count; i++)
		close(udp->sockets[i]->port.fd);
	for (u32 i = 0; i < UDP_BUCKETS; i++)
		for (struct udp_dest *d = udp->buckets[i]; d != NULL; d = d->next)
			if (d->connected_socket != NULL)
				close(d->connected_socket->port.fd);
	close(udp->epoll_fd);
}
