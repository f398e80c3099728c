/* wire_fuzz.c: what a stranger may send in datagrams, from the socket to the last byte of the
 * engine.
 *
 * The input is a list of steps: a head, and a datagram as the kernel would hand it over, of which
 * some fields may be told to be right. Time is virtual and goes on as the head says. The kernel is
 * __wrap_syscall. After each input, memory that no key gives away must be as before.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "bed.h"
#include "path/udp/udp_priv.h"

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum { STEPS = 64, MOST = 5000, RETH_VA = 12, RETH_KEY = 20, RETH_LENGTH = 24, PORT = 50000 };

enum what {
	RIGHT_QP = 1,
	RIGHT_PSN = 2,
	RIGHT_KEY = 4,
	RIGHT_ADDRESS = 8,
	POST_SEND = 16,
	WRONG_ICRC = 32,
	OTHER_SOURCE = 64,
	NO_ROOM = 128, /* the kernel takes nothing */
};

/* Bits of `how`: what the kernel says besides. */
enum { JOINED = 1, MULTICAST = 2, MARKED = 4, CUT = 8, FROM_END = 16 };

struct step {
	u8 what, qp, key;
	int8_t psn;
	u8 how, time;
	u16 length;
};

static const u8 ours[16] = { [10] = 0xff, [11] = 0xff, 127, 0, 0, 77 };
static const u8 theirs[16] = { [10] = 0xff, [11] = 0xff, 127, 0, 0, 78 };

static struct fuzz {
	struct bed bed;
	struct udp *udp;
	u64 counters[PATH_COUNTERS];
	u64 now_ns;
	struct step step;
	bool waiting; /* a datagram */
	u8 data[MOST + 64];
	u32 length;
} f = { .now_ns = NS_PER_S };

/* ---- the kernel ---- */

long __wrap_syscall(long number, ...);
long __real_syscall(long number, ...);

static void kernel_say(struct msghdr *m, int level, int type, const void *value, size_t size)
{
	struct cmsghdr *c = (struct cmsghdr *)((u8 *)m->msg_control + m->msg_controllen);

	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(size);
	memcpy(CMSG_DATA(c), value, size);
	m->msg_controllen += CMSG_SPACE(size);
}

static void kernel_control(struct msghdr *m)
{
	struct in_pktinfo info = { .ipi_addr.s_addr = htonl(0x7f00004d) };
	int ttl = 64, segment = (int)(f.length / 2);
	u8 tos = f.step.how & MARKED ? 3 : 2;

	m->msg_controllen = 0;
	if (f.step.how & MULTICAST)
		info.ipi_addr.s_addr = htonl(0xef010203);
	kernel_say(m, IPPROTO_IP, IP_PKTINFO, &info, sizeof(info));
	kernel_say(m, IPPROTO_IP, IP_TTL, &ttl, sizeof(ttl));
	kernel_say(m, IPPROTO_IP, IP_TOS, &tos, sizeof(tos));
	if (f.step.how & JOINED)
		kernel_say(m, SOL_UDP, UDP_GRO, &segment, sizeof(segment));
}

static long kernel_receive(struct mmsghdr *m)
{
	struct sockaddr_in from = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	if (!f.waiting) {
		errno = EAGAIN;
		return -1;
	}
	f.waiting = false;
	memcpy(&from.sin_addr, theirs + 12, 4);
	if (f.step.what & OTHER_SOURCE)
		from.sin_addr.s_addr ^= htonl(0x100);
	memcpy(m->msg_hdr.msg_name, &from, sizeof(from));
	m->msg_hdr.msg_namelen = sizeof(from);
	memcpy(m->msg_hdr.msg_iov->iov_base, f.data, f.length);
	m->msg_len = f.length;
	m->msg_hdr.msg_flags = f.step.how & CUT ? MSG_TRUNC : 0;
	kernel_control(&m->msg_hdr);
	return 1;
}

static long kernel_send(const struct msghdr *m)
{
	if (f.step.what & NO_ROOM) {
		errno = EAGAIN;
		return -1;
	}
	return (long)m->msg_iov->iov_len;
}

long __wrap_syscall(long number, ...)
{
	long a[6];
	va_list list;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	switch (number) {
	case SYS_recvmmsg:
		return kernel_receive((struct mmsghdr *)a[1]);
	case SYS_sendmsg:
		return kernel_send((const struct msghdr *)a[1]);
	case SYS_epoll_pwait:
		return 0;
	default:
		return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	}
}

static u64 fuzz_clock(void)
{
	return f.now_ns;
}

/* ---- the node ---- */

int __wrap_node_device_get(struct node *n, u32 index, struct node_config *out);
int __wrap_node_udp_sockets(struct node *n, u32 device, u32 slot, struct node_socket *out, int max);
bool __wrap_node_slot_is_wire_only(struct node *n, u32 slot);

/* One device. */
int __wrap_node_device_get(struct node *n, u32 index, struct node_config *out)
{
	if (index != 0)
		return -ENODEV;
	memset(out, 0, sizeof(*out));
	return 0;
}

int __wrap_node_udp_sockets(struct node *n, u32 device, u32 slot, struct node_socket *out, int max)
{
	*out = (struct node_socket){ .fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), .id = 1 };
	memcpy(out->gid, ours, 16);
	return 1;
}

bool __wrap_node_slot_is_wire_only(struct node *n, u32 slot)
{
	return false;
}

