/* gmp.c: MADs to QP1, and other datagrams that software sends through the fabric: by LID, in a
 * VL, a partition. In:    GMPs of software    Out: to the PMA (whose answers go back at once), or
 * to software Runs:  the owner's thread    Locks: none Spec:  IBA vol 1, 13.5.1, 10.2.4 (P_Key
 * and Q_Key)
 */
#include "fabric/pma.h"
#include "fabric/smi.h"
#include "fabric/trap.h"

#include "fabric/format.h"

#define GMP_QKEY 0x80010000u

static void gmp_violated(struct fabric *f, u32 port, const struct fabric_mad *m, bool is_qkey)
{
	struct fabric_violation v = { .key = is_qkey ? m->qkey : m->pkey,
				      .slid = m->slid,
				      .dlid = m->dlid,
				      .src_qp = m->src_qp,
				      .dst_qp = m->dst_qp,
				      .sl = m->sl,
				      .is_qkey = is_qkey };

	violation_note(f, port, &v);
}

/* May the port take it? The keys of other queue pairs than QP1 are its software's to judge. */
static bool gmp_admits(struct fabric *f, u32 port, const struct fabric_mad *m)
{
	if (m->dst_qp != 1)
		return true;
	if (!fabric_pkey_matches(&f->view, port, m->pkey)) {
		gmp_violated(f, port, m, false);
		return false;
	}
	if (m->qkey != GMP_QKEY) {
		gmp_violated(f, port, m, true);
		return false;
	}
	return true;
}

/* The answer goes back the way that the request names. */
static void gmp_turn(struct fabric_mad *m)
{
	u16 slid = m->slid;
	u32 qp = m->src_qp;
	u8 gid[16];

	m->slid = m->dlid;
	m->dlid = slid;
	m->src_qp = m->dst_qp;
	m->dst_qp = qp;
	m->qkey = GMP_QKEY;
	if (m->has_grh) {
		memcpy(gid, m->grh + 8, sizeof(gid));
		memcpy(m->grh + 8, m->grh + 24, sizeof(gid));
		memcpy(m->grh + 24, gid, sizeof(gid));
	}
}

/* Nobody is there: a switch answers what it does not know. */
static bool gmp_refuse(struct fabric_mad *m)
{
	if (m->mad[MAD_METHOD] != METHOD_GET && m->mad[MAD_METHOD] != METHOD_SET)
		return false;
	m->mad[MAD_METHOD] = METHOD_GET_RESP;
	wire_put16(m->mad + MAD_STATUS, STATUS_BAD_ATTRIBUTE);
	return true;
}

/* At a CA's port, or port 0 of a switch. True: *m is an answer that goes back. */
static bool gmp_arrive(struct fabric *f, u32 port, struct fabric_mad *m)
{
	bool is_request = (m->mad[MAD_METHOD] & METHOD_RESPONSE) == 0;

	if (!gmp_admits(f, port, m))
		return false;
	if (m->dst_qp == 1 && m->mad[MAD_CLASS] == CLASS_PERFORMANCE && is_request)
		return pma_answer(f, port, m);
	if (!fabric_has_software(f, port))
		return m->dst_qp == 1 && gmp_refuse(m);
	f->ops->deliver(f->arg, port, m);
	return false;
}

static void gmp_unicast(struct fabric *f, u32 port, struct fabric_mad *m)
{
	u32 from = port, in, to;

	/* There, and back with the answer. */
	for (u32 ways = 0; ways < 2; ways++) {
		struct fabric_packet k = {
			.flow = { .slid = m->slid, .dlid = m->dlid, .pkey = m->pkey, .sl = m->sl },
			.mad = m,
		};

		to = hop_by_lid(f, &k, from, &in);
		if (to == FABRIC_NONE || !gmp_arrive(f, to, m))
			return;
		gmp_turn(m);
		from = to;
	}
}

/* ---- multicast
 * --------------------------------------------------------------------------------- */

struct gmp_tree {
	struct fabric *f;
	const struct fabric_mad *m;
	u32 from;
} OWNED_BY(the thread of the owner);

static void gmp_tree_visit(void *arg, const struct fabric_packet *k, u32 out, u32 in)
{
	struct fabric_packet first = { .mad = ((struct gmp_tree *)arg)->m };
	struct gmp_tree *t = arg;
	struct fabric_mad copy;

	(void)k;
	if (out == t->from)
		hop_show(t->f, &first, out, in);
	hop_count(t->f, out, in, true);
	if (in == t->from || fabric_is_switch(t->f, in))
		return;
	copy = *t->m;
	if (gmp_admits(t->f, in, &copy))
		t->f->ops->deliver(t->f->arg, in, &copy);
}

static void gmp_tree_drop(void *arg, u32 port, enum fabric_error e)
{
	fabric_count(((struct gmp_tree *)arg)->f, port, e, 1);
}

static void gmp_multicast(struct fabric *f, u32 port, const struct fabric_mad *m)
{
	struct gmp_tree t = { .f = f, .m = m, .from = port };
	struct fabric_packet k = {
		.flow = { .slid = m->slid, .dlid = m->dlid, .pkey = m->pkey, .sl = m->sl }
	};

	fabric_mcast_walk(&f->view, &k, port, gmp_tree_visit, gmp_tree_drop, &t);
}

void gmp_send(struct fabric *f, u32 port, struct fabric_mad *m)
{
	if (m->dlid == 0 || m->dlid == FABRIC_LID_PERMISSIVE)
		return;
	if (m->dlid >= FABRIC_MLID_FIRST)
		gmp_multicast(f, port, m);
	else if (f->port[port].state == FABRIC_ACTIVE || fabric_is_switch(f, port))
		gmp_unicast(f, port, m);
	else
		fabric_count(f, port, FABRIC_ERR_XMIT_DISCARDS, 1);
}
