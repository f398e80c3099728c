/* qp_inside.c: what a queue pair keeps for itself, read from its process' memory: queues, PSNs,
 * retries, the window.
 * In: what the process shows on its board, of any content    Out: standard output
 * Runs: the only thread                                       Locks: none
 */
#include "qp_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INSIDE_MAX = 4096, INSIDE_TRIES = 3, PSN_BITS = 0xffffff, NO_LIMIT_OF_RNR = 7 };

struct inside {
	u64 at[INSIDE_COUNT];
} OWNED_BY(the caller);

static bool inside_bytes(int fd, u64 addr, void *to, size_t bytes)
{
	return addr <= INT64_MAX && pread(fd, to, bytes, (off_t)addr) == (ssize_t)bytes;
}

/* Fields `from` to `end` of what lies at `addr`, by one read, so that they belong together as well
 * as a reader without locks can have them. */
static bool inside_fields(int fd, const struct view *v, u64 addr, u32 from, u32 end,
			  struct inside *out)
{
	u8 memory[INSIDE_MAX];
	u32 low = INSIDE_MAX, high = 0;

	for (u32 i = from; i < end; i++) {
		const struct path_place *p = &v->inside[i];

		if (p->bytes == 0 || p->bytes > sizeof(u64) || p->offset + p->bytes > INSIDE_MAX)
			return false;
		low = MIN(low, (u32)p->offset);
		high = MAX(high, (u32)p->offset + p->bytes);
	}
	if (addr == 0 || !inside_bytes(fd, addr + low, memory, high - low))
		return false;
	for (u32 i = from; i < end; i++) {
		out->at[i] = 0; /* x86-64 and arm64: the low bytes come first */
		memcpy(&out->at[i], memory + v->inside[i].offset - low, v->inside[i].bytes);
	}
	return true;
}

/* The queue pair may go, or change its destination, between two reads: then again. */
static bool inside_take(int fd, const struct view *v, const struct view_qp *q, struct inside *out)
{
	for (int i = 0; i < INSIDE_TRIES; i++) {
		struct inside again;

		if (!inside_fields(fd, v, q->inside, INSIDE_QPN, INSIDE_QP_COUNT, out) ||
		    out->at[INSIDE_QPN] != q->qpn)
			return false;
		if (out->at[INSIDE_STREAMS] == 0 || out->at[INSIDE_DEST] == 0)
			return true;
		if (inside_fields(fd, v, out->at[INSIDE_DEST], INSIDE_DEST_WINDOW,
				  INSIDE_DEST_WINDOW + 1, out) &&
		    inside_fields(fd, v, out->at[INSIDE_DEST_WINDOW], INSIDE_DEST_WINDOW + 1,
				  INSIDE_COUNT, out) &&
		    inside_fields(fd, v, q->inside, INSIDE_QPN, INSIDE_QP_COUNT, &again) &&
		    again.at[INSIDE_QPN] == q->qpn &&
		    again.at[INSIDE_DEST] == out->at[INSIDE_DEST])
			return true;
	}
	return false;
}

/* Of the process that has the board: its nonce lies where the board says. Negative errno. */
static int inside_open(const struct view *v, s32 pid)
{
	char path[32];
	u64 nonce;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (inside_bytes(fd, v->nonce_addr, &nonce, sizeof(nonce)) && nonce == v->nonce)
		return fd;
	close(fd);
	return -ESRCH;
}

/* A difference of two counters that run freely, which were not read at one instant. */
static u32 inside_between(const struct inside *in, u32 late, u32 early)
{
	u32 n = (u32)in->at[late] - (u32)in->at[early];

	return n > INT32_MAX ? 0 : n;
}

