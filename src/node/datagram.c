/* datagram.c: a datagram to or from QP1 as RoCE headers see it.
 * In:    struct node_mad    Out: struct roce_flow, a verdict
 * Runs:  any thread         Locks: none
 */
#include "node/datagram.h"

#include <string.h>

#include "base/clock.h"
#include "wire/source.h"

struct roce_flow datagram_flow(const struct node_mad *m)
{
	struct roce_flow flow = { .sport = m->sport,
				  .traffic_class = m->traffic_class,
				  .hop_limit = m->hop_limit };

	memcpy(flow.sgid, m->sgid, sizeof(flow.sgid));
	memcpy(flow.dgid, m->dgid, sizeof(flow.dgid));
	return flow;
}

bool datagram_is_right(const struct node_mad *m, struct roce_flow *flow)
{
	struct roce_source source = { .tracks = 0 };
	bool right;

	*flow = datagram_flow(m);
	right = roce_icrc_matches(&source, flow, m->payload, sizeof(m->payload),
				  clock_coarse_ms());
	flow->id = source.id;
	flow->df = source.df;
	return right;
}
