/* group_test.c: multicast groups come and go: the table of groups is for those that exist.
 *
 * The SA answers each join at once; it, the ring, the queue pair and the stack above are played by
 * this file.
 */
#include <stdlib.h>

#include "ulp/ipoib/test_support/bed.h"

static struct ipoib *ip;
static u32 joins, leaves, posts, drops;

/* ---- the rooms beside ------------------------------------------------------------------------ */

void ipoib_kick(struct ipoib *i)
{
	(void)i;
}

void ipoib_ring_drop(struct ipoib *i, struct ipoib_buffer *b, enum ipoib_drop why)
{
	(void)i;
	(void)why;
	drops++;
	free(b);
}

void ipoib_ring_post(struct ipoib *i, struct ipoib_buffer *b, struct ib_ah *ah, u32 qpn)
{
	(void)i;
	(void)ah;
	assert_int_equal(qpn, IPOIB_QPN_MULTICAST);
	posts++;
	free(b);
}

/* The answer is told by `test_step`: the callback takes the lock. */
struct ib_sa_multicast *
ib_sa_join_multicast(struct ib_sa_client *client, struct ib_device *device, u8 port_num,
		     struct ib_sa_mcmember_rec *rec, ib_sa_comp_mask comp_mask,
		     unsigned int gfp_mask,
		     int (*callback)(int status, struct ib_sa_multicast *multicast), void *context)
{
	struct ib_sa_multicast *m = calloc(1, sizeof(*m));

	(void)client;
	(void)device;
	(void)port_num;
	(void)gfp_mask;
	assert_non_null(m);
	*m = (struct ib_sa_multicast){ *rec, comp_mask, callback, context };
	m->rec.mtu = IB_MTU_2048;
	m->rec.qkey = htobe32(IPOIB_QKEY);
	joins++;
	return m;
}

void ib_sa_free_multicast(struct ib_sa_multicast *multicast)
{
	leaves++;
	free(multicast);
}

int ib_modify_qp(struct ib_qp *qp, struct ib_qp_attr *qp_attr, int qp_attr_mask)
{
	(void)qp;
	(void)qp_attr;
	(void)qp_attr_mask;
	return 0;
}

int ib_attach_mcast(struct ib_qp *qp, union ib_gid *gid, u16 lid)
{
	(void)qp;
	(void)gid;
	(void)lid;
	return 0;
}

int ib_detach_mcast(struct ib_qp *qp, union ib_gid *gid, u16 lid)
{
	(void)qp;
	(void)gid;
	(void)lid;
	return 0;
}

static void test_link(void *arg, bool up, const struct ipoib_hw *own, u32 mtu)
{
	(void)arg;
	(void)own;
	assert_true(up);
	assert_int_equal(mtu, 2048 - IPOIB_HEAD);
}

/* ---- the bed --------------------------------------------------------------------------------- */

/* The member that waits for its answer; NULL: none. */
static struct ib_sa_multicast *test_joining(void)
{
	struct ib_sa_multicast *m = NULL;

	lock_acquire(&ip->lock);
	list_for_each(g, &ip->groups, struct ipoib_group, node)
		if (g->state == GROUP_JOINING)
			m = g->member;
	lock_release(&ip->lock);
	return m;
}

/* Until every group has its answer and has looked at it. */
static void test_step(void)
{
	struct ib_sa_multicast *m;

	(void)ipoib_group_step(ip, bed_now_ns);
	while ((m = test_joining()) != NULL)
		(void)m->callback(0, m);
	(void)ipoib_group_step(ip, bed_now_ns);
}

static int bed_open(void **state) NO_THREAD_SAFETY
{
	static const struct ipoib_ops ops = { .link = test_link };

	(void)state;
	ip = bed_create();
	ip->ops = &ops;
	ip->active = ip->groups_changed = true;
	ip->pkey = 0xffff;
	joins = leaves = posts = drops = 0;
	test_step(); /* the broadcast group, and after it that of all hosts */
	test_step();
	assert_true(ip->link);
	assert_int_equal(joins, 2);
	return 0;
}

static int bed_close(void **state) NO_THREAD_SAFETY
{
	(void)state;
	ipoib_group_end(ip);
	assert_int_equal(leaves, joins);
	assert_int_equal(ip->group_count, 0);
	assert_int_equal(ip->waiting_count, 0);
	bed_free(ip);
	return 0;
}

/* One packet to 239.1.x.y. */
static void test_send(u32 group)
{
	const u8 addr[16] = { [10] = 0xff, 0xff, 239, 1, (u8)(group >> 8), (u8)group };
	struct ipoib_buffer *b = calloc(1, sizeof(*b));

	assert_non_null(b);
	b->size = IPOIB_HEAD + 20;
	lock_acquire(&ip->lock);
	ipoib_group_send(ip, addr, b);
	lock_release(&ip->lock);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Groups that are only sent to end when a minute has passed, and make room for others: an interface
 * may send to any number in its life. */
static void group__makes_room_when_it_ends(void **state) NO_THREAD_SAFETY
{
	enum { AT_ONCE = 100 };
	u32 sent = 0;

	(void)state;
	while (sent < 3 * IPOIB_ALL_GROUPS) {
		for (u32 i = 0; i < AT_ONCE; i++)
			test_send(sent++);
		test_step();
		assert_int_equal(drops, 0);
		assert_int_equal(posts, sent);
		bed_now_ns += 61 * NS_PER_S;
		test_step();
		assert_int_equal(ip->group_count, 2);
	}
}

/* More at once than there is room for: those that exist go on. */
static void group__too_many_at_once(void **state) NO_THREAD_SAFETY
{
	u32 room = IPOIB_ALL_GROUPS - 2;

	(void)state;
	for (u32 i = 0; i < room; i++) {
		test_send(i);
		if (i % IPOIB_WAITING_ALL == 0)
			test_step();
	}
	test_step();
	assert_int_equal(drops, 0);
	test_send(room);
	assert_int_equal(drops, 1);
	test_send(0);
	assert_int_equal(posts, room + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(group__makes_room_when_it_ends, bed_open,
						bed_close),
		cmocka_unit_test_setup_teardown(group__too_many_at_once, bed_open, bed_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
