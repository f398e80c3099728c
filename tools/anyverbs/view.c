/* view.c: reads a process' board and prints it.
 * In:    the board's descriptor, of any content      Out: standard output
 * Runs:  the only thread                             Locks: none
 */
#include "view.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "node/node.h"

enum { VIEW_CHUNK = 512, VIEW_TEXT_QPS = 16 };

static const char *const view_types[] = {
	[IBV_QPT_RC] = "RC",	      [IBV_QPT_UC] = "UC",
	[IBV_QPT_UD] = "UD",	      [IBV_QPT_RAW_PACKET] = "RAW",
	[IBV_QPT_XRC_SEND] = "XRCI", [IBV_QPT_XRC_RECV] = "XRCT",
};
static const char *const view_states[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };

const char *view_type(const struct view_qp *q)
{
	u32 type = q->word >> 4 & 0xf;

	return type < ARRAY_LEN(view_types) && view_types[type] != NULL ? view_types[type] : "?";
}

const char *view_state(const struct view_qp *q)
{
	u32 state = q->word & 0xf;

	return state < ARRAY_LEN(view_states) ? view_states[state] : "?";
}

/* Of a queue pair that goes by LIDs none is known. */
static u16 view_gid(const struct board_qp *q, u16 number)
{
	return q->link & BOARD_LIDS ? BOARD_NO_GID : number;
}

static bool view_add(struct view *v, u32 place, const struct board_qp *q,
		     const struct board_tally *t)
{
	struct view_qp *grown = v->qps;

	/* doubles whenever the count is a power of two */
	if ((v->qp_count & (v->qp_count - 1)) == 0)
		grown = realloc(v->qps,
				sizeof(*grown) * (v->qp_count == 0 ? 1 : 2 * (size_t)v->qp_count));
	if (grown == NULL)
		return false;
	v->qps = grown;
	v->qps[v->qp_count++] = (struct view_qp){ .word = q->word,
						  .qpn = q->qpn,
						  .place = place,
						  .peer_qpn = q->peer_qpn,
						  .sgid_index = view_gid(q, q->from),
						  .dgid_index = view_gid(q, q->to),
						  .mtu = q->mtu,
						  .sent = t->sent,
						  .received = t->received,
						  .sent_bytes = t->sent_bytes,
						  .received_bytes = t->received_bytes,
						  .errors = t->errors,
						  .last_error = t->last_error,
						  .inside = q->inside };
	return true;
}

/* VIEW_CHUNK elements of one of the board's arrays, from element `first` on. */
static bool view_read_chunk(int fd, void *chunk, size_t bytes, size_t array, u32 first)
{
	off_t at = (off_t)(array + first * (bytes / VIEW_CHUNK));

	return pread(fd, chunk, bytes, at) == (ssize_t)bytes;
}

/* Reads the queue pairs of one slot. By read, not by map: reading a hole of a mapped memfd would
 * allocate it. */
static void view_read_slot(int fd, u32 slot, struct view *v)
{
	u32 first = slot * BOARD_QPS_PER_SLOT;
	struct board_tally tallies[VIEW_CHUNK];
	struct board_qp chunk[VIEW_CHUNK];

	for (u32 i = first; i < first + BOARD_QPS_PER_SLOT; i += VIEW_CHUNK) {
		if (!view_read_chunk(fd, chunk, sizeof(chunk), offsetof(struct board, qps), i) ||
		    !view_read_chunk(fd, tallies, sizeof(tallies), offsetof(struct board, tallies),
				     i))
			return;
		for (u32 k = 0; k < VIEW_CHUNK; k++)
			if ((chunk[k].word & BOARD_QP_EXISTS) &&
			    !view_add(v, i + k, &chunk[k], &tallies[k]))
				return;
	}
}

/* Reads one field of the board. */
#define VIEW_FIELD(fd, field, to)                                                                  \
	(pread(fd, to, sizeof(((struct board *)NULL)->field), offsetof(struct board, field)) ==    \
	 (ssize_t)sizeof(((struct board *)NULL)->field))

static bool view_is_board(int fd)
{
	u64 magic;
	u32 version, size;

	return VIEW_FIELD(fd, magic, &magic) && VIEW_FIELD(fd, version, &version) &&
	       VIEW_FIELD(fd, size_check, &size) && magic == BOARD_MAGIC &&
	       version == BOARD_VERSION && size == (u32)sizeof(struct board);
}

