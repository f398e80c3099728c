/* create.c: makes the two files of a fabric from a topology, or goes on with those of an owner
 * that has ended. In:    a topology; files, hostile    Out: the owner's handle Runs:  the owner's
 * thread    Locks: none
 */
#include "fabric/fabric_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fabric/portinfo.h"
#include "fabric/trap.h"

enum {
	CREATE_VENDOR = 0xa7b5,
	CREATE_DEVICE = 1
}; /* nobody's OUI, as the RoCE adapters have it */

/* ---- from a topology -------------------------------------------------------------------------
 */

static int create_judge(const struct topo *t)
{
	u32 next = 0;

	if (t->node_count > FABRIC_NODES_MAX || t->port_count > FABRIC_PORTS_MAX)
		return -EINVAL;
	for (u32 i = 0; i < t->node_count; i++) {
		const struct topo_node *n = &t->nodes[i];

		if (n->first_port != next || n->ports > TOPO_PORTS_MAX ||
		    (n->type != FABRIC_CA && n->type != FABRIC_SWITCH &&
		     n->type != FABRIC_ROUTER))
			return -EINVAL;
		next += n->ports + 1u;
	}
	return next == t->port_count ? 0 : -EINVAL;
}

static void create_header(struct fabric_header *h, const struct topo *t)
{
	fabric_layout(h, t->node_count, t->port_count);
	for (u32 i = 0; i < t->node_count; i++) {
		struct fabric_node_rec n = { .ports = t->nodes[i].ports };

		if (t->nodes[i].type == FABRIC_SWITCH)
			fabric_layout_switch(h, &n);
	}
}

static void create_node(struct fabric *f, struct fabric_header *h, u32 node,
			const struct topo_node *t)
{
	struct fabric_node_rec *n = &f->node[node];

	n->type = (u8)t->type;
	n->ports = t->ports;
	n->enhanced = t->enhanced;
	n->first_port = t->first_port;
	n->guid = t->guid;
	n->sys_guid = t->sys_guid;
	n->vendor_id = t->vendor_id != 0 ? t->vendor_id : CREATE_VENDOR;
	n->device_id = t->device_id != 0 ? t->device_id : CREATE_DEVICE;
	memcpy(n->desc, t->desc, strnlen(t->desc, FABRIC_DESC));
	if (t->type == FABRIC_SWITCH)
		fabric_layout_switch(h, n);
}

/* The port at the other end of a port's cable; FABRIC_NONE: it has no cable. */
static u32 create_peer(const struct topo *t, u32 node, u8 number)
{
	u32 port = t->nodes[node].first_port + number;
	const struct topo_link *l;

	if (t->ports[port].link == TOPO_NONE)
		return FABRIC_NONE;
	l = &t->links[t->ports[port].link];
	if (l->node_a == node && l->port_a == number)
		return t->nodes[l->node_b].first_port + l->port_b;
	return t->nodes[l->node_a].first_port + l->port_a;
}

static void create_port(struct fabric *f, const struct topo *t, u32 node, u8 number)
{
	u32 port = t->nodes[node].first_port + number;
	struct fabric_port_rec *p = &f->port[port];

	p->node = node;
	p->number = number;
	p->peer = create_peer(t, node, number);
	p->guid[0] = t->ports[port].guid;
	fabric_link_capability(p, TOPO_4X, TOPO_EDR);
	if (p->peer != FABRIC_NONE) {
		const struct topo_link *l = &t->links[t->ports[port].link];

		fabric_link_capability(p, l->width, l->speed);
	}
	fabric_link_clear(p);
}

static void create_fill(struct fabric *f, const struct topo *t)
{
	struct fabric_header layout = { 0 };

	fabric_layout(&layout, t->node_count, t->port_count);
	for (u32 i = 0; i < t->node_count; i++) {
		create_node(f, &layout, i, &t->nodes[i]);
		for (u32 k = 0; k <= t->nodes[i].ports; k++)
			create_port(f, t, i, (u8)k);
	}
	for (u32 i = 0; i < t->node_count; i++)
		fabric_node_reset(f, i, true);
	for (u32 i = 0; i < f->view.ports; i++)
		fabric_link_train(f, i);
	/* What happens before a fabric is there is no event. */
	for (u32 i = 0; i < t->node_count; i++)
		f->node[i].state_change = 0;
	for (u32 i = 0; i < f->view.ports; i++)
		f->port[i].traps = 0;
	/* Pairs with the acquire in fabric_view_open. */
	__atomic_store_n(&f->header->complete, 1, __ATOMIC_RELEASE);
}

