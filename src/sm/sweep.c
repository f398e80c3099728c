/* sweep.c: the order of a sweep's phases, and when the SM looks at the fabric again.
 * In:    traps, time, ends of phases    Out: phases
 * Runs:  the host's thread    Locks: none
 * Spec:  IBA vol 1, 14.4
 *
 * A phase ends when all of its SMPs have been answered or given up. Sweeps are no more than half
 * of the time: the next one waits as long as the one before took, and after a flawed sweep longer
 * each time.
 */
#include "sm/sm_priv.h"

#define SWEEP_SETTLE_NS (2 * SM_MS) /* from a trap to the sweep: more traps follow */
#define SWEEP_BACKOFF_NS (50 * SM_MS)
#define SWEEP_BACKOFF_MAX_NS (10 * SM_S)
#define SWEEP_GAP_MAX_NS (5 * SM_S)
#define SWEEP_PEER_NS (250 * SM_MS) /* between looks at another SM that may become the master */

void sm_sweep_want(struct sm *sm, u64 delay_ns)
{
	u64 now = sm_now(sm);
	u64 gap = MIN(sm->sweep_ended_ns - sm->sweep_began_ns, SWEEP_GAP_MAX_NS);
	u64 at = MAX(now + delay_ns, sm->sweep_ended_ns + gap);

	sm->wanted_ns = sm->wanted ? MIN(sm->wanted_ns, at) : at;
	sm->wanted = true;
}

void sm_sweep_begin(struct sm *sm)
{
	sm->wanted = false;
	sm->next = sm_subnet_new();
	if (sm->next == NULL) {
		sm_sweep_want(sm, SM_S);
		return;
	}
	sm->sweep_began_ns = sm_now(sm);
	sm->peers = 0;
	sm->phase = SM_DISCOVER;
	sm_push(sm, SM_ASK_ROOT, 0, 0, 0);
}

/* ---- the phases of a master ------------------------------------------------------------------ */

static u16 sm_sweep_own_lid(const struct sm_subnet *s)
{
	return s->node[0].port[sm_home(&s->node[0], s->root_port)].lid;
}

void sm_sweep_configure(struct sm *sm)
{
	struct sm_subnet *before = sm->subnet, *s = sm->next;
	bool able; /* there was memory for all */

	sm_lid_assign(sm, s);
	able = sm_subnet_index(s);
	able = sm_routes_begin(sm, s, before) && able;
	s->flawed = s->flawed || !able;
	sm->report.lid = sm_sweep_own_lid(s);
	sm->subnet = s;
	sm->next = NULL;
	sm_sa_subnet_changed(sm, before);
	sm_subnet_free(before);
	sm->phase = SM_CONFIGURE;
	sm_config_ports(sm);
}

static void sm_sweep_count(struct sm *sm)
{
	const struct sm_subnet *s = sm->subnet;

	sm->report.nodes = s->nodes;
	sm->report.ports = 0;
	for (u32 i = 0; i < s->nodes; i++)
		for (u32 k = 1; k <= s->node[i].ports; k++)
			sm->report.ports += s->node[i].port[k].peer != SM_NONE;
}

/* Another SM that may become the master is looked at more often than the switches. */
static void sm_sweep_plan_light(struct sm *sm)
{
	sm->light_due_ns = sm->light_whole_ns;
	if (sm_manager_expects(sm))
		sm->light_due_ns = MIN(sm->light_due_ns, sm_now(sm) + SWEEP_PEER_NS);
}

static void sm_sweep_end(struct sm *sm)
{
	u64 now = sm_now(sm);

	sm->phase = SM_IDLE;
	if (!sm->sweeping) { /* multicast alone */
		if (sm->subnet->flawed && !sm->wanted)
			sm_sweep_want(sm, SWEEP_BACKOFF_NS);
		return;
	}
	sm->sweeping = false;
	sm->sweep_ended_ns = now;
	sm->light_whole_ns = now + sm->config.light_ns;
	sm_sweep_plan_light(sm);
	sm_sweep_count(sm);
	if (sm->subnet->flawed) {
		sm->backoff_ns = sm->backoff_ns == 0 ?
					 SWEEP_BACKOFF_NS :
					 MIN(sm->backoff_ns * 2, SWEEP_BACKOFF_MAX_NS);
		sm_sweep_want(sm, sm->backoff_ns);
		return;
	}
	sm->backoff_ns = 0;
	sm->fresh = false;
	sm->report.sweeps++;
}

