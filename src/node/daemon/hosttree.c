/* hosttree.c: hosts of the fabric, and the trees that stand for their /sys.
 *
 * A host has a tree once a process has entered it or is about to (`anyverbs run --host`). The tree
 * stays until the fabric is down, and follows what changes at the host's ports. The next node
 * writes it again when a process comes back.
 * In:    names, the fabric's map, changes      Out: trees
 * Runs:  the daemon's only thread              Locks: none
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "node/daemon/fabricd.h"
#include "node/daemon/sysfs.h"

#define HOSTTREE_FOLDER "hosts"

struct hosttree {
	struct list_head node;
	struct host_place at;
} OWNED_BY(the daemon);

int host_place_find(const struct fabric_view *v, const char *name, struct host_place *out)
{
	struct host_place at = { .ca_count = 0 };
	struct fabric_node_attr n;
	u32 count;

	memcpy(at.name, name, strnlen(name, sizeof(at.name) - 1));
	count = fabric_find_host(v, at.name, at.ca, NODE_HOST_CAS);
	if (count == 0)
		return -ENOENT;
	at.ca_count = MIN(count, (u32)NODE_HOST_CAS);
	for (u32 i = 0; i < at.ca_count; i++) {
		if (fabric_node_read(v, at.ca[i], &n) < 0)
			return -ENOENT;
		at.first_port[i] = n.first_port;
		at.ports[i] = n.ports;
	}
	*out = at;
	return 0;
}

bool host_place_has(const struct host_place *h, u32 port)
{
	for (u32 i = 0; i < h->ca_count; i++)
		if (port > h->first_port[i] && port - h->first_port[i] <= h->ports[i])
			return true;
	return false;
}

static struct hosttree *hosttree_find(struct fabricd *f, const char *name)
{
	list_for_each(t, &f->trees, struct hosttree, node)
		if (strncmp(t->at.name, name, sizeof(t->at.name)) == 0)
			return t;
	return NULL;
}

int hosttree_show(struct fabricd *f, const char *name)
{
	struct hosttree *t;
	int err;

	if (hosttree_find(f, name) != NULL)
		return 0;
	t = malloc(sizeof(*t));
	if (t == NULL)
		return -ENOMEM;
	err = host_place_find(fabric_view(f->fabric), name, &t->at);
	if (err < 0) {
		free(t);
		return err;
	}
	list_push_back(&f->trees, &t->node);
	(void)sysfs_host_write(&f->daemon->folder, t->at.name, fabric_view(f->fabric), t->at.ca,
			       t->at.ca_count);
	return 0;
}

void hosttree_changed(struct fabricd *f, u32 port, u32 what)
{
	list_for_each(t, &f->trees, struct hosttree, node)
		if (host_place_has(&t->at, port))
			(void)sysfs_host_write_ports(&f->daemon->folder, t->at.name,
						     fabric_view(f->fabric), t->at.ca,
						     t->at.ca_count, what);
}

void hosttree_drop_all(struct fabricd *f, bool keep)
{
	struct list_head *node;

	while ((node = list_pop_front(&f->trees)) != NULL)
		free(list_entry(node, struct hosttree, node));
	if (!keep)
		folder_remove_tree(&f->daemon->folder, HOSTTREE_FOLDER);
}
