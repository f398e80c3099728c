/* send.c: packets gather in a destination's batch; a batch leaves in few system calls.
 *
 * Payload is copied once, into the batch: the ICRC must match the bytes that are sent, and the
 * consumer may write to its memory meanwhile. Packets of one length in a row go as one call with
 * UDP_SEGMENT; the kernel numbers those from 0 in IPv4's identification, which the ICRC covers.
 *
 * In: packets of the engine    Out: datagrams    Runs: any thread
 * Locks: the destination's tx_lock, then lock
 */
#include "path/udp/udp_priv.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "wire/roce.h"

enum {
	SEND_SPARE = 32, /* batches that are kept for reuse */
	SEND_SINGLY_S = 10, /* seconds until batches are tried again */
};

/* ---- batches ---- */

static void batch_clear(struct udp_batch *b)
{
	b->packets = b->bytes = b->sent = b->tallied = b->tallied_bytes = 0;
}

static struct udp_batch *batch_take(struct udp *udp)
{
	struct udp_batch *b;

	lock_acquire(&udp->lock);
	b = udp->spare;
	if (b != NULL) {
		udp->spare = b->next;
		udp->spare_count--;
	}
	lock_release(&udp->lock);
	if (b == NULL)
		b = malloc(sizeof(*b));
	if (b != NULL)
		batch_clear(b);
	return b;
}

static void batch_give(struct udp *udp, struct udp_batch *b)
{
	lock_acquire(&udp->lock);
	if (udp->spare_count < SEND_SPARE) {
		b->next = udp->spare;
		udp->spare = b;
		udp->spare_count++;
		b = NULL;
	}
	lock_release(&udp->lock);
	free(b);
}

void send_free_spare(struct udp *udp)
{
	lock_acquire(&udp->lock);
	while (udp->spare != NULL) {
		struct udp_batch *b = udp->spare;

		udp->spare = b->next;
		free(b);
	}
	udp->spare_count = 0;
	lock_release(&udp->lock);
}

/* Tells whether a refused call ends the port. No other destination sends by such a port. */
static bool send_port_ends(const struct udp_port *p)
{
	return p != NULL && p->ops->retire != NULL;
}

/* Takes an empty batch; NULL: no memory. */
static struct udp_batch *batch_begin(struct udp_dest *d) REQUIRES(d->tx_lock)
{
	struct udp_batch *b = d->spare;

	if (b == NULL)
		return batch_take(d->udp);
	d->spare = NULL;
	batch_clear(b);
	return b;
}

static void batch_end(struct udp_dest *d, struct udp_batch *b) REQUIRES(d->tx_lock)
{
	if (send_port_ends(d->port) && d->spare == NULL)
		d->spare = b;
	else
		batch_give(d->udp, b);
}

static bool batch_has_room(const struct udp_batch *b, u32 bytes)
{
	return b->packets < UDP_BATCH_PACKETS && b->bytes + bytes <= UDP_BATCH_BYTES;
}

/* Place of a next packet of this length in its run: equal lengths make a run, and one shorter
 * packet may end it. */
static u32 batch_place(const struct udp_batch *b, u32 length)
{
	u32 last, first;

	if (b->packets == 0)
		return 0;
	last = b->packets - 1;
	first = last - b->place[last];
	return b->length[last] == b->length[first] && length <= b->length[first]
		       ? b->place[last] + 1u
		       : 0;
}

static u32 batch_run(const struct udp_batch *b, u32 from, u32 *bytes)
{
	u32 n = 0;

	*bytes = 0;
	do
		*bytes += b->length[from + n++];
	while (from + n < b->packets && b->place[from + n] != 0);
	return n;
}

/* Number of packets from there on that are each a run of one. */
static u32 batch_singles(const struct udp_batch *b, u32 from, u32 *bytes)
{
	u32 n = 0;

	*bytes = 0;
	while (from + n < b->packets && b->place[from + n] == 0 &&
	       (from + n + 1 == b->packets || b->place[from + n + 1] == 0))
		*bytes += b->length[from + n++];
	return n;
}

