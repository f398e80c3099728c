/* trap.c: traps of nodes: each is repressed; those that tell of changes make the SM look.
 * In:    traps    Out: TrapRepress, sweeps, reports to subscribers
 * Runs:  the host's thread    Locks: none
 * Spec:  IBA vol 1, 13.4.9 (traps), 14.2.5.1 (their details)
 */
#include "sm/sm_priv.h"

enum { TRAP_LINK = 128, TRAP_CHANGED = 144 };

static void sm_trap_repress(struct sm *sm, const struct fabric_mad *m)
{
	struct fabric_mad out = *m;

	out.dlid = m->slid;
	out.slid = m->dlid;
	out.src_qp = out.dst_qp = 0;
	out.mad[MAD_METHOD] = METHOD_TRAP_REPRESS;
	wire_put16(out.mad + MAD_STATUS, 0);
	sm_reply(sm, &out);
}

void sm_trap_receive(struct sm *sm, const struct fabric_mad *m)
{
	const u8 *notice = m->mad + MAD_DATA;
	u16 number = wire_get16(notice + 4);

	if (wire_get16(m->mad + MAD_ATTRIBUTE) != ATTR_NOTICE)
		return;
	sm_trap_repress(sm, m);
	if (sm->state != SM_MASTER || (notice[0] & 0x80) == 0)
		return;
	if (number == TRAP_LINK || number == TRAP_CHANGED)
		sm_wake(sm);
	sm_sa_notice(sm, notice);
}
