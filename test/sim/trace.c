/* trace.c: what happens, mixed into a hash and, if asked for, told a line per event.
 * In: events    Out: lines on standard output, the hash; the end of the program if an oracle speaks
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ibt/send/wqe.h"
#include "model.h"

static const char *const trace_packets[PKT_OPCODES] = {
	[PKT_SEND_FIRST] = "SEND_FIRST",
	[PKT_SEND_MIDDLE] = "SEND_MIDDLE",
	[PKT_SEND_LAST] = "SEND_LAST",
	[PKT_SEND_LAST_IMM] = "SEND_LAST_IMM",
	[PKT_SEND_ONLY] = "SEND_ONLY",
	[PKT_SEND_ONLY_IMM] = "SEND_ONLY_IMM",
	[PKT_WRITE_FIRST] = "WRITE_FIRST",
	[PKT_WRITE_MIDDLE] = "WRITE_MIDDLE",
	[PKT_WRITE_LAST] = "WRITE_LAST",
	[PKT_WRITE_LAST_IMM] = "WRITE_LAST_IMM",
	[PKT_WRITE_ONLY] = "WRITE_ONLY",
	[PKT_WRITE_ONLY_IMM] = "WRITE_ONLY_IMM",
	[PKT_READ_REQUEST] = "READ_REQUEST",
	[PKT_READ_FIRST] = "READ_FIRST",
	[PKT_READ_MIDDLE] = "READ_MIDDLE",
	[PKT_READ_LAST] = "READ_LAST",
	[PKT_READ_ONLY] = "READ_ONLY",
	[PKT_ACK] = "ACK",
	[PKT_ATOMIC_ACK] = "ATOMIC_ACK",
	[PKT_COMPARE_SWAP] = "COMPARE_SWAP",
	[PKT_FETCH_ADD] = "FETCH_ADD",
	[PKT_RESYNC] = "RESYNC",
	[PKT_SEND_LAST_INV] = "SEND_LAST_INV",
	[PKT_SEND_ONLY_INV] = "SEND_ONLY_INV",
	[PKT_ABSENT] = "ABSENT",
	[PKT_ATOMIC_WRITE] = "ATOMIC_WRITE",
	[PKT_FLUSH] = "FLUSH",
};

static const char *const trace_requests[] = {
	[IBV_WR_RDMA_WRITE] = "WRITE",
	[IBV_WR_RDMA_WRITE_WITH_IMM] = "WRITE_IMM",
	[IBV_WR_SEND] = "SEND",
	[IBV_WR_SEND_WITH_IMM] = "SEND_IMM",
	[IBV_WR_RDMA_READ] = "READ",
	[IBV_WR_ATOMIC_CMP_AND_SWP] = "COMPARE_SWAP",
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = "FETCH_ADD",
	[IBV_WR_LOCAL_INV] = "LOCAL_INV",
	[IBV_WR_BIND_MW] = "BIND_MW",
	[IBV_WR_SEND_WITH_INV] = "SEND_INV",
	[IBV_WR_ATOMIC_WRITE] = "ATOMIC_WRITE",
	[WQE_WR_FLUSH] = "FLUSH",
};

static const char *const trace_statuses[] = {
	[IBV_WC_SUCCESS] = "SUCCESS",
	[IBV_WC_LOC_LEN_ERR] = "LOC_LEN_ERR",
	[IBV_WC_LOC_QP_OP_ERR] = "LOC_QP_OP_ERR",
	[IBV_WC_LOC_PROT_ERR] = "LOC_PROT_ERR",
	[IBV_WC_WR_FLUSH_ERR] = "WR_FLUSH_ERR",
	[IBV_WC_MW_BIND_ERR] = "MW_BIND_ERR",
	[IBV_WC_BAD_RESP_ERR] = "BAD_RESP_ERR",
	[IBV_WC_LOC_ACCESS_ERR] = "LOC_ACCESS_ERR",
	[IBV_WC_REM_INV_REQ_ERR] = "REM_INV_REQ_ERR",
	[IBV_WC_REM_ACCESS_ERR] = "REM_ACCESS_ERR",
	[IBV_WC_REM_OP_ERR] = "REM_OP_ERR",
	[IBV_WC_RETRY_EXC_ERR] = "RETRY_EXC_ERR",
	[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR_RETRY_EXC_ERR",
};

static const char *const trace_states[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };

#define NAME_OF(table, i)                                                                          \
	((i) < ARRAY_LEN(table) && (table)[i] != NULL ? (table)[i] : "?")

const char *trace_wr_name(u32 opcode)
{
	return NAME_OF(trace_requests, opcode);
}

const char *trace_status_name(u32 status)
{
	return NAME_OF(trace_statuses, status);
}

typedef unsigned long long ull;

static void trace_packet(const char *verb, const char *way, u64 a, u64 b, u64 c, u64 d)
{
	printf("%s %s psn %06llx %s p%llu, qp %06llx, %llu bytes", verb,
	       NAME_OF(trace_packets, a & 0xff), (ull)(b & 0xffffff), way, (ull)(a >> 32), (ull)c,
	       (ull)(d & 0xffffffff));
	if ((a & 0xff) == PKT_ACK)
		printf(", syndrome %02llx", (ull)(a >> 8 & 0xff));
	if (a >> 16 & PKT_HAS_ACK)
		printf(", acknowledges %06llx", (ull)(b >> 24 & 0xffffff));
	if (a >> 16 & PKT_ACK_REQUEST)
		printf(", asks for an acknowledgement");
	if (d >> 32 != 0)
		printf(": error %llu", (ull)(d >> 32));
}

/* What programs ask their adapters, and what these say. */
static void trace_verb(enum trace_kind kind, u64 a, u64 b, u64 c, u64 d)
{
	switch (kind) {
	case TR_CREATE:
		printf("creates %s qp %06llx, send queue %llu, receive queue %llu",
		       b == IBV_QPT_RC	 ? "RC"
		       : b == IBV_QPT_XRC_SEND ? "XRC initiator"
		       : b == IBV_QPT_XRC_RECV ? "XRC target"
		       : b == IBV_QPT_UC ? "UC"
					 : "UD",
		       (ull)a, (ull)c, (ull)d);
		break;
	case TR_MODIFY:
		printf("modifies qp %06llx to %s", (ull)a, NAME_OF(trace_states, b));
		break;
	case TR_DESTROY:
		printf("destroys qp %06llx", (ull)a);
		break;
	case TR_POST:
		printf("qp %06llx posts #%llu %s, %llu bytes", (ull)a, (ull)b,
		       trace_wr_name((u32)(c & 0xff)), (ull)d);
		if (c >> 8 != 0)
			printf(", fault %llu", (ull)(c >> 8));
		break;
	case TR_POST_FAILED:
		printf("qp %06llx cannot post #%llu and what follows: error %llu", (ull)a, (ull)c,
		       (ull)b);
		break;
	case TR_RECV:
		printf("%s %06llx posts receive #%llu, %llu bytes", d ? "srq of" : "qp", (ull)a,
		       (ull)b, (ull)c);
		break;
	case TR_DONE:
		printf("qp %06llx completes #%llu: %s, %llu bytes", (ull)a, (ull)b,
		       trace_status_name((u32)c), (ull)d);
		break;
	case TR_EVENT:
		printf("qp %06llx raises event %llu", (ull)a, (ull)b);
		break;
	case TR_KEY:
		printf("key %08llx %s%s", (ull)a, b ? "is registered" : "is withdrawn",
		       !b	       ? ""
		       : d == CELL_WINDOW ? ", a window"
		       : d == CELL_WINDOW2 ? ", a window of type 2"
		       : d == CELL_FAST   ? ", mapped"
		       : d == CELL_PAGES  ? ", pages"
					  : "");
		break;
	case TR_GROUP:
		printf("qp %06llx %s group %llu", (ull)a, b ? "joins" : "leaves", (ull)c);
		break;
	case TR_ENDS:
		printf("ends of qp %06llx: path MTUs %llu and %llu, PSNs off by %d and %d%s",
		       (ull)a, (ull)(b >> 8), (ull)(b & 0xff), (int)(c >> 32), (int)(u32)c,
		       d == ASTRAY_DEST	 ? ", its destination is nobody's"
		       : d == ASTRAY_QPN ? ", its peer's number is nobody's"
					 : "");
		break;
	default:
		printf("event of kind %d", kind);
		break;
	}
}

