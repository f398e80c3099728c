/* sm.c: the host's calls: life, time, MADs that arrive.
 * In:    MADs, hostile; time    Out: MADs
 * Runs:  the host's thread    Locks: none
 */
#include <stdlib.h>

#include "sm/sm_priv.h"

enum { SM_CLASS_SA = 0x03 };

/* ---- life ------------------------------------------------------------------------------------ */

static void sm_defaults(struct sm_config *c)
{
	if (c->smps == 0)
		c->smps = SM_SMPS;
	c->smps = MIN(c->smps, (u32)SM_SMPS_MAX);
	c->light_ns = c->light_ns == 0 ? 10 * SM_S : c->light_ns;
	c->poll_ns = c->poll_ns == 0 ? SM_S : c->poll_ns;
	c->timeout_ns = c->timeout_ns == 0 ? 200 * SM_MS : c->timeout_ns;
	c->priority &= 15;
	c->seed &= UINT32_MAX;
}

struct sm *sm_create(const struct sm_ops *ops, void *arg, const struct sm_config *c)
{
	struct sm *sm = calloc(1, sizeof(*sm));

	if (sm == NULL)
		return NULL;
	sm->ops = ops;
	sm->arg = arg;
	sm->config = *c;
	sm_defaults(&sm->config);
	sm->smp = calloc(sm->config.smps, sizeof(*sm->smp));
	sm->sa = sm_sa_new();
	if (!sm_lid_init(sm) || sm->smp == NULL || sm->sa == NULL) {
		sm_destroy(sm);
		return NULL;
	}
	sm->smp_due_ns = UINT64_MAX;
	sm_manager_state(sm, SM_DISCOVERING);
	sm->wanted = true;
	return sm;
}

void sm_destroy(struct sm *sm)
{
	if (sm == NULL)
		return;
	sm_subnet_free(sm->subnet);
	sm_subnet_free(sm->next);
	sm_lid_destroy(sm);
	sm_sa_free(sm->sa);
	free(sm->load);
	free(sm->queue.item);
	free(sm->reply);
	free(sm->smp);
	free(sm);
}

/* ---- answers --------------------------------------------------------------------------------- */

static bool sm_reply_grow(struct sm *sm)
{
	u32 room = sm->reply_room == 0 ? 16 : sm->reply_room * 2;
	struct fabric_mad *wide;

	if (room > SM_REPLIES)
		return false;
	wide = malloc(room * sizeof(*wide));
	if (wide == NULL)
		return false;
	for (u32 i = 0; i < sm->reply_count; i++)
		wide[i] = sm->reply[(sm->reply_head + i) % sm->reply_room];
	free(sm->reply);
	sm->reply = wide;
	sm->reply_room = room;
	sm->reply_head = 0;
	return true;
}

void sm_reply(struct sm *sm, const struct fabric_mad *m)
{
	if (sm->reply_count == sm->reply_room && !sm_reply_grow(sm)) {
		sm->report.dropped++;
		return;
	}
	sm->reply[(sm->reply_head + sm->reply_count++) % sm->reply_room] = *m;
}

static void sm_reply_send(struct sm *sm, u32 *budget)
{
	while (sm->reply_count > 0 && *budget > 0) {
		struct fabric_mad m = sm->reply[sm->reply_head];

		sm->reply_head = (sm->reply_head + 1) % sm->reply_room;
		sm->reply_count--;
		--*budget;
		sm->ops->send(sm->arg, &m);
	}
}

/* A member hears that it is one when packets reach it. */
static bool sm_reply_waits(const struct sm *sm)
{
	return sm->phase == SM_TREES || (sm->phase == SM_IDLE && sm->trees_stale);
}

/* ---- arrival --------------------------------------------------------------------------------- */

static bool sm_receive_smp(struct sm *sm, const struct fabric_mad *m)
{
	u8 method = m->mad[MAD_METHOD];
	u16 attribute = wire_get16(m->mad + MAD_ATTRIBUTE);

	if (method == METHOD_GET_RESP)
		return sm_smp_receive(sm, m);
	if (method == METHOD_TRAP) {
		sm_trap_receive(sm, m);
		return true;
	}
	if ((method == METHOD_GET || method == METHOD_SET) && attribute == ATTR_SM_INFO) {
		sm_manager_receive(sm, m);
		return true;
	}
	return false;
}

bool sm_receive(struct sm *sm, const struct fabric_mad *m)
{
	u8 class = m->mad[MAD_CLASS];

	if (m->mad[MAD_BASE_VERSION] != 1)
		return false;
	if (m->dst_qp == 0)
		return (class == CLASS_SMP_LID || class == CLASS_SMP_DIRECTED) &&
		       sm_receive_smp(sm, m);
	if (m->dst_qp == 1 && class == SM_CLASS_SA)
		return sm_sa_receive(sm, m);
	return false;
}

/* ---- time ------------------------------------------------------------------------------------ */

u64 sm_due_ns(const struct sm *sm)
{
	u64 due = MIN(sm_smp_due_ns(sm), MIN(sm_sweep_due_ns(sm), sm_sa_due_ns(sm)));

	return sm->reply_count > 0 && !sm_reply_waits(sm) ? 0 : due;
}

void sm_run(struct sm *sm)
{
	u32 budget = SM_BATCH;

	sm->act_count++;
	sm_smp_expire(sm, &budget);
	for (u32 steps = 0; steps < SM_BATCH && budget > 0; steps++) {
		sm_smp_send(sm, &budget);
		if (sm->queue.count > 0 || sm->in_flight > 0)
			break;
		if (sm->phase != SM_IDLE) {
			bool computes = sm->phase == SM_ROUTE;

			sm_sweep_step(sm);
			if (computes)
				break; /* time for others */
			continue;
		}
		sm_sweep_idle(sm);
		if (sm->phase == SM_IDLE)
			break;
	}
	sm_sa_run(sm);
	if (!sm_reply_waits(sm))
		sm_reply_send(sm, &budget);
}

void sm_read_report(const struct sm *sm, struct sm_report *out)
{
	*out = sm->report;
	out->busy = sm->phase != SM_IDLE || sm->wanted;
}
