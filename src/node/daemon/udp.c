/* udp.c: groups of UDP sockets and who has which.
 * In:    addresses, slots                  Out: sockets, each bound and with its place in its group
 * Runs:  the daemon's only thread
 * Locks: port 4791 of each address, against another owner
 */
#include "node/daemon/udp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "node/daemon/udp_program.h"
#include "node/udp_socket.h"

#ifndef SO_ATTACH_REUSEPORT_CBPF
#define SO_ATTACH_REUSEPORT_CBPF 51
#endif
#ifndef SO_COOKIE
#define SO_COOKIE 57
#endif

enum {
	UDP_BURST = 1024, /* datagrams thrown away at a time */
};

static const char *udp_text(const u8 gid[16], char text[INET6_ADDRSTRLEN])
{
	bool v4 = udp_gid_is_v4(gid);

	return inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? gid + 12 : gid, text, INET6_ADDRSTRLEN);
}

void udp_init(struct udp *u, struct loop *loop)
{
	memset(u, 0, sizeof(*u));
	u->loop = loop;
	for (int i = 0; i < NODE_GIDS; i++)
		u->groups[i].own.fd = -1;
}

static void udp_close(struct udp *u, struct udp_group *g)
{
	if (g->own.fd >= 0)
		loop_remove(u->loop, &g->own);
	for (u32 i = 0; i < g->count; i++)
		close(g->members[i].fd);
	free(g->members);
	memset(g, 0, sizeof(*g));
	g->own.fd = -1;
}

void udp_destroy(struct udp *u)
{
	for (int i = 0; i < NODE_GIDS; i++)
		udp_close(u, &u->groups[i]);
}

struct udp_group *udp_find(struct udp *u, const u8 gid[16])
{
	for (int i = 0; i < NODE_GIDS; i++)
		if (u->groups[i].state != UDP_NONE && memcmp(u->groups[i].gid, gid, 16) == 0)
			return &u->groups[i];
	return NULL;
}

/* ---- members ---- */

/* The descriptor becomes the group's last member. */
static int udp_append(struct udp_group *g, int fd)
{
	struct udp_member *grown = g->members;
	u64 id = 0;
	socklen_t length = sizeof(id);

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

/* Binding the first socket without SO_REUSEPORT fails if anybody has the port, of whatever user and
 * with whatever options. Set afterwards, it lets ours join. */
static int udp_add_member(struct udp_group *g)
{
	int err, one = 1, fd = udp_socket_open(g->gid);
	bool first = g->count == 0;

	if (fd < 0)
		return fd;
	err = 0;
	if (!first && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) < 0)
		err = -errno;
	if (err == 0)
		err = udp_socket_bind(fd, g->gid, g->ifindex);
	if (err == 0 && first && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) < 0)
		err = -errno;
	if (err == 0)
		err = udp_append(g, fd);
	if (err < 0)
		close(fd);
	return err;
}

/* Brings the kernel's program up to the members' slots. */
static int udp_steer(struct udp_group *g)
{
	struct sock_filter code[UDP_PROGRAM_MAX];
	struct sock_fprog program = { .filter = code };
	u16 member_of[NODE_SLOTS] = { 0 };

	for (u32 i = 1; i < g->count; i++)
		member_of[g->members[i].slot] = (u16)i;
	member_of[0] = 0;
	program.len = (u16)udp_program_build(member_of, code);
	if (setsockopt(g->members[0].fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program,
		       sizeof(program)) < 0)
		return -errno;
	return 0;
}

static struct udp_member *udp_member_find(struct udp_group *g, u32 slot)
{
	for (u32 i = 1; i < g->count; i++)
		if (g->members[i].slot == slot)
			return &g->members[i];
	return NULL;
}

const struct udp_member *udp_member_of(struct udp_group *g, u32 slot, int *err)
{
	struct udp_member *m = udp_member_find(g, slot);

	if (m != NULL)
		return m;
	m = udp_member_find(g, 0);
	if (m == NULL) {
		*err = udp_add_member(g);
		if (*err < 0)
			return NULL;
		m = &g->members[g->count - 1];
	}
	/* what was on its way when its last owner went */
	udp_socket_drain(m->fd, UDP_BURST);
	m->slot = slot;
	*err = udp_steer(g);
	if (*err == 0)
		return m;
	m->slot = 0;
	return NULL;
}

void udp_release(struct udp *u, u32 slot)
{
	for (int i = 0; i < NODE_GIDS; i++) {
		struct udp_member *m = udp_member_find(&u->groups[i], slot);
		int err;

		if (m == NULL)
			continue;
		m->slot = 0;
		err = udp_steer(&u->groups[i]);
		if (err < 0)
			log_warn("node", "cannot steer datagrams: %s", strerror(-err));
		udp_socket_drain(m->fd, UDP_BURST);
	}
}

/* ---- groups ---- */

/* What nobody is there for. */
static void udp_on_own(struct loop_source *s, u32 events)
{
	struct udp_group *g = container_of(s, struct udp_group, own);

	g->dropped += udp_socket_drain(s->fd, UDP_BURST);
}

static void udp_open(struct udp *u, struct udp_group *g)
{
	char text[INET6_ADDRSTRLEN];
	int err = udp_add_member(g);

	if (err == 0) {
		err = loop_add(u->loop, &g->own, g->members[0].fd, EPOLLIN, udp_on_own);
		if (err < 0)
			close(g->members[--g->count].fd);
	}
	g->err = err;
	g->state = err == 0 ? UDP_OPEN : err == -EADDRINUSE ? UDP_TAKEN : UDP_FAILED;
	if (err == 0)
		log_info("node", "UDP port %d of %s is open", NODE_UDP_PORT,
			 udp_text(g->gid, text));
	else
		log_error("node", "UDP port %d of %s: %s: other hosts cannot be reached from there",
			  NODE_UDP_PORT, udp_text(g->gid, text),
			  err == -EADDRINUSE ? "somebody else has it" : strerror(-err));
}

static struct udp_group *udp_begin(struct udp *u, const struct node_gid *gid)
{
	for (int i = 0; i < NODE_GIDS; i++) {
		struct udp_group *g = &u->groups[i];

		if (g->state != UDP_NONE)
			continue;
		memcpy(g->gid, gid->gid, 16);
		g->ifindex = gid->ifindex;
		udp_open(u, g);
		return g;
	}
	return NULL;
}

void udp_update(struct udp *u, struct node_config *c)
{
	for (int i = 0; i < NODE_GIDS; i++) {
		struct node_gid *gid = &c->gids[i];
		struct udp_group *g;

		/* no address of an interface */
		if (gid->ifindex == 0 || i == 0)
			continue;
		g = udp_find(u, gid->gid);
		if (g == NULL)
			g = udp_begin(u, gid);
		gid->flags &= (u16)~NODE_GID_WIRE;
		if (g != NULL && g->state == UDP_OPEN)
			gid->flags |= NODE_GID_WIRE;
	}
}
