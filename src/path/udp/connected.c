/* connected.c: connected sockets. Each sends to one destination only, from a source port of its
 * own; a destination whose messages are short and alternate with responses gets one. The kernel
 * looks up the route once and not for each datagram, and joined packets need not state their length
 * in each call.
 *
 * The IPv4 identification of a connected socket starts at a number that the kernel draws and
 * advances by one per call, and the ICRC covers it. So the socket is probed first, by datagrams to
 * this host: a filter program runs for each, reads its IP header, and encodes the identification in
 * the length that it leaves. Only this destination sends from the socket, so all later
 * identifications are known. A refused call, also one for lack of buffer space, closes the socket:
 * whether the call used an identification is unknown. While the peer is silent the socket is probed
 * again; most peers are only slow.
 *
 * In: destinations with short batches    Out: sockets    Runs: any thread that sends; the engine's
 * thread opens them, for connect() may sleep    Locks: tx_lock, then lock
 */
#include "path/udp/udp_priv.h"

#include <errno.h>
#include <linux/filter.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "node/udp_socket.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

enum {
	CONNECTED_AFTER = 32, /* short batches in a row after which a destination gets one */
	CONNECTED_LOOKS = 16, /* polls of the probe's receiver */
	CONNECTED_SAME = 8,   /* equal lengths in a row before the socket is set to that length */
	CONNECTED_ASK = 256,  /* bytes of a probe, whose remaining length encodes one byte */
	CONNECTED_TRIES = 16,
	CONNECTED_STEP = 1031,	/* from one port to the next; odd, so that each port is reached */
	CONNECTED_PROVEN = 512, /* calls: more than a window permits without an acknowledgement */
	/* calls since the last silence: the peer has most likely answered */
	CONNECTED_ANSWERED = 32,
	/* silences in a row that close it although its identifications are right ... */
	CONNECTED_SILENCES = 3,
	CONNECTED_SILENCES_PROVEN = 6, /* ... and how many after much has arrived */
	CONNECTED_PAUSE_MAX = 1 << 24,
	CONNECTED_SHORT_PACKETS = 2, /* a message and an acknowledgement */
	CONNECTED_SHORT_BYTES = 1024,
	UDP_HEADER = 8,
	IPV4_ID = 4,
};

/* close() is a cancellation point, and locks are held; yet not by syscall(): ThreadSanitizer has
 * seen the socket opened and must see it closed, or it takes another thread's later descriptor of
 * the same number for this one. */
static void connected_close_fd(int fd)
{
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	close(fd);
	pthread_setcancelstate(cancel, NULL);
}

/* ---- the next identification ---- */

/* Attaches a filter that truncates a datagram to the value of the `byte`th byte of its
 * identification. */
static int connected_filter_byte(int fd, u32 byte)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, (u32)SKF_NET_OFF + IPV4_ID + byte),
		BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, UDP_HEADER),
		BPF_STMT(BPF_RET | BPF_A, 0),
	};
	struct sock_fprog program = { .len = ARRAY_LEN(code), .filter = code };

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) < 0 ? -errno
											    : 0;
}

/* Attaches a filter that passes one byte of a datagram with this identification, and nothing of
 * others. */
static int connected_filter_number(int fd, u16 id)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, (u32)SKF_NET_OFF + IPV4_ID),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, id, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, UDP_HEADER + 1),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog program = { .len = ARRAY_LEN(code), .filter = code };

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) < 0 ? -errno
											    : 0;
}

/* Sends a datagram of `bytes` to `at`. Returns the length that arrived, or a negative errno. */
static int connected_ask(int fd, int ear, const struct sockaddr_in *at, u32 bytes)
{
	u8 data[CONNECTED_ASK] = { 0 };
	long n;

	if (syscall(SYS_sendto, fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL, at,
		    sizeof(*at)) < 0)
		return -errno;
	for (int i = 0; i < CONNECTED_LOOKS; i++) {
		n = syscall(SYS_recvfrom, ear, data, sizeof(data), MSG_DONTWAIT, NULL, NULL);
		if (n >= 0)
			return (int)n;
	}
	return -EAGAIN;
}

/* Sends two joined datagrams: they use up one identification, as later calls assume. */
static bool connected_ask_joined(int fd, int ear, const struct sockaddr_in *at)
{
	int segment = CONNECTED_ASK / 2, none = 0;
	u8 data[CONNECTED_ASK];
	bool joined = setsockopt(fd, SOL_UDP, UDP_SEGMENT, &segment, sizeof(segment)) == 0 &&
		      connected_ask(fd, ear, at, CONNECTED_ASK) >= 0;

	while (joined && recv(ear, data, sizeof(data), MSG_DONTWAIT) >= 0) /* the second one */
		continue;
	return setsockopt(fd, SOL_UDP, UDP_SEGMENT, &none, sizeof(none)) == 0 && joined;
}

