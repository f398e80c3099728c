/* udp.c: addresses, their groups of UDP sockets, and the owner of each socket.
 * In:    addresses, slots                  Out: sockets, each bound and with its place in its group
 * Runs:  the daemon's only thread
 * Locks: an abstract name for the first node, and one per address, against other nodes; port 4791,
 *        against all programs
 */
#include "daemon/udp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/udp_program.h"
#include "node/udp_socket.h"

#ifndef SO_ATTACH_REUSEPORT_CBPF
#define SO_ATTACH_REUSEPORT_CBPF 51
#endif
#ifndef SO_COOKIE
#define SO_COOKIE 57
#endif

enum {
	UDP_BURST = 1024, /* datagrams discarded at a time */
};

#define UDP_FIRST "first"

static const char *daemon_udp_text(const u8 gid[16], char text[INET6_ADDRSTRLEN])
{
	bool v4 = node_udp_gid_is_v4(gid);

	return inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? gid + 12 : gid, text, INET6_ADDRSTRLEN);
}

static void daemon_udp_forget(struct reuseport_group *g)
{
	struct udp_addresses *all = g->all;
	u16 *slot_of = g->slot_of;

	memset(g, 0, sizeof(*g));
	memset(slot_of, 0, FDSTORE_MEMBERS * sizeof(*slot_of));
	g->slot_of = slot_of;
	g->all = all;
	g->own.fd = g->claim_fd = -1;
}

int daemon_udp_init(struct udp_addresses *u, struct loop *loop)
{
	int err;

	memset(u, 0, sizeof(*u));
	u->loop = loop;
	u->first_fd = -1;
	err = fdstore_open(&u->fdstore);
	for (int i = 0; err == 0 && i < NODE_GIDS; i++) {
		u->groups[i].slot_of = u->fdstore.table->slot_of[i];
		u->groups[i].all = u;
		daemon_udp_forget(&u->groups[i]);
	}
	return err;
}

static void daemon_udp_close(struct udp_addresses *u, struct reuseport_group *g)
{
	if (g->own.fd >= 0)
		loop_remove(u->loop, &g->own);
	if (g->claim_fd >= 0)
		close(g->claim_fd);
	for (u32 i = 0; i < g->count; i++)
		close(g->members[i].fd);
	free(g->members);
	daemon_udp_forget(g);
}

void daemon_udp_destroy(struct udp_addresses *u)
{
	/* the processes' copies of the table must stay unchanged */
	for (int i = 0; i < NODE_GIDS; i++) {
		u16 unused[FDSTORE_MEMBERS];

		u->groups[i].slot_of = unused;
		daemon_udp_close(u, &u->groups[i]);
	}
	if (u->first_fd >= 0)
		close(u->first_fd);
	fdstore_close(&u->fdstore);
}

static bool daemon_udp_is_of(const struct reuseport_group *g, const u8 gid[16])
{
	return (g->wanted || g->state != PROTO_UDP_NONE) && memcmp(g->gid, gid, 16) == 0;
}

struct reuseport_group *daemon_udp_find(struct udp_addresses *u, const u8 gid[16])
{
	for (int i = 0; i < NODE_GIDS; i++)
		if (u->groups[i].state == PROTO_UDP_OPEN && daemon_udp_is_of(&u->groups[i], gid))
			return &u->groups[i];
	return NULL;
}

/* ---- members ---- */

static u32 daemon_udp_row(const struct udp_addresses *u, const struct reuseport_group *g)
{
	return (u32)(g - u->groups);
}

/* Makes the descriptor the group's last member. */
static int daemon_udp_append(struct reuseport_group *g, int fd)
{
	struct udp_member *grown = g->members;
	u64 id = 0;
	socklen_t length = sizeof(id);

	if (g->count >= FDSTORE_MEMBERS)
		return -ENOSPC;
	if (g->count == g->space) {
		u32 space = g->space == 0 ? 4 : 2 * g->space;

		grown = realloc(grown, space * sizeof(*grown));
		if (grown == NULL)
			return -ENOMEM;
		g->members = grown;
		g->space = space;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &id, &length) < 0)
		return -errno;
	g->members[g->count++] = (struct udp_member){ .fd = fd, .id = id };
	return 0;
}

