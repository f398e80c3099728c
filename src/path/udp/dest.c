/* dest.c: destinations and sources, by address.
 * In: address vectors, senders' addresses    Out: struct udp_dest
 * Runs: any thread    Locks: lock; reaping under poll_lock too
 */
#include "path/udp/udp_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "wire/roce.h"

/* Multilinear hashing with random multipliers: a sender that chooses two keys cannot make them
 * share a bucket but by chance. */
static u32 dest_bucket(const struct udp *udp, const struct udp_key *key)
{
	u32 words[UDP_HASH_WORDS];
	u64 hash = udp->hash_key[UDP_HASH_WORDS];

	memcpy(words, key->remote, 16);
	memcpy(words + 4, key->local, 16);
	words[8] = key->flow_label;
	words[9] = key->slot | (u32)key->lane << 16;
	for (u32 i = 0; i < UDP_HASH_WORDS; i++)
		hash += udp->hash_key[i] * words[i];
	return (u32)(hash >> 32) % UDP_BUCKETS;
}

static bool dest_has_key(const struct udp_dest *d, const struct udp_key *key)
{
	return memcmp(d->key.remote, key->remote, 16) == 0 &&
	       memcmp(d->key.local, key->local, 16) == 0 &&
	       d->key.flow_label == key->flow_label && d->key.slot == key->slot &&
	       d->key.traffic_class == key->traffic_class && d->key.hops == key->hops &&
	       d->key.lane == key->lane;
}

static void dest_address(struct udp_dest *d, u32 ifindex)
	NO_THREAD_SAFETY /* not yet visible to other threads */
{
	const u8 *remote = d->key.remote;

	if (roce_gid_is_ipv4(remote)) {
		d->to.v4.sin_family = AF_INET;
		d->to.v4.sin_port = htons(NODE_UDP_PORT);
		memcpy(&d->to.v4.sin_addr, remote + 12, 4);
		d->to_length = sizeof(d->to.v4);
		return;
	}
	d->to.v6.sin6_family = AF_INET6;
	d->to.v6.sin6_port = htons(NODE_UDP_PORT);
	d->to.v6.sin6_flowinfo = htonl(d->key.flow_label);
	memcpy(&d->to.v6.sin6_addr, remote, 16);
	if (IN6_IS_ADDR_LINKLOCAL(&d->to.v6.sin6_addr) ||
	    IN6_IS_ADDR_MC_LINKLOCAL(&d->to.v6.sin6_addr))
		d->to.v6.sin6_scope_id = ifindex;
	d->to_length = sizeof(d->to.v6);
}

static bool dest_is_multicast(const u8 gid[16])
{
	return roce_gid_is_ipv4(gid) ? gid[12] >> 4 == 0xe : gid[0] == 0xff;
}

bool udp_is_confined(const u8 sgid[16], const u8 dgid[16])
{
	struct sockaddr_in from = { .sin_family = AF_INET }, to = from;
	int fd;
	bool confined;

	if (!roce_gid_is_ipv4(sgid) || !roce_gid_is_ipv4(dgid) || sgid[12] != IN_LOOPBACKNET ||
	    dgid[12] == IN_LOOPBACKNET)
		return false;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	memcpy(&from.sin_addr, sgid + 12, 4);
	memcpy(&to.sin_addr, dgid + 12, 4);
	to.sin_port = htons(NODE_UDP_PORT);
	/* connecting sends nothing: it only looks up a route */
	confined = bind(fd, (struct sockaddr *)&from, sizeof(from)) == 0 &&
		   connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 &&
		   (errno == EINVAL || errno == ENETUNREACH || errno == EHOSTUNREACH);
	close(fd);
	return confined;
}

struct udp_dest *dest_create(struct udp *udp, const struct udp_key *key, struct udp_socket *s)
	NO_THREAD_SAFETY /* not yet visible to other threads */
{
	struct udp_dest *d = calloc(1, sizeof(*d));

	if (d == NULL)
		return NULL;
	path_dest_init(&d->dest, &udp->path);
	list_init(&d->stuck);
	list_init(&d->owing);
	list_init(&d->heard);
	d->udp = udp;
	d->key = *key;
	d->socket = s;
	d->port = s == NULL ? NULL : &s->port;
	dest_address(d, s == NULL ? 0 : s->ifindex);
	if (s != NULL && dest_is_multicast(key->remote))
		d->multicast_if = s->ifindex;
	return d;
}

