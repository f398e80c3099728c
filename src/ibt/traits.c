/* traits.c: the table of transport types.
 * In: enum ibv_qp_type    Out: its traits
 * Runs: any thread        Locks: none
 * Spec: IBA vol 1, 9.2.1 (transport services), 10.8.2 (work requests), A14 (XRC);
 * ibv_create_qp(3), ibv_post_send(3)
 */
#include "ibt/traits.h"

#include <infiniband/verbs.h>

#include "wire/pkt.h"

enum {
	SENDS = 1 << IBV_WR_SEND | 1 << IBV_WR_SEND_WITH_IMM,
	WRITES = 1 << IBV_WR_RDMA_WRITE | 1 << IBV_WR_RDMA_WRITE_WITH_IMM,
	READS = 1 << IBV_WR_RDMA_READ | 1 << IBV_WR_ATOMIC_CMP_AND_SWP |
		1 << IBV_WR_ATOMIC_FETCH_AND_ADD,
	RELIABLE = SENDS | WRITES | READS | 1 << IBV_WR_SEND_WITH_INV,
};

static const struct ibt_traits traits_of_types[] = {
	[IBV_QPT_RC] = { TRAIT_CONNECTED | TRAIT_RELIABLE | TRAIT_SRQ | TRAIT_TAGS | TRAIT_FAST,
			 IBV_QPT_RC },
	/* no SRQ by IBA vol 1, 10.2.9; adapters and rxe allow it */
	[IBV_QPT_UC] = { TRAIT_CONNECTED | TRAIT_SRQ, IBV_QPT_UC },
	[IBV_QPT_UD] = { TRAIT_SRQ, IBV_QPT_UD },
	[IBV_QPT_XRC_SEND] = { TRAIT_CONNECTED | TRAIT_RELIABLE | TRAIT_INITIATOR,
			       IBV_QPT_XRC_RECV },
	[IBV_QPT_XRC_RECV] = { TRAIT_CONNECTED | TRAIT_RELIABLE | TRAIT_TARGET, IBV_QPT_XRC_SEND },
};
_Static_assert((int)IBV_QPT_XRC_SEND == PKT_TYPE_XRC_INI &&
		       (int)IBV_QPT_XRC_RECV == PKT_TYPE_XRC_TGT,
	       "pkt.h knows the numbers");

/* An XRC target, whose packets are for initiators, takes none. */
const u32 ibt_opcodes[IBT_PACKET_TYPES] = {
	[IBV_QPT_RC] = RELIABLE,
	[IBV_QPT_UC] = SENDS | WRITES,
	[IBV_QPT_UD] = SENDS,
	[IBV_QPT_XRC_RECV] = RELIABLE, /* of an initiator */
};

const struct ibt_traits *ibt_traits_of(u32 type)
{
	if (type >= ARRAY_LEN(traits_of_types) || traits_of_types[type].packet_type == 0)
		return NULL;
	return &traits_of_types[type];
}
