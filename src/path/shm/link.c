/* link.c: a link's life: requested, opened, dead, buried.
 * In: slots, and what the node hands over    Out: mapped rings and boards
 * Runs: the engine's thread and verbs that may sleep    Locks: see each function
 */
#include "path/shm/reach.h"
#include "path/shm/space.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/task.h"

/* A pair that the node says exists is on its way: some thread has read the node's event, and opens
 * the link, or will. On a busy machine that thread may have to wait for its turn. */
enum { LINK_ALIAS_MS = 5000, LINK_ASK_MS = 20 /* between requests meanwhile */ };

struct shm_link *link_create(struct shm *shm, u32 slot)
{
	struct shm_link *l = calloc(1, sizeof(*l));

	if (l == NULL)
		return NULL;
	path_dest_init(&l->dest, &shm->path);
	list_init(&l->node);
	l->shm = shm;
	l->slot = slot;
	link_set_state(l, LINK_ASKING);
	l->bell_fd[0] = l->bell_fd[1] = l->pid_fd = l->space_fd = -1;
	return l;
}

void link_set_state(struct shm_link *l, u32 word)
{
	__atomic_store_n(&l->state, word, __ATOMIC_RELEASE); /* pairs with link_word */
	__atomic_store_n(&l->must_look,
			 !link_is_settled(l) || __atomic_load_n(&l->wire_only, __ATOMIC_RELAXED),
			 __ATOMIC_RELAXED);
}

void link_set_open(struct shm_link *l)
{
	link_set_state(l, LINK_UP | (l->shm->watched ? LINK_WATCHED : 0u));
}

static void link_close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

bool link_take_spare(struct shm *shm)
{
	struct rlimit limit;
	rlim_t most = 0;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		most = limit.rlim_cur / 16 * 3;
	if (__atomic_fetch_add(&shm->spare_fds, 1, __ATOMIC_RELAXED) < most)
		return true;
	link_give_spare(shm);
	return false;
}

void link_give_spare(struct shm *shm)
{
	__atomic_fetch_sub(&shm->spare_fds, 1, __ATOMIC_RELAXED);
}

static void link_close_spare(const struct shm_link *l, int *fd)
{
	if (*fd >= 0)
		link_give_spare(l->shm);
	link_close_fd(fd);
}

bool link_has_died(const struct shm_link *l)
{
	struct pollfd p = { .fd = l->pid_fd, .events = POLLIN };

	return l->pid_fd >= 0 && (poll(&p, 1, 0) == 1 || task_is_exiting(l->pid));
}

void link_unwatch(struct shm_link *l)
{
	/* A child may hold a copy, which would keep the descriptor in the epoll set. */
	if (l->pid_fd >= 0)
		epoll_ctl(l->shm->cfg.epoll_fd, EPOLL_CTL_DEL, l->pid_fd, NULL);
	link_close_fd(&l->pid_fd);
}

void link_close(struct shm_link *l)
{
	link_unwatch(l);
	ring_tx_end(&l->tx);
	ring_pair_unmap(l->pair);
	reach_close(l);
	if (!l->self)
		board_unmap(l->board);
	link_close_fd(&l->bell_fd[0]);
	link_close_spare(l, &l->bell_fd[1]);
	link_close_spare(l, &l->space_fd);
	l->pair = NULL;
	l->board = NULL;
}

/* Leaves out the second doorbell where spare descriptors are few. */
static void link_take_fds(struct shm_link *l, struct node_peer *peer)
{
	l->process = peer->process;
	l->pid = peer->pid;
	l->bell_fd[0] = peer->bell_fd[0];
	l->pid_fd = peer->pid_fd;
	peer->bell_fd[0] = peer->pid_fd = -1;
	if (peer->bell_fd[1] >= 0 && link_take_spare(l->shm)) {
		l->bell_fd[1] = peer->bell_fd[1];
		peer->bell_fd[1] = -1;
	}
	link_close_fd(&peer->bell_fd[1]);
}

static bool link_is_pipe(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode);
}

/* Opens a peer's doorbell once more. No other process can make that description blocking, so a peer
 * that fills its pipe makes no writer wait. Where this process' own doorbells are pipes, any other
 * kind of file is refused. False: it cannot be opened so. */
static bool link_own_bell(const struct shm_link *l, int *fd)
{
	char path[32];
	int own;

	if (!link_is_pipe(l->shm->cfg.bell_fd[0]))
		return *fd >= 0;
	if (!link_is_pipe(*fd))
		return false;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", *fd);
	own = fd_own(open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC));
	link_close_fd(fd);
	*fd = own;
	return own >= 0;
}

/* Tells whether the peer's memory file may be had although its address space may not: Yama refuses
 * that to all but ancestors. */
static bool link_may_map(const struct shm_link *l, int err)
{
	return (err == -EACCES || err == -EPERM) && task_shows_files(task_of(l->pid_fd));
}

