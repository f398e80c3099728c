/* daemon.c: the node: start, main loop, end.
 * In:    connections on the abstract socket or that in the folder, signals, time
 * Out:   a node for one user and one network namespace
 * Runs:  the only thread
 * Locks: the abstract name and the folder (against a second daemon)
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"
#include "daemon/daemon_priv.h"
#include "daemon/wills.h"
#include "daemon/fabric/fabricd.h"
#include "daemon/stranger.h"
#include "host/watch.h"
#include "node/spawn.h"

enum { DAEMON_IDLE_S = 300, DAEMON_REST_S = 5, DAEMON_PAUSE_MS = 100 };

int daemon_options_init(struct daemon_options *o)
{
	memset(o, 0, sizeof(*o));
	o->idle_ns = env_seconds("ANYVERBS_IDLE_S", DAEMON_IDLE_S * NS_PER_S);
	o->rest_ns = MIN(env_seconds("ANYVERBS_REST_S", DAEMON_REST_S * NS_PER_S), 3600 * NS_PER_S);
	return address_node_name(o->node);
}

void daemon_stop(struct daemon *d, const char *why)
{
	if (!d->loop.stop)
		log_info("node", "node %s ends: %s", d->options.node, why);
	d->loop.stop = true;
}

/* ---- listening ---- */

/* Listens there again after a while, so that the loop does not spin. */
static void daemon_pause(struct daemon *d, struct loop_source *at)
{
	d->listening = false;
	d->listen_again_ns = clock_now_ns() + DAEMON_PAUSE_MS * NS_PER_MS;
	loop_change(&d->loop, at, 0);
}

/* Keeps a descriptor for a connection that asks for a successor, or must be told of a refusal. */
static void daemon_keep_spare(struct daemon *d)
{
	if (d->spare_fd < 0)
		d->spare_fd = fcntl(d->loop.fd, F_DUPFD_CLOEXEC, 3);
}

