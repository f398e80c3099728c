/* qp.c: explains one queue pair of a process in words, from what the process shows on its board.
 * In:    PID QPN, a survey       Out: standard output
 * Runs:  the only thread         Locks: none
 * Spec:  IBA vol 1, 10.3.1 (states)
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "counters.h"
#include "qp_inside.h"
#include "survey.h"

/* What a state means to who waits for something. */
static const struct {
	const char *state, *meaning;
} qp_states[] = {
	{ "RESET", "just created: it takes no requests to send, and packets for it are dropped" },
	{ "INIT", "receives may be posted; it neither sends nor receives yet" },
	{ "RTR", "ready to receive: it answers its peer, and sends nothing of its own" },
	{ "RTS", "ready to send: it sends and receives" },
	{ "SQD", "its send queue is drained, or being drained; it still receives" },
	{ "SQE", "a send failed: it still receives, and sends again after a change to RTS" },
	{ "ERR", "failed, or ended: all requests complete with WR_FLUSH_ERR; only RESET helps" },
};

static const char *qp_meaning(const struct view_qp *q)
{
	for (size_t i = 0; i < ARRAY_LEN(qp_states); i++)
		if (strcmp(qp_states[i].state, view_state(q)) == 0)
			return qp_states[i].meaning;
	return "unknown";
}

static const struct node_gid *qp_gid(const struct survey *s, u32 gid_index)
{
	const struct node_config *d = survey_device(s, gid_index);

	return gid_index != BOARD_NO_GID && d != NULL ? &d->gids[gid_index % NODE_GIDS] : NULL;
}

/* An end on a host of a fabric. Boards do not say which of its adapters; most hosts have one. */
static void qp_print_host(const struct survey *s, const char *title, const char *host)
{
	const struct host_port *p = hosts_only_port(&s->hosts, host);

	if (p != NULL)
		printf("  %-9s %s of host %s, LID %u, port %s\n", title, p->device, host, p->lid,
		       p->state);
	else
		printf("  %-9s host %s\n", title, host);
}

static void qp_print_gid(const struct survey *s, const char *title, u32 gid_index)
{
	const struct node_gid *g = qp_gid(s, gid_index);
	char text[INET6_ADDRSTRLEN];

	if (g == NULL)
		printf("  %-9s a GID of another host\n", title);
	else
		printf("  %-9s %s, GID %u of %s\n", title,
		       inet_ntop(AF_INET6, g->gid, text, sizeof(text)), gid_index % NODE_GIDS,
		       survey_device(s, gid_index)->device);
}

/* The process that has the peer; NULL: none of this node. */
static const struct proto_record *qp_peer(const struct survey *s, u32 qpn,
					  const struct view_qp **out)
{
	for (u32 i = 0; i < s->count; i++)
		for (u32 k = 0; k < s->views[i].qp_count; k++)
			if (s->views[i].qps[k].qpn == qpn) {
				*out = &s->views[i].qps[k];
				return &s->records[i];
			}
	return NULL;
}

static void qp_print_peer(const struct survey *s, const struct proto_record *own,
			  const struct view_qp *q)
{
	/* all hosts of a fabric are in one node */
	bool here = qp_gid(s, q->dgid_index) != NULL || own->host[0] != '\0';
	const struct proto_record *r;
	const struct view_qp *peer;

	if (q->peer_qpn == 0) {
		puts("  peer      none: it is not connected, or of datagrams");
		return;
	}
	r = here ? qp_peer(s, q->peer_qpn, &peer) : NULL;
	if (r != NULL && peer->peer_qpn != q->qpn)
		printf("  peer      0x%06x of PID %d (%s), which is connected to 0x%06x\n",
		       q->peer_qpn, r->pid, r->command, peer->peer_qpn);
	else if (r != NULL)
		printf("  peer      0x%06x of PID %d (%s), in %s\n", q->peer_qpn, r->pid,
		       r->command, view_state(peer));
	else if (here)
		printf("  peer      0x%06x, which no process of this node has: it has ended\n",
		       q->peer_qpn);
	else
		printf("  peer      0x%06x of another host\n", q->peer_qpn);
	if (own->host[0] != '\0') {
		qp_print_host(s, "from", own->host);
		if (r != NULL)
			qp_print_host(s, "to", r->host);
	} else {
		qp_print_gid(s, "from", q->sgid_index);
		qp_print_gid(s, "to", q->dgid_index);
	}
	if (q->mtu >= IBV_MTU_256 && q->mtu <= IBV_MTU_4096)
		printf("  path MTU  %u\n", 128u << q->mtu);
}

static void qp_print_access(const struct view_qp *q)
{
	u32 access = q->word >> 8 & 0xff;

	printf("  allows    %s%s%s%s\n", access & IBV_ACCESS_REMOTE_WRITE ? "WRITE " : "",
	       access & IBV_ACCESS_REMOTE_READ ? "READ " : "",
	       access & IBV_ACCESS_REMOTE_ATOMIC ? "atomics " : "",
	       access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			 IBV_ACCESS_REMOTE_ATOMIC)
		       ? "by the peer"
		       : "nothing one-sided by the peer");
}

