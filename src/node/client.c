/* client.c: attaching, requests and recovery.
 * In:    calls of the engine and the doors     Out: requests to the node, descriptors of peers
 * Runs:  any thread; may block                 Locks: request_lock, then state_lock
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/limit.h"
#include "base/log.h"
#include "node/await.h"
#include "node/client_priv.h"
#include "node/bind.h"
#include "node/domain.h"
#include "node/successor.h"

void client_head(struct proto_head *head, u16 type)
{
	*head = (struct proto_head){ .magic = PROTO_MAGIC,
				     .version = PROTO_VERSION,
				     .type = type };
}

static void client_bit_set(u8 *bits, u32 i)
{
	bits[i / 8] |= (u8)(1u << (i % 8));
}

/* Translates the peer's error on this socket for the caller. */
static int client_socket_error(int err)
{
	if (err == -EPIPE || err == -ENOTCONN)
		return -ECONNRESET;
	return err == -ETOOMANYREFS ? -ENFILE : err;
}

/* Judges a packet: 0: it is the reply; -EAGAIN: an earlier one; else the result. */
static int client_check_reply(const struct proto_head *request, const struct proto_head *reply,
			      size_t reply_size, const struct message *m)
{
	if (m->size < sizeof(*reply) || reply->magic != PROTO_MAGIC)
		return -EPROTO;
	if (reply->version != PROTO_VERSION) {
		log_error("node", "its version is %u, ours %u: end it with `anyverbs stop`",
			  reply->version, PROTO_VERSION);
		return -EPROTO;
	}
	/* the reply to a request that timed out */
	if (reply->serial != request->serial)
		return -EAGAIN;
	if (reply->status < 0)
		return reply->status;
	if (m->size != reply_size || reply->type != request->type)
		return -EPROTO;
	return m->fds_lost ? -EMFILE : 0;
}

int client_exchange(int fd, struct proto_head *request, size_t size, const int *fds, int fd_count,
		    struct proto_head *reply, size_t reply_size, struct message *m)
{
	struct await wait = { .looks = 0 };
	int err;

	m->fd_count = 0;
	err = message_send(fd, request, size, fds, fd_count);
	if (err < 0)
		return client_socket_error(err);
	for (;;) {
		err = await_reply(fd, &wait);
		if (err < 0)
			return err;
		err = message_receive(fd, reply, reply_size, m);
		if (err == -EAGAIN)
			continue;
		if (err < 0)
			return client_socket_error(err);
		message_own(m);
		err = client_check_reply(request, reply, reply_size, m);
		if (err == 0)
			return 0;
		message_close(m);
		if (err != -EAGAIN || reply->serial == request->serial)
			return err;
	}
}

int client_call(struct node *n, void *request, size_t size, const int *fds, int fd_count,
		void *reply, size_t reply_size, struct message *m)
{
	struct proto_head *head = request;

	if (n->control < 0)
		return -ECONNRESET;
	head->serial = ++n->serial;
	return client_exchange(n->control, head, size, fds, fd_count, reply, reply_size, m);
}

/* Space for a copy of a reply; the largest request has a reply of this kind as well. */
int client_request(struct node *n, void *request, size_t size, const int *fds, int fd_count,
		   void *reply, size_t reply_size, struct message *m)
{
	int err = client_call(n, request, size, fds, fd_count, reply, reply_size, m);

	for (int i = 0; err == -ECONNRESET && i < 3; i++) {
		err = client_recover(n);
		if (err < 0)
			return err;
		err = client_call(n, request, size, fds, fd_count, reply, reply_size, m);
	}
	return err;
}

/* One LISTEN or UNLISTEN, by client_call or client_request. */
static int client_listen(struct node *n, u16 type, const struct client_listener *l,
			 int (*call)(struct node *n, void *request, size_t size, const int *fds,
				     int fd_count, void *reply, size_t reply_size,
				     struct message *m)) REQUIRES(n->request_lock)
{
	struct proto_listen request = { .service_id = l->service_id,
					.mask = l->mask,
					.slot = l->slot,
					.match = l->match };
	struct proto_plain reply;
	struct message m;
	int err;

	client_head(&request.head, type);
	err = call(n, &request, sizeof(request), NULL, 0, &reply, sizeof(reply), &m);
	if (err == 0)
		message_close(&m);
	return err;
}

/* ---- attaching ---- */

