/* rdma_test.c: ids of the RDMA CM as a kernel consumer has them: multicast groups.
 * In:    -    Out: -    Runs: the test's thread, the RDMA CM's
 */
#include "rig.h"

#include <arpa/inet.h>
#include <rdma/rdma_cm_ib.h>

enum { BYTES = 100, EVENTS = 32 };

/* What the handler does with an event, and what it has seen. */
static struct seen {
	int events[EVENTS]; /* by type */
	struct rdma_cm_event last;
	bool leaves;  /* the group of the event */
	bool refuses; /* the id: returns non-zero */
} seen;

static struct sockaddr *address(const char *text)
{
	static struct sockaddr_in sin;

	sin = (struct sockaddr_in){ .sin_family = AF_INET };
	assert_int_equal(inet_pton(AF_INET, text, &sin.sin_addr), 1);
	return (struct sockaddr *)&sin;
}

static int on_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	bool refuses = seen.refuses;

	seen.last = *event;
	if (seen.leaves)
		rdma_leave_multicast(id, address("239.77.3.1"));
	count_add(&seen.events[event->event]);
	return refuses;
}

/* The device's first IPv4 address: one of the loopback network that it has not binds none. */
static struct sockaddr *own_address(void)
{
	static const u8 mapped[12] = { [10] = 0xff, [11] = 0xff };
	static struct sockaddr_in sin;
	union ib_gid gid;
	int index = 0;

	do {
		assert_int_equal(ib_query_gid(rig.dev, 1, index++, &gid), 0);
	} while (memcmp(gid.raw, mapped, sizeof(mapped)) != 0);
	sin = (struct sockaddr_in){ .sin_family = AF_INET };
	memcpy(&sin.sin_addr, gid.raw + 12, sizeof(sin.sin_addr));
	return (struct sockaddr *)&sin;
}

static struct rdma_cm_id *bound(enum ib_qp_type type)
{
	struct rdma_cm_id *id;

	memset(&seen, 0, sizeof(seen));
	id = rig_ok(rdma_create_id(on_event, NULL, type == IB_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP,
				   type));
	assert_int_equal(rdma_bind_addr(id, own_address()), 0);
	return id;
}

static int join(struct rdma_cm_id *id, const char *group)
{
	return rdma_join_multicast(id, address(group), IB_SA_FULL_MEMBER, &seen);
}

static void join_and_wait(struct rdma_cm_id *id, const char *group)
{
	int before = count_get(&seen.events[RDMA_CM_EVENT_MULTICAST_JOIN]);

	assert_int_equal(join(id, group), 0);
	assert_true(rig_await(&seen.events[RDMA_CM_EVENT_MULTICAST_JOIN], before + 1));
}