/* ---- files -----------------------------------------------------------------------------------
 */

static int file_map(int fd, u64 bytes, void **out)
{
	struct stat s;
	void *map;

	if (fstat(fd, &s) != 0)
		return -errno;
	if (s.st_size < 0 || (u64)s.st_size < bytes || bytes == 0)
		return -EINVAL;
	map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	*out = map;
	return 0;
}

static u64 counters_bytes(u32 ports)
{
	return sizeof(struct fabric_counters_header) +
	       (u64)ports * sizeof(struct fabric_port_counters);
}

static struct fabric *handle_new(const struct fabric_ops *ops, void *arg)
{
	struct fabric *f = calloc(1, sizeof(*f));

	if (f != NULL) {
		f->ops = ops;
		f->arg = arg;
		f->traps = calloc(1, sizeof(*f->traps));
	}
	if (f != NULL && f->traps == NULL) {
		free(f);
		f = NULL;
	}
	return f;
}

/* Maps both files, of which the map has a header that is right. */
static int handle_map(struct fabric *f, int map_fd, int counters_fd, u64 bytes)
{
	void *map;
	int rc = file_map(map_fd, bytes, &map);

	if (rc != 0)
		return rc;
	f->tables = map;
	f->view.bytes = bytes; /* for fabric_close */
	rc = fabric_view_judge(&f->view, map, bytes);
	if (rc != 0)
		return rc;
	f->header = map;
	f->node = (void *)((u8 *)map + f->header->node_at);
	f->port = (void *)((u8 *)map + f->header->port_at);
	f->pkeys = (void *)((u8 *)map + f->header->pkey_at);
	f->counters_bytes = counters_bytes(f->view.ports);
	rc = file_map(counters_fd, f->counters_bytes, &f->counters_map);
	return rc != 0 ? rc : trap_init(f);
}

static int create_files(int map_fd, int counters_fd, const struct fabric_header *h)
{
	struct fabric_counters_header c = { .magic = FABRIC_COUNTERS_MAGIC,
					    .identity = h->identity,
					    .ports = h->ports };

	/* reserved: where no block is left later, who writes through a map ends by SIGBUS */
	int err = posix_fallocate(map_fd, 0, (off_t)h->bytes);

	if (err == 0)
		err = posix_fallocate(counters_fd, 0, (off_t)counters_bytes(h->ports));
	if (err != 0)
		return -err;
	if (pwrite(map_fd, h, sizeof(*h), 0) != sizeof(*h) ||
	    pwrite(counters_fd, &c, sizeof(c), 0) != sizeof(c))
		return -EIO;
	return 0;
}

static struct fabric *fail(struct fabric *f, int *err, int rc)
{
	fabric_close(f);
	*err = rc;
	return NULL;
}

struct fabric *fabric_create(int map_fd, int counters_fd, const struct topo *t,
			     const struct fabric_ops *ops, void *arg, int *err)
{
	struct fabric *f;
	struct fabric_header h = { 0 };
	int rc = create_judge(t);

	if (rc != 0)
		return fail(NULL, err, rc);
	f = handle_new(ops, arg);
	if (f == NULL)
		return fail(NULL, err, -ENOMEM);
	create_header(&h, t);
	h.identity = fabric_now(f) * 0x9e3779b97f4a7c15ull ^ (u64)(uintptr_t)f;
	rc = create_files(map_fd, counters_fd, &h);
	if (rc == 0)
		rc = handle_map(f, map_fd, counters_fd, h.bytes);
	if (rc == 0)
		rc = fabric_counters_open(&f->counters, f->counters_map, f->counters_bytes,
					  &f->view);
	if (rc != 0)
		return fail(f, err, rc);
	create_fill(f, t);
	f->told = true;
	return f;
}

/* ---- after the owner's end --------------------------------------------------------------------
 */

