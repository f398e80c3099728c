/* enter.c: the owner's calls: MADs of software, time; what callbacks send waits until the call
 * that called them has done its work. In:    MADs of software, hostile    Out: MADs on their way
 * Runs:  the owner's thread    Locks: none
 */
#include "fabric/fabric_priv.h"

#include <stdlib.h>

#include "fabric/portinfo.h"
#include "fabric/smi.h"
#include "fabric/trap.h"

bool fabric_enter(struct fabric *f)
{
	bool outermost = !f->busy;

	f->busy = true;
	return outermost;
}

bool fabric_has_software(const struct fabric *f, u32 port)
{
	const struct fabric_port_rec *p = &f->port[port];

	if (f->node[p->node].type == FABRIC_SWITCH)
		return p->number == 0 && (p->cap_mask & FABRIC_CAP_SM) != 0;
	return p->number != 0;
}

/* ---- MADs of software
 * --------------------------------------------------------------------------- */

/* The path bits are the sender's, the rest of its LID is not. */
static u16 software_slid(const struct fabric_port_rec *p, u16 slid)
{
	u16 bits = (u16)((1u << p->lmc) - 1);

	return (u16)((p->lid & ~bits) | (slid & bits));
}

static void software_send(struct fabric *f, u32 port, struct fabric_mad *m)
{
	if (m->dst_qp == 0) {
		if (m->slid != FABRIC_LID_PERMISSIVE)
			m->slid = software_slid(&f->port[port], m->slid);
		smi_send(f, port, m);
	} else {
		m->slid = software_slid(&f->port[port], m->slid);
		gmp_send(f, port, m);
	}
}

/* ---- the queue of callbacks
 * -------------------------------------------------------------------- */

static bool pending_grow(struct fabric *f)
{
	u32 room = f->queue_room == 0 ? 64 : f->queue_room * 2;
	struct fabric_queued *q;

	if (room > FABRIC_QUEUE_MAX)
		return false;
	q = malloc(room * sizeof(*q));
	if (q == NULL)
		return false;
	for (u32 i = 0; i < f->queue_count; i++)
		q[i] = f->queue[(f->queue_head + i) % f->queue_room];
	free(f->queue);
	f->queue = q;
	f->queue_head = 0;
	f->queue_room = room;
	return true;
}

static void pending_put(struct fabric *f, u32 port, const struct fabric_mad *m)
{
	struct fabric_queued *q;

	if (f->queue_count == f->queue_room && !pending_grow(f)) {
		fabric_count(f, port, FABRIC_ERR_XMIT_DISCARDS, 1);
		return;
	}
	q = &f->queue[(f->queue_head + f->queue_count++) % f->queue_room];
	q->port = port;
	q->mad = *m;
}

static void pending_run(struct fabric *f)
{
	while (f->queue_count > 0) {
		struct fabric_queued q = f->queue[f->queue_head];

		f->queue_head = (f->queue_head + 1) % f->queue_room;
		f->queue_count--;
		software_send(f, q.port, &q.mad);
	}
}

void fabric_leave(struct fabric *f, bool outermost)
{
	if (!outermost)
		return;
	pending_run(f);
	trap_run(f);
	pending_run(f);
	f->busy = false;
}

/* ---- the calls
 * --------------------------------------------------------------------------------- */

void fabric_send(struct fabric *f, u32 port, const struct fabric_mad *m)
{
	struct fabric_mad copy;
	bool outermost;

	if (port >= f->view.ports || !fabric_has_software(f, port))
		return;
	if (f->busy) {
		pending_put(f, port, m);
		return;
	}
	outermost = fabric_enter(f);
	copy = *m;
	software_send(f, port, &copy);
	fabric_leave(f, outermost);
}

u64 fabric_due_ns(const struct fabric *f)
{
	return f->traps->due_ns;
}

void fabric_tick(struct fabric *f)
{
	fabric_leave(f, fabric_enter(f));
}
