/* sma.h: the subnet management agent of every port.
 */
#ifndef FABRIC_SMA_H
#define FABRIC_SMA_H

#include "fabric/fabric_priv.h"
#include "fabric/format.h"

/* One Get or Set that has reached a node. */
struct sma_request {
	struct fabric *f;
	struct fabric_node_rec *node;
	u32 port;     /* where it has arrived */
	u32 modifier; /* the attribute's */
	bool set;
	bool hide_mkey; /* it has not proven that it knows the M_Key */
	u8 *data;	/* MAD_SMP_DATA bytes: what is to be set, then the answer */
} OWNED_BY(the thread of the owner);

/* Answers an SMP that has arrived at `port` in place. False: there is no answer. */
bool sma_answer(struct fabric *f, u32 port, struct fabric_mad *m);

/* Each returns an enum fabric_mad_status. */
u16 sma_port_info(struct sma_request *q);
u16 sma_mlnx_ext_port_info(struct sma_request *q);
u16 sma_switch_info(struct sma_request *q);
u16 sma_linear_table(struct sma_request *q);
u16 sma_multicast_table(struct sma_request *q);
u16 sma_sl_to_vl(struct sma_request *q);
u16 sma_vl_arbitration(struct sma_request *q);
u16 sma_pkey_table(struct sma_request *q);
u16 sma_guid_info(struct sma_request *q);

/* The port of the node with this number; FABRIC_NONE: none. */
static inline u32 sma_port(const struct sma_request *q, u32 number)
{
	return number <= q->node->ports ? q->node->first_port + number : FABRIC_NONE;
}

static inline bool sma_is_switch(const struct sma_request *q)
{
	return q->node->type == FABRIC_SWITCH;
}

#endif
