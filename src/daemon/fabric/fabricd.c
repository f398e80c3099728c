/* fabricd.c: the life of the fabric that the node carries: its files in the node's folder, and its
 * time.
 * In:    a topology, time                     Out: struct fabric; files for the next node
 * Runs:  the daemon's only thread             Locks: none
 */
#include "daemon/fabric/smd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sysfile.h"
#include "base/log.h"

/* The fabric is up while this file is there: it is written last and deleted first. */
#define FABRICD_FILE "fabric"
#define FABRICD_MAP "fabric.map"
#define FABRICD_COUNTERS "fabric.counters"
#define FABRICD_NO_SM "fabric.no-sm" /* it is there: the fabric has no subnet manager of its own */
/* An SM changes thousands of routes in a row: processes hear of them when it pauses. */
#define FABRICD_ROUTES_NS (50 * NS_PER_MS)
/* So long a subnet manager may need to come back to a new node. */
#define FABRICD_ORPHANS_NS (3 * NS_PER_S)

static u64 fabricd_now_ns(void *arg)
{
	return clock_now_ns();
}

static const struct fabric_ops fabricd_ops = {
	.deliver = madchannel_deliver,
	.changed = madchannel_changed,
	.crossed = madtap_crossed,
	.now_ns = fabricd_now_ns,
};

/* ---- files ----------------------------------------------------------------------------------- */

static void fabricd_delete_files(const struct folder *f)
{
	folder_delete(f, FABRICD_FILE);
	folder_delete(f, FABRICD_MAP);
	folder_delete(f, FABRICD_COUNTERS);
	folder_delete(f, FABRICD_NO_SM);
}

