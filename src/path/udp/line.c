/* line.c: a line is a connected socket that sends to one destination only, from a port of its own:
 * for whoever sends short messages in turn. The kernel then looks for the way there once and
 * not for each datagram, and joined packets need not say their length in each call.
 *
 * The identification in the IPv4 headers of a connected socket counts on from a number that the
 * kernel draws, by one per call, and the ICRC covers it. So a line asks its own socket first, by
 * datagrams to this host: a filter program that is run for each sees its IP header, and what it
 * leaves of the datagram tells the number. Nobody else sends from a line, so that it knows all
 * later ones. Any refusal, also for lack of room, ends a line: then it cannot tell whether the
 * number was used. Where the peer is silent the socket is asked again: most peers are only slow.
 *
 * In: destinations with short batches    Out: sockets    Runs: whoever sends; they are opened by
 * the engine's thread, for connect() may sleep    Locks: tx_lock, then lock
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
	LINE_AFTER = 32, /* so many short batches in a row are worth one */
	LINE_LOOKS = 16,
	LINE_SAME = 8, /* equal lengths in a row until the socket is told */
	LINE_ASK = 256, /* bytes of a datagram whose length is to tell a byte */
	LINE_TRIES = 16,
	LINE_STEP = 1031, /* from one port to the next; odd, so that all have their turn */
	LINE_PROVEN = 512, /* calls: more than a window lets go without an answer */
	LINE_ANSWERED = 32, /* calls since the last doubt: most likely the peer has answered */
	LINE_DOUBTS = 3, /* in a row, until it is left though its numbers are right ... */
	LINE_DOUBTS_PROVEN = 6, /* ... and if much has arrived before */
	LINE_PAUSE_MOST = 1 << 24,
	UDP_HEADER = 8,
	IPV4_ID = 4,
};

/* A cancellation point, and locks are held; yet not by syscall(): ThreadSanitizer has seen the
 * socket being made and must see it go, or it takes what another thread then gets under the same
 * number for this one. */
static void line_close_fd(int fd)
{
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	close(fd);
	pthread_setcancelstate(cancel, NULL);
}

/* ---- which number comes next ---- */

/* Leaves so much of a datagram as the `byte`th byte of its identification says. */
static int line_filter_byte(int fd, u32 byte)
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

/* Lets through nothing but one byte of a datagram with this identification. */
static int line_filter_number(int fd, u16 id)
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

/* Sends a datagram of `bytes` to `at` and says how much of it has come there, or a negative
 * errno. */
static int line_ask(int fd, int ear, const struct sockaddr_in *at, u32 bytes)
{
	u8 data[LINE_ASK] = { 0 };
	long n;

	if (syscall(SYS_sendto, fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL, at,
		    sizeof(*at)) < 0)
		return -errno;
	for (int i = 0; i < LINE_LOOKS; i++) {
		n = syscall(SYS_recvfrom, ear, data, sizeof(data), MSG_DONTWAIT, NULL, NULL);
		if (n >= 0)
			return (int)n;
	}
	return -EAGAIN;
}

/* Two joined ones: they take one number, as all our reckoning has it. */
static bool line_ask_joined(int fd, int ear, const struct sockaddr_in *at)
{
	int segment = LINE_ASK / 2, none = 0;
	u8 data[LINE_ASK];
	bool joined = setsockopt(fd, SOL_UDP, UDP_SEGMENT, &segment, sizeof(segment)) == 0 &&
		      line_ask(fd, ear, at, LINE_ASK) >= 0;

	while (joined && recv(ear, data, sizeof(data), MSG_DONTWAIT) >= 0) /* the second one */
		continue;
	return setsockopt(fd, SOL_UDP, UDP_SEGMENT, &none, sizeof(none)) == 0 && joined;
}

/* The number that the last datagram of this connected socket had. */
static int line_learn_by(int fd, int ear, const struct sockaddr_in *at, u16 *id)
{
	int low, high;

	if (line_filter_byte(ear, 1) != 0 || (low = line_ask(fd, ear, at, LINE_ASK)) < 0 ||
	    line_filter_byte(ear, 0) != 0 || (high = line_ask(fd, ear, at, LINE_ASK)) < 0)
		return -EAGAIN;
	*id = (u16)(high << 8 | ((low + 1) & 0xff));
	(*id)++;
	if (line_filter_number(ear, *id) != 0 || !line_ask_joined(fd, ear, at))
		return -EAGAIN;
	(*id)++;
	return line_filter_number(ear, *id) == 0 && line_ask(fd, ear, at, LINE_ASK) == 1 ? 0
											 : -EAGAIN;
}