/* Address of the packet in the batch. */
static u8 *batch_at(struct udp_batch *b, u32 packet)
{
	u8 *at = b->data;

	for (u32 i = 0; i < packet; i++)
		at += b->length[i];
	return at;
}

/* ---- handing over to the kernel ---- */

/* The port that the destination's packets leave by. */
static struct path_traffic *send_port(const struct udp_dest *d) REQUIRES(d->tx_lock)
{
	return d->socket != NULL ? d->socket->traffic : &d->udp->unread;
}

/* Logs why a packet was refused, each reason once, and counts it. */
static void send_failed(const struct udp_dest *d, int err, u32 packets) REQUIRES(d->tx_lock)
{
	struct udp *udp = d->udp;
	bool size = err == -EMSGSIZE;
	u32 bit = size ? UDP_WARNED_SIZE : UDP_WARNED_SEND;

	for (u32 i = 0; i < packets; i++)
		udp_count(udp, size ? COUNT_TX_TOO_LONG : COUNT_TX_FAILED);
	udp_cross(send_port(d), TRAFFIC_XMIT_DISCARDS, packets);
	if ((__atomic_fetch_or(&udp->warned, bit, __ATOMIC_RELAXED) & bit) == 0)
		log_warn("udp", size ? "packets are too long for the way: lower the path MTU (%s)"
				     : "packets cannot be sent: %s",
			 strerror(-err));
}

/* Hands over k packets, each a datagram. Returns how many the kernel took, or a negative errno. */
static int send_few(const struct udp_dest *d, const struct udp_batch *b, u8 *data, u32 k)
	REQUIRES(d->tx_lock)
{
	struct iovec iov[UDP_CALL_MANY];
	int err;

	if (likely(k == 1)) {
		err = d->port->ops->send(d->port, d, data, b->length[b->sent], 0);
		return err == 0 ? 1 : err;
	}
	for (u32 i = 0; i < k; i++) {
		iov[i] = (struct iovec){ .iov_base = data, .iov_len = b->length[b->sent + i] };
		data += iov[i].iov_len;
	}
	return d->port->ops->send_many(d->port, d, iov, k);
}

/* If another socket of this host owns the flow label exclusively, packets go without it. */
static bool send_drops_label(struct udp_dest *d, int err) REQUIRES(d->tx_lock)
{
	if (err != -EINVAL || d->to.any.sa_family == AF_INET || d->to.v6.sin6_flowinfo == 0)
		return false;
	d->to.v6.sin6_flowinfo = 0;
	return true;
}

/* Hands over the `n` packets one by one. 0, -EAGAIN or -ESTALE (send_run); b->sent advances.
 * *taken: how many the kernel took. */
static int send_singly(struct udp_dest *d, struct udp_batch *b, u8 *data, u32 n, u32 *taken)
	REQUIRES(d->tx_lock)
{
	*taken = 0;
	while (n != 0) {
		int got = send_few(d, b, data, MIN(n, (u32)UDP_CALL_MANY));

		if (got < 0 && send_port_ends(d->port))
			return -ESTALE;
		if (got == -EAGAIN)
			return got;
		if (got < 0 && send_drops_label(d, got))
			continue;
		if (got <= 0)
			send_failed(d, got, 1);
		else
			*taken += (u32)got;
		for (int i = 0; i < MAX(got, 1); i++, n--)
			data += b->length[b->sent++];
		/* the refused call may have used up an identification */
		if (unlikely(n != 0 && send_port_ends(d->port) && got < UDP_CALL_MANY))
			return -ESTALE;
	}
	return 0;
}

/* Writes the ICRC behind a packet of `bytes`. */
static void send_sign(struct udp_dest *d, const struct roce_flow *f, u8 *data, u32 bytes)
	REQUIRES(d->tx_lock)
{
	u32 icrc = htole32(roce_icrc_whole(&d->prefix, f, data, bytes));

	memcpy(data + bytes - ROCE_ICRC, &icrc, ROCE_ICRC);
}

/* Signs the next `n` packets, which were signed for their place in a run, for the identification of
 * single datagrams. */
