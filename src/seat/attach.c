/* attach.c: takes this process' seat: node connection, board, doorbells, paths, engine; and drops
 * them in a forked child.
 * In: nothing    Out: a seat_attachment    Runs: a thread that may sleep    Locks: attach_lock
 */
#include "seat/seat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/env.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/fork.h"
#include "base/limit.h"
#include "base/log.h"
#include "event/event.h"
#include "shared/shared.h"

struct seat the_seat;

static u32 attach_env_paths(void)
{
	static const char *const names[] = { "shm", "udp", NULL };
	static const u32 paths[] = { SEAT_PATH_SHM, SEAT_PATH_UDP };
	u32 words = env_words("ANYVERBS_PATHS", names, 3), found = 0;

	for (u32 i = 0; names[i] != NULL; i++)
		found |= words & 1u << i ? paths[i] : 0;
	return found;
}

/* When places in work queues are free: with their completions' polls, as on adapters, or before. */
static bool attach_env_early(void)
{
	static const char *const names[] = { "polled", "early", NULL };

	return (env_words("ANYVERBS_QUEUES", names, 1) & 2) != 0;
}

static void attach_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* A doorbell is a pipe, not an eventfd: a peer that rings it opens it once more (link_open). So no
 * process can make another's descriptor blocking, and none can make a writer wait. Each end is open
 * for reading and writing, so that a reader always exists. Without /proc an eventfd serves; peers
 * whose own doorbells are pipes would refuse it, so a lack of descriptors is an error. */
static int attach_bell(int *own, int *out)
{
	enum { BELL_BYTES = 4096 }; /* a longer read gains nothing */
	char path[32];
	int p[2], err;

	if (pipe2(p, O_CLOEXEC | O_NONBLOCK) != 0)
		return -errno;
	(void)fcntl(p[0], F_SETPIPE_SZ, BELL_BYTES);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", p[0]);
	*own = fd_own(open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC));
	err = *own < 0 ? errno : 0;
	if (err == 0)
		*out = fd_own(open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC));
	if (err == 0 && *out < 0)
		err = errno;
	close(p[0]);
	close(p[1]);
	if (err == 0)
		return 0;
	attach_close(own);
	attach_close(out);
	if (err == EMFILE || err == ENFILE || err == ENOMEM)
		return -err;
	*own = fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	*out = fd_own_copy(*own);
	return *out < 0 ? -errno : 0;
}

static int attach_fds(struct seat_attachment *a)
{
	int err = 0;

	for (int i = 0; i < 2 && err == 0; i++)
		err = attach_bell(&a->bell_fd[i], &a->bell_out[i]);
	if (err != 0)
		return err;
	a->kick_fd = fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	a->epoll_fd = fd_own(epoll_create1(EPOLL_CLOEXEC));
	return a->kick_fd < 0 || a->epoll_fd < 0 ? -errno : 0;
}

static void attach_close_fds(struct seat_attachment *a)
{
	attach_close(&a->board_fd);
	for (int i = 0; i < 2; i++) {
		attach_close(&a->bell_fd[i]);
		attach_close(&a->bell_out[i]);
	}
	attach_close(&a->kick_fd);
	attach_close(&a->epoll_fd);
}

/* A child of a fork meanwhile drops what there is, and nothing where there is nothing. */
static void attach_set_begun(struct seat *s, bool begun)
{
	__atomic_store_n(&s->begun, begun, __ATOMIC_RELEASE);
}

static bool attach_has_begun(const struct seat *s)
{
	return __atomic_load_n(&s->begun, __ATOMIC_ACQUIRE);
}