static void client_describe(const struct node *n, struct proto_process *who)
{
	memset(who, 0, sizeof(*who));
	who->pid = getpid();
	who->pid_ns = address_pid_ns();
	who->wire_only = n->self.wire_only;
	strncpy(who->command, program_invocation_short_name, sizeof(who->command) - 1);
}

/* Takes the descriptors of the reply to HELLO or RESUME: from here on the process is connected. */
static int client_adopt(struct node *n, int control, const struct proto_hello_reply *reply,
			struct message *m) REQUIRES(n->request_lock)
{
	const struct directory *directory;
	int err;

	if (m->fd_count != 4) {
		err = -EPROTO;
		goto fail;
	}
	directory = directory_map(m->fds[1]);
	if (directory == NULL) {
		err = errno == ENOMEM ? -ENOMEM : -EPROTO;
		goto fail;
	}
	err = events_replace(n, m->fds[0], directory);
	if (err < 0) {
		directory_unmap(directory);
		goto fail;
	}
	message_take_fd(m, 0);
	/* after RESUME the claims have replaced them */
	if (n->slots_fd < 0)
		n->slots_fd = message_take_fd(m, 2);
	if (n->fdstore_fd < 0)
		n->fdstore_fd = message_take_fd(m, 3);
	n->process = reply->process;
	n->control = control;
	bind_use(n->slots_fd);
	domain_renew();
	message_close(m);
	return 0;
fail:
	message_close(m);
	return err;
}

static int client_hello(struct node *n, int control) REQUIRES(n->request_lock)
{
	struct proto_hello hello;
	struct proto_hello_reply reply;
	struct message m;
	int fds[3] = { n->self.board_fd, n->self.bell_fd[0], n->self.bell_fd[1] };
	int err;

	client_head(&hello.head, PROTO_HELLO);
	hello.head.serial = ++n->serial;
	client_describe(n, &hello.who);
	err = client_exchange(control, &hello.head, sizeof(hello), fds, 3, &reply.head,
			      sizeof(reply), &m);
	return err < 0 ? err : client_adopt(n, control, &reply, &m);
}

/* Sends a claim with the descriptor that the process keeps for it, and replaces *kept by the
 * reply's. */
static int client_claim(struct node *n, struct proto_head *request, size_t size, int *kept,
			struct proto_head *reply, size_t reply_size) REQUIRES(n->request_lock)
{
	struct message m;
	int err = client_call(n, request, size, kept, 1, reply, reply_size, &m);

	if (err < 0)
		return err;
	err = m.fd_count == 1 ? 0 : -EPROTO;
	if (err == 0) {
		close(*kept);
		*kept = message_take_fd(&m, 0);
	}
	message_close(&m);
	return err;
}

static int client_claim_slots(struct node *n) REQUIRES(n->request_lock)
{
	struct proto_slot_claim request, reply;
	int err;

	client_head(&request.head, PROTO_SLOT_CLAIM);
	memcpy(request.slots, n->slots, sizeof(request.slots));
	err = client_claim(n, &request.head, sizeof(request), &n->slots_fd, &reply.head,
			   sizeof(reply));
	if (err < 0)
		return err;
	if (memcmp(n->slots, reply.slots, sizeof(n->slots)) != 0)
		log_error("node", "the new node gave some of this process' slots to others");
	memcpy(n->slots, reply.slots, sizeof(n->slots));
	return 0;
}

static int client_claim_sockets(struct node *n) REQUIRES(n->request_lock)
{
	struct proto_plain request, reply;

	client_head(&request.head, PROTO_SOCKETS_CLAIM);
	return client_claim(n, &request.head, sizeof(request), &n->fdstore_fd, &reply.head,
			    sizeof(reply));
}

static int client_claim_pairs(struct node *n) REQUIRES(n->request_lock)
{
	struct proto_pair_claim *request = calloc(1, sizeof(*request));
	struct proto_plain reply;
	struct message m;
	int err;

	if (request == NULL)
		return -ENOMEM;
	client_head(&request->head, PROTO_PAIR_CLAIM);
	request->count = events_pairs(n, request->pairs, PROTO_PAIRS);
	err = client_call(n, request, sizeof(*request), NULL, 0, &reply, sizeof(reply), &m);
	free(request);
	if (err == 0)
		message_close(&m);
	return err;
}

