/* atomic_test.c: atomics, bits, barriers and reference counts, by one thread and by several. */
#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/kref.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

enum { THREADS = 4, ROUNDS = 5000 };

static void test_run(void *(*run)(void *), void *data)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run, data), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

/* ---- one thread ------------------------------------------------------------------------------ */

static void atomic__arithmetic(void **state)
{
	atomic_t v = ATOMIC_INIT(1);

	atomic_inc(&v);
	atomic_add(5, &v);
	atomic_sub(2, &v);
	atomic_dec(&v);
	assert_int_equal(atomic_read(&v), 4);
	assert_int_equal(atomic_add_return(2, &v), 6);
	assert_int_equal(atomic_sub_return(1, &v), 5);
	assert_int_equal(atomic_inc_return(&v), 6);
	assert_int_equal(atomic_dec_return(&v), 5);
	assert_int_equal(atomic_fetch_add(3, &v), 5);
	assert_int_equal(atomic_fetch_sub(3, &v), 8);
	assert_false(atomic_sub_and_test(4, &v));
	assert_true(atomic_dec_and_test(&v));
	assert_true(atomic_add_negative(-1, &v));
	assert_true(atomic_inc_and_test(&v));
	atomic_set(&v, 6);
	atomic_or(1, &v);
	atomic_and(3, &v);
	assert_int_equal(atomic_read_acquire(&v), 3);
	atomic_set_release(&v, 0);
	assert_int_equal(atomic_read(&v), 0);
}

static void atomic__conditional(void **state)
{
	atomic_t v = ATOMIC_INIT(1);
	int old = 5;

	assert_int_equal(atomic_cmpxchg(&v, 1, 2), 1);
	assert_int_equal(atomic_cmpxchg(&v, 1, 3), 2);
	assert_false(atomic_try_cmpxchg(&v, &old, 9));
	assert_int_equal(old, 2);
	assert_true(atomic_try_cmpxchg(&v, &old, 1));
	assert_true(atomic_add_unless(&v, 1, 5));
	assert_false(atomic_add_unless(&v, 1, 2));
	assert_int_equal(atomic_dec_if_positive(&v), 1);
	assert_int_equal(atomic_dec_if_positive(&v), 0);
	assert_int_equal(atomic_dec_if_positive(&v), -1);
	assert_int_equal(atomic_read(&v), 0);
	assert_false(atomic_inc_not_zero(&v));
	assert_int_equal(atomic_xchg(&v, 7), 0);
	assert_int_equal(xchg(&old, 4), 2);
	assert_int_equal(cmpxchg(&old, 4, 5), 4);
	assert_int_equal(cmpxchg(&old, 4, 6), 5);
}

static void atomic64__is_wide(void **state)
{
	atomic64_t v = ATOMIC64_INIT(1L << 40);
	atomic_long_t l = ATOMIC_LONG_INIT(-1);

	assert_int_equal(atomic64_add_return(1, &v), (1L << 40) + 1);
	assert_true(atomic_long_inc_and_test(&l));
}

static void bits__set_and_found(void **state)
{
	DECLARE_BITMAP(bits, 130) = { 0 };
	unsigned long bit, sum = 0;

	set_bit(3, bits);
	__set_bit(129, bits);
	assert_true(test_bit(129, bits) && !test_bit(128, bits));
	assert_true(test_and_set_bit(3, bits));
	assert_false(test_and_set_bit_lock(64, bits));
	assert_int_equal(find_first_bit(bits, 130), 3);
	assert_int_equal(find_next_bit(bits, 130, 65), 129);
	assert_int_equal(find_next_bit(bits, 129, 65), 129);
	assert_int_equal(find_next_zero_bit(bits, 130, 3), 4);
	for_each_set_bit(bit, bits, 130)
		sum += bit;
	assert_int_equal(sum, 3 + 64 + 129);
	assert_true(test_and_clear_bit(129, bits));
	clear_bit_unlock(64, bits);
	__clear_bit(3, bits);
	change_bit(0, bits);
	assert_int_equal(find_first_zero_bit(bits, 130), 1);
	clear_bit(0, bits);
	assert_int_equal(find_first_bit(bits, 130), 130);
}

static void refcount__saturates_where_it_would_go_wrong(void **state)
{
	refcount_t r = REFCOUNT_INIT(2);
	int real = dup(STDERR_FILENO);

	refcount_inc(&r);
	refcount_dec(&r);
	assert_int_equal(refcount_read(&r), 2);
	assert_false(refcount_sub_and_test(1, &r));
	assert_true(refcount_dec_and_test(&r));
	assert_false(refcount_inc_not_zero(&r));
	close(STDERR_FILENO); /* the warning */
	refcount_inc(&r);
	dup2(real, STDERR_FILENO);
	close(real);
	assert_int_equal(refcount_read(&r), (unsigned int)REFCOUNT_SATURATED);
	assert_false(refcount_dec_and_test(&r));
}

struct object {
	struct kref ref;
	int released;
	spinlock_t lock;
	struct mutex mutex;
};

static void object_release(struct kref *ref)
{
	container_of(ref, struct object, ref)->released++;
}

