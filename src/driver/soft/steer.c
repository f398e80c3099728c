/* steer.c: the port's flow rules: which receive queue gets a frame.
 * In: frames of the interface, frames that this process sends    Out: receive queues
 * Runs: the thread of path/raw; whoever sends    Locks: use_lock; steer_lock
 */
#include <errno.h>
#include <stdlib.h>

#include "base/fork.h"
#include "base/thread.h"
#include "driver/soft/raw.h"
#include "path/raw/raw.h"

/* Guards soft_steer.flows of all devices. Held while a frame is delivered, so that one quiesce
 * covers all. */
static struct lock steer_lock ONE_AT_A_TIME;
FORK_MAKES_ANEW(FORK_STEER, &steer_lock);

/* ---- the table ---- */

static bool soft_flow_is_before(const struct soft_flow *a, const struct soft_flow *b)
{
	if (a->shown.rule.rank != b->shown.rule.rank)
		return a->shown.rule.rank < b->shown.rule.rank;
	return a->shown.serial < b->shown.serial;
}

/* From the end, for most rules are younger than all others. Under steer_lock. */
static void soft_flow_insert(struct soft_steer *s, struct soft_flow *flow)
{
	struct list_head *at = s->flows.prev;

	while (at != &s->flows &&
	       soft_flow_is_before(flow, list_entry(at, struct soft_flow, node)))
		at = at->prev;
	list_push_front(at, &flow->node); /* behind `at` */
}

/* Under steer_lock. */
static void soft_steer_replace_others(struct soft_steer *s, const struct node_flow *list, u32 count)
{
	for (u32 i = 0; i < s->other_count; i++)
		list_remove(&s->others[i].node);
	free(s->others);
	s->other_count = 0;
	s->others = count == 0 ? NULL : calloc(count, sizeof(*s->others));
	if (s->others == NULL)
		return;
	s->other_count = count;
	for (u32 i = 0; i < count; i++) {
		s->others[i].shown = list[i];
		soft_flow_insert(s, &s->others[i]);
	}
}

/* Takes over what the directory has of other processes, if that has changed. Without memory, or
 * while others are on their way to a new node, the table stays as it is. */
static void soft_steer_refresh(struct soft_device *dev)
{
	struct soft_steer *s = &dev->steer;
	struct node *node = the_seat.a.node;
	u64 now = node_flow_generation(node);
	struct node_flow *list;
	int count;

	if (now == __atomic_load_n(&s->seen, __ATOMIC_RELAXED))
		return;
	list = malloc(NODE_FLOWS * sizeof(*list));
	if (list == NULL)
		return;
	lock_acquire(&steer_lock);
	count = node_flow_list(node, s->device, list, NODE_FLOWS);
	if (count >= 0) {
		soft_steer_replace_others(s, list, (u32)count);
		__atomic_store_n(&s->seen, now, __ATOMIC_RELAXED);
	}
	lock_release(&steer_lock);
	free(list);
}

/* ---- frames ---- */

static void soft_steer_deliver(const struct soft_raw *qp, const struct ether_key *key,
			       const u8 *frame, u32 length)
{
	struct soft_rq *rq = qp->table == NULL ? (struct soft_rq *)&qp->rq
					       : soft_table_choose(qp->table, &qp->hash, key);

	soft_rq_deliver(rq, frame, length);
}

/* Under steer_lock. */
static void soft_counters_add(struct soft_counters *counters, u32 length)
{
	u64 *v = counters->values;

	__atomic_store_n(&v[IB_COUNTER_PACKETS], v[IB_COUNTER_PACKETS] + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&v[IB_COUNTER_BYTES], v[IB_COUNTER_BYTES] + length, __ATOMIC_RELAXED);
}

/* Under steer_lock: no rule goes, and so no queue pair and no counters. A rule counts what it
 * takes, also what it drops or has no receive request for. */
static bool soft_steer_offer(struct ether_walk *walk, const struct soft_flow *flow,
			     const struct ether_key *key, const u8 *frame, u32 length)
{
	enum ether_verdict verdict = ether_judge(walk, &flow->shown.rule, key);
	bool takes = verdict == ETHER_DELIVER || walk->taken == &flow->shown.rule;

	if (takes && flow->counters != NULL)
		soft_counters_add(flow->counters, length);
	if (verdict == ETHER_DELIVER && flow->qp != NULL)
		soft_steer_deliver(flow->qp, key, frame, length);
	return verdict != ETHER_END;
}

