/* conn_trace.c: what happens in the world of connections: names, lines, and how often.
 * In: events    Out: the run's hash; lines on standard output
 */
#include <stdio.h>

#include "conn.h"

typedef unsigned long long ull;

#define NAME_OF(table, i) ((i) < ARRAY_LEN(table) && (table)[i] != NULL ? (table)[i] : "?")

static const char *const state_names[] = {
	"IDLE",	       "LISTEN",       "REQ_SENT",     "REQ_RCVD",	"MRA_REQ_SENT",
	"MRA_REQ_RCVD", "REP_SENT",    "REP_RCVD",     "MRA_REP_SENT",	"MRA_REP_RCVD",
	"ESTABLISHED", "DREQ_SENT",    "DREQ_RCVD",    "TIMEWAIT",	"SIDR_REQ_SENT",
	"SIDR_REQ_RCVD",
};

static const char *const event_names[] = {
	"REQ_ERROR",	   "REQ_RECEIVED",  "REP_ERROR",     "REP_RECEIVED",
	"RTU_RECEIVED",	   "USER_ESTABLISHED", "DREQ_ERROR", "DREQ_RECEIVED",
	"DREP_RECEIVED",   "TIMEWAIT_EXIT", "MRA_RECEIVED",  "REJ_RECEIVED",
	"LAP_ERROR",	   "LAP_RECEIVED",  "APR_RECEIVED",  "SIDR_REQ_ERROR",
	"SIDR_REQ_RECEIVED", "SIDR_REP_RECEIVED",
};

static const char *const attr_names[] = {
	"REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP", "LAP", "APR",
};

static const char *const call_names[] = {
	"REQ", "REP", "RTU", "REJ", "MRA", "DREQ", "DREP", "LAP", "APR", "SIDR_REQ", "SIDR_REP",
	"ESTABLISH",
};

const char *conn_state_name(u32 state)
{
	return NAME_OF(state_names, state);
}

const char *conn_event_name(u32 event)
{
	return NAME_OF(event_names, event);
}

const char *conn_attr_name(u32 attr)
{
	return NAME_OF(attr_names, attr - CM_REQ);
}

static void trace_line(enum conn_trace_kind kind, ull a, ull b, ull c, ull d)
{
	switch (kind) {
	case CONN_TR_BEGIN:
		printf("seed %llu: %llu nodes, %llu requests%s", a, b, c, d ? ", fair" : "");
		break;
	case CONN_TR_TX:
		printf("sends %s %08llx %08llx to n%llu", conn_attr_name((u32)a), b, c, d);
		break;
	case CONN_TR_RX:
		printf("receives %s %08llx %08llx from n%llu", conn_attr_name((u32)a), b, c, d);
		break;
	case CONN_TR_LOST:
		printf("%s %08llx %08llx is lost (n%llu)", conn_attr_name((u32)a), b, c, d);
		break;
	case CONN_TR_CALL:
		printf("side %llu calls %s in %s: %llu", a, NAME_OF(call_names, b),
		       conn_state_name((u32)c), d);
		break;
	case CONN_TR_EVENT:
		printf("side %llu hears %s in %s (%llu)", a, conn_event_name((u32)b),
		       conn_state_name((u32)c), d);
		break;
	case CONN_TR_DESTROY:
		printf("side %llu is destroyed in %s%s", a, conn_state_name((u32)b),
		       c ? " by its handler" : "");
		break;
	default:
		printf("%s %llu %llu",
		       kind == CONN_TR_BIRTH   ? "begins as process"
		       : kind == CONN_TR_DEATH ? "dies as process"
		       : kind == CONN_TR_SLEEP ? "sleeps in a handler"
		       : kind == CONN_TR_CUT   ? "is cut off from"
		       : kind == CONN_TR_UNPLUG ? "loses the device of process"
		       : kind == CONN_TR_QUIET ? "nothing goes wrong from here on"
					       : "end",
		       a, b);
	}
}

void conn_trace(const struct conn_node *n, enum conn_trace_kind kind, u64 a, u64 b, u64 c, u64 d)
{
	u32 who = n == NULL ? 99 : n->id;

	if (!trace_mix(who, kind, a, b, c, d))
		return;
	printf("%14.3f us n%-3u ", (double)world.now / 1000, who);
	trace_line(kind, a, b, c, d);
	printf("\n");
}

void conn_print_coverage(void)
{
	printf("%llu connections, %llu of two peers; %llu calls refused, %llu late events, "
	       "%llu found stale, %llu wills executed\n",
	       (ull)conn_seen.connections, (ull)conn_seen.peers, (ull)conn_seen.refused,
	       (ull)conn_seen.late, (ull)conn_seen.stale, (ull)conn_seen.wills);
	printf("%llu numbers used again, %llu MADs for the owner before, %llu requests dropped, "
	       "%llu orphans gave way, %llu connections anew\n",
	       (ull)conn_seen.renumbered, (ull)conn_seen.belated, (ull)conn_seen.full,
	       (ull)conn_seen.evicted, (ull)conn_seen.again);
	for (u32 i = 0; i < CONN_STATES; i++)
		printf("state %-15s %8llu killed, %8llu destroyed\n", conn_state_name(i),
		       (ull)conn_seen.killed[i], (ull)conn_seen.destroyed[i]);
	for (u32 i = 0; i < CONN_EVENTS; i++)
		printf("event %-18s %8llu\n", conn_event_name(i), (ull)conn_seen.events[i]);
	for (u32 i = 0; i < CONN_CALLS; i++)
		printf("call %-10s %8llu\n", NAME_OF(call_names, i), (ull)conn_seen.calls[i]);
}