/* Reads the identification of this connected socket's last datagram. */
static int connected_learn_by(int fd, int ear, const struct sockaddr_in *at, u16 *id)
{
	int low, high;

	if (connected_filter_byte(ear, 1) != 0 ||
	    (low = connected_ask(fd, ear, at, CONNECTED_ASK)) < 0 ||
	    connected_filter_byte(ear, 0) != 0 ||
	    (high = connected_ask(fd, ear, at, CONNECTED_ASK)) < 0)
		return -EAGAIN;
	*id = (u16)(high << 8 | ((low + 1) & 0xff));
	(*id)++;
	if (connected_filter_number(ear, *id) != 0 || !connected_ask_joined(fd, ear, at))
		return -EAGAIN;
	(*id)++;
	return connected_filter_number(ear, *id) == 0 &&
			       connected_ask(fd, ear, at, CONNECTED_ASK) == 1
		       ? 0
		       : -EAGAIN;
}

/* Opens the receiver of probes, on this host's address. */
static int connected_ear(const u8 gid[16], struct sockaddr_in *at)
{
	socklen_t length = sizeof(*at);
	int ear = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err;

	if (ear < 0)
		return -errno;
	*at = (struct sockaddr_in){ .sin_family = AF_INET };
	memcpy(&at->sin_addr, gid + 12, 4);
	if (bind(ear, (struct sockaddr *)at, sizeof(*at)) == 0 &&
	    getsockname(ear, (struct sockaddr *)at, &length) == 0)
		return ear;
	err = -errno;
	connected_close_fd(ear);
	return err;
}

static int connected_learn(int fd, const u8 gid[16], u16 *id)
{
	struct sockaddr_in at;
	int ear = connected_ear(gid, &at), err;

	if (ear < 0)
		return ear;
	err = connected_learn_by(fd, ear, &at, id);
	connected_close_fd(ear);
	return err;
}

/* Tells whether the kernel numbers as predicted. Uses up an identification. */
static bool connected_numbers_as_expected(struct connected_socket *l, const u8 gid[16])
{
	struct sockaddr_in at;
	int ear = connected_ear(gid, &at);
	bool right;

	if (ear < 0)
		return false;
	l->id++;
	right = connected_filter_number(ear, l->id) == 0 &&
		connected_ask(l->port.fd, ear, &at, 1) == 1;
	connected_close_fd(ear);
	return right;
}

/* ---- open and close ---- */

/* Binds to a port that no other socket has, or had recently, so that the receiver can tell the
 * sequences of identifications apart by the port. */
static int connected_bind(struct udp *udp, const struct udp_socket *beside,
			  struct connected_socket *l)
{
	int err = -EADDRINUSE;

	for (u32 i = 0; i < CONNECTED_TRIES && err == -EADDRINUSE; i++) {
		u32 next = __atomic_fetch_add(&udp->connect_ports, CONNECTED_STEP,
					      __ATOMIC_RELAXED);

		l->port.sport = (u16)(ROCE_SPORT_MIN | next);
		err = lanes_bind(l->port.fd, beside->gid, beside->ifindex, l->port.sport, false);
	}
	return err;
}

/* Sets the fields that all packets share: no call states them. */
static int connected_set_fields(struct udp_socket *s, const struct udp_key *key)
{
	int class = key->traffic_class;

	sockets_set_class(s);
	sockets_set_hops(s, key->hops);
	if (s->hops != key->hops)
		return -EOPNOTSUPP;
	return class == s->traffic_class ||
			       setsockopt(s->port.fd, s->v4 ? IPPROTO_IP : IPPROTO_IPV6,
					  s->v4 ? IP_TOS : IPV6_TCLASS, &class, sizeof(class)) == 0
		       ? 0
		       : -errno;
}

static int connected_connect(const struct udp_dest *d, const struct udp_socket *beside,
			const union node_udp_address *to, struct connected_socket *l)
{
	struct udp_socket like = { .port = { .fd = l->port.fd }, .v4 = beside->v4 };
	int err = connected_bind(d->udp, beside, l);

	if (err == 0)
		err = connected_set_fields(&like, &d->key);
	if (err != 0)
		return err;
	if (connect(l->port.fd, &to->any, like.v4 ? sizeof(to->v4) : sizeof(to->v6)) < 0)
		return -errno;
	return like.v4 ? connected_learn(l->port.fd, beside->gid, &l->id) : 0;
}