/* Puts a member into the fdstore. */
static void daemon_udp_keep(struct udp_addresses *u, const struct reuseport_group *g, u32 index)
{
	struct fdstore_item item = { .row = daemon_udp_row(u, g),
				     .index = index,
				     .ifindex = g->ifindex };
	int err;

	memcpy(item.gid, g->gid, 16);
	err = fdstore_add(&u->fdstore, &item, g->members[index].fd);
	if (err < 0 && !u->fdstore_full)
		log_warn("node",
			 "so many UDP sockets cannot be kept for a node that takes over: %s",
			 strerror(-err));
	u->fdstore_full |= err < 0;
}

/* The processes hold the name, too: while there is no node no other one becomes the first. */
static void daemon_udp_keep_first(struct udp_addresses *u)
{
	struct fdstore_item item = { .row = FDSTORE_FIRST_ROW };

	if (u->first_fd >= 0)
		(void)fdstore_add(&u->fdstore, &item, u->first_fd);
}

/* Rebuilds the fdstore from the present members. */
static void daemon_udp_keep_all(struct udp_addresses *u)
{
	fdstore_clear(&u->fdstore);
	u->fdstore_full = false;
	daemon_udp_keep_first(u);
	for (int i = 0; i < NODE_GIDS; i++)
		for (u32 k = 0; k < u->groups[i].count; k++)
			daemon_udp_keep(u, &u->groups[i], k);
}

/* Binding the first socket without SO_REUSEPORT fails if any program has the port, of whichever
 * user and with whichever options. Set afterwards, the option lets the group's other sockets
 * join. */
static int daemon_udp_add_member(struct udp_addresses *u, struct reuseport_group *g)
{
	int err, one = 1, fd = node_udp_socket_open(g->gid);
	bool first = g->count == 0;

	if (fd < 0)
		return fd;
	err = 0;
	if (!first && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) < 0)
		err = -errno;
	if (err == 0)
		err = node_udp_socket_bind(fd, g->gid, g->ifindex);
	if (err == 0 && first && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) < 0)
		err = -errno;
	if (err == 0)
		err = daemon_udp_append(g, fd);
	if (err < 0)
		close(fd);
	else
		daemon_udp_keep(u, g, g->count - 1);
	return err;
}

/* Attaches the kernel's program for the members' slots. */
static int daemon_udp_steer(struct reuseport_group *g)
{
	struct sock_filter code[UDP_PROGRAM_MAX];
	struct sock_fprog program = { .filter = code };
	u16 member_of[NODE_SLOTS] = { 0 };

	/* a single socket is no group */
	if (g->count < 2)
		return 0;
	for (u32 i = 1; i < g->count; i++)
		member_of[g->slot_of[i] % NODE_SLOTS] = (u16)i;
	program.len = (u16)daemon_udp_program_build(member_of, code);
	if (setsockopt(g->members[0].fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program,
		       sizeof(program)) < 0)
		return -errno;
	return 0;
}

/* Returns the member of a slot, or, for slot 0, a free one; 0: none. */
static u32 daemon_udp_index_of(const struct reuseport_group *g, u32 slot)
{
	for (u32 i = 1; i < g->count; i++)
		if (g->slot_of[i] == slot)
			return i;
	return 0;
}

const struct udp_member *daemon_udp_member_of(struct udp_addresses *u, struct reuseport_group *g,
					      u32 slot, int *err)
{
	u32 index = daemon_udp_index_of(g, slot);

	*err = 0;
	if (index != 0)
		return &g->members[index];
	index = daemon_udp_index_of(g, 0);
	if (index == 0) {
		index = g->count;
		*err = daemon_udp_add_member(u, g);
	}
	if (*err < 0)
		return NULL;
	/* discards what arrived after its last owner had gone */
	node_udp_socket_drain(g->members[index].fd, UDP_BURST);
	g->slot_of[index] = (u16)slot;
	*err = daemon_udp_steer(g);
	if (*err == 0)
		return &g->members[index];
	g->slot_of[index] = 0;
	return NULL;
}

