/* smi.c: the subnet management interface: directed routes, and who gets an SMP that has arrived.
 * In:    SMPs of software, of SMAs and traps    Out: to SMAs (whose answers go back at once), or
 *        to software
 * Runs:  the owner's thread    Locks: none
 * Spec:  IBA vol 1, 14.2.2; the numbers in comments are its tables of rules
 *
 * A directed route has a part by hops, and before and behind it a part by LID where DrSLID or
 * DrDLID is not permissive. The hop pointer counts up on the way there and down on the way back.
 */
#include "fabric/smi.h"

#include "fabric/format.h"
#include "fabric/portinfo.h"
#include "fabric/sma.h"
#include "fabric/trap.h"

/* An SMP at a node. */
struct smi_walk {
	struct fabric *f;
	struct fabric_mad *m;
	struct fabric_packet k;
	u32 at; /* the port by which it came, or from which it starts */
	u32 steps;
} OWNED_BY(the thread of the owner);

enum smi_verdict { SMI_ON, SMI_HERE, SMI_DROP };

enum { SMI_STEPS = 4 * FABRIC_HOPS }; /* of one SMP and of its answer */

static u8 *smi_at(const struct smi_walk *w, u32 offset)
{
	return w->m->mad + offset;
}

static bool smi_is_returning(const struct smi_walk *w)
{
	return (wire_get16(smi_at(w, MAD_STATUS)) & STATUS_DIRECTION) != 0;
}

/* ---- steps
 * ------------------------------------------------------------------------------------- */

/* Over the link of port `number` of this node. */
static enum smi_verdict smi_leave(struct smi_walk *w, u8 number)
{
	const struct fabric_node_rec *n = fabric_node_of(w->f, w->at);
	u32 out = n->first_port + number;

	if (number == 0 || number > n->ports)
		return SMI_DROP;
	/* A CA sends by the port that its software has chosen. */
	if (n->type != FABRIC_SWITCH && out != w->at)
		return SMI_DROP;
	w->k.directed = true;
	return hop_cross(w->f, &w->k, out, w->f->port[w->at].number, &w->at) ? SMI_ON : SMI_DROP;
}

/* By LID, to where the directed route begins or has its answer. */
static enum smi_verdict smi_by_lid(struct smi_walk *w, u16 lid)
{
	u32 in;

	w->m->dlid = lid;
	w->k.flow.dlid = lid;
	w->k.directed = false;
	w->m->slid = w->f->port[fabric_home(w->f, w->at)].lid;
	w->at = hop_by_lid(w->f, &w->k, fabric_home(w->f, w->at), &in);
	if (w->at == FABRIC_NONE)
		return SMI_DROP;
	if (fabric_is_switch(w->f, in))
		w->at = in;
	return SMI_ON;
}

/* ---- directed routes
 * ----------------------------------------------------------------------------*/

/* Outbound, at a node (C14-9). `starts`: no hop has been taken. */
static enum smi_verdict smi_outbound(struct smi_walk *w, bool starts)
{
	u8 *pointer = smi_at(w, MAD_HOP_POINTER), count = *smi_at(w, MAD_HOP_COUNT);
	u16 dlid = wire_get16(smi_at(w, MAD_DR_DLID));
	bool is_switch = fabric_is_switch(w->f, w->at);

	if (count > MAD_HOPS_MAX || *pointer > count + 1)
		return SMI_DROP;
	if (*pointer == count + 1) /* 4: behind the part by LID */
		return SMI_HERE;
	if (*pointer < count) { /* 1 and 2 */
		if (!is_switch && !starts)
			return SMI_DROP;
		if (*pointer > 0)
			smi_at(w, MAD_RETURN_PATH)[*pointer] = w->f->port[w->at].number;
		++*pointer;
		return smi_leave(w, smi_at(w, MAD_INITIAL_PATH)[*pointer]);
	}
	/* 3: the end of the hops */
	if (count > 0)
		smi_at(w, MAD_RETURN_PATH)[*pointer] = w->f->port[w->at].number;
	++*pointer;
	if (dlid == FABRIC_LID_PERMISSIVE)
		return SMI_HERE;
	return is_switch ? smi_by_lid(w, dlid) : SMI_DROP;
}

/* On the way back, at a node (C14-13). `starts`: the answer begins here. */
static enum smi_verdict smi_inbound(struct smi_walk *w, bool starts)
{
	u8 *pointer = smi_at(w, MAD_HOP_POINTER), count = *smi_at(w, MAD_HOP_COUNT);
	u16 slid = wire_get16(smi_at(w, MAD_DR_SLID));

	if (count > MAD_HOPS_MAX || *pointer > count + 1)
		return SMI_DROP;
	if (*pointer > 1) { /* 1 and 2 */
		if (!fabric_is_switch(w->f, w->at) && !starts)
			return SMI_DROP;
		--*pointer;
		return smi_leave(w, smi_at(w, MAD_RETURN_PATH)[*pointer]);
	}
	if (*pointer == 0) /* 4 */
		return SMI_HERE;
	--*pointer; /* 3 */
	if (slid == FABRIC_LID_PERMISSIVE)
		return SMI_HERE;
	return fabric_is_switch(w->f, w->at) || starts ? smi_by_lid(w, slid) : SMI_DROP;
}