static void inside_print_queues(const struct inside *in)
{
	printf("  sends     %u not complete, %u of them sent at least in part; %u places, each "
	       "taken until a completion is polled\n",
	       inside_between(in, INSIDE_SQ_HEAD, INSIDE_SQ_TAIL),
	       inside_between(in, INSIDE_SQ_NEXT, INSIDE_SQ_TAIL), (u32)in->at[INSIDE_SQ_SIZE]);
	if (in->at[INSIDE_SRQ] != 0)
		puts("  receives  those of an SRQ");
	else
		printf("  receives  %u posted; %u places, each taken until its completion is "
		       "polled\n",
		       inside_between(in, INSIDE_RQ_HEAD, INSIDE_RQ_TAIL),
		       (u32)in->at[INSIDE_RQ_SIZE]);
}

static u32 inside_psn(const struct inside *in, u32 field)
{
	return (u32)in->at[field] & PSN_BITS;
}

static void inside_print_psns(const struct inside *in, bool sends)
{
	if (sends)
		printf("  sends PSN 0x%06x next", inside_psn(in, INSIDE_SQ_PSN));
	if (sends && in->at[INSIDE_STREAMS] != 0)
		printf("; all before 0x%06x are acknowledged", inside_psn(in, INSIDE_UNA));
	printf("%s  awaits    PSN 0x%06x, behind %u messages\n", sends ? "\n" : "",
	       inside_psn(in, INSIDE_EPSN), inside_psn(in, INSIDE_MSN));
}

static void inside_print_retries(const struct inside *in)
{
	u32 rnr = (u32)in->at[INSIDE_RNR_LEFT];

	printf("  retries   %u left; ", (u32)in->at[INSIDE_RETRY_LEFT]);
	if (rnr >= NO_LIMIT_OF_RNR)
		fputs("without end where the peer has no receive posted", stdout);
	else
		printf("%u where the peer has no receive posted", rnr);
	puts(in->at[INSIDE_WAITS_RNR] == 1 ? ". It waits for that now" : "");
	if (in->at[INSIDE_STREAMS] != 0 && in->at[INSIDE_BACKOFF] != 0)
		printf("            %u retransmissions since the peer's last response\n",
		       (u32)in->at[INSIDE_BACKOFF]);
}

/* Between processes of one host nothing is lost, so there is none. */
static void inside_print_window(const struct inside *in)
{
	if (in->at[INSIDE_STREAMS] == 0) {
		puts("  window    none: on this way no packet is lost");
		return;
	}
	printf("  window    %u bytes in flight to the peer's process, ",
	       (u32)in->at[INSIDE_IN_FLIGHT]);
	printf("%u of them this queue pair's, of ", (u32)in->at[INSIDE_CHARGED]);
	if (in->at[INSIDE_LIMIT] == 0)
		fputs("a usual receive buffer", stdout);
	else
		printf("%u", (u32)in->at[INSIDE_LIMIT]);
	if (in->at[INSIDE_SRTT_US] != 0)
		printf("; round trip %u us", (u32)in->at[INSIDE_SRTT_US]);
	putchar('\n');
}

/* PSNs, retries and the window are those of a connection, and of a state in which it has them. */
static void inside_print(const struct view_qp *q, const struct inside *in)
{
	u32 type = q->word >> 4 & 0xf, state = q->word & 0xf;
	bool sends = state >= IBV_QPS_RTS && type != IBV_QPT_XRC_RECV;

	inside_print_queues(in);
	if (q->peer_qpn == 0 || state < IBV_QPS_RTR)
		return;
	inside_print_psns(in, sends);
	if (sends && type != IBV_QPT_UC) {
		inside_print_retries(in);
		inside_print_window(in);
	}
}

void qp_print_inside(const struct view *v, const struct view_qp *q, s32 pid)
{
	struct inside in;
	int fd = q->inside == 0 ? -ENOENT : inside_open(v, pid);

	if (fd >= 0 && inside_take(fd, v, q, &in))
		inside_print(q, &in);
	else
		printf("  inside    PSNs, retries and window cannot be read: %s\n",
		       q->inside == 0 ? "the process does not show where they are"
		       : fd < 0	      ? strerror(-fd)
				      : "the queue pair has just gone");
	if (fd >= 0)
		close(fd);
}
