/* traits.c: the table of transport types.
 * In: enum ibv_qp_type    Out: its traits
 * Runs: any thread        Locks: none
 * Spec: IBA vol 1, 9.2.1 (transport services), 10.8.2 (work requests); ibv_create_qp(3),
 * ibv_post_send(3)
 */
#include "ibt/traits.h"

#include <infiniband/verbs.h>

enum {
	SENDS = 1 << IBV_WR_SEND | 1 << IBV_WR_SEND_WITH_IMM,
	WRITES = 1 << IBV_WR_RDMA_WRITE | 1 << IBV_WR_RDMA_WRITE_WITH_IMM,
	READS = 1 << IBV_WR_RDMA_READ | 1 << IBV_WR_ATOMIC_CMP_AND_SWP |
		1 << IBV_WR_ATOMIC_FETCH_AND_ADD,
};

static const struct ibt_traits traits_of_types[] = {
	[IBV_QPT_RC] = { SENDS | WRITES | READS | 1 << IBV_WR_SEND_WITH_INV,
			 TRAIT_CONNECTED | TRAIT_RELIABLE | TRAIT_SRQ | TRAIT_TAGS },
	[IBV_QPT_UC] = { SENDS | WRITES, TRAIT_CONNECTED },
	[IBV_QPT_UD] = { SENDS, TRAIT_SRQ },
};

const struct ibt_traits *ibt_traits_of(u32 type)
{
	if (type >= ARRAY_LEN(traits_of_types) || traits_of_types[type].opcodes == 0)
		return NULL;
	return &traits_of_types[type];
}