static void connected_free(struct connected_socket *l)
{
	if (l->port.fd >= 0)
		connected_close_fd(l->port.fd);
	free(l);
}

static const struct udp_port_ops connected_ops;

static struct connected_socket *connected_create(const struct udp_dest *d,
						 const struct udp_socket *beside,
						 const union node_udp_address *to)
{
	struct connected_socket *l = calloc(1, sizeof(*l));
	int err;

	if (l == NULL)
		return NULL;
	l->port.ops = &connected_ops;
	l->port.fd = node_udp_socket_open(beside->gid);
	err = l->port.fd < 0 ? l->port.fd : connected_connect(d, beside, to, l);
	if (err == 0)
		return l;
	log_debug("udp", "no connected socket beside port %u: %s", beside->port.sport,
		  strerror(-err));
	connected_free(l);
	return NULL;
}

void connected_close(struct udp_dest *d)
{
	log_debug("udp", "left the connected socket of port %u after %u calls",
		  d->connected_socket->port.sport, d->connected_socket->calls);
	/* much has arrived through it, so its predictions were right: the next socket will work,
	 * too */
	if (d->connected_socket->calls >= CONNECTED_PROVEN)
		d->shorts_needed = 0;
	connected_free(d->connected_socket);
	d->connected_socket = NULL;
	d->port = d->socket == NULL ? NULL : &d->socket->port;
	free(d->spare);
	d->spare = NULL;
	d->shorts = 0;
	__atomic_fetch_sub(&d->udp->connected_count, 1, __ATOMIC_RELAXED);
}

/* Requests a connected socket, if one pays. */
static void connected_want(struct udp_dest *d) REQUIRES(d->tx_lock)
{
	struct udp *udp = d->udp;
	u32 wanted = MAX(d->shorts_needed, (u32)CONNECTED_AFTER);

	/* a consumer's flow label determines the source port */
	if (udp->cfg.connected_sockets == 0 || d->shorts < wanted || d->socket->lane == 0 ||
	    d->multicast_if != 0 || d->key.flow_label != 0 ||
	    __atomic_load_n(&udp->connected_count, __ATOMIC_RELAXED) >= udp->cfg.connected_sockets)
		return;
	lock_acquire(&udp->lock);
	if (udp->connect_for == NULL) {
		udp->connect_for = d;
		__atomic_store_n(&udp->connect_wanted, true, __ATOMIC_RELAXED);
		d->refs++;
		/* each failure is followed by a longer pause */
		d->shorts_needed = MIN(wanted * 4, CONNECTED_PAUSE_MAX);
		d->shorts = 0;
	}
	lock_release(&udp->lock);
}

void connected_batch_left(struct udp_dest *d, const struct udp_batch *b)
{
	bool brief = b->packets <= CONNECTED_SHORT_PACKETS && b->bytes <= CONNECTED_SHORT_BYTES;

	d->shorts = brief ? d->shorts + 1 : 0;
	if (brief && !d->unbatched)
		connected_want(d);
}

/* Waiting packets have the ICRC of another port. */
static bool connected_install(struct udp_dest *d, struct connected_socket *l,
			      const struct udp_socket *beside) REQUIRES(d->tx_lock)
{
	if (d->connected_socket != NULL || d->socket == NULL || d->socket->id != beside->id ||
	    d->socket->port.sport != beside->port.sport)
		return false;
	send_waiting(d);
	if (d->batch != NULL || d->socket == NULL)
		return false;
	__atomic_fetch_add(&d->udp->connected_count, 1, __ATOMIC_RELAXED);
	d->connected_socket = l;
	d->port = &l->port;
	log_debug("udp", "connected socket from port %u", l->port.sport);
	return true;
}

/* A socket's initial values; the others change under locks that are not held here. */
static struct udp_socket connected_birth(const struct udp_socket *s)
{
	struct udp_socket copy = { .port = { .fd = s->port.fd, .sport = s->port.sport },
				   .v4 = s->v4,
				   .ifindex = s->ifindex,
				   .id = s->id };

	memcpy(copy.gid, s->gid, 16);
	return copy;
}

