/* events.c: the events sockets. Events that find no room wait here, bounded, until the process
 * reads.
 * In:    pairs made and ended, changes of the directory      Out: packets to processes
 * Runs:  the daemon's only thread                               Locks: none
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/fabric/fabricd.h"

/* An event that waits. */
struct proc_event {
	struct list_head node;
	u16 type;
	u64 process;  /* the peer */
	int rings_fd; /* -1 or EV_PEER_NEW's */
	s32 error;    /* EV_PEER_GONE's */
} OWNED_BY(the daemon);

static void event_head(struct proto_head *h, u16 type)
{
	*h = (struct proto_head){ .magic = PROTO_MAGIC, .version = PROTO_VERSION, .type = type };
}

int event_describe(const struct proc *peer, const struct proc *to, struct proto_peer *out,
		   int fds[4])
{
	bool same_ns = peer->who.pid_ns != 0 && peer->who.pid_ns == to->who.pid_ns;

	out->process = peer->process;
	out->pid = same_ns ? peer->who.pid : 0;
	out->has_pid_fd = peer->life.fd >= 0;
	fds[0] = peer->board_fd;
	fds[1] = peer->bell_fd[0];
	fds[2] = peer->bell_fd[1];
	fds[3] = peer->life.fd;
	return 3 + (peer->life.fd >= 0);
}

/* 0; -EAGAIN: later; else the socket is broken. */
static int event_send_peer_new(struct proc *to, u64 process, int rings_fd)
{
	struct proc *peer = proc_find(to->daemon, process);
	struct proto_peer msg = { .process = 0 };
	int fds[5], count;

	/* died meanwhile: `to` was never told of it */
	if (peer == NULL)
		return 0;
	event_head(&msg.head, PROTO_EV_PEER_NEW);
	fds[0] = rings_fd;
	count = event_describe(peer, to, &msg, fds + 1);
	return message_send(to->events.fd, &msg, sizeof(msg), fds, count + 1);
}

static int event_send(struct proc *to, const struct proc_event *e)
{
	struct proto_pair_end msg = { .process = e->process, .error = e->error };
	int err;

	if (e->type == PROTO_EV_PEER_NEW) {
		err = event_send_peer_new(to, e->process, e->rings_fd);
	} else {
		int fd = to->daemon->capture_fd;

		event_head(&msg.head, e->type);
		err = message_send(to->events.fd, &msg, sizeof(msg), &fd,
				   e->type == PROTO_EV_CAPTURE && to->daemon->recorder != NULL);
	}
	/* too many descriptors in flight: the process must receive them first */
	return err == -ETOOMANYREFS ? -EAGAIN : err;
}

static void event_set_blocked(struct proc *p, bool blocked)
{
	if (p->blocked == blocked)
		return;
	p->blocked = blocked;
	p->daemon->blocked_count += blocked ? 1 : (u32)-1;
	if (p->events.fd >= 0)
		loop_change(&p->daemon->loop, &p->events, EPOLLIN | (blocked ? EPOLLOUT : 0));
}

static void event_free(struct proc *p, struct proc_event *e)
{
	list_remove(&e->node);
	p->waiting_count--;
	if (e->rings_fd >= 0)
		close(e->rings_fd);
	free(e);
}

void event_discard(struct proc *p)
{
	list_for_each_safe(e, &p->waiting, struct proc_event, node)
		event_free(p, e);
	event_set_blocked(p, false);
}

static int event_send_fabric(struct proc *to, u32 port, u32 what)
{
	const struct fabricd *f = to->daemon->fabric;
	struct proto_fabric_event msg = { .port = port, .what = what };

	event_head(&msg.head, PROTO_EV_FABRIC);
	if (f != NULL)
		msg.generation = fabric_generation(fabric_view(f->fabric));
	return message_send(to->events.fd, &msg, sizeof(msg), NULL, 0);
}

static int event_flush_host(struct proc *p, struct proc_host *h)
{
	int err = 0;

	while (h->change_count > 0) {
		const struct fabricd_change *c = &h->changes[h->change_count - 1];

		err = event_send_fabric(p, c->port, c->what);
		if (err == -EAGAIN)
			break;
		h->change_count--;
	}
	return err;
}