static void daemon_udp_release_member(struct reuseport_group *g, u32 index)
{
	int err;

	g->slot_of[index] = 0;
	err = daemon_udp_steer(g);
	if (err < 0)
		log_warn("node", "cannot steer datagrams: %s", strerror(-err));
	node_udp_socket_drain(g->members[index].fd, UDP_BURST);
}

void daemon_udp_release(struct udp_addresses *u, u32 slot)
{
	for (int i = 0; i < NODE_GIDS; i++) {
		u32 index = daemon_udp_index_of(&u->groups[i], slot);

		if (index != 0)
			daemon_udp_release_member(&u->groups[i], index);
	}
}

/* ---- addresses ---- */

/* One datagram, or several of one length that the kernel has joined. Those to QP1 may be for a
 * process; all others are for nobody. */
static void daemon_udp_sort(struct udp_addresses *u, struct reuseport_group *g,
			    struct node_mad *mad, u32 length)
{
	u32 at = 0;

	memcpy(mad->dgid, g->gid, 16);
	for (; u->to_qp1 != NULL && at + NODE_MAD_BYTES <= length; at += NODE_MAD_BYTES) {
		memcpy(mad->payload, u->inbox + at, NODE_MAD_BYTES);
		g->dropped += !u->to_qp1(u->to_qp1_arg, mad);
	}
	g->dropped += at < length;
}

/* Datagrams without an owner. */
static void daemon_udp_on_own(struct loop_source *s, u32 events)
{
	struct reuseport_group *g = container_of(s, struct reuseport_group, own);
	struct node_mad mad = { .sport = 0 };
	int length;

	for (int i = 0; i < UDP_BURST; i++) {
		length = node_udp_socket_read(s->fd, g->all->inbox, sizeof(g->all->inbox), &mad);
		if (length < 0)
			return;
		daemon_udp_sort(g->all, g, &mad, (u32)length);
	}
}

int daemon_udp_send_mad(struct udp_addresses *u, const struct node_mad *m)
{
	struct reuseport_group *g = daemon_udp_find(u, m->sgid);

	if (g == NULL || g->count == 0 ||
	    node_udp_gid_is_v4(m->sgid) != node_udp_gid_is_v4(m->dgid))
		return -ENETUNREACH;
	return node_udp_socket_send(g->members[0].fd, m, g->ifindex);
}

/* Records what has become of an address, and logs it once. */
static void daemon_udp_set_state(struct reuseport_group *g, int err)
{
	enum proto_udp_state state = err == 0		     ? PROTO_UDP_OPEN
				     : err == -EADDRINUSE    ? PROTO_UDP_TAKEN
				     : err == -EADDRNOTAVAIL ? PROTO_UDP_ABSENT
							     : PROTO_UDP_FAILED;
	char text[INET6_ADDRSTRLEN];

	if (state == g->state && err == g->err)
		return;
	g->state = state;
	g->err = err;
	daemon_udp_text(g->gid, text);
	if (state == PROTO_UDP_OPEN)
		log_info("node", "%s: UDP port %d is open", text, NODE_UDP_PORT);
	else if (state == PROTO_UDP_TAKEN)
		log_error("node",
			  "%s: UDP port %d is taken by another program: other hosts are out of "
			  "reach until it is free; processes of this node reach each other",
			  text, NODE_UDP_PORT);
	else
		log_error("node", "%s: no UDP socket: %s: other hosts are out of reach from there",
			  text, strerror(-err));
}

static int daemon_udp_watch_own(struct udp_addresses *u, struct reuseport_group *g)
{
	return loop_add(u->loop, &g->own, g->members[0].fd, EPOLLIN, daemon_udp_on_own);
}

