/* lid.c: which port has which LID. A port keeps the LID that it has; a port that comes back gets
 * the one that it had.
 * In:    PortInfo of the ports    Out: their LIDs
 * Runs:  the host's thread    Locks: none
 * Spec:  IBA vol 1, 4.1.3 (LIDs), 14.4.3
 */
#include <stdlib.h>

#include "sm/sm_priv.h"

bool sm_lid_init(struct sm *sm)
{
	sm->lid_end = SM_LIDS;
	sm->lid_guid = calloc(SM_LIDS, sizeof(*sm->lid_guid));
	sm->lid_stamp = calloc(SM_LIDS, sizeof(*sm->lid_stamp));
	return sm->lid_guid != NULL && sm->lid_stamp != NULL;
}

void sm_lid_destroy(struct sm *sm)
{
	free(sm->lid_guid);
	free(sm->lid_stamp);
	sm_map_free(&sm->lid_of);
}

static bool sm_lid_is_free(const struct sm *sm, u32 lid)
{
	return lid != 0 && lid < sm->lid_end && sm->lid_stamp[lid] != sm->lid_sweep;
}

static bool sm_lid_give(struct sm *sm, struct sm_port *p, u32 lid)
{
	if (p->lid != 0 || !sm_lid_is_free(sm, lid))
		return false;
	sm->lid_stamp[lid] = sm->lid_sweep;
	sm->lid_guid[lid] = p->guid;
	/* without memory it is not remembered when the port has gone */
	(void)sm_map_put(&sm->lid_of, p->guid, lid);
	p->lid = (u16)lid;
	return true;
}

/* One step for each port, in the order of precedence. */
enum sm_lid_step { LID_OWN, LID_CLAIMED, LID_REMEMBERED, LID_NEW, LID_STEPS };

/* The lowest that nobody has had; else the lowest that nobody has. */
static u32 sm_lid_search(const struct sm *sm, u32 *cursor)
{
	for (; *cursor < sm->lid_end; ++*cursor)
		if (sm->lid_guid[*cursor] == 0 && sm_lid_is_free(sm, *cursor))
			return *cursor;
	for (u32 lid = 1; lid < sm->lid_end; lid++)
		if (sm_lid_is_free(sm, lid))
			return lid;
	return 0;
}

static void sm_lid_step(struct sm *sm, struct sm_port *p, enum sm_lid_step step, u32 *cursor)
{
	u16 has = wire_get16(p->info + PI_LID);

	if (p->lid != 0)
		return;
	switch (step) {
	case LID_OWN:
		if (has < SM_LIDS && sm->lid_guid[has] == p->guid)
			(void)sm_lid_give(sm, p, has);
		break;
	case LID_CLAIMED:
		(void)sm_lid_give(sm, p, has);
		break;
	case LID_REMEMBERED:
		has = (u16)sm_map_get(&sm->lid_of, p->guid);
		if (has < SM_LIDS && sm->lid_guid[has] == p->guid)
			(void)sm_lid_give(sm, p, has);
		break;
	default:
		(void)sm_lid_give(sm, p, sm_lid_search(sm, cursor));
		break;
	}
}

void sm_lid_assign(struct sm *sm, struct sm_subnet *s)
{
	u32 cursor = 1;

	sm->lid_sweep++;
	for (enum sm_lid_step step = LID_OWN; step < LID_STEPS; step++)
		for (u32 i = 0; i < s->nodes; i++)
			for (u32 k = 0; k <= s->node[i].ports; k++)
				if (sm_is_home(&s->node[i], k))
					sm_lid_step(sm, &s->node[i].port[k], step, &cursor);
}