/* The words of ibv_wc_status_str(3) belong to a library that may be missing here. */
static const struct {
	u32 status;
	const char *name, *meaning;
} qp_errors[] = {
	{ IBV_WC_LOC_LEN_ERR, "LOC_LEN_ERR", "a message was longer than the receive" },
	{ IBV_WC_LOC_QP_OP_ERR, "LOC_QP_OP_ERR", "the queue pair cannot do what was asked" },
	{ IBV_WC_LOC_PROT_ERR, "LOC_PROT_ERR", "no key of this end covers the buffer" },
	{ IBV_WC_MW_BIND_ERR, "MW_BIND_ERR", "a memory window could not be bound" },
	{ IBV_WC_BAD_RESP_ERR, "BAD_RESP_ERR",
	  "the peer answered what no peer may: another path MTU, say" },
	{ IBV_WC_LOC_ACCESS_ERR, "LOC_ACCESS_ERR", "a WRITE with immediate was not allowed here" },
	{ IBV_WC_REM_INV_REQ_ERR, "REM_INV_REQ_ERR",
	  "the peer refused the request: too long for its receive or its path MTU, or not "
	  "supported" },
	{ IBV_WC_REM_ACCESS_ERR, "REM_ACCESS_ERR",
	  "the peer's key does not allow it, or does not cover it" },
	{ IBV_WC_REM_OP_ERR, "REM_OP_ERR", "the peer could not execute the request" },
	{ IBV_WC_RETRY_EXC_ERR, "RETRY_EXC_ERR", "the peer did not answer, retried and retried" },
	{ IBV_WC_RNR_RETRY_EXC_ERR, "RNR_RETRY_EXC_ERR", "the peer never had a receive posted" },
	{ IBV_WC_REM_ABORT_ERR, "REM_ABORT_ERR", "the peer ended the operation" },
	{ IBV_WC_FATAL_ERR, "FATAL_ERR", "the device failed" },
	{ IBV_WC_GENERAL_ERR, "GENERAL_ERR", "the device failed" },
	{ IBV_WC_TM_ERR, "TM_ERR", "of tag matching" },
	{ IBV_WC_TM_RNDV_INCOMPLETE, "TM_RNDV_INCOMPLETE", "a tagged message waits to be fetched" },
};

static void qp_print_last_error(const struct view_qp *q)
{
	u32 status = q->last_error & BOARD_ERROR_STATUS;
	const char *of = q->last_error & BOARD_ERROR_OF_RECEIVE ? "receive" : "send request";

	if (q->last_error == 0)
		return;
	for (size_t i = 0; i < ARRAY_LEN(qp_errors); i++)
		if (qp_errors[i].status == status) {
			printf("  last one  %s of a %s: %s\n", qp_errors[i].name, of,
			       qp_errors[i].meaning);
			return;
		}
	printf("  last one  status %u of a %s\n", status, of);
}

/* Drops are counted per process, so they may be another queue pair's. */
static void qp_print_drops(const struct view *v)
{
	for (u32 i = 0; i < PATH_COUNTERS; i++)
		if (counter_is_drop(i) && v->counters[i] != 0)
			printf("  dropped   %llu %s: %s (of the whole process)\n",
			       (unsigned long long)v->counters[i], path_counter_names[i],
			       counter_meaning(i));
}

static void qp_print(const struct survey *s, u32 process, const struct view_qp *q)
{
	printf("queue pair 0x%06x of PID %d (%s): %s, %s\n", q->qpn, s->records[process].pid,
	       s->records[process].command, view_type(q), view_state(q));
	printf("  state     %s\n", qp_meaning(q));
	qp_print_peer(s, &s->records[process], q);
	qp_print_access(q);
	printf("  sent      %llu messages, %llu bytes\n", (unsigned long long)q->sent,
	       (unsigned long long)q->sent_bytes);
	printf("  received  %llu messages, %llu bytes\n", (unsigned long long)q->received,
	       (unsigned long long)q->received_bytes);
	printf("  errors    %llu completions with an error\n", (unsigned long long)q->errors);
	qp_print_last_error(q);
	qp_print_inside(&s->views[process], q, s->records[process].pid);
	qp_print_drops(&s->views[process]);
}

static int qp_find(const struct survey *s, s32 pid, u32 qpn)
{
	bool there = false;

	for (u32 i = 0; i < s->count; i++) {
		if (s->records[i].pid != pid)
			continue;
		there = true;
		for (u32 k = 0; k < s->views[i].qp_count; k++)
			if (s->views[i].qps[k].qpn == qpn) {
				qp_print(s, i, &s->views[i].qps[k]);
				return EXIT_OK;
			}
	}
	if (there)
		return command_fail(EXIT_FAILED, "qp: the process has no queue pair 0x%06x", qpn);
	return command_fail(EXIT_FAILED, "qp: no process of the node has PID %d", pid);
}

/* A whole number up to `most`; UINT32_MAX: it is none. */
static u32 qp_number(const char *text, u32 most)
{
	char *end;
	unsigned long long value = strtoull(text, &end, 0);

	if (end == text || *end != '\0' || text[0] == '-' || value > most)
		return UINT32_MAX;
	return (u32)value;
}

int command_qp(int argc, char **argv)
{
	u32 pid = argc == 2 ? qp_number(argv[0], INT32_MAX) : UINT32_MAX;
	u32 qpn = argc == 2 ? qp_number(argv[1], 0xffffff) : UINT32_MAX;
	struct survey s;
	int err, code;

	if (pid == UINT32_MAX || qpn == UINT32_MAX)
		return command_fail(EXIT_USAGE, "qp: expects PID QPN");
	err = survey_take(&s);
	if (err == -ECONNREFUSED)
		code = command_fail(EXIT_FAILED, "qp: no node is up");
	else if (err < 0)
		code = command_fail(EXIT_FAILED, "qp: %s", absent_strerror(err));
	else
		code = qp_find(&s, (s32)pid, qpn);
	survey_free(&s);
	return code;
}
