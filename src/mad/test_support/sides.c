/* sides.c: two ports of the MAD layer with a wire between them, in virtual time.
 * In:    MADs that either port sends    Out: arrivals at the other
 * Runs:  one thread                     Locks: none
 */
#include "mad/test_support/sides.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct side a, b;
struct wire wire;
struct work_queue queue;
u64 now_ns;

/* A MAD on its way. */
struct flight {
	struct work work;
	struct side *to;
	struct ib_rmpp_mad mad;
} OWNED_BY(the test);

static u32 in_flight;
static u64 random_state;
static u64 landing_ns; /* of the last one */

/* Other threads of a test read the time, too. */
static u64 virtual_time(void)
{
	return __atomic_load_n(&now_ns, __ATOMIC_RELAXED);
}

void run_to(u64 ms)
{
	u64 end = ms * NS_PER_MS;

	for (;;) {
		u64 next;

		work_queue_run(&queue, now_ns);
		next = work_queue_next_ns(&queue);
		if (next > end)
			break;
		__atomic_store_n(&now_ns, MAX(now_ns, next), __ATOMIC_RELAXED);
	}
	__atomic_store_n(&now_ns, end, __ATOMIC_RELAXED);
}

void sides_seed(u64 seed)
{
	random_state = seed * 2 + 1;
}

u32 sides_random(u32 below)
{
	random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
	return (u32)((random_state >> 33) % below);
}

u64 tid_of(const struct ib_mad_agent *agent, u32 low)
{
	return (u64)agent->hi_tid << 32 | low;
}

struct ib_mad_reg_req request_for(u8 class, u8 version, u8 method)
{
	struct ib_mad_reg_req r = { .mgmt_class = class, .mgmt_class_version = version };

	r.method_mask[method / 64] = 1ul << method % 64;
	return r;
}

/* ---- the wire -------------------------------------------------------------------------------- */

struct mad_arrival arrive(const struct side *at, const void *mad)
{
	return (struct mad_arrival){ .src_qp = 1,
				     .qkey = IB_QP1_QKEY,
				     .pkey = PARTITION,
				     .has_grh = true,
				     .grh = { .sgid = at->peer->fake->gids[0],
					      .dgid = at->fake->gids[0] },
				     .mad = mad,
				     .length = IB_MGMT_MAD_SIZE };
}

static void wire_deliver(struct side *to, const void *mad)
{
	struct mad_arrival arrival = arrive(to, mad);

	if (to->port != NULL)
		mad_port_receive(to->port, &arrival);
}

static void wire_on_landing(struct work *w)
{
	struct flight *f = container_of(w, struct flight, work);

	in_flight--;
	wire_deliver(f->to, &f->mad);
	free(f);
}

static void wire_launch(struct side *to, const struct ib_rmpp_mad *mad)
{
	u64 delay_us = wire.delay_us + (wire.jitter_us == 0 ? 0 : sides_random(wire.jitter_us));
	struct flight *f;

	if (wire.lose != 0 && sides_random(100) < wire.lose)
		return;
	if (delay_us == 0) {
		wire_deliver(to, mad);
		return;
	}
	if (wire.jitter_us == 0)
		landing_ns = MAX(landing_ns + 1, now_ns + delay_us * NS_PER_US); /* in order */
	else
		landing_ns = now_ns + delay_us * NS_PER_US;
	f = calloc(1, sizeof(*f));
	assert_non_null(f);
	f->to = to;
	f->mad = *mad;
	in_flight++;
	work_init(&f->work, &queue, wire_on_landing);
	work_push_at(&f->work, landing_ns);
}

/* The way is the agent's address handle, or attributes that lead back to the peer. */
static void wire_check(const struct side *from, const struct mad_departure *d)
{
	assert_int_equal(d->remote_qpn, 1);
	assert_int_equal(d->qkey, IB_QP1_QKEY);
	if (d->ah != NULL) {
		assert_true(from->any_ah || d->ah == &from->ah);
		return;
	}
	assert_int_equal(d->pkey_index, 1);
	assert_int_equal(d->attr->ah_flags, IB_AH_GRH);
	assert_int_equal(d->attr->grh.sgid_index, 0);
	assert_int_equal(d->attr->grh.dgid.raw[15], from->peer->fake->gids[0].raw[15]);
}

static int wire_send(void *arg, const struct mad_departure *d)
{
	struct side *from = arg;
	struct ib_rmpp_mad mad;

	memcpy(&mad, d->mad, sizeof(mad));
	if (from->full > 0) {
		from->full--;
		return -EAGAIN;
	}
	from->sent++;
	wire_check(from, d);
	if (from->watch != NULL && !from->watch(from, &mad))
		return 0;
	if (from->lose > 0) {
		from->lose--;
		return 0;
	}
	if (wire.duplicate != 0 && sides_random(100) < wire.duplicate)
		wire_launch(from->peer, &mad);
	wire_launch(from->peer, &mad);
	return 0;
}

static int wire_listen(void *arg, u64 service_id, u64 mask,
		       const struct ib_cm_compare_data *compare, bool on)
{
	struct side *s = arg;

	s->listens += on ? service_id & mask : -(service_id & mask);
	return 0;
}

static int wire_agent(void *arg, const struct ib_mad_reg_req *request, bool on)
{
	struct side *s = arg;

	if (on && s->taken)
		return -EINVAL;
	s->agents += on ? 1 : -1u;
	return 0;
}

static int wire_slot(void *arg)
{
	return arg == &a ? SLOT_A : SLOT_B;
}

static const struct mad_port_ops wire_ops = { .send = wire_send,
					      .listen = wire_listen,
					      .agent = wire_agent,
					      .slot = wire_slot };

/* ---- sides ----------------------------------------------------------------------------------- */

static void side_begin(struct side *s, struct side *peer, u8 gid)
{
	struct mad_port_config config = { .port_num = 1,
					  .qp_type = IB_QPT_GSI,
					  .ops = &wire_ops,
					  .arg = s,
					  .queue = &queue };
	int err;

	memset(s, 0, sizeof(*s));
	s->peer = peer;
	s->fake = fake_create("fake%d");
	s->fake->gids[0].raw[15] = gid;
	assert_int_equal(ib_register_device(&s->fake->ib), 0);
	s->ah.device = &s->fake->ib;
	config.device = &s->fake->ib;
	s->port = mad_port_add(&config, &err);
	assert_non_null(s->port);
	assert_null(mad_port_add(&config, &err));
	assert_int_equal(err, -EEXIST);
}

static void side_end(struct side *s)
{
	if (s->port != NULL)
		mad_port_remove(s->port);
	s->port = NULL;
	ib_unregister_device(&s->fake->ib);
	fake_destroy(s->fake);
}

int sides_setup(void **state)
{
	now_ns = NS_PER_S;
	landing_ns = 0;
	wire = (struct wire){ .lose = 0 };
	sides_seed(1);
	clock_set_source(virtual_time);
	work_queue_init(&queue, "test", true);
	side_begin(&a, &b, 0xa);
	side_begin(&b, &a, 0xb);
	return 0;
}

int sides_teardown(void **state)
{
	while (in_flight != 0)
		run_to(now_ns / NS_PER_MS + 1);
	side_end(&a);
	side_end(&b);
	assert_int_equal(work_queue_next_ns(&queue), TIMER_NEVER);
	timer_set_destroy(&queue.timers);
	clock_set_source(NULL);
	return 0;
}