static int daemon_accept(struct daemon *d, const struct loop_source *at)
{
	int fd = accept4(at->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0 || errno != EMFILE || d->spare_fd < 0)
		return fd;
	close(d->spare_fd);
	d->spare_fd = -1;
	return accept4(at->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

static void daemon_take(struct daemon *d, struct loop_source *at)
{
	int fd = daemon_accept(d, at);

	if (fd >= 0)
		proc_accept(d, fd);
	else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
		daemon_pause(d, at);
}

/* At the abstract address, where any user may come. */
static void daemon_on_connection(struct loop_source *s, u32 events)
{
	struct daemon *d = container_of(s, struct daemon, listener);

	if (stranger_has_room())
		daemon_take(d, s);
	else
		daemon_pause(d, s);
}

static void daemon_on_inner(struct loop_source *s, u32 events)
{
	daemon_take(container_of(s, struct daemon, inner), s);
}

/* Owns a socket that is bound. */
static int daemon_listen_with(struct daemon *d, struct loop_source *at, int fd)
{
	void (*fn)(struct loop_source * s, u32 events) = at == &d->inner ? daemon_on_inner
									 : daemon_on_connection;
	int err = 0;

	if (listen(fd, DAEMON_BACKLOG) < 0)
		err = -errno;
	if (err == 0)
		err = loop_add(&d->loop, at, fd, EPOLLIN, fn);
	if (err < 0)
		close(fd);
	d->listening |= err == 0;
	return err;
}

static int daemon_listen_at(struct daemon *d, struct loop_source *at,
			    const struct sockaddr_un *addr, socklen_t length)
{
	int err, fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if (bind(fd, (const struct sockaddr *)addr, length) == 0)
		return daemon_listen_with(d, at, fd);
	err = -errno;
	close(fd);
	return err;
}

static void daemon_close_listener(struct daemon *d, struct loop_source *at)
{
	if (at->fd < 0)
		return;
	loop_remove(&d->loop, at);
	close(at->fd);
	at->fd = -1;
}

/* Tells whether another daemon of this user listens there. If none accepts, the folder's lock
 * decides. */
static bool daemon_is_up(const struct sockaddr_un *addr, socklen_t length)
{
	s32 pid;
	int err = address_probe(addr, length, &pid);

	return err == 0 || err == -EMFILE || err == -ENFILE || err == -ENOMEM || err == -ENOBUFS;
}

/* At another address than the one with this index: another user may have gone from there. */
static bool daemon_is_up_elsewhere(const struct daemon *d, u32 index)
{
	struct sockaddr_un addr;
	bool up = false;

	for (u32 i = 0; i < ADDRESS_NAMES && !up; i++)
		up = i != index && daemon_is_up(&addr, address_make(d->options.node, i, &addr));
	return up;
}

/* Binds the first abstract address that no other user has. Without one the folder serves. */
static int daemon_listen_at_name(struct daemon *d)
{
	struct sockaddr_un addr;
	socklen_t length;
	int err = -EADDRINUSE;
	u32 i = 0;

	for (; i < ADDRESS_NAMES; i++) {
		length = address_make(d->options.node, i, &addr);
		err = daemon_listen_at(d, &d->listener, &addr, length);
		if (err != -EADDRINUSE || daemon_is_up(&addr, length))
			break;
		log_warn("node", "another user has the address %s of node %s", addr.sun_path + 1,
			 d->options.node);
	}
	if (i == ADDRESS_NAMES)
		return 0;
	if (err < 0 || !daemon_is_up_elsewhere(d, i))
		return err;
	daemon_close_listener(d, &d->listener);
	return -EADDRINUSE;
}

/* The socket that the node before has passed on, if it has. From now on the peers of new
 * connections see this process. */
static bool daemon_inherit(struct daemon *d, int fd)
{
	struct loop_source *at = d->options.successor ? succession_listener(d, fd) : NULL;

	return at != NULL && daemon_listen_with(d, at, fd) == 0;
}

/* A node that serves the whole machine has no abstract address: these do not cross network
 * namespaces. Nor has one whose user others may look like. */
static int daemon_listen(struct daemon *d)
{
	d->listener.fd = d->inner.fd = -1;
	if (daemon_inherit(d, 3) || d->options.scope == PLACE_MACHINE || !address_user_is_unique())
		return 0;
	return daemon_listen_at_name(d);
}

/* Binds in the folder, which is locked: a socket there is a dead daemon's. */
static int daemon_listen_in_folder(struct daemon *d)
{
	struct sockaddr_un addr;
	int err = -EACCES;

	if (d->inner.fd >= 0)
		return 0;
	if (d->folder.fd >= 0) {
		unlinkat(d->folder.fd, PLACE_SOCKET, 0);
		err = daemon_listen_at(d, &d->inner, &addr,
				       place_address(d->folder.fd, d->folder.path, &addr));
	}
	if (err < 0 && d->listener.fd >= 0) {
		log_warn("node", "node %s has no socket in a folder: %s", d->options.node,
			 strerror(-err));
		err = 0;
	}
	return err;
}

/* ---- signals ---- */

static void daemon_on_signal(struct loop_source *s, u32 events)
{
	struct daemon *d = container_of(s, struct daemon, signals);
	struct signalfd_siginfo info;

	if (read(s->fd, &info, sizeof(info)) == sizeof(info) && info.ssi_signo != SIGHUP)
		daemon_stop(d, strsignal((int)info.ssi_signo));
}

static int daemon_take_signals(struct daemon *d)
{
	sigset_t set;
	int fd, err;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return -errno;
	err = loop_add(&d->loop, &d->signals, fd, EPOLLIN, daemon_on_signal);
	if (err < 0)
		close(fd);
	return err;
}

/* ---- the host's addresses ---- */

static void daemon_on_address(struct loop_source *s, u32 events)
{
	struct daemon *d = container_of(s, struct daemon, addresses);

	/* they come in bursts: one look for all of the pause, however long the burst lasts */
	if (watch_read(s->fd))
		d->look_again_ns = MIN(d->look_again_ns,
				       clock_now_ns() + DAEMON_PAUSE_MS * NS_PER_MS);
}

/* Without announcements the addresses stay those of the start. */
static void daemon_watch_addresses(struct daemon *d)
{
	int fd = watch_open();

	d->addresses.fd = -1;
	if (fd < 0 || loop_add(&d->loop, &d->addresses, fd, EPOLLIN, daemon_on_address) < 0) {
		log_warn("node", "changes of the host's addresses will not be noticed");
		if (fd >= 0)
			close(fd);
	}
}

/* ---- time ---- */

/* Tells whether a packet waits at the connection. The loop takes one event per turn: after a time
 * without a CPU the first message of a connection may lie unread behind others. */
static bool daemon_has_unread(const struct proc *p)
{
	struct pollfd unread = { .fd = p->control.fd, .events = POLLIN };

	return poll(&unread, 1, 0) > 0;
}

static void daemon_end_silent(struct daemon *d, u64 now)
{
	list_for_each_safe(p, &d->procs, struct proc, node)
		if (p->kind == PROC_SILENT && now - p->since_ns > DAEMON_SILENT_S * NS_PER_S &&
		    !daemon_has_unread(p))
			proc_drop(p, "has said nothing");
}

/* Sends events again that had no room because of a limit that epoll does not report (descriptors in
 * flight). */
static void daemon_retry_events(struct daemon *d)
{
	list_for_each(p, &d->procs, struct proc, node)
		if (p->blocked)
			event_flush(p);
}

/* The first process, for which the node was started, may be slow. */
static u64 daemon_idle_end(const struct daemon *d)
{
	u64 idle = d->options.idle_ns;

	return d->idle_since_ns + (d->served ? idle : MAX(idle, DAEMON_FIRST_S * NS_PER_S));
}

static bool daemon_idle(const struct daemon *d, u64 now)
{
	return d->attached == 0 && d->recorder == NULL && d->fabric == NULL &&
	       list_empty(&d->wills) && d->options.idle_ns != UINT64_MAX &&
	       now >= daemon_idle_end(d);
}

/* Runs everything that is due by time. */
static void daemon_tick(struct daemon *d)
{
	u64 now = clock_now_ns();

	daemon_keep_spare(d);
	if (!d->listening && now >= d->listen_again_ns) {
		d->listening = true;
		loop_change(&d->loop, &d->listener, EPOLLIN);
		loop_change(&d->loop, &d->inner, EPOLLIN);
	}
	if (now >= d->look_again_ns)
		devices_look(d);
	if (d->proc_count > d->attached)
		daemon_end_silent(d, now);
	if (d->blocked_count > 0)
		daemon_retry_events(d);
	if (d->directory->incomplete != 0)
		route_show(d);
	route_run(d, now);
	wills_run(d, now);
	fabricd_run(d, now);
	traffic_run(d, now);
	if (daemon_idle(d, now))
		daemon_stop(d, "idle");
}

/* Returns when the next thing is due by time; UINT64_MAX: never. */
static u64 daemon_next_ns(const struct daemon *d, u64 now)
{
	u64 next = MIN(MIN(d->look_again_ns, fabricd_next_ns(d)),
		       MIN(MIN(wills_next_ns(d), route_next_ns(d)), d->traffic.due_ns));

	/* a process that has not come back may die unseen */
	if (d->blocked_count > 0 || !d->listening || d->directory->incomplete != 0)
		next = MIN(next, now + DAEMON_TICK_MS * NS_PER_MS);
	if (d->proc_count > d->attached)
		next = MIN(next, now + NS_PER_S);
	if (d->attached == 0 && d->fabric == NULL && list_empty(&d->wills) &&
	    d->options.idle_ns != UINT64_MAX)
		next = MIN(next, daemon_idle_end(d));
	return next;
}

/* How long the loop may sleep. */
static int daemon_timeout_ms(const struct daemon *d)
{
	u64 now = clock_now_ns(), next = daemon_next_ns(d, now);

	if (next == UINT64_MAX)
		return -1;
	return next <= now ? 0 : (int)MIN((next - now) / NS_PER_MS + 1, (u64)3600000);
}

/* ---- beginning and end ---- */

/* Each process takes seven descriptors here. -EMFILE: not even one could be served. */
static int daemon_raise_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) < 0)
		return 0;
	if (r.rlim_max < SPAWN_LEAST_FDS)
		return -EMFILE;
	if (r.rlim_cur < r.rlim_max) {
		r.rlim_cur = r.rlim_max;
		setrlimit(RLIMIT_NOFILE, &r);
	}
	return 0;
}