static void object_release_locked(struct kref *ref)
{
	struct object *o = container_of(ref, struct object, ref);

	o->released += spin_is_locked(&o->lock);
	spin_unlock(&o->lock);
}

static void object_release_mutex(struct kref *ref)
{
	struct object *o = container_of(ref, struct object, ref);

	o->released += mutex_is_locked(&o->mutex);
	mutex_unlock(&o->mutex);
}

static void kref__releases_once(void **state)
{
	struct object o = { .ref = KREF_INIT(1) };

	spin_lock_init(&o.lock);
	mutex_init(&o.mutex);
	kref_get(&o.ref);
	assert_int_equal(kref_read(&o.ref), 2);
	assert_int_equal(kref_put(&o.ref, object_release), 0);
	assert_int_equal(kref_put(&o.ref, object_release), 1);
	assert_false(kref_get_unless_zero(&o.ref));
	kref_init(&o.ref);
	assert_true(kref_get_unless_zero(&o.ref));
	assert_int_equal(kref_put_lock(&o.ref, object_release_locked, &o.lock), 0);
	assert_int_equal(kref_put_lock(&o.ref, object_release_locked, &o.lock), 1);
	kref_init(&o.ref);
	assert_int_equal(kref_put_mutex(&o.ref, object_release_mutex, &o.mutex), 1);
	assert_int_equal(o.released, 3);
	assert_false(spin_is_locked(&o.lock) || mutex_is_locked(&o.mutex));
}

/* ---- several --------------------------------------------------------------------------------- */

static atomic_t test_sum;
static unsigned long test_bits[1];

static void *test_count(void *data)
{
	for (int i = 0; i < ROUNDS; i++) {
		atomic_add(3, &test_sum);
		atomic_dec(&test_sum);
		atomic_add_unless(&test_sum, -2, 0);
		change_bit(5, test_bits);
	}
	return NULL;
}

static void atomic__loses_nothing(void **state)
{
	test_run(test_count, NULL);
	assert_int_equal(atomic_read(&test_sum), 0);
	assert_int_equal(test_bits[0], 0);
}

/* Of two threads that store and then look, one sees the other. */
enum { LOOKS = 500 };

static int test_flag[2];
static bool test_saw[2][LOOKS];
static atomic_t test_turn; /* two per round */

static void *test_store_and_look(void *data)
{
	int me = *(int *)data;

	for (int round = 0; round < LOOKS; round++) {
		while (atomic_read_acquire(&test_turn) / 2 != round)
			sched_yield();
		if (round % 2) {
			smp_store_mb(test_flag[me], round + 1);
		} else {
			WRITE_ONCE(test_flag[me], round + 1);
			smp_mb();
		}
		test_saw[me][round] = READ_ONCE(test_flag[!me]) == round + 1;
		atomic_inc_return(&test_turn);
	}
	return NULL;
}

static void smp_mb__orders_stores_and_loads(void **state)
{
	int me[2] = { 0, 1 };
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		assert_int_equal(
			pthread_create(&threads[i], NULL, test_store_and_look, &me[i]), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < LOOKS; i++)
		assert_true(test_saw[0][i] || test_saw[1][i]);
}

/* What is written before smp_wmb is there for who has seen what is written behind it. */
static int test_message, test_is_there;

static void *test_publish(void *data)
{
	WRITE_ONCE(test_message, 42);
	smp_wmb();
	WRITE_ONCE(test_is_there, 1);
	return NULL;
}

static void smp_wmb__pairs_with_smp_rmb(void **state)
{
	pthread_t thread;
	int plain = 0;

	assert_int_equal(pthread_create(&thread, NULL, test_publish, NULL), 0);
	while (!READ_ONCE(test_is_there))
		sched_yield();
	smp_rmb();
	assert_int_equal(READ_ONCE(test_message), 42);
	pthread_join(thread, NULL);
	smp_store_release(&plain, 4);
	assert_int_equal(smp_load_acquire(&plain), 4);
}

static void *test_put(void *data)
{
	struct object *o = data;

	for (int i = 0; i < ROUNDS; i++) {
		kref_get(&o->ref);
		kref_put(&o->ref, object_release);
	}
	kref_put(&o->ref, object_release);
	return NULL;
}

static void kref__of_several_threads(void **state)
{
	struct object o = { .ref = KREF_INIT(THREADS) };

	test_run(test_put, &o);
	assert_int_equal(o.released, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(atomic__arithmetic),
		cmocka_unit_test(atomic__conditional),
		cmocka_unit_test(atomic64__is_wide),
		cmocka_unit_test(bits__set_and_found),
		cmocka_unit_test(refcount__saturates_where_it_would_go_wrong),
		cmocka_unit_test(kref__releases_once),
		cmocka_unit_test(atomic__loses_nothing),
		cmocka_unit_test(smp_mb__orders_stores_and_loads),
		cmocka_unit_test(smp_wmb__pairs_with_smp_rmb),
		cmocka_unit_test(kref__of_several_threads),
	};

	return cmocka_run_group_tests_name("atomic", tests, NULL, NULL);
}
