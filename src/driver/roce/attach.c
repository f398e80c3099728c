/* attach.c: this process' place at the node: board, doorbells, slot, paths, engine; and what
 * becomes of them in a forked child.
 * In: nothing    Out: a roce_attachment    Runs: a thread that may sleep    Locks: attach_lock
 */
#include "driver/roce/roce.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/env.h"
#include "base/log.h"
#include "mem/adopt.h"

static u32 attach_env_paths(void)
{
	static const char *const names[] = { "shm", "udp", NULL };
	static const u32 paths[] = { ROCE_PATH_SHM, ROCE_PATH_UDP };
	u32 words = env_words("ANYVERBS_PATHS", names, 3), found = 0;

	for (u32 i = 0; names[i] != NULL; i++)
		found |= words & 1u << i ? paths[i] : 0;
	return found;
}

static void attach_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* A doorbell is a pipe, not an eventfd: whoever rings it opens it once more (link_open), so that
 * nobody else can make his own descriptor blocking, and with ours nobody can make us wait. Each is
 * open both ways, so that there is always a reader. Without /proc an eventfd has to do. */
static int attach_bell(int *own, int *out)
{
	enum { BELL_BYTES = 4096 }; /* more would only be read for nothing */
	char path[32];
	int p[2];

	if (pipe2(p, O_CLOEXEC | O_NONBLOCK) != 0)
		return -errno;
	(void)fcntl(p[0], F_SETPIPE_SZ, BELL_BYTES);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", p[0]);
	*own = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	*out = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	close(p[0]);
	close(p[1]);
	if (*own >= 0 && *out >= 0)
		return 0;
	attach_close(own);
	attach_close(out);
	*own = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	*out = fcntl(*own, F_DUPFD_CLOEXEC, 0);
	return *out < 0 ? -errno : 0;
}

static int attach_fds(struct roce_attachment *a)
{
	int err = 0;

	for (int i = 0; i < 2 && err == 0; i++)
		err = attach_bell(&a->bell_fd[i], &a->bell_out[i]);
	if (err != 0)
		return err;
	a->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	a->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	return a->kick_fd < 0 || a->epoll_fd < 0 ? -errno : 0;
}

static void attach_close_fds(struct roce_attachment *a)
{
	attach_close(&a->board_fd);
	for (int i = 0; i < 2; i++) {
		attach_close(&a->bell_fd[i]);
		attach_close(&a->bell_out[i]);
	}
	attach_close(&a->kick_fd);
	attach_close(&a->epoll_fd);
}

static void attach_undo(struct roce_attachment *a)
{
	if (a->ibt != NULL)
		ibt_destroy(a->ibt);
	if (a->udp != NULL)
		udp_destroy(a->udp);
	if (a->node != NULL)
		node_detach(a->node);
	adopt_show(NULL, NULL);
	if (a->board != NULL)
		munmap(a->board, sizeof(*a->board));
	attach_close_fds(a);
	memset(a, 0, sizeof(*a));
}

/* What is stored late goes to the file. It harms nobody if the memory leaves the file with this
 * registration; a window, or one of several registrations, leaves it there. */
static bool attach_may_lose(const struct mem_entry *e)
{
	return (e->flags & MEM_WINDOW) == 0 && e->shared != 0 && adopt_is_last(e->addr, e->length);
}

/* For MEM_EVERY_KEY it is enough to have waited, and adopt's lock may be held. */
static bool attach_drain_key(void *arg, u32 index)
{
	struct roce_device *dev = arg;
	enum shm_left left = SHM_LEFT_NOTHING;

	if (dev->a.shm != NULL)
		left = shm_drain(dev->a.shm, index, SHM_ANY_QP);
	return left == SHM_LEFT_NOTHING ||
	       (left == SHM_LEFT_STORES && index != MEM_EVERY_KEY &&
		attach_may_lose(&dev->a.board->keys[index]));
}

static void attach_nothing(void *arg)
{
}

static void attach_exclude(struct path *path)
{
	path->ops->exclude(path, attach_nothing, NULL);
}

/* Whoever copied by an earlier lookup was inside the engine's receive, on one of the paths. */
static void attach_quiesce(void *arg)
{
	struct roce_device *dev = arg;

	if (dev->a.shm != NULL)
		attach_exclude(shm_path(dev->a.shm));
	if (dev->a.udp != NULL)
		attach_exclude(udp_path(dev->a.udp));
}

static int attach_memory(struct roce_device *dev)
{
	struct roce_attachment *a = &dev->a;
	int err;

	a->board = board_create(&a->board_fd, &err);
	if (a->board == NULL)
		return err;
	a->board->direct = dev->direct;
	err = mem_table_init(&a->mem, a->board->keys);
	a->mem.drain = attach_drain_key;
	a->mem.quiesce = attach_quiesce;
	a->mem.drain_arg = dev;
	if (err == 0)
		adopt_show(&a->board->memory, &a->mem);
	timer_set_init(&a->timers);
	return err;
}

