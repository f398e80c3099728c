/* task_test.c: locks, wait queues, completions, kthreads, sleep, and warnings of bad sleep. */
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/time.h>
#include <linux/wait.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROUNDS = 3000 };

/* A kthread that may end by itself, and a reference to its task, which test_stop drops. */
static struct task_struct *test_start(int (*run)(void *), void *data)
{
	struct task_struct *task = kthread_create(run, data, "test");

	assert_false(IS_ERR(task));
	get_task_struct(task);
	wake_up_process(task);
	return task;
}

static int test_stop(struct task_struct *task)
{
	int result = kthread_stop(task);

	put_task_struct(task);
	return result;
}

/* ---- locks ----------------------------------------------------------------------------------- */

static DEFINE_SPINLOCK(test_spin);
static DEFINE_MUTEX(test_mutex);
static DEFINE_RWLOCK(test_rwlock);
static DECLARE_RWSEM(test_rwsem);
static int test_sums[4]; /* each under its lock */

static int locks_count(void *data)
{
	unsigned long flags;

	for (int i = 0; i < ROUNDS; i++) {
		spin_lock_irqsave(&test_spin, flags);
		test_sums[0]++;
		spin_unlock_irqrestore(&test_spin, flags);
		mutex_lock(&test_mutex);
		test_sums[1]++;
		mutex_unlock(&test_mutex);
		write_lock_bh(&test_rwlock);
		test_sums[2]++;
		write_unlock_bh(&test_rwlock);
		down_write(&test_rwsem);
		test_sums[3]++;
		up_write(&test_rwsem);
	}
	return 0;
}

static void locks__exclude(void **state)
{
	struct task_struct *task = test_start(locks_count, NULL);

	locks_count(NULL);
	test_stop(task);
	for (int i = 1; i < 4; i++)
		assert_int_equal(test_sums[i], test_sums[0]);
	/* it may never have run */
	assert_true(test_sums[0] == 2 * ROUNDS || test_sums[0] == ROUNDS);
}

static void spin_lock__all_forms(void **state)
{
	unsigned long flags = 7;
	spinlock_t lock;
	rwlock_t rw;

	spin_lock_init(&lock);
	spin_lock(&lock);
	assert_true(spin_is_locked(&lock) && in_atomic());
	assert_spin_locked(&lock);
	lockdep_assert_held(&lock);
	assert_false(spin_trylock(&lock));
	spin_unlock(&lock);
	assert_false(spin_is_locked(&lock) || in_atomic());
	assert_true(spin_trylock(&lock));
	spin_unlock(&lock);
	spin_lock_irq(&lock);
	spin_unlock_irq(&lock);
	spin_lock_bh(&lock);
	spin_unlock_bh(&lock);
	spin_lock_irqsave(&lock, flags);
	assert_int_equal(flags, 0);
	spin_unlock_irqrestore(&lock, flags);
	assert_true(spin_trylock_irqsave(&lock, flags));
	spin_unlock_irqrestore(&lock, flags);
	rwlock_init(&rw);
	read_lock(&rw);
	read_lock_irqsave(&rw, flags);
	read_unlock_irqrestore(&rw, flags);
	read_unlock(&rw);
	write_lock_irqsave(&rw, flags);
	write_unlock_irqrestore(&rw, flags);
	assert_false(in_atomic());
}

static void mutex__all_forms(void **state)
{
	struct rw_semaphore sem;
	struct mutex mutex;

	mutex_init(&mutex);
	assert_true(mutex_trylock(&mutex));
	assert_false(mutex_trylock(&mutex));
	assert_true(mutex_is_locked(&mutex));
	mutex_unlock(&mutex);
	assert_int_equal(mutex_lock_interruptible(&mutex), 0);
	mutex_unlock(&mutex);
	mutex_lock_nested(&mutex, 1);
	mutex_unlock(&mutex);
	assert_false(mutex_is_locked(&mutex));
	mutex_destroy(&mutex);
	init_rwsem(&sem);
	down_read(&sem);
	down_read(&sem);
	up_read(&sem);
	up_read(&sem);
}

/* ---- kthreads -------------------------------------------------------------------------------- */

static atomic_t test_began;

static int thread_until_stopped(void *data)
{
	int rounds = 0;

	atomic_inc(&test_began);
	set_current_state(TASK_INTERRUPTIBLE);
	while (!kthread_should_stop()) {
		schedule();
		rounds++;
		set_current_state(TASK_INTERRUPTIBLE);
	}
	__set_current_state(TASK_RUNNING);
	return *(int *)data + (rounds > 0 && strcmp(current->comm, "until/7") == 0);
}

static void kthread__runs_until_it_is_stopped(void **state)
{
	int five = 5;
	struct task_struct *task = kthread_run(thread_until_stopped, &five, "until/%d", 7);

	while (!atomic_read(&test_began))
		cond_resched();
	wake_up_process(task);
	assert_int_equal(kthread_stop(task), 6);
	assert_false(kthread_should_stop()); /* of a thread that is no kthread */
}