static void send_number_again(struct udp_dest *d, struct udp_batch *b, u8 *data, u32 n)
	REQUIRES(d->tx_lock)
{
	struct roce_flow flow = { .sport = d->port->sport, .df = true };

	memcpy(flow.sgid, d->key.local, 16);
	memcpy(flow.dgid, d->key.remote, 16);
	for (u32 i = b->sent; i < b->sent + n; i++) {
		u32 bytes = b->length[i];

		send_sign(d, &flow, data, bytes);
		b->place[i] = 0;
		data += bytes;
	}
}

/* Batches are lost: for a while each packet is a datagram of its own. */
static void send_stop_batching(struct udp_dest *d, const char *why) REQUIRES(d->tx_lock)
{
	struct udp *udp = d->udp;

	d->unbatched = true;
	d->unbatched_until_ns = clock_now_ns() + SEND_SINGLY_S * NS_PER_S;
	udp_count(udp, COUNT_TX_UNBATCHED);
	if ((__atomic_fetch_or(&udp->warned, UDP_WARNED_SEGMENT, __ATOMIC_RELAXED) &
	     UDP_WARNED_SEGMENT) == 0)
		log_info("udp", "batches of packets do not get through: one by one (%s)", why);
}

/* UDP_SEGMENT may be refused for joined packets: by an interface that cannot compute checksums
 * (EIO), by a kernel or a sandbox that does not know it. */
static bool send_is_refusal(int err)
{
	return err == -EIO || err == -EINVAL || err == -EOPNOTSUPP || err == -ENOPROTOOPT;
}

/* Hands over `n` packets together. 0; -EAGAIN: no room; -ESTALE: the port must be retired. */
static int send_run(struct udp_dest *d, struct udp_batch *b, u8 *data, u32 n, u32 bytes)
	REQUIRES(d->tx_lock)
{
	int err = d->port->ops->send(d->port, d, data, bytes, b->length[b->sent]);
	u32 taken;

	if (err != 0 && send_port_ends(d->port))
		return -ESTALE;
	if (err == -EAGAIN)
		return err;
	if (unlikely(send_is_refusal(err))) {
		int why = err;

		send_number_again(d, b, data, n);
		err = send_singly(d, b, data, n, &taken);
		/* single packets are refused, too: too long for the route, say */
		if (taken != 0)
			send_stop_batching(d, strerror(-why));
		return err;
	}
	if (err != 0)
		send_failed(d, err, n);
	b->sent += n;
	return 0;
}

static void send_stick(struct udp_dest *d) REQUIRES(d->tx_lock)
{
	struct udp *udp = d->udp;

	d->blocked = true;
	sockets_want_room(udp, d->socket, true);
	lock_acquire(&udp->lock);
	if (list_empty(&d->stuck))
		list_push_back(&udp->stuck, &d->stuck);
	__atomic_store_n(&udp->any_stuck, true, __ATOMIC_RELAXED);
	lock_release(&udp->lock);
}

/* Moves the waiting packets of the batch to another port, as single datagrams. */
static void send_retire_port(struct udp_dest *d) REQUIRES(d->tx_lock)
{
	struct udp_batch *b = d->batch;

	d->port->ops->retire(d);
	if (b != NULL && d->port != NULL)
		send_number_again(d, b, batch_at(b, b->sent), b->packets - b->sent);
}

static void send_batch_end(struct udp_dest *d) REQUIRES(d->tx_lock)
{
	struct path_traffic *port = send_port(d);
	struct udp_batch *b = d->batch;

	d->batch = NULL;
	path_count_many(&d->udp->path, COUNT_TX_PACKETS, b->packets);
	if (b->packets != b->tallied) {
		udp_cross(port, TRAFFIC_XMIT_PACKETS, b->packets - b->tallied);
		udp_cross(port, TRAFFIC_XMIT_BYTES, b->bytes - b->tallied_bytes);
	}
	if (d->port != NULL && d->port->ops->batch_left != NULL)
		d->port->ops->batch_left(d, b);
	batch_end(d, b);
}