static void view_read_memory(int fd, struct view *v)
{
	struct adopt_table t;

	if (!VIEW_FIELD(fd, memory, &t))
		return;
	for (u32 i = 0; i < MIN(t.high, (u32)ADOPT_REGIONS); i++) {
		if (t.at[i].offset == 0)
			continue;
		v->adopted_regions++;
		v->adopted_bytes += t.at[i].length;
	}
}

/* Adds the direct operations, which are counted with their hazards. */
static void view_count_direct(int fd, struct view *v)
{
	struct board_hazard hazards[BOARD_HAZARDS];

	if (!VIEW_FIELD(fd, hazards, &hazards))
		return;
	for (u32 i = 0; i < BOARD_HAZARDS; i++)
		v->counters[COUNT_DIRECT] += hazards[i].done;
}

void view_read(int fd, struct view *out)
{
	u32 slots;

	memset(out, 0, sizeof(*out));
	if (!view_is_board(fd) || !VIEW_FIELD(fd, slot_count, &slots) ||
	    !VIEW_FIELD(fd, counters, out->counters) || !VIEW_FIELD(fd, nonce, &out->nonce) ||
	    !VIEW_FIELD(fd, nonce_addr, &out->nonce_addr) || !VIEW_FIELD(fd, inside, out->inside))
		return;
	out->valid = true;
	view_count_direct(fd, out);
	view_read_memory(fd, out);
	for (u32 i = 0; i < MIN(slots, (u32)BOARD_SLOTS); i++)
		view_read_slot(fd, i, out);
}

void view_free(struct view *v)
{
	free(v->qps);
	v->qps = NULL;
}

static void view_print_qp(const struct view_qp *q)
{
	printf("%14s QP 0x%06x %-2s %-5s", "", q->qpn, view_type(q), view_state(q));
	if (q->peer_qpn != 0)
		printf(" -> 0x%06x", q->peer_qpn);
	printf("  sent %llu (%llu B), received %llu (%llu B), errors %llu\n",
	       (unsigned long long)q->sent, (unsigned long long)q->sent_bytes,
	       (unsigned long long)q->received, (unsigned long long)q->received_bytes,
	       (unsigned long long)q->errors);
}

void view_print(const struct view *v)
{
	const char *before = "counters:";

	if (!v->valid)
		return;
	if (v->adopted_regions != 0)
		printf("%14s memory that peers may map: %llu B, %u regions\n", "",
		       (unsigned long long)v->adopted_bytes, v->adopted_regions);
	for (u32 i = 0; i < MIN(v->qp_count, (u32)VIEW_TEXT_QPS); i++)
		view_print_qp(&v->qps[i]);
	if (v->qp_count > VIEW_TEXT_QPS)
		printf("%14s and %u more QPs (--json shows them)\n", "",
		       v->qp_count - VIEW_TEXT_QPS);
	for (int i = 0; i < PATH_COUNTERS; i++) {
		if (v->counters[i] == 0)
			continue;
		printf("%*s %s %llu", before[0] == ',' ? 1 : 23, before, path_counter_names[i],
		       (unsigned long long)v->counters[i]);
		before = ",";
	}
	if (before[0] == ',')
		putchar('\n');
}

void view_print_json(const struct view *v)
{
	if (!v->valid)
		return;
	printf(",\n      \"adopted\": {\"regions\": %u, \"bytes\": %llu}", v->adopted_regions,
	       (unsigned long long)v->adopted_bytes);
	fputs(",\n      \"qps\": [", stdout);
	for (u32 i = 0; i < v->qp_count; i++) {
		const struct view_qp *q = &v->qps[i];

		printf("%s\n        {\"qpn\": %u, \"type\": \"%s\", \"state\": \"%s\", "
		       "\"peer_qpn\": %u,"
		       " \"sent\": %llu, \"sent_bytes\": %llu, \"received\": %llu,"
		       " \"received_bytes\": %llu, \"errors\": %llu}",
		       i > 0 ? "," : "", q->qpn, view_type(q), view_state(q), q->peer_qpn,
		       (unsigned long long)q->sent, (unsigned long long)q->sent_bytes,
		       (unsigned long long)q->received, (unsigned long long)q->received_bytes,
		       (unsigned long long)q->errors);
	}
	fputs("],\n      \"counters\": {", stdout);
	for (int i = 0; i < PATH_COUNTERS; i++)
		printf("%s\"%s\": %llu", i > 0 ? ", " : "", path_counter_names[i],
		       (unsigned long long)v->counters[i]);
	putchar('}');
}