/* A socket to be asked from, on this host's address. */
static int line_ear(const u8 gid[16], struct sockaddr_in *at)
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
	line_close_fd(ear);
	return err;
}

static int line_learn(int fd, const u8 gid[16], u16 *id)
{
	struct sockaddr_in at;
	int ear = line_ear(gid, &at), err;

	if (ear < 0)
		return ear;
	err = line_learn_by(fd, ear, &at, id);
	line_close_fd(ear);
	return err;
}

/* Does the kernel number as reckoned? Uses up a number. */
static bool line_counts_right(struct udp_line *l, const u8 gid[16])
{
	struct sockaddr_in at;
	int ear = line_ear(gid, &at);
	bool right;

	if (ear < 0)
		return false;
	l->id++;
	right = line_filter_number(ear, l->id) == 0 && line_ask(l->fd, ear, &at, 1) == 1;
	line_close_fd(ear);
	return right;
}

/* ---- birth and death ---- */

/* A port that no other socket has or had just now, so that who receives can tell by it whose
 * numbers those are. */
static int line_bind(struct udp *udp, const struct udp_socket *beside, struct udp_line *l)
{
	int err = -EADDRINUSE;

	for (u32 i = 0; i < LINE_TRIES && err == -EADDRINUSE; i++) {
		u32 next = __atomic_fetch_add(&udp->line_ports, LINE_STEP, __ATOMIC_RELAXED);

		l->sport = (u16)(ROCE_SPORT_LEAST | next);
		err = lanes_bind(l->fd, beside->gid, beside->ifindex, l->sport, false);
	}
	return err;
}

/* No call says what all of them have in common. */
static int line_set_fields(struct udp_socket *s, const struct udp_key *key)
{
	int class = key->traffic_class;

	sockets_set_class(s);
	sockets_set_hops(s, key->hops);
	if (s->hops != key->hops)
		return -EOPNOTSUPP;
	return class == s->traffic_class ||
			       setsockopt(s->fd, s->v4 ? IPPROTO_IP : IPPROTO_IPV6,
					  s->v4 ? IP_TOS : IPV6_TCLASS, &class, sizeof(class)) == 0
		       ? 0
		       : -errno;
}

static int line_connect(const struct udp_dest *d, const struct udp_socket *beside,
			const union udp_address *to, struct udp_line *l)
{
	struct udp_socket like = { .fd = l->fd, .v4 = beside->v4 };
	int err = line_bind(d->udp, beside, l);

	if (err == 0)
		err = line_set_fields(&like, &d->key);
	if (err != 0)
		return err;
	if (connect(l->fd, &to->any, like.v4 ? sizeof(to->v4) : sizeof(to->v6)) < 0)
		return -errno;
	return like.v4 ? line_learn(l->fd, beside->gid, &l->id) : 0;
}

static struct udp_line *line_create(const struct udp_dest *d, const struct udp_socket *beside,
				    const union udp_address *to)
{
	struct udp_line *l = calloc(1, sizeof(*l));
	int err;

	if (l == NULL)
		return NULL;
	l->fd = udp_socket_open(beside->gid);
	err = l->fd < 0 ? l->fd : line_connect(d, beside, to, l);
	if (err == 0)
		return l;
	log_debug("udp", "no connected socket beside port %u: %s", beside->sport, strerror(-err));
	line_free(l);
	return NULL;
}

void line_free(struct udp_line *l)
{
	if (l->fd >= 0)
		line_close_fd(l->fd);
	free(l->spare);
	free(l);
}

void line_close(struct udp_dest *d)
{
	log_debug("udp", "left the connected socket of port %u after %u calls", d->line->sport,
		  d->line->calls);
	/* one that has carried much was right: whatever ended it, the next one will be, too */
	if (d->line->calls >= LINE_PROVEN)
		d->shorts_wanted = 0;
	line_free(d->line);
	d->line = NULL;
	d->shorts = 0;
	__atomic_fetch_sub(&d->udp->lines, 1, __ATOMIC_RELAXED);
}

