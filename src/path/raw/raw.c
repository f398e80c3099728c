/* raw.c: AF_PACKET sockets: one sends, another one receives, so that the kernel can tell whose
 * frames come back.
 * In: frames of the caller and of the interface    Out: the same, the other way
 * Runs: senders on any thread; receiving on the thread in raw_run    Locks: listen_lock
 */
#include "path/raw/raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/lock.h"
#include "base/log.h"
#include "path/raw/filter.h"
#include "wire/ether.h"

enum {
	RAW_BATCH = 16,
	RAW_BUFFER = 8 << 20, /* of the receiving socket, where the kernel lets us */
	RAW_CLOSE_LOOK_US = 200,
};

enum { RAW_TAG_STOP = 1, RAW_TAG_RECEIVE, RAW_TAG_SEND };

/* Memory of the receiving thread: a batch, each frame behind room for a tag. */
struct raw_batch {
	struct mmsghdr msg[RAW_BATCH];
	struct iovec iov[RAW_BATCH];
	union {
		struct cmsghdr align;
		u8 bytes[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
	} control[RAW_BATCH];
	u8 frame[RAW_BATCH][ETHER_TAG + RAW_FRAME_MAX];
} OWNED_BY(the receiving thread);

struct raw {
	struct raw_config cfg FIXED;
	bool loopback FIXED;
	int send_fd FIXED, stop_fd FIXED, epoll_fd FIXED;
	bool stopped ATOMIC_ONLY; /* raw_run has returned, or is about to and uses nothing more */
	struct lock listen_lock;
	int receive_fd GUARDED_BY(listen_lock); /* -1: not listening */
	struct raw_batch *batch FIXED;
};

/* ---- opening ---- */

/* 0, or -ENODEV. */
static int raw_look_at_interface(struct raw *raw)
{
	struct ifreq req;

	memset(&req, 0, sizeof(req));
	if (if_indextoname(raw->cfg.ifindex, req.ifr_name) == NULL ||
	    ioctl(raw->send_fd, SIOCGIFHWADDR, &req) != 0)
		return -ENODEV;
	raw->loopback = req.ifr_hwaddr.sa_family == ARPHRD_LOOPBACK;
	return raw->loopback || req.ifr_hwaddr.sa_family == ARPHRD_ETHER ? 0 : -ENODEV;
}

/* `protocol` 0: the socket receives nothing. */
static int raw_bind(int fd, u32 ifindex, u16 protocol)
{
	struct sockaddr_ll to = { .sll_family = AF_PACKET,
				  .sll_ifindex = (int)ifindex,
				  .sll_protocol = htons(protocol) };

	return bind(fd, (struct sockaddr *)&to, sizeof(to)) != 0 ? -errno : 0;
}

static int raw_socket(void)
{
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0)
		return fd_own(fd);
	return errno == EAFNOSUPPORT ? -EOPNOTSUPP : -errno;
}

