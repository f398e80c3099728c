/* flow.c: sequence numbers of local connections, as a wire would have them.
 *
 * A reliable local path gives one PSN to a packet of up to 16 KiB, or to 1 MiB that the receiver
 * copies for itself, and none to a one-sided copy. Frames on a wire carry a path MTU each, every
 * one with a number of its own. So each direction of a connection has a numbering of its own here,
 * and what was numbered last is remembered: repeated packets get their old numbers,
 * acknowledgements and READ responses those of what they answer. Where nothing differs, the numbers
 * are the engine's.
 *
 * In: records in order    Out: PSNs    Runs: the recorder's thread    Locks: none
 */
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

#include "capture/capture.h"

enum { FLOW_BUCKETS = 1024, FLOW_MAX = 4096, FLOW_REMEMBERED = 1024, PSN = 0xffffff };

/* A request packet of the engine. */
struct flow_packet {
	u32 engine, span; /* its PSN, and how many it takes */
	u32 wire, frames; /* the same of its frames, or of its response's */
} OWNED_BY(the recorder);

/* What goes from one queue pair to another. */
struct flow {
	struct flow *next;
	u32 sqpn, dqpn;
	bool numbered; /* a packet of the engine's was seen */
	bool begun;    /* that, or a copy */
	u32 engine_next, wire_next;
	u32 reading; /* the next READ response's frame has this number */
	u32 msn, msn_ahead;
	u32 count; /* packets remembered, free running */
	struct flow_packet packets[FLOW_REMEMBERED];
} OWNED_BY(the recorder);

struct flows {
	struct flow *buckets[FLOW_BUCKETS];
	u32 count;
} OWNED_BY(the recorder);

struct flows *flows_create(void)
{
	return calloc(1, sizeof(struct flows));
}

static void flows_clear(struct flows *f)
{
	for (u32 i = 0; i < FLOW_BUCKETS; i++)
		while (f->buckets[i] != NULL) {
			struct flow *next = f->buckets[i]->next;

			free(f->buckets[i]);
			f->buckets[i] = next;
		}
	f->count = 0;
}

void flows_destroy(struct flows *f)
{
	if (f != NULL)
		flows_clear(f);
	free(f);
}

/* NULL without memory. When there are too many, all begin anew. */
static struct flow *flows_find(struct flows *f, u32 sqpn, u32 dqpn)
{
	struct flow **bucket = &f->buckets[(sqpn * 31 + dqpn) % FLOW_BUCKETS], *at;

	for (at = *bucket; at != NULL; at = at->next)
		if (at->sqpn == sqpn && at->dqpn == dqpn)
			return at;
	if (f->count >= FLOW_MAX)
		flows_clear(f);
	at = calloc(1, sizeof(*at));
	if (at == NULL)
		return NULL;
	at->sqpn = sqpn;
	at->dqpn = dqpn;
	at->next = *bucket;
	*bucket = at;
	f->count++;
	return at;
}

/* The remembered packet that took the engine's `psn`, the latest first; NULL: it is forgotten. */
static struct flow_packet *flow_look(struct flow *f, u32 psn)
{
	for (u32 i = 1; i <= MIN(f->count, (u32)FLOW_REMEMBERED); i++) {
		struct flow_packet *p = &f->packets[(f->count - i) % FLOW_REMEMBERED];

		if (((psn - p->engine) & PSN) < p->span)
			return p;
	}
	return NULL;
}

static u32 flow_parts(u64 bytes, u32 each)
{
	return bytes == 0 || each == 0 ? 1 : (u32)((bytes + each - 1) / each);
}

/* Numbers a packet of the engine's that was not seen before. */
static struct flow_packet *flow_add(struct flow *f, const struct capture_record *r)
{
	bool read = r->pkt.opcode == PKT_READ_REQUEST;
	struct flow_packet p = { .engine = r->pkt.psn,
				 .span = read ? flow_parts(r->pkt.dma_length, r->path_bytes) : 1,
				 .frames = read ? flow_parts(r->pkt.dma_length, r->mtu)
						: r->parts };
	u32 gap = (p.engine - f->engine_next) & PSN;

	if (!f->begun)
		f->wire_next = p.engine;
	else if (f->numbered && gap < 1u << 23) /* what lies between was not recorded */
		f->wire_next += gap;
	f->begun = f->numbered = true;
	p.wire = f->wire_next & PSN;
	f->engine_next = p.engine + p.span;
	f->wire_next = (p.wire + p.frames) & PSN;
	f->packets[f->count % FLOW_REMEMBERED] = p;
	return &f->packets[f->count++ % FLOW_REMEMBERED];
}

static u32 flow_request(struct flow *f, const struct capture_record *r)
{
	struct flow_packet *p = flow_look(f, r->pkt.psn);

	if (p == NULL || (p->frames != r->parts && r->pkt.opcode != PKT_READ_REQUEST))
		p = flow_add(f, r);
	return p->wire + r->part;
}

/* A copy takes no PSN of the engine's. */
static u32 flow_direct(struct flow *f, const struct capture_record *r)
{
	if (r->part == 0) {
		f->begun = true;
		f->wire_next = (f->wire_next + r->parts) & PSN;
		f->msn_ahead++;
	}
	return f->wire_next - r->parts + r->part;
}

static u32 flow_response(struct flow *f, const struct capture_record *r)
{
	bool first = r->pkt.opcode == PKT_READ_FIRST || r->pkt.opcode == PKT_READ_ONLY;

	if (first && r->part == 0) {
		struct flow_packet *p = flow_look(f, r->pkt.psn);

		f->reading = p != NULL ? p->wire : r->pkt.psn;
	}
	return f->reading++;
}

u32 flows_psn(struct flows *f, const struct capture_record *r)
{
	const struct pkt *p = &r->pkt;
	bool response = p->opcode >= PKT_READ_FIRST && p->opcode <= PKT_READ_ONLY;
	bool back = r->kind == CAPTURE_LOCAL && response;
	struct flow *flow;

	if (p->qp_type != IBV_QPT_RC && p->qp_type != IBV_QPT_UC)
		return p->psn;
	if (p->opcode == PKT_ACK || p->opcode == PKT_ATOMIC_ACK)
		return flows_acked(f, p->dqpn, p->sqpn, p->psn, p->syndrome != AETH_ACK);
	flow = back ? flows_find(f, p->dqpn, p->sqpn) : flows_find(f, p->sqpn, p->dqpn);
	if (flow == NULL)
		return p->psn;
	if (r->kind == CAPTURE_DIRECT)
		return flow_direct(flow, r) & PSN;
	return (back ? flow_response(flow, r) : flow_request(flow, r)) & PSN;
}

u32 flows_acked(struct flows *f, u32 sqpn, u32 dqpn, u32 psn, bool refused)
{
	struct flow *flow = flows_find(f, sqpn, dqpn);
	struct flow_packet *p = flow == NULL ? NULL : flow_look(flow, psn);

	if (p != NULL)
		return (p->wire + (refused ? 0 : p->frames - 1)) & PSN;
	if (flow == NULL || !flow->numbered)
		return psn;
	/* one that was not seen, or is to come: as far from the next one as in the engine */
	return (flow->wire_next + (psn - flow->engine_next)) & PSN;
}

u32 flows_msn(struct flows *f, u32 sqpn, u32 dqpn, const u32 *msn)
{
	struct flow *flow = flows_find(f, sqpn, dqpn);

	if (flow == NULL)
		return msn == NULL ? 0 : *msn;
	if (msn != NULL)
		flow->msn = *msn;
	return (flow->msn + flow->msn_ahead) & PSN;
}