static void connected_open(struct udp_dest *d)
{
	struct udp_socket beside = { .port = { .fd = -1 } };
	union node_udp_address to;
	struct connected_socket *l;
	bool taken;

	lock_acquire(&d->tx_lock);
	to = d->to;
	if (d->socket != NULL)
		beside = connected_birth(d->socket);
	lock_release(&d->tx_lock);
	l = beside.port.fd < 0 ? NULL : connected_create(d, &beside, &to);
	if (l == NULL)
		return;
	lock_acquire(&d->tx_lock);
	taken = connected_install(d, l, &beside);
	lock_release(&d->tx_lock);
	if (!taken)
		connected_free(l);
}

void udp_background(struct udp *udp)
{
	struct udp_dest *d;

	if (likely(!__atomic_load_n(&udp->connect_wanted, __ATOMIC_RELAXED)))
		return;
	lock_acquire(&udp->lock);
	d = udp->connect_for;
	lock_release(&udp->lock);
	if (d != NULL)
		connected_open(d);
	lock_acquire(&udp->lock);
	__atomic_store_n(&udp->connect_wanted, false, __ATOMIC_RELAXED);
	udp->connect_for = NULL;
	if (d != NULL)
		d->refs--;
	lock_release(&udp->lock);
}

/* ---- sending ---- */

static struct connected_socket *connected_of(struct udp_port *p)
{
	return container_of(p, struct connected_socket, port);
}

/* The first packet of a run gets the next call's identification. */
static u16 connected_next_id(struct udp_port *p, u32 place)
{
	struct connected_socket *l = connected_of(p);

	if (place == 0)
		l->id++;
	return (u16)(l->id + place);
}

static bool connected_is_stale(struct udp_port *p, const struct udp_dest *d)
{
	struct connected_socket *l = connected_of(p);
	u32 most = l->calls >= CONNECTED_PROVEN ? CONNECTED_SILENCES_PROVEN : CONNECTED_SILENCES;

	if (l->calls - l->silent_at >= CONNECTED_ANSWERED)
		l->silences = 0;
	l->silent_at = l->calls;
	return ++l->silences >= most || (roce_gid_is_ipv4(d->key.local) &&
					 !connected_numbers_as_expected(l, d->key.local));
}

static bool connected_set_segment(struct connected_socket *l, u16 segment)
{
	int value = segment;

	if (setsockopt(l->port.fd, SOL_UDP, UDP_SEGMENT, &value, sizeof(value)) < 0)
		return false;
	l->segment = segment;
	return true;
}

/* Tells whether the socket cuts joined packets into this length by itself. */
static bool connected_joins(struct connected_socket *l, u16 segment)
{
	if (likely(l->segment == segment))
		return true;
	if (l->last != segment)
		l->same = 0;
	l->last = segment;
	return ++l->same >= CONNECTED_SAME && connected_set_segment(l, segment);
}

/* Has the socket send a packet of this length whole: 0, or -EIO. */
static int connected_single(struct connected_socket *l, u32 length)
{
	return likely(l->segment == 0 || length <= l->segment) || connected_set_segment(l, 0)
		       ? 0
		       : -EIO;
}

/* The socket knows all header fields: stating them in a call makes the kernel look up the route.
 * sendto() has less overhead than sendmsg(). */
static int connected_send(struct udp_port *p, const struct udp_dest *d, u8 *data, u32 bytes,
			  u16 segment)
{
	struct connected_socket *l = connected_of(p);
	int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
	struct udp_call c;
	long n;

	if (segment == 0 && connected_single(l, bytes) != 0)
		return -EIO;
	if (segment == 0 || connected_joins(l, segment)) {
		n = syscall(SYS_sendto, p->fd, data, bytes, flags, NULL, 0);
	} else {
		udp_call_begin(&c, data, bytes);
		udp_call_add(&c, SOL_UDP, UDP_SEGMENT, &segment, sizeof(segment));
		n = syscall(SYS_sendmsg, p->fd, &c.msg, flags);
	}
	l->calls++;
	return n < 0 ? -errno : 0;
}

static int connected_send_many(struct udp_port *p, const struct udp_dest *d, struct iovec *iov,
			       u32 n)
{
	struct msghdr none = { 0 };

	for (u32 i = 0; i < n; i++)
		if (connected_single(connected_of(p), (u32)iov[i].iov_len) != 0)
			return -EIO;
	return udp_call_many(p->fd, &none, iov, n);
}

static const struct udp_port_ops connected_ops = {
	.next_id = connected_next_id,
	.send = connected_send,
	.send_many = connected_send_many,
	.retire = connected_close,
	.is_stale = connected_is_stale,
};