/* A membership that the node refuses is lost; the process continues. */
static int client_claim_groups(struct node *n) REQUIRES(n->request_lock)
{
	struct proto_mcast request = { .qpn = 0 };
	struct proto_plain reply;
	struct message m;
	int err;

	for (u32 i = 0;; i++) {
		lock_acquire(&n->state_lock);
		if (i >= n->joined_count) {
			lock_release(&n->state_lock);
			return 0;
		}
		memcpy(request.gid, n->joined[i].gid, 16);
		request.qpn = n->joined[i].qpn;
		lock_release(&n->state_lock);
		client_head(&request.head, PROTO_MCAST_JOIN);
		err = client_call(n, &request, sizeof(request), NULL, 0, &reply, sizeof(reply),
				  &m);
		if (err == 0)
			message_close(&m);
		if (err == -ECONNRESET)
			return err;
		if (err < 0)
			log_warn("node", "a multicast membership is lost: the node refused it");
	}
}

/* As the claim of groups. */
static int client_claim_listeners(struct node *n) REQUIRES(n->request_lock)
{
	struct client_listener l;

	for (u32 i = 0; events_listener_at(n, i, &l); i++) {
		int err = client_listen(n, PROTO_LISTEN, &l, client_call);

		if (err == -ECONNRESET)
			return err;
		if (err < 0)
			log_warn("node", "a listener is lost: the node refused it");
	}
	return 0;
}

static int client_will(struct node *n,
		       int (*call)(struct node *n, void *request, size_t size, const int *fds,
				   int fd_count, void *reply, size_t reply_size,
				   struct message *m)) REQUIRES(n->request_lock)
{
	struct proto_plain request, reply;
	struct message m;
	int err, fd = will_describe(&n->wills);

	if (fd == -ENOENT)
		return 0;
	if (fd < 0)
		return fd;
	client_head(&request.head, PROTO_WILL);
	err = call(n, &request, sizeof(request), &fd, 1, &reply, sizeof(reply), &m);
	if (err == 0)
		message_close(&m);
	close(fd);
	return err;
}

/* As the claim of groups. */
static int client_claim_wills(struct node *n) REQUIRES(n->request_lock)
{
	int err = client_will(n, client_call);

	if (err < 0 && err != -ECONNRESET)
		log_warn("node", "the node does not take this process' wills: %s", strerror(-err));
	return err == -ECONNRESET ? err : 0;
}

static int client_claim_end(struct node *n) REQUIRES(n->request_lock)
{
	struct proto_plain request, reply;
	struct message m;
	int err;

	client_head(&request.head, PROTO_BACK);
	err = client_call(n, &request, sizeof(request), NULL, 0, &reply, sizeof(reply), &m);
	if (err == 0)
		message_close(&m);
	return err;
}

/* The claims to the next node for what this process held, in the order in which the services expect
 * them. */
static int (*const client_claims[])(struct node *n) = {
	client_claim_slots,
	client_claim_sockets, /* whose sockets belong to the slots' owners */
	client_claim_pairs,
	client_claim_groups,
	client_claim_listeners,
	client_claim_fabric, /* whose devices some agents are for */
	client_claim_agents,
	client_claim_flows,
	client_claim_wills,
	client_claim_end,
};

static int client_resume(struct node *n, int control) REQUIRES(n->request_lock)
{
	struct proto_resume resume;
	struct proto_hello_reply reply;
	struct message m;
	int fds[3] = { n->self.board_fd, n->self.bell_fd[0], n->self.bell_fd[1] };
	int err;

	memset(&resume, 0, sizeof(resume));
	client_head(&resume.head, PROTO_RESUME);
	resume.head.serial = ++n->serial;
	client_describe(n, &resume.who);
	resume.process = n->process;
	err = client_exchange(control, &resume.head, sizeof(resume), fds, 3, &reply.head,
			      sizeof(reply), &m);
	if (err < 0)
		return err;
	n->control = control;
	for (size_t i = 0; i < ARRAY_LEN(client_claims) && err == 0; i++)
		err = client_claims[i](n);
	if (err == 0)
		err = client_adopt(n, control, &reply, &m);
	else
		message_close(&m);
	if (err < 0)
		n->control = -1; /* stays the caller's */
	return err;
}

/* The node is just leaving, or has not noticed yet that the old connection ended. */
static bool client_try_again(int err)
{
	return err == -ECONNRESET || err == -EAGAIN || err == -EPIPE;
}