void link_open_space(struct shm_link *l)
{
	int fd;

	l->direct = l->shm->cfg.direct && l->board->direct;
	if (!l->direct || l->self)
		return;
	l->owner = (struct space_owner){ .pid = l->pid,
					 .nonce_addr = l->board->nonce_addr,
					 .nonce = l->board->nonce };
	fd = link_take_spare(l->shm) ? space_open(l->pid, l->owner.nonce_addr, l->owner.nonce)
				     : -ENFILE;
	if (fd >= 0) {
		l->space_fd = fd;
		return;
	}
	if (fd != -ENFILE)
		link_give_spare(l->shm);
	l->direct = link_may_map(l, fd);
	if (l->direct) {
		log_info("shm",
			 "of process %d shared memory alone is reached directly (error %d); its "
			 "own engine will copy the rest",
			 (int)l->pid, -fd);
		return;
	}
	log_info("shm",
		 "process %d cannot be reached directly (error %d); its own engine will copy",
		 (int)l->pid, -fd);
}

int link_open(struct shm_link *l, struct node_peer *peer)
{
	bool lower = l->shm->cfg.process < peer->process;
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = l };
	int err;

	errno = 0;
	link_take_fds(l, peer);
	l->board = board_map(peer->board_fd);
	l->pair = ring_pair_map(peer->ring_fd);
	link_close_fd(&peer->board_fd);
	link_close_fd(&peer->ring_fd);
	if (l->board == NULL || l->pair == NULL || l->pid_fd < 0 ||
	    !link_own_bell(l, &l->bell_fd[0]) ||
	    (l->bell_fd[1] >= 0 && !link_own_bell(l, &l->bell_fd[1]))) {
		err = errno == EMFILE || errno == ENFILE ? -errno : -ENOMEM;
		log_warn("shm", "process %d cannot be mapped: %s", (int)l->pid, strerror(errno));
		link_close(l);
		return err;
	}
	ring_tx_init(&l->tx, &l->pair->ring[lower ? 0 : 1], &l->shm->ring_spare);
	ring_rx_init(&l->rx, &l->pair->ring[lower ? 1 : 0]);
	link_open_space(l);
	if (epoll_ctl(l->shm->cfg.epoll_fd, EPOLL_CTL_ADD, l->pid_fd, &ev) != 0) {
		err = -errno;
		link_close(l);
		return err;
	}
	return 0;
}

static void link_write_bell(const struct shm_link *l, int fd)
{
	u64 one = 1;

	board_count(l->shm->cfg.board, COUNT_BELLS);
	/* syscall(): write() is a cancellation point, and the caller holds locks. */
	if (syscall(SYS_write, fd, &one, sizeof(one)) < 0)
		log_debug("shm", "doorbell of %d: errno %d", (int)l->pid, errno);
}

void link_ring_anyway(const struct shm_link *l)
{
	link_write_bell(l, l->bell_fd[0]);
}

void link_ring_bell(struct shm_link *l)
{
	u32 word;
	int fd;

	/* Pairs with the fence in shm_bell_arm: either this sees the doorbell armed, or the peer's
	 * last poll sees the packet. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	word = __atomic_load_n(&l->board->bell, __ATOMIC_RELAXED);
	if (likely((word & BELL_ARMED) == 0) || word == __atomic_load_n(&l->rung, __ATOMIC_RELAXED))
		return;
	__atomic_store_n(&l->rung, word, __ATOMIC_RELAXED);
	fd = l->bell_fd[word & BELL_SECOND ? 1 : 0];
	if (fd < 0) /* the peer's engine receives then, and wakes its waiter by the completion */
		fd = l->bell_fd[0];
	link_write_bell(l, fd);
}

static struct shm_link *link_find_process(struct shm *shm, u64 process) REQUIRES(shm->lock)
{
	for (u32 i = 0; i < shm->count; i++)
		if (shm->links[i]->process == process && link_state(shm->links[i]) == LINK_UP)
			return shm->links[i];
	return NULL;
}

/* Slots without an owner may be that process', whose pair was slow to come. Packets of its queue
 * pairs find no peer until then, and whoever only receives would never ask again. */
static void link_ask_absent(struct shm *shm) REQUIRES(shm->lock)
{
	for (u32 s = 0; s < NODE_SLOTS; s++)
		if (shm->slots[s] != NULL && link_state(shm->slots[s]) == LINK_ABSENT)
			shm_ask(shm, shm->slots[s]);
}