static void attach_undo(struct seat *s)
{
	struct seat_attachment *a = &s->a;

	attach_set_begun(s, false);
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

/* A store that comes too late goes to the file and harms nobody if the memory leaves the file with
 * this registration. A window, or one of several registrations, leaves the memory in the file. */
static bool attach_may_lose(const struct mem_entry *e)
{
	return (e->flags & MEM_WINDOW) == 0 && e->shared != 0 && adopt_is_last(e->addr, e->length);
}

/* For MEM_EVERY_KEY the wait alone is enough; adopt's lock may be held. */
static bool attach_drain_key(void *arg, u32 index)
{
	struct seat *s = arg;
	enum shm_left left = SHM_LEFT_NOTHING;

	if (s->a.shm != NULL)
		left = shm_drain(s->a.shm, index, SHM_ANY_QP);
	return left == SHM_LEFT_NOTHING ||
	       (left == SHM_LEFT_STORES && index != MEM_EVERY_KEY &&
		attach_may_lose(&s->a.board->keys[index]));
}

static void attach_nothing(void *arg)
{
}

static void attach_exclude(struct path *path)
{
	path->ops->exclude(path, attach_nothing, NULL);
}

/* A copy by an earlier lookup ran inside the engine's receive, on one of the paths. */
static void attach_quiesce(void *arg)
{
	struct seat *s = arg;

	if (s->a.shm != NULL)
		attach_exclude(shm_path(s->a.shm));
	if (s->a.udp != NULL)
		attach_exclude(udp_path(s->a.udp));
	if (s->ops != NULL && s->ops->quiesce != NULL)
		s->ops->quiesce(s);
}

static int attach_memory(struct seat *s)
{
	struct seat_attachment *a = &s->a;
	int err;

	a->board = board_create(&a->board_fd, &err);
	if (a->board == NULL)
		return err;
	a->board->direct = s->direct;
	ibt_show_places(a->board->inside);
	err = mem_table_init(&a->mem, a->board->keys);
	a->mem.drain = attach_drain_key;
	a->mem.quiesce = attach_quiesce;
	a->mem.drain_arg = s;
	if (err == 0)
		adopt_show(&a->board->memory, &a->mem);
	timer_set_init(&a->timers);
	return err;
}

static int attach_paths(struct seat *s)
{
	struct seat_attachment *a = &s->a;
	struct shm_config cfg = { .board = a->board,
				  .node = a->node,
				  .process = node_process(a->node),
				  .epoll_fd = a->epoll_fd,
				  .direct = s->direct,
				  .kick = progress_kick,
				  .returned = s->ops->returned,
				  .kick_arg = s,
				  .died = s->ops->died,
				  .capture = &a->capture,
				  .bell_fd = { a->bell_fd[0], a->bell_fd[1] } };
	struct ibt_config engine = { .mem = &a->mem,
				     .timers = &a->timers,
				     .kick = progress_timer_kick,
				     .publish = s->ops->publish,
				     .async = s->ops->async,
				     .multicast = s->ops->multicast,
				     .route = s->ops->route,
				     .general = s->ops->general,
				     .bad_key = s->ops->bad_key,
				     .traffic = a->board->traffic,
				     .frees_early = attach_env_early(),
				     .arg = s };
	struct udp_config udp = {
		.node = a->node,
		.counters = a->board->counters,
		.traffic = a->board->traffic,
		.capture = &a->capture,
		.kick = progress_kick,
		.kick_arg = s,
		.ticking = &s->ticking,
		.sleepers = &s->sleepers,
		.loop = (s->paths & SEAT_PATH_SHM) == 0,
		.lanes = env_number("ANYVERBS_SOURCE_PORTS", UDP_LANES, UDP_LANES),
		.connected_sockets = env_number("ANYVERBS_CONNECTED_SOCKETS", UDP_CONNECTED_SOCKETS,
						UDP_CONNECTED_SOCKETS)
	};
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

/* Under Yama's ptrace_scope 1 a process reaches the address space of its descendants only, unless
 * that process lets others in; memory files open without it. Yama cannot name the peers alone, so
 * the user opts in. A kernel without Yama answers EINVAL. A forked child lets in for itself, when
 * it attaches. */
static void attach_let_in(void)
{
	if (env_is_on("ANYVERBS_PTRACER", false))
		(void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

static int attach_all(struct seat *s) REQUIRES(s->attach_lock)
{
	struct seat_attachment *a = &s->a;
	struct node_self self;
	struct node_event ev;
	int err;

	memset(a, 0, sizeof(*a));
	a->board_fd = a->bell_fd[0] = a->bell_fd[1] = a->kick_fd = a->epoll_fd = -1;
	a->bell_out[0] = a->bell_out[1] = -1;
	capture_init(&a->capture);
	attach_set_begun(s, true);
	s->direct = env_is_on("ANYVERBS_DIRECT", true);
	attach_let_in();
	/* a host of a fabric has no wire but the fabric's */
	s->paths = node_fabric_host() != NULL ? SEAT_PATH_SHM : attach_env_paths();
	err = attach_fds(a);
	if (err == 0)
		err = attach_memory(s);
	if (err != 0)
		return err;
	self = (struct node_self){ .board_fd = a->board_fd,
				   .bell_fd = { a->bell_out[0], a->bell_out[1] },
				   .wire_only = (s->paths & SEAT_PATH_SHM) == 0 };
	err = node_attach(&self, &a->node);
	if (err == 0)
		err = attach_paths(s);
	if (err == 0)
		err = s->ops->begin(s);
	if (err != 0)
		return err;
	if (node_event_take(a->node, NODE_EVENT_CAPTURE, &ev))
		progress_capture(s, ev.capture_fd);
	return progress_start(s);
}

/* Children do not inherit the board's pages. Empty pages take their place, so that stale pointers
 * stay harmless. */
static void drop_board(void)
{
	struct board *board = the_seat.a.board;
	void *p;

	if (!attach_has_begun(&the_seat) || board == NULL)
		return;
	p = mmap(board, sizeof(*board), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	if (p == MAP_FAILED)
		log_error("seat", "a forked child cannot map %zu bytes", sizeof(*board));
}
FORK_HOOK(FORK_BOARD, .child = drop_board);

/* The seat's queue pair numbers are the parent's. */
static void drop_numbers(void) NO_THREAD_SAFETY /* the only thread */
{
	struct seat *s = &the_seat;

	free(s->qp_bitmap);
	s->qp_bitmap = NULL;
	s->slot_count = s->qp_cursor = 0;
	s->claims = s->sleepers = 0;
}
FORK_MAKES_ANEW(FORK_SEAT_NUMBERS, &the_seat.id_lock, .child = drop_numbers);

/* Runs after core and the adapters have dropped the devices. Another thread may have been about to
 * attach: then a part of it is there. */
static void drop_in_child(void)
{
	struct seat *s = &the_seat;
	struct seat_attachment *a = &s->a;

	if (!attach_has_begun(s))
		return;
	node_drop_in_child(a->node);
	if (a->shm != NULL)
		shm_drop_in_child(a->shm);
	capture_drop_in_child(&a->capture);
	if (a->udp != NULL)
		udp_drop_in_child(a->udp);
	attach_close_fds(a);
	attach_set_begun(s, false);
	__atomic_store_n(&s->attached, false, __ATOMIC_RELAXED);
}
FORK_MAKES_ANEW(FORK_SEAT, &the_seat.attach_lock, .child = drop_in_child);

/* A thread that is refused is said already (thread.h). */
static void attach_say_refused(int err)
{
	static pid_t said ATOMIC_ONLY;

	if (limit_refuses(err))
		limit_say(&said, "seat", "no adapter", err);
	else
		log_error("seat", "no adapter: %s", strerror(-err));
}

int seat_attach(struct seat *s, const struct seat_ops *ops)
{
	int err = 0;

	if (seat_is_attached(s))
		return 0;
	lock_acquire(&s->attach_lock);
	if (!seat_is_attached(s)) {
		s->ops = ops;
		err = attach_all(s);
		if (err == 0) {
			fault_guard();
			__atomic_fetch_add(&s->generation, 1, __ATOMIC_RELAXED);
			/* pairs with the load in seat_is_attached */
			__atomic_store_n(&s->attached, true, __ATOMIC_RELEASE);
			ops->taken(s);
		} else {
			attach_say_refused(err);
			attach_undo(s);
		}
	}
	lock_release(&s->attach_lock);
	return err;
}
