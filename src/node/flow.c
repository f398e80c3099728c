/* flow.c: flow rules of the processes of a node: which frames go to others, and this process' own
 * claims, which outlive the node.
 * In:    rules of raw packet queue pairs       Out: requests to the node, rules of others
 * Runs:  any thread                            Locks: request_lock; state_lock
 */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "node/client_priv.h"
#include "node/protocol.h"

/* So long after this process has come to another node, others may still be on their way there. */
#define FLOW_RESUME_NS (500 * NS_PER_MS)

/* One FLOW or FLOW_END, by client_call or client_request. FLOW sets flow->serial. */
static int client_flow_call(struct node *n, u16 type, struct node_flow *flow, bool held,
			    int (*call)(struct node *n, void *request, size_t size, const int *fds,
					int fd_count, void *reply, size_t reply_size,
					struct message *m)) REQUIRES(n->request_lock)
{
	struct proto_flow request = { .flow = *flow, .held = held };
	struct proto_flow_reply reply;
	struct proto_plain plain;
	struct message m;
	bool adds = type == PROTO_FLOW;
	int err;

	client_head(&request.head, type);
	err = call(n, &request, sizeof(request), NULL, 0, adds ? (void *)&reply : (void *)&plain,
		   adds ? sizeof(reply) : sizeof(plain), &m);
	if (err < 0)
		return err;
	message_close(&m);
	if (adds)
		flow->serial = reply.serial;
	return 0;
}

int client_claim_flows(struct node *n)
{
	int err = 0;

	for (u32 i = 0; i < n->flow_count && err != -ECONNRESET; i++) {
		err = client_flow_call(n, PROTO_FLOW, &n->flows[i], true, client_call);
		/* a device that is gone has no frames */
		if (err < 0 && err != -ECONNRESET && err != -ENODEV)
			log_warn("node", "a flow rule is lost: the node refused it");
	}
	return err == -ECONNRESET ? err : 0;
}

static int client_flow_keep(struct node *n, const struct node_flow *flow) REQUIRES(n->request_lock)
{
	u32 space = n->flow_space == 0 ? 16 : n->flow_space * 2;
	struct node_flow *grown;

	if (n->flow_count == n->flow_space) {
		grown = realloc(n->flows, space * sizeof(*grown));
		if (grown == NULL)
			return -ENOMEM;
		n->flows = grown;
		n->flow_space = space;
	}
	n->flows[n->flow_count++] = *flow;
	return 0;
}

int node_flow_add(struct node *n, struct node_flow *flow)
{
	int err;

	lock_acquire(&n->request_lock);
	err = client_flow_call(n, PROTO_FLOW, flow, false, client_request);
	if (err == 0) {
		err = client_flow_keep(n, flow);
		if (err < 0)
			(void)client_flow_call(n, PROTO_FLOW_END, flow, false, client_request);
	}
	lock_release(&n->request_lock);
	return err;
}

/* As node_mcast_leave: gone here, it is gone, whatever the node says. */
int node_flow_remove(struct node *n, u64 serial)
{
	struct node_flow flow = { .serial = serial };
	int err = -ENOENT;

	lock_acquire(&n->request_lock);
	for (u32 i = 0; i < n->flow_count && err != 0; i++) {
		if (n->flows[i].serial != serial)
			continue;
		n->flows[i] = n->flows[--n->flow_count];
		err = 0;
	}
	if (err == 0)
		err = client_flow_call(n, PROTO_FLOW_END, &flow, false, client_request);
	lock_release(&n->request_lock);
	return err;
}

u64 node_flow_generation(struct node *n)
{
	u64 generation;

	lock_acquire(&n->state_lock);
	generation = directory_flow_generation(n->directory);
	lock_release(&n->state_lock);
	return generation;
}

int node_flow_list(struct node *n, u64 device, struct node_flow *out, int max)
{
	int count = -EAGAIN;

	lock_acquire(&n->state_lock);
	if (n->recovered_ns == 0 || clock_now_ns() - n->recovered_ns >= FLOW_RESUME_NS)
		count = (int)directory_list_flows(n->directory, device, n->process, out, (u32)max);
	lock_release(&n->state_lock);
	return count;
}
