/* manager.c: which of several SMs is the master: SMInfo, and the state machine over it.
 * In:    SMInfo of others, their Gets and Sets; what discovery has found    Out: this SM's state
 * Runs:  the host's thread    Locks: none
 * Spec:  IBA vol 1, 14.4.1 (states), 14.2.5.13 (SMInfo), 14.4.1.2 (who ranks higher)
 *
 * An SM that ranks higher and does not become the master, though it has been waited for or the
 * subnet was handed over to it, is passed over for a while.
 */
#include "sm/sm_priv.h"

enum { MANAGER_HANDOVER = 1, MANAGER_ACKNOWLEDGE, MANAGER_DISABLE, MANAGER_STANDBY,
       MANAGER_DISCOVER };

#define MANAGER_SHUN_NS (60 * SM_S)
/* SM_Key: OpenSM's default, which ignores SMs with another one. */
#define MANAGER_KEY 1

/* ---- SMInfo ---------------------------------------------------------------------------------- */

void sm_manager_info(struct sm *sm, u8 *d)
{
	memset(d, 0, MAD_SMP_DATA);
	wire_put64(d, sm->guid);
	wire_put64(d + 8, MANAGER_KEY);
	wire_put32(d + 16, sm->act_count);
	d[20] = (u8)(sm->config.priority << 4 | sm->state);
}

/* False: it makes no sense, or it is this SM's own. */
static bool sm_manager_read(struct sm *sm, const struct sm_answer *a, struct sm_peer *out)
{
	if (a->data == NULL)
		return false;
	*out = (struct sm_peer){ .guid = wire_get64(a->data),
				 .node = a->item.node,
				 .port = a->item.port,
				 .priority = a->data[20] >> 4,
				 .state = a->data[20] & 15 };
	return out->guid != 0 && out->guid != sm->guid && out->state <= SM_MASTER;
}

/* Does `a` rank higher than this SM? */
static bool sm_manager_ranks(const struct sm *sm, const struct sm_peer *a)
{
	if (a->priority != sm->config.priority)
		return a->priority > sm->config.priority;
	return a->guid < sm->guid;
}

void sm_manager_note(struct sm *sm, const struct sm_answer *a)
{
	struct sm_peer p;

	if (sm_manager_read(sm, a, &p) && sm->peers < SM_PEERS)
		sm->peer[sm->peers++] = p;
}

/* The highest of those in one of the states; NULL: none. higher: than this SM, and not shunned. */
static const struct sm_peer *sm_manager_find(const struct sm *sm, u32 states, bool higher)
{
	const struct sm_peer *best = NULL;

	for (u32 i = 0; i < sm->peers; i++) {
		const struct sm_peer *p = &sm->peer[i];
		bool shunned = p->guid == sm->shunned && sm_now(sm) < sm->shunned_until_ns;

		if ((states & 1u << p->state) == 0 ||
		    (higher && (!sm_manager_ranks(sm, p) || shunned)))
			continue;
		if (best == NULL || p->priority > best->priority ||
		    (p->priority == best->priority && p->guid < best->guid))
			best = p;
	}
	return best;
}

bool sm_manager_expects(const struct sm *sm)
{
	return sm_manager_find(sm, 1u << SM_DISCOVERING, false) != NULL ||
	       sm_manager_find(sm, 1u << SM_STANDBY | 1u << SM_MASTER, true) != NULL;
}

/* ---- states ---------------------------------------------------------------------------------- */

void sm_manager_state(struct sm *sm, enum sm_state state)
{
	if (state == SM_MASTER && sm->state != SM_MASTER) {
		sm->fresh = true;
		sm->backoff_ns = 0;
		sm_sa_forget(sm);
	}
	sm->state = state;
	sm->report.state = state;
}

/* Looks for the master anew. */
static void sm_manager_rediscover(struct sm *sm)
{
	sm_manager_state(sm, SM_DISCOVERING);
	sm->phase = SM_IDLE;
	sm->wanted = true;
	sm->wanted_ns = 0;
}

static void sm_manager_stand_by(struct sm *sm, const struct sm_peer *master)
{
	sm->master = *master;
	sm->polls_bad = 0;
	sm->impatient = false;
	sm->poll_due_ns = sm_now(sm) + sm->config.poll_ns;
	sm->phase = SM_IDLE;
	sm->sweeping = false;
	sm->wanted = false;
	if (sm->next != NULL) { /* its ways are the latest */
		sm_subnet_free(sm->subnet);
		sm->subnet = sm->next;
		sm->next = NULL;
	}
	sm_manager_state(sm, SM_STANDBY);
}

static void sm_manager_hand_over(struct sm *sm, const struct sm_peer *to)
{
	sm->master = *to;
	sm->phase = SM_HANDOVER;
	sm_push(sm, SM_SET_HANDOVER, to->node, to->port, MANAGER_HANDOVER);
}

static void sm_manager_shun(struct sm *sm, u64 guid)
{
	sm->shunned = guid;
	sm->shunned_until_ns = sm_now(sm) + MANAGER_SHUN_NS;
}

/* ---- decisions ------------------------------------------------------------------------------- */

static void sm_manager_decide_discovering(struct sm *sm)
{
	const struct sm_peer *master = sm_manager_find(sm, 1u << SM_MASTER, false);
	const struct sm_peer *higher =
		sm_manager_find(sm, 1u << SM_DISCOVERING | 1u << SM_STANDBY, true);

	if (master == NULL && higher != NULL && !sm->impatient)
		master = higher;
	if (master != NULL) {
		sm_manager_stand_by(sm, master);
		return;
	}
	sm->impatient = false;
	sm_manager_state(sm, SM_MASTER);
	sm_sweep_configure(sm);
}

