/* smp.c: SMPs of the SM: a bounded number in flight, each repeated until it is answered or given
 * up; what waits behind them is small.
 * In:    items to ask or set, answers    Out: directed-route SMPs; what came of each item
 * Runs:  the host's thread    Locks: none
 * Spec:  IBA vol 1, 14.2.1 (SMPs), 14.2.2 (directed routes)
 *
 * An SMP's answer may arrive while it is being sent. So nothing of the SM is in between two states
 * when `send` is called, and receiving sends nothing itself.
 */
#include <stdlib.h>

#include "sm/sm_priv.h"

/* ---- what waits ------------------------------------------------------------------------------ */

static bool sm_queue_grow(struct sm_item_queue *q)
{
	u32 room = q->room == 0 ? 256 : q->room * 2;
	struct sm_item *item = malloc(room * sizeof(*item));

	if (item == NULL)
		return false;
	for (u32 i = 0; i < q->count; i++)
		item[i] = q->item[(q->head + i) & (q->room - 1)];
	free(q->item);
	*q = (struct sm_item_queue){ .item = item, .room = room, .count = q->count };
	return true;
}

void sm_push(struct sm *sm, enum sm_kind kind, u32 node, u8 port, u32 arg)
{
	struct sm_item_queue *q = &sm->queue;

	if (q->count == q->room && !sm_queue_grow(q)) {
		sm_here(sm)->flawed = true;
		return;
	}
	q->item[(q->head + q->count++) & (q->room - 1)] =
		(struct sm_item){ .node = node, .arg = arg, .port = port, .kind = (u8)kind };
}

static struct sm_item sm_queue_pop(struct sm_item_queue *q)
{
	struct sm_item it = q->item[q->head];

	q->head = (q->head + 1) & (q->room - 1);
	q->count--;
	return it;
}

void sm_smp_clear(struct sm *sm)
{
	sm->queue.head = sm->queue.count = 0;
	for (u32 i = 0; i < sm->config.smps; i++)
		sm->smp[i].used = false;
	sm->in_flight = 0;
	sm->smp_due_ns = UINT64_MAX;
}

struct sm_subnet *sm_here(struct sm *sm)
{
	return sm->next != NULL ? sm->next : sm->subnet;
}

/* ---- making one ------------------------------------------------------------------------------ */

static const struct {
	u16 attribute FIXED;
	bool set FIXED;
} sm_kinds[] = {
	[SM_ASK_ROOT] = { ATTR_NODE_INFO, false },
	[SM_ASK_PEER] = { ATTR_NODE_INFO, false },
	[SM_ASK_DESC] = { ATTR_NODE_DESCRIPTION, false },
	[SM_ASK_SWITCH] = { ATTR_SWITCH_INFO, false },
	[SM_ASK_PORT] = { ATTR_PORT_INFO, false },
	[SM_ASK_SM] = { ATTR_SM_INFO, false },
	[SM_ASK_PKEYS] = { ATTR_PKEY_TABLE, false },
	[SM_SET_PORT] = { ATTR_PORT_INFO, true },
	[SM_SET_STATE] = { ATTR_PORT_INFO, true },
	[SM_SET_SWITCH] = { ATTR_SWITCH_INFO, true },
	[SM_SET_LFT] = { ATTR_LINEAR_TABLE, true },
	[SM_SET_MFT] = { ATTR_MULTICAST_TABLE, true },
	[SM_SET_PKEYS] = { ATTR_PKEY_TABLE, true },
	[SM_SET_HANDOVER] = { ATTR_SM_INFO, true },
	[SM_LOOK_SWITCH] = { ATTR_SWITCH_INFO, false },
	[SM_LOOK_PORT] = { ATTR_PORT_INFO, false },
};

/* The initial path; false: there is no way. */
static bool sm_smp_way(struct sm *sm, const struct sm_item *it, u8 *mad)
{
	const struct sm_subnet *s = sm_here(sm);
	int hops = 0;

	if (it->kind != SM_ASK_ROOT) {
		const struct sm_node *n = &s->node[it->node];
		/* Behind a CA's port there is something only where the SM itself is. */
		u8 from = it->kind == SM_ASK_PEER && n->type != FABRIC_SWITCH ? s->root_port :
										it->port;

		hops = sm_subnet_way(s, it->node, from, mad + MAD_INITIAL_PATH);
	}
	if (it->kind == SM_ASK_PEER && hops >= 0) {
		if (hops == MAD_HOPS_MAX)
			return false;
		mad[MAD_INITIAL_PATH + ++hops] = it->port;
	}
	mad[MAD_HOP_COUNT] = (u8)hops;
	return hops >= 0;
}

/* False: there is nothing to send. */
static bool sm_smp_make(struct sm *sm, struct sm_smp *s)
{
	bool set = sm_kinds[s->item.kind].set;
	u32 modifier = s->item.kind == SM_ASK_PORT ? s->item.port : 0;
	u8 *mad = s->mad.mad;

	memset(&s->mad, 0, sizeof(s->mad));
	s->mad.slid = s->mad.dlid = FABRIC_LID_PERMISSIVE;
	mad[MAD_BASE_VERSION] = 1;
	mad[MAD_CLASS] = CLASS_SMP_DIRECTED;
	mad[MAD_CLASS_VERSION] = 1;
	mad[MAD_METHOD] = set ? METHOD_SET : METHOD_GET;
	wire_put16(mad + MAD_ATTRIBUTE, sm_kinds[s->item.kind].attribute);
	wire_put16(mad + MAD_DR_SLID, FABRIC_LID_PERMISSIVE);
	wire_put16(mad + MAD_DR_DLID, FABRIC_LID_PERMISSIVE);
	if (!sm_smp_way(sm, &s->item, mad)) {
		sm_here(sm)->flawed = true;
		return false;
	}
	if (set && !sm_config_fill(sm, &s->item, mad + MAD_DATA, &modifier))
		return false;
	wire_put32(mad + MAD_MODIFIER, modifier);
	wire_put64(mad + MAD_TID, s->tid);
	return true;
}

