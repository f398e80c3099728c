/* lanes.c: sockets that only send, from source ports of their own, so that the flows between two
 * hosts spread over the network's routes.
 *
 * A flow's port says which of a few lanes it takes; the first destination that needs a lane opens
 * it, at its flow's port. At most UDP_LANES for an address and UDP_LANE_SOCKETS in all: each is a
 * descriptor. If one cannot be opened port 4791 serves. Responses go to port 4791 anyway; the
 * kernel drops what comes to a lane.
 *
 * In:    keys of destinations, the ports they should have    Out: struct udp_socket
 * Runs:  any thread; makes system calls, none of which blocks    Locks: lock
 */
#include "path/udp/udp_priv.h"

#include <errno.h>
#include <linux/filter.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "node/udp_socket.h"

enum { LANE_TRIES = 4 };

/* What a lane has in common with the socket of port 4791 at its address. */
struct lanes_beside {
	u32 ifindex;
	struct path_traffic *traffic;
} OWNED_BY(the caller);

u8 lanes_of(const struct udp *udp, u16 sport)
{
	u32 lanes = MIN(udp->cfg.lanes, (u32)UDP_LANES);

	return sport == 0 || lanes == 0 ? 0 : (u8)(1 + sport % lanes);
}

static struct udp_socket *lanes_find(struct udp *udp, const struct udp_key *key)
	REQUIRES(udp->lock)
{
	for (u32 i = 0; i < udp->socket_count; i++)
		if (udp->sockets[i]->lane == key->lane &&
		    memcmp(udp->sockets[i]->gid, key->local, 16) == 0)
			return udp->sockets[i];
	return NULL;
}

struct udp_socket *lanes_choose(struct udp *udp, const struct udp_key *key)
{
	struct udp_socket *own = sockets_find(udp, key->local), *lane;

	if (own == NULL || key->lane == 0)
		return own;
	lane = lanes_find(udp, key);
	return lane == NULL ? own : lane;
}

/* Other processes of this user may share the port: none receives there. */
int lanes_bind(int fd, const u8 gid[16], u32 ifindex, u16 sport, bool shared)
{
	struct sock_filter none = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog program = { .len = 1, .filter = &none };
	struct sockaddr_storage address;
	socklen_t length = node_udp_address(gid, ifindex, &address);
	int reuse = shared;

	if (address.ss_family == AF_INET)
		((struct sockaddr_in *)&address)->sin_port = htons(sport);
	else
		((struct sockaddr_in6 *)&address)->sin6_port = htons(sport);
	if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &reuse, sizeof(reuse)) < 0 ||
	    bind(fd, (struct sockaddr *)&address, length) < 0)
		return -errno;
	return 0;
}

/* If another program has the port, another port of the lane serves. */
static int lanes_bind_any(const struct udp *udp, struct udp_socket *s, u16 sport)
{
	u32 step = MIN(udp->cfg.lanes, (u32)UDP_LANES);
	int err = -EADDRINUSE;

	for (u32 i = 0; i < LANE_TRIES && err == -EADDRINUSE; i++) {
		u32 port = sport + i * step > UINT16_MAX ? sport - i * step : sport + i * step;

		err = lanes_bind(s->port.fd, s->gid, s->ifindex, (u16)port, true);
		s->port.sport = (u16)port;
	}
	return err;
}

static struct udp_socket *lanes_create(const struct udp *udp, const struct udp_key *key,
				       const struct lanes_beside *beside, u16 sport)
{
	struct udp_socket *s = calloc(1, sizeof(*s));
	int err;

	if (s == NULL)
		return NULL;
	memcpy(s->gid, key->local, 16);
	s->v4 = roce_gid_is_ipv4(s->gid);
	s->ifindex = beside->ifindex;
	s->traffic = beside->traffic;
	s->lane = key->lane;
	s->port.ops = &udp_port_ops_shared;
	s->port.fd = node_udp_socket_open(s->gid);
	err = s->port.fd < 0 ? s->port.fd : lanes_bind_any(udp, s, sport);
	if (err == 0) {
		sockets_set_class(s);
		sockets_set_hops(s, key->hops);
		return s;
	}
	log_debug("udp", "no socket for source port %u: %s", sport, strerror(-err));
	if (s->port.fd >= 0)
		close(s->port.fd);
	free(s);
	return NULL;
}

static bool lanes_wants(struct udp *udp, const struct udp_key *key, struct lanes_beside *beside)
	REQUIRES(udp->lock)
{
	struct udp_socket *own = lanes_choose(udp, key);
	u32 count = 0;

	for (u32 i = 0; i < udp->socket_count; i++)
		count += udp->sockets[i]->lane != 0;
	if (own == NULL || own->lane != 0 || count >= UDP_LANE_SOCKETS)
		return false;
	*beside = (struct lanes_beside){ own->ifindex, own->traffic };
	return true;
}

void lanes_open(struct udp *udp, const struct udp_key *key, u16 sport)
{
	struct udp_socket *s;
	struct lanes_beside beside = { 0 };
	bool wanted;

	lock_acquire(&udp->lock);
	wanted = lanes_wants(udp, key, &beside);
	lock_release(&udp->lock);
	s = wanted ? lanes_create(udp, key, &beside, sport) : NULL;
	if (s == NULL)
		return;
	lock_acquire(&udp->lock);
	/* another thread may have been faster, or the address may have left */
	wanted = lanes_wants(udp, key, &beside) && sockets_insert(udp, s);
	lock_release(&udp->lock);
	if (wanted)
		return;
	close(s->port.fd);
	free(s);
}
