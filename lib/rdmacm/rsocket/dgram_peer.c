/* dgram_peer.c: what a datagram rsocket knows of each address that it sends to or hears from.
 * In:    addresses, messages of UDP sockets     Out: queue pairs, address handles
 * Runs:  the application's threads, udp.c's     Locks: dgram.lock (the caller's)
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "dgram.h"

/* Meanwhile the UDP sockets carry the datagrams. */
#define PEER_RETRY_NS (10 * NS_PER_S)

void dgram_peers_init(struct dgram *d)
{
	for (u32 i = 0; i < DGRAM_BUCKETS; i++)
		list_init(&d->buckets[i]);
	list_init(&d->recent);
}

static struct list_head *peer_bucket(struct dgram *d, const union dgram_addr *addr)
	REQUIRES(d->lock)
{
	u8 gid[16];
	u32 hash = addr->in.sin_port; /* both families have the port there */

	dgram_addr_gid(addr, gid);
	for (u32 i = 0; i < sizeof(gid); i++)
		hash = hash * 31 + gid[i];
	return &d->buckets[(hash ^ hash >> 8 ^ hash >> 16) % DGRAM_BUCKETS];
}

static struct dgram_peer *peer_find(struct dgram *d, struct list_head *bucket,
				    const union dgram_addr *addr) REQUIRES(d->lock)
{
	list_for_each(peer, bucket, struct dgram_peer, node)
		if (dgram_addr_equal(&peer->addr, addr))
			return peer;
	return NULL;
}

static void peer_free(struct dgram *d, struct dgram_peer *peer) REQUIRES(d->lock)
{
	list_remove(&peer->node);
	list_remove(&peer->recent);
	d->peer_count--;
	if (peer->ah != NULL)
		ibv_destroy_ah(peer->ah);
	free(peer);
}

/* Makes room for one more. */
static void peer_forget_oldest(struct dgram *d) REQUIRES(d->lock)
{
	struct dgram_peer *oldest = list_entry(d->recent.prev, struct dgram_peer, recent);

	if (oldest == d->connected)
		oldest = list_entry(oldest->recent.prev, struct dgram_peer, recent);
	peer_free(d, oldest);
}

static int peer_make(struct dgram *d, const union dgram_addr *addr, const union dgram_addr *local,
		     struct dgram_peer **out) REQUIRES(d->lock)
{
	union dgram_addr source;
	struct dgram_peer *peer;
	struct dgram_qp *qp;
	int err = 0;

	if (local == NULL) {
		err = udp_source(d->rs.fd, addr, &source);
		local = &source;
	}
	if (err == 0)
		err = dgram_qp_get(d, local, &qp);
	if (err < 0)
		return err;
	peer = calloc(1, sizeof(*peer));
	if (peer == NULL)
		return -ENOMEM;
	if (d->peer_count == DGRAM_PEERS)
		peer_forget_oldest(d);
	peer->addr = *addr;
	peer->qp = qp;
	dgram_qp_name(qp, addr);
	list_push_front(peer_bucket(d, addr), &peer->node);
	list_push_front(&d->recent, &peer->recent);
	d->peer_count++;
	*out = peer;
	return 0;
}

int dgram_peer_get(struct dgram *d, const union dgram_addr *addr, const union dgram_addr *local,
		   struct dgram_peer **out)
{
	struct dgram_peer *peer;

	if (!list_empty(&d->recent)) {
		peer = list_first(&d->recent, struct dgram_peer, recent);
		if (dgram_addr_equal(&peer->addr, addr)) {
			*out = peer;
			return 0;
		}
	}
	peer = peer_find(d, peer_bucket(d, addr), addr);
	if (peer == NULL)
		return peer_make(d, addr, local, out);
	list_remove(&peer->recent);
	list_push_front(&d->recent, &peer->recent);
	*out = peer;
	return 0;
}

/* The GID of the peer's queue pair. A message that says another one than it comes from may be
 * forged, to divert what is sent to the peer. Only this host sends from a loopback address, which
 * is no GID: its queue pairs have any GID of the host. False: nothing is learned of the message. */
static bool peer_take_gid(const struct dgram_peer *peer, const struct dgram_hello *hello,
			  u8 gid[16])
{
	static const u8 none[16];

	dgram_addr_gid(&peer->addr, gid);
	if (memcmp(hello->gid, none, sizeof(none)) == 0 ||
	    memcmp(hello->gid, gid, sizeof(none)) == 0)
		return true;
	memcpy(gid, hello->gid, sizeof(none));
	return dgram_addr_is_loopback(&peer->addr) && dgram_qp_has_near(peer->qp, gid);
}

void dgram_peer_learn(struct dgram_peer *peer, const struct dgram_hello *hello)
{
	struct ibv_ah *ah;
	u8 gid[16];

	if (!peer_take_gid(peer, hello, gid))
		return;
	peer->qpn = hello->qpn;
	if (peer->ah != NULL && memcmp(gid, peer->gid, sizeof(gid)) == 0)
		return;
	if (clock_now_ns() < peer->retry_ns)
		return;
	ah = dgram_qp_ah(peer->qp, gid);
	peer->retry_ns = ah == NULL ? clock_now_ns() + PEER_RETRY_NS : 0;
	if (ah == NULL)
		return;
	if (peer->ah != NULL)
		ibv_destroy_ah(peer->ah);
	peer->ah = ah;
	memcpy(peer->gid, gid, sizeof(gid));
}

void dgram_peers_destroy(struct dgram *d)
{
	while (!list_empty(&d->recent))
		peer_free(d, list_first(&d->recent, struct dgram_peer, recent));
	d->connected = NULL;
}
