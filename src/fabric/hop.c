/* hop.c: MADs over links, and by LIDs from switch to switch; what ports count of them.
 * In:    packets at a port    Out: where they have arrived; counters
 * Runs:  the owner's thread    Locks: none
 * Spec:  IBA vol 1, 18.2.4
 */
#include "fabric/smi.h"

void hop_count(struct fabric *f, u32 out, u32 in, bool mcast)
{
	struct fabric_port_counters *x = &f->counters.port[out], *r = &f->counters.port[in];

	/* Processes count, too. */
	__atomic_fetch_add(&x->xmit_bytes, HOP_MAD_BYTES, __ATOMIC_RELAXED);
	__atomic_fetch_add(&x->xmit_packets, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&r->rcv_bytes, HOP_MAD_BYTES, __ATOMIC_RELAXED);
	__atomic_fetch_add(&r->rcv_packets, 1, __ATOMIC_RELAXED);
	if (mcast) {
		__atomic_fetch_add(&x->mcast_xmit_packets, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&r->mcast_rcv_packets, 1, __ATOMIC_RELAXED);
	}
}

void hop_show(struct fabric *f, struct fabric_packet *k, u32 out, u32 in)
{
	bool leaves = !fabric_is_switch(f, out);
	struct fabric_mad m;

	if (f->ops->crossed == NULL || k->seen || (!leaves && fabric_is_switch(f, in)))
		return;
	k->seen = true;
	m = *k->mad;
	if (k->directed)
		m.slid = m.dlid = FABRIC_LID_PERMISSIVE;
	f->ops->crossed(f->arg, out, in, &m);
}

/* An armed port that receives a packet that is no SMP becomes active (IBA vol 1, 7.2.7). */
static void hop_activate(struct fabric *f, u32 in)
{
	struct fabric_port_rec *p;

	if (f->port[in].state != FABRIC_ARMED)
		return;
	p = fabric_port_begin(f, in);
	fabric_store(p->state, FABRIC_ACTIVE);
	fabric_port_end(f, in);
	fabric_routes_changed(f);
	fabric_tell(f, in, FABRIC_CHANGED_STATE);
}

bool hop_cross(struct fabric *f, struct fabric_packet *k, u32 out, u8 in_number, u32 *in)
{
	if (fabric_cross(&f->view, k, out, in_number, in) != 0) {
		fabric_count(f, k->blamed, k->blame, 1);
		return false;
	}
	hop_show(f, k, out, *in);
	hop_count(f, out, *in, false);
	if (!k->smp)
		hop_activate(f, *in);
	return true;
}

/* Through the switch of `in`. *out is the port to leave by. */
static bool hop_forward(struct fabric *f, struct fabric_packet *k, u32 in, u32 *out)
{
	if (fabric_forward(&f->view, k, in, out) == 0)
		return true;
	fabric_count(f, k->blamed, k->blame, 1);
	return false;
}

u32 hop_by_lid(struct fabric *f, struct fabric_packet *k, u32 from, u32 *in)
{
	u32 at = from, hops = 0;

	*in = from;
	if (fabric_has_lid(&f->port[from], k->flow.dlid))
		return from;
	if (fabric_is_switch(f, from) && !hop_forward(f, k, from, &at))
		return FABRIC_NONE;
	while (hops++ < FABRIC_HOPS) {
		/* A switch's table may send a packet to the switch itself. */
		if (f->port[at].number == 0 && fabric_is_switch(f, at))
			return fabric_has_lid(&f->port[at], k->flow.dlid) ? at : FABRIC_NONE;
		if (!hop_cross(f, k, at, f->port[*in].number, in))
			return FABRIC_NONE;
		if (!fabric_is_switch(f, *in))
			return fabric_has_lid(&f->port[*in], k->flow.dlid) ? *in : FABRIC_NONE;
		if (!hop_forward(f, k, *in, &at))
			return FABRIC_NONE;
	}
	return FABRIC_NONE;
}