struct udp_dest *dest_look(struct udp *udp, const struct udp_key *key)
{
	struct udp_dest *d = udp->buckets[dest_bucket(udp, key)];

	while (d != NULL && !dest_has_key(d, key))
		d = d->next;
	return d;
}

/* Returns the destination whose window all lanes to one process of the other host share, since its
 * receive buffer is one. No packet is sent to it. */
static struct udp_dest *dest_peer(struct udp *udp, const struct udp_key *key) REQUIRES(udp->lock)
{
	struct udp_key peer = { .slot = key->slot };

	memcpy(peer.remote, key->remote, 16);
	memcpy(peer.local, key->local, 16);
	return dest_find(udp, &peer);
}

struct udp_dest *dest_find(struct udp *udp, const struct udp_key *key)
{
	struct udp_dest **bucket = &udp->buckets[dest_bucket(udp, key)];
	struct udp_dest *d = dest_look(udp, key), *peer;

	if (d != NULL)
		return d;
	peer = key->lane == 0 ? NULL : dest_peer(udp, key);
	d = dest_create(udp, key, key->slot == UDP_ANY_SLOT ? NULL : lanes_choose(udp, key));
	if (d == NULL)
		return NULL;
	if (peer != NULL) {
		d->peer = peer;
		d->dest.window = peer->dest.window;
		peer->refs++;
	}
	d->next = *bucket;
	*bucket = d;
	__atomic_store_n(&udp->dest_count, udp->dest_count + 1, __ATOMIC_RELAXED);
	return d;
}

u32 dest_take_bucket(struct udp *udp, u32 bucket, struct udp_dest **out, u32 max)
{
	u32 n = 0;

	lock_acquire(&udp->lock);
	for (struct udp_dest *d = udp->buckets[bucket]; d != NULL && n < max; d = d->next) {
		d->refs++;
		out[n++] = d;
	}
	lock_release(&udp->lock);
	return n;
}

/* without references; lists: poll_lock */
static bool dest_is_idle(struct udp_dest *d) NO_THREAD_SAFETY
{
	return d->refs == 0 && list_empty(&d->stuck) && list_empty(&d->owing) &&
	       list_empty(&d->heard) && list_empty(&d->dest.acks) &&
	       list_empty(&d->dest.acks_now) && list_empty(&d->dest.blocked) && d->batch == NULL;
}

static void dest_forget_sources(struct udp *udp) REQUIRES(udp->poll_lock) REQUIRES(udp->lock)
{
	for (u32 i = 0; i < udp->socket_count; i++)
		udp->sockets[i]->last_from = NULL;
}

/* without references and in no table */
static void dest_free(struct udp_dest *d) NO_THREAD_SAFETY
{
	if (d->connected_socket != NULL)
		connected_close(d);
	free(d->batch);
	free(d->source);
	free(d);
}

/* Marks the sources that are the peer of a connection. */
static void dest_mark_connected(struct udp *udp) REQUIRES(udp->lock)
{
	for (u32 i = 0; i < UDP_BUCKETS; i++)
		for (struct udp_dest *d = udp->buckets[i]; d != NULL; d = d->next) {
			struct udp_key key = { .slot = UDP_ANY_SLOT };
			struct udp_dest *source;

			if (d->refs == 0)
				continue;
			memcpy(key.remote, d->key.remote, 16);
			memcpy(key.local, d->key.local, 16);
			source = dest_look(udp, &key);
			if (source != NULL)
				source->has_connection = true;
		}
}

/* Tells whether it stays. `sources`: only sources may be freed. */
static bool dest_stays(struct udp_dest *d, bool sources)
	NO_THREAD_SAFETY /* udp->lock and udp->poll_lock are held */
{
	bool connected = d->has_connection;

	d->has_connection = false;
	return connected || (sources && d->source == NULL) || !dest_is_idle(d);
}