/* A spawned daemon has no terminal: its log goes to a file in the folder. */
static void daemon_open_log(struct daemon *d)
{
	int fd;

	if (!d->options.spawned || log_level_get() == LOG_NONE || d->folder.fd < 0)
		return;
	fd = openat(d->folder.fd, "log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
		    0600);
	if (fd < 0)
		return;
	dup2(fd, STDERR_FILENO);
	close(fd);
}

/* Runs once the name or the socket in the folder is bound: clients wait there until this is done.
 * The folder's lock makes this the node's only daemon; the name alone does where there is no
 * folder. */
static int daemon_prepare(struct daemon *d)
{
	int err = -ESTALE;

	if (d->options.successor)
		err = folder_inherit(&d->folder, 4, d->options.scope, d->options.node);
	if (err < 0)
		err = folder_open(&d->folder, d->options.scope, d->options.node);
	if (err < 0)
		return err;
	daemon_open_log(d);
	err = daemon_listen_in_folder(d);
	if (err < 0)
		return err;
	err = slots_open(&d->slots, d->folder.fd, d->options.rest_ns);
	if (err < 0 && d->folder.fd >= 0) {
		log_error("node", "no slots file in %s: %s: slots do not survive this node",
			  d->folder.path, strerror(-err));
		err = slots_open(&d->slots, -1, d->options.rest_ns);
	}
	if (err < 0)
		return err;
	d->directory = directory_create(&d->directory_fd, &err);
	if (d->directory == NULL) {
		slots_close(&d->slots);
		return err;
	}
	err = daemon_udp_init(&d->udp, &d->loop);
	d->udp.to_qp1 = route_datagram;
	d->udp.to_qp1_arg = d;
	if (err < 0) {
		directory_unmap(d->directory);
		slots_close(&d->slots);
		return err;
	}
	daemon_watch_addresses(d); /* before reading, to miss no change */
	traffic_init(d);
	devices_begin(d);
	fabricd_resume(d);
	route_show(d);
	d->started_ns = d->idle_since_ns = clock_now_ns();
	log_info("node", "node %s is up: folder %s", d->options.node, d->folder.path);
	return 0;
}