/* Sends the batch. What the kernel has no room for stays, and the destination is blocked. */
static void send_batch(struct udp_dest *d) REQUIRES(d->tx_lock)
{
	struct udp_batch *b = d->batch;
	u8 *data = batch_at(b, b->sent);

	d->blocked = false;
	while (b->sent < b->packets && d->port != NULL) {
		u32 bytes, n = batch_singles(b, b->sent, &bytes), taken;
		int err;

		if (n != 0) {
			err = send_singly(d, b, data, n, &taken);
		} else {
			n = batch_run(b, b->sent, &bytes);
			err = send_run(d, b, data, n, bytes);
		}
		if (err == -EAGAIN) {
			send_stick(d);
			return;
		}
		if (unlikely(err == -ESTALE)) {
			send_retire_port(d);
			data = batch_at(b, b->sent);
		} else {
			data += bytes;
		}
	}
	send_batch_end(d);
}

void send_waiting(struct udp_dest *d)
{
	if (d->batch != NULL && !d->blocked)
		send_batch(d);
}

/* ---- one packet ---- */

/* Copies the payload. 0, or -EFAULT: it is not mapped any more. */
static int send_copy(u8 *to, const struct iovec *iov, int n)
{
	for (int i = 0; i < n; i++) {
		if (unlikely(fault_copy(to, iov[i].iov_base, iov[i].iov_len) != 0))
			return -EFAULT;
		to += iov[i].iov_len;
	}
	return 0;
}

/* Tells whether this packet and the one before it, joined, could be one packet as well: by chance,
 * as the ICRC of that may be right for an identification that neither has. A receiver that does
 * not ask for the segment length has to drop them (cut.c). */
static bool send_looks_single(struct udp_dest *d, const struct udp_batch *b,
			      const struct roce_flow *f, const u8 *at, u32 bytes)
	REQUIRES(d->tx_lock)
{
	u32 before = b->length[b->packets - 1];

	return roce_icrc_is_pair_possible(&d->trial, f, at - before, before, before + bytes);
}

/* Appends a packet of `bytes` on the wire, whose headers are in place. 0 or -EFAULT. */
static int send_append(struct udp_dest *d, struct udp_batch *b, u32 headers, u32 bytes,
		       u32 payload, const struct iovec *iov, int n) REQUIRES(d->tx_lock)
{
	u8 *at = b->data + b->bytes;
	u32 place = d->unbatched ? 0 : batch_place(b, bytes);
	struct roce_flow flow = { .sport = d->port->sport, .df = true };

	if (unlikely(send_copy(at + headers, iov, n) != 0))
		return -EFAULT;
	flow.id = d->port->ops->next_id(d->port, place);
	memcpy(flow.sgid, d->key.local, 16);
	memcpy(flow.dgid, d->key.remote, 16);
	memset(at + headers + payload, 0, bytes - headers - payload);
	send_sign(d, &flow, at, bytes);
	if (place == 1 && unlikely(send_looks_single(d, b, &flow, at, bytes))) {
		place = 0;
		flow.id = d->port->ops->next_id(d->port, place);
		send_sign(d, &flow, at, bytes);
	}
	if (udp_is_captured(d->udp)) {
		flow.traffic_class = d->key.traffic_class;
		flow.hop_limit = d->key.hops;
		flow.flow_label = d->key.flow_label;
		capture_datagram(d->udp->cfg.capture, false, &flow, at, bytes);
	}
	b->length[b->packets] = (u16)bytes;
	b->place[b->packets++] = (u8)place;
	b->bytes += bytes;
	return 0;
}

/* Makes room for a packet of `bytes` in a batch: 0; -EAGAIN: the kernel has none; -ENOMEM. */
static int send_make_room(struct udp_dest *d, u32 bytes) REQUIRES(d->tx_lock)
{
	if (d->batch != NULL && !batch_has_room(d->batch, bytes))
		send_batch(d);
	if (d->blocked)
		return -EAGAIN;
	if (d->batch == NULL) {
		d->batch = batch_begin(d);
		if (unlikely(d->unbatched))
			d->unbatched = clock_now_ns() < d->unbatched_until_ns;
	}
	return d->batch == NULL ? -ENOMEM : 0;
}