/* Connects and registers this process, until a deadline. */
static int client_join(struct node *n) REQUIRES(n->request_lock)
{
	u64 deadline = clock_now_ns() + NODE_ATTACH_S * NS_PER_S;
	int control, err;

	do {
		control = connection_open(n->name, n->scope, true);
		if (control < 0)
			return control;
		n->control = control; /* a forked child closes it */
		err = successor_start(n->name, n->scope, control);
		if (err == 0)
			err = n->process == 0 ? client_hello(n, control)
					      : client_resume(n, control);
		if (err == 0)
			return 0;
		n->control = -1;
		close(control);
		nanosleep(&(struct timespec){ .tv_nsec = 2 * NS_PER_MS }, NULL);
	} while (client_try_again(err) && clock_now_ns() < deadline);
	log_error("node", "node %s refused this process: %s", n->name, strerror(-err));
	return client_try_again(err) ? -ECONNREFUSED : err;
}

static struct node *client_create(const struct node_self *self)
{
	struct node *n = calloc(1, sizeof(*n));

	if (n == NULL)
		return NULL;
	n->self = *self;
	n->scope = place_scope_wanted();
	lock_init(&n->request_lock);
	lock_init(&n->state_lock);
	lock_init(&n->wills.lock);
	lock_acquire(&n->request_lock);
	n->control = n->slots_fd = n->fdstore_fd = -1;
	lock_release(&n->request_lock);
	return n;
}

/* Closes this process' descriptors only. */
static void client_destroy(struct node *n)
{
	lock_acquire(&n->request_lock);
	if (n->control >= 0)
		close(n->control);
	if (n->slots_fd >= 0)
		close(n->slots_fd);
	if (n->fdstore_fd >= 0)
		close(n->fdstore_fd);
	free(n->agents);
	free(n->flows);
	client_fabric_close(n);
	lock_release(&n->request_lock);
	will_close(&n->wills);
	events_destroy(n);
	free(n);
}

int node_attach(const struct node_self *self, struct node **out)
{
	struct node *n = client_create(self);
	int err;

	if (n == NULL)
		return -ENOMEM;
	err = address_node_name(n->name);
	if (err < 0) {
		log_error("node", "ANYVERBS_NODE: letters, digits, '.', '_' and '-', at most %d",
			  NODE_NAME_MAX - 1);
		free(n);
		return err;
	}
	err = events_init(n);
	if (err == 0) {
		*out = n;
		lock_acquire(&n->request_lock);
		err = client_join(n);
		lock_release(&n->request_lock);
	}
	if (err < 0) {
		*out = NULL;
		client_destroy(n);
	}
	return err;
}

void node_detach(struct node *n)
{
	struct flock all = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

	if (n == NULL)
		return;
	bind_use(-1);
	lock_acquire(&n->request_lock);
	/* a child that forked may still hold copies of both sockets: shuts the connections down */
	if (n->control >= 0)
		shutdown(n->control, SHUT_RDWR);
	if (n->slots_fd >= 0)
		fcntl(n->slots_fd, F_OFD_SETLK, &all);
	lock_release(&n->request_lock);
	client_destroy(n);
}

void node_drop_in_child(struct node *n)
{
	if (n == NULL)
		return;
	/* another thread of the parent may have held them at the fork */
	lock_init(&n->request_lock);
	lock_init(&n->state_lock);
	will_drop_in_child(&n->wills);
	client_destroy(n);
}

/* ---- recovery ---- */

int client_recover(struct node *n)
{
	int err;

	if (n->control >= 0) {
		shutdown(n->control, SHUT_RDWR);
		close(n->control);
		n->control = -1;
	}
	/* events that the old node sent count in the claims to the new one */
	events_drain(n);
	err = client_join(n);
	if (err < 0)
		return err;
	lock_acquire(&n->state_lock);
	n->recovered_ns = clock_now_ns();
	lock_release(&n->state_lock);
	log_info("node", "attached to a new node as process %llu", (unsigned long long)n->process);
	events_push(n, NODE_EVENT_CONFIG);
	return 0;
}

static bool client_control_lives(struct node *n) REQUIRES(n->request_lock)
{
	struct pollfd p = { .fd = n->control, .events = POLLIN };

	return n->control >= 0 && poll(&p, 1, 0) >= 0 && !(p.revents & (POLLHUP | POLLERR));
}

int node_recover(struct node *n)
{
	int err = 0;

	lock_acquire(&n->request_lock);
	if (!events_live(n) || !client_control_lives(n))
		err = client_recover(n);
	lock_release(&n->request_lock);
	if (err < 0)
		events_push(n, NODE_EVENT_LOST);
	return err;
}

/* ---- requests ---- */

