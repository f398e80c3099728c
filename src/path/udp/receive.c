/* receive.c: datagrams become packets, or a counted drop.
 *
 * UDP_GRO joins datagrams of one sender and length into one buffer; they are cut apart here, by the
 * kernel's segment length or by cut.c. The header fields that a socket does not show, and the ICRC
 * covers, are inferred by wire/roce.h.
 *
 * In: sockets    Out: calls of path_user    Runs: threads that poll    Locks: poll_lock, then lock
 */
#include "path/udp/udp_priv.h"

#include <errno.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "wire/roce.h"

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum {
	INBOX_MESSAGES = 8,
	INBOX_BYTES = 65536,
	INBOX_CONTROL = 256,
	/* a datagram, or several joined, that is processed before the next is read */
	INBOX_LARGE = 16384,
	/* single datagrams in a row after which the next is expected to be single, too */
	INBOX_SINGLES = 4,
	INBOX_SMALL = 512,   /* a datagram too small to cause congestion */
	INBOX_EXACT = 64,    /* calls that ask for all header fields after one that lacked them */
	INBOX_EXACT_LONG = 1 << 24, /* ... and after one whose packets could not be told apart */
	RECEIVE_OTHERS_EVERY = 16, /* polls of the busiest socket per poll of all sockets ... */
	RECEIVE_ACK_BYTES = ROCE_BTH + 4 + ROCE_ICRC,
	RECEIVE_OTHERS_SELDOM = 64, /* ... and while the others have been silent as often */
};

/* The header fields of a datagram, or of several joined. */
struct udp_header {
	struct roce_flow flow;
	u32 segment; /* bytes of each but the last; 0: a single one */
	bool multicast;
	bool judged; /* the ICRC of each packet is right, and the source has recorded it */
} OWNED_BY(udp.poll_lock);

/* An acknowledgement that came behind a message and waits until the message is answered. */
struct udp_rest {
	struct udp_socket *socket; /* NULL: none */
	/* its destination, which reaping does not free: it processes the inbox first */
	struct udp_dest *from;
	struct udp_header header;
	const u8 *data;
} OWNED_BY(udp.poll_lock);

struct udp_inbox {
	struct mmsghdr msg[INBOX_MESSAGES];
	struct iovec iov[INBOX_MESSAGES];
	union node_udp_address from[INBOX_MESSAGES];
	u8 control[INBOX_MESSAGES][INBOX_CONTROL] __attribute__((aligned(8)));
	u8 data[INBOX_MESSAGES][INBOX_BYTES];
	u32 looks;
	u32 silent; /* polls of all sockets in a row that found nothing but at the busiest */
	u32 last;   /* datagrams of the last call: how many to ask for */
	u32 singles; /* calls in a row that brought a single datagram */
	u32 exact;  /* calls that still have to ask for all header fields */
	bool large; /* the last one was large */
	bool small; /* the last one was small */
	bool hit;   /* the last call for a single datagram brought one */
	struct udp_rest rest;
} OWNED_BY(udp.poll_lock);

struct udp_inbox *inbox_create(void)
{
	struct udp_inbox *in = calloc(1, sizeof(*in));

	for (u32 i = 0; in != NULL && i < INBOX_MESSAGES; i++) {
		in->iov[i] = (struct iovec){ in->data[i], INBOX_BYTES };
		in->msg[i].msg_hdr.msg_name = &in->from[i];
		in->msg[i].msg_hdr.msg_iov = &in->iov[i];
	}
	return in;
}

void inbox_destroy(struct udp_inbox *in)
{
	free(in);
}

/* In a ping-pong one datagram comes at a time, and a second system call before its delivery would
 * cost time. Large datagrams are read one by one, each while it is in the cache. */
static bool inbox_is_single(const struct udp_inbox *in)
{
	return in->large || in->singles >= INBOX_SINGLES;
}

static void inbox_learn(struct udp_inbox *in, bool single, u32 got)
{
	if (!single && got == 1)
		in->singles = MIN(in->singles + 1, (u32)INBOX_SINGLES);
	else if (got > 1 || (single && got == 1 && in->hit))
		in->singles = 0;
	in->hit = single && got == 1;
	if (got != 0)
		in->large = in->msg[got - 1].msg_len >= INBOX_LARGE;
	if (got != 0)
		in->small = in->msg[got - 1].msg_len <= INBOX_SMALL;
	in->last = got;
}