static void kthread_stop__before_it_has_run(void **state)
{
	struct task_struct *task = kthread_create(thread_until_stopped, NULL, "never");

	assert_int_equal(kthread_stop(task), -EINTR);
}

/* ---- waits ----------------------------------------------------------------------------------- */

static DECLARE_WAIT_QUEUE_HEAD(test_queue);
static atomic_t test_tokens, test_waiting;

static int wait_for_token(void *data)
{
	atomic_inc(&test_waiting);
	wait_event(test_queue, atomic_dec_if_positive(&test_tokens) >= 0);
	return 1;
}

static void wait_event__wakes_each_that_may_go(void **state)
{
	struct task_struct *tasks[4];

	for (int i = 0; i < 4; i++)
		tasks[i] = test_start(wait_for_token, NULL);
	while (atomic_read(&test_waiting) < 4)
		cond_resched();
	for (int i = 0; i < 4; i++) {
		atomic_inc(&test_tokens);
		wake_up(&test_queue);
	}
	for (int i = 0; i < 4; i++)
		assert_int_equal(test_stop(tasks[i]), 1);
}

static atomic_t test_ping;

static int wait_pong(void *data)
{
	for (int i = 0; i < ROUNDS; i++) {
		if (wait_event_interruptible(test_queue, atomic_read(&test_ping) % 2 == 1) != 0)
			return 0;
		atomic_inc_return(&test_ping);
		wake_up_interruptible(&test_queue);
	}
	return 1;
}

static void wait_event__loses_no_wake_up(void **state)
{
	struct task_struct *task = test_start(wait_pong, NULL);

	for (int i = 0; i < ROUNDS; i++) {
		atomic_inc_return(&test_ping);
		wake_up_all(&test_queue);
		assert_int_equal(
			wait_event_killable(test_queue, atomic_read(&test_ping) % 2 == 0), 0);
	}
	assert_int_equal(test_stop(task), 1);
	assert_false(waitqueue_active(&test_queue));
}

static void wait_event_timeout__tells_what_is_left(void **state)
{
	wait_queue_head_t queue;
	unsigned long begin = jiffies;

	init_waitqueue_head(&queue);
	assert_int_equal(wait_event_timeout(queue, false, 20), 0);
	assert_true(time_after_eq(jiffies, begin + 20));
	assert_int_equal(wait_event_timeout(queue, true, 0), 1);
	assert_int_equal(wait_event_timeout(queue, true, HZ), HZ);
	assert_int_equal(wait_event_interruptible_timeout(queue, false, 1), 0);
}

static int wait_interruptibly(void *data)
{
	wait_queue_head_t queue;

	init_waitqueue_head(&queue);
	smp_store_release((struct task_struct **)data, current);
	if (wait_event_interruptible_exclusive(queue, false) != -ERESTARTSYS)
		return 0;
	if (!signal_pending(current) || schedule_timeout_interruptible(HZ * 600) == 0 ||
	    msleep_interruptible(600000) == 0)
		return 0;
	flush_signals(current);
	return !fatal_signal_pending(current);
}

static void send_sig__interrupts_waits(void **state)
{
	struct task_struct *task, *seen = NULL;

	task = test_start(wait_interruptibly, &seen);
	while (!smp_load_acquire(&seen))
		cond_resched();
	assert_ptr_equal(smp_load_acquire(&seen), task);
	assert_int_equal(send_sig(2, task, 1), 0);
	assert_int_equal(test_stop(task), 1);
}

/* By hand, as upper layers do that look at more than one thing. */
static int wait_by_hand(void *data)
{
	DECLARE_WAITQUEUE(kept, current);
	DEFINE_WAIT(entry);

	add_wait_queue(&test_queue, &kept);
	prepare_to_wait_exclusive(&test_queue, &entry, TASK_INTERRUPTIBLE);
	complete(data);
	schedule();
	finish_wait(&test_queue, &entry);
	remove_wait_queue(&test_queue, &kept);
	return 1;
}

static void prepare_to_wait__by_hand(void **state)
{
	DECLARE_COMPLETION_ONSTACK(ready);
	struct task_struct *task = test_start(wait_by_hand, &ready);

	wait_for_completion(&ready);
	assert_true(waitqueue_active(&test_queue));
	wake_up_interruptible_all(&test_queue);
	assert_int_equal(test_stop(task), 1);
	assert_false(waitqueue_active(&test_queue));
	wake_up_nr(&test_queue, 3);
}

/* ---- completions ----------------------------------------------------------------------------- */

static int completion_wait(void *data)
{
	wait_for_completion(data);
	atomic_inc(&test_waiting);
	return 1;
}

