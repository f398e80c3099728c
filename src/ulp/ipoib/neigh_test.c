/* neigh_test.c: neighbours and what waits for them, where a stranger claims as many addresses as he
 * likes: bounds of waiting packets, who gives way in a full table, of whom the stack is told.
 *
 * The rooms beside neigh.c and wait.c are played by this file: frames that would leave are counted.
 */
#include <stdlib.h>
#include <string.h>

#include "ulp/ipoib/test_support/bed.h"

static struct ipoib *ip;
static u32 drops[IPOIB_DROPS], posts, told, untold, refusals;
static struct ipoib_hw told_hw; /* the latest */
static bool no_path; /* the path that a neighbour asks for does not come */

/* ---- the rooms beside ------------------------------------------------------------------------ */

void ipoib_kick(struct ipoib *i)
{
	(void)i;
}

void ipoib_kick_at(struct ipoib *i, u64 ns)
{
	(void)i;
	(void)ns;
}

void ipoib_ring_drop(struct ipoib *i, struct ipoib_buffer *b, enum ipoib_drop why)
{
	(void)i;
	drops[why]++;
	free(b);
}

void ipoib_ring_post(struct ipoib *i, struct ipoib_buffer *b, struct ib_ah *ah, u32 qpn)
{
	(void)i;
	(void)ah;
	(void)qpn;
	posts++;
	free(b);
}

void ipoib_path_ask(struct ipoib *i, struct ipoib_neigh *n)
{
	if (no_path)
		return;
	n->ah = ib_create_ah(NULL, NULL);
	ipoib_neigh_push(i, n);
}

void ipoib_speak_ask(struct ipoib *i, struct ipoib_neigh *n, bool alone)
{
	(void)i;
	(void)n;
	(void)alone;
}

u32 ipoib_frame_refuse(const u8 *packet, u32 size, u8 out[REFUSAL_BYTES])
{
	(void)packet;
	(void)size;
	out[0] = 0;
	return 1;
}

static void test_refused(void *arg, const void *packet, u32 size)
{
	(void)arg;
	(void)packet;
	(void)size;
	refusals++;
}

static void test_told(void *arg, const u8 addr[16], const struct ipoib_hw *hw)
{
	(void)arg;
	(void)addr;
	if (hw != NULL)
		told_hw = *hw;
	told += hw != NULL;
	untold += hw == NULL;
}

/* ---- the bed --------------------------------------------------------------------------------- */

static int bed_open(void **state) NO_THREAD_SAFETY
{
	static const struct ipoib_ops ops = { .neighbour = test_told,
					      .receive = test_refused };

	(void)state;
	ip = bed_create();
	ip->ops = &ops;
	ipoib_wait_init(&ip->refused);
	memset(drops, 0, sizeof(drops));
	posts = told = untold = refusals = 0;
	no_path = false;
	return 0;
}

static int bed_close(void **state)
{
	(void)state;
	lock_acquire(&ip->lock);
	ipoib_neigh_end(ip);
	ipoib_wait_drop(ip, &ip->refused, IPOIB_DROP_NEIGHBOUR);
	assert_int_equal(ip->waiting_count, 0);
	assert_int_equal(ip->neigh_count, 0);
	lock_release(&ip->lock);
	bed_free(ip);
	return 0;
}

static const u8 *test_ip(u32 number)
{
	static u8 addr[16];

	memset(addr, 0, 16);
	addr[10] = addr[11] = 0xff;
	addr[12] = 10;
	addr[13] = (u8)(number >> 16);
	addr[14] = (u8)(number >> 8);
	addr[15] = (u8)number;
	return addr;
}

static void test_send(u32 to)
{
	struct ipoib_buffer *b = malloc(sizeof(*b));

	assert_non_null(b);
	b->size = IPOIB_HEAD + 20;
	lock_acquire(&ip->lock);
	ipoib_neigh_send(ip, test_ip(to), b);
	lock_release(&ip->lock);
}

static bool test_learn_at(u32 from, u8 qpn, bool confirmed)
{
	struct ipoib_hw hw = { { [1] = qpn, [19] = (u8)from } };
	bool kept;

	bed_now_ns++; /* one after the other: the oldest is known */
	lock_acquire(&ip->lock);
	kept = ipoib_neigh_learn(ip, test_ip(from), &hw, true, confirmed) != NULL;
	lock_release(&ip->lock);
	return kept;
}

static bool test_learn(u32 from, bool confirmed)
{
	return test_learn_at(from, 1, confirmed);
}

