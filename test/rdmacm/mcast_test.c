/* mcast_test.c: multicast groups by librdmacm: what a join says, who receives, leaving.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "cm.h"

enum { GRH = 40, QUIET_MS = 50, WAIT_MS = 5000, DEPTH = 8 };

/* One end: an id with a queue pair of the test's own domain and CQ, and a place for a datagram. */
struct end {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char buffer[128];
};

static struct sockaddr *group4(const char *address)
{
	static struct sockaddr_in sin;

	sin = (struct sockaddr_in){ .sin_family = AF_INET };
	assert_int_equal(inet_pton(AF_INET, address, &sin.sin_addr), 1);
	return (struct sockaddr *)&sin;
}

static struct sockaddr *group6(const char *address)
{
	static struct sockaddr_in6 sin6;

	sin6 = (struct sockaddr_in6){ .sin6_family = AF_INET6 };
	assert_int_equal(inet_pton(AF_INET6, address, &sin6.sin6_addr), 1);
	return (struct sockaddr *)&sin6;
}

static void open_id(struct end *e)
{
	memset(e, 0, sizeof(*e));
	assert_int_equal(rdma_create_id(channel, &e->id, e, RDMA_PS_UDP), 0);
	assert_int_equal(rdma_bind_addr(e->id, address_of("roce0", 0)), 0);
	assert_non_null(e->id->verbs);
}