static int send_locked(struct udp_dest *d, const struct pkt *p, const struct iovec *iov, int n)
	REQUIRES(d->tx_lock)
{
	u32 bytes = ROCE_HEADERS_MAX + p->length + roce_pad(p->length) + ROCE_ICRC;
	int headers, err;

	if (d->port == NULL)
		return -ENETUNREACH;
	if (d->blocked)
		return -EAGAIN;
	err = send_make_room(d, bytes);
	if (err != 0)
		return err;
	headers = roce_pack(p, d->batch->data + d->batch->bytes);
	if (headers < 0)
		return headers;
	bytes -= ROCE_HEADERS_MAX - (u32)headers;
	err = send_append(d, d->batch, (u32)headers, bytes, p->length, iov, n);
	if (err == 0 && udp_is_tallied(p, p->sqpn)) {
		d->batch->tallied++;
		d->batch->tallied_bytes += bytes;
	}
	return err;
}

int send_packet(struct path_dest *dest, const struct pkt *p, const struct iovec *iov, int n)
{
	struct udp_dest *d = udp_dest_of(dest);
	int err;

	if (unlikely(d->nowhere))
		return -ENETUNREACH;
	lock_acquire(&d->tx_lock);
	err = send_locked(d, p, iov, n);
	lock_release(&d->tx_lock);
	return err;
}

void send_flush(struct path_dest *dest)
{
	struct udp_dest *d = udp_dest_of(dest);

	lock_acquire(&d->tx_lock);
	send_waiting(d);
	lock_release(&d->tx_lock);
}

/* The ICRC covers the source port: a waiting batch is sent before the port changes. If the kernel
 * has no room the batch is signed anew, or dropped if the address has left. */
void send_from(struct udp_dest *d, struct udp_socket *s)
{
	bool other = d->socket != NULL && s != NULL && s->port.sport != d->socket->port.sport;
	struct udp_batch *b;

	if (d->batch != NULL && (other || send_port_ends(d->port)))
		send_batch(d);
	if (s != d->socket && send_port_ends(d->port))
		send_retire_port(d);
	if (!send_port_ends(d->port))
		d->port = s == NULL ? NULL : &s->port;
	d->socket = s;
	b = d->batch;
	if (b != NULL && s == NULL)
		send_batch(d);
	else if (b != NULL && other)
		send_number_again(d, b, batch_at(b, b->sent), b->packets - b->sent);
}

/* Waiting packets are sent as they are: part of their run may be sent already. */
void send_batches_lost(struct path_dest *dest)
{
	struct udp_dest *d = udp_dest_of(dest);

	lock_acquire(&d->tx_lock);
	send_waiting(d);
	if (!d->unbatched)
		send_stop_batching(d, "no answer");
	lock_release(&d->tx_lock);
}

/* Checks a port that may be stale: if the kernel numbers otherwise than predicted no packet through
 * it arrives. */
void send_peer_silent(struct path_dest *dest)
{
	struct udp_dest *d = udp_dest_of(dest);

	lock_acquire(&d->tx_lock);
	if (send_port_ends(d->port))
		send_waiting(d);
	if (send_port_ends(d->port) && (d->batch != NULL || d->port->ops->is_stale(d->port, d)))
		send_retire_port(d);
	lock_release(&d->tx_lock);
}

static struct udp_dest *send_take_stuck(struct udp *udp)
{
	struct list_head *node;

	lock_acquire(&udp->lock);
	node = list_pop_front(&udp->stuck);
	__atomic_store_n(&udp->any_stuck, !list_empty(&udp->stuck), __ATOMIC_RELAXED);
	lock_release(&udp->lock);
	return node == NULL ? NULL : list_entry(node, struct udp_dest, stuck);
}

void send_retry(struct udp *udp)
{
	for (int limit = 64; limit > 0; limit--) {
		struct udp_dest *d = send_take_stuck(udp);
		bool blocked;

		if (d == NULL)
			return;
		lock_acquire(&d->tx_lock);
		if (d->batch != NULL)
			send_batch(d);
		blocked = d->blocked;
		if (!blocked && d->socket != NULL)
			sockets_want_room(udp, d->socket, false);
		lock_release(&d->tx_lock);
		if (blocked)
			return;
		if (path_is_awaited(&d->dest))
			udp->path.user_ops->writable(udp->path.user, &d->dest);
	}
}