void sm_manager_decide(struct sm *sm)
{
	const struct sm_peer *higher;

	if (sm->next->nodes == 0) { /* the SM's own port does not answer */
		sm_subnet_free(sm->next);
		sm->next = NULL;
		sm->phase = SM_IDLE;
		sm_sweep_want(sm, SM_S);
		return;
	}
	if (sm->state != SM_MASTER) {
		sm_manager_decide_discovering(sm);
		return;
	}
	higher = sm_manager_find(sm, 1u << SM_MASTER | 1u << SM_STANDBY, true);
	if (higher != NULL)
		sm_manager_hand_over(sm, higher);
	else
		sm_sweep_configure(sm);
}

void sm_manager_look(struct sm *sm)
{
	const struct sm_peer *higher =
		sm_manager_find(sm, 1u << SM_MASTER | 1u << SM_STANDBY, true);

	if (higher != NULL)
		sm_manager_hand_over(sm, higher);
}

void sm_manager_handed_over(struct sm *sm, const struct sm_answer *a)
{
	if (sm->state != SM_MASTER)
		return;
	if (a->data != NULL) {
		sm_manager_stand_by(sm, &sm->master);
		return;
	}
	sm_manager_shun(sm, sm->master.guid);
	if (sm->next != NULL)
		sm_sweep_configure(sm);
	else
		sm->phase = SM_IDLE;
}

void sm_manager_polled(struct sm *sm, const struct sm_answer *a)
{
	struct sm_peer p;

	sm->poll_due_ns = sm_now(sm) + sm->config.poll_ns;
	if (sm->state != SM_STANDBY)
		return;
	if (!sm_manager_read(sm, a, &p) || p.guid != sm->master.guid) {
		sm_manager_rediscover(sm);
	} else if (p.state == SM_MASTER) {
		sm->polls_bad = 0;
	} else if (++sm->polls_bad >= SM_MASTER_PATIENCE) {
		sm_manager_shun(sm, p.guid);
		sm->impatient = true;
		sm_manager_rediscover(sm);
	}
}

/* ---- requests of others ---------------------------------------------------------------------- */

/* The state after a Set of an SM that has the right to it; -1: not in this state. */
static int sm_manager_obey(const struct sm *sm, u32 modifier)
{
	switch (modifier) {
	case MANAGER_HANDOVER:
		return sm->state == SM_STANDBY || sm->state == SM_MASTER ? SM_MASTER : -1;
	case MANAGER_ACKNOWLEDGE:
		return sm->state == SM_MASTER || sm->state == SM_STANDBY ? (int)sm->state : -1;
	case MANAGER_DISABLE:
		return sm->state == SM_STANDBY ? SM_NOT_ACTIVE : -1;
	case MANAGER_STANDBY:
		return sm->state == SM_NOT_ACTIVE || sm->state == SM_STANDBY ? SM_STANDBY : -1;
	case MANAGER_DISCOVER:
		return sm->state == SM_STANDBY ? SM_DISCOVERING : -1;
	default:
		return -1;
	}
}

/* Another master has handed over: switches have its tables, and hosts have registered with it. */
static void sm_manager_begin_anew(struct sm *sm)
{
	sm_smp_clear(sm);
	sm_subnet_free(sm->next);
	sm->next = NULL;
	sm->phase = SM_IDLE;
	sm->sweeping = false;
	sm->fresh = true;
	sm_sa_forget(sm);
	sm_sweep_want(sm, 0);
}

static u16 sm_manager_set(struct sm *sm, const u8 *mad)
{
	int state = sm_manager_obey(sm, wire_get32(mad + MAD_MODIFIER));
	u64 from = wire_get64(mad + MAD_DATA);

	/* Only the master that this standby knows may hand over to it, or disable it. */
	if (state < 0 || (sm->state == SM_STANDBY && from != sm->master.guid))
		return STATUS_BAD_VALUE;
	if ((enum sm_state)state == sm->state) {
		if (sm->state == SM_MASTER && wire_get32(mad + MAD_MODIFIER) == MANAGER_HANDOVER)
			sm_manager_begin_anew(sm);
		return STATUS_OK;
	}
	sm_smp_clear(sm);
	sm->phase = SM_IDLE;
	sm_manager_state(sm, (enum sm_state)state);
	sm->poll_due_ns = sm_now(sm) + sm->config.poll_ns;
	sm->wanted = state == SM_MASTER || state == SM_DISCOVERING;
	sm->wanted_ns = 0;
	return STATUS_OK;
}

/* Who asks may be an SM that this master does not know. */
static void sm_manager_asked(struct sm *sm)
{
	u64 now = sm_now(sm);

	if (sm->state != SM_MASTER || sm->peers > 0 || now < sm->asked_ns)
		return;
	sm->asked_ns = now + sm->config.light_ns;
	sm_wake(sm);
}

void sm_manager_receive(struct sm *sm, const struct fabric_mad *m)
{
	struct fabric_mad out = *m;
	u16 status = STATUS_OK;

	if (sm->guid == 0) /* it does not know yet who it is */
		return;
	if (m->mad[MAD_METHOD] == METHOD_SET)
		status = sm_manager_set(sm, m->mad);
	else
		sm_manager_asked(sm);
	if (m->mad[MAD_CLASS] == CLASS_SMP_DIRECTED)
		status |= STATUS_DIRECTION;
	out.slid = m->dlid;
	out.dlid = m->slid;
	out.src_qp = 0;
	out.dst_qp = 0;
	out.mad[MAD_METHOD] = METHOD_GET_RESP;
	wire_put16(out.mad + MAD_STATUS, status);
	sm_manager_info(sm, out.mad + MAD_DATA);
	sm_reply(sm, &out);
}