static void daemon_udp_open(struct udp_addresses *u, struct reuseport_group *g)
{
	int err = daemon_udp_add_member(u, g);

	if (err == 0) {
		err = daemon_udp_watch_own(u, g);
		if (err < 0) {
			close(g->members[--g->count].fd);
			daemon_udp_keep_all(u); /* there the descriptor would still hold the port */
		}
	}
	daemon_udp_set_state(g, err);
}

static socklen_t daemon_udp_name(struct sockaddr_un *name, const char *what)
{
	int n;

	memset(name, 0, sizeof(*name));
	name->sun_family = AF_UNIX;
	n = snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1, "anyverbs-address/%s", what);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* Two nodes of one network namespace, of whichever users, cannot both hold a name. *fd holds it, or
 * stays -1: after other errors the UDP port decides. */
static bool daemon_udp_take_name(const char *what, int *fd)
{
	struct sockaddr_un name;
	socklen_t length = daemon_udp_name(&name, what);
	int err, s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (s < 0)
		return true;
	if (bind(s, (struct sockaddr *)&name, length) == 0) {
		*fd = s;
		return true;
	}
	err = errno;
	close(s);
	return err != EADDRINUSE;
}

bool daemon_udp_be_first(struct udp_addresses *u)
{
	if (u->first_fd >= 0)
		return true;
	if (!daemon_udp_take_name(UDP_FIRST, &u->first_fd))
		return false;
	daemon_udp_keep_first(u);
	return true;
}

static bool daemon_udp_claim(struct reuseport_group *g)
{
	char text[INET6_ADDRSTRLEN], name[INET6_ADDRSTRLEN + 16];

	snprintf(name, sizeof(name), "%s%%%u", daemon_udp_text(g->gid, text),
		 node_udp_scope(g->gid, g->ifindex));
	if (daemon_udp_take_name(name, &g->claim_fd))
		return true;
	if (g->state != PROTO_UDP_OTHER)
		log_error("node",
			  "%s: another node of this network namespace has this address: it is not "
			  "ours (ANYVERBS_ADDR says which node gets which)",
			  text);
	g->state = PROTO_UDP_OTHER;
	g->err = -EADDRINUSE;
	return false;
}

void daemon_udp_look_begin(struct udp_addresses *u)
{
	for (int i = 0; i < NODE_GIDS; i++)
		u->groups[i].seen = false;
}

/* Returns an address' entry: the one that it has, else a free one, else that of an address that has
 * gone. */
static struct reuseport_group *daemon_udp_place(struct udp_addresses *u, const u8 gid[16],
						u32 ifindex)
{
	struct reuseport_group *unused = NULL;

	for (int i = 0; i < NODE_GIDS; i++) {
		struct reuseport_group *g = &u->groups[i];

		if (daemon_udp_is_of(g, gid) &&
		    node_udp_scope(gid, g->ifindex) == node_udp_scope(gid, ifindex))
			return g;
		if (!g->wanted && (unused == NULL || unused->count > g->count))
			unused = g;
	}
	return unused;
}

/* Gives the entry to an address. Its old sockets leave the fdstore. */
static void daemon_udp_begin(struct udp_addresses *u, struct reuseport_group *g, const u8 gid[16])
{
	bool kept = g->count > 0;

	daemon_udp_close(u, g);
	memcpy(g->gid, gid, 16);
	if (kept)
		daemon_udp_keep_all(u);
}

/* Returns the address' entry during a look; NULL: more addresses than entries. */
static struct reuseport_group *daemon_udp_see(struct udp_addresses *u, const u8 gid[16],
					      u32 ifindex)
{
	struct reuseport_group *g = daemon_udp_place(u, gid, ifindex);

	if (g == NULL)
		return NULL;
	if (!daemon_udp_is_of(g, gid) ||
	    node_udp_scope(gid, g->ifindex) != node_udp_scope(gid, ifindex))
		daemon_udp_begin(u, g, gid);
	g->wanted = g->seen = true;
	g->ifindex = ifindex;
	return g;
}

