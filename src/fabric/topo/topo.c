/* topo.c: the arrays of a topology: adding, connecting, finding.
 * In:    nodes and cables, from the parser and the generators       Out: struct topo
 * Runs:  its caller                                                 Locks: none
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/topo/topo_priv.h"

static const char *const speed_names[TOPO_SPEEDS] = { "SDR", "DDR", "QDR", "FDR10",
						      "FDR", "EDR", "HDR", "NDR" };

const char *topo_speed_name(enum topo_speed s)
{
	return (unsigned)s < TOPO_SPEEDS ? speed_names[s] : "?";
}

unsigned topo_width_lanes(enum topo_width w)
{
	switch (w) {
	case TOPO_1X:
		return 1;
	case TOPO_2X:
		return 2;
	case TOPO_4X:
		return 4;
	case TOPO_8X:
		return 8;
	case TOPO_12X:
		return 12;
	}
	return 0;
}

void topo_free(struct topo *t)
{
	free(t->nodes);
	free(t->ports);
	free(t->links);
	*t = (struct topo){ 0 };
}

/* Makes room for `more` elements of `size` bytes behind `count`. */
static int topo_grow(void **array, u32 *room, u32 count, u32 more, size_t size, u32 max)
{
	u32 want = count + more;
	void *p;

	if (want > max)
		return -E2BIG;
	if (want <= *room)
		return 0;
	want = MIN(MAX(want, *room * 2), max);
	p = realloc(*array, want * size);
	if (p == NULL)
		return -ENOMEM;
	*array = p;
	*room = want;
	return 0;
}

int topo_add(struct topo *t, const struct topo_node *n, u32 *node)
{
	u32 ports = n->ports + 1u, first = t->port_count;
	int err;

	if (n->ports == 0 || n->ports > TOPO_PORTS_MAX || n->id[0] == '\0')
		return -EINVAL;
	err = topo_grow((void **)&t->nodes, &t->node_room, t->node_count, 1, sizeof(*t->nodes),
			TOPO_NODES_MAX);
	if (err == 0)
		err = topo_grow((void **)&t->ports, &t->port_room, t->port_count, ports,
				sizeof(*t->ports), TOPO_ALL_PORTS_MAX);
	if (err != 0)
		return err;
	for (u32 i = 0; i < ports; i++)
		t->ports[first + i] = (struct topo_port){
			.guid = n->type == FABRIC_SWITCH ? (i == 0 ? n->guid : 0) :
							 (i == 0 ? 0 : n->guid + i),
			.link = TOPO_NONE,
		};
	*node = t->node_count++;
	t->nodes[*node] = *n;
	t->nodes[*node].first_port = first;
	t->port_count += ports;
	return 0;
}

static struct topo_port *topo_cable_end(struct topo *t, u32 node, u8 port)
{
	if (node >= t->node_count || port == 0 || port > t->nodes[node].ports)
		return NULL;
	return &t->ports[t->nodes[node].first_port + port];
}

int topo_connect(struct topo *t, const struct topo_link *l)
{
	struct topo_port *a = topo_cable_end(t, l->node_a, l->port_a);
	struct topo_port *b = topo_cable_end(t, l->node_b, l->port_b);
	int err;

	if (a == NULL || b == NULL || a == b)
		return -EINVAL;
	if (a->link != TOPO_NONE || b->link != TOPO_NONE)
		return -EBUSY;
	err = topo_grow((void **)&t->links, &t->link_room, t->link_count, 1, sizeof(*t->links),
			TOPO_ALL_PORTS_MAX);
	if (err != 0)
		return err;
	a->link = b->link = t->link_count;
	t->links[t->link_count++] = *l;
	return 0;
}

const struct topo_port *topo_port(const struct topo *t, u32 node, u8 port)
{
	if (node >= t->node_count || port > t->nodes[node].ports)
		return NULL;
	return &t->ports[t->nodes[node].first_port + port];
}

bool topo_peer(const struct topo *t, u32 node, u8 port, u32 *peer, u8 *peer_port)
{
	const struct topo_port *p = topo_port(t, node, port);
	const struct topo_link *l;

	if (p == NULL || p->link == TOPO_NONE)
		return false;
	l = &t->links[p->link];
	if (l->node_a == node && l->port_a == port) {
		*peer = l->node_b;
		*peer_port = l->port_b;
	} else {
		*peer = l->node_a;
		*peer_port = l->port_a;
	}
	return true;
}

void topo_host(const struct topo_node *n, char host[TOPO_HOST_BYTES])
{
	size_t len = strcspn(n->desc, " ");

	len = MIN(len, (size_t)TOPO_HOST_BYTES - 1);
	memcpy(host, n->desc, len);
	host[len] = '\0';
}

/* How well a name fits a node: 0 not at all. */
static int topo_fits(const struct topo_node *n, const char *name, u64 guid)
{
	char host[TOPO_HOST_BYTES];

	if (strcmp(n->id, name) == 0)
		return 3;
	if (strcmp(n->desc, name) == 0 || (guid != 0 && n->guid == guid))
		return 2;
	topo_host(n, host);
	return strcmp(host, name) == 0 ? 1 : 0;
}

u32 topo_find(const struct topo *t, const char *name)
{
	u64 guid = strncmp(name, "0x", 2) == 0 ? strtoull(name, NULL, 16) : 0;
	u32 found = TOPO_NONE;
	int best = 0;

	for (u32 i = 0; i < t->node_count; i++) {
		int fits = topo_fits(&t->nodes[i], name, guid);

		if (fits == 0 || fits < best)
			continue;
		found = fits > best ? i : TOPO_NONE;
		best = fits;
	}
	return found;
}

/* Who has a GUID. */
struct topo_guid {
	u64 guid;
	u32 node;
} OWNED_BY(the caller);

static int topo_compare_guids(const void *a, const void *b)
{
	const struct topo_guid *x = a, *y = b;

	return x->guid < y->guid ? -1 : x->guid > y->guid;
}

/* A node's GUID may be that of one of its own ports. */
static u32 topo_list_guids(const struct topo *t, struct topo_guid *list)
{
	u32 n = 0;

	for (u32 i = 0; i < t->node_count; i++) {
		const struct topo_node *node = &t->nodes[i];

		if (node->type != FABRIC_SWITCH)
			list[n++] = (struct topo_guid){ node->guid, i };
		for (u32 k = 0; k <= node->ports; k++) {
			u64 guid = t->ports[node->first_port + k].guid;

			if (node->type == FABRIC_SWITCH ? k == 0 : k != 0 && guid != node->guid)
				list[n++] = (struct topo_guid){ guid, i };
		}
	}
	return n;
}

int topo_check_guids(const struct topo *t, struct topo_error *e)
{
	struct topo_guid *list = calloc(t->port_count + 1u, sizeof(*list));
	int err = 0;
	u32 n;

	if (list == NULL)
		return -ENOMEM;
	n = topo_list_guids(t, list);
	qsort(list, n, sizeof(*list), topo_compare_guids);
	for (u32 i = 0; err == 0 && i < n; i++) {
		bool twice = i != 0 && list[i].guid == list[i - 1].guid;

		if (!twice && list[i].guid != 0)
			continue;
		err = -EINVAL;
		(void)snprintf(e->message, sizeof(e->message), "%s has the GUID 0x%llx%s%s",
			       t->nodes[list[i].node].id, (unsigned long long)list[i].guid,
			       twice ? ", as has " : "",
			       twice ? t->nodes[list[i - 1].node].id : "");
	}
	free(list);
	return err;
}