/* recvmsg for one datagram: recvmmsg has more overhead. */
static long inbox_call(struct udp_inbox *in, int fd, u32 max)
{
	long n;

	if (max != 1)
		return syscall(SYS_recvmmsg, fd, in->msg, max, MSG_DONTWAIT, NULL);
	n = syscall(SYS_recvmsg, fd, &in->msg[0].msg_hdr, MSG_DONTWAIT);
	if (n < 0)
		return n;
	in->msg[0].msg_len = (u32)n;
	return 1;
}

/* The shortest call: it returns the sender and no other header field. */
static long inbox_call_plain(struct udp_inbox *in, int fd)
{
	struct msghdr *m = &in->msg[0].msg_hdr;
	socklen_t length = sizeof(in->from[0]);
	long n = syscall(SYS_recvfrom, fd, in->data[0], INBOX_BYTES, MSG_DONTWAIT, &in->from[0],
			 &length);

	if (n < 0)
		return n;
	m->msg_controllen = 0;
	m->msg_flags = 0;
	in->msg[0].msg_len = (u32)n;
	return 1;
}

static u32 inbox_fill(struct udp_inbox *in, int fd, u32 max, bool plain)
{
	long n;

	for (u32 i = 0; i < max && !plain; i++)
		in->msg[i].msg_hdr = (struct msghdr){ .msg_name = &in->from[i],
						      .msg_namelen = sizeof(in->from[i]),
						      .msg_iov = &in->iov[i],
						      .msg_iovlen = 1,
						      .msg_control = in->control[i],
						      .msg_controllen = INBOX_CONTROL };
	n = plain ? inbox_call_plain(in, fd) : inbox_call(in, fd, max);
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		log_debug("udp", "receive: errno %d", errno);
	return n < 0 ? 0 : (u32)n;
}

/* ---- the header fields of a datagram ---- */

static void header_gid_v4(u8 gid[16], const struct in_addr *a)
{
	memset(gid, 0, 10);
	gid[10] = gid[11] = 0xff;
	memcpy(gid + 12, a, 4);
}

static int header_int(const struct cmsghdr *m)
{
	int value = 0;

	memcpy(&value, CMSG_DATA(m), MIN(m->cmsg_len - CMSG_LEN(0), sizeof(value)));
	return value;
}

static void header_destination(struct udp_header *h, const u8 gid[16])
{
	memcpy(h->flow.dgid, gid, 16);
	h->multicast = true;
}

static void header_control(struct udp_header *h, const struct cmsghdr *m)
{
	if (m->cmsg_level == SOL_UDP && m->cmsg_type == UDP_GRO) {
		h->segment = (u32)header_int(m);
	} else if (m->cmsg_level == IPPROTO_IP && m->cmsg_type == IP_TOS) {
		h->flow.traffic_class = *CMSG_DATA(m);
	} else if (m->cmsg_level == IPPROTO_IP && m->cmsg_type == IP_TTL) {
		h->flow.hop_limit = (u8)header_int(m);
	} else if (m->cmsg_level == IPPROTO_IPV6 && m->cmsg_type == IPV6_TCLASS) {
		h->flow.traffic_class = (u8)header_int(m);
	} else if (m->cmsg_level == IPPROTO_IPV6 && m->cmsg_type == IPV6_HOPLIMIT) {
		h->flow.hop_limit = (u8)header_int(m);
	} else if (m->cmsg_level == IPPROTO_IP && m->cmsg_type == IP_PKTINFO) {
		struct in_pktinfo info;
		u8 gid[16];

		memcpy(&info, CMSG_DATA(m), sizeof(info));
		header_gid_v4(gid, &info.ipi_addr);
		if (IN_MULTICAST(ntohl(info.ipi_addr.s_addr)))
			header_destination(h, gid);
	} else if (m->cmsg_level == IPPROTO_IPV6 && m->cmsg_type == IPV6_PKTINFO) {
		struct in6_pktinfo info;

		memcpy(&info, CMSG_DATA(m), sizeof(info));
		if (IN6_IS_ADDR_MULTICAST(&info.ipi6_addr))
			header_destination(h, info.ipi6_addr.s6_addr);
	}
}

