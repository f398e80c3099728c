/* fabric.c: a process on a host of the fabric: entering it, its maps and its MAD channel.
 *
 * The channel's descriptor keeps its number for the life of the process: the next node's socket
 * takes the place of the last one's by dup3, so that senders need no lock. Receivers watch an epoll
 * descriptor around it.
 * In:    calls of the adapter, MADs of the node     Out: requests, MADs
 * Runs:  any thread                                 Locks: request_lock, then state_lock
 */
#include "node/fabric.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "node/bind.h"
#include "node/hostip.h"
#include "node/client_priv.h"
#include "node/protocol.h"

_Static_assert(sizeof(struct node_fabric_mad) == sizeof(struct proto_fabric_mad) &&
		       offsetof(struct node_fabric_mad, mad) ==
			       offsetof(struct proto_fabric_mad, mad),
	       "a packet of the channel is received in place");

/* A port at which this process is a subnet manager: while the pipe has a reader. */
struct client_sm {
	u32 port;
	int pipe; /* the writing end, for the next node */
} OWNED_BY(node.request_lock);

/* A membership or subscription of this process at the SA. */
struct client_member {
	struct list_head node;
	struct node_sa_name name;
	u16 pkey;
	u8 states;
} OWNED_BY(node.request_lock);

struct client_fabric {
	struct node_fabric shown FIXED; /* what the caller sees; first */
	struct node *node FIXED;
	char host[NODE_HOST_NAME] FIXED;
	int channel FIXED;
	int watch FIXED; /* epoll */
	void *map FIXED;
	void *counters FIXED;
	size_t map_bytes FIXED;
	size_t counters_bytes FIXED;
	u32 first_port[NODE_HOST_CAS] FIXED;
	u32 ports[NODE_HOST_CAS] FIXED;
	bool gone OWNED_BY(node.request_lock); /* the next node carries another fabric */
	struct client_sm sm[NODE_HOST_CAS] OWNED_BY(node.request_lock);
	u32 sm_count OWNED_BY(node.request_lock);
	struct list_head members OWNED_BY(node.request_lock); /* struct client_member */
};

/* Of the process, which enters one host; NULL: none. */
static struct client_fabric *client_fabric_at_hand ATOMIC_ONLY;

static const struct client_fabric *client_fabric_of(const struct node_fabric *f)
{
	return container_of(f, struct client_fabric, shown);
}

static bool client_fabric_has(const struct client_fabric *f, u32 port)
{
	for (u32 i = 0; i < f->shown.ca_count; i++)
		if (port > f->first_port[i] && port - f->first_port[i] <= f->ports[i])
			return true;
	return false;
}

/* ---- the maps -------------------------------------------------------------------------------- */