/* ---- sending --------------------------------------------------------------------------------- */

static void sm_smp_emit(struct sm *sm, struct sm_smp *s)
{
	struct fabric_mad m = s->mad;

	s->tries++;
	s->due_ns = sm_now(sm) + sm->config.timeout_ns;
	sm->smp_due_ns = MIN(sm->smp_due_ns, s->due_ns);
	sm->report.smps++;
	sm->ops->send(sm->arg, &m);
}

/* Is the item about something that has been answered meanwhile? */
static bool sm_smp_is_idle(struct sm *sm, const struct sm_item *it)
{
	return it->kind == SM_ASK_PEER &&
	       sm_here(sm)->node[it->node].port[it->port].peer != SM_NONE;
}

static struct sm_smp *sm_smp_take(struct sm *sm)
{
	for (u32 i = 0; i < sm->config.smps; i++)
		if (!sm->smp[i].used)
			return &sm->smp[i];
	return NULL;
}

void sm_smp_send(struct sm *sm, u32 *budget)
{
	while (*budget > 0 && sm->queue.count > 0 && sm->in_flight < sm->config.smps) {
		struct sm_smp *s = sm_smp_take(sm);

		s->item = sm_queue_pop(&sm->queue);
		if (sm_smp_is_idle(sm, &s->item))
			continue;
		s->tid = sm->config.seed << 32 | (u32)++sm->sequence;
		s->tries = 0;
		if (!sm_smp_make(sm, s))
			continue;
		s->used = true;
		sm->in_flight++;
		--*budget;
		sm_smp_emit(sm, s);
	}
}

u64 sm_smp_due_ns(const struct sm *sm)
{
	if (sm->queue.count > 0 && sm->in_flight < sm->config.smps)
		return 0;
	return sm->in_flight > 0 ? sm->smp_due_ns : UINT64_MAX;
}

/* ---- answers --------------------------------------------------------------------------------- */

static void sm_smp_dispatch(struct sm *sm, const struct sm_answer *a)
{
	switch (a->item.kind) {
	case SM_ASK_SM:
		if (sm->phase == SM_POLL)
			sm_manager_polled(sm, a);
		else
			sm_manager_note(sm, a);
		break;
	case SM_SET_HANDOVER:
		sm_manager_handed_over(sm, a);
		break;
	case SM_LOOK_SWITCH:
	case SM_LOOK_PORT:
		sm_sweep_light(sm, a);
		break;
	case SM_ASK_ROOT:
	case SM_ASK_PEER:
	case SM_ASK_DESC:
	case SM_ASK_SWITCH:
	case SM_ASK_PORT:
		sm_discover(sm, a);
		break;
	default:
		sm_config_answer(sm, a);
		break;
	}
}

static void sm_smp_end(struct sm *sm, struct sm_smp *s, const u8 *mad)
{
	struct sm_answer a = { .item = s->item, .status = STATUS_NONE };

	s->used = false;
	sm->in_flight--;
	if (mad != NULL)
		a.status = wire_get16(mad + MAD_STATUS) & 0x7fff;
	if (a.status == STATUS_OK)
		a.data = mad + MAD_DATA;
	sm->report.timeouts += mad == NULL;
	sm->report.faults += mad != NULL && a.data == NULL;
	sm_smp_dispatch(sm, &a);
}

bool sm_smp_receive(struct sm *sm, const struct fabric_mad *m)
{
	u64 tid = wire_get64(m->mad + MAD_TID);

	for (u32 i = 0; i < sm->config.smps; i++) {
		struct sm_smp *s = &sm->smp[i];

		if (!s->used || s->tid != tid)
			continue;
		if (m->mad[MAD_CLASS] != CLASS_SMP_DIRECTED ||
		    memcmp(m->mad + MAD_ATTRIBUTE, s->mad.mad + MAD_ATTRIBUTE, 2) != 0)
			return false;
		sm_smp_end(sm, s, m->mad);
		return true;
	}
	return false;
}

void sm_smp_expire(struct sm *sm, u32 *budget)
{
	u64 now = sm_now(sm), due = UINT64_MAX;

	if (now < sm->smp_due_ns)
		return;
	for (u32 i = 0; i < sm->config.smps && *budget > 0; i++) {
		struct sm_smp *s = &sm->smp[i];

		if (!s->used || s->due_ns > now)
			continue;
		if (s->tries >= SM_TRIES) {
			sm_smp_end(sm, s, NULL);
		} else {
			--*budget;
			sm_smp_emit(sm, s);
		}
	}
	for (u32 i = 0; i < sm->config.smps; i++)
		if (sm->smp[i].used)
			due = MIN(due, sm->smp[i].due_ns);
	sm->smp_due_ns = due;
}