static void soft_steer_give(struct soft_device *dev, const u8 *frame, u32 length)
{
	struct ether_walk walk = { .taken = NULL };
	struct ether_key key;

	if (!ether_parse(frame, length, &key))
		return;
	soft_steer_refresh(dev);
	lock_acquire(&steer_lock);
	list_for_each(flow, &dev->steer.flows, struct soft_flow, node) {
		if (!soft_steer_offer(&walk, flow, &key, frame, length))
			break;
	}
	lock_release(&steer_lock);
}

static void soft_steer_receive(void *arg, const u8 *frame, u32 length)
{
	struct soft_device *dev = arg;

	if (!__atomic_load_n(&dev->steer.down, __ATOMIC_RELAXED))
		soft_steer_give(dev, frame, length);
}

static void soft_steer_writable(void *arg)
{
	struct soft_device *dev = arg;

	lock_acquire(&dev->list_lock);
	list_for_each(qp, &dev->raws, struct soft_raw, node)
		soft_raw_resume(qp);
	lock_release(&dev->list_lock);
}

int soft_steer_send(struct soft_device *dev, const u8 *frame, u32 length)
{
	int err;

	if (__atomic_load_n(&dev->steer.down, __ATOMIC_RELAXED))
		return -ENETDOWN;
	err = raw_send(dev->steer.raw, frame, length);
	if (err == 0 && __atomic_load_n(&dev->steer.any, __ATOMIC_RELAXED))
		soft_steer_give(dev, frame, length);
	return err;
}

/* Each frame is delivered under the lock. */
void soft_steer_quiesce(void *seat)
{
	lock_acquire(&steer_lock);
	lock_release(&steer_lock);
}

/* ---- the port ---- */

static void *soft_steer_run(void *arg)
{
	raw_run(arg);
	return NULL;
}

static int soft_steer_open(struct soft_device *dev) REQUIRES(dev->steer.use_lock)
{
	struct raw_config cfg = { .receive = soft_steer_receive,
				  .writable = soft_steer_writable,
				  .arg = dev };
	int slot = seat_slot(&the_seat), err;
	struct soft_carrier carrier;

	err = slot < 0 ? slot : dev->kind->carrier(dev, &carrier);
	if (err != 0)
		return err;
	cfg.ifindex = carrier.ifindex;
	cfg.mark = (carrier.node & ~(u32)RAW_MARK_SLOTS) | ((u32)slot & RAW_MARK_SLOTS);
	dev->steer.device = carrier.device;
	err = raw_open(&cfg, &dev->steer.raw);
	if (err != 0)
		return err;
	err = thread_start("anyverbs/raw", THREAD_STACK, NULL, soft_steer_run, dev->steer.raw);
	if (err != 0)
		raw_close(dev->steer.raw, false);
	return err;
}

int soft_steer_get(struct soft_device *dev)
{
	struct soft_steer *s = &dev->steer;
	int err;

	lock_acquire(&dev->steer.use_lock);
	err = s->users == 0 ? soft_steer_open(dev) : 0;
	if (err == 0)
		s->users++;
	lock_release(&dev->steer.use_lock);
	return err;
}

void soft_steer_put(struct soft_device *dev)
{
	struct soft_steer *s = &dev->steer;

	lock_acquire(&s->use_lock);
	if (--s->users == 0) {
		raw_close(s->raw, true);
		s->raw = NULL;
		lock_acquire(&steer_lock);
		soft_steer_replace_others(s, NULL, 0);
		__atomic_store_n(&s->seen, 0, __ATOMIC_RELAXED);
		lock_release(&steer_lock);
	}
	lock_release(&s->use_lock);
}

/* The parent's queue pairs keep their objects; what they name is gone. */
void soft_steer_drop_in_child(struct soft_device *dev) NO_THREAD_SAFETY
{
	struct soft_steer *s = &dev->steer;

	free(s->others);
	if (s->raw != NULL)
		raw_drop_in_child(s->raw);
	*s = (struct soft_steer){ .any = false };
	list_init(&s->flows);
}

/* ---- flow rules ---- */

