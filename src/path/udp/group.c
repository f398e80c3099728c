/* group.c: multicast groups: the queue pairs of this process that are members of each.
 *
 * The kernel gives a multicast datagram to every socket that has joined; so a process has one per
 * group and interface, and delivers each datagram to all of its members.
 *
 * They take a quarter of the descriptors that the process may have, and the rest is the
 * application's.
 *
 * In: memberships    Out: joined sockets, lists of members
 * Runs: threads that may block    Locks: slots_lock, then poll_lock, then lock
 */
#include "path/udp/udp_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

void group_gid(const u8 group[16], u8 gid[16])
{
	u32 v4 = node_mcast_v4(group);

	memcpy(gid, group, 16);
	if (v4 == 0)
		return;
	memset(gid, 0, 10);
	gid[10] = gid[11] = 0xff;
	memcpy(gid + 12, &v4, 4);
}

static struct udp_group *group_find(struct udp *udp, const u8 gid[16]) REQUIRES(udp->poll_lock)
{
	list_for_each(g, &udp->groups, struct udp_group, node)
		if (memcmp(g->gid, gid, 16) == 0)
			return g;
	return NULL;
}

/* Appends the first GID on the wire of each interface of `c` that is not among the `n` of `out`
 * yet. Returns their new number, at most NODE_GIDS. */
static int group_add_ports(const struct node_config *c, struct node_gid *out, int n)
{
	for (int i = 0; i < NODE_GIDS && n < NODE_GIDS; i++) {
		bool known = (c->gids[i].flags & NODE_GID_WIRE) == 0 || c->gids[i].ifindex == 0;

		for (int k = 0; k < n && !known; k++)
			known = out[k].ifindex == c->gids[i].ifindex;
		if (!known)
			out[n++] = c->gids[i];
	}
	return n;
}

/* Lists the interfaces of all devices that have an address on the wire: their first GIDs, at most
 * NODE_GIDS. */
static NOINLINE int group_ports(struct udp *udp, struct node_gid *out)
{
	struct node_config c;
	int n = 0;

	for (u32 i = 0; i < NODE_DEVICES; i++)
		if (node_device_get(udp->cfg.node, i, &c) == 0)
			n = group_add_ports(&c, out, n);
	return n;
}

/* A shortage of descriptors or memory. Other errors mean that an interface cannot join, or not any
 * more. */
static bool group_is_shortage(int err)
{
	return err == -ENOMEM || err == -ENOBUFS || err == -EMFILE || err == -ENFILE;
}

/* Returns how many sockets all groups may have. */
static u32 group_sockets_most(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return 0;
	return (u32)MIN(limit.rlim_cur / 4, (rlim_t)UINT32_MAX);
}

u32 udp_groups_most(struct udp *udp)
{
	struct node_gid port[NODE_GIDS];
	int n = group_ports(udp, port);

	return n == 0 ? UINT32_MAX : group_sockets_most() / (u32)n;
}

/* Opens the group's socket on an interface. Returns 0 or a negative errno. */
static int group_open_port(struct udp *udp, struct udp_group *g, const struct node_gid *port)
	REQUIRES(udp->slots_lock)
{
	struct node_socket s = { .ifindex = port->ifindex };

	if (sockets_keep(udp, g, port->ifindex))
		return 0;
	if (sockets_of_groups(udp) >= group_sockets_most())
		return -EMFILE;
	s.fd = fd_own(node_mcast_socket(g->gid, port));
	if (s.fd < 0)
		return s.fd;
	memcpy(s.gid, g->gid, 16);
	if (sockets_add(udp, UDP_ANY_SLOT, 0, &s, g))
		return 0;
	close(s.fd);
	return -ENOMEM;
}

static int group_open(struct udp *udp, struct udp_group *g) REQUIRES(udp->slots_lock)
{
	struct node_gid port[NODE_GIDS];
	int n = group_ports(udp, port), err = 0;

	for (int i = 0; i < n; i++) {
		int failed = group_open_port(udp, g, &port[i]);

		if (failed != 0 && !group_is_shortage(err))
			err = failed;
	}
	if (err != 0)
		log_warn("udp", "a multicast group cannot be joined: %s", strerror(-err));
	return err;
}

/* groups are created and destroyed under slots_lock, too */
void group_open_all(struct udp *udp) NO_THREAD_SAFETY
{
	list_for_each(g, &udp->groups, struct udp_group, node)
		(void)group_open(udp, g);
}

/* *fresh: the group, if it is new; else NULL. */
static int group_add(struct udp *udp, const u8 gid[16], u32 qpn, struct udp_group **fresh)
	REQUIRES(udp->poll_lock)
{
	struct udp_group *g = group_find(udp, gid);
	u32 *grown;

	*fresh = g == NULL ? calloc(1, sizeof(*g)) : NULL;
	if (g == NULL)
		g = *fresh;
	grown = g == NULL ? NULL : realloc(g->qpns, (g->count + 1) * sizeof(*grown));
	if (grown == NULL) {
		free(*fresh);
		*fresh = NULL;
		return -ENOMEM;
	}
	g->qpns = grown;
	g->qpns[g->count++] = qpn;
	if (*fresh != NULL) {
		memcpy(g->gid, gid, 16);
		list_push_back(&udp->groups, &g->node);
	}
	return 0;
}

static void group_remove(struct udp_group *g, u32 qpn)
{
	for (u32 i = 0; i < g->count; i++)
		if (g->qpns[i] == qpn) {
			g->qpns[i] = g->qpns[--g->count];
			return;
		}
}

static void group_leave(struct udp *udp, const u8 gid[16], u32 qpn) REQUIRES(udp->slots_lock)
{
	struct udp_group *g;

	lock_acquire(&udp->poll_lock);
	g = group_find(udp, gid);
	if (g != NULL)
		group_remove(g, qpn);
	if (g != NULL && g->count != 0)
		g = NULL;
	if (g != NULL)
		list_remove(&g->node);
	lock_release(&udp->poll_lock);
	if (g != NULL) {
		sockets_drop_group(udp, g);
		free(g->qpns);
		free(g);
	}
}

int udp_group_join(struct udp *udp, const u8 group[16], u32 qpn)
{
	struct udp_group *fresh;
	u8 gid[16];
	int err;

	group_gid(group, gid);
	lock_acquire(&udp->slots_lock);
	lock_acquire(&udp->poll_lock);
	err = group_add(udp, gid, qpn, &fresh);
	lock_release(&udp->poll_lock);
	if (err == 0 && fresh != NULL) {
		err = group_open(udp, fresh);
		if (group_is_shortage(err)) {
			group_leave(udp, gid, qpn);
			err = -ENOMEM;
		}
	}
	lock_release(&udp->slots_lock);
	return err;
}

void udp_group_leave(struct udp *udp, const u8 group[16], u32 qpn)
{
	u8 gid[16];

	group_gid(group, gid);
	lock_acquire(&udp->slots_lock);
	group_leave(udp, gid, qpn);
	lock_release(&udp->slots_lock);
}

void group_free_all(struct udp *udp)
{
	struct list_head *node;

	while ((node = list_pop_front(&udp->groups)) != NULL) {
		struct udp_group *g = list_entry(node, struct udp_group, node);

		free(g->qpns);
		free(g);
	}
}