static int raw_watch(struct raw *raw, int fd, u32 events, u64 tag)
{
	struct epoll_event ev = { .events = events, .data.u64 = tag };

	return epoll_ctl(raw->epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0 ? -errno : 0;
}

static int raw_open_send(struct raw *raw)
{
	int err;

	raw->send_fd = raw_socket();
	if (raw->send_fd < 0)
		return raw->send_fd;
	err = raw_look_at_interface(raw);
	if (err == 0 && setsockopt(raw->send_fd, SOL_SOCKET, SO_MARK, &raw->cfg.mark,
				   sizeof(raw->cfg.mark)) != 0)
		err = -errno;
	return err != 0 ? err : raw_bind(raw->send_fd, raw->cfg.ifindex, 0);
}

static int raw_open_loop(struct raw *raw)
{
	int err;

	raw->stop_fd = fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	raw->epoll_fd = fd_own(epoll_create1(EPOLL_CLOEXEC));
	if (raw->stop_fd < 0 || raw->epoll_fd < 0)
		return -errno;
	err = raw_watch(raw, raw->stop_fd, EPOLLIN, RAW_TAG_STOP);
	return err != 0 ? err : raw_watch(raw, raw->send_fd, EPOLLONESHOT, RAW_TAG_SEND);
}

static void raw_free(struct raw *raw) NO_THREAD_SAFETY /* no other thread has it */
{
	int fds[] = { raw->send_fd, raw->stop_fd, raw->epoll_fd, raw->receive_fd };

	for (u32 i = 0; i < ARRAY_LEN(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	free(raw->batch);
	free(raw);
}

int raw_open(const struct raw_config *cfg, struct raw **out) NO_THREAD_SAFETY
{
	struct raw *raw = calloc(1, sizeof(*raw));
	int err;

	if (raw == NULL)
		return -ENOMEM;
	raw->cfg = *cfg;
	raw->send_fd = raw->stop_fd = raw->epoll_fd = raw->receive_fd = -1;
	err = raw_open_send(raw); /* first: who may open none is refused often */
	if (err == 0)
		raw->batch = malloc(sizeof(*raw->batch));
	if (err == 0)
		err = raw->batch == NULL ? -ENOMEM : raw_open_loop(raw);
	if (err != 0) {
		raw_free(raw);
		return err;
	}
	*out = raw;
	return 0;
}

void raw_close(struct raw *raw, bool runs)
{
	u64 one = 1;

	if (write(raw->stop_fd, &one, sizeof(one)) < 0)
		log_debug("raw", "stop: errno %d", errno);
	while (runs && !__atomic_load_n(&raw->stopped, __ATOMIC_ACQUIRE)) /* pairs with raw_run */
		usleep(RAW_CLOSE_LOOK_US);
	raw_free(raw);
}

void raw_drop_in_child(struct raw *raw)
{
	raw_free(raw);
}

/* ---- receiving ---- */

static void raw_enlarge(int fd)
{
	int bytes = RAW_BUFFER;

	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) != 0)
		(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

/* The filter is there before the first frame. */
static int raw_open_receive(struct raw *raw, int fd)
{
	struct packet_mreq all = { .mr_ifindex = (int)raw->cfg.ifindex,
				   .mr_type = PACKET_MR_PROMISC };
	int on = 1, err;

	raw_enlarge(fd);
	err = filter_attach(fd, raw->cfg.mark, raw->loopback);
	if (err == 0 && setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &on, sizeof(on)) != 0)
		err = -errno;
	if (err == 0 &&
	    setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof(all)) != 0)
		err = -errno;
	if (err == 0)
		err = raw_bind(fd, raw->cfg.ifindex, ETH_P_ALL);
	return err != 0 ? err : raw_watch(raw, fd, EPOLLIN, RAW_TAG_RECEIVE);
}

static int raw_listen_begin(struct raw *raw) REQUIRES(raw->listen_lock)
{
	int fd = raw_socket(), err;

	if (fd < 0)
		return fd;
	err = raw_open_receive(raw, fd);
	if (err != 0)
		close(fd);
	else
		raw->receive_fd = fd;
	return err;
}

int raw_listen(struct raw *raw, bool on)
{
	int err = 0;

	lock_acquire(&raw->listen_lock);
	if (on && raw->receive_fd < 0) {
		err = raw_listen_begin(raw);
	} else if (!on && raw->receive_fd >= 0) {
		close(raw->receive_fd);
		raw->receive_fd = -1;
	}
	lock_release(&raw->listen_lock);
	return err;
}

/* Linux takes a VLAN tag out of a frame; it stands beside it. */
static const struct tpacket_auxdata *raw_aux(struct msghdr *msg)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c))
		if (c->cmsg_level == SOL_PACKET && c->cmsg_type == PACKET_AUXDATA)
			return (const struct tpacket_auxdata *)(const void *)CMSG_DATA(c);
	return NULL;
}