/* False: an address of another family, which the socket never returns. */
static bool header_read(struct udp_header *h, const struct udp_socket *s, struct msghdr *msg)
{
	const union node_udp_address *from = msg->msg_name;

	memset(h, 0, sizeof(*h));
	memcpy(h->flow.dgid, s->gid, 16);
	if (from->any.sa_family == AF_INET) {
		header_gid_v4(h->flow.sgid, &from->v4.sin_addr);
		h->flow.sport = ntohs(from->v4.sin_port);
	} else if (from->any.sa_family == AF_INET6) {
		memcpy(h->flow.sgid, &from->v6.sin6_addr, 16);
		h->flow.sport = ntohs(from->v6.sin6_port);
	} else {
		return false;
	}
	for (struct cmsghdr *m = CMSG_FIRSTHDR(msg); m != NULL; m = CMSG_NXTHDR(msg, m))
		header_control(h, m);
	return true;
}

/* ---- one packet ---- */

static struct udp_key receive_key(const struct udp_socket *s, const struct udp_header *h)
{
	struct udp_key key = { .slot = UDP_ANY_SLOT };

	memcpy(key.remote, h->flow.sgid, 16);
	memcpy(key.local, s->gid, 16);
	return key;
}

/* Returns the stand-in for a sender that is not known: no state is kept of it until one of its
 * packets has a right ICRC and is taken. */
static NOINLINE struct udp_dest *receive_unknown(struct udp *udp, const struct udp_key *key)
	REQUIRES(udp->poll_lock)
{
	udp->unknown->key = *key;
	memset(udp->unknown->source, 0, sizeof(*udp->unknown->source));
	return udp->unknown;
}

static struct udp_dest *receive_source(struct udp *udp, struct udp_socket *s,
				       const struct udp_header *h) REQUIRES(udp->poll_lock)
{
	struct udp_dest *d = s->last_from;
	struct udp_key key;

	if (likely(d != NULL && memcmp(d->key.remote, h->flow.sgid, 16) == 0))
		return d;
	key = receive_key(s, h);
	d = dest_source_look(udp, &key);
	if (d == NULL)
		return receive_unknown(udp, &key);
	s->last_from = d;
	return d;
}

/* Handles a packet with a right ICRC from an unknown sender. If a queue pair takes it, its sender
 * becomes a source. */
static struct udp_dest *receive_introduce(struct udp *udp, struct udp_socket *s,
					  const struct pkt *p) REQUIRES(udp->poll_lock)
{
	struct udp_dest *d = udp->unknown;

	if (s->group == NULL && !udp->path.user_ops->awaits(udp->path.user, &d->dest, p))
		return NULL;
	d = dest_source_add(udp, &d->key, d->source);
	if (d != NULL)
		s->last_from = d;
	return d;
}

/* Tells whether a packet from an own address may be of a process of this node that no other path
 * leads to. Any user of this host may send from its addresses, but by port 4791 the node's
 * processes alone. Queue pairs that are connected judge their packets themselves. */
static bool receive_is_by_wire(struct udp *udp, const struct udp_socket *s,
			       const struct udp_header *h, const struct pkt *p)
{
	u32 slot = p->qp_type == IBV_QPT_UD ? p->sqpn >> NODE_INDEX_BITS : 0;

	if (udp_slot_is_wire_only(udp, slot))
		return true;
	/* of a process that has ended meanwhile; one of a group may be of any */
	return s->group == NULL && h->flow.sport == NODE_UDP_PORT;
}

/* Judges the sender of a packet with a right ICRC: one that is unknown, or has an own address.
 * Returns its source; NULL: the packet is dropped. */
static NOINLINE struct udp_dest *receive_admit(struct udp *udp, struct udp_socket *s,
					       struct udp_dest *from, const struct udp_header *h,
					       const struct pkt *p) REQUIRES(udp->poll_lock)
{
	bool known = from != udp->unknown;

	if (known && p->qp_type != IBV_QPT_UD)
		return from;
	/* of a source it may have been own once */
	if (udp_is_own(udp, from->key.remote) && !receive_is_by_wire(udp, s, h, p)) {
		/* what the members of a group got already is no stranger's */
		if (s->group == NULL)
			udp_count(udp, COUNT_RX_WRONG_PEER);
		return NULL;
	}
	return known ? from : receive_introduce(udp, s, p);
}

static bool receive_owns(const struct udp *udp, const struct udp_socket *s, u32 qpn)
	REQUIRES(udp->poll_lock)
{
	u32 slot = qpn >> NODE_INDEX_BITS;

	if (likely(slot == s->slot))
		return true;
	/* the node's slot: a MAD that its ID has steered to this process */
	if (slot == 0)
		return qpn == 1;
	for (u32 i = 0; i < udp->slot_count; i++)
		if (udp->slots[i] == slot)
			return true;
	return false;
}

