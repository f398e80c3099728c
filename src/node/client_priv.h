/* client_priv.h: inside the client side of the node.
 *
 * Two locks. request_lock is held across a whole request, waiting included: it orders requests and
 * recovery. state_lock guards what readers and the events' thread share; its sections never wait.
 * Order: request_lock, then state_lock.
 */
#ifndef NODE_CLIENT_PRIV_H
#define NODE_CLIENT_PRIV_H

#include "base/list.h"
#include "node/address.h"
#include "node/message.h"
#include "node/directory.h"
#include "node/place.h"
#include "node/will.h"

enum { NODE_ATTACH_S = 5, NODE_OWNER_MS = 1000 };

struct client_membership {
	u8 gid[16];
	u32 qpn;
} OWNED_BY(node.state_lock);

struct client_listener {
	u64 service_id, mask;
	u32 slot;
	struct node_match match;
} OWNED_BY(node.state_lock or, of a copy, the caller);

struct client_agent {
	struct node_agent agent;
	u32 slot;
} OWNED_BY(node.request_lock);

/* An event that waits for node_event_next after its socket has closed. */
struct client_event {
	struct list_head node;
	struct node_event event;
} OWNED_BY(node.state_lock);

struct node {
	struct node_self self FIXED;
	char name[NODE_NAME_MAX] FIXED;
	u64 process FIXED;
	enum place_scope scope FIXED;
	/* epoll over the events socket and wake_fd; the same after a recovery */
	int wait_fd FIXED;
	int wake_fd FIXED; /* readable while `waiting` is not empty */

	struct lock request_lock;
	int control GUARDED_BY(request_lock);
	u32 serial GUARDED_BY(request_lock);
	int slots_fd GUARDED_BY(request_lock); /* its byte locks hold this process' slots */
	int fdstore_fd GUARDED_BY(request_lock); /* keeps UDP sockets open for the next node */
	u8 slots[PROTO_SLOT_BYTES] GUARDED_BY(request_lock);

	struct client_agent *agents GUARDED_BY(request_lock);
	u32 agent_count GUARDED_BY(request_lock);
	struct node_flow *flows GUARDED_BY(request_lock);
	u32 flow_count GUARDED_BY(request_lock);
	u32 flow_space GUARDED_BY(request_lock);

	struct will_store wills GUARDS_ITSELF;
	struct client_fabric *fabric GUARDED_BY(request_lock); /* NULL: no host is entered */

	struct lock state_lock ACQUIRED_AFTER(request_lock);
	int events GUARDED_BY(state_lock); /* -1: lost */
	const struct directory *directory GUARDED_BY(state_lock);
	u64 recovered_ns GUARDED_BY(state_lock); /* came to another node; 0: never */
	struct list_head waiting GUARDED_BY(state_lock); /* struct client_event */
	u64 *pairs GUARDED_BY(state_lock);
	u32 pair_count GUARDED_BY(state_lock);
	u32 pair_space GUARDED_BY(state_lock);
	/* ids of the devices that this process was told of, 0: none */
	u64 devices[NODE_DEVICES] GUARDED_BY(state_lock);
	struct client_membership *joined GUARDED_BY(state_lock);
	u32 joined_count GUARDED_BY(state_lock);
	u32 joined_space GUARDED_BY(state_lock);
	struct client_listener *listening GUARDED_BY(state_lock);
	u32 listening_count GUARDED_BY(state_lock);
	u32 listening_space GUARDED_BY(state_lock);
};

/* ---- connection.c ---- */

/* Connects to the node, starting one of this scope if none runs. With PLACE_NETWORK one that serves
 * the whole machine counts, too. Returns the socket, or a negative errno as of node_attach. */
int connection_open(const char *name, enum place_scope scope, bool start);

/* ---- client.c ---- */

/* Sends one request on a connected socket and receives its reply. On failure no descriptor is left
 * in *m. */
int client_exchange(int fd, struct proto_head *request, size_t size, const int *fds, int fd_count,
		    struct proto_head *reply, size_t reply_size, struct message *m);
/* Sends one request and receives its reply into *reply (size bytes); descriptors in *m. The reply's
 * status is the result.
 * -ECONNRESET: the node is gone. */
int client_call(struct node *n, void *request, size_t size, const int *fds, int fd_count,
		void *reply, size_t reply_size, struct message *m) REQUIRES(n->request_lock);
int client_recover(struct node *n) REQUIRES(n->request_lock);
/* As client_call. If the node has died, asks the next one. */
int client_request(struct node *n, void *request, size_t size, const int *fds, int fd_count,
		   void *reply, size_t reply_size, struct message *m) REQUIRES(n->request_lock);
void client_head(struct proto_head *head, u16 type);
/* Tells the node why this process cannot take part in the pair with `process`, and says so. May
 * block. */
void client_pair_refuse(struct node *n, u64 process, int err);

/* ---- agent.c ---- */

/* Claims this process' agents of the next node: 0, or -ECONNRESET. */
int client_claim_agents(struct node *n) REQUIRES(n->request_lock);

/* ---- flow.c ---- */

/* Claims this process' flow rules of the next node: 0, or -ECONNRESET. */
int client_claim_flows(struct node *n) REQUIRES(n->request_lock);

/* ---- fabric.c ---- */

/* Enters this process' host again, at the next node: 0, or -ECONNRESET. */
int client_claim_fabric(struct node *n) REQUIRES(n->request_lock);
/* Frees it. */
void client_fabric_close(struct node *n) REQUIRES(n->request_lock);

/* ---- events.c ---- */

int events_init(struct node *n);
void events_destroy(struct node *n);
/* Reads the old socket to its end and closes it; its events wait for node_event_next. */
void events_drain(struct node *n);
/* Takes the events socket and the directory of a node. */
int events_replace(struct node *n, int events, const struct directory *directory);
bool events_live(struct node *n);
/* What the directory does not show: -ENOENT, or -EAGAIN where it may come: `incomplete`, the
 * directory's word from before the look, or this process has not come to the next node yet. */
int events_not_shown(struct node *n, bool incomplete) REQUIRES(n->state_lock);
/* Queues `type` for node_event_next, without a packet. */
void events_push(struct node *n, enum node_event_type type);
/* Queues a NODE_EVENT_FABRIC. */
void events_push_fabric(struct node *n, u32 port, u32 what);
int events_pair_add(struct node *n, u64 process);
void events_pair_remove(struct node *n, u64 process);
/* Copies the numbers of the peers, at most max; returns the count. */
u32 events_pairs(struct node *n, u64 *out, u32 max);
int events_joined_add(struct node *n, const u8 gid[16], u32 qpn);
/* False: the process was no member. */
bool events_joined_remove(struct node *n, const u8 gid[16], u32 qpn);
int events_listener_add(struct node *n, const struct client_listener *l);
/* False: it does not listen there. The slot does not count. */
bool events_listener_remove(struct node *n, const struct client_listener *l);
/* Copies one of them; false: there are not so many. */
bool events_listener_at(struct node *n, u32 index, struct client_listener *out);
void events_close_peer(struct node_peer *peer);
/* Fills *peer from a message whose descriptors begin with the board at `first`; -EMFILE, -EPROTO.
 * Takes no descriptor on failure. */
int events_peer_from(struct message *m, int first, const struct proto_peer *from,
		     struct node_peer *peer);

#endif