static void completion__lets_one_or_all_go(void **state)
{
	struct task_struct *tasks[3];
	struct completion done;

	init_completion(&done);
	atomic_set(&test_waiting, 0);
	for (int i = 0; i < 3; i++)
		tasks[i] = test_start(completion_wait, &done);
	complete(&done);
	while (atomic_read(&test_waiting) < 1)
		cond_resched();
	assert_false(completion_done(&done));
	complete_all(&done);
	while (atomic_read(&test_waiting) < 3)
		cond_resched();
	for (int i = 0; i < 3; i++)
		assert_int_equal(test_stop(tasks[i]), 1);
	assert_true(completion_done(&done) && try_wait_for_completion(&done));
	reinit_completion(&done);
	assert_false(try_wait_for_completion(&done));
	assert_int_equal(wait_for_completion_timeout(&done, 2), 0);
	complete(&done);
	assert_int_equal(wait_for_completion_interruptible(&done), 0);
	complete(&done);
	assert_true(wait_for_completion_interruptible_timeout(&done, HZ) > 0);
}

static int completion_end(void *data)
{
	complete(data);
	return 0;
}

/* A sanitizer says it if complete touches what its waiter has freed. */
static void completion__may_be_freed_behind_the_wait(void **state)
{
	for (int i = 0; i < 200; i++) {
		struct completion *done = kmalloc(sizeof(*done), GFP_KERNEL);

		init_completion(done);
		assert_false(IS_ERR(kthread_run(completion_end, done, "end")));
		wait_for_completion(done);
		kfree(done);
	}
}

/* ---- time and bad sleep ---------------------------------------------------------------------- */

static void jiffies__are_milliseconds(void **state)
{
	unsigned long begin = jiffies, top = ~0UL;
	ktime_t clock = ktime_get();
	struct timeval tv;
	struct timespec64 ts;

	msleep(5);
	usleep_range(1000, 2000);
	udelay(100);
	mdelay(1);
	assert_true(time_after_eq(jiffies, begin + 6) && time_before(begin, jiffies));
	assert_true(time_is_before_jiffies(begin) && time_is_after_jiffies(jiffies + HZ * 600));
	assert_true(time_after(top + 2, top) && time_before_eq(top, top + 1));
	assert_int_equal(msecs_to_jiffies(1500), 1500 * HZ / 1000);
	assert_int_equal(usecs_to_jiffies(1001), 2);
	assert_int_equal(jiffies_to_msecs(HZ) + jiffies_to_usecs(1), 2000);
	assert_true(ktime_ms_delta(ktime_get(), clock) >= 6 && ktime_us_delta(clock, clock) == 0);
	assert_true(ktime_before(clock, ktime_add_ns(clock, 1)) && ktime_compare(2, 1) == 1);
	assert_int_equal(ktime_to_ns(ktime_sub(ktime_set(1, 5), ms_to_ktime(1))), 999000005);
	do_gettimeofday(&tv);
	ktime_get_real_ts64(&ts);
	assert_true(tv.tv_sec <= ts.tv_sec && (time64_t)get_seconds() >= tv.tv_sec);
	assert_true(get_cycles() <= get_cycles());
}

static void might_sleep__warns_under_a_spinlock(void **state)
{
	DECLARE_COMPLETION(done);
	int pipes[2], real = dup(STDERR_FILENO);
	char said[512] = "";

	assert_int_equal(pipe(pipes), 0);
	dup2(pipes[1], STDERR_FILENO);
	complete_all(&done);
	might_sleep();
	wait_for_completion(&done);
	assert_int_equal(write(pipes[1], "-", 1), 1);
	spin_lock(&test_spin);
	for (int i = 0; i < 3; i++)
		might_sleep();
	kfree(kmalloc(10, GFP_ATOMIC));
	spin_unlock(&test_spin);
	dup2(real, STDERR_FILENO);
	close(real);
	assert_true(read(pipes[0], said, sizeof(said) - 1) > 0);
	assert_memory_equal(said, "-WARNING at ", 12);
	assert_non_null(strstr(said, "task_test.c"));
	assert_null(strstr(said + 12, "WARNING"));
	close(pipes[0]);
	close(pipes[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(locks__exclude),
		cmocka_unit_test(spin_lock__all_forms),
		cmocka_unit_test(mutex__all_forms),
		cmocka_unit_test(kthread__runs_until_it_is_stopped),
		cmocka_unit_test(kthread_stop__before_it_has_run),
		cmocka_unit_test(wait_event__wakes_each_that_may_go),
		cmocka_unit_test(wait_event__loses_no_wake_up),
		cmocka_unit_test(wait_event_timeout__tells_what_is_left),
		cmocka_unit_test(send_sig__interrupts_waits),
		cmocka_unit_test(prepare_to_wait__by_hand),
		cmocka_unit_test(completion__lets_one_or_all_go),
		cmocka_unit_test(completion__may_be_freed_behind_the_wait),
		cmocka_unit_test(jiffies__are_milliseconds),
		cmocka_unit_test(might_sleep__warns_under_a_spinlock),
	};

	return cmocka_run_group_tests_name("task", tests, NULL, NULL);
}