static enum path_counter receive_counter(int fault)
{
	switch (fault) {
	case ROCE_PKEY_WRONG:
		return COUNT_RX_PKEY;
	case ROCE_OPCODE:
		return COUNT_RX_OPCODE;
	default:
		return COUNT_RX_MALFORMED;
	}
}

/* Unpacks a packet with a right ICRC: 0, or the number + 1 of the counter of the drop. */
static int receive_judge(struct udp *udp, struct roce_source *source, struct udp_header *h,
			 const u8 *data, u32 length, struct pkt *p, u32 *payload)
	REQUIRES(udp->poll_lock)
{
	int err;

	if (length < ROCE_BTH + ROCE_ICRC || length > ROCE_UDP_MAX)
		return COUNT_RX_MALFORMED + 1;
	if (!h->judged && !roce_icrc_matches(source, &h->flow, data, length, udp->now_ms))
		return COUNT_RX_ICRC + 1;
	err = roce_unpack(data, length - ROCE_ICRC, p, payload);
	if (err != 0)
		return (int)receive_counter(err) + 1;
	p->sgid = h->flow.sgid;
	p->dgid = h->flow.dgid;
	p->traffic_class = h->flow.traffic_class;
	p->hop_limit = h->flow.hop_limit;
	p->flow_label = 0;
	p->slid = p->dlid = 0;
	p->sl = 0;
	p->no_grh = false;
	p->flags |= PKT_HAS_GRH | (h->multicast ? PKT_MULTICAST : 0);
	return 0;
}

/* Records a packet. Identification and DF are those that the ICRC has proven, or, if it is wrong,
 * those of the packet before. */
static void receive_capture(struct udp *udp, const struct roce_source *source,
			    const struct udp_header *h, const u8 *data, u32 length)
	REQUIRES(udp->poll_lock)
{
	struct roce_flow flow = h->flow;

	flow.id = source->id;
	flow.df = source->df;
	capture_datagram(udp->cfg.capture, true, &flow, data, length);
}

/* Delivers a multicast packet to all members of this process. */
static void receive_for_all(struct udp *udp, const struct udp_group *g, struct udp_dest *from,
			    struct pkt *p, const u8 *payload) REQUIRES(udp->poll_lock)
{
	for (u32 i = 0; i < g->count; i++) {
		p->dqpn = g->qpns[i];
		udp->path.user_ops->receive(udp->path.user, &from->dest, p, payload);
	}
}

static bool receive_is_for_us(const struct udp *udp, const struct udp_socket *s, u32 qpn)
	REQUIRES(udp->poll_lock)
{
	return s->group != NULL ? qpn == UDP_GROUP_QPN : receive_owns(udp, s, qpn);
}

/* Counts a packet that is dropped: `c` says why. */
static NOINLINE void receive_drop(struct udp *udp, const struct udp_socket *s, enum path_counter c)
{
	udp_count(udp, c);
	if (c == COUNT_RX_MALFORMED || c == COUNT_RX_ICRC)
		udp_cross(s->traffic, TRAFFIC_RCV_ERRORS, 1);
}

/* What has been received since the last call has crossed the port of the socket's device. */
static void receive_cross(struct udp *udp, const struct udp_socket *s) REQUIRES(udp->poll_lock)
{
	if (udp->fresh == 0)
		return;
	udp_cross(s->traffic, TRAFFIC_RCV_PACKETS, udp->fresh);
	udp_cross(s->traffic, TRAFFIC_RCV_BYTES, udp->fresh_bytes);
	udp->fresh = udp->fresh_bytes = 0;
}

/* Returns whether it was a packet of this path. */
static bool receive_packet(struct udp *udp, struct udp_socket *s, struct udp_dest *from,
			   struct udp_header *h, const u8 *data, u32 length)
	REQUIRES(udp->poll_lock)
{
	struct pkt p;
	u32 payload;
	int why = receive_judge(udp, from->source, h, data, length, &p, &payload);

	if (udp_is_captured(udp))
		receive_capture(udp, from->source, h, data, length);
	if (unlikely(why == 0 && !receive_is_for_us(udp, s, p.dqpn)))
		why = COUNT_RX_WRONG_SLOT + 1;
	if (unlikely(why != 0)) {
		receive_drop(udp, s, (enum path_counter)(why - 1));
		return false;
	}
	if (unlikely(__atomic_load_n(&from->is_judged, __ATOMIC_RELAXED))) {
		from = receive_admit(udp, s, from, h, &p);
		if (from == NULL)
			return false;
	}
	if (!udp_is_tallied(&p, p.dqpn)) {
		udp->fresh++;
		udp->fresh_bytes += length;
	}
	if (list_empty(&from->heard))
		list_push_back(&udp->heard, &from->heard);
	if (unlikely(s->group != NULL))
		receive_for_all(udp, s->group, from, &p, data + payload);
	else
		udp->path.user_ops->receive(udp->path.user, &from->dest, &p, data + payload);
	return true;
}