static void trace_print(enum trace_kind kind, u64 a, u64 b, u64 c, u64 d)
{
	switch (kind) {
	case TR_BEGIN:
		printf("seed %llu: %llu nodes, %llu processes, %llu requests", (ull)a, (ull)b,
		       (ull)c, (ull)d);
		break;
	case TR_TX:
		trace_packet("sends", "to", a, b, c, d);
		break;
	case TR_TX_REFUSED:
		trace_packet("cannot send", "to", a, b, c, d);
		break;
	case TR_RX:
		trace_packet("receives", "from", a, b, c, d);
		break;
	case TR_LOST:
		trace_packet("lost", "with", a, b, c, d);
		break;
	case TR_DIRECT:
		printf("qp %06llx %s %llu bytes by itself: %s", (ull)a, b ? "writes" : "reads",
		       (ull)c, d == 0 ? "done" : "refused");
		break;
	case TR_PULL:
		printf("qp %06llx copies %llu bytes from the sender's memory: %s", (ull)a, (ull)b,
		       c == 0 ? "done" : "refused");
		break;
	case TR_TIMERS:
		printf("%llu timers ran", (ull)a);
		break;
	case TR_STOP:
		printf("is stopped");
		break;
	case TR_CONTINUE:
		printf("continues");
		break;
	case TR_KILL:
		printf("dies");
		break;
	case TR_PORT:
		printf("port of node %llu is %s", (ull)a, b ? "up" : "down");
		break;
	case TR_QUIET:
		printf("nothing goes wrong from here on");
		break;
	case TR_END:
		printf("end: %llu events, hash %016llx", (ull)a, (ull)b);
		break;
	default:
		trace_verb(kind, a, b, c, d);
		break;
	}
}