void event_flush(struct proc *p)
{
	int err = 0;

	list_for_each_safe(e, &p->waiting, struct proc_event, node) {
		err = event_send(p, e);
		if (err == -EAGAIN)
			break;
		event_free(p, e);
	}
	if (err != -EAGAIN && p->config_due) {
		err = event_send(p, &(struct proc_event){ .type = PROTO_EV_CONFIG });
		p->config_due = err == -EAGAIN;
	}
	if (err != -EAGAIN && p->capture_due) {
		err = event_send(p, &(struct proc_event){ .type = PROTO_EV_CAPTURE });
		p->capture_due = err == -EAGAIN;
	}
	if (err != -EAGAIN && p->host != NULL)
		err = event_flush_host(p, p->host);
	event_set_blocked(p, err == -EAGAIN);
}

/* Appends an event and sends what can be sent. */
static int event_queue(struct proc *p, const struct proc_event *now)
{
	struct proc_event *e;

	if (p->events.fd < 0 || p->waiting_count >= DAEMON_EVENTS)
		return -ENOBUFS;
	if (list_empty(&p->waiting)) {
		int err = event_send(p, now);

		if (err != -EAGAIN)
			return err;
	}
	e = calloc(1, sizeof(*e));
	if (e == NULL)
		return -ENOMEM;
	*e = *now;
	list_init(&e->node);
	e->rings_fd = now->rings_fd < 0 ? -1 : fcntl(now->rings_fd, F_DUPFD_CLOEXEC, 0);
	if (now->rings_fd >= 0 && e->rings_fd < 0) {
		free(e);
		return -ENFILE;
	}
	list_push_back(&p->waiting, &e->node);
	p->waiting_count++;
	event_set_blocked(p, true);
	return 0;
}

int event_peer_new(struct proc *to, struct proc *peer, int rings_fd)
{
	return event_queue(to, &(struct proc_event){ .type = PROTO_EV_PEER_NEW,
						     .process = peer->process,
						     .rings_fd = rings_fd });
}

void event_peer_gone(struct proc *to, u64 process, s32 error)
{
	struct proc_event gone = {
		.type = PROTO_EV_PEER_GONE, .process = process, .rings_fd = -1, .error = error
	};

	/* an event that was not sent yet need not be revoked */
	list_for_each(e, &to->waiting, struct proc_event, node) {
		if (e->type == PROTO_EV_PEER_NEW && e->process == process) {
			event_free(to, e);
			return;
		}
	}
	if (event_queue(to, &gone) < 0)
		log_warn("node", "process %llu does not read its events",
			 (unsigned long long)to->process);
}

void event_config(struct daemon *d)
{
	list_for_each(p, &d->procs, struct proc, node) {
		if (p->kind != PROC_ATTACHED)
			continue;
		p->config_due = true;
		event_flush(p);
	}
}

void event_capture(struct proc *to)
{
	to->capture_due = true;
	event_flush(to);
}

void event_capture_all(struct daemon *d)
{
	list_for_each(p, &d->procs, struct proc, node)
		if (p->kind == PROC_ATTACHED)
			event_capture(p);
}

void event_fabric(struct proc *to, u32 port, u32 what)
{
	struct proc_host *h = to->host;
	u32 i = 0;

	if (to->events.fd < 0)
		return;
	while (i < h->change_count && h->changes[i].port != port)
		i++;
	/* a host has fewer ports than this, unless its adapters are of no kind that exists */
	if (i == FABRICD_CHANGES)
		return;
	if (i == h->change_count)
		h->changes[h->change_count++] = (struct fabricd_change){ .port = port };
	h->changes[i].what |= what;
	event_flush(to);
}

void event_fabric_gone(struct proc *to)
{
	if (to->events.fd >= 0)
		(void)event_send_fabric(to, FABRIC_NONE, (u32)NODE_FABRIC_GONE);
}

bool event_mad(struct proc *to, const struct node_mad *mad)
{
	struct proto_mad msg = { .mad = *mad };

	if (to->events.fd < 0 || to->blocked)
		return false;
	event_head(&msg.head, PROTO_EV_MAD);
	return message_send(to->events.fd, &msg, sizeof(msg), NULL, 0) == 0;
}

/* The socket has room again, or the process has closed its end. A packet from the process is an
 * error. */
static void event_on_socket(struct loop_source *s, u32 events)
{
	struct proc *p = container_of(s, struct proc, events);

	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		proc_drop(p, "has closed its events socket");
	else
		event_flush(p);
}

int event_open(struct proc *p, int *theirs)
{
	int ends[2], err;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		return -errno;
	err = loop_add(&p->daemon->loop, &p->events, ends[0], EPOLLIN, event_on_socket);
	if (err < 0) {
		close(ends[0]);
		close(ends[1]);
		return err;
	}
	*theirs = ends[1];
	return 0;
}