static void receive_end(struct udp *udp) REQUIRES(udp->poll_lock)
{
	struct list_head *node;

	while ((node = list_pop_front(&udp->heard)) != NULL) {
		struct udp_dest *from = list_entry(node, struct udp_dest, heard);

		udp->path.user_ops->batch_end(udp->path.user, &from->dest, false);
		if (path_owes_acks(&from->dest) && list_empty(&from->owing))
			list_push_back(&udp->owing, &from->owing);
	}
}

/* ---- a packet that waits ---- */

/* Tells whether a packet may wait. In a ping-pong an acknowledgement comes right behind the message
 * that answers this process' own. Its consumer answers the message first; the acknowledgement is
 * processed while that answer is on its way. No later packet overtakes it, since each call begins
 * with it. No sleeper misses it: while `ticking` is true the engine's thread polls, too, and when
 * it clears that, it polls afterwards, under poll_lock as here. A consumer polls likewise once it
 * counts in `sleepers`, and no packet waits from then on. */
static bool receive_may_wait(const struct udp *udp, const u8 *data, u32 left)
	REQUIRES(udp->poll_lock)
{
	return left == RECEIVE_ACK_BYTES && data[0] == PKT_ACK && udp->cfg.ticking != NULL &&
	       __atomic_load_n(udp->cfg.ticking, __ATOMIC_RELAXED) &&
	       __atomic_load_n(udp->cfg.sleepers, __ATOMIC_RELAXED) == 0;
}

static void receive_keep_rest(struct udp *udp, struct udp_socket *s, struct udp_dest *from,
			      const struct udp_header *h, const u8 *data)
	REQUIRES(udp->poll_lock)
{
	udp->inbox->rest = (struct udp_rest){ s, from, *h, data };
	__atomic_store_n(&udp->any_rest, true, __ATOMIC_RELAXED);
}

void receive_forget_rest(struct udp *udp)
{
	udp->inbox->rest.socket = NULL;
	__atomic_store_n(&udp->any_rest, false, __ATOMIC_RELAXED);
}

static int receive_rest(struct udp *udp) REQUIRES(udp->poll_lock)
{
	struct udp_rest *r = &udp->inbox->rest;
	struct udp_socket *s = r->socket;

	receive_forget_rest(udp);
	if (receive_packet(udp, s, r->from, &r->header, r->data, RECEIVE_ACK_BYTES))
		udp_count(udp, COUNT_RX_PACKETS);
	receive_cross(udp, s);
	receive_end(udp);
	return 1;
}

/* ---- one datagram, or several joined ---- */

/* The call did not return the segment length. False: the datagram is dropped, and the kernel is
 * asked from now on: about the copy that the sender sends again, and for so long that such a drop
 * stays rarer than other losses, whatever the senders. */
static bool receive_cut(struct udp *udp, struct roce_source *source, struct udp_header *h,
			const u8 *data, u32 bytes) REQUIRES(udp->poll_lock)
{
	struct udp_cut cut;

	if (unlikely(!cut_find(source, &h->flow, data, bytes, udp->now_ms, &cut))) {
		/* packets that cannot be told apart are no damaged ones */
		udp_count(udp, COUNT_RX_MALFORMED);
		udp->inbox->exact = INBOX_EXACT_LONG;
		return false;
	}
	h->segment = cut.segment;
	h->judged = cut.judged;
	/* a message and its acknowledgement are no reason to ask */
	if (unlikely(cut.segment != 0 && bytes - cut.segment != RECEIVE_ACK_BYTES))
		udp->inbox->exact = INBOX_EXACT;
	return true;
}