static void fuzz_kick(void *arg)
{
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct udp_config cfg = { .counters = f.counters, .kick = fuzz_kick };
	struct path_av av = { .hop_limit = 64 };
	struct path *path;
	int err;

	clock_set_source(fuzz_clock);
	f.udp = udp_create(&cfg, &err);
	fuzz_need(f.udp != NULL && udp_slot_own(f.udp, BED_OUR_SLOT) == 0, "no path");
	path = udp_path(f.udp);
	memcpy(av.sgid, ours, 16);
	memcpy(av.dgid, theirs, 16);
	bed_open(&f.bed, NULL, path, path->ops->dest_get(path, &av, bed_peer_qpn(0)), IBV_MTU_256);
	return 0;
}

/* ---- steps ---- */

static void fuzz_put32(u32 at, u32 value)
{
	value = htonl(value);
	if (at + 4 <= f.length)
		memcpy(f.data + at, &value, 4);
}

/* Answers count by our numbers, requests by the peer's. */
static u32 fuzz_psn(u8 opcode, int i)
{
	struct ibv_qp_attr attr;

	ibt_qp_query(f.bed.qp[i], &attr);
	return opcode >= 0x0d && opcode <= 0x12 ? attr.sq_psn : attr.rq_psn;
}

static void fuzz_correct(void)
{
	const struct step *s = &f.step;
	int i = bed_pick(s->qp);
	/* an XRCETH lies in front of the RETH */
	u32 reth = i == BED_XRC_TGT ? RETH_VA + 4 : RETH_VA, length;
	u64 va = (u64)(uintptr_t)f.bed.memory + BED_OPEN_AT + f.data[reth + 7];

	if (f.length < ROCE_BTH)
		return;
	memcpy(&length, f.data + reth + (RETH_LENGTH - RETH_VA), sizeof(length));
	if (s->what & RIGHT_QP) {
		f.data[1] &= 0xf0;
		fuzz_put32(4, bed_qpn(i));
		f.data[2] = f.data[3] = 0xff;
		if (i == BED_UD_QP)
			fuzz_put32(ROCE_BTH, BED_QKEY);
		if (i >= BED_XRC_INI)
			f.data[0] = 0xa0 | (f.data[0] & 0x1f);
		if (i == BED_XRC_TGT)
			fuzz_put32(ROCE_BTH, bed_srqn());
	}
	if (s->what & RIGHT_PSN)
		fuzz_put32(8, (u32)(f.data[8] & 0x80) << 24 |
				      ((fuzz_psn(f.data[0] & 0x1f, i) + (u32)(s->psn / 8)) &
				       0xffffff));
	if (s->what & RIGHT_KEY)
		fuzz_put32(reth + (RETH_KEY - RETH_VA), f.bed.key[s->key % BED_KEYS]);
	if (s->what & RIGHT_ADDRESS) {
		if (s->how & FROM_END) /* or a few bytes beside */
			va = (u64)(uintptr_t)f.bed.memory + BED_OPEN_AT + BED_OPEN_BYTES -
			     ntohl(length) + (u64)(s64)(s->psn % 4);
		fuzz_put32(reth, (u32)(va >> 32));
		fuzz_put32(reth + 4, (u32)va);
	}
}

static void fuzz_sign(u8 *data, u32 length)
{
	struct roce_flow flow = { .sport = PORT, .df = true };
	u32 icrc;

	if (length < ROCE_BTH + ROCE_ICRC || length > ROCE_UDP_MAX)
		return;
	memcpy(flow.sgid, theirs, 16);
	memcpy(flow.dgid, ours, 16);
	if (f.step.what & OTHER_SOURCE)
		flow.sgid[14] ^= 1;
	if (f.step.how & MULTICAST)
		memcpy(flow.dgid + 12, (u8[]){ 0xef, 1, 2, 3 }, 4);
	icrc = roce_icrc_begin(&flow, length, data, ROCE_BTH);
	icrc = roce_icrc_add(icrc, data + ROCE_BTH, length - ROCE_BTH - ROCE_ICRC);
	roce_icrc_end(icrc, 0, data + length - ROCE_ICRC);
}

static void fuzz_step(const u8 *data)
{
	u32 segment = f.length / 2;

	memcpy(f.data, data, f.length);
	fuzz_correct();
	if (!(f.step.what & WRONG_ICRC)) {
		if (f.step.how & JOINED && segment != 0) {
			fuzz_sign(f.data, segment);
			fuzz_sign(f.data + segment, segment);
		} else {
			fuzz_sign(f.data, f.length);
		}
	}
	if (f.step.what & POST_SEND)
		bed_post_send(&f.bed, bed_pick(f.step.qp), f.step.key);
	f.now_ns += (u64)f.step.time * f.step.time * 10 * NS_PER_US;
	f.waiting = true;
	lock_acquire(&f.udp->lock);
	lock_acquire(&f.udp->poll_lock);
	f.udp->hot = f.udp->sockets[0];
	lock_release(&f.udp->poll_lock);
	lock_release(&f.udp->lock);
	for (int i = 0; i < 3 && (f.waiting || i == 0); i++)
		ibt_look(f.bed.ibt, 64);
	timer_run(&f.bed.timers, f.now_ns);
}

/* What is known of a source's packets is of this input only. */
static void fuzz_forget_sources(void) NO_THREAD_SAFETY
{
	for (u32 i = 0; i < UDP_BUCKETS; i++)
		for (struct udp_dest *d = f.udp->buckets[i]; d != NULL; d = d->next)
			memset(&d->source, 0, sizeof(d->source));
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	fuzz_forget_sources();
	bed_connect(&f.bed);
	for (int n = 0; size >= sizeof(f.step) && n < STEPS; n++) {
		memcpy(&f.step, data, sizeof(f.step));
		data += sizeof(f.step);
		size -= sizeof(f.step);
		f.length = (u32)MIN(MIN((size_t)f.step.length, size), (size_t)MOST);
		fuzz_step(data);
		data += f.length;
		size -= f.length;
	}
	f.step.what = 0;
	bed_check(&f.bed);
	return 0;
}
