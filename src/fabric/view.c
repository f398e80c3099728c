/* view.c: what readers of a map ask: nodes, hosts, ports.
 * In:    a map, which may change meanwhile    Out: copies
 * Runs:  readers in any process, the owner    Locks: none; a record is read again while its `seq`
 * is odd or has changed
 */
#include "fabric/layout.h"

#include <errno.h>
#include <string.h>

enum { VIEW_TRIES = 1000 };

/* Copies a record of one instant. A writer of the same process that was interrupted by this
 * reader ends the tries, and so does one that has died. */
static int view_copy(void *to, const void *record, size_t n, const u32 *seq)
{
	for (u32 i = 0; i < VIEW_TRIES; i++) {
		/* Pairs with the release in fabric_port_begin and fabric_port_end. */
		u32 before = __atomic_load_n(seq, __ATOMIC_ACQUIRE);

		if (before % 2 == 0) {
			memcpy(to, record, n);
			__atomic_thread_fence(__ATOMIC_ACQUIRE);
			if (fabric_load(*seq) == before)
				return 0;
		}
		cpu_relax();
	}
	return -EAGAIN;
}

int fabric_node_read(const struct fabric_view *v, u32 node, struct fabric_node_attr *out)
{
	struct fabric_node_rec n;

	if (node >= v->nodes)
		return -EINVAL;
	n = v->node[node];
	*out = (struct fabric_node_attr){
		.type = n.type,
		.first_port = n.first_port,
		.ports = n.ports,
		.device_id = n.device_id,
		.vendor_id = n.vendor_id,
		.revision = n.revision,
		.guid = n.guid,
		.sys_guid = n.sys_guid,
	};
	if (n.type == FABRIC_SWITCH) {
		out->lft_top = n.lft_top;
		out->lft_cap = FABRIC_LFT_CAP;
		out->mft_cap = FABRIC_MFT_CAP;
	}
	memcpy(out->desc, n.desc, FABRIC_DESC);
	return 0;
}

/* Does the first word of the description say so? */
static bool view_is_of_host(const struct fabric_node_rec *n, const char *host, size_t length)
{
	char desc[FABRIC_DESC];

	memcpy(desc, n->desc, sizeof(desc));
	return memcmp(desc, host, length) == 0 &&
	       (length == FABRIC_DESC || desc[length] == '\0' || desc[length] == ' ');
}

u32 fabric_find_host(const struct fabric_view *v, const char *host, u32 cas[], u32 max)
{
	size_t length = strnlen(host, FABRIC_DESC + 1);
	u32 count = 0;

	if (length == 0 || length > FABRIC_DESC)
		return 0;
	for (u32 i = 0; i < v->nodes; i++) {
		const struct fabric_node_rec *n = &v->node[i];

		if (fabric_load(n->type) != FABRIC_CA || !view_is_of_host(n, host, length))
			continue;
		if (count < max)
			cas[count] = i;
		count++;
	}
	return count;
}

/* As ib_port_attr.active_speed has it. */
static u8 view_speed(const struct fabric_port_rec *p)
{
	return p->speed_ext != 0 ? (u8)(p->speed_ext << 4) : p->speed;
}

int fabric_port_read(const struct fabric_view *v, u32 port, struct fabric_port_attr *out)
{
	struct {
		struct fabric_port_rec rec FIXED;
		u16 pkeys[FABRIC_PKEYS] FIXED;
	} r;
	const struct fabric_port_rec *p = &r.rec;
	int rc;

	if (port >= v->ports)
		return -EINVAL;
	/* The P_Keys are another section: both are of one instant if seq is the same. */
	for (u32 i = 0;; i++) {
		rc = view_copy(&r.rec, &v->port[port], sizeof(r.rec), &v->port[port].seq);
		if (rc == 0)
			rc = view_copy(r.pkeys, fabric_pkeys(v, port), sizeof(r.pkeys),
				       &v->port[port].seq);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (rc == 0 && fabric_load(v->port[port].seq) == r.rec.seq)
			break;
		if (rc != 0 || i == VIEW_TRIES)
			return -EAGAIN;
	}
	*out = (struct fabric_port_attr){
		.node = p->node,
		.peer = p->peer,
		.number = p->number,
		.cut = (p->flags & FABRIC_PORT_CUT) != 0,
		.state = p->state,
		.phys = p->phys,
		.link_down_default = p->link_down_default,
		.lmc = p->lmc,
		.sm_sl = p->sm_sl,
		.subnet_timeout = p->subnet_timeout,
		.init_type_reply = p->init_type_reply,
		.mtu_cap = p->mtu_cap,
		.mtu = p->mtu,
		.vl_cap = p->vl_cap,
		.operational_vls = p->operational_vls,
		.width = p->width,
		.width_enabled = p->width_enabled,
		.width_supported = p->width_supported,
		.speed = view_speed(p),
		.lid = p->lid,
		.sm_lid = p->sm_lid,
		.cap_mask = p->cap_mask,
		.mkey_violations = p->mkey_violations,
		.pkey_violations = p->pkey_violations,
		.qkey_violations = p->qkey_violations,
		.gid_prefix = p->gid_prefix,
		.guid = p->guid[0],
		.guid_count = MIN(p->guid_cap, FABRIC_GUIDS),
		.pkey_count = MIN(p->pkey_cap, FABRIC_PKEYS),
	};
	memcpy(out->guids, p->guid, sizeof(out->guids));
	memcpy(out->pkeys, r.pkeys, sizeof(out->pkeys));
	return 0;
}