static void daemon_finish(struct daemon *d)
{
	int successor = succession_detach(d);

	d->ending = true;
	fabricd_down(d, successor >= 0);
	/* while this daemon holds the name: the next daemon of this node uses the same folder */
	if (successor < 0)
		folder_remove(&d->folder);
	/* at once, so that new clients start another node; a successor gets one socket */
	if (successor < 0 || d->listener.fd >= 0)
		daemon_close_listener(d, &d->inner);
	if (successor < 0)
		daemon_close_listener(d, &d->listener);
	if (d->addresses.fd >= 0)
		close(d->addresses.fd);
	list_for_each_safe(p, &d->procs, struct proc, node)
		proc_drop(p, "the node ends");
	wills_clear(d);
	route_clear(d);
	pairs_clear(&d->pairs);
	daemon_udp_destroy(&d->udp);
	directory_unmap(d->directory);
	close(d->directory_fd);
	slots_close(&d->slots);
	if (successor >= 0) {
		succession_pass(d, successor);
		daemon_close_listener(d, &d->listener);
		daemon_close_listener(d, &d->inner);
	}
	folder_close(&d->folder);
}

static int daemon_begin(struct daemon *d)
{
	int err = daemon_listen(d);

	if (err < 0)
		return err;
	err = daemon_take_signals(d);
	if (err == 0) {
		err = daemon_prepare(d);
		if (err == 0)
			return 0;
		close(d->signals.fd);
	}
	daemon_close_listener(d, &d->inner);
	daemon_close_listener(d, &d->listener);
	return err;
}

int daemon_run(const struct daemon_options *o)
{
	struct daemon *d;
	int err = daemon_raise_limit();

	if (err < 0)
		return err;
	d = calloc(1, sizeof(*d));
	if (d == NULL)
		return -ENOMEM;
	umask(077);
	signal(SIGPIPE, SIG_IGN);
	d->options = *o;
	list_init(&d->procs);
	list_init(&d->wills);
	capture_init(&d->capture);
	list_init(&d->held);
	d->spare_fd = -1;
	err = loop_init(&d->loop);
	if (err < 0)
		goto out;
	err = daemon_begin(d);
	if (err == 0) {
		while (!d->loop.stop) {
			loop_turn(&d->loop, daemon_timeout_ms(d));
			daemon_tick(d);
		}
		daemon_finish(d);
		close(d->signals.fd);
	}
	loop_destroy(&d->loop);
out:
	free(d);
	return err;
}