static bool test_knows(u32 who)
{
	struct ipoib_neigh *n;
	bool known;

	lock_acquire(&ip->lock);
	n = ipoib_neigh_find(ip, test_ip(who));
	known = n != NULL && n->known;
	lock_release(&ip->lock);
	return known;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void wait__is_bounded_and_the_oldest_gives_way(void **state) NO_THREAD_SAFETY
{
	(void)state;
	for (u32 i = 0; i < IPOIB_WAITING + 5; i++)
		test_send(1);
	assert_int_equal(ip->waiting_count, IPOIB_WAITING);
	assert_int_equal(drops[IPOIB_DROP_ROOM], 5);
	for (u32 i = 0; i < 1000; i++)
		test_send(2 + i);
	assert_int_equal(ip->waiting_count, IPOIB_WAITING_ALL);
	assert_int_equal(drops[IPOIB_DROP_ROOM], 5 + IPOIB_WAITING + 1000 - IPOIB_WAITING_ALL);
	test_send(5000);
	assert_true(test_learn(5000, true));
	assert_int_equal(posts, 1);
	assert_true(test_learn(1, true)); /* its packets have given way */
	assert_int_equal(posts, 1);
}

/* Each way out of a queue gives its places back: a neighbour of long life never runs out of
 * them. */

static void fill(u32 to)
{
	for (u32 i = 0; i < IPOIB_WAITING; i++)
		test_send(to);
}

static u32 test_waits(u32 to)
{
	struct ipoib_neigh *n;
	u32 count;

	lock_acquire(&ip->lock);
	n = ipoib_neigh_find(ip, test_ip(to));
	count = n == NULL ? 0 : n->waiting.count;
	count += ip->waiting_count + ip->refused.count;
	lock_release(&ip->lock);
	return count;
}

static void wait_delivered(u32 to)
{
	fill(to);
	assert_true(test_learn(to, true));
	assert_int_equal(test_waits(to), 0);
	lock_acquire(&ip->lock);
	ipoib_neigh_end(ip);
	lock_release(&ip->lock);
}

static void wait_dropped(u32 to)
{
	struct ipoib_neigh *n;

	fill(to);
	lock_acquire(&ip->lock);
	n = ipoib_neigh_find(ip, test_ip(to));
	assert_non_null(n);
	ipoib_wait_drop(ip, &n->waiting, IPOIB_DROP_LINK);
	lock_release(&ip->lock);
}

/* It does not answer, or its path does not come. */
static void wait_refused(u32 to)
{
	fill(to);
	for (u32 i = 0; i <= IPOIB_ASKS; i++) {
		bed_now_ns += IPOIB_AGAIN_NS;
		lock_acquire(&ip->lock);
		ipoib_neigh_tick(ip, bed_now_ns);
		lock_release(&ip->lock);
	}
	ipoib_neigh_refuse(ip);
}

static void wait_until_there_is_a_path(u32 to)
{
	struct ipoib_neigh *n;

	no_path = true;
	fill(to);
	assert_true(test_learn(to, true));
	no_path = false;
	lock_acquire(&ip->lock);
	n = ipoib_neigh_find(ip, test_ip(to));
	assert_non_null(n);
	ipoib_neigh_push(ip, n);
	lock_release(&ip->lock);
	assert_int_equal(test_waits(to), 0);
	lock_acquire(&ip->lock);
	ipoib_neigh_end(ip);
	lock_release(&ip->lock);
}

static void wait__gives_its_places_back(void **state) NO_THREAD_SAFETY
{
	static const struct {
		void (*pass)(u32 to);
		u32 *counter;
	} ways[] = {
		{ wait_dropped, &drops[IPOIB_DROP_LINK] },
		{ wait_refused, &refusals },
		{ wait_until_there_is_a_path, &posts },
		{ wait_delivered, &posts },
	};

	(void)state;
	for (u32 i = 0; i < ARRAY_LEN(ways); i++) {
		for (u32 k = 0; k < 2 * IPOIB_WAITING_ALL / IPOIB_WAITING; k++) {
			u32 before = *ways[i].counter;

			ways[i].pass(7);
			assert_int_equal(*ways[i].counter, before + IPOIB_WAITING);
			assert_int_equal(test_waits(7), 0);
		}
	}
	assert_int_equal(drops[IPOIB_DROP_ROOM], 0);
}

static void table__is_full_of_who_only_asked(void **state) NO_THREAD_SAFETY
{
	(void)state;
	assert_true(test_learn(1, true));
	ipoib_neigh_tell(ip);
	for (u32 i = 0; i < 3 * IPOIB_NEIGHBOURS; i++)
		assert_true(test_learn(10 + i, false));
	ipoib_neigh_tell(ip);
	assert_int_equal(told, 1); /* of who has answered */
	assert_int_equal(ip->neigh_count, IPOIB_NEIGHBOURS);
	assert_true(test_knows(1));
	assert_false(test_knows(10));
	test_send(2); /* a new one finds room */
	assert_true(test_learn(2, true));
	assert_int_equal(posts, 1);
}

static void table__is_full_of_who_answered(void **state) NO_THREAD_SAFETY
{
	(void)state;
	for (u32 i = 0; i < IPOIB_NEIGHBOURS; i++)
		assert_true(test_learn(i, true));
	ipoib_neigh_tell(ip);
	assert_int_equal(told, IPOIB_NEIGHBOURS);
	assert_false(test_learn(5000, true)); /* the oldest is told to be forgotten first */
	ipoib_neigh_tell(ip);
	assert_int_equal(untold, 1);
	assert_true(test_learn(5000, true));
	ipoib_neigh_tell(ip);
	assert_int_equal(told, IPOIB_NEIGHBOURS + 1);
	assert_int_equal(ip->neigh_count, IPOIB_NEIGHBOURS);
}

/* What it says again is no news; another queue pair of the same port is. */
static void tell__of_a_new_queue_pair(void **state) NO_THREAD_SAFETY
{
	(void)state;
	for (u8 qpn = 1; qpn <= 3; qpn++) {
		for (u32 i = 0; i < 2; i++) {
			assert_true(test_learn_at(1, qpn, true));
			ipoib_neigh_tell(ip);
		}
		assert_int_equal(told, qpn);
		assert_int_equal(told_hw.raw[1], qpn);
	}
	assert_int_equal(untold, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(wait__is_bounded_and_the_oldest_gives_way,
						bed_open, bed_close),
		cmocka_unit_test_setup_teardown(wait__gives_its_places_back, bed_open, bed_close),
		cmocka_unit_test_setup_teardown(table__is_full_of_who_only_asked, bed_open,
						bed_close),
		cmocka_unit_test_setup_teardown(table__is_full_of_who_answered, bed_open,
						bed_close),
		cmocka_unit_test_setup_teardown(tell__of_a_new_queue_pair, bed_open, bed_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