/* The event's address vector leads to the queue pairs that are attached to its group. */
static void rdma_join_multicast__says_the_way_to_the_group(void **state)
{
	struct rdma_cm_id *id = bound(IB_QPT_UD);
	struct ib_cq *cq = rig_cq(16);
	struct ib_qp *qp = rig_qp(IB_QPT_UD, cq, cq, NULL);
	struct ib_wc wc[2];
	struct ib_ah *ah;

	join_and_wait(id, "239.77.3.1");
	assert_int_equal(seen.last.status, 0);
	assert_ptr_equal(seen.last.param.ud.private_data, &seen);
	assert_int_equal(seen.last.param.ud.qp_num, IB_MULTICAST_QPN);
	assert_int_equal(seen.last.param.ud.qkey, RDMA_UDP_QKEY);
	rig_connect(qp, &rig.gid, 0);
	assert_int_equal(ib_attach_mcast(qp, &seen.last.param.ud.ah_attr.grh.dgid, 0), 0);
	ah = rig_ok(ib_create_ah(rig.pd, &seen.last.param.ud.ah_attr));
	rig_recv(qp, 1, RIG_PAGE, 2 * BYTES);
	rig_datagram(qp, ah, IB_MULTICAST_QPN, 0, BYTES);
	assert_int_equal(rig_poll(cq, 2, wc, RIG_WAIT_MS), 2);
	assert_int_equal(wc[0].status | wc[1].status, IB_WC_SUCCESS);
	assert_int_equal(ib_detach_mcast(qp, &seen.last.param.ud.ah_attr.grh.dgid, 0), 0);
	assert_int_equal(ib_destroy_ah(ah), 0);
	assert_int_equal(ib_destroy_qp(qp), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
	rdma_destroy_id(id);
}

static void rdma_join_multicast__refuses_what_it_cannot_join(void **state)
{
	struct ib_cq *cq = rig_cq(4);
	struct ib_qp_init_attr init = rig_qp_init(IB_QPT_UD, cq, cq, NULL);
	struct rdma_cm_id *id = bound(IB_QPT_RC);

	assert_int_equal(join(id, "239.77.3.1"), -EINVAL);
	rdma_destroy_id(id);
	id = bound(IB_QPT_UD);
	assert_int_equal(join(id, "198.51.100.7"), -EINVAL);
	assert_int_equal(rdma_join_multicast(id, address("239.77.3.1"), 0, NULL), -EINVAL);
	assert_int_equal(rdma_create_qp(id, rig.pd, &init), 0);
	assert_int_equal(join(id, "239.77.3.1"), -EINVAL);
	rdma_destroy_qp(id);
	join_and_wait(id, "239.77.3.1");
	rdma_destroy_id(id);
	assert_int_equal(ib_destroy_cq(cq), 0);
}

/* After it returns nothing is told. */
static void rdma_leave_multicast__while_the_join_is_under_way(void **state)
{
	struct rdma_cm_id *id = bound(IB_QPT_UD);
	int told;

	for (int i = 0; i < 200; i++) {
		assert_int_equal(join(id, "239.77.3.1"), 0);
		rdma_leave_multicast(id, address("239.77.3.1"));
		told = count_get(&seen.events[RDMA_CM_EVENT_MULTICAST_JOIN]);
		if (i % 50 == 0)
			rig_sleep_ms(RIG_QUIET_MS);
		assert_int_equal(count_get(&seen.events[RDMA_CM_EVENT_MULTICAST_JOIN]), told);
	}
	rdma_leave_multicast(id, address("239.77.3.1"));
	rdma_destroy_id(id);
}

static void rdma_leave_multicast__from_the_handler_of_its_event(void **state)
{
	struct rdma_cm_id *id = bound(IB_QPT_UD);

	seen.leaves = true;
	for (int i = 0; i < 20; i++)
		join_and_wait(id, "239.77.3.1");
	rdma_destroy_id(id);
}

static void rdma_destroy_id__with_groups_joined_and_under_way(void **state)
{
	struct rdma_cm_id *id;
	int told;

	for (int i = 0; i < 100; i++) {
		id = bound(IB_QPT_UD);
		join_and_wait(id, "239.77.3.1");
		assert_int_equal(join(id, "239.77.3.2"), 0);
		assert_int_equal(join(id, "239.77.3.2"), 0);
		rdma_destroy_id(id);
		told = count_get(&seen.events[RDMA_CM_EVENT_MULTICAST_JOIN]);
		if (i % 25 == 0)
			rig_sleep_ms(RIG_QUIET_MS);
		assert_int_equal(count_get(&seen.events[RDMA_CM_EVENT_MULTICAST_JOIN]), told);
	}
}

/* A handler that returns non-zero ends the id, and with it the groups that nobody was told of. */
static void rdma_join_multicast__ends_the_id_that_refuses(void **state)
{
	struct rdma_cm_id *id = bound(IB_QPT_UD);

	seen.refuses = true;
	assert_int_equal(join(id, "239.77.3.1"), 0);
	assert_true(rig_await(&seen.events[RDMA_CM_EVENT_MULTICAST_JOIN], 1));
	rig_sleep_ms(RIG_QUIET_MS);
	assert_int_equal(count_get(&seen.events[RDMA_CM_EVENT_MULTICAST_JOIN]), 1);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(rdma_join_multicast__says_the_way_to_the_group),
		cmocka_unit_test(rdma_join_multicast__refuses_what_it_cannot_join),
		cmocka_unit_test(rdma_leave_multicast__while_the_join_is_under_way),
		cmocka_unit_test(rdma_leave_multicast__from_the_handler_of_its_event),
		cmocka_unit_test(rdma_destroy_id__with_groups_joined_and_under_way),
		cmocka_unit_test(rdma_join_multicast__ends_the_id_that_refuses),
	};

	return rig_run(tests, sizeof(tests) / sizeof(tests[0]), NULL);
}
