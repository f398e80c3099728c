/* mcast_test.c: as many members of multicast groups as the adapter says, and none deaf.
 * In:    -    Out: -    Runs: the test's thread
 */
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BUFFER = 2048 /* of a receive, in the one place where all lie */ };

static struct {
	struct ib_cq *scq, *rcq;
	struct ib_srq *srq;
	struct ib_qp **qp;
	int count;
	bool *seen; /* by the queue pair's place */
} many;

/* The driver under test may be one whose limits are others. */
static struct ib_device_attr limits(void)
{
	struct ib_device_attr a;

	assert_int_equal(ib_query_device(rig.dev, &a), 0);
	return a;
}

/* Datagram queue pairs that receive from one SRQ into one CQ; the buffers of all are one. */
static void many_open(int count)
{
	struct ib_srq_init_attr init = { .attr = { .max_wr = 2 * (u32)count, .max_sge = 1 } };
	struct ib_qp_init_attr qp;

	many.scq = rig_cq(512);
	many.rcq = rig_cq(2 * count);
	many.srq = rig_ok(ib_create_srq(rig.pd, &init));
	many.qp = calloc((size_t)count, sizeof(struct ib_qp *));
	many.seen = calloc((size_t)count, sizeof(bool));
	many.count = count;
	assert_true(many.qp && many.seen);
	qp = rig_qp_init(IB_QPT_UD, many.scq, many.rcq, many.srq);
	qp.cap.max_send_wr = 4;
	for (int i = 0; i < count; i++) {
		qp.qp_context = &many.qp[i];
		many.qp[i] = rig_ok(ib_create_qp(rig.pd, &qp));
		rig_connect(many.qp[i], &rig.gid, 0);
	}
}

static void many_close(void)
{
	for (int i = 0; i < many.count; i++)
		assert_int_equal(ib_destroy_qp(many.qp[i]), 0);
	assert_int_equal(ib_destroy_srq(many.srq), 0);
	assert_int_equal(ib_destroy_cq(many.rcq), 0);
	assert_int_equal(ib_destroy_cq(many.scq), 0);
	free(many.qp);
	free(many.seen);
	memset(&many, 0, sizeof(many));
}

static void many_give_buffers(void)
{
	struct ib_sge sge = rig_sge(RIG_PAGE, BUFFER);
	struct ib_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	for (int i = 0; i < many.count; i++)
		assert_int_equal(ib_post_srq_recv(many.srq, &wr, &bad), 0);
}

/* One datagram has come to each of the first `want`, and to nobody else. */
static void many_expect(int want, u32 length)
{
	struct ib_wc wc;
	int got;

	memset(many.seen, 0, (size_t)many.count);
	for (got = 0; got < want && rig_poll(many.rcq, 1, &wc, RIG_WAIT_MS) == 1; got++) {
		struct ib_qp **place = wc.qp->qp_context;

		assert_int_equal(wc.status, IB_WC_SUCCESS);
		assert_int_equal(wc.byte_len, length + 40);
		assert_true(place - many.qp < want);
		assert_false(many.seen[place - many.qp]);
		many.seen[place - many.qp] = true;
	}
	assert_int_equal(got, want);
	rig_sleep_ms(RIG_QUIET_MS);
	assert_int_equal(ib_peek_cq(many.rcq, 1), 0);
}

static struct ib_ah *way_to(const union ib_gid *group)
{
	struct ib_ah_attr way = rig_way(group);

	return rig_ok(ib_create_ah(rig.pd, &way));
}

/* The sender is one of them, and the last that may attach is one too. */
static void attach_mcast__as_many_queue_pairs_as_it_says(void **state)
{
	int most = limits().max_mcast_qp_attach;
	union ib_gid group = rig_group(60);

	rig_needs(attach_mcast);
	if (rig.plug)
		skip();
	many_open(most + 1);
	for (int i = 0; i < most; i++)
		assert_int_equal(ib_attach_mcast(many.qp[i], &group, 0), 0);
	assert_int_equal(ib_attach_mcast(many.qp[most], &group, 0), -ENOMEM);
	struct ib_ah *ah = way_to(&group);

	for (u32 length = 8; length <= 2000; length += 1992) {
		many_give_buffers();
		rig_datagram(many.qp[0], ah, IB_MULTICAST_QPN, 0, length);
		rig_drain(many.scq, 1);
		many_expect(most, length);
	}
	assert_int_equal(ib_detach_mcast(many.qp[0], &group, 0), 0);
	assert_int_equal(ib_attach_mcast(many.qp[most], &group, 0), 0);
	assert_int_equal(ib_attach_mcast(many.qp[0], &group, 0), -ENOMEM);
	assert_int_equal(ib_detach_mcast(many.qp[most], &group, 0), 0);
	for (int i = 1; i < most; i++)
		assert_int_equal(ib_detach_mcast(many.qp[i], &group, 0), 0);
	assert_int_equal(ib_destroy_ah(ah), 0);
	many_close();
}