static int attach_paths(struct roce_device *dev)
{
	struct roce_attachment *a = &dev->a;
	struct shm_config cfg = { .board = a->board,
				  .node = a->node,
				  .process = node_process(a->node),
				  .epoll_fd = a->epoll_fd,
				  .direct = dev->direct,
				  .kick = progress_kick,
				  .kick_arg = dev,
				  .capture = &a->capture,
				  .bell_fd = { a->bell_fd[0], a->bell_fd[1] } };
	struct ibt_config engine = { .mem = &a->mem,
				     .timers = &a->timers,
				     .kick = progress_timer_kick,
				     .publish = roce_publish,
				     .async = roce_async,
				     .multicast = roce_multicast,
				     .route = roce_route,
				     .arg = dev };
	struct udp_config udp = { .node = a->node,
				  .counters = a->board->counters,
				  .capture = &a->capture,
				  .kick = progress_kick,
				  .kick_arg = dev,
				  .ticking = &dev->ticking,
				  .loop = (dev->paths & ROCE_PATH_SHM) == 0,
				  .lanes = env_number("ANYVERBS_SOURCE_PORTS", UDP_LANES,
							     UDP_LANES),
				  .lines = env_number("ANYVERBS_CONNECTED_SOCKETS",
							     UDP_LINES, UDP_LINES) };
	int err;

	a->shm = shm_create(&cfg, &err);
	if (a->shm == NULL)
		return err;
	a->udp = udp_create(&udp, &err);
	if (a->udp == NULL)
		return err;
	a->ibt = ibt_create(&engine);
	if (a->ibt == NULL)
		return -ENOMEM;
	ibt_add_path(a->ibt, shm_path(a->shm));
	ibt_add_path(a->ibt, udp_path(a->udp));
	return 0;
}

static bool attach_port_is_up(struct roce_device *dev)
{
	bool up;

	lock_acquire(&dev->config_lock);
	up = dev->config.port_up;
	lock_release(&dev->config_lock);
	return up;
}

static int attach_all(struct roce_device *dev)
{
	struct roce_attachment *a = &dev->a;
	struct node_self self;
	struct node_event ev;
	int err;

	memset(a, 0, sizeof(*a));
	a->board_fd = a->bell_fd[0] = a->bell_fd[1] = a->kick_fd = a->epoll_fd = -1;
	a->bell_out[0] = a->bell_out[1] = -1;
	capture_init(&a->capture);
	dev->direct = env_is_on("ANYVERBS_DIRECT", true);
	/* The midlayer's consumers have REPORT_MISSED_EVENTS. Programs over the doors have come to
	 * expect what adapters do. */
	dev->eager_ib = !env_is_on("ANYVERBS_STRICT_NOTIFY", true);
	dev->eager_door = !env_is_on("ANYVERBS_STRICT_NOTIFY", false);
	dev->paths = attach_env_paths();
	err = attach_fds(a);
	if (err == 0)
		err = attach_memory(dev);
	if (err != 0)
		return err;
	self = (struct node_self){ .board_fd = a->board_fd,
				   .bell_fd = { a->bell_out[0], a->bell_out[1] } };
	err = node_attach(&self, &a->node);
	if (err == 0)
		err = attach_paths(dev);
	if (err != 0)
		return err;
	roce_config_refresh(dev);
	if (node_event_take(a->node, NODE_EVENT_CAPTURE, &ev))
		progress_capture(dev, ev.capture_fd);
	shm_set_up(a->shm, attach_port_is_up(dev));
	udp_set_up(a->udp, attach_port_is_up(dev));
	return progress_start(dev);
}

int roce_attach(struct roce_device *dev)
{
	int err = 0;

	if (roce_is_attached(dev))
		return 0;
	lock_acquire(&dev->attach_lock);
	if (!roce_is_attached(dev)) {
		err = attach_all(dev);
		if (err == 0) {
			fault_guard();
			__atomic_fetch_add(&dev->generation, 1, __ATOMIC_RELAXED);
			/* pairs with the load in roce_is_attached */
			__atomic_store_n(&dev->attached, true, __ATOMIC_RELEASE);
		} else {
			log_error("roce", "no adapter: %s", strerror(-err));
			attach_undo(&dev->a);
		}
	}
	lock_release(&dev->attach_lock);
	return err;
}

/* The board's pages were not inherited: put empty ones in their place, so that what still points
 * there stays harmless. */
static void drop_board(struct roce_attachment *a)
{
	void *p = mmap(a->board, sizeof(*a->board), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);

	if (p == MAP_FAILED)
		log_error("roce", "a forked child cannot map %zu bytes", sizeof(*a->board));
}

/* The parent's queue pairs stay the parent's: here they only flush. Runs with one thread, after
 * core has forgotten the device. */
static void drop_objects(struct roce_device *dev) NO_THREAD_SAFETY
{
	lock_init(&dev->attach_lock);
	lock_init(&dev->config_lock);
	lock_init(&dev->id_lock);
	list_for_each(cq, &dev->cqs, struct roce_cq, node) {
		lock_init(&cq->q.lock);
		lock_init(&cq->q.poll_lock);
	}
	list_for_each(srq, &dev->srqs, struct roce_srq, node)
		ibt_srq_orphan(srq->engine);
	list_for_each(qp, &dev->qps, struct roce_qp, node)
		ibt_qp_orphan(roce_engine(qp));
	list_init(&dev->qps);
	free(dev->qp_bitmap);
	dev->qp_bitmap = NULL;
	dev->slot_count = dev->qp_cursor = 0;
	dev->claims = 0;
}

void roce_drop_in_child(void)
{
	struct roce_device *dev = roce_the_device;
	struct roce_attachment *a;

	if (dev == NULL || !roce_is_attached(dev))
		return;
	a = &dev->a;
	adopt_drop_in_child();
	event_drop_in_child();
	drop_board(a);
	drop_objects(dev);
	node_drop_in_child(a->node);
	shm_drop_in_child(a->shm);
	capture_drop_in_child(&a->capture);
	udp_drop_in_child(a->udp);
	attach_close_fds(a);
	__atomic_store_n(&dev->attached, false, __ATOMIC_RELAXED);
}