static void give_buffer(struct end *e)
{
	struct ibv_sge sge = { .addr = (uintptr_t)e->buffer,
			       .length = sizeof(e->buffer),
			       .lkey = e->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(ibv_post_recv(e->id->qp, &wr, &bad), 0);
}

static void open_end(struct end *e)
{
	struct ibv_qp_init_attr init = { .cap = { .max_send_wr = DEPTH,
						  .max_recv_wr = DEPTH,
						  .max_send_sge = 1,
						  .max_recv_sge = 1 },
					 .qp_type = IBV_QPT_UD };

	open_id(e);
	e->pd = ibv_alloc_pd(e->id->verbs);
	assert_non_null(e->pd);
	e->cq = ibv_create_cq(e->id->verbs, 2 * DEPTH, NULL, NULL, 0);
	assert_non_null(e->cq);
	e->mr = ibv_reg_mr(e->pd, e->buffer, sizeof(e->buffer), IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(e->mr);
	init.send_cq = init.recv_cq = e->cq;
	assert_int_equal(rdma_create_qp(e->id, e->pd, &init), 0);
	give_buffer(e);
}

/* The domain can go: the queue pair has really been destroyed, member of a group or not. */
static void close_end(struct end *e)
{
	rdma_destroy_qp(e->id);
	if (e->mr != NULL)
		assert_int_equal(ibv_dereg_mr(e->mr), 0);
	if (e->cq != NULL)
		assert_int_equal(ibv_destroy_cq(e->cq), 0);
	if (e->pd != NULL)
		assert_int_equal(ibv_dealloc_pd(e->pd), 0);
	assert_int_equal(rdma_destroy_id(e->id), 0);
}

/* The event of a join: copied, and acknowledged. */
static struct rdma_ud_param take_join(struct rdma_cm_id *id)
{
	struct rdma_cm_event *event = event_of(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
	struct rdma_ud_param ud = event->param.ud;

	assert_ptr_equal(event->id, id);
	assert_int_equal(event->status, 0);
	assert_int_equal(rdma_ack_cm_event(event), 0);
	return ud;
}

static struct rdma_ud_param join(struct end *e, struct sockaddr *group)
{
	assert_int_equal(rdma_join_multicast(e->id, group, e), 0);
	return take_join(e->id);
}

static struct rdma_ud_param join_to_send(struct end *e, struct sockaddr *group)
{
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
		.addr = group,
	};

	assert_int_equal(rdma_join_multicast_ex(e->id, &attr, e), 0);
	return take_join(e->id);
}

/* ---- datagrams ------------------------------------------------------------------------------- */

static void await(struct end *e, struct ibv_wc *wc)
{
	int n = 0;

	for (int ms = 0; ms < WAIT_MS && n == 0; ms++) {
		n = ibv_poll_cq(e->cq, 1, wc);
		if (n == 0)
			usleep(1000);
	}
	assert_int_equal(n, 1);
	assert_int_equal(wc->status, IBV_WC_SUCCESS);
}

static void send_to(struct end *e, const struct rdma_ud_param *to)
{
	char message[] = "to all";
	struct ibv_ah_attr way = to->ah_attr;
	struct ibv_ah *ah = ibv_create_ah(e->pd, &way);
	struct ibv_sge sge = { .addr = (uintptr_t)message, .length = sizeof(message) };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct ibv_mr *mr = ibv_reg_mr(e->pd, message, sizeof(message), 0);
	struct ibv_wc wc;

	assert_non_null(ah);
	assert_non_null(mr);
	sge.lkey = mr->lkey;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = to->qp_num;
	wr.wr.ud.remote_qkey = to->qkey;
	assert_int_equal(ibv_post_send(e->id->qp, &wr, &bad), 0);
	await(e, &wc);
	assert_int_equal(wc.opcode, IBV_WC_SEND);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

static void expect_datagram(struct end *e)
{
	struct ibv_wc wc;

	await(e, &wc);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, GRH + sizeof("to all"));
	assert_string_equal(e->buffer + GRH, "to all");
	give_buffer(e);
}

static void expect_nothing(struct end *e)
{
	struct ibv_wc wc;

	usleep(QUIET_MS * 1000);
	assert_int_equal(ibv_poll_cq(e->cq, 1, &wc), 0);
}

/* ---- joining --------------------------------------------------------------------------------- */

static void rdma_join_multicast__says_how_the_group_is_reached(void **state)
{
	static const uint8_t mapped[16] = { [10] = 0xff, 0xff, 239, 77, 1, 2 };
	struct rdma_ud_param ud;
	struct end e;

	open_end(&e);
	ud = join(&e, group4("239.77.1.2"));
	assert_ptr_equal(ud.private_data, &e);
	assert_int_equal(ud.qp_num, 0xffffff);
	assert_int_equal(ud.qkey, RDMA_UDP_QKEY);
	assert_int_equal(ud.ah_attr.is_global, 1);
	assert_int_equal(ud.ah_attr.port_num, 1);
	assert_int_equal(ud.ah_attr.grh.hop_limit, 64);
	assert_memory_equal(ud.ah_attr.grh.dgid.raw, mapped, 16);
	assert_int_equal(rdma_leave_multicast(e.id, group4("239.77.1.2")), 0);
	ud = join(&e, group6("ff15::77:3"));
	assert_memory_equal(ud.ah_attr.grh.dgid.raw,
			    &((struct sockaddr_in6 *)group6("ff15::77:3"))->sin6_addr, 16);
	assert_int_equal(rdma_leave_multicast(e.id, group6("ff15::77:3")), 0);
	close_end(&e);
}

static void rdma_join_multicast__sends_with_the_ids_traffic_class(void **state)
{
	struct rdma_ud_param ud;
	uint8_t tos = 0x68;
	struct end e;

	open_end(&e);
	assert_int_equal(rdma_set_option(e.id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1), 0);
	ud = join(&e, group4("239.77.1.2"));
	assert_int_equal(ud.ah_attr.grh.traffic_class, 0x68);
	close_end(&e);
}

/* An address that only the routes lead to a device for. */
static void rdma_join_multicast__after_resolving_the_group(void **state)
{
	struct rdma_ud_param ud;
	struct end e, other;

	open_end(&other);
	open_end(&e);
	assert_int_equal(rdma_resolve_addr(e.id, NULL, group4("239.77.1.9"), 1000), 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED, e.id);
	join(&e, group4("239.77.1.9"));
	ud = join_to_send(&other, group4("239.77.1.9"));
	send_to(&other, &ud);
	expect_datagram(&e);
	close_end(&e);
	close_end(&other);
}

static void rdma_join_multicast__members_receive(void **state)
{
	struct end sender, member[3];
	struct rdma_ud_param ud;

	open_end(&sender);
	for (int i = 0; i < 3; i++) {
		open_end(&member[i]);
		join(&member[i], group4("239.77.1.3"));
	}
	ud = join_to_send(&sender, group4("239.77.1.3"));
	send_to(&sender, &ud);
	for (int i = 0; i < 3; i++)
		expect_datagram(&member[i]);
	expect_nothing(&sender);
	assert_int_equal(rdma_leave_multicast(member[1].id, group4("239.77.1.3")), 0);
	send_to(&sender, &ud);
	expect_datagram(&member[0]);
	expect_datagram(&member[2]);
	expect_nothing(&member[1]);
	for (int i = 0; i < 3; i++)
		close_end(&member[i]);
	close_end(&sender);
}

/* Every group is its own, and each may be left. */
static void rdma_join_multicast__several_groups(void **state)
{
	struct rdma_ud_param first, second;
	struct end sender, member;

	open_end(&sender);
	open_end(&member);
	join(&member, group4("239.77.1.4"));
	join(&member, group4("239.77.1.5"));
	first = join_to_send(&sender, group4("239.77.1.4"));
	second = join_to_send(&sender, group4("239.77.1.5"));
	send_to(&sender, &first);
	expect_datagram(&member);
	assert_int_equal(rdma_leave_multicast(member.id, group4("239.77.1.4")), 0);
	send_to(&sender, &first);
	expect_nothing(&member);
	send_to(&sender, &second);
	expect_datagram(&member);
	close_end(&member);
	close_end(&sender);
}

/* Two memberships are two to leave. */
static void rdma_join_multicast__the_same_group_twice(void **state)
{
	struct end sender, member;
	struct rdma_ud_param ud;

	open_end(&sender);
	open_end(&member);
	join(&member, group4("239.77.1.6"));
	join(&member, group4("239.77.1.6"));
	ud = join_to_send(&sender, group4("239.77.1.6"));
	send_to(&sender, &ud);
	expect_datagram(&member);
	expect_nothing(&member);
	assert_int_equal(rdma_leave_multicast(member.id, group4("239.77.1.6")), 0);
	send_to(&sender, &ud);
	expect_datagram(&member);
	assert_int_equal(rdma_leave_multicast(member.id, group4("239.77.1.6")), 0);
	send_to(&sender, &ud);
	expect_nothing(&member);
	fails(rdma_leave_multicast(member.id, group4("239.77.1.6")), EADDRNOTAVAIL);
	close_end(&member);
	close_end(&sender);
}

/* Without a queue pair of the id the application attaches its own. */
static void rdma_join_multicast__without_a_queue_pair(void **state)
{
	struct end e;

	open_id(&e);
	join(&e, group4("239.77.1.2"));
	assert_int_equal(rdma_leave_multicast(e.id, group4("239.77.1.2")), 0);
	close_end(&e);
}

static void rdma_join_multicast__synchronous(void **state)
{
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP), 0);
	assert_int_equal(rdma_bind_addr(id, address_of("roce0", 0)), 0);
	assert_int_equal(rdma_join_multicast(id, group4("239.77.1.2"), id), 0);
	assert_non_null(id->event);
	assert_int_equal(id->event->event, RDMA_CM_EVENT_MULTICAST_JOIN);
	assert_ptr_equal(id->event->param.ud.private_data, id);
	/* the event that the id keeps must not hold it up */
	assert_int_equal(rdma_leave_multicast(id, group4("239.77.1.2")), 0);
	assert_null(id->event);
	assert_int_equal(rdma_destroy_id(id), 0);
}