/* One of many groups; what differs is not what IPv4 keeps for others. */
static union ib_gid group_of(int i)
{
	union ib_gid group = rig_group((u8)i);

	group.raw[rig_on_wire() ? 13 : 14] = (u8)(100 + (i >> 8));
	return group;
}

/* A group may take a descriptor: how many a device says depends on how many there are. */
static void check_groups(rlim_t descriptors)
{
	struct rlimit r;
	int most;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &r), 0);
	r.rlim_cur = descriptors < r.rlim_max ? descriptors : r.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &r), 0);
	most = limits().max_mcast_grp;
	assert_true(most > 0 && most <= limits().max_total_mcast_qp_attach);
	many_open(1);
	for (int i = 0; i < most; i++) {
		union ib_gid group = group_of(i);

		assert_int_equal(ib_attach_mcast(many.qp[0], &group, 0), 0);
	}
	union ib_gid beyond = group_of(most);

	assert_int_equal(ib_attach_mcast(many.qp[0], &beyond, 0), -ENOMEM);
	for (int i = 0; i < most; i++) {
		union ib_gid group = group_of(i);

		if (i % 512 == 0 || i == most - 1) {
			struct ib_ah *ah = way_to(&group);

			many_give_buffers();
			rig_datagram(many.qp[0], ah, IB_MULTICAST_QPN, 0, 100);
			rig_drain(many.scq, 1);
			many_expect(1, 100);
			assert_int_equal(ib_destroy_ah(ah), 0);
		}
		assert_int_equal(ib_destroy_qp(many.qp[0]), -EBUSY);
		assert_int_equal(ib_detach_mcast(many.qp[0], &group, 0), 0);
	}
	many_close();
}

static void attach_mcast__as_many_groups_as_it_says(void **state)
{
	rig_needs(attach_mcast);
	if (rig.plug)
		skip();
	check_groups(400);
	check_groups(RLIM_INFINITY);
}

static int open_descriptors(void)
{
	int fd = dup(0);

	assert_true(fd >= 0);
	close(fd);
	return fd;
}

/* Who cannot hear the wire is told so, and is not a member by halves: there is one place left, and
 * it stays free. */
static void attach_mcast__without_a_descriptor(void **state)
{
	int most = limits().max_total_mcast_qp_attach;
	union ib_gid crowd = rig_group(61), unheard = rig_group(62), group = rig_group(63);
	struct rlimit r, poor;

	if (!rig_on_wire())
		skip();
	many_open(most);
	for (int i = 1; i < most; i++)
		assert_int_equal(ib_attach_mcast(many.qp[i], &crowd, 0), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &r), 0);
	poor = r;
	poor.rlim_cur = (rlim_t)open_descriptors();
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &poor), 0);
	assert_int_equal(ib_attach_mcast(many.qp[0], &unheard, 0), -ENOMEM);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &r), 0);
	assert_int_equal(ib_detach_mcast(many.qp[0], &unheard, 0), -EINVAL);
	assert_int_equal(ib_attach_mcast(many.qp[0], &group, 0), 0);
	struct ib_ah *ah = way_to(&group);

	many_give_buffers();
	rig_datagram(many.qp[0], ah, IB_MULTICAST_QPN, 0, 100);
	rig_drain(many.scq, 1);
	many_expect(1, 100);
	assert_int_equal(ib_detach_mcast(many.qp[0], &group, 0), 0);
	for (int i = 1; i < most; i++)
		assert_int_equal(ib_detach_mcast(many.qp[i], &crowd, 0), 0);
	assert_int_equal(ib_destroy_ah(ah), 0);
	many_close();
}

/* Ethernet has no LIDs: with another one it is the same group. */
static void attach_mcast__whatever_the_lid(void **state)
{
	rig_needs(attach_mcast);
	union ib_gid group = rig_group(64);

	many_open(1);
	struct ib_ah *ah = way_to(&group);

	assert_int_equal(ib_attach_mcast(many.qp[0], &group, 0), 0);
	assert_int_equal(ib_attach_mcast(many.qp[0], &group, 0xc001), 0);
	many_give_buffers();
	rig_datagram(many.qp[0], ah, IB_MULTICAST_QPN, 0, 100);
	rig_drain(many.scq, 1);
	many_expect(1, 100);
	assert_int_equal(ib_detach_mcast(many.qp[0], &group, 0xc001), 0);
	assert_int_equal(ib_detach_mcast(many.qp[0], &group, 0), -EINVAL);
	assert_int_equal(ib_destroy_ah(ah), 0);
	many_close();
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(attach_mcast__as_many_queue_pairs_as_it_says, rig_setup),
		cmocka_unit_test_setup(attach_mcast__as_many_groups_as_it_says, rig_setup),
		cmocka_unit_test_setup(attach_mcast__without_a_descriptor, rig_setup),
		cmocka_unit_test_setup(attach_mcast__whatever_the_lid, rig_setup),
	};

	return rig_run_tests(tests);
}
