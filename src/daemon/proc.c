/* proc.c: connections and the life of the processes behind them.
 * In:    sockets, pidfds               Out: requests for service.c; reports of deaths
 * Runs:  the daemon's only thread      Locks: none
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/service.h"
#include "daemon/stranger.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

enum { PROC_BURST = 16 /* packets of one connection per turn */ };

static void proc_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void proc_close_source(struct daemon *d, struct loop_source *s)
{
	if (s->fd < 0)
		return;
	loop_remove(&d->loop, s);
	proc_close(&s->fd);
}

struct proc *proc_find(struct daemon *d, u64 process)
{
	if (process == 0)
		return NULL;
	list_for_each(p, &d->procs, struct proc, node)
		if (p->process == process)
			return p;
	return NULL;
}

static void proc_detach(struct proc *p)
{
	struct daemon *d = p->daemon;

	d->attached--;
	if (d->attached == 0)
		d->idle_since_ns = clock_now_ns();
}

void proc_drop(struct proc *p, const char *why)
{
	struct daemon *d = p->daemon;

	log_debug("node", "process %llu (pid %d, %.16s): %s", (unsigned long long)p->process,
		  (int)p->pid, p->who.command, why);
	service_release(p);
	succession_forget(d, p);
	traffic_collect(p);
	if (p->kind == PROC_ATTACHED && !d->ending)
		proc_detach(p);
	event_discard(p);
	proc_close_source(d, &p->control);
	proc_close_source(d, &p->events);
	proc_close_source(d, &p->life);
	proc_close(&p->board_fd);
	proc_close(&p->bell_fd[0]);
	proc_close(&p->bell_fd[1]);
	proc_close(&p->slots_fd);
	proc_close(&p->will_fd);
	list_remove(&p->node);
	d->proc_count--;
	free(p);
}

/* Handles an event of the control socket. */
static void proc_on_control(struct loop_source *s, u32 events)
{
	struct proc *p = container_of(s, struct proc, control);
	union proto_request q;
	struct message m;

	for (int i = 0; i < PROC_BURST; i++) {
		int err = message_receive(s->fd, &q, sizeof(q), &m);
		bool fine;

		if (err == -EAGAIN)
			return;
		if (err < 0) {
			proc_drop(p, err == -ECONNRESET ? "has left" : strerror(-err));
			return;
		}
		fine = service_handle(p, &q, &m);
		message_close(&m);
		if (!fine) {
			proc_drop(p, "sent what makes no sense");
			return;
		}
	}
}

static void proc_on_death(struct loop_source *s, u32 events)
{
	proc_drop(container_of(s, struct proc, life), "has died");
}

/* Opens a descriptor that becomes readable when the process at the other end of the socket dies; -1
 * if the kernel has none. */
static int proc_open_life(int socket, s32 pid)
{
	int fd = -1;
	socklen_t length = sizeof(fd);

	if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &length) == 0)
		return fd;
	if (pid <= 0)
		return -1;
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

void proc_accept(struct daemon *d, int fd)
{
	struct proc *p = NULL;
	s32 pid;

	if (!address_peer_is_mine(fd, &pid)) {
		stranger_close(fd);
		return;
	}
	if (d->proc_count >= DAEMON_PROCS)
		goto refuse;
	p = calloc(1, sizeof(*p));
	if (p == NULL)
		goto refuse;
	p->daemon = d;
	p->pid = pid;
	p->control.fd = p->events.fd = p->life.fd = -1;
	p->board_fd = p->bell_fd[0] = p->bell_fd[1] = p->slots_fd = p->will_fd = -1;
	p->since_ns = clock_now_ns();
	list_init(&p->waiting);
	if (loop_add(&d->loop, &p->control, fd, EPOLLIN, proc_on_control) < 0)
		goto refuse;
	list_push_back(&d->procs, &p->node);
	d->proc_count++;
	return;
refuse:
	free(p);
	close(fd);
}

/* Watches the process' life. Without a pidfd the end of its sockets serves. */
static int proc_watch_life(struct proc *p)
{
	int fd = proc_open_life(p->control.fd, p->pid);
	int err;

	if (fd < 0) {
		log_warn("node", "no pidfd for process %d: its end is seen when its sockets close",
			 (int)p->pid);
		return 0;
	}
	err = loop_add(&p->daemon->loop, &p->life, fd, EPOLLIN, proc_on_death);
	if (err < 0)
		close(fd);
	return err;
}

int proc_attach(struct proc *p, u64 process, const struct proto_process *who, struct message *m)
{
	int err = proc_watch_life(p);

	if (err < 0)
		return err;
	p->who = *who;
	p->who.command[PROTO_COMMAND - 1] = '\0';
	p->board_fd = message_take_fd(m, 0);
	p->bell_fd[0] = message_take_fd(m, 1);
	p->bell_fd[1] = message_take_fd(m, 2);
	p->process = process;
	traffic_watch(p);
	p->kind = PROC_ATTACHED;
	p->daemon->attached++;
	p->daemon->served = true;
	return 0;
}
