/* traffic.c: sums of what crosses the ports of the RoCE devices, for /sys/class/infiniband.
 *
 * Each process counts on its board. While processes are attached, the node looks at their boards
 * every 100 ms, and once a second after a second without traffic, and adds what has come since. A
 * sum of a board may miss, for once, what a queue pair that ends or connects just then has counted:
 * only what exceeds the greatest sum so far is news. FOLDER/traffic keeps the counters for a node
 * that takes over; what is counted while there is no node is lost.
 *
 * In:    boards of processes               Out: counters/ of each device, FOLDER/traffic
 * Runs:  the daemon's only thread          Locks: none
 */
#include "daemon/traffic.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/daemon_priv.h"
#include "daemon/fabric/sysfs.h"
#include "path/shm/traffic.h"

enum {
	TRAFFIC_MS = 100,
	TRAFFIC_SILENT_MS = 1000,
	TRAFFIC_SILENT = 10, /* looks without news, then they become rare */
	TRAFFIC_SHARE = 20,  /* looks take at most this part of the time, or come this rarely: */
	TRAFFIC_RARELY_MS = 10000,
};
#define TRAFFIC_FILE "traffic"
#define TRAFFIC_MAGIC 0x31636666617274ull /* its layout; a node that has another begins at 0 */

struct traffic_file {
	u64 magic;
	struct traffic_device devices[NODE_DEVICES];
} OWNED_BY(the caller);

/* ---- for the next node ---- */

static void traffic_leave_file(struct daemon *d)
{
	int fd = openat(d->folder.fd, TRAFFIC_FILE, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
			0600);
	struct traffic_file file = { .magic = TRAFFIC_MAGIC };

	if (fd < 0)
		return;
	memcpy(file.devices, d->traffic.devices, sizeof(file.devices));
	(void)!pwrite(fd, &file, sizeof(file), 0);
	close(fd);
}

void traffic_init(struct daemon *d)
{
	int fd = openat(d->folder.fd, TRAFFIC_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct traffic_file file;

	d->traffic.due_ns = UINT64_MAX;
	if (fd < 0)
		return;
	if (pread(fd, &file, sizeof(file), 0) == (ssize_t)sizeof(file) &&
	    file.magic == TRAFFIC_MAGIC)
		memcpy(d->traffic.devices, file.devices, sizeof(file.devices));
	close(fd);
}

/* ---- sums ---- */

static void traffic_add(u64 *count, u64 n)
{
	*count += MIN(n, UINT64_MAX - *count); /* a process may claim anything */
}

/* Adds what the process has counted since the last time to the news. */
static void traffic_take(struct traffic *t, struct traffic_source *s)
{
	struct path_traffic sum[NODE_DEVICES] = { 0 };

	if (s->board == NULL)
		return;
	board_traffic_sum(s->board, sum);
	for (u32 i = 0; i < NODE_DEVICES; i++)
		for (u32 k = 0; k < TRAFFIC_COUNTS; k++) {
			u64 *seen = &s->seen[i].count[k], now = sum[i].count[k];

			if (now <= *seen)
				continue;
			traffic_add(&t->news[i].count[k], now - *seen);
			*seen = now;
		}
}

/* Shows the news of a device. Counters of a tree that cannot be written stand still from then on,
 * which is logged. */
static void traffic_show_device(struct daemon *d, u32 index, const struct path_traffic *before)
{
	struct traffic_device *t = &d->traffic.devices[index];

	if (memcmp(before, &t->shown, sizeof(*before)) != 0 &&
	    sysfs_write_traffic(&d->folder, d->devices[index].name, before, &t->shown) < 0)
		t->id = 0;
}

/* Returns whether there are any news. The file first: the next node never shows less than this
 * one. */
static bool traffic_show(struct daemon *d)
{
	struct traffic *t = &d->traffic;
	struct path_traffic before[NODE_DEVICES];
	bool any = false;

	for (u32 i = 0; i < NODE_DEVICES; i++) {
		struct traffic_device *v = &t->devices[i];

		before[i] = v->shown;
		if (v->id == 0 || v->id != d->devices[i].id)
			continue;
		for (u32 k = 0; k < TRAFFIC_COUNTS; k++) {
			traffic_add(&v->shown.count[k], t->news[i].count[k]);
			any |= t->news[i].count[k] != 0;
		}
	}
	memset(t->news, 0, sizeof(t->news));
	if (!any)
		return false;
	traffic_leave_file(d);
	for (u32 i = 0; i < NODE_DEVICES; i++)
		traffic_show_device(d, i, &before[i]);
	return true;
}

/* Returns whether something has been counted since the last look. */
static bool traffic_look(struct daemon *d)
{
	list_for_each(p, &d->procs, struct proc, node)
		traffic_take(&d->traffic, &p->traffic);
	return traffic_show(d);
}

int traffic_begin_device(struct daemon *d, u32 index, const struct node_config *c)
{
	struct traffic_device *t = &d->traffic.devices[index];
	int err;

	if (t->id != c->id) {
		(void)traffic_look(d); /* the last traffic of the device before is nobody's */
		*t = (struct traffic_device){ .id = c->id };
		traffic_leave_file(d);
	}
	err = sysfs_write_traffic(&d->folder, c->device, NULL, &t->shown);
	if (err < 0)
		t->id = 0;
	return err;
}

void traffic_run(struct daemon *d, u64 now_ns)
{
	struct traffic *t = &d->traffic;
	u64 pause_ns, end_ns;

	if (now_ns < t->due_ns)
		return;
	t->silent = traffic_look(d) ? 0 : t->silent + 1;
	pause_ns = (t->silent < TRAFFIC_SILENT ? TRAFFIC_MS : TRAFFIC_SILENT_MS) * NS_PER_MS;
	end_ns = clock_now_ns();
	pause_ns = MAX(pause_ns,
		       MIN(TRAFFIC_SHARE * (end_ns - now_ns), TRAFFIC_RARELY_MS * NS_PER_MS));
	t->due_ns = d->attached == 0 ? UINT64_MAX : end_ns + pause_ns;
}

/* ---- processes ---- */

static void traffic_be_due(struct traffic *t, u64 pause_ns)
{
	t->silent = 0;
	t->due_ns = MIN(t->due_ns, clock_now_ns() + pause_ns);
}

void traffic_watch(struct proc *p)
{
	struct traffic *t = &p->daemon->traffic;
	struct traffic shown = { 0 };

	p->traffic.board = board_map(p->board_fd);
	if (p->traffic.board == NULL)
		return;
	traffic_take(&shown, &p->traffic);
	traffic_be_due(t, TRAFFIC_MS * NS_PER_MS);
}

void traffic_collect(struct proc *p)
{
	struct traffic *t = &p->daemon->traffic;

	if (p->traffic.board == NULL)
		return;
	traffic_take(t, &p->traffic);
	traffic_be_due(t, 0);
	board_unmap(p->traffic.board);
	p->traffic.board = NULL;
}