/* Adds an opened link to those that poll looks at. */
static int link_publish(struct shm_link *l)
{
	struct shm *shm = l->shm;
	int err = -ENOSPC;

	lock_acquire(&shm->poll_lock);
	lock_acquire(&shm->lock);
	if (shm->count < SHM_LINKS) {
		shm->links[shm->count] = l;
		__atomic_store_n(&shm->count, shm->count + 1, __ATOMIC_RELEASE);
		shm_add_warm(shm, l);
		link_set_open(l);
		link_ask_absent(shm);
		err = 0;
	}
	lock_release(&shm->lock);
	lock_release(&shm->poll_lock);
	/* Packets that came earlier rang for a thread that did not poll this link. */
	if (err == 0)
		shm->cfg.kick(shm->cfg.kick_arg);
	return err;
}

/* Closes the descriptors from the node, and has the peer told why this process takes no part. */
static void link_refuse(struct shm *shm, struct node_peer *peer, int err)
{
	int *fds[] = { &peer->ring_fd, &peer->board_fd, &peer->bell_fd[0], &peer->bell_fd[1],
		       &peer->pid_fd };

	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		link_close_fd(fds[i]);
	if (shm->cfg.node == NULL)
		return;
	node_say_no_pair(err);
	node_pair_refuse(shm->cfg.node, peer->process, err);
}

/* Opens the link and polls it, or has the peer told that this process takes no part. */
static int link_begin(struct shm_link *l, struct node_peer *peer)
{
	int err = link_open(l, peer);

	if (err == 0)
		err = link_publish(l);
	if (err != 0) {
		link_close(l);
		link_refuse(l->shm, peer, err);
		__atomic_fetch_add(&l->shm->refusals, 1, __ATOMIC_RELAXED);
	}
	return err;
}

int shm_peer_new(struct shm *shm, struct node_peer *peer)
{
	struct shm_link *l = link_create(shm, UINT32_MAX);
	int err;

	if (l == NULL) {
		link_refuse(shm, peer, -ENOMEM);
		return -ENOMEM;
	}
	err = link_begin(l, peer);
	if (err != 0)
		free(l);
	return err;
}

bool link_slot_is_wire_only(const struct shm *shm, u32 slot)
{
	return shm->cfg.node != NULL && node_slot_is_wire_only(shm->cfg.node, slot);
}

/* Asks the node for the slot's owner. -EALREADY: there is a pair with that process already. */
static int link_ask(struct shm_link *l, int ring, struct node_peer *peer)
{
	*peer = (struct node_peer){
		.ring_fd = -1, .board_fd = -1, .bell_fd = { -1, -1 }, .pid_fd = -1
	};
	return node_connect(l->shm->cfg.node, l->slot, ring, peer);
}

/* The slot belongs to a process whose link exists or is being opened: 0. Or the process has ended,
 * and the node has not seen that yet: -EALREADY, after a moment, and the node is to be asked again.
 * -EAGAIN: the process refuses, or is late. */
static int link_alias(struct shm_link *l, u64 process, u64 end)
{
	struct shm *shm = l->shm;
	u64 ask = MIN(end, clock_now_ns() + LINK_ASK_MS * NS_PER_MS);
	u32 refusals = __atomic_load_n(&shm->refusals, __ATOMIC_RELAXED);
	struct node_event ev;

	do {
		struct shm_link *real;

		lock_acquire(&shm->poll_lock);
		lock_acquire(&shm->lock);
		real = link_find_process(shm, process);
		if (real != NULL) {
			real->refs++;
			l->real = real;
			l->next_alias = real->next_alias;
			real->next_alias = l;
			link_set_state(l, LINK_ALIAS);
			if (link_is_expected(l))
				link_set_expected(real);
		}
		lock_release(&shm->lock);
		lock_release(&shm->poll_lock);
		if (real != NULL)
			return 0;
		/* This may be the engine's thread: reads the event itself. */
		if (node_event_take(shm->cfg.node, NODE_EVENT_PEER_NEW, &ev))
			shm_peer_new(shm, &ev.peer);
		else
			usleep(1000);
		if (__atomic_load_n(&shm->refusals, __ATOMIC_RELAXED) != refusals)
			return -EAGAIN;
	} while (clock_now_ns() < ask);
	return ask < end ? -EALREADY : -EAGAIN;
}

int link_resolve(struct shm_link *l)
{
	u64 end = clock_now_ns() + LINK_ALIAS_MS * NS_PER_MS;
	struct shm *shm = l->shm;
	struct node_peer peer;
	int ring, err;

	__atomic_store_n(&l->asked_ns, clock_now_ns(), __ATOMIC_RELAXED);
	if (shm->cfg.node == NULL)
		return -ENOENT;
	ring = ring_pair_create();
	if (ring < 0)
		return ring;
	do {
		err = link_ask(l, ring, &peer);
		/* the slot may have passed to another process meanwhile */
		__atomic_store_n(&l->wire_only, link_slot_is_wire_only(shm, l->slot),
				 __ATOMIC_RELAXED);
		if (err == 0)
			err = link_begin(l, &peer);
		else if (err == -EALREADY)
			err = link_alias(l, peer.process, end);
	} while (err == -EALREADY);
	close(ring);
	return err;
}
