/* stranger.c: closes sockets that another user has connected to the node, without waiting.
 *
 * The queue of such a socket may hold the last reference to a TCP socket with unsent data, whose
 * close waits as long as that user has said with SO_LINGER. A signal ends the wait: a thread closes
 * the sockets, and a timer interrupts it again and again.
 * In:    sockets    Out: -
 * Runs:  the daemon's thread; the closing thread, while there is something to close
 * Locks: strangers.lock, a leaf
 */
#include "daemon/stranger.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/thread.h"

enum { STRANGERS = 64, STRANGER_PATIENCE_MS = 5 };

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static struct {
	struct lock lock;
	int fds[STRANGERS] GUARDED_BY(lock);
	u32 count GUARDED_BY(lock);
	bool closes GUARDED_BY(lock); /* the thread runs */
} strangers;
FORK_TAKES(FORK_STRANGERS, &strangers.lock);

static void stranger_on_alarm(int number)
{
}

/* Interrupts the calling thread for as long as it runs. */
static bool stranger_interrupt(timer_t *timer)
{
	struct sigaction action = { .sa_handler = stranger_on_alarm, .sa_flags = SA_RESTART };
	struct sigevent to = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM };
	const struct timespec step = { .tv_nsec = STRANGER_PATIENCE_MS * (long)NS_PER_MS };
	const struct itimerspec steps = { .it_interval = step, .it_value = step };
	sigset_t alarm;

	to.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	if (sigaction(SIGALRM, &action, NULL) < 0 || timer_create(CLOCK_MONOTONIC, &to, timer) < 0)
		return false;
	timer_settime(*timer, 0, &steps, NULL);
	pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
	return true;
}

/* -1: none; the thread ends. */
static int stranger_next(void)
{
	int fd = -1;

	lock_acquire(&strangers.lock);
	if (strangers.count > 0)
		fd = strangers.fds[--strangers.count];
	else
		strangers.closes = false;
	lock_release(&strangers.lock);
	return fd;
}

static void *stranger_main(void *arg)
{
	timer_t timer;
	bool interrupts = stranger_interrupt(&timer);
	int fd;

	while ((fd = stranger_next()) >= 0)
		close(fd);
	if (interrupts)
		timer_delete(timer);
	return NULL;
}

bool stranger_has_room(void)
{
	bool room;

	lock_acquire(&strangers.lock);
	room = strangers.count < STRANGERS;
	lock_release(&strangers.lock);
	return room;
}

void stranger_close(int fd)
{
	bool begins = false;

	lock_acquire(&strangers.lock);
	if (strangers.count < STRANGERS) {
		strangers.fds[strangers.count++] = fd;
		fd = -1;
		begins = !strangers.closes;
		strangers.closes = true;
	}
	lock_release(&strangers.lock);
	if (begins && thread_start("stranger", THREAD_STACK, NULL, stranger_main, NULL) < 0)
		while ((fd = stranger_next()) >= 0)
			close(fd);
	if (fd >= 0)
		close(fd);
}
