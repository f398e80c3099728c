/* watch.c: a tap that remembers and drops. */
#include "watch.h"

#include <string.h>

static bool watch_loses(struct watch *w, int from, const struct pkt *p)
{
	bool lost = false;

	for (u32 i = 0; i < ARRAY_LEN(w->drop); i++) {
		struct watch_drop *d = &w->drop[i];

		if (d->from != from || (d->opcodes & 1u << p->opcode) == 0)
			continue;
		d->met++;
		lost |= d->met >= d->first && d->met - d->first < d->count;
	}
	return lost;
}

static bool watch_tap(struct net *net, int from, struct pkt *p)
{
	struct watch *w = net->tap_arg;

	if (w->count < NET_SEEN) {
		w->seen[w->count].from = from;
		w->seen[w->count++].pkt = *p;
	}
	return watch_loses(w, from, p);
}

void watch_begin(struct watch *w, struct net *net)
{
	memset(w, 0, sizeof(*w));
	net->tap = watch_tap;
	net->tap_arg = w;
}

u32 watch_count(const struct watch *w, int from, u32 opcodes)
{
	u32 n = 0;

	for (u32 i = 0; i < w->count; i++)
		n += w->seen[i].from == from && (opcodes & 1u << w->seen[i].pkt.opcode) != 0;
	return n;
}

const struct pkt *watch_nth(const struct watch *w, int from, u32 opcodes, u32 n)
{
	for (u32 i = 0; i < w->count; i++)
		if (w->seen[i].from == from && (opcodes & 1u << w->seen[i].pkt.opcode) != 0 &&
		    n-- == 0)
			return &w->seen[i].pkt;
	fail();
	return NULL;
}

void pair_open(struct pair *r, const struct net_config *cfg, const struct net_qp *q)
{
	net_open(&r->net, cfg);
	net_pair(&r->net, r->qp, q);
	watch_begin(&r->watch, &r->net);
}

void pair_close(struct pair *r)
{
	net_run(&r->net, NS_PER_S);
	assert_int_equal(net_in_flight(&r->net.side[0]), 0);
	ibt_qp_destroy(r->qp[0]);
	ibt_qp_destroy(r->qp[1]);
	net_close(&r->net);
}

void pair_expect(struct pair *r, u64 wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = net_wc(&r->net.side[0].send_cq);

	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.status, status);
}
