/* lids.c: from LIDs to ports, their GIDs and VLs, by the fabric's map.
 *
 * The table is made anew when the fabric has changed, but not more often than LIDS_NS: a subnet
 * manager makes thousands of changes in a row.
 * In:    the node's maps, of any content      Out: VLs, GIDs
 * Runs:  the only thread                      Locks: none
 */
#include "lids.h"

#include <endian.h>
#include <string.h>

#include "base/clock.h"

enum { LIDS_NS = 50 * NS_PER_MS };

bool lids_read(struct lids *l, int node)
{
	struct plan next;

	if (plan_open(&next, node) < 0)
		return l->plan.map != NULL;
	if (l->plan.map != NULL && fabric_identity(&l->plan.view) == fabric_identity(&next.view)) {
		plan_close(&next);
		return true;
	}
	lids_close(l);
	l->plan = next;
	return true;
}

void lids_close(struct lids *l)
{
	plan_close(&l->plan);
	l->generation = l->made_ns = 0;
}

static void lids_add(struct lids *l, u32 port, const struct fabric_port_attr *p)
{
	for (u32 lid = p->lid; lid < p->lid + (1u << (p->lmc & 7)) && lid < FABRIC_MLID_FIRST;
	     lid++)
		if (lid != 0)
			l->port[lid] = port;
}

static void lids_make(struct lids *l)
{
	struct fabric_port_attr p;
	struct fabric_node_attr n;

	l->generation = fabric_generation(&l->plan.view);
	memset(l->port, 0xff, sizeof(l->port));
	for (u32 port = 0; port < l->plan.view.ports; port++)
		if (fabric_port_read(&l->plan.view, port, &p) == 0 &&
		    fabric_node_read(&l->plan.view, p.node, &n) == 0 &&
		    (n.type == FABRIC_SWITCH) == (p.number == 0))
			lids_add(l, port, &p);
	l->made_ns = clock_now_ns();
}

static bool lids_port(const struct lids *l, u16 lid, u8 gid[16], u32 *port)
{
	struct fabric_port_attr p;
	__be64 half;

	*port = lid < FABRIC_MLID_FIRST ? l->port[lid] : FABRIC_NONE;
	if (fabric_port_read(&l->plan.view, *port, &p) != 0)
		return false;
	half = htobe64(p.gid_prefix);
	memcpy(gid, &half, sizeof(half));
	half = htobe64(p.guid);
	memcpy(gid + 8, &half, sizeof(half));
	return true;
}

void lids_find_way(struct lids *l, const struct capture_lids *w, struct frames_way *way)
{
	u32 from, to;

	if (l->plan.map == NULL)
		return;
	if (l->made_ns == 0 || (l->generation != fabric_generation(&l->plan.view) &&
				clock_now_ns() - l->made_ns > LIDS_NS))
		lids_make(l);
	if (lids_port(l, w->slid, way->sgid, &from))
		way->vl = fabric_port_vl(&l->plan.view, from, w->sl);
	(void)lids_port(l, w->dlid, way->dgid, &to);
}