bool daemon_udp_want(struct udp_addresses *u, const u8 gid[16], u32 ifindex)
{
	struct reuseport_group *g = daemon_udp_see(u, gid, ifindex);

	return g != NULL && (g->claim_fd >= 0 || daemon_udp_claim(g));
}

void daemon_udp_leave(struct udp_addresses *u, const u8 gid[16], u32 ifindex)
{
	struct reuseport_group *g = daemon_udp_see(u, gid, ifindex);

	if (g == NULL || g->count > 0)
		return;
	g->state = PROTO_UDP_OTHER;
	g->err = -EADDRINUSE;
}

bool daemon_udp_look_end(struct udp_addresses *u)
{
	bool all = true;

	for (int i = 0; i < NODE_GIDS; i++) {
		struct reuseport_group *g = &u->groups[i];

		g->wanted = g->seen;
		/* an address that goes may come back, and its sockets work then */
		if (!g->wanted && g->state != PROTO_UDP_NONE && g->count == 0)
			daemon_udp_close(u, g);
		if (!g->wanted)
			continue;
		if (g->state != PROTO_UDP_OPEN && (g->state != PROTO_UDP_OTHER || g->claim_fd >= 0))
			daemon_udp_open(u, g);
		all &= g->state == PROTO_UDP_OPEN;
	}
	return all;
}

void daemon_udp_mark(struct udp_addresses *u, struct node_config *c)
{
	for (int i = 0; i < NODE_GIDS; i++) {
		struct reuseport_group *g = daemon_udp_find(u, c->gids[i].gid);

		c->gids[i].flags &= (u16)~NODE_GID_WIRE;
		if (g != NULL && g->wanted)
			c->gids[i].flags |= NODE_GID_WIRE;
	}
}

/* ---- taking over ---- */

/* Tells whether it is a UDP socket of this address and the port. */
static bool daemon_udp_fits(int fd, const struct fdstore_item *item)
{
	struct sockaddr_storage found, expected;
	socklen_t size = sizeof(found),
		  length = node_udp_address(item->gid, item->ifindex, &expected);
	int protocol = 0;
	socklen_t n = sizeof(protocol);

	memset(&found, 0, sizeof(found));
	return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &n) == 0 &&
	       protocol == IPPROTO_UDP && getsockname(fd, (struct sockaddr *)&found, &size) == 0 &&
	       size == length && memcmp(&found, &expected, length) == 0;
}

/* Returns the next member of a row; -1: not among those found. */
static int daemon_udp_found(const struct fdstore_found *f, u32 row, u32 index)
{
	for (u32 i = 0; i < f->count; i++)
		if (f->items[i].row == row && f->items[i].index == index && f->fds[i] >= 0 &&
		    daemon_udp_fits(f->fds[i], &f->items[i]))
			return (int)i;
	return -1;
}

/* Takes all members of one group, in order. If one is missing it was closed, and the kernel has
 * moved another to its place: the order is unknown, and the port is free once all of them have
 * gone. */
static bool daemon_udp_is_whole(const struct fdstore_found *f, u32 row)
{
	u32 count = 0, highest = 0;

	for (u32 i = 0; i < f->count; i++) {
		if (f->items[i].row != row)
			continue;
		count++;
		highest = MAX(highest, f->items[i].index);
	}
	for (u32 i = 0; i < count; i++)
		if (daemon_udp_found(f, row, i) < 0)
			return false;
	return count > 0 && highest == count - 1;
}

static int daemon_udp_adopt_members(struct udp_addresses *u, struct reuseport_group *g,
				    struct fdstore_found *f, u32 row)
{
	int err = 0, i;

