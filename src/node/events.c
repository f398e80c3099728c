/* events.c: unsolicited messages of the node, and this process' copy of what it must claim from the
 * next node.
 * In:    packets on the events socket, the directory     Out: struct node_event
 * Runs:  the engine's thread; requests add to the copies    Locks: state_lock (never waits inside)
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"
#include "base/log.h"
#include "node/client_priv.h"

static int events_watch(struct node *n, int fd)
{
	struct epoll_event ev = { .events = EPOLLIN };

	return epoll_ctl(n->wait_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

int events_init(struct node *n)
{
	lock_acquire(&n->state_lock);
	n->events = -1;
	list_init(&n->waiting);
	lock_release(&n->state_lock);
	n->wake_fd = -1;
	n->wait_fd = fd_own(epoll_create1(EPOLL_CLOEXEC));
	if (n->wait_fd < 0)
		return -errno;
	n->wake_fd = fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (n->wake_fd < 0)
		return -errno;
	return events_watch(n, n->wake_fd);
}

/* Removes it from the epoll set first: a child may hold a copy, which would keep it there. */
static void events_close_socket(struct node *n) REQUIRES(n->state_lock)
{
	if (n->events < 0)
		return;
	epoll_ctl(n->wait_fd, EPOLL_CTL_DEL, n->events, NULL);
	close(n->events);
	n->events = -1;
}