bool trace_mix(u32 who, u32 kind, u64 a, u64 b, u64 c, u64 d)
{
	const u64 parts[] = { world.now, who, kind, a, b, c, d };

	for (u32 i = 0; i < ARRAY_LEN(parts); i++)
		world.hash = rng_mix(world.hash ^ parts[i]) + 0x9e3779b97f4a7c15ull;
	world.events++;
	return unlikely(world.tracing);
}

void trace(const struct proc *p, enum trace_kind kind, u64 a, u64 b, u64 c, u64 d)
{
	if (!trace_mix(p == NULL ? 99 : p->id, kind, a, b, c, d))
		return;
	if (p == NULL)
		printf("%14.3f us world ", (double)world.now / 1000);
	else
		printf("%14.3f us p%-4u ", (double)world.now / 1000, p->id);
	trace_print(kind, a, b, c, d);
	printf("\n");
}

void sim_fail(const char *fmt, ...)
{
	const char *commit = getenv("SIM_COMMIT");
	va_list args;

	fflush(stdout);
	printf("FAILED seed %llu, commit %s, at %.3f us, event %llu: ", (ull)world.seed,
	       commit == NULL ? "unknown" : commit,
	       (double)world.now / 1000, (ull)world.events);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	printf("\nreplay: scripts/sim --seed %llu --trace\n", (ull)world.seed);
	fflush(stdout);
	_exit(1);
}