	while (err == 0 && (i = daemon_udp_found(f, row, g->count)) >= 0) {
		g->slot_of[g->count] = f->table.slot_of[row][g->count] % NODE_SLOTS;
		err = daemon_udp_append(g, f->fds[i]);
		if (err < 0)
			break;
		f->fds[i] = -1;
		daemon_udp_keep(u, g, g->count - 1);
	}
	return err < 0 ? err : daemon_udp_watch_own(u, g);
}

static bool daemon_udp_adopt_group(struct udp_addresses *u, struct fdstore_found *f, u32 row)
{
	int err, first = daemon_udp_found(f, row, 0);
	const struct fdstore_item *item = &f->items[MAX(first, 0)];
	struct reuseport_group *g;

	if (first < 0 || !daemon_udp_is_whole(f, row)) {
		if (first >= 0)
			log_warn("node", "sockets of an earlier node are not complete");
		return false;
	}
	g = daemon_udp_place(u, item->gid, item->ifindex);
	if (g == NULL || g->count > 0)
		return false;
	if (!daemon_udp_is_of(g, item->gid))
		daemon_udp_begin(u, g, item->gid);
	g->ifindex = item->ifindex;
	if (g->claim_fd < 0 && !daemon_udp_claim(g))
		return false;
	err = daemon_udp_adopt_members(u, g, f, row);
	if (err == 0)
		err = daemon_udp_steer(g);
	if (err < 0) {
		log_error("node", "cannot take over UDP sockets: %s", strerror(-err));
		daemon_udp_close(u, g);
		daemon_udp_keep_all(u);
		return false;
	}
	daemon_udp_set_state(g, 0);
	return true;
}

/* Takes the name of the first node, which the processes kept. */
static void daemon_udp_adopt_first(struct udp_addresses *u, struct fdstore_found *f)
{
	struct sockaddr_un found, expected;
	socklen_t length = daemon_udp_name(&expected, UDP_FIRST);

	for (u32 i = 0; i < f->count && u->first_fd < 0; i++) {
		socklen_t size = sizeof(found);

		if (f->items[i].row != FDSTORE_FIRST_ROW ||
		    getsockname(f->fds[i], (struct sockaddr *)&found, &size) < 0 ||
		    size != length || memcmp(&found, &expected, length) != 0)
			continue;
		u->first_fd = f->fds[i];
		f->fds[i] = -1;
		daemon_udp_keep_first(u);
	}
}

u32 daemon_udp_adopt(struct udp_addresses *u, int out, bool (*in_use)(void *arg, u32 slot),
		     void *arg)
{
	struct fdstore_found *f = malloc(sizeof(*f));
	u32 count = 0;

	if (f == NULL || fdstore_receive(out, f) < 0) {
		free(f);
		return 0;
	}
	daemon_udp_adopt_first(u, f);
	for (u32 row = 0; row < NODE_GIDS; row++)
		count += daemon_udp_adopt_group(u, f, row);
	fdstore_discard(f);
	free(f);
	for (int i = 0; i < NODE_GIDS; i++)
		for (u32 k = 1; k < u->groups[i].count; k++)
			if (u->groups[i].slot_of[k] != 0 && !in_use(arg, u->groups[i].slot_of[k]))
				daemon_udp_release_member(&u->groups[i], k);
	return count;
}

u32 daemon_udp_report(const struct udp_addresses *u, struct proto_address out[NODE_GIDS])
{
	u32 count = 0;

	for (int i = 0; i < NODE_GIDS; i++) {
		const struct reuseport_group *g = &u->groups[i];
		struct proto_address *a = &out[count];

		if (!g->wanted)
			continue;
		*a = (struct proto_address){ .ifindex = g->ifindex,
					     .state = g->state,
					     .err = g->err,
					     .sockets = g->count,
					     .dropped = g->dropped };
		memcpy(a->gid, g->gid, 16);
		for (u32 k = 1; k < g->count; k++)
			a->slots += g->slot_of[k] != 0;
		for (u32 k = 0; k < g->count; k++)
			a->lost += node_udp_socket_lost(g->members[k].fd);
		count++;
	}
	return count;
}