void events_close_peer(struct node_peer *peer)
{
	int fds[] = { peer->ring_fd, peer->board_fd, peer->bell_fd[0], peer->bell_fd[1],
		      peer->pid_fd };

	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* Frees an event that is not delivered. */
static void events_forget(const struct node_event *ev)
{
	struct node_peer peer = ev->peer;

	if (ev->type == NODE_EVENT_PEER_NEW)
		events_close_peer(&peer);
	if (ev->type == NODE_EVENT_CAPTURE && ev->capture_fd >= 0)
		close(ev->capture_fd);
}

void events_destroy(struct node *n)
{
	struct list_head *e;

	lock_acquire(&n->state_lock);
	while ((e = list_pop_front(&n->waiting)) != NULL) {
		struct client_event *c = list_entry(e, struct client_event, node);

		events_forget(&c->event);
		free(c);
	}
	if (n->events >= 0)
		close(n->events);
	directory_unmap(n->directory);
	free(n->pairs);
	free(n->joined);
	free(n->listening);
	lock_release(&n->state_lock);
	if (n->wake_fd >= 0)
		close(n->wake_fd);
	if (n->wait_fd >= 0)
		close(n->wait_fd);
}

/* ---- copies for the claims ---- */

/* Makes room for one more in an array; -ENOMEM. */
static int events_grow(void **array, u32 count, u32 *space, size_t size)
{
	u32 wanted = *space == 0 ? 8 : *space * 2;
	void *grown;

	if (count < *space)
		return 0;
	grown = realloc(*array, wanted * size);
	if (grown == NULL)
		return -ENOMEM;
	*array = grown;
	*space = wanted;
	return 0;
}

static int events_pair_add_locked(struct node *n, u64 process) REQUIRES(n->state_lock)
{
	void *array = n->pairs;
	int err = events_grow(&array, n->pair_count, &n->pair_space, sizeof(*n->pairs));

	n->pairs = array;
	if (err == 0)
		n->pairs[n->pair_count++] = process;
	return err;
}

static void events_pair_remove_locked(struct node *n, u64 process) REQUIRES(n->state_lock)
{
	for (u32 i = 0; i < n->pair_count; i++)
		if (n->pairs[i] == process)
			n->pairs[i--] = n->pairs[--n->pair_count];
}

int events_pair_add(struct node *n, u64 process)
{
	int err;

	lock_acquire(&n->state_lock);
	err = events_pair_add_locked(n, process);
	lock_release(&n->state_lock);
	return err;
}

void events_pair_remove(struct node *n, u64 process)
{
	lock_acquire(&n->state_lock);
	events_pair_remove_locked(n, process);
	lock_release(&n->state_lock);
}

u32 events_pairs(struct node *n, u64 *out, u32 max)
{
	u32 count;

	lock_acquire(&n->state_lock);
	count = MIN(n->pair_count, max);
	if (count > 0)
		memcpy(out, n->pairs, count * sizeof(*out));
	lock_release(&n->state_lock);
	return count;
}

static u32 events_joined_find(struct node *n, const u8 gid[16], u32 qpn) REQUIRES(n->state_lock)
{
	u32 i = 0;

	while (i < n->joined_count &&
	       (n->joined[i].qpn != qpn || memcmp(n->joined[i].gid, gid, 16) != 0))
		i++;
	return i;
}

int events_joined_add(struct node *n, const u8 gid[16], u32 qpn)
{
	int err = 0;

	lock_acquire(&n->state_lock);
	if (events_joined_find(n, gid, qpn) == n->joined_count) {
		void *array = n->joined;

		err = events_grow(&array, n->joined_count, &n->joined_space, sizeof(*n->joined));
		n->joined = array;
		if (err == 0) {
			memcpy(n->joined[n->joined_count].gid, gid, 16);
			n->joined[n->joined_count++].qpn = qpn;
		}
	}
	lock_release(&n->state_lock);
	return err;
}

bool events_joined_remove(struct node *n, const u8 gid[16], u32 qpn)
{
	bool found;
	u32 i;

	lock_acquire(&n->state_lock);
	i = events_joined_find(n, gid, qpn);
	found = i < n->joined_count;
	if (found)
		n->joined[i] = n->joined[--n->joined_count];
	lock_release(&n->state_lock);
	return found;
}

int events_listener_add(struct node *n, const struct client_listener *l)
{
	void *array;
	int err;

	lock_acquire(&n->state_lock);
	array = n->listening;
	err = events_grow(&array, n->listening_count, &n->listening_space, sizeof(*n->listening));
	n->listening = array;
	if (err == 0)
		n->listening[n->listening_count++] = *l;
	lock_release(&n->state_lock);
	return err;
}

bool events_listener_remove(struct node *n, const struct client_listener *l)
{
	bool found = false;

	lock_acquire(&n->state_lock);
	for (u32 i = 0; i < n->listening_count && !found; i++) {
		found = n->listening[i].service_id == l->service_id &&
			n->listening[i].mask == l->mask &&
			memcmp(&n->listening[i].match, &l->match, sizeof(l->match)) == 0;
		if (found)
			n->listening[i] = n->listening[--n->listening_count];
	}
	lock_release(&n->state_lock);
	return found;
}

bool events_listener_at(struct node *n, u32 index, struct client_listener *out)
{
	bool there;

	lock_acquire(&n->state_lock);
	there = index < n->listening_count;
	if (there)
		*out = n->listening[index];
	lock_release(&n->state_lock);
	return there;
}

/* ---- events ---- */

int events_peer_from(struct message *m, int first, const struct proto_peer *from,
		     struct node_peer *peer)
{
	if (m->fds_lost)
		return -EMFILE;
	if (m->fd_count != first + 3 + (from->has_pid_fd != 0))
		return -EPROTO;
	peer->process = from->process;
	peer->pid = from->pid;
	peer->ring_fd = first > 0 ? message_take_fd(m, 0) : -1;
	peer->board_fd = message_take_fd(m, first);
	peer->bell_fd[0] = message_take_fd(m, first + 1);
	peer->bell_fd[1] = message_take_fd(m, first + 2);
	peer->pid_fd = from->has_pid_fd ? message_take_fd(m, first + 3) : -1;
	return 0;
}

/* Takes a new pair, or -EMFILE, -ENOMEM: then the peer must be told. */
static int events_peer_new(struct node *n, const struct proto_peer *p, struct message *m,
			   struct node_event *ev) REQUIRES(n->state_lock)
{
	int err = events_peer_from(m, 1, p, &ev->peer);

	if (err < 0)
		return err;
	err = events_pair_add_locked(n, p->process);
	if (err < 0) {
		events_close_peer(&ev->peer);
		return err;
	}
	ev->type = NODE_EVENT_PEER_NEW;
	return 0;
}

/* What the events socket brings. */
union events_packet {
	struct proto_head head;
	struct proto_peer peer;
	struct proto_pair_end end;
	struct proto_mad mad;
	struct proto_fabric_event fabric;
};

/* Translates a packet; closes surplus descriptors. */
static int events_translate(struct node *n, const union events_packet *packet, struct message *m,
			    struct node_event *ev) REQUIRES(n->state_lock)
{
	const struct proto_peer *p = &packet->peer;
	int err = 0;

	memset(ev, 0, sizeof(*ev));
	if (m->size < sizeof(p->head) || p->head.magic != PROTO_MAGIC ||
	    p->head.version != PROTO_VERSION)
		return -EPROTO;
	switch (p->head.type) {
	case PROTO_EV_PEER_NEW:
		err = m->size == sizeof(*p) ? events_peer_new(n, p, m, ev) : -EPROTO;
		break;
	case PROTO_EV_PEER_GONE:
		if (m->size != sizeof(packet->end))
			return -EPROTO;
		ev->type = NODE_EVENT_PEER_GONE;
		ev->error = MIN(packet->end.error, 0);
		ev->peer = (struct node_peer){ .process = packet->end.process,
					       .ring_fd = -1,
					       .board_fd = -1,
					       .bell_fd = { -1, -1 },
					       .pid_fd = -1 };
		events_pair_remove_locked(n, packet->end.process);
		break;
	case PROTO_EV_CONFIG:
		ev->type = NODE_EVENT_CONFIG;
		break;
	case PROTO_EV_CAPTURE:
		ev->type = NODE_EVENT_CAPTURE;
		ev->capture_fd = m->fd_count > 0 ? message_take_fd(m, 0) : -1;
		break;
	case PROTO_EV_MAD:
		if (m->size != sizeof(packet->mad))
			return -EPROTO;
		ev->type = NODE_EVENT_MAD;
		ev->mad = packet->mad.mad;
		break;
	case PROTO_EV_FABRIC:
		if (m->size != sizeof(packet->fabric))
			return -EPROTO;
		ev->type = NODE_EVENT_FABRIC;
		ev->fabric = (struct node_fabric_event){ .port = packet->fabric.port,
							 .what = packet->fabric.what,
							 .generation = packet->fabric.generation };
		break;
	default:
		err = -EPROTO;
	}
	return err;
}

static void events_wake(struct node *n)
{
	u64 one = 1;

	if (write(n->wake_fd, &one, sizeof(one)) < 0)
		return; /* full: readable already */
}

static int events_queue(struct node *n, const struct node_event *ev) REQUIRES(n->state_lock)
{
	struct client_event *c = malloc(sizeof(*c));

	if (c == NULL)
		return -ENOMEM;
	c->event = *ev;
	list_push_back(&n->waiting, &c->node);
	events_wake(n);
	return 0;
}

static int events_queue_device(struct node *n, enum node_event_type type, u32 index, u64 id)
	REQUIRES(n->state_lock)
{
	struct node_event ev = { .type = type, .device = { .index = index, .id = id } };

	return id == 0 ? 0 : events_queue(n, &ev);
}

/* Queues events of devices that came and went since the last comparison. */
static void events_compare_devices(struct node *n) REQUIRES(n->state_lock)
{
	for (u32 i = 0; i < NODE_DEVICES; i++) {
		u64 now = directory_device_id(n->directory, i);

		if (now == n->devices[i])
			continue;
		/* without memory the next comparison tries again */
		if (events_queue_device(n, NODE_EVENT_DEVICE_REMOVED, i, n->devices[i]) < 0)
			return;
		n->devices[i] = 0;
		if (events_queue_device(n, NODE_EVENT_DEVICE_ADDED, i, now) < 0)
			return;
		n->devices[i] = now;
	}
}

/* Reads the next event of the socket: 0; -EAGAIN; -ECONNRESET: the socket has ended; -EMFILE,
 * -ENOMEM: the pair *refused cannot be taken. */
static int events_read(struct node *n, struct node_event *ev, u64 *refused) REQUIRES(n->state_lock)
{
	union events_packet p = { .peer = { .process = 0 } };
	struct message m;
	int err;

	if (n->events < 0)
		return -EAGAIN;
	err = message_receive(n->events, &p, sizeof(p), &m);
	if (err == -EAGAIN)
		return err;
	if (err == 0) {
		message_own(&m);
		err = events_translate(n, &p, &m, ev);
		message_close(&m);
		*refused = p.peer.process;
		if (err == 0 && ev->type == NODE_EVENT_CONFIG)
			events_compare_devices(n);
		if (err == 0 || err == -EMFILE || err == -ENOMEM)
			return err;
		log_error("node", "the node sent an event that makes no sense");
	}
	events_close_socket(n);
	return -ECONNRESET;
}

void events_push(struct node *n, enum node_event_type type)
{
	struct node_event ev = { .type = type };

	lock_acquire(&n->state_lock);
	if (events_queue(n, &ev) < 0)
		log_warn("node", "no memory for an event");
	lock_release(&n->state_lock);
}

void events_push_fabric(struct node *n, u32 port, u32 what)
{
	struct node_event ev = { .type = NODE_EVENT_FABRIC,
				 .fabric = { .port = port, .what = what } };

	lock_acquire(&n->state_lock);
	if (events_queue(n, &ev) < 0)
		log_warn("node", "no memory for an event");
	lock_release(&n->state_lock);
}

void events_drain(struct node *n)
{
	struct node_event ev;
	u64 refused;
	int err;

	lock_acquire(&n->state_lock);
	do {
		err = events_read(n, &ev, &refused);
		if (err == 0 && events_queue(n, &ev) < 0) {
			events_forget(&ev);
			if (ev.type == NODE_EVENT_PEER_NEW)
				events_pair_remove_locked(n, ev.peer.process);
		}
	} while (err == 0 || err == -EMFILE || err == -ENOMEM);
	events_close_socket(n);
	lock_release(&n->state_lock);
}

int events_replace(struct node *n, int events, const struct directory *directory)
{
	bool first;
	int err;

	lock_acquire(&n->state_lock);
	err = events_watch(n, events);
	if (err == 0) {
		events_close_socket(n);
		n->events = events;
		first = n->directory == NULL;
		directory_unmap(n->directory);
		n->directory = directory;
		for (u32 i = 0; first && i < NODE_DEVICES; i++)
			n->devices[i] = directory_device_id(directory, i);
		events_compare_devices(n);
	}
	lock_release(&n->state_lock);
	return err;
}

bool events_live(struct node *n)
{
	bool live;

	lock_acquire(&n->state_lock);
	live = n->events >= 0;
	lock_release(&n->state_lock);
	return live;
}

int node_event_fd(struct node *n)
{
	return n->wait_fd;
}

/* Takes an event off the list of waiting ones. */
static struct node_event events_remove(struct node *n, struct client_event *c)
	REQUIRES(n->state_lock)
{
	struct node_event ev = c->event;
	u64 count;

	list_remove(&c->node);
	free(c);
	if (list_empty(&n->waiting) && read(n->wake_fd, &count, sizeof(count)) < 0)
		log_debug("node", "nobody had woken the events' thread");
	return ev;
}

static bool events_take_waiting(struct node *n, struct node_event *ev) REQUIRES(n->state_lock)
{
	if (list_empty(&n->waiting))
		return false;
	*ev = events_remove(n, list_first(&n->waiting, struct client_event, node));
	return true;
}

bool node_event_next(struct node *n, struct node_event *ev)
{
	u64 refused;
	int err;

	for (;;) {
		lock_acquire(&n->state_lock);
		err = events_take_waiting(n, ev) ? 0 : events_read(n, ev, &refused);
		lock_release(&n->state_lock);
		if (err != -EMFILE && err != -ENOMEM)
			break;
		client_pair_refuse(n, refused, err);
	}
	if (err == -ECONNRESET)
		*ev = (struct node_event){ .type = NODE_EVENT_LOST };
	return err != -EAGAIN;
}

/* Returns the first waiting event of a type. */
static struct client_event *events_find(struct node *n, enum node_event_type type)
	REQUIRES(n->state_lock)
{
	list_for_each(c, &n->waiting, struct client_event, node)
		if (c->event.type == type)
			return c;
	return NULL;
}

/* Reads the next event of the socket into the list of waiting ones. */
static int events_fetch(struct node *n, u64 *refused) REQUIRES(n->state_lock)
{
	struct node_event ev = { .type = NODE_EVENT_LOST };
	int err = events_read(n, &ev, refused);

	if ((err == 0 || err == -ECONNRESET) && events_queue(n, &ev) < 0) {
		events_forget(&ev);
		err = -ENOMEM;
	}
	return err;
}

bool node_event_take(struct node *n, enum node_event_type type, struct node_event *ev)
{
	struct client_event *c;
	u64 refused = 0;
	int err = 0;

	do {
		lock_acquire(&n->state_lock);
		c = events_find(n, type);
		if (c == NULL)
			err = events_fetch(n, &refused);
		if (c != NULL)
			*ev = events_remove(n, c);
		lock_release(&n->state_lock);
		if (err == -EMFILE || err == -ENOMEM)
			client_pair_refuse(n, refused, err);
	} while (c == NULL && err != -EAGAIN);
	return c != NULL;
}

/* ---- the directory ---- */

int node_device_get(struct node *n, u32 index, struct node_config *out)
{
	struct node_config read;

	if (index >= NODE_DEVICES)
		return -ENODEV;
	lock_acquire(&n->state_lock);
	directory_read_device(n->directory, index, &read);
	lock_release(&n->state_lock);
	if (read.id == 0)
		return -ENODEV;
	*out = read;
	return 0;
}

bool node_slot_is_wire_only(struct node *n, u32 slot)
{
	bool wire_only;

	lock_acquire(&n->state_lock);
	wire_only = directory_slot_is_wire_only(n->directory, slot);
	lock_release(&n->state_lock);
	return wire_only;
}

int node_mcast_members(struct node *n, const u8 gid[16], u32 from, struct node_member *out, int max)
{
	int count;

	lock_acquire(&n->state_lock);
	count = directory_read_members(n->directory, gid, from, out, max);
	lock_release(&n->state_lock);
	return count;
}

/* A node that has ended, and of which this process has not heard, knows nobody who came later. */
static bool events_node_lives(struct node *n) REQUIRES(n->state_lock)
{
	struct pollfd p = { .fd = n->events };

	return n->events >= 0 && poll(&p, 1, 0) >= 0 && (p.revents & (POLLHUP | POLLERR)) == 0;
}

int events_not_shown(struct node *n, bool incomplete)
{
	return incomplete || !events_node_lives(n) ? -EAGAIN : -ENOENT;
}

int node_listener_find(struct node *n, u64 service_id, const u8 *private_data, u32 from, u32 *slot)
{
	bool incomplete;
	u64 process;
	int err = 0;

	lock_acquire(&n->state_lock);
	incomplete = directory_is_incomplete(n->directory);
	if (!directory_read_listener(n->directory, service_id, private_data, from, NULL, &process,
				     slot))
		err = events_not_shown(n, incomplete);
	lock_release(&n->state_lock);
	return err;
}

void node_listening_slots(struct node *n, u64 slots[NODE_SLOTS / 64])
{
	struct directory_listener some[32];
	u32 count, at = 0;

	memset(slots, 0, NODE_SLOTS / 8);
	lock_acquire(&n->state_lock);
	do {
		count = directory_list_listeners(n->directory, &at, some, ARRAY_LEN(some));
		for (u32 i = 0; i < count; i++) {
			if (some[i].slot < NODE_SLOTS)
				slots[some[i].slot / 64] |= 1ull << some[i].slot % 64;
		}
	} while (count == ARRAY_LEN(some));
	lock_release(&n->state_lock);
}