void sm_sweep_step(struct sm *sm)
{
	switch (sm->phase) {
	case SM_DISCOVER:
		sm_manager_decide(sm);
		break;
	case SM_CONFIGURE:
		sm->sweeping = true;
		sm->phase = SM_ROUTE;
		break;
	case SM_ROUTE:
		if (!sm_routes_go_on(sm))
			break;
		sm->phase = SM_TABLES;
		sm_config_tables(sm);
		break;
	case SM_TABLES:
		sm->phase = SM_TREES;
		sm_trees_push(sm);
		break;
	case SM_TREES:
		sm->phase = SM_ACTIVATE;
		sm_config_activate(sm);
		break;
	case SM_ACTIVATE:
		sm_sweep_end(sm);
		break;
	case SM_LIGHT:
		sm->phase = SM_IDLE;
		sm_sweep_plan_light(sm);
		sm_manager_look(sm);
		break;
	case SM_IDLE:
	case SM_POLL:
	case SM_HANDOVER:
		sm->phase = SM_IDLE;
		break;
	}
}

/* ---- between sweeps -------------------------------------------------------------------------- */

/* A few SMPs that tell whether anything has changed. */
static void sm_sweep_begin_light(struct sm *sm)
{
	const struct sm_subnet *s = sm->subnet;
	u64 now = sm_now(sm);
	bool whole = now >= sm->light_whole_ns;

	sm->phase = SM_LIGHT;
	if (whole)
		sm->light_whole_ns = now + sm->config.light_ns;
	for (u32 i = 0; whole && i < s->switches; i++)
		sm_push(sm, SM_LOOK_SWITCH, s->sw[i], 0, 0);
	if (whole && s->node[0].type != FABRIC_SWITCH)
		sm_push(sm, SM_LOOK_PORT, 0, s->root_port, 0);
	for (u32 i = 0; i < sm->peers; i++)
		sm_push(sm, SM_ASK_SM, sm->peer[i].node, sm->peer[i].port, 0);
	sm->peers = 0;
}

void sm_sweep_light(struct sm *sm, const struct sm_answer *a)
{
	const struct sm_port *own = &sm->subnet->node[0].port[sm->subnet->root_port];
	bool same = a->data != NULL;

	if (same && a->item.kind == SM_LOOK_SWITCH)
		same = (a->data[11] & 4) == 0; /* PortStateChange */
	else if (same)
		same = (a->data[PI_STATE] & 15) == sm_port_state(own);
	if (!same)
		sm_sweep_want(sm, 0);
}

void sm_sweep_idle(struct sm *sm)
{
	u64 now = sm_now(sm);

	if (sm->state == SM_STANDBY && now >= sm->poll_due_ns) {
		sm->phase = SM_POLL;
		sm_push(sm, SM_ASK_SM, sm->master.node, sm->master.port, 0);
	} else if (sm->state != SM_MASTER && sm->state != SM_DISCOVERING) {
		sm->wanted = false;
	} else if (sm->wanted && now >= sm->wanted_ns) {
		sm_sweep_begin(sm);
	} else if (sm->state == SM_MASTER && sm->trees_stale) {
		sm->phase = SM_TREES;
		sm_trees_push(sm);
	} else if (sm->state == SM_MASTER && now >= sm->light_due_ns) {
		sm_sweep_begin_light(sm);
	}
}

u64 sm_sweep_due_ns(const struct sm *sm)
{
	u64 due = UINT64_MAX;

	if (sm->phase != SM_IDLE)
		return sm->queue.count == 0 && sm->in_flight == 0 ? 0 : UINT64_MAX;
	if (sm->state == SM_STANDBY)
		return sm->poll_due_ns;
	if (sm->state == SM_NOT_ACTIVE)
		return UINT64_MAX;
	if (sm->state == SM_MASTER)
		due = sm->trees_stale ? 0 : sm->light_due_ns;
	return sm->wanted ? MIN(due, sm->wanted_ns) : due;
}

void sm_wake(struct sm *sm)
{
	if (sm->state == SM_STANDBY)
		sm->poll_due_ns = sm_now(sm);
	else
		sm_sweep_want(sm, SWEEP_SETTLE_NS);
}