static void dest_sweep(struct udp *udp, bool sources) REQUIRES(udp->poll_lock)
	REQUIRES(udp->lock)
{
	dest_forget_sources(udp);
	dest_mark_connected(udp);
	for (u32 i = 0; i < UDP_BUCKETS; i++)
		for (struct udp_dest **at = &udp->buckets[i], *d; (d = *at) != NULL;) {
			if (dest_stays(d, sources)) {
				at = &d->next;
				continue;
			}
			*at = d->next;
			if (d->peer != NULL)
				d->peer->refs--;
			udp->sources -= d->source != NULL;
			__atomic_store_n(&udp->dest_count, udp->dest_count - 1, __ATOMIC_RELAXED);
			dest_free(d);
		}
}

void dest_reap(struct udp *udp)
{
	lock_acquire(&udp->lock);
	if (udp->dest_count > UDP_DESTS_KEPT)
		dest_sweep(udp, false);
	lock_release(&udp->lock);
}

/* ---- sources ---- */

struct udp_dest *dest_source_look(struct udp *udp, const struct udp_key *key)
{
	struct udp_dest *d;

	lock_acquire(&udp->lock);
	d = dest_look(udp, key);
	lock_release(&udp->lock);
	return d;
}

void dest_judge(struct udp *udp, const u8 gid[16])
{
	for (u32 i = 0; i < UDP_BUCKETS; i++)
		for (struct udp_dest *d = udp->buckets[i]; d != NULL; d = d->next)
			if (d->key.slot == UDP_ANY_SLOT && memcmp(d->key.remote, gid, 16) == 0)
				__atomic_store_n(&d->is_judged, true, __ATOMIC_RELAXED);
}

/* If more sources have connections than are kept otherwise, a sweep frees little: the next one
 * comes as many new sources later. */
static void dest_make_room(struct udp *udp) REQUIRES(udp->poll_lock) REQUIRES(udp->lock)
{
	if (udp->sources < udp->sources_most)
		return;
	dest_sweep(udp, true);
	udp->sources_most = MAX(2 * udp->sources, (u32)UDP_SOURCES_KEPT);
}

struct udp_dest *dest_source_add(struct udp *udp, const struct udp_key *key,
				 const struct roce_source *source)
{
	struct roce_source *own = malloc(sizeof(*own));
	struct udp_dest *d = NULL;

	if (own == NULL)
		return NULL;
	*own = *source;
	lock_acquire(&udp->lock);
	dest_make_room(udp);
	d = dest_find(udp, key);
	if (d != NULL) {
		d->source = own;
		udp->sources++;
		/* addresses that come later: dest_judge */
		__atomic_store_n(&d->is_judged, sockets_is_own(udp, key->remote), __ATOMIC_RELAXED);
	}
	lock_release(&udp->lock);
	if (d == NULL)
		free(own);
	return d;
}

/* ---- open and close ---- */

int dest_open(struct udp *udp) NO_THREAD_SAFETY /* not yet visible to other threads */
{
	struct udp_key nobody = { .slot = UDP_ANY_SLOT };
	size_t bytes = sizeof(udp->hash_key);

	if (getrandom(udp->hash_key, bytes, GRND_NONBLOCK) != (ssize_t)bytes)
		udp->hash_key[0] = clock_now_ns() | 1;
	udp->sources_most = UDP_SOURCES_KEPT;
	udp->nowhere = dest_create(udp, &nobody, NULL);
	udp->unknown = dest_create(udp, &nobody, NULL);
	if (udp->nowhere == NULL || udp->unknown == NULL)
		return -ENOMEM;
	udp->nowhere->nowhere = true;
	__atomic_store_n(&udp->unknown->is_judged, true, __ATOMIC_RELAXED);
	udp->unknown->source = calloc(1, sizeof(*udp->unknown->source));
	return udp->unknown->source == NULL ? -ENOMEM : 0;
}

void dest_free_all(struct udp *udp)
{
	lock_acquire(&udp->lock);
	for (u32 i = 0; i < UDP_BUCKETS; i++)
		while (udp->buckets[i] != NULL) {
			struct udp_dest *d = udp->buckets[i];

			udp->buckets[i] = d->next;
			dest_free(d);
		}
	__atomic_store_n(&udp->dest_count, 0, __ATOMIC_RELAXED);
	lock_release(&udp->lock);
	free(udp->nowhere);
	if (udp->unknown != NULL)
		free(udp->unknown->source);
	free(udp->unknown);
}