/* `plain`: read by the call that does not return the segment length. */
static int receive_buffer(struct udp *udp, struct udp_socket *s, struct mmsghdr *m, bool plain)
	REQUIRES(udp->poll_lock)
{
	const u8 *data = m->msg_hdr.msg_iov->iov_base;
	struct udp_header h;
	struct udp_dest *from;
	u32 left = m->msg_len, good = 0;
	int n = 0;

	if ((m->msg_hdr.msg_flags & MSG_TRUNC) != 0 || !header_read(&h, s, &m->msg_hdr)) {
		receive_drop(udp, s, COUNT_RX_MALFORMED);
		return 1;
	}
	/* multicast of this host comes back to it; its members got it already, unless its sender
	 * has no other path: then receive_admit tells them apart */
	if (s->group != NULL && udp_is_own(udp, h.flow.sgid) && !udp_slot_is_wire_only(udp, 0))
		return 1;
	from = receive_source(udp, s, &h);
	if (plain && !receive_cut(udp, from->source, &h, data, left))
		return 1;
	do {
		u32 length = h.segment != 0 ? MIN(left, h.segment) : left;

		if (plain && n == 1 && receive_may_wait(udp, data, left)) {
			receive_keep_rest(udp, s, from, &h, data);
			break;
		}
		good += receive_packet(udp, s, from, &h, data, length);
		if (unlikely(from == udp->unknown))
			from = receive_source(udp, s, &h);
		h.flow.id++;
		data += length;
		left -= length;
		n++;
	} while (left != 0);
	path_count_many(&udp->path, COUNT_RX_PACKETS, good);
	receive_cross(udp, s);
	return n;
}

/* For small single datagrams the sender is enough. Datagram queue pairs and a recorder need all
 * header fields. Congestion marks, which such packets hardly get, are sampled by every 16th poll,
 * which asks for all. */
static bool receive_is_plain(const struct udp *udp, const struct udp_socket *s)
	REQUIRES(udp->poll_lock)
{
	const struct udp_inbox *in = udp->inbox;

	return udp->cfg.connected_sockets != 0 && in->small && in->exact == 0 && s->group == NULL &&
	       !path_shows_headers(&udp->path) && !udp_is_captured(udp);
}

/* `all`: asks for all header fields. */
static int receive_socket(struct udp *udp, struct udp_socket *s, int budget, bool all)
	REQUIRES(udp->poll_lock)
{
	struct udp_inbox *in = udp->inbox;
	bool single, plain;
	u32 ask, got;
	int n = 0;

	do {
		single = inbox_is_single(in);
		plain = single && !all && receive_is_plain(udp, s);
		ask = single ? 1 : MIN(in->last + 1, (u32)INBOX_MESSAGES);
		got = inbox_fill(in, s->port.fd, ask, plain);
		if (got != 0) {
			udp->now_ms = clock_coarse_ms();
			in->exact -= in->exact != 0;
		}
		for (u32 i = 0; i < got; i++)
			n += receive_buffer(udp, s, &in->msg[i], plain);
		inbox_learn(in, single, got);
	} while (got == ask && !single && n < budget);
	if (n != 0)
		receive_end(udp);
	return n;
}

/* Receives from all sockets that are readable. */
static int receive_others(struct udp *udp, int budget) REQUIRES(udp->poll_lock)
{
	struct epoll_event ev[16];
	int count = udp_ready(udp, ev, (int)ARRAY_LEN(ev)), n = 0;

	for (int i = 0; i < count && n < budget; i++) {
		struct udp_socket *s = ev[i].data.ptr;
		int got = (ev[i].events & EPOLLIN) != 0 ? receive_socket(udp, s, budget - n, true)
							: 0;

		if (got != 0 && s != udp->hot) {
			udp->hot = s;
			udp->inbox->silent = 0;
		}
		n += got;
	}
	udp->inbox->silent++;
	return n;
}

int receive_everywhere(struct udp *udp, int budget)
{
	return udp->inbox->rest.socket != NULL ? receive_rest(udp) : receive_others(udp, budget);
}

int receive_some(struct udp *udp, int budget)
{
	struct udp_inbox *in = udp->inbox;
	u32 every = in->silent < RECEIVE_OTHERS_SELDOM ? RECEIVE_OTHERS_EVERY
						       : RECEIVE_OTHERS_SELDOM;

	if (in->rest.socket != NULL)
		return receive_rest(udp);
	in->looks++;
	if (udp->hot != NULL && in->looks % every != 0)
		return receive_socket(udp, udp->hot, budget,
				      in->looks % RECEIVE_OTHERS_EVERY == 0);
	return receive_others(udp, budget);
}