u64 node_process(const struct node *n)
{
	return n->process;
}

int node_slot_take(struct node *n, u32 *slot)
{
	struct proto_plain request;
	struct proto_slot_reply reply;
	struct message m;
	int err;

	client_head(&request.head, PROTO_SLOT_TAKE);
	lock_acquire(&n->request_lock);
	err = client_request(n, &request, sizeof(request), NULL, 0, &reply, sizeof(reply), &m);
	if (err == 0 && reply.slot >= NODE_SLOTS)
		err = -EPROTO;
	if (err == 0) {
		client_bit_set(n->slots, reply.slot);
		*slot = reply.slot;
	}
	lock_release(&n->request_lock);
	if (err == 0)
		message_close(&m);
	return err;
}

/* Judges a reply with sockets and takes them. On failure it takes none. */
static int client_take_sockets(const struct proto_udp_sockets_reply *reply, struct message *m,
			       struct node_socket *out, int max)
{
	int count = (int)MIN(reply->count, (u32)MAX(max, 0));

	if (reply->count > PROTO_FDS || m->fd_count != (int)reply->count) {
		message_close(m);
		return -EPROTO;
	}
	for (int i = 0; i < count; i++) {
		const struct proto_socket *s = &reply->sockets[i];

		out[i] = (struct node_socket){ .fd = message_take_fd(m, i),
					       .gid_index = s->gid_index,
					       .ifindex = s->ifindex,
					       .id = s->id };
		memcpy(out[i].gid, s->gid, 16);
	}
	message_close(m);
	return count;
}

int node_udp_sockets(struct node *n, u32 device, u32 slot, struct node_socket *out, int max)
{
	struct proto_udp_sockets request = { .slot = slot, .device = device };
	struct proto_udp_sockets_reply reply;
	struct message m;
	int err, count = 0;

	client_head(&request.head, PROTO_UDP_SOCKETS);
	lock_acquire(&n->request_lock);
	do {
		err = client_request(n, &request, sizeof(request), NULL, 0, &reply, sizeof(reply),
				     &m);
		if (err == 0)
			err = client_take_sockets(&reply, &m, out + count, max - count);
		count += MAX(err, 0);
		/* the indexes rise, so the loop ends */
		if (err >= 0 && reply.next != 0 && reply.next <= request.from)
			err = -EPROTO;
		request.from = reply.next;
	} while (err >= 0 && reply.next != 0);
	lock_release(&n->request_lock);
	while (err < 0 && count > 0)
		close(out[--count].fd);
	return err < 0 ? err : count;
}

/* Tells the node why this process cannot take part in a pair; the node tells the peer. */
static void client_pair_drop(struct node *n, u64 process, int err) REQUIRES(n->request_lock)
{
	struct proto_pair_end request = { .process = process, .error = err };
	struct proto_plain reply;
	struct message m;

	client_head(&request.head, PROTO_PAIR_DROP);
	/* if the node dies meanwhile, RESUME omits the pair, with the same effect */
	(void)client_call(n, &request, sizeof(request), NULL, 0, &reply, sizeof(reply), &m);
}

void node_say_no_pair(int err)
{
	static pid_t said ATOMIC_ONLY;

	limit_say(&said, "node", "no connection with another process of this host", err);
}

void client_pair_refuse(struct node *n, u64 process, int err)
{
	node_say_no_pair(err);
	lock_acquire(&n->request_lock);
	client_pair_drop(n, process, err);
	lock_release(&n->request_lock);
}

void node_pair_refuse(struct node *n, u64 process, int err)
{
	lock_acquire(&n->request_lock);
	events_pair_remove(n, process);
	client_pair_drop(n, process, err);
	lock_release(&n->request_lock);
}

/* Sends CONNECT once. -EAGAIN: the slot's owner has not found the new node yet. */
static int client_connect(struct node *n, u32 slot, int ring_fd, struct node_peer *out)
	REQUIRES(n->request_lock)
{
	struct proto_connect request = { .slot = slot };
	struct proto_peer reply = { .process = 0 };
	struct node_peer peer;
	struct message m;
	int err;

	client_head(&request.head, PROTO_CONNECT);
	err = client_request(n, &request, sizeof(request), &ring_fd, 1, &reply, sizeof(reply), &m);
	if (err == -EALREADY)
		out->process = reply.process;
	if (err == -EMFILE && reply.head.status == 0 && reply.process != 0)
		client_pair_drop(n, reply.process, err);
	if (err < 0)
		return err;
	err = events_peer_from(&m, 0, &reply, &peer);
	if (err == 0) {
		peer.ring_fd = fd_own_copy(ring_fd);
		err = peer.ring_fd < 0 ? -errno : events_pair_add(n, peer.process);
		if (err < 0)
			events_close_peer(&peer);
	}
	message_close(&m);
	if (err < 0)
		client_pair_drop(n, reply.process, err);
	else
		*out = peer;
	return err;
}

