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

#include "base/clock.h"
#include "daemon/fabric/fabricd.h"
#include "daemon/fabric/sysfs.h"

#define HOSTTREE_FOLDER "hosts"
#define HOSTTREE_COUNT_NS (100 * NS_PER_MS)

enum {
	HOSTTREE_COUNTED = 32, /* ports whose counters are written in one turn */
	HOSTTREE_SHARE = 20,   /* at most this part of the time goes into writing them */
};

struct hosttree {
	struct list_head node;
	struct fabricd_place at;
	bool counted;		      /* its files exist */
	struct fabric_counts shown[]; /* of each port, in the order of its CAs */
} OWNED_BY(the daemon);

int fabricd_place_find(const struct fabric_view *v, const char *name, struct fabricd_place *out)
{
	struct fabricd_place at = { .ca_count = 0 };
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

bool fabricd_place_has(const struct fabricd_place *h, u32 port)
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

/* ---- counters -------------------------------------------------------------------------------- */

/* Returns whether they have changed. */
static bool hosttree_count_port(struct fabricd *f, struct hosttree *t, u32 ca, u32 port,
				struct fabric_counts *shown)
{
	struct fabric_counts now;

	if (fabric_pma_read(f->fabric, t->at.first_port[ca] + port, &now) != 0 ||
	    (t->counted && memcmp(&now, shown, sizeof(now)) == 0))
		return false;
	(void)sysfs_host_write_counts(&f->daemon->folder, t->at.name, ca, port,
				      t->counted ? shown : NULL, &now);
	*shown = now;
	return true;
}

/* Returns how many ports have counted. */
static u32 hosttree_count_one(struct fabricd *f, struct hosttree *t)
{
	struct fabric_counts *shown = t->shown;
	u32 n = 0;

	for (u32 i = 0; i < t->at.ca_count; i++)
		for (u32 port = 1; port <= t->at.ports[i]; port++)
			n += hosttree_count_port(f, t, i, port, shown++);
	t->counted = true;
	return n;
}

static u32 hosttree_length(const struct fabricd *f)
{
	u32 n = 0;

	list_for_each(t, &f->trees, struct hosttree, node)
		n++;
	return n;
}

void hosttree_count(struct fabricd *f, u64 now_ns)
{
	u32 left = hosttree_length(f), n = 0;
	u64 took;

	if (now_ns < f->count_due_ns)
		return;
	for (; left > 0 && n < HOSTTREE_COUNTED; left--) {
		struct list_head *node = list_pop_front(&f->trees);

		n += hosttree_count_one(f, list_entry(node, struct hosttree, node));
		list_push_back(&f->trees, node);
	}
	took = clock_now_ns() - now_ns;
	f->count_due_ns = now_ns + MAX(HOSTTREE_COUNT_NS, HOSTTREE_SHARE * took);
	if (n == 0 && f->processes == 0) /* the last one has charged when it ended */
		f->count_due_ns = UINT64_MAX;
}

/* ---- trees ----------------------------------------------------------------------------------- */

static struct hosttree *hosttree_new(const struct fabricd_place *at)
{
	u32 ports = 0;
	struct hosttree *t;

	for (u32 i = 0; i < at->ca_count; i++)
		ports += at->ports[i];
	t = calloc(1, sizeof(*t) + ports * sizeof(t->shown[0]));
	if (t != NULL)
		t->at = *at;
	return t;
}

int hosttree_show(struct fabricd *f, const char *name)
{
	struct hosttree *t = hosttree_find(f, name);
	struct fabricd_place at;
	int err;

	f->count_due_ns = MIN(f->count_due_ns, clock_now_ns() + HOSTTREE_COUNT_NS);
	if (t != NULL) {
		(void)hosttree_count_one(f, t);
		return 0;
	}
	err = fabricd_place_find(fabric_view(f->fabric), name, &at);
	if (err < 0)
		return err;
	t = hosttree_new(&at);
	if (t == NULL)
		return -ENOMEM;
	list_push_back(&f->trees, &t->node);
	(void)sysfs_host_write(&f->daemon->folder, t->at.name, fabric_view(f->fabric), t->at.ca,
			       t->at.ca_count);
	(void)hosttree_count_one(f, t);
	return 0;
}

void hosttree_changed(struct fabricd *f, u32 port, u32 what)
{
	list_for_each(t, &f->trees, struct hosttree, node)
		if (fabricd_place_has(&t->at, port))
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