static void *client_map(int fd, int prot, size_t *bytes)
{
	struct stat st;
	void *map;

	if (fstat(fd, &st) < 0 || st.st_size <= 0)
		return NULL;
	map = mmap(NULL, (size_t)st.st_size, prot, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return NULL;
	*bytes = (size_t)st.st_size;
	return map;
}

static int client_fabric_map(struct client_fabric *f, const struct message *m)
{
	int err;

	f->map = client_map(m->fds[0], PROT_READ, &f->map_bytes);
	f->counters = client_map(m->fds[1], PROT_READ | PROT_WRITE, &f->counters_bytes);
	if (f->map == NULL || f->counters == NULL)
		return -ENOMEM;
	err = fabric_view_open(&f->shown.view, f->map, f->map_bytes);
	if (err == 0)
		err = fabric_counters_open(&f->shown.counters, f->counters, f->counters_bytes,
					   &f->shown.view);
	return err < 0 ? -EPROTO : 0;
}

static int client_fabric_read_cas(struct client_fabric *f, const struct proto_fabric_entered *e)
{
	struct fabric_node_attr n;

	if (e->ca_count == 0 || e->ca_count > NODE_HOST_CAS)
		return -EPROTO;
	f->shown.ca_count = e->ca_count;
	memcpy(f->shown.ca, e->ca, sizeof(f->shown.ca));
	for (u32 i = 0; i < e->ca_count; i++) {
		if (fabric_node_read(&f->shown.view, e->ca[i], &n) < 0)
			return -EPROTO;
		f->first_port[i] = n.first_port;
		f->ports[i] = n.ports;
	}
	return 0;
}

static void client_fabric_free(struct client_fabric *f)
{
	if (f->map != NULL)
		munmap(f->map, f->map_bytes);
	if (f->counters != NULL)
		munmap(f->counters, f->counters_bytes);
	if (f->channel >= 0)
		close(f->channel);
	if (f->watch >= 0)
		close(f->watch);
	for (u32 i = 0; i < f->sm_count; i++)
		close(f->sm[i].pipe);
	list_for_each_safe(m, &f->members, struct client_member, node)
		free(m);
	free(f);
}

void client_fabric_close(struct node *n)
{
	if (__atomic_load_n(&client_fabric_at_hand, __ATOMIC_RELAXED) == n->fabric)
		__atomic_store_n(&client_fabric_at_hand, NULL, __ATOMIC_RELEASE);
	if (n->fabric != NULL)
		client_fabric_free(n->fabric);
	n->fabric = NULL;
}

/* ---- entering -------------------------------------------------------------------------------- */

/* One FABRIC_ENTER, by client_call or client_request; with three descriptors. */
static int client_fabric_ask(struct node *n, const char *host, struct proto_fabric_entered *reply,
			     struct message *m,
			     int (*call)(struct node *n, void *request, size_t size, const int *fds,
					 int fd_count, void *reply, size_t reply_size,
					 struct message *m)) REQUIRES(n->request_lock)
{
	struct proto_fabric_enter request;
	int err;

	memset(&request, 0, sizeof(request));
	client_head(&request.head, PROTO_FABRIC_ENTER);
	memcpy(request.host, host, strnlen(host, sizeof(request.host) - 1));
	err = call(n, &request, sizeof(request), NULL, 0, reply, sizeof(*reply), m);
	if (err == 0 && m->fd_count != 3) {
		message_close(m);
		err = -EPROTO;
	}
	return err;
}

static int client_fabric_watch(struct client_fabric *f)
{
	struct epoll_event ev = { .events = EPOLLIN };

	return epoll_ctl(f->watch, EPOLL_CTL_ADD, f->channel, &ev) < 0 ? -errno : 0;
}

static struct client_fabric *client_fabric_new(struct node *n, const char *host)
{
	struct client_fabric *f = calloc(1, sizeof(*f));

	if (f == NULL)
		return NULL;
	f->node = n;
	memcpy(f->host, host, strlen(host));
	f->channel = f->watch = -1;
	list_init(&f->members);
	return f;
}

static int client_fabric_enter(struct node *n, const char *host) REQUIRES(n->request_lock)
{
	struct proto_fabric_entered reply;
	struct client_fabric *f = client_fabric_new(n, host);
	struct message m;
	int err;

	if (f == NULL)
		return -ENOMEM;
	f->watch = fd_own(epoll_create1(EPOLL_CLOEXEC));
	err = f->watch < 0 ? -errno :
			     client_fabric_ask(n, host, &reply, &m, client_request);
	if (err == 0) {
		err = client_fabric_map(f, &m);
		if (err == 0)
			err = client_fabric_read_cas(f, &reply);
		f->channel = message_take_fd(&m, 2);
		message_close(&m);
		if (err == 0)
			err = client_fabric_watch(f);
	}
	if (err == 0) {
		n->fabric = f;
		__atomic_store_n(&client_fabric_at_hand, f, __ATOMIC_RELEASE);
		bind_set_host((u16)(f->shown.ca[0] + 1));
	} else {
		client_fabric_free(f);
	}
	return err;
}

int node_fabric_enter(struct node *n, const char *host, const struct node_fabric **out)
{
	int err;

	if (strlen(host) >= NODE_HOST_NAME)
		return -ENOENT;
	lock_acquire(&n->request_lock);
	err = n->fabric != NULL ? -EALREADY : client_fabric_enter(n, host);
	if (err == 0)
		*out = &n->fabric->shown;
	lock_release(&n->request_lock);
	return err;
}

/* ---- the next node --------------------------------------------------------------------------- */

/* Is what the node sends the map of the same fabric? */
static bool client_fabric_is_same(const struct client_fabric *f, int fd)
{
	struct fabric_view v;
	size_t bytes = 0;
	void *map = client_map(fd, PROT_READ, &bytes);
	bool same = map != NULL && bytes == f->map_bytes && fabric_view_open(&v, map, bytes) == 0 &&
		    fabric_identity(&v) == fabric_identity(&f->shown.view);

	if (map != NULL)
		munmap(map, bytes);
	return same;
}

/* The new channel takes the number of the old one. */
static int client_fabric_replace(struct client_fabric *f, int channel)
{
	int err = 0;

	lock_acquire(&f->node->state_lock);
	/* a child of fork may hold the old one, which the epoll set would then go on watching */
	(void)epoll_ctl(f->watch, EPOLL_CTL_DEL, f->channel, NULL);
	if (dup3(channel, f->channel, O_CLOEXEC) < 0)
		err = -errno;
	if (err == 0)
		err = client_fabric_watch(f);
	lock_release(&f->node->state_lock);
	return err;
}

static int client_fabric_say_sm(struct node *n, const struct client_sm *sm,
				int (*call)(struct node *n, void *request, size_t size,
					    const int *fds, int fd_count, void *reply,
					    size_t reply_size, struct message *m))
	REQUIRES(n->request_lock)
{
	struct proto_fabric_issm request = { .port = sm->port };
	struct proto_plain reply;
	struct message m;
	int err;

	client_head(&request.head, PROTO_FABRIC_ISSM);
	err = call(n, &request, sizeof(request), &sm->pipe, 1, &reply, sizeof(reply), &m);
	if (err == 0)
		message_close(&m);
	return err;
}

/* Forgets the pipes that the program has closed. */
static void client_fabric_prune_sms(struct node *n) REQUIRES(n->request_lock)
{
	struct client_fabric *f = n->fabric;
	u32 left = 0;

	for (u32 i = 0; i < f->sm_count; i++) {
		struct pollfd fd = { .fd = f->sm[i].pipe };

		if (poll(&fd, 1, 0) > 0)
			close(f->sm[i].pipe);
		else
			f->sm[left++] = f->sm[i];
	}
	f->sm_count = left;
}

static int client_fabric_claim_sms(struct node *n) REQUIRES(n->request_lock)
{
	struct client_fabric *f = n->fabric;
	int err = 0;

	client_fabric_prune_sms(n);
	for (u32 i = 0; i < f->sm_count && err != -ECONNRESET; i++)
		err = client_fabric_say_sm(n, &f->sm[i], client_call);
	return err == -ECONNRESET ? err : 0;
}

static int client_fabric_say_member(struct node *n, const struct client_member *member,
				    int (*call)(struct node *n, void *request, size_t size,
						const int *fds, int fd_count, void *reply,
						size_t reply_size, struct message *m))
	REQUIRES(n->request_lock)
{
	struct proto_fabric_member request = { .name = member->name,
					       .pkey = member->pkey,
					       .states = member->states };
	struct proto_plain reply;
	struct message m;
	int err;

	client_head(&request.head, PROTO_FABRIC_MEMBER);
	err = call(n, &request, sizeof(request), NULL, 0, &reply, sizeof(reply), &m);
	if (err == 0)
		message_close(&m);
	return err;
}

static int client_fabric_claim_members(struct node *n) REQUIRES(n->request_lock)
{
	int err;

	list_for_each(m, &n->fabric->members, struct client_member, node) {
		err = client_fabric_say_member(n, m, client_call);
		if (err == -ECONNRESET)
			return err;
		if (err < 0)
			log_warn("node", "a group or subscription is ended by this process alone");
	}
	return 0;
}

/* A fabric that has gone takes its devices with it. */
static void client_fabric_lose(struct node *n) REQUIRES(n->request_lock)
{
	struct client_fabric *f = n->fabric;

	log_error("node", "the fabric of host %s is gone", f->host);
	f->gone = true;
	(void)epoll_ctl(f->watch, EPOLL_CTL_DEL, f->channel, NULL);
	events_push_fabric(n, FABRIC_NONE, (u32)NODE_FABRIC_GONE);
}

int client_claim_fabric(struct node *n)
{
	struct client_fabric *f = n->fabric;
	struct proto_fabric_entered reply;
	struct message m;
	int err;

	if (f == NULL || f->gone)
		return 0;
	err = client_fabric_ask(n, f->host, &reply, &m, client_call);
	if (err == -ECONNRESET)
		return err;
	if (err == 0) {
		if (client_fabric_is_same(f, m.fds[0]))
			err = client_fabric_replace(f, m.fds[2]);
		else
			err = -ESTALE;
		message_close(&m);
	}
	if (err < 0) {
		client_fabric_lose(n);
		return 0;
	}
	/* what was told meanwhile is lost: the consumer looks at its ports again */
	events_push_fabric(n, FABRIC_NONE, NODE_FABRIC_ROUTES | NODE_FABRIC_AGAIN);
	err = client_fabric_claim_sms(n);
	return err < 0 ? err : client_fabric_claim_members(n);
}

/* ---- MADs ------------------------------------------------------------------------------------ */

const char *node_fabric_host(void)
{
	const char *host = getenv("ANYVERBS_HOST");

	return host == NULL || host[0] == '\0' ? NULL : host;
}

/* A host with several CAs is known by the first. */
static bool client_fabric_same_host(const struct fabric_view *view, u32 a, u32 b)
{
	struct fabric_node_attr one, other;
	size_t n;

	if (a == b)
		return true;
	if (fabric_node_read(view, a, &one) != 0 || fabric_node_read(view, b, &other) != 0)
		return false;
	n = strcspn(one.desc, " ");
	return n == strcspn(other.desc, " ") && memcmp(one.desc, other.desc, n) == 0;
}

bool node_fabric_is_at(const struct node_fabric *f, u32 slot, u32 port)
{
	struct node *n = client_fabric_of(f)->node;
	struct fabric_port_attr p;
	u32 host = 0;

	lock_acquire(&n->state_lock);
	if (n->directory != NULL && slot < NODE_SLOTS)
		host = __atomic_load_n(&n->directory->slot_host[slot], __ATOMIC_RELAXED);
	lock_release(&n->state_lock);
	return host == 0 || (fabric_port_read(&f->view, port, &p) == 0 &&
			     client_fabric_same_host(&f->view, host - 1, p.node));
}

int node_fabric_send(const struct node_fabric *nf, u32 port, const struct fabric_mad *mad)
{
	const struct client_fabric *f = client_fabric_of(nf);
	struct proto_fabric_mad packet = { .port = port, .mad = *mad };
	ssize_t n;

	if (!client_fabric_has(f, port))
		return -EINVAL;
	do {
		n = send(f->channel, &packet, sizeof(packet), MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 && (errno == EAGAIN || errno == ENOBUFS) ? -EAGAIN : 0;
}

void node_fabric_refuse(const struct node_fabric *nf, u32 port, const struct fabric_violation *v)
{
	const struct client_fabric *f = client_fabric_of(nf);
	struct proto_fabric_refused packet = { .port = port,
					       .key = v->key,
					       .is_qkey = v->is_qkey,
					       .src_qp = v->src_qp,
					       .dst_qp = v->dst_qp,
					       .slid = v->slid,
					       .dlid = v->dlid,
					       .sl = v->sl };

	if (client_fabric_has(f, port))
		(void)send(f->channel, &packet, sizeof(packet), MSG_DONTWAIT | MSG_NOSIGNAL);
}

int node_fabric_fd(const struct node_fabric *nf)
{
	return client_fabric_of(nf)->watch;
}

/* The node has died: its end would stay readable until the next one's takes its place, which
 * another thread may have done just now. */
static void client_fabric_unwatch(const struct client_fabric *f)
{
	char byte;

	lock_acquire(&f->node->state_lock);
	if (recv(f->channel, &byte, sizeof(byte), MSG_DONTWAIT | MSG_PEEK) == 0)
		(void)epoll_ctl(f->watch, EPOLL_CTL_DEL, f->channel, NULL);
	lock_release(&f->node->state_lock);
}

u32 node_fabric_receive(const struct node_fabric *nf, struct node_fabric_mad *out, u32 max)
{
	const struct client_fabric *f = client_fabric_of(nf);
	struct mmsghdr msgs[NODE_FABRIC_BATCH];
	struct iovec iov[NODE_FABRIC_BATCH];
	u32 good = 0;
	int n;

	max = MIN(max, (u32)NODE_FABRIC_BATCH);
	memset(msgs, 0, max * sizeof(*msgs));
	for (u32 i = 0; i < max; i++) {
		iov[i] = (struct iovec){ &out[i], sizeof(*out) };
		msgs[i].msg_hdr.msg_iov = &iov[i];
		msgs[i].msg_hdr.msg_iovlen = 1;
	}
	n = recvmmsg(f->channel, msgs, max, MSG_DONTWAIT, NULL);
	for (int i = 0; i < n; i++) {
		if (msgs[i].msg_len != sizeof(*out) || !client_fabric_has(f, out[i].port))
			continue;
		if (good != (u32)i)
			out[good] = out[i];
		good++;
	}
	if (n > 0 && msgs[n - 1].msg_len == 0)
		client_fabric_unwatch(f);
	return good;
}

/* ---- the subnet manager's bit ---------------------------------------------------------------- */

static int client_fabric_add_sm(struct node *n, u32 port, int pipe) REQUIRES(n->request_lock)
{
	struct client_sm sm = { .port = port, .pipe = pipe };
	struct client_fabric *f = n->fabric;
	int err;

	client_fabric_prune_sms(n);
	if (f->gone)
		return -ENODEV;
	if (f->sm_count == NODE_HOST_CAS)
		return -EMFILE;
	err = client_fabric_say_sm(n, &sm, client_request);
	if (err == 0)
		f->sm[f->sm_count++] = sm;
	return err;
}

int node_fabric_issm(const struct node_fabric *nf, u32 port, int *fd)
{
	struct node *n = client_fabric_of(nf)->node;
	int ends[2], err;

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	ends[1] = fd_own(ends[1]);
	lock_acquire(&n->request_lock);
	err = client_fabric_add_sm(n, port, ends[1]);
	lock_release(&n->request_lock);
	if (err == 0) {
		*fd = ends[0];
		return 0;
	}
	close(ends[0]);
	close(ends[1]);
	return err;
}

/* ---- groups and subscriptions at the SA ------------------------------------------------------ */

static struct client_member *client_fabric_find_member(struct node *n,
						       const struct node_sa_name *name)
	REQUIRES(n->request_lock)
{
	list_for_each(m, &n->fabric->members, struct client_member, node)
		if (memcmp(&m->name, name, sizeof(*name)) == 0)
			return m;
	return NULL;
}

static struct client_member *client_fabric_new_member(struct node *n,
						      const struct node_sa_name *name)
	REQUIRES(n->request_lock)
{
	struct client_member *m = calloc(1, sizeof(*m));

	if (m == NULL)
		return NULL;
	m->name = *name;
	list_push_back(&n->fabric->members, &m->node);
	return m;
}

/* Kept only if the node takes it, or is a member no more. */
static int client_fabric_set_member(struct node *n, struct client_member *m, u16 pkey, u8 states)
	REQUIRES(n->request_lock)
{
	struct client_member wanted = *m;
	int err;

	wanted.pkey = pkey;
	wanted.states = states;
	err = client_fabric_say_member(n, &wanted, client_request);
	if (err == 0 || states == 0) {
		m->pkey = pkey;
		m->states = states;
	}
	if (m->states == 0) {
		list_remove(&m->node);
		free(m);
	}
	return err;
}

int node_fabric_member(const struct node_fabric *nf, const struct node_sa_name *name, u16 pkey,
		       u8 states)
{
	struct node *n = client_fabric_of(nf)->node;
	struct client_member *m;
	int err = 0;

	lock_acquire(&n->request_lock);
	m = client_fabric_find_member(n, name);
	if (n->fabric->gone)
		err = -ENODEV;
	else if (m == NULL && states != 0)
		m = client_fabric_new_member(n, name);
	if (err == 0 && m == NULL)
		err = states != 0 ? -ENOMEM : 0;
	else if (err == 0)
		err = client_fabric_set_member(n, m, pkey, states);
	lock_release(&n->request_lock);
	return err;
}

/* ---- addresses ------------------------------------------------------------------------------- */

static const struct client_fabric *client_fabric_mine(void)
{
	return __atomic_load_n(&client_fabric_at_hand, __ATOMIC_ACQUIRE);
}

static void client_fabric_gid(const struct fabric_port_attr *p, u8 gid[16])
{
	u64 prefix = htobe64(p->gid_prefix), guid = htobe64(p->guid);

	memcpy(gid, &prefix, 8);
	memcpy(gid + 8, &guid, 8);
}

int node_hostip_find(const u8 ip[16], struct node_hostip *out)
{
	static const u8 mapped[12] = { [10] = 0xff, [11] = 0xff };
	const struct client_fabric *f = client_fabric_mine();
	struct fabric_port_attr p;
	u32 v4, port;

	if (f == NULL)
		return -ENODEV;
	memcpy(&v4, ip + 12, sizeof(v4));
	v4 = be32toh(v4);
	if (memcmp(ip, mapped, sizeof(mapped)) != 0 || !fabric_ip_is_host(v4))
		return -EADDRNOTAVAIL;
	port = fabric_ip_port(&f->shown.view, v4);
	if (port == FABRIC_NONE || fabric_port_read(&f->shown.view, port, &p) != 0)
		return -EHOSTUNREACH;
	client_fabric_gid(&p, out->gid);
	out->own = client_fabric_has(f, port);
	return 0;
}

int node_hostip_port(const u8 gid[16], u32 *port)
{
	const struct client_fabric *f = client_fabric_mine();
	struct fabric_port_attr p;
	u8 has[16];

	if (f == NULL)
		return -ENODEV;
	for (u32 i = 0; i < f->shown.ca_count; i++) {
		for (u32 n = 1; n <= f->ports[i]; n++) {
			if (fabric_port_read(&f->shown.view, f->first_port[i] + n, &p) != 0)
				continue;
			client_fabric_gid(&p, has);
			/* the prefix may change while the port has the GUID */
			if (memcmp(has + 8, gid + 8, 8) != 0)
				continue;
			*port = f->first_port[i] + n;
			return 0;
		}
	}
	return -ENOENT;
}

int node_hostip_of(const u8 gid[16], u8 ip[16])
{
	const struct client_fabric *f = client_fabric_mine();
	u32 port, v4;
	int err = node_hostip_port(gid, &port);

	if (err != 0)
		return err;
	v4 = htobe32(fabric_ip_of(&f->shown.view, port));
	if (v4 == 0)
		return -ENOENT;
	memset(ip, 0, 16);
	ip[10] = ip[11] = 0xff;
	memcpy(ip + 12, &v4, sizeof(v4));
	return 0;
}
