/* sport.c: the UDP source port that a flow should have, so that switches which choose among ways by
 * the ports spread flows over them, each flow on one way. The same arithmetic as in other RoCEv2
 * implementations (`rdma_calc_flow_label`, `rdma_flow_label_to_udp_sport`), so that a trace of
 * mixed hosts can be read.
 *
 * In: flow labels, numbers of queue pairs    Out: ports    Runs: any thread    Locks: none
 * Spec: IBA annex A17 (UDP source port)
 */
#include "wire/roce.h"

enum { SPORT_BITS = 14, LABEL_BITS = 20 };

u32 roce_flow_label(u32 qpn, u32 peer)
{
	u64 folded = (u64)qpn * peer;

	folded ^= folded >> LABEL_BITS;
	folded ^= folded >> 2 * LABEL_BITS;
	return (u32)folded & ((1u << LABEL_BITS) - 1);
}

u16 roce_sport(u32 flow_label)
{
	u32 low = flow_label & ((1u << SPORT_BITS) - 1);
	u32 high = flow_label >> SPORT_BITS & ((1u << (LABEL_BITS - SPORT_BITS)) - 1);

	return (u16)(ROCE_SPORT_MIN | (low ^ high));
}
