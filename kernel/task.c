/* task.c: tasks, their sleep and their signals; kthreads.
 * In:    threads of all kinds        Out: sleeping threads, woken ones
 * Runs:  the caller's thread         Locks: task_struct.lock, in which nothing else is taken
 */
#include "kernel_priv.h"

#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/slab.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

struct kthread {
	struct task_struct task;
	int (*run)(void *data);
	void *data;
	int result;
	bool should_stop;
	struct completion ended;
};

__thread int anyverbs_spins_held;
int anyverbs_fence;

static __thread struct task_struct *task_self;
static __thread struct task_struct task_own; /* of threads that are no kthreads */

/* ---- current --------------------------------------------------------------------------------- */

static void task_init(struct task_struct *task)
{
	pthread_mutex_init(&task->lock, NULL);
	pthread_cond_init(&task->woken, NULL);
}

struct task_struct *anyverbs_current(void)
{
	if (!task_self) {
		task_init(&task_own);
		task_own.pid = gettid();
		pthread_getname_np(pthread_self(), task_own.comm, sizeof(task_own.comm));
		task_self = &task_own;
	}
	return task_self;
}

/* ---- sleep ----------------------------------------------------------------------------------- */

void anyverbs_sleep_warn(const char *file, int line)
{
	printk(KERN_WARNING
	       "WARNING at %s:%d: may sleep, and %s holds a spinlock or runs a timer\n",
	       file, line, current->comm);
}

void anyverbs_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, unsigned long deadline)
{
	struct timespec when = { (time_t)(deadline / HZ), (long)(deadline % HZ) * 1000000 };

	pthread_cond_clockwait(cond, lock, CLOCK_MONOTONIC, &when);
}

static bool task_may_sleep(struct task_struct *task)
{
	unsigned int state = READ_ONCE(task->state);

	return state != TASK_RUNNING && !(state == TASK_INTERRUPTIBLE && task->is_signalled);
}

long schedule_timeout(long timeout)
{
	struct task_struct *task = current;
	unsigned long deadline = jiffies + (unsigned long)timeout;

	might_sleep();
	pthread_mutex_lock(&task->lock);
	while (task_may_sleep(task))
		if (timeout == MAX_SCHEDULE_TIMEOUT)
			pthread_cond_wait(&task->woken, &task->lock);
		else if (time_after(deadline, jiffies))
			anyverbs_wait_until(&task->woken, &task->lock, deadline);
		else
			break;
	__set_current_state(TASK_RUNNING);
	pthread_mutex_unlock(&task->lock);
	if (timeout == MAX_SCHEDULE_TIMEOUT)
		return timeout;
	timeout = (long)(deadline - jiffies);
	return timeout > 0 ? timeout : 0;
}

void schedule(void)
{
	schedule_timeout(MAX_SCHEDULE_TIMEOUT);
}

long schedule_timeout_interruptible(long timeout)
{
	set_current_state(TASK_INTERRUPTIBLE);
	return schedule_timeout(timeout);
}

long schedule_timeout_uninterruptible(long timeout)
{
	set_current_state(TASK_UNINTERRUPTIBLE);
	return schedule_timeout(timeout);
}

int wake_up_process(struct task_struct *task)
{
	int slept;

	pthread_mutex_lock(&task->lock);
	slept = READ_ONCE(task->state) != TASK_RUNNING;
	WRITE_ONCE(task->state, TASK_RUNNING);
	pthread_cond_signal(&task->woken);
	pthread_mutex_unlock(&task->lock);
	return slept;
}

void msleep(unsigned int ms)
{
	long left = (long)msecs_to_jiffies(ms) + 1;

	while (left)
		left = schedule_timeout_uninterruptible(left);
}

unsigned long msleep_interruptible(unsigned int ms)
{
	long left = (long)msecs_to_jiffies(ms) + 1;

	while (left && !signal_pending(current))
		left = schedule_timeout_interruptible(left);
	return jiffies_to_msecs((unsigned long)left);
}

void usleep_range(unsigned long least_us, unsigned long most_us)
{
	struct timespec time = { (time_t)(least_us / 1000000), (long)(least_us % 1000000) * 1000 };

	(void)most_us;
	might_sleep();
	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &time, &time) != 0)
		;
}

/* ---- signals --------------------------------------------------------------------------------- */

static void task_signal(struct task_struct *task, bool is_signalled)
{
	pthread_mutex_lock(&task->lock);
	WRITE_ONCE(task->is_signalled, is_signalled);
	pthread_cond_signal(&task->woken);
	pthread_mutex_unlock(&task->lock);
}

int send_sig(int signal, struct task_struct *task, int privileged)
{
	(void)signal, (void)privileged;
	task_signal(task, true);
	return 0;
}

void flush_signals(struct task_struct *task)
{
	task_signal(task, false);
}

/* ---- threads --------------------------------------------------------------------------------- */

int anyverbs_thread_start(const char *name, void *(*run)(void *data), void *data)
{
	sigset_t all, before;
	pthread_t thread;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&thread, NULL, run, data);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err) {
		pr_err("anyverbs-kernel: the system refuses a thread (%s)\n", name);
		return -EAGAIN;
	}
	pthread_detach(thread);
	return 0;
}

static void *kthread_main(void *data)
{
	struct kthread *k = data;

	task_self = &k->task;
	k->task.pid = gettid();
	pthread_setname_np(pthread_self(), k->task.comm);
	schedule(); /* until the first wake_up_process */
	k->result = READ_ONCE(k->should_stop) ? -EINTR : k->run(k->data);
	complete(&k->ended);
	put_task_struct(&k->task);
	return NULL;
}

struct task_struct *kthread_create(int (*run)(void *data), void *data, const char *name, ...)
{
	struct kthread *k = kzalloc(sizeof(*k), GFP_KERNEL);
	va_list arguments;

	if (!k)
		return ERR_PTR(-ENOMEM);
	task_init(&k->task);
	va_start(arguments, name);
	vsnprintf(k->task.comm, sizeof(k->task.comm), name, arguments);
	va_end(arguments);
	k->run = run;
	k->data = data;
	k->task.is_kthread = true;
	k->task.state = TASK_UNINTERRUPTIBLE;
	atomic_set(&k->task.refs, 1);
	init_completion(&k->ended);
	if (anyverbs_thread_start(k->task.comm, kthread_main, k) != 0) {
		put_task_struct(&k->task);
		return ERR_PTR(-EAGAIN);
	}
	return &k->task;
}

bool kthread_should_stop(void)
{
	struct task_struct *task = current;

	return task->is_kthread &&
	       READ_ONCE(container_of(task, struct kthread, task)->should_stop);
}

int kthread_stop(struct task_struct *task)
{
	struct kthread *k = container_of(task, struct kthread, task);
	int result;

	get_task_struct(task);
	WRITE_ONCE(k->should_stop, true);
	wake_up_process(task);
	wait_for_completion(&k->ended);
	result = k->result;
	put_task_struct(task);
	return result;
}

struct task_struct *get_task_struct(struct task_struct *task)
{
	if (task->is_kthread)
		atomic_inc(&task->refs);
	return task;
}

void put_task_struct(struct task_struct *task)
{
	if (!task->is_kthread || !atomic_dec_and_test(&task->refs))
		return;
	pthread_mutex_destroy(&task->lock);
	pthread_cond_destroy(&task->woken);
	kfree(container_of(task, struct kthread, task));
}