void line_want(struct udp_dest *d)
{
	struct udp *udp = d->udp;
	u32 wanted = MAX(d->shorts_wanted, (u32)LINE_AFTER);

	/* who gives a flow label chooses the port by it */
	if (udp->cfg.lines == 0 || d->shorts < wanted || d->socket->lane == 0 ||
	    d->multicast_if != 0 || d->key.flow_label != 0 ||
	    __atomic_load_n(&udp->lines, __ATOMIC_RELAXED) >= udp->cfg.lines)
		return;
	lock_acquire(&udp->lock);
	if (udp->line_for == NULL) {
		udp->line_for = d;
		__atomic_store_n(&udp->line_wanted, true, __ATOMIC_RELAXED);
		d->refs++;
		/* each try in vain is followed by a longer pause */
		d->shorts_wanted = MIN(wanted * 4, LINE_PAUSE_MOST);
		d->shorts = 0;
	}
	lock_release(&udp->lock);
}

/* What waits has the ICRC of another port. */
static bool line_install(struct udp_dest *d, struct udp_line *l, const struct udp_socket *beside)
	REQUIRES(d->tx_lock)
{
	if (d->line != NULL || d->socket == NULL || d->socket->id != beside->id ||
	    d->socket->sport != beside->sport)
		return false;
	send_waiting(d);
	if (d->batch != NULL || d->socket == NULL)
		return false;
	__atomic_fetch_add(&d->udp->lines, 1, __ATOMIC_RELAXED);
	d->line = l;
	log_debug("udp", "connected socket from port %u", l->sport);
	return true;
}

/* What a socket was born with; the rest of it changes under locks that are not held here. */
static struct udp_socket line_birth(const struct udp_socket *s)
{
	struct udp_socket copy = { .fd = s->fd,
				   .v4 = s->v4,
				   .sport = s->sport,
				   .ifindex = s->ifindex,
				   .id = s->id };

	memcpy(copy.gid, s->gid, 16);
	return copy;
}

static void line_open(struct udp_dest *d)
{
	struct udp_socket beside = { .fd = -1 };
	union udp_address to;
	struct udp_line *l;
	bool taken;

	lock_acquire(&d->tx_lock);
	to = d->to;
	if (d->socket != NULL)
		beside = line_birth(d->socket);
	lock_release(&d->tx_lock);
	l = beside.fd < 0 ? NULL : line_create(d, &beside, &to);
	if (l == NULL)
		return;
	lock_acquire(&d->tx_lock);
	taken = line_install(d, l, &beside);
	lock_release(&d->tx_lock);
	if (!taken)
		line_free(l);
}

void udp_background(struct udp *udp)
{
	struct udp_dest *d;

	if (likely(!__atomic_load_n(&udp->line_wanted, __ATOMIC_RELAXED)))
		return;
	lock_acquire(&udp->lock);
	d = udp->line_for;
	lock_release(&udp->lock);
	if (d != NULL)
		line_open(d);
	lock_acquire(&udp->lock);
	__atomic_store_n(&udp->line_wanted, false, __ATOMIC_RELAXED);
	udp->line_for = NULL;
	if (d != NULL)
		d->refs--;
	lock_release(&udp->lock);
}

/* ---- sending ---- */

bool line_is_doubted(struct udp_line *l, const struct udp_key *key, bool v4)
{
	u32 most = l->calls >= LINE_PROVEN ? LINE_DOUBTS_PROVEN : LINE_DOUBTS;

	if (l->calls - l->doubted_at >= LINE_ANSWERED)
		l->doubts = 0;
	l->doubted_at = l->calls;
	return ++l->doubts >= most || (v4 && !line_counts_right(l, key->local));
}

static bool line_set_segment(struct udp_line *l, u16 segment)
{
	int value = segment;

	if (setsockopt(l->fd, SOL_UDP, UDP_SEGMENT, &value, sizeof(value)) < 0)
		return false;
	l->segment = segment;
	return true;
}

bool line_joins(struct udp_line *l, u16 segment)
{
	if (likely(l->segment == segment))
		return true;
	if (l->last != segment)
		l->same = 0;
	l->last = segment;
	return ++l->same >= LINE_SAME && line_set_segment(l, segment);
}

int line_single(struct udp_line *l, u16 length)
{
	return likely(l->segment == 0 || length <= l->segment) || line_set_segment(l, 0) ? 0
											 : -EIO;
}
