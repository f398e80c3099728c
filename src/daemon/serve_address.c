/* serve_address.c: addresses and their UDP sockets.
 * In:    UDP_SOCKETS, _CLAIM, ADDRESSES       Out: members of SO_REUSEPORT groups
 * Runs:  the daemon's only thread             Locks: none
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "daemon/service.h"

/* Replies with as many sockets as one reply carries. */
static int serve_udp_sockets(struct request *r)
{
	const struct proto_udp_sockets *q = &r->q->udp_sockets;
	const struct node_config *c;
	struct proto_udp_sockets_reply reply;
	int fds[PROTO_FDS], err = 0;

	memset(&reply, 0, sizeof(reply));
	if (q->device >= NODE_DEVICES || r->daemon->directory->devices[q->device].id == 0)
		return -ENODEV;
	c = &r->daemon->directory->devices[q->device];
	if (q->slot >= NODE_SLOTS || slots_owner(&r->daemon->slots, q->slot) != r->proc->process)
		return -ENOENT;
	for (u32 i = q->from; i < NODE_GIDS; i++) {
		struct proto_socket *out = &reply.sockets[reply.count];
		struct reuseport_group *g = daemon_udp_find(&r->daemon->udp, c->gids[i].gid);
		const struct udp_member *m;

		if (g == NULL || !(c->gids[i].flags & NODE_GID_WIRE))
			continue;
		if (reply.count == PROTO_FDS) {
			reply.next = i;
			break;
		}
		m = daemon_udp_member_of(&r->daemon->udp, g, q->slot, &err);
		if (m == NULL)
			return err;
		memcpy(out->gid, g->gid, 16);
		out->id = m->id;
		out->gid_index = i;
		out->ifindex = g->ifindex;
		fds[reply.count++] = m->fd;
	}
	service_reply(r, &reply.head, sizeof(reply), 0, fds, (int)reply.count);
	return 0;
}

static int serve_addresses(struct request *r)
{
	struct proto_addresses_reply reply;

	memset(&reply, 0, sizeof(reply));
	reply.count = daemon_udp_report(&r->daemon->udp, reply.addresses);
	service_reply(r, &reply.head, sizeof(reply), 0, NULL, 0);
	return 0;
}

static bool serve_slot_in_use(void *arg, u32 slot)
{
	return slots_owner(arg, slot) != 0;
}

/* Takes the UDP sockets that the last node left, unless another process has brought them. */
static int serve_sockets_claim(struct request *r)
{
	struct daemon *d = r->daemon;
	struct proto_plain reply;
	u32 count;

	if (!service_claim(r->proc, PROTO_SERVICE_ADDRESS))
		return -EINVAL;
	count = daemon_udp_adopt(&d->udp, r->m->fds[0], serve_slot_in_use, &d->slots);
	if (count > 0) {
		log_info("node", "process %llu brought the UDP sockets of %u addresses",
			 (unsigned long long)r->proc->process, count);
		/* before the reply: the process must not see its sockets disappear and come back */
		devices_look(d);
	}
	service_reply(r, &reply.head, sizeof(reply), 0, &d->udp.fdstore.out, 1);
	return 0;
}

static const struct service_rule serve_address_rules[] = {
	[PROTO_OP(PROTO_SOCKETS_CLAIM)] = { serve_sockets_claim, sizeof(struct proto_plain), 1,
					    SERVICE_FROM(PROC_ATTACHED) },
	[PROTO_OP(PROTO_UDP_SOCKETS)] = { serve_udp_sockets, sizeof(struct proto_udp_sockets), 0,
					  SERVICE_FROM(PROC_ATTACHED) },
	[PROTO_OP(PROTO_ADDRESSES)] = { serve_addresses, sizeof(struct proto_plain), 0,
					SERVICE_FROM(PROC_TOOL) },
};

const struct service address_service = {
	.rules = serve_address_rules,
	.rule_count = ARRAY_LEN(serve_address_rules),
};