static bool open_node_is_sound(const struct fabric *f, u32 node, u32 *next_port)
{
	const struct fabric_node_rec *n = &f->node[node];
	u64 count = n->ports + 1u;

	if (n->first_port != *next_port || n->ports > TOPO_PORTS_MAX ||
	    n->first_port + count > f->view.ports || n->type < FABRIC_CA ||
	    n->type > FABRIC_ROUTER)
		return false;
	*next_port += (u32)count;
	if (n->type != FABRIC_SWITCH)
		return true;
	return n->mft_at % sizeof(u16) == 0 && fabric_at(&f->view, n->lft_at, FABRIC_LFT_CAP) &&
	       fabric_at(&f->view, n->mft_at,
			 (u64)FABRIC_MFT_CAP * fabric_mft_positions(n->ports) * sizeof(u16)) &&
	       fabric_at(&f->view, n->sl2vl_at, count * count * FABRIC_SL2VL);
}

static bool open_port_is_sound(const struct fabric *f, u32 port)
{
	const struct fabric_port_rec *p = &f->port[port];
	const struct fabric_node_rec *n;

	if (p->node >= f->view.nodes)
		return false;
	n = &f->node[p->node];
	if (port < n->first_port || port - n->first_port > n->ports ||
	    p->number != port - n->first_port || p->state < FABRIC_DOWN ||
	    p->state > FABRIC_ACTIVE || p->pkey_cap > FABRIC_PKEYS || p->guid_cap > FABRIC_GUIDS)
		return false;
	return p->peer == FABRIC_NONE || (p->peer < f->view.ports && p->peer != port &&
					  p->number != 0 && f->port[p->peer].peer == port);
}

/* Traps that were not repressed yet are raised again, but those with details, which are lost. */
static void open_traps(struct fabric *f, u32 port)
{
	u8 raised = f->port[port].traps;

	f->port[port].traps = 0;
	for (u32 bit = FABRIC_TRAP_128; bit <= FABRIC_TRAP_144; bit <<= 1)
		if ((raised & bit) != 0)
			trap_raise(f, port, bit);
}

/* The owner may have ended between any two of its stores. */
static void open_mend(struct fabric *f, u32 port)
{
	struct fabric_port_rec *p = &f->port[port];

	if (p->seq % 2 != 0)
		fabric_port_end(f, port);
	open_traps(f, port);
	if (p->number == 0)
		return;
	if (p->state != FABRIC_DOWN &&
	    (p->peer == FABRIC_NONE || f->port[p->peer].state == FABRIC_DOWN ||
	     (p->flags & FABRIC_PORT_CUT) != 0))
		fabric_link_drop(f, port, FABRIC_PHYS_POLLING);
	fabric_link_train(f, port);
}

static int open_judge(struct fabric *f)
{
	u32 next_port = 0;

	for (u32 i = 0; i < f->view.nodes; i++)
		if (!open_node_is_sound(f, i, &next_port))
			return -EINVAL;
	if (next_port != f->view.ports)
		return -EINVAL;
	for (u32 i = 0; i < f->view.ports; i++)
		if (!open_port_is_sound(f, i))
			return -EINVAL;
	return 0;
}

struct fabric *fabric_open(int map_fd, int counters_fd, const struct fabric_ops *ops, void *arg,
			   int *err)
{
	struct fabric *f;
	struct fabric_header h;
	int rc = 0;

	if (pread(map_fd, &h, sizeof(h), 0) != sizeof(h) || h.bytes > INT64_MAX ||
	    h.complete != 1)
		return fail(NULL, err, -EINVAL);
	f = handle_new(ops, arg);
	if (f == NULL)
		return fail(NULL, err, -ENOMEM);
	rc = handle_map(f, map_fd, counters_fd, h.bytes);
	if (rc == 0)
		rc = fabric_counters_open(&f->counters, f->counters_map, f->counters_bytes,
					  &f->view);
	if (rc == 0)
		rc = open_judge(f);
	if (rc != 0)
		return fail(f, err, rc);
	for (u32 i = 0; i < f->view.ports; i++)
		open_mend(f, i);
	fabric_routes_changed(f);
	f->told = true;
	return f;
}