static void fabricd_close_files(struct fabricd *f)
{
	int fds[] = { f->map_fd, f->map_read_fd, f->counters_fd };

	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

static int fabricd_open_files(struct fabricd *f, int flags)
{
	int dir = f->daemon->folder.fd;

	flags |= O_RDWR | O_CLOEXEC | O_NOFOLLOW;
	f->map_fd = openat(dir, FABRICD_MAP, flags, 0600);
	if (f->map_fd < 0)
		return -errno;
	f->map_read_fd = openat(dir, FABRICD_MAP, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	f->counters_fd = openat(dir, FABRICD_COUNTERS, flags, 0600);
	return f->map_read_fd < 0 || f->counters_fd < 0 ? -errno : 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

static struct fabricd *fabricd_new(struct daemon *d)
{
	struct fabricd *f = calloc(1, sizeof(*f));

	if (f == NULL)
		return NULL;
	f->daemon = d;
	list_init(&f->sms);
	list_init(&f->trees);
	list_init(&f->held);
	list_init(&f->members);
	list_init(&f->leaves);
	f->map_fd = f->map_read_fd = f->counters_fd = -1;
	f->since_ns = clock_now_ns();
	f->routes_due_ns = f->orphans_until_ns = f->count_due_ns = UINT64_MAX;
	return f;
}

static void fabricd_free(struct fabricd *f, bool keep)
{
	smd_free(f->smd, keep);
	madhold_clear(f);
	sagroup_clear(f);
	fabric_close(f->fabric);
	fabricd_close_files(f);
	free(f);
}

static void fabricd_start(struct daemon *d, struct fabricd *f)
{
	f->generation = fabric_generation(fabric_view(f->fabric));
	d->fabric = f;
	if (sysfile_access(d->folder.fd, FABRICD_NO_SM, F_OK) < 0)
		f->smd = smd_new(f);
}

static int fabricd_make(struct fabricd *f, const struct topo *t, u32 flags)
{
	int err = fabricd_open_files(f, O_CREAT | O_EXCL);

	if (err == 0 && (flags & PROTO_FABRIC_NO_SM) != 0)
		err = folder_put(&f->daemon->folder, FABRICD_NO_SM, "");
	if (err < 0)
		return err;
	f->fabric = fabric_create(f->map_fd, f->counters_fd, t, &fabricd_ops, f, &err);
	if (f->fabric == NULL)
		return err;
	return folder_put(&f->daemon->folder, FABRICD_FILE, f->source);
}

static int fabricd_topology(const char *text, size_t size, u32 flags, struct topo *out)
{
	struct topo_error e;

	if ((flags & PROTO_FABRIC_SPEC) != 0)
		return topo_generate(text, out, &e);
	return topo_parse(text, size, out, &e);
}

int fabricd_up(struct daemon *d, const char *text, size_t size, const char *source, u32 flags)
{
	struct fabricd *f;
	struct topo topo;
	int err;

	if (d->options.scope != PLACE_MACHINE || d->folder.fd < 0)
		return -EPERM;
	if (d->fabric != NULL)
		return -EEXIST;
	err = fabricd_topology(text, size, flags, &topo);
	if (err < 0)
		return err;
	f = fabricd_new(d);
	if (f == NULL) {
		topo_free(&topo);
		return -ENOMEM;
	}
	memcpy(f->source, source, sizeof(f->source));
	fabricd_delete_files(&d->folder);
	err = fabricd_make(f, &topo, flags);
	topo_free(&topo);
	if (err < 0) {
		fabricd_delete_files(&d->folder);
		fabricd_free(f, false);
		return err;
	}
	fabricd_start(d, f);
	log_info("node", "a fabric of %u nodes is up", fabric_view(f->fabric)->nodes);
	return 0;
}

/* What the file of a fabric says of its origin; -ENOENT: there is no fabric. */
static int fabricd_read_source(const struct folder *folder, char source[PROTO_FABRIC_SOURCE])
{
	int fd = folder->fd < 0
			 ? -1
			 : openat(folder->fd, FABRICD_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n;

	if (fd < 0)
		return -ENOENT;
	memset(source, 0, PROTO_FABRIC_SOURCE);
	n = read(fd, source, PROTO_FABRIC_SOURCE - 1);
	close(fd);
	return n < 0 ? -errno : 0;
}

void fabricd_resume(struct daemon *d)
{
	char source[PROTO_FABRIC_SOURCE];
	struct fabricd *f;
	int err = fabricd_read_source(&d->folder, source);

	if (err == -ENOENT || d->options.scope != PLACE_MACHINE)
		return;
	f = fabricd_new(d);
	if (f == NULL)
		return;
	memcpy(f->source, source, sizeof(source));
	err = fabricd_open_files(f, 0);
	if (err == 0)
		f->fabric = fabric_open(f->map_fd, f->counters_fd, &fabricd_ops, f, &err);
	if (f->fabric == NULL) {
		log_error("node", "the fabric of the node before is lost: %s", strerror(-err));
		fabricd_delete_files(&d->folder);
		fabricd_free(f, false);
		return;
	}
	f->orphans_until_ns = f->since_ns + FABRICD_ORPHANS_NS;
	fabricd_start(d, f);
	log_info("node", "goes on with a fabric of %u nodes", fabric_view(f->fabric)->nodes);
}

void fabricd_down(struct daemon *d, bool keep)
{
	struct fabricd *f = d->fabric;

	if (f == NULL)
		return;
	list_for_each(p, &d->procs, struct proc, node) {
		if (p->host == NULL)
			continue;
		if (!keep)
			event_fabric_gone(p);
		madchannel_leave(p);
	}
	hosttree_drop_all(f, keep);
	d->fabric = NULL;
	d->idle_since_ns = clock_now_ns();
	if (!keep)
		fabricd_delete_files(&d->folder);
	fabricd_free(f, keep);
}

/* ---- time ------------------------------------------------------------------------------------ */

static void fabricd_clear_orphan(struct fabricd *f, u32 port)
{
	if (!smhold_has(f, port) && !smd_is_at(f->smd, port) &&
	    fabric_set_issm(f->fabric, port, false))
		hosttree_changed(f, port, 0);
}

/* Subnet managers that have not come back have died with the node, or soon after. */
static void fabricd_clear_orphans(struct daemon *d)
{
	const struct fabric_view *v = fabric_view(d->fabric->fabric);
	struct fabric_node_attr n;

	for (u32 i = 0; i < v->nodes; i++) {
		if (fabric_node_read(v, i, &n) < 0 || n.type != FABRIC_CA)
			continue;
		for (u32 k = 1; k <= n.ports; k++)
			fabricd_clear_orphan(d->fabric, n.first_port + k);
	}
	d->fabric->orphans_until_ns = UINT64_MAX;
}

static void fabricd_tell_routes(struct daemon *d)
{
	list_for_each(p, &d->procs, struct proc, node)
		if (p->host != NULL)
			event_fabric(p, FABRIC_NONE, NODE_FABRIC_ROUTES);
	d->fabric->routes_due_ns = UINT64_MAX;
}

void fabricd_run(struct daemon *d, u64 now_ns)
{
	struct fabricd *f = d->fabric;
	u64 generation;

	if (f == NULL)
		return;
	if (now_ns >= f->orphans_until_ns)
		fabricd_clear_orphans(d);
	if (now_ns >= fabric_due_ns(f->fabric))
		fabric_tick(f->fabric);
	smd_run(f->smd, now_ns);
	madhold_run(f, now_ns);
	sagroup_run(f, now_ns);
	hosttree_count(f, now_ns);
	madchannel_flush(f);
	generation = fabric_generation(fabric_view(f->fabric));
	if (generation != f->generation && f->routes_due_ns == UINT64_MAX)
		f->routes_due_ns = now_ns + FABRICD_ROUTES_NS;
	f->generation = generation;
	if (now_ns >= f->routes_due_ns)
		fabricd_tell_routes(d);
}

u64 fabricd_next_ns(const struct daemon *d)
{
	const struct fabricd *f = d->fabric;

	if (f == NULL)
		return UINT64_MAX;
	return MIN(MIN(fabric_due_ns(f->fabric), MIN(smd_next_ns(f->smd), madhold_next_ns(f))),
		   MIN(MIN(f->count_due_ns, sagroup_next_ns(f)),
		       MIN(f->routes_due_ns, f->orphans_until_ns)));
}