static void raw_put16(u8 *to, u16 value)
{
	to[0] = (u8)(value >> 8);
	to[1] = (u8)value;
}

/* The frame as it was on the wire: begins in front of `frame` where a tag goes back in. */
static u8 *raw_restore_tag(u8 *frame, u32 *length, const struct tpacket_auxdata *aux)
{
	u8 *begin = frame - ETHER_TAG;

	if (aux == NULL || !(aux->tp_status & TP_STATUS_VLAN_VALID) || *length < ETHER_HEADER)
		return frame;
	memmove(begin, frame, ETHER_HEADER - 2);
	raw_put16(begin + ETHER_HEADER - 2, aux->tp_status & TP_STATUS_VLAN_TPID_VALID
						    ? aux->tp_vlan_tpid
						    : ETHER_TYPE_VLAN);
	raw_put16(begin + ETHER_HEADER, aux->tp_vlan_tci);
	*length += ETHER_TAG;
	return begin;
}

static void raw_take(struct raw *raw, struct mmsghdr *m, u8 *frame)
{
	u32 length = m->msg_len;
	u8 *begin = raw_restore_tag(frame, &length, raw_aux(&m->msg_hdr));

	if (m->msg_hdr.msg_flags & MSG_TRUNC)
		return;
	raw->cfg.receive(raw->cfg.arg, begin, length);
}

static void raw_prepare(struct raw_batch *b)
{
	for (u32 i = 0; i < RAW_BATCH; i++) {
		b->iov[i] = (struct iovec){ b->frame[i] + ETHER_TAG, RAW_FRAME_MAX };
		b->msg[i].msg_hdr = (struct msghdr){ .msg_iov = &b->iov[i],
						     .msg_iovlen = 1,
						     .msg_control = b->control[i].bytes,
						     .msg_controllen =
							     sizeof(b->control[i].bytes) };
	}
}

/* One batch. The socket may be closed meanwhile, and its number may be another's then: only under
 * the lock is it ours. */
static void raw_receive(struct raw *raw)
{
	struct raw_batch *b = raw->batch;
	int got = -1;

	raw_prepare(b);
	lock_acquire(&raw->listen_lock);
	if (raw->receive_fd >= 0)
		got = recvmmsg(raw->receive_fd, b->msg, RAW_BATCH, MSG_DONTWAIT, NULL);
	lock_release(&raw->listen_lock);
	for (int i = 0; i < got; i++)
		raw_take(raw, &b->msg[i], b->frame[i] + ETHER_TAG);
}

void raw_run(struct raw *raw)
{
	struct epoll_event ev[4];
	bool stop = false;

	while (!stop) {
		int n = epoll_wait(raw->epoll_fd, ev, ARRAY_LEN(ev), -1);

		for (int i = 0; i < n; i++) {
			stop |= ev[i].data.u64 == RAW_TAG_STOP;
			if (ev[i].data.u64 == RAW_TAG_RECEIVE)
				raw_receive(raw);
			else if (ev[i].data.u64 == RAW_TAG_SEND)
				raw->cfg.writable(raw->cfg.arg);
		}
	}
	__atomic_store_n(&raw->stopped, true, __ATOMIC_RELEASE); /* pairs with raw_close */
}

/* ---- sending ---- */

static void raw_want_room(struct raw *raw)
{
	struct epoll_event ev = { .events = EPOLLOUT | EPOLLONESHOT, .data.u64 = RAW_TAG_SEND };

	if (epoll_ctl(raw->epoll_fd, EPOLL_CTL_MOD, raw->send_fd, &ev) != 0)
		log_debug("raw", "epoll: errno %d", errno);
}

int raw_send(struct raw *raw, const u8 *frame, u32 length)
{
	if (send(raw->send_fd, frame, length, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return 0;
	if (errno != EAGAIN)
		return -errno;
	raw_want_room(raw);
	return -EAGAIN;
}