/* Where a directed SMP starts: it may have to go to the beginning of its hops by LID. */
static enum smi_verdict smi_start_directed(struct smi_walk *w)
{
	u8 *pointer = smi_at(w, MAD_HOP_POINTER), count = *smi_at(w, MAD_HOP_COUNT);
	u16 slid = wire_get16(smi_at(w, MAD_DR_SLID));
	u16 dlid = wire_get16(smi_at(w, MAD_DR_DLID));

	if (smi_is_returning(w)) {
		/* The answerer's part by LID comes first. */
		if (dlid != FABRIC_LID_PERMISSIVE && w->m->dlid != FABRIC_LID_PERMISSIVE)
			return smi_by_lid(w, w->m->dlid);
		/* An answer of software that has the pointer of its request. */
		if (*pointer == count)
			++*pointer;
		return smi_inbound(w, true);
	}
	if (*pointer != 0)
		return SMI_DROP;
	if (slid != FABRIC_LID_PERMISSIVE && w->m->dlid != FABRIC_LID_PERMISSIVE)
		return smi_by_lid(w, w->m->dlid);
	return smi_outbound(w, true);
}

/* ---- LID-routed SMPs
 * ----------------------------------------------------------------------------*/

static enum smi_verdict smi_start_by_lid(struct smi_walk *w)
{
	u16 dlid = w->m->dlid;

	if (dlid == FABRIC_LID_PERMISSIVE) {
		/* The port at the other end takes it. */
		if (fabric_is_switch(w->f, w->at))
			return SMI_DROP;
		return hop_cross(w->f, &w->k, w->at, 0, &w->at) ? SMI_HERE : SMI_DROP;
	}
	w->k.flow.dlid = dlid;
	if (dlid == 0 || dlid >= FABRIC_MLID_FIRST)
		return SMI_DROP;
	return smi_by_lid(w, dlid) == SMI_ON ? SMI_HERE : SMI_DROP;
}

/* ---- arrival
 * ------------------------------------------------------------------------------------*/

/* The SMA leaves these to the software of the port. */
static bool smi_is_for_software(struct fabric *f, u32 port, const struct fabric_mad *m)
{
	u8 method = m->mad[MAD_METHOD];

	if (method == METHOD_GET || method == METHOD_SET)
		return wire_get16(m->mad + MAD_ATTRIBUTE) == ATTR_SM_INFO &&
		       (f->port[fabric_home(f, port)].cap_mask & FABRIC_CAP_SM) != 0;
	/* Software sends traps, too. */
	return method != METHOD_TRAP_REPRESS || !trap_repress(f, fabric_home(f, port), m);
}

/* Sends the answer that the SMA has left in *m back. */
static enum smi_verdict smi_answer(struct smi_walk *w)
{
	u16 slid = w->m->slid;
	u32 qp = w->m->src_qp;

	if (!sma_answer(w->f, w->at, w->m))
		return SMI_DROP;
	w->m->src_qp = 0;
	w->m->dst_qp = qp;
	w->m->slid = w->m->dlid;
	w->m->dlid = slid;
	w->k.seen = false;
	if (w->m->mad[MAD_CLASS] == CLASS_SMP_DIRECTED)
		return smi_start_directed(w);
	return slid == FABRIC_LID_PERMISSIVE || slid == 0 ? SMI_DROP : smi_start_by_lid(w);
}

/* Returns SMI_ON if an answer is on its way. */
static enum smi_verdict smi_arrive(struct smi_walk *w)
{
	struct fabric *f = w->f;

	if (smi_is_for_software(f, w->at, w->m)) {
		if (fabric_has_software(f, fabric_home(f, w->at)))
			f->ops->deliver(f->arg, fabric_home(f, w->at), w->m);
		return SMI_DROP;
	}
	return smi_answer(w);
}

static enum smi_verdict smi_step(struct smi_walk *w)
{
	return smi_is_returning(w) ? smi_inbound(w, false) : smi_outbound(w, false);
}

void smi_send(struct fabric *f, u32 port, struct fabric_mad *m)
{
	struct smi_walk w = { .f = f, .m = m, .at = port, .k = { .smp = true, .mad = m } };
	bool directed = m->mad[MAD_CLASS] == CLASS_SMP_DIRECTED;
	enum smi_verdict v;

	if (!directed && m->mad[MAD_CLASS] != CLASS_SMP_LID)
		return;
	v = directed ? smi_start_directed(&w) : smi_start_by_lid(&w);
	while (v != SMI_DROP && w.steps++ < SMI_STEPS)
		v = v == SMI_HERE ? smi_arrive(&w) : smi_step(&w);
}