int node_connect(struct node *n, u32 slot, int ring_fd, struct node_peer *out)
{
	u64 deadline = clock_now_ns() + NODE_OWNER_MS * NS_PER_MS;
	int err;

	for (;;) {
		lock_acquire(&n->request_lock);
		err = client_connect(n, slot, ring_fd, out);
		lock_release(&n->request_lock);
		if (err != -EAGAIN || clock_now_ns() >= deadline)
			return err;
		nanosleep(&(struct timespec){ .tv_nsec = 2 * NS_PER_MS }, NULL);
	}
}

static int client_mcast(struct node *n, u16 type, const u8 gid[16], u32 qpn)
	REQUIRES(n->request_lock)
{
	struct proto_mcast request = { .qpn = qpn };
	struct proto_plain reply;
	struct message m;
	int err;

	client_head(&request.head, type);
	memcpy(request.gid, gid, 16);
	err = client_request(n, &request, sizeof(request), NULL, 0, &reply, sizeof(reply), &m);
	if (err == 0)
		message_close(&m);
	return err;
}

int node_mcast_join(struct node *n, const u8 gid[16], u32 qpn)
{
	int err;

	lock_acquire(&n->request_lock);
	err = client_mcast(n, PROTO_MCAST_JOIN, gid, qpn);
	if (err == 0) {
		err = events_joined_add(n, gid, qpn);
		if (err < 0)
			(void)client_mcast(n, PROTO_MCAST_LEAVE, gid, qpn);
	}
	lock_release(&n->request_lock);
	return err;
}

int node_mcast_leave(struct node *n, const u8 gid[16], u32 qpn)
{
	int err;

	lock_acquire(&n->request_lock);
	err = client_mcast(n, PROTO_MCAST_LEAVE, gid, qpn);
	/* A membership that the next node refused is lost already. If the node could not be asked,
	 * the process is still a member, also to the next node. */
	if ((err == 0 || err == -ENOENT) && events_joined_remove(n, gid, qpn))
		err = 0;
	lock_release(&n->request_lock);
	return err;
}

static struct client_listener client_listener_of(u64 service_id, u64 mask,
						 const struct node_match *match, u32 slot)
{
	struct client_listener l = { .service_id = service_id & mask, .mask = mask, .slot = slot };

	for (u32 i = 0; match != NULL && i < NODE_MATCH; i++) {
		l.match.mask[i] = match->mask[i];
		l.match.data[i] = match->data[i] & match->mask[i];
	}
	return l;
}

int node_listen(struct node *n, u64 service_id, u64 mask, const struct node_match *match, u32 slot)
{
	struct client_listener l = client_listener_of(service_id, mask, match, slot);
	int err;

	lock_acquire(&n->request_lock);
	err = client_listen(n, PROTO_LISTEN, &l, client_request);
	if (err == 0) {
		err = events_listener_add(n, &l);
		if (err < 0)
			(void)client_listen(n, PROTO_UNLISTEN, &l, client_request);
	}
	lock_release(&n->request_lock);
	return err;
}

/* As node_mcast_leave. */
int node_unlisten(struct node *n, u64 service_id, u64 mask, const struct node_match *match)
{
	struct client_listener l = client_listener_of(service_id, mask, match, 0);
	int err;

	lock_acquire(&n->request_lock);
	err = client_listen(n, PROTO_UNLISTEN, &l, client_request);
	if ((err == 0 || err == -ENOENT) && events_listener_remove(n, &l))
		err = 0;
	lock_release(&n->request_lock);
	return err;
}

int node_will_set(struct node *n, u32 index, const struct node_will *will)
{
	return will_set(&n->wills, index, will);
}

bool node_will_next(struct node *n, u32 *index, struct node_will *out)
{
	return will_next(&n->wills, index, out);
}

int node_will_offer(struct node *n)
{
	int err;

	lock_acquire(&n->request_lock);
	err = client_will(n, client_request);
	lock_release(&n->request_lock);
	return err;
}
