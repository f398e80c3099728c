/* mads.c: what MAD ports of software adapters share: the queue of their handlers, what they tell
 * the node (listeners, agents, wills), headers.
 * In:    methods of struct mad_port_ops, wills      Out: requests to the node, wills in their file
 * Runs:  any thread; the queue's own                Locks: mads_lock
 */
#include "driver/soft/mads.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/log.h"
#include "mad/mad.h"
#include "node/steer.h"

enum {
	MADS_PAUSE_US = 50,
	MADS_BURST = 256, /* connections that end before what has arrived has its turn */
	MADS_EXIT_LOOKS = 4000, /* with such pauses, for what still waits at exit: 0.2 s */
};

static struct {
	struct lock mads_lock;
	bool ready GUARDED_BY(mads_lock);
	struct work_queue queue GUARDS_ITSELF;
	struct work offer GUARDS_ITSELF; /* shows the node the wills of this process */
	struct work mourn GUARDS_ITSELF; /* ends connections to processes that have ended ... */
	u64 died[NODE_SLOTS / 64] GUARDED_BY(mads_lock); /* ... whose slots these are, ... */
	soft_mads_end end GUARDED_BY(mads_lock);	 /* ... with this, ... */
	u32 place GUARDED_BY(mads_lock);		 /* ... by wills from this one on */
	u32 deaths GUARDED_BY(mads_lock);		 /* calls of soft_mads_died */
} soft_mads;

/* ---- headers --------------------------------------------------------------------------------- */

void soft_mads_fill_grh(const struct pkt *p, u16 payload, struct ib_grh *grh)
{
	enum { MADS_IPV6 = 6, MADS_BTH = 0x1b };

	*grh = (struct ib_grh){
		.version_tclass_flow =
			htonl((u32)MADS_IPV6 << 28 | (u32)p->traffic_class << 20 | p->flow_label),
		.paylen = htons(payload),
		.next_hdr = MADS_BTH,
		.hop_limit = p->hop_limit,
	};
	memcpy(grh->sgid.raw, p->sgid, 16);
	memcpy(grh->dgid.raw, p->dgid, 16);
}

int soft_mads_av(struct soft_device *dev, const struct mad_departure *d, struct path_av *av)
{
	if (d->ah == NULL)
		return dev->kind->resolve_av(dev, d->attr, av);
	soft_ah_av(d->ah, av);
	return 0;
}

/* ---- what the node is told ------------------------------------------------------------------- */

static struct node_match soft_mads_match(const struct ib_cm_compare_data *compare)
{
	struct node_match m = { .mask = { 0 } };

	if (compare != NULL) {
		memcpy(m.data, compare->data, sizeof(m.data));
		memcpy(m.mask, compare->mask, sizeof(m.mask));
	}
	return m;
}

int soft_mads_listen(struct soft_device *dev, u64 service_id, u64 mask,
		     const struct ib_cm_compare_data *compare, bool on)
{
	struct node_match match = soft_mads_match(compare);
	struct seat *s = &the_seat;
	int slot, err = soft_attach(dev);

	if (err != 0)
		return err;
	if (!on)
		return node_unlisten(s->a.node, service_id, mask, &match);
	slot = seat_slot(s);
	return slot < 0 ? slot : node_listen(s->a.node, service_id, mask, &match, (u32)slot);
}

_Static_assert(sizeof(((struct ib_mad_reg_req *)0)->method_mask) ==
		       sizeof(((struct node_agent *)0)->methods),
	       "a bit for each method");

int soft_mads_agent(struct soft_device *dev, const struct soft_mads_place *at,
		    const struct ib_mad_reg_req *request, bool on)
{
	struct node_agent a = { .device = at->device,
				.port = at->port,
				.qpn = at->qpn,
				.mgmt_class = request->mgmt_class,
				.version = request->mgmt_class_version };
	struct seat *s = &the_seat;
	int slot, err = soft_attach(dev);

	if (err != 0 || request->mgmt_class == STEER_CLASS_CM)
		return err; /* each process has its own CM, and its MADs say whose they are */
	memcpy(a.oui, request->oui, sizeof(a.oui));
	memcpy(a.methods, request->method_mask, sizeof(a.methods));
	if (!on)
		return node_agent_remove(s->a.node, &a);
	slot = seat_slot(s);
	return slot < 0 ? slot : node_agent_add(s->a.node, &a, (u32)slot);
}

int soft_mads_slot(struct soft_device *dev)
{
	int err = soft_attach(dev);

	if (err != 0)
		return err;
	/* the process has a board now, a forked child one of its own */
	mad_count_at(&the_seat.a.board->counters[COUNT_MAD_FIRST]);
	return seat_slot(&the_seat);
}

_Static_assert(COUNT_MAD_FIRST + (int)MAD_COUNTERS == (int)COUNT_CM_FIRST &&
		       COUNT_CM_FIRST + (int)MAD_CM_COUNTERS == (int)COUNT_CM_LAST + 1,
	       "path_counter_names has a name for each counter of the MAD layer and the CM");

/* ---- wills ----------------------------------------------------------------------------------- */

_Static_assert((int)NODE_CONNECTION_REQ_SENT == (int)IB_CM_REQ_SENT &&
		       (int)NODE_CONNECTION_ESTABLISHED == (int)IB_CM_ESTABLISHED &&
		       (int)NODE_CONNECTION_SIDR_REQ_RCVD == (int)IB_CM_SIDR_REQ_RCVD,
	       "states are shown as the CM counts them");