/* Other processes leave the rule's frames from here on, and this one takes them. */
static int soft_flow_show(struct soft_steer *s, struct soft_flow *flow) REQUIRES(s->use_lock)
{
	int err;

	flow->shown.device = s->device;
	flow->shown.qpn = flow->qp->ib.qp_num;
	err = node_flow_add(the_seat.a.node, &flow->shown);
	if (err != 0)
		return err == -ENOSPC ? -ENOMEM : err;
	lock_acquire(&steer_lock);
	soft_flow_insert(s, flow);
	lock_release(&steer_lock);
	s->count++;
	__atomic_store_n(&s->any, true, __ATOMIC_SEQ_CST);
	return 0;
}

static int soft_flow_enter(struct soft_steer *s, struct soft_flow *flow)
{
	int err = 0;

	lock_acquire(&s->use_lock);
	if (s->count == 0)
		err = raw_listen(s->raw, true);
	if (err == 0)
		err = soft_flow_show(s, flow);
	if (err != 0 && s->count == 0)
		(void)raw_listen(s->raw, false);
	lock_release(&s->use_lock);
	return err;
}

static struct soft_counters *soft_counters_of(const struct ib_flow_attr *attr)
{
	for (u32 i = 0; i < attr->num_of_specs; i++)
		if (attr->specs[i].type == IB_FLOW_SPEC_ACTION_COUNT)
			return SOFT_OF(counters, attr->specs[i].counters);
	return NULL;
}

struct ib_flow *soft_create_flow(struct ib_qp *ib, const struct ib_flow_attr *attr)
{
	struct soft_raw *qp = SOFT_OF(raw, ib);
	struct soft_device *dev = soft_dev(ib->device);
	struct soft_flow *flow;
	int err = ib->qp_type != IB_QPT_RAW_PACKET ? -EOPNOTSUPP : soft_check(ib->device);

	if (err == 0 && !soft_is_ours(qp->generation))
		err = -EIO;
	if (err != 0)
		return ERR_PTR(err);
	flow = calloc(1, sizeof(*flow));
	if (flow == NULL)
		return ERR_PTR(-ENOMEM);
	flow->qp = qp;
	flow->counters = soft_counters_of(attr);
	err = rule_of_attr(attr, &flow->shown.rule);
	if (err == 0)
		err = soft_flow_enter(&dev->steer, flow);
	if (err != 0) {
		free(flow);
		return ERR_PTR(err);
	}
	return &flow->ib;
}

static void soft_flow_leave(struct soft_steer *s, struct soft_flow *flow)
{
	lock_acquire(&s->use_lock);
	lock_acquire(&steer_lock);
	list_remove(&flow->node);
	lock_release(&steer_lock);
	(void)node_flow_remove(the_seat.a.node, flow->shown.serial);
	if (--s->count == 0) {
		__atomic_store_n(&s->any, false, __ATOMIC_SEQ_CST);
		(void)raw_listen(s->raw, false);
	}
	lock_release(&s->use_lock);
}

int soft_destroy_flow(struct ib_flow *ib)
{
	struct soft_flow *flow = SOFT_OF(flow, ib);

	if (soft_is_ours(flow->qp->generation))
		soft_flow_leave(&soft_dev(ib->device)->steer, flow);
	free(flow);
	return 0;
}

/* ---- counters ---- */

struct ib_counters *soft_create_counters(struct ib_device *ib)
{
	int err = soft_dev(ib)->kind->carrier == NULL ? -EOPNOTSUPP : soft_check(ib);
	struct soft_counters *counters = err == 0 ? calloc(1, sizeof(*counters)) : NULL;

	if (err == 0 && counters == NULL)
		err = -ENOMEM;
	return err == 0 ? &counters->ib : ERR_PTR(err);
}

void soft_destroy_counters(struct ib_counters *ib)
{
	free(SOFT_OF(counters, ib));
}

int soft_read_counters(struct ib_counters *ib, u64 values[IB_COUNTER_KINDS])
{
	const struct soft_counters *counters = SOFT_OF(counters, ib);
	int err = soft_check(ib->device);

	for (u32 i = 0; err == 0 && i < IB_COUNTER_KINDS; i++)
		values[i] = __atomic_load_n(&counters->values[i], __ATOMIC_RELAXED);
	return err;
}