/* A queue pair that cannot be attached: here one of a connection. */
static void rdma_join_multicast__tells_what_attaching_says(void **state)
{
	struct rdma_cm_event *event;
	struct ibv_qp_init_attr init = { .cap = { 1, 1, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct ibv_qp *datagrams, *connected;
	struct end e;

	open_end(&e);
	init.send_cq = init.recv_cq = e.cq;
	connected = ibv_create_qp(e.pd, &init);
	assert_non_null(connected);
	datagrams = e.id->qp;
	e.id->qp = connected;
	assert_int_equal(rdma_join_multicast(e.id, group4("239.77.1.2"), &e), 0);
	event = event_of(channel, RDMA_CM_EVENT_MULTICAST_ERROR);
	assert_int_equal(event->status, -1);
	assert_ptr_equal(event->param.ud.private_data, &e);
	assert_int_equal(rdma_ack_cm_event(event), 0);
	e.id->qp = datagrams;
	/* the membership is there all the same */
	assert_int_equal(rdma_leave_multicast(e.id, group4("239.77.1.2")), 0);
	assert_int_equal(ibv_destroy_qp(connected), 0);
	close_end(&e);
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* While the join is under way, or its event waits: nothing is told any more. */
static void rdma_leave_multicast__withdraws_the_event(void **state)
{
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };
	struct end e;

	open_end(&e);
	for (int wait = 0; wait < 2; wait++) {
		assert_int_equal(rdma_join_multicast(e.id, group4("239.77.1.2"), &e), 0);
		if (wait)
			assert_int_equal(poll(&p, 1, EVENT_MS), 1);
		assert_int_equal(rdma_leave_multicast(e.id, group4("239.77.1.2")), 0);
		assert_int_equal(poll(&p, 1, QUIET_MS), 0);
	}
	close_end(&e);
}

/* Of two joins the event of the other one stays. */
static void rdma_leave_multicast__leaves_other_events_alone(void **state)
{
	struct rdma_ud_param ud;
	struct end e;

	open_end(&e);
	assert_int_equal(rdma_join_multicast(e.id, group4("239.77.1.2"), NULL), 0);
	assert_int_equal(rdma_join_multicast(e.id, group4("239.77.1.3"), &e), 0);
	assert_int_equal(rdma_leave_multicast(e.id, group4("239.77.1.2")), 0);
	ud = take_join(e.id);
	assert_ptr_equal(ud.private_data, &e);
	close_end(&e);
}

/* Groups that nobody has left end with the id; a waiting event, too. */
static void rdma_destroy_id__leaves_all_groups(void **state)
{
	struct end sender, member;
	struct rdma_ud_param ud;

	for (int i = 0; i < 20; i++) {
		open_end(&member);
		join(&member, group4("239.77.1.7"));
		join(&member, group6("ff15::77:7"));
		assert_int_equal(rdma_join_multicast(member.id, group4("239.77.1.8"), NULL), 0);
		close_end(&member);
	}
	open_end(&sender);
	ud = join_to_send(&sender, group4("239.77.1.7"));
	send_to(&sender, &ud);
	close_end(&sender);
}

/* Events of groups move with their id. */
static void rdma_migrate_id__takes_joins_along(void **state)
{
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	struct end e;

	open_end(&e);
	assert_int_equal(rdma_join_multicast(e.id, group4("239.77.1.2"), &e), 0);
	assert_int_equal(poll(&p, 1, EVENT_MS), 1);
	assert_int_equal(rdma_migrate_id(e.id, other), 0);
	event = event_of(other, RDMA_CM_EVENT_MULTICAST_JOIN);
	assert_int_equal(rdma_ack_cm_event(event), 0);
	close_end(&e);
	rdma_destroy_event_channel(other);
}

/* ---- errno ----------------------------------------------------------------------------------- */

static void rdma_join_multicast__says_why_it_fails(void **state)
{
	struct rdma_cm_join_mc_attr_ex attr = { .comp_mask = RDMA_CM_JOIN_MC_ATTR_RESERVED };
	struct sockaddr unknown = { .sa_family = AF_UNIX };
	struct rdma_cm_id *id;
	struct end e;

	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP), 0);
	fails(rdma_join_multicast(id, group4("239.77.1.2"), NULL), EINVAL);
	assert_int_equal(rdma_destroy_id(id), 0);
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(id, address_of("roce0", 0)), 0);
	fails(rdma_join_multicast(id, group4("239.77.1.2"), NULL), EINVAL);
	assert_int_equal(rdma_destroy_id(id), 0);
	open_id(&e);
	fails(rdma_join_multicast(e.id, &unknown, NULL), EINVAL);
	fails(rdma_join_multicast(e.id, NULL, NULL), EINVAL);
	fails(rdma_join_multicast(e.id, group4("198.51.100.7"), NULL), EINVAL);
	fails(rdma_join_multicast(e.id, group6("fd00::1"), NULL), EINVAL);
	fails(rdma_leave_multicast(e.id, group4("239.77.1.2")), EADDRNOTAVAIL);
	fails(rdma_leave_multicast(e.id, &unknown), EINVAL);
	fails(rdma_join_multicast_ex(e.id, &attr, NULL), EOPNOTSUPP);
	attr.comp_mask = RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
	fails(rdma_join_multicast_ex(e.id, &attr, NULL), EINVAL);
	attr.comp_mask |= RDMA_CM_JOIN_MC_ATTR_ADDRESS;
	fails(rdma_join_multicast_ex(e.id, &attr, NULL), EINVAL);
	attr.addr = group4("239.77.1.2");
	attr.join_flags = RDMA_MC_JOIN_FLAG_RESERVED;
	fails(rdma_join_multicast_ex(e.id, &attr, NULL), EINVAL);
	close_end(&e);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(rdma_join_multicast__says_how_the_group_is_reached),
		TEST(rdma_join_multicast__sends_with_the_ids_traffic_class),
		TEST(rdma_join_multicast__after_resolving_the_group),
		TEST(rdma_join_multicast__members_receive),
		TEST(rdma_join_multicast__several_groups),
		TEST(rdma_join_multicast__the_same_group_twice),
		TEST(rdma_join_multicast__without_a_queue_pair),
		TEST(rdma_join_multicast__synchronous),
		TEST(rdma_join_multicast__tells_what_attaching_says),
		TEST(rdma_leave_multicast__withdraws_the_event),
		TEST(rdma_leave_multicast__leaves_other_events_alone),
		TEST(rdma_destroy_id__leaves_all_groups),
		TEST(rdma_migrate_id__takes_joins_along),
		TEST(rdma_join_multicast__says_why_it_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