void soft_mads_fill_will(const struct mad_will *will, struct node_will *out)
{
	const struct mad_connection *c = &will->connection;

	out->connection = (struct node_connection){ .service_id = c->service_id,
						    .local_id = c->local_id,
						    .remote_id = c->remote_id,
						    .local_qpn = c->local_qpn,
						    .remote_qpn = c->remote_qpn,
						    .state = c->state,
						    .passive = c->passive };
	memset(out->mad, 0, sizeof(out->mad));
	memcpy(out->mad, will->mad, MIN((size_t)will->bytes, sizeof(out->mad)));
}

static void soft_mads_offer(struct work *w)
{
	struct seat *s = &the_seat;
	int err = seat_is_attached(s) ? node_will_offer(s->a.node) : 0;

	/* if the node is gone, the next one is shown them */
	if (err != 0)
		log_warn("mad", "the node does not take this process' wills: error %d", -err);
}

void soft_mads_set_will(u32 index, const struct node_will *will)
{
	if (node_will_set(the_seat.a.node, index, will) == 1)
		work_push(&soft_mads.offer);
}

/* ---- the deaths of peers --------------------------------------------------------------------- */

static bool soft_mads_is_among(const u64 slots[NODE_SLOTS / 64], u32 remote_id)
{
	u32 slot = remote_id >> STEER_SLOT_SHIFT;

	return (slots[slot / 64] & 1ull << slot % 64) != 0;
}

_Static_assert(NODE_SLOTS == 1u << (32 - STEER_SLOT_SHIFT), "each ID names a slot");

/* False: there are no more from *index on. */
static bool soft_mads_end_some(const u64 slots[NODE_SLOTS / 64], soft_mads_end end, u32 *index)
{
	struct node_will own, theirs;

	for (u32 left = MADS_BURST; left > 0;) {
		if (!seat_is_attached(&the_seat) || !node_will_next(the_seat.a.node, index, &own))
			return false;
		if (soft_mads_is_among(slots, own.connection.remote_id) &&
		    node_will_of_peer(&own, &theirs)) {
			end(&theirs);
			left--;
		}
	}
	return true;
}

static void soft_mads_mourn(struct work *w)
{
	u64 slots[NODE_SLOTS / 64];
	soft_mads_end end;
	u32 index, deaths;
	bool more;

	lock_acquire(&soft_mads.mads_lock);
	memcpy(slots, soft_mads.died, sizeof(slots));
	end = soft_mads.end;
	index = soft_mads.place;
	deaths = soft_mads.deaths;
	lock_release(&soft_mads.mads_lock);
	more = soft_mads_end_some(slots, end, &index);
	lock_acquire(&soft_mads.mads_lock);
	/* else it was pushed again, for all of them */
	if (soft_mads.deaths == deaths) {
		soft_mads.place = index;
		if (more)
			work_push(w);
		else
			memset(soft_mads.died, 0, sizeof(soft_mads.died));
	}
	lock_release(&soft_mads.mads_lock);
}

void soft_mads_died(const u64 slots[NODE_SLOTS / 64], soft_mads_end end)
{
	bool used;

	lock_acquire(&soft_mads.mads_lock);
	/* else there are no connections, and slots that wait may get other owners */
	used = soft_mads.ready && work_queue_is_used(&soft_mads.queue);
	for (u32 i = 0; used && i < NODE_SLOTS / 64; i++)
		soft_mads.died[i] |= slots[i];
	soft_mads.end = end;
	soft_mads.place = 0;
	soft_mads.deaths++;
	if (used)
		work_push(&soft_mads.mourn);
	lock_release(&soft_mads.mads_lock);
}

/* ---- the queue ------------------------------------------------------------------------------- */

static void soft_mads_init_works(void) REQUIRES(soft_mads.mads_lock)
{
	work_init(&soft_mads.offer, &soft_mads.queue, soft_mads_offer);
	work_init(&soft_mads.mourn, &soft_mads.queue, soft_mads_mourn);
	memset(soft_mads.died, 0, sizeof(soft_mads.died));
}

struct work_queue *soft_mads_queue(void)
{
	lock_acquire(&soft_mads.mads_lock);
	if (!soft_mads.ready) {
		work_queue_init(&soft_mads.queue, "anyverbs/mad", false);
		soft_mads_init_works();
	}
	soft_mads.ready = true;
	lock_release(&soft_mads.mads_lock);
	return &soft_mads.queue;
}

struct soft_mads_mark {
	struct work work GUARDS_ITSELF;
	bool reached ATOMIC_ONLY;
};

static void soft_mads_mark_reached(struct work *w)
{
	struct soft_mads_mark *mark = container_of(w, struct soft_mads_mark, work);

	__atomic_store_n(&mark->reached, true, __ATOMIC_RELEASE);
}

/* A process that ends at once has posted MADs that its peers wait for (DREP). They get a moment to
 * leave. */
__attribute__((destructor)) static void soft_mads_flush(void)
{
	static struct soft_mads_mark mark; /* may be reached after this has returned */
	bool used;

	lock_acquire(&soft_mads.mads_lock);
	used = soft_mads.ready && work_queue_is_used(&soft_mads.queue);
	lock_release(&soft_mads.mads_lock);
	if (!used)
		return;
	work_init(&mark.work, &soft_mads.queue, soft_mads_mark_reached);
	work_push(&mark.work);
	/* pairs with the store in soft_mads_mark_reached */
	for (int i = 0; i < MADS_EXIT_LOOKS && !__atomic_load_n(&mark.reached, __ATOMIC_ACQUIRE);
	     i++)
		clock_sleep_ns(MADS_PAUSE_US * NS_PER_US);
}

/* MADs under way are the parent's. */
static void soft_mads_drop_in_child(void) NO_THREAD_SAFETY
{
	if (soft_mads.ready) {
		work_queue_drop_in_child(&soft_mads.queue);
		soft_mads_init_works();
	}
}
FORK_TAKES(FORK_SOFT_MADS, &soft_mads.mads_lock, .child = soft_mads_drop_in_child);
