/* agent.c: MAD agents of the processes of a node: who takes which unsolicited MADs, and this
 * process' own claims, which outlive the node.
 * In:    registrations, MADs of any content    Out: requests to the node, slots
 * Runs:  any thread                            Locks: request_lock; state_lock
 * Spec:  IBA vol 1, 13.4.4 (classes), 16.5 (vendor classes)
 */
#include "node/agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "node/client_priv.h"
#include "node/protocol.h"
#include "node/steer.h"

enum {
	AGENT_OUI_FIRST = 0x30, /* vendor classes that have an OUI ... */
	AGENT_OUI_LAST = 0x4f,
	AGENT_OUI = 37, /* ... and where it lies */
	AGENT_VERSION = 2,
	AGENT_AGAIN_MS = 3000, /* asks so long a node that does not know all agents yet */
	AGENT_PAUSE_MS = 2,
};

/* ---- what an agent takes --------------------------------------------------------------------- */

static bool node_agent_has_oui(u8 mgmt_class)
{
	return mgmt_class >= AGENT_OUI_FIRST && mgmt_class <= AGENT_OUI_LAST;
}

bool node_agent_is_valid(const struct node_agent *a)
{
	return a->port != 0 && a->qpn <= 1 && a->mgmt_class != 0 &&
	       a->mgmt_class != STEER_CLASS_CM && (a->methods[0] | a->methods[1]) != 0;
}

bool node_agent_overlaps(const struct node_agent *a, const struct node_agent *b)
{
	return a->device == b->device && a->port == b->port && a->qpn == b->qpn &&
	       a->mgmt_class == b->mgmt_class && a->version == b->version &&
	       (!node_agent_has_oui(a->mgmt_class) ||
		memcmp(a->oui, b->oui, sizeof(a->oui)) == 0) &&
	       ((a->methods[0] & b->methods[0]) | (a->methods[1] & b->methods[1])) != 0;
}

bool node_agent_takes(const struct node_agent *a, u64 device, u8 port, u8 qpn, const u8 *mad)
{
	struct node_agent one = { .device = device,
				  .port = port,
				  .qpn = qpn,
				  .mgmt_class = mad[STEER_CLASS],
				  .version = mad[AGENT_VERSION] };
	u8 method = mad[STEER_METHOD] & (u8)~STEER_METHOD_RESPONSE;

	one.methods[method / 64] = 1ull << method % 64;
	memcpy(one.oui, mad + AGENT_OUI, sizeof(one.oui));
	return node_agent_overlaps(a, &one);
}

/* ---- this process' agents -------------------------------------------------------------------- */

/* One AGENT or AGENT_END, by client_call or client_request. */
static int client_agent_call(struct node *n, u16 type, const struct client_agent *a, bool held,
			     int (*call)(struct node *n, void *request, size_t size,
					 const int *fds, int fd_count, void *reply,
					 size_t reply_size, struct message *m))
	REQUIRES(n->request_lock)
{
	struct proto_agent request = { .agent = a->agent, .slot = a->slot, .held = held };
	struct proto_plain reply;
	struct message m;
	int err;

	client_head(&request.head, type);
	err = call(n, &request, sizeof(request), NULL, 0, &reply, sizeof(reply), &m);
	if (err == 0)
		message_close(&m);
	return err;
}

int client_claim_agents(struct node *n)
{
	int err = 0;

	for (u32 i = 0; i < n->agent_count && err != -ECONNRESET; i++) {
		err = client_agent_call(n, PROTO_AGENT, &n->agents[i], true, client_call);
		/* a device that is gone has no MADs */
		if (err < 0 && err != -ECONNRESET && err != -ENODEV)
			log_warn("node", "a MAD agent is lost: the node refused it");
	}
	return err == -ECONNRESET ? err : 0;
}

static int client_agent_keep(struct node *n, const struct client_agent *a) REQUIRES(n->request_lock)
{
	struct client_agent *grown = realloc(n->agents, (n->agent_count + 1) * sizeof(*grown));

	if (grown == NULL)
		return -ENOMEM;
	n->agents = grown;
	n->agents[n->agent_count++] = *a;
	return 0;
}

/* False: there is none like it. */
static bool client_agent_forget(struct node *n, const struct node_agent *a)
	REQUIRES(n->request_lock)
{
	for (u32 i = 0; i < n->agent_count; i++) {
		if (memcmp(&n->agents[i].agent, a, sizeof(*a)) == 0) {
			n->agents[i] = n->agents[--n->agent_count];
			return true;
		}
	}
	return false;
}

static int client_agent_add(struct node *n, const struct client_agent *a)
{
	int err;

	lock_acquire(&n->request_lock);
	err = client_agent_call(n, PROTO_AGENT, a, false, client_request);
	if (err == 0) {
		err = client_agent_keep(n, a);
		if (err < 0)
			(void)client_agent_call(n, PROTO_AGENT_END, a, false, client_request);
	}
	lock_release(&n->request_lock);
	return err;
}

int node_agent_add(struct node *n, const struct node_agent *agent, u32 slot)
{
	u64 deadline = clock_now_ns() + AGENT_AGAIN_MS * NS_PER_MS;
	struct client_agent a = { .agent = *agent, .slot = slot };
	int err = client_agent_add(n, &a);

	while (err == -EAGAIN && clock_now_ns() < deadline) {
		nanosleep(&(struct timespec){ .tv_nsec = AGENT_PAUSE_MS * NS_PER_MS }, NULL);
		err = client_agent_add(n, &a);
	}
	return err;
}

/* As node_mcast_leave. */
int node_agent_remove(struct node *n, const struct node_agent *agent)
{
	struct client_agent a = { .agent = *agent };
	int err;

	lock_acquire(&n->request_lock);
	err = client_agent_call(n, PROTO_AGENT_END, &a, false, client_request);
	if ((err == 0 || err == -ENOENT) && client_agent_forget(n, agent))
		err = 0;
	lock_release(&n->request_lock);
	return err;
}

int node_agent_find(struct node *n, u64 device, u8 port, u8 qpn, const u8 *mad, u32 *slot)
{
	bool incomplete;
	u64 process;
	int err = 0;

	lock_acquire(&n->state_lock);
	incomplete = directory_is_incomplete(n->directory);
	if (!directory_read_agent(n->directory, device, port, qpn, mad, &process, slot))
		err = events_not_shown(n, incomplete);
	lock_release(&n->state_lock);
	return err;
}
