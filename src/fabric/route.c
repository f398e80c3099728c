/* route.c: the way of packets, by the tables of every switch on it.
 * In:    a map, hostile; what the packet says    Out: the ports of the way
 * Runs:  readers in any process, the owner    Locks: none
 * Spec:  IBA vol 1, 18.2 (switches), 7.6.6 (SL to VL), 10.9.3 (P_Keys)
 */
#include "fabric/route.h"

#include <errno.h>

#include "fabric/portinfo.h"

static int blame(struct fabric_packet *k, u32 port, enum fabric_error which, int rc)
{
	k->blamed = port;
	k->blame = which;
	return rc;
}

/* A switch enforces the partition, not the kind of membership: that the CA judges. */
static bool judge_partition(const struct fabric_view *v, u32 port, u16 pkey)
{
	const u16 *table = fabric_pkeys(v, port);
	u32 n = MIN(fabric_load(v->port[port].pkey_cap), FABRIC_PKEYS);

	for (u32 i = 0; i < n; i++)
		if (((fabric_load(table[i]) ^ pkey) & 0x7fff) == 0 && (pkey & 0x7fff) != 0)
			return true;
	return false;
}

bool fabric_pkey_matches(const struct fabric_view *v, u32 port, u16 pkey)
{
	const u16 *table = fabric_pkeys(v, port);
	u32 n = MIN(fabric_load(v->port[port].pkey_cap), FABRIC_PKEYS);

	for (u32 i = 0; i < n; i++) {
		u16 own = fabric_load(table[i]);

		if (((own ^ pkey) & 0x7fff) == 0 && (pkey & 0x7fff) != 0 &&
		    ((own | pkey) & 0x8000) != 0)
			return true;
	}
	return false;
}

const struct fabric_node_rec *fabric_switch_of(const struct fabric_view *v, u32 port)
{
	u32 node = fabric_load(v->port[port].node);

	if (node >= v->nodes || fabric_load(v->node[node].type) != FABRIC_SWITCH)
		return NULL;
	return &v->node[node];
}

/* What the sending end of a link asks of a packet. */
static int judge_out(const struct fabric_view *v, struct fabric_packet *k, u32 out, u8 in_number)
{
	const struct fabric_port_rec *p = &v->port[out];

	if (fabric_load(p->state) < (k->smp ? FABRIC_INIT : FABRIC_ACTIVE))
		return blame(k, out, FABRIC_ERR_XMIT_DISCARDS, -ENETUNREACH);
	if (k->smp)
		return 0;
	if (fabric_vl(v, out, in_number, k->flow.sl) == FABRIC_VL15)
		return blame(k, out, FABRIC_ERR_XMIT_DISCARDS, -ENOLINK);
	if ((fabric_load(p->flags) & FABRIC_PORT_OUT_PKEYS) != 0 &&
	    !judge_partition(v, out, k->flow.pkey))
		return blame(k, out, FABRIC_ERR_XMIT_CONSTRAINT, -EACCES);
	return 0;
}

/* What the receiving end asks. A port that is armed receives, and becomes active by that. */
static int judge_in(const struct fabric_view *v, struct fabric_packet *k, u32 in)
{
	const struct fabric_port_rec *p = &v->port[in];

	if (fabric_load(p->state) < (k->smp ? FABRIC_INIT : FABRIC_ARMED))
		return blame(k, in, FABRIC_ERR_RCV, -ENETUNREACH);
	if (!k->smp && (fabric_load(p->flags) & FABRIC_PORT_IN_PKEYS) != 0 &&
	    !judge_partition(v, in, k->flow.pkey))
		return blame(k, in, FABRIC_ERR_RCV_CONSTRAINT, -EACCES);
	return 0;
}

int fabric_cross(const struct fabric_view *v, struct fabric_packet *k, u32 out, u8 in_number,
		 u32 *in)
{
	int rc = judge_out(v, k, out, in_number);
	u32 peer = fabric_load(v->port[out].peer);

	if (rc != 0)
		return rc;
	if (peer >= v->ports)
		return blame(k, out, FABRIC_ERR_XMIT_DISCARDS, -ENETUNREACH);
	rc = judge_in(v, k, peer);
	if (rc == 0)
		*in = peer;
	return rc;
}

int fabric_forward(const struct fabric_view *v, struct fabric_packet *k, u32 in, u32 *out)
{
	const struct fabric_node_rec *n = fabric_switch_of(v, in);
	u32 first, to;
	u8 number;

	if (n == NULL)
		return blame(k, in, FABRIC_ERR_RCV, -ENETUNREACH);
	first = fabric_load(n->first_port);
	number = fabric_lft(v, n, k->flow.dlid);
	to = first + number;
	if (number > fabric_load(n->ports) || number == FABRIC_NO_PORT || to >= v->ports)
		return blame(k, in, FABRIC_ERR_RCV_SWITCH_RELAY, -ENETUNREACH);
	*out = to;
	return 0;
}

u8 fabric_port_vl(const struct fabric_view *v, u32 port, u8 sl)
{
	return port < v->ports ? fabric_vl(v, port, 0, sl & 15) : FABRIC_VL15;
}

int fabric_route(const struct fabric_view *v, u32 from, const struct fabric_flow *w,
		 struct fabric_path *out)
{
	struct fabric_packet k = { .flow = *w };
	u64 generation = fabric_generation(v);
	u32 at = from, in = 0;
	u8 in_number = 0, mtu = 5, hops = 0;
	int rc;

	if (from >= v->ports || w->dlid == 0 || w->dlid >= FABRIC_MLID_FIRST)
		return -EINVAL;
	if (fabric_load(v->port[from].state) != FABRIC_ACTIVE)
		return -ENETUNREACH;
	if (fabric_vl(v, from, 0, w->sl) == FABRIC_VL15)
		return -ENOLINK;
	mtu = fabric_load(v->port[from].mtu);
	while (!fabric_has_lid(&v->port[at], w->dlid) || fabric_switch_of(v, at) != NULL) {
		if (hops == FABRIC_HOPS)
			return -ENETUNREACH;
		rc = fabric_cross(v, &k, at, in_number, &in);
		if (rc != 0)
			return rc;
		out->through[hops++] = (struct fabric_hop){ .out = at, .in = in };
		mtu = MIN(mtu, fabric_load(v->port[in].mtu));
		if (fabric_switch_of(v, in) == NULL) {
			at = in;
			break;
		}
		rc = fabric_forward(v, &k, in, &at);
		if (rc != 0)
			return rc;
		in_number = fabric_load(v->port[in].number);
		if (fabric_load(v->port[at].number) == 0) /* for the switch itself */
			return -ENETUNREACH;
	}
	if (!fabric_has_lid(&v->port[at], w->dlid))
		return -ENETUNREACH;
	if (!fabric_pkey_matches(v, at, w->pkey))
		return -EACCES;
	out->to = at;
	out->hops = hops;
	out->mtu = mtu;
	out->vl = fabric_vl(v, from, 0, w->sl);
	out->generation = (u32)generation;
	return 0;
}
