/* shm_test.c: links and doorbells of two processes in one: the test is the node, and the peer. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "path/shm/shm_kit.h"
#include "path/shm/shm_priv.h"

enum {
	OUR_PROCESS = 1,
	PEER_PROCESS = 2,
	PEER_QPN = 6 << NODE_INDEX_BITS | 2,
	PEER_OTHER_SLOT = 7, /* of the same process */
	PEER_WIRE_SLOT = 8,  /* of a process without this path */
	PATIENCE_MS = 200,
	ARMERS = 4,
	ARMS = 100000, /* of each */
};

static struct world {
	struct shm *shm;
	struct board *board, *peer_board;
	int board_fd, peer_board_fd, bell, epoll;
	u32 dead;
	u32 refused; /* what node_pair_refuse was told last */
	u32 returned; /* the last word of MADs that came back, in their order */
	u32 kicks;
	u32 died; /* calls of shm_config.died */
	u64 died_slots[NODE_SLOTS / 64];
	pid_t peer_pid; /* 0: this process */
	u32 asked;	/* calls of node_connect for the other slot ... */
	bool unseen;	/* ... whose process has ended, which the node sees after the first one */
	int peer_pipe; /* the peer's doorbells, if they are one */
	bool shares;   /* PEER_WIRE_SLOT is another process', which has this path */
	bool comes_back; /* to a node that shows nothing of it before: PEER_WIRE_SLOT's */
	bool gone_early;
	u32 late_ms; /* after the answer the pair of the other slot comes so late */
	pthread_t teller;
	u32 told;
} w;

/* ---- the node ---- */

static void fill_peer(struct node_peer *peer, int ring)
{
	pid_t pid = w.peer_pid != 0 ? w.peer_pid : getpid();

	*peer = (struct node_peer){ .process = PEER_PROCESS, .pid = pid, .ring_fd = ring };
	peer->board_fd = dup(w.peer_board_fd);
	for (int i = 0; i < 2; i++)
		peer->bell_fd[i] = w.peer_pipe ? dup(w.peer_pipe)
					       : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	peer->pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
}

static void *tell_gone(void *arg)
{
	shm_peer_gone(w.shm, PEER_PROCESS, 0);
	__atomic_store_n(&w.told, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* As an engine that gets little time. */
static void *tell_new(void *arg)
{
	struct node_peer peer;

	usleep(w.late_ms * 1000);
	fill_peer(&peer, ring_pair_create());
	assert_int_equal(shm_peer_new(w.shm, &peer), 0);
	return NULL;
}

/* As one that lacks what it needs. */
static void *tell_broken(void *arg)
{
	struct node_peer peer;

	usleep(PATIENCE_MS * 1000);
	fill_peer(&peer, memfd_create("no ring", MFD_CLOEXEC));
	assert_int_not_equal(shm_peer_new(w.shm, &peer), 0);
	return NULL;
}

int node_connect(struct node *n, u32 slot, int ring_fd, struct node_peer *out)
{
	if (slot == PEER_OTHER_SLOT) {
		out->process = PEER_PROCESS;
		w.asked++;
		if (w.unseen)
			return w.asked == 1 ? -EALREADY : -ENOENT;
		if (w.shm->count == 1 && w.asked == 1)
			pthread_create(&w.teller, NULL, w.late_ms ? tell_new : tell_broken, NULL);
		return -EALREADY;
	}
	if (w.comes_back)
		w.shares = false;
	fill_peer(out, dup(ring_fd));
	w.kicks = 0;
	if (w.gone_early) {
		pthread_create(&w.teller, NULL, tell_gone, NULL);
		/* It may come back before the link is open, and then it must not have been in
		 * vain; or wait for that. */
		for (int ms = 0; ms < PATIENCE_MS && !__atomic_load_n(&w.told, __ATOMIC_ACQUIRE);
		     ms++)
			usleep(1000);
	}
	return 0;
}

void node_pair_refuse(struct node *n, u64 process, int err)
{
	w.refused = (u32)process;
}

void node_say_no_pair(int err)
{
}

bool node_slot_is_wire_only(struct node *n, u32 slot)
{
	return slot == PEER_WIRE_SLOT && !w.shares;
}

bool node_event_take(struct node *n, enum node_event_type type, struct node_event *ev)
{
	return false;
}

/* ---- the engine ---- */

static void user_receive(void *user, struct path_dest *from, const struct pkt *p,
			 const void *payload)
{
}

static void user_batch_end(void *user, struct path_dest *from, bool idle)
{
}

static void user_dead(void *user, struct path_dest *dest)
{
	w.dead++;
}

static const struct path_user user = {
	.receive = user_receive,
	.batch_end = user_batch_end,
	.writable = user_dead,
	.dead = user_dead,
};

static void kick(void *arg)
{
	w.kicks++;
}

static void died(void *arg, const u64 slots[NODE_SLOTS / 64])
{
	w.died++;
	memcpy(w.died_slots, slots, sizeof(w.died_slots));
}

static void returned(void *arg, const struct pkt *p, const void *payload)
{
	assert_int_equal(p->length, 1);
	assert_int_equal(p->sqpn, 1);
	w.returned = w.returned << 8 | *(const u8 *)payload;
}

static int set_up(void **state)
{
	struct shm_config cfg = { .process = OUR_PROCESS,
				  .node = (struct node *)&w,
				  .kick = kick,
				  .died = died,
				  .returned = returned };
	int err;

	memset(&w, 0, sizeof(w));
	w.board = cfg.board = board_create(&w.board_fd, &err);
	w.peer_board = board_create(&w.peer_board_fd, &err);
	w.epoll = cfg.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	w.bell = cfg.bell_fd[0] = cfg.bell_fd[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	w.shm = shm_create(&cfg, &err);
	if (w.board == NULL || w.peer_board == NULL || w.shm == NULL)
		return -1;
	shm_path(w.shm)->user_ops = &user;
	return 0;
}

static int tear_down(void **state)
{
	kit_destroy(w.shm);
	board_unmap(w.board);
	board_unmap(w.peer_board);
	close(w.board_fd);
	close(w.peer_board_fd);
	close(w.bell);
	close(w.epoll);
	return 0;
}

static struct path_dest *dest_of(u32 qpn)
{
	struct path_av av = { .hop_limit = 1 };

	return shm_path(w.shm)->ops->dest_get(shm_path(w.shm), &av, qpn);
}

static struct path_dest *dest_of_peer(void)
{
	return dest_of(PEER_QPN);
}

static int count_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* ---- tests ---- */

/* The peer says that it cannot take the pair while we are still opening it. */
static void shm_peer_gone__before_the_link_is_open(void **state)
{
	struct path_dest *d = dest_of_peer();
	struct pkt p = { .opcode = PKT_SEND_ONLY, .qp_type = IBV_QPT_RC, .dqpn = PEER_QPN };

	w.gone_early = true;
	d->path->ops->resolve(d);
	pthread_join(w.teller, NULL);
	assert_int_equal(d->path->ops->send(d, &p, NULL, 0), -EPIPE);
	assert_int_equal(w.dead, 1);
	d->path->ops->dest_put(d);
	shm_background(w.shm);
}

static void shm_peer_gone__after_the_link_is_open(void **state)
{
	struct path_dest *d = dest_of_peer();
	struct pkt p = { .opcode = PKT_SEND_ONLY, .qp_type = IBV_QPT_RC, .dqpn = PEER_QPN };

	assert_int_equal(d->path->ops->resolve(d), 0);
	assert_int_equal(d->path->ops->send(d, &p, NULL, 0), 0);
	shm_peer_gone(w.shm, PEER_PROCESS, 0);
	assert_int_equal(d->path->ops->send(d, &p, NULL, 0), -EPIPE);
	assert_int_equal(w.dead, 1);
	assert_int_equal(w.died, 0); /* it lives */
	d->path->ops->dest_put(d);
	shm_background(w.shm);
}

/* The node may hear of it first, or be gone, too. */
static void shm_peer_gone__of_a_process_that_has_ended(void **state)
{
	struct path_dest *d[] = { dest_of_peer(), dest_of(PEER_OTHER_SLOT << NODE_INDEX_BITS | 2) };
	siginfo_t info;

	w.peer_pid = fork();
	if (w.peer_pid == 0) {
		pause();
		_exit(0);
	}
	assert_true(w.peer_pid > 0);
	for (u32 i = 0; i < ARRAY_LEN(d); i++)
		(void)d[i]->path->ops->resolve(d[i]);
	assert_int_equal(kill(w.peer_pid, SIGKILL), 0);
	assert_int_equal(waitid(P_PID, (id_t)w.peer_pid, &info, WEXITED | WNOWAIT), 0);
	shm_peer_gone(w.shm, PEER_PROCESS, 0);
	shm_peer_gone(w.shm, PEER_PROCESS, 0);
	assert_int_equal(w.dead, 1);
	assert_int_equal(w.died, 1);
	assert_int_equal(w.died_slots[0],
			 1ull << (PEER_QPN >> NODE_INDEX_BITS) | 1ull << PEER_OTHER_SLOT);
	for (u32 i = 0; i < ARRAY_LEN(d); i++)
		d[i]->path->ops->dest_put(d[i]);
	shm_background(w.shm);
	assert_int_equal(waitpid(w.peer_pid, NULL, 0), w.peer_pid);
}

static void send_byte(struct path_dest *d, u32 qp_type, u32 dqpn, u8 byte)
{
	struct pkt p = { .opcode = PKT_SEND_ONLY,
			 .qp_type = (u8)qp_type,
			 .dqpn = dqpn,
			 .sqpn = 1,
			 .length = 1 };
	struct iovec iov = { &byte, 1 };

	assert_int_equal(d->path->ops->send(d, &p, &iov, 1), 0);
}

/* The peer has read nothing: who asks its CM for something must not wait for an answer. A peer that
 * has ended may have read them. */
static void shm_peer_gone__gives_back_mads_if_it_refuses(void **state)
{
	for (int round = 0; round < 2; round++) {
		struct path_dest *d = dest_of_peer();

		assert_int_equal(d->path->ops->resolve(d), 0);
		send_byte(d, IBV_QPT_UD, 1, 0x12);
		send_byte(d, IBV_QPT_UD, PEER_QPN, 0x34);
		send_byte(d, IBV_QPT_RC, 1, 0x56);
		send_byte(d, IBV_QPT_UD, 1, 0x78);
		shm_peer_gone(w.shm, PEER_PROCESS, round == 0 ? 0 : -EMFILE);
		assert_int_equal(w.returned, round == 0 ? 0 : 0x1278);
		assert_int_equal(d->path->ops->resolve(d), round == 0 ? 0 : -EMFILE);
		d->path->ops->dest_put(d);
		shm_background(w.shm);
	}
}

/* By its own account on its board. */
static void shm_dest_behind__says_whether_the_peer_had_more_to_send(void **state)
{
	struct path_dest *d = dest_of_peer();

	w.peer_board->slots[0] = PEER_QPN >> NODE_INDEX_BITS;
	w.peer_board->slot_count = 1;
	assert_false(d->path->ops->behind(d, PEER_QPN));
	assert_int_equal(d->path->ops->resolve(d), 0);
	for (u32 behind = 0; behind < 2; behind++) {
		const struct board_qp *q = link_find_qp(w.peer_board, PEER_QPN);

		assert_non_null(q);
		w.peer_board->tallies[q - w.peer_board->qps].behind = behind;
		assert_int_equal(d->path->ops->behind(d, PEER_QPN), behind);
	}
	shm_peer_gone(w.shm, PEER_PROCESS, 0);
	assert_true(d->path->ops->behind(d, PEER_QPN));
	d->path->ops->dest_put(d);
	shm_background(w.shm);
}

/* The peer has made the pair; the thread that opens it here is slow. */
static void shm_resolve__waits_for_a_pair_under_way(void **state)
{
	struct path_dest *d = dest_of(PEER_OTHER_SLOT << NODE_INDEX_BITS | 2);
	struct pkt p = { .opcode = PKT_SEND_ONLY, .qp_type = IBV_QPT_RC, .dqpn = PEER_QPN };

	w.late_ms = 5 * PATIENCE_MS;
	assert_int_equal(d->path->ops->resolve(d), 0);
	pthread_join(w.teller, NULL);
	assert_int_equal(d->path->ops->send(d, &p, NULL, 0), 0);
	d->path->ops->dest_put(d);
}

/* The process of the slot has ended, the link to it with it, and the node still has the pair. */
static void shm_resolve__waits_for_no_dead_process(void **state)
{
	struct path_dest *d = dest_of(PEER_OTHER_SLOT << NODE_INDEX_BITS | 2);

	w.unseen = true;
	assert_int_equal(d->path->ops->resolve(d), -ENETUNREACH);
	assert_int_equal(w.asked, 2);
	d->path->ops->dest_put(d);
}

/* Who only receives sends nothing that would ask again whose the slot is. */
static void shm_resolve__in_vain_is_repeated_for_a_new_pair(void **state)
{
	struct path_dest *d = dest_of(PEER_OTHER_SLOT << NODE_INDEX_BITS | 2);
	struct node_peer peer;

	assert_int_equal(d->path->ops->resolve(d), -EAGAIN);
	pthread_join(w.teller, NULL);
	fill_peer(&peer, ring_pair_create());
	assert_int_equal(shm_peer_new(w.shm, &peer), 0);
	shm_background(w.shm);
	assert_int_equal(w.shm->count, 2);
	assert_true(d->path->ops->same(d, &w.shm->links[1]->dest));
	d->path->ops->dest_put(d);
}

/* Without a kick, and without traffic, its descriptors and maps would stay for ever. */
static void shm_dest_put__of_the_last_user_has_a_dead_link_buried(void **state)
{
	int before = count_descriptors();
	struct path_dest *d[] = { dest_of_peer(), dest_of_peer(),
				  dest_of(PEER_OTHER_SLOT << NODE_INDEX_BITS | 2) };

	for (u32 i = 0; i < ARRAY_LEN(d); i++)
		assert_int_equal(d[i]->path->ops->resolve(d[i]), 0);
	shm_peer_gone(w.shm, PEER_PROCESS, 0);
	shm_background(w.shm);
	w.kicks = 0;
	d[0]->path->ops->dest_put(d[0]);
	assert_int_equal(w.kicks, 0);
	d[1]->path->ops->dest_put(d[1]); /* the other slot's link still holds it */
	assert_int_equal(w.kicks, 0);
	shm_background(w.shm);
	assert_true(count_descriptors() > before);
	d[2]->path->ops->dest_put(d[2]);
	assert_int_equal(w.kicks, 1);
	shm_background(w.shm);
	assert_int_equal(count_descriptors(), before);
}

/* What the peer has put into the ring before it was looked at rang for nobody who would. */
static void shm_resolve__has_the_engine_look_at_the_new_link(void **state)
{
	struct path_dest *d = dest_of_peer();

	assert_int_equal(d->path->ops->resolve(d), 0);
	assert_true(w.kicks > 0);
	d->path->ops->dest_put(d);
}

static void *arm_often(void *arg)
{
	for (int i = 0; i < ARMS; i++)
		shm_bell_arm(w.shm, i & 1);
	return NULL;
}

/* A peer rings once per arm, so each must be another one. */
static void shm_bell_arm__is_new_each_time(void **state)
{
	u32 before = w.board->bell / BELL_STEP;
	pthread_t thread[ARMERS];

	for (int i = 0; i < ARMERS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, arm_often, NULL), 0);
	for (int i = 0; i < ARMERS; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(w.board->bell / BELL_STEP - before, ARMERS * ARMS);
}

/* Each sender rings once per arm, and the bell of whoever sleeps. */
static void shm_flush__rings_once_per_arm(void **state)
{
	struct path_dest *d = dest_of_peer();
	struct shm_link *l;
	u64 count;

	assert_int_equal(d->path->ops->resolve(d), 0);
	l = link_of(d);
	d->path->ops->flush(d);
	assert_int_equal(read(l->bell_fd[0], &count, sizeof(count)), -1);
	for (u32 arm = 1; arm < 5; arm++) {
		u32 second = arm % 2;

		w.peer_board->bell = arm * BELL_STEP | BELL_ARMED | (second ? BELL_SECOND : 0);
		d->path->ops->flush(d);
		d->path->ops->flush(d);
		assert_int_equal(read(l->bell_fd[!second], &count, sizeof(count)), -1);
		assert_int_equal(read(l->bell_fd[second], &count, sizeof(count)), sizeof(count));
		assert_int_equal(count, 1);
	}
	d->path->ops->dest_put(d);
}

/* The peer has filled its bell, and made the descriptor that it handed over blocking. */
static void shm_flush__a_full_bell_makes_nobody_wait(void **state)
{
	struct path_dest *d = dest_of_peer();
	static char full[4096];
	int ours[2], theirs[2];

	assert_int_equal(pipe2(ours, O_CLOEXEC | O_NONBLOCK), 0);
	assert_int_equal(pipe2(theirs, O_CLOEXEC | O_NONBLOCK), 0);
	w.shm->cfg.bell_fd[0] = ours[0];
	w.peer_pipe = theirs[1];
	while (write(theirs[1], full, sizeof(full)) > 0)
		;
	assert_int_equal(d->path->ops->resolve(d), 0);
	assert_int_equal(fcntl(theirs[1], F_SETFL, 0), 0);
	w.peer_board->bell = BELL_STEP | BELL_ARMED;
	alarm(20); /* ends this program if it waits */
	d->path->ops->flush(d);
	alarm(0);
	while (read(theirs[0], full, sizeof(full)) > 0)
		;
	w.peer_board->bell = 2 * BELL_STEP | BELL_ARMED;
	d->path->ops->flush(d);
	assert_int_equal(read(theirs[0], full, sizeof(full)), sizeof(u64));
	d->path->ops->dest_put(d);
	for (int i = 0; i < 2; i++) {
		close(ours[i]);
		close(theirs[i]);
	}
}

/* What is no pipe might be a file that makes whoever writes wait. */
static void shm_peer_new__refuses_a_bell_that_is_no_pipe(void **state)
{
	struct path_dest *d = dest_of_peer();
	int ours[2];

	assert_int_equal(pipe2(ours, O_CLOEXEC | O_NONBLOCK), 0);
	w.shm->cfg.bell_fd[0] = ours[0];
	assert_int_not_equal(d->path->ops->resolve(d), 0);
	d->path->ops->dest_put(d);
	close(ours[0]);
	close(ours[1]);
}

/* What cannot be taken is closed, and its peer hears of it. */
static void shm_peer_new__refuses_what_is_no_ring(void **state)
{
	int before = count_descriptors();
	struct node_peer peer;

	fill_peer(&peer, memfd_create("no ring", MFD_CLOEXEC));
	assert_true(shm_peer_new(w.shm, &peer) != 0);
	assert_int_equal(count_descriptors(), before);
	assert_int_equal(w.refused, PEER_PROCESS);
}

/* ---- shm_drain: the peer marks its own board as if it were inside our memory ---- */

enum { MARKED_KEY = 3, MARKED_QPN = 5 << NODE_INDEX_BITS | 2 };

static u64 mark_of(enum hazard_kind kind)
{
	return board_hazard_word(MARKED_KEY, MARKED_QPN, kind);
}

static void mark(u32 index, u64 word)
{
	__atomic_store_n(&w.peer_board->hazards[index].word, word, __ATOMIC_RELEASE);
}

/* Has a link to the peer, and a key that peers may write by. */
static struct path_dest *open_marked(u32 access)
{
	struct path_dest *d = dest_of_peer();

	shm_slot_own(w.shm, MARKED_QPN >> NODE_INDEX_BITS);
	w.board->slots[0] = MARKED_QPN >> NODE_INDEX_BITS;
	w.board->slot_count = 1;
	w.board->keys[MARKED_KEY].access = access;
	w.peer_board->hazard_high = 2;
	assert_int_equal(d->path->ops->resolve(d), 0);
	return d;
}

static void shm_drain__waits_for_a_connected_peer(void **state)
{
	struct path_dest *d = open_marked(IBV_ACCESS_REMOTE_WRITE);

	shm_expect(w.shm, d);
	mark(1, mark_of(HAZARD_STORES));
	assert_int_equal(shm_drain(w.shm, MARKED_KEY, SHM_ANY_QP), SHM_LEFT_STORES);
	assert_int_equal(shm_drain(w.shm, SHM_ANY_KEY, MARKED_QPN), SHM_LEFT_STORES);
	assert_int_equal(shm_drain(w.shm, MARKED_KEY + 1, SHM_ANY_QP), SHM_LEFT_NOTHING);
	assert_int_equal(w.board->counters[COUNT_DIRECT_HELD], 2);
	d->path->ops->dest_put(d);
}

static void shm_drain__waits_for_no_peer_without_a_connection(void **state)
{
	struct path_dest *d = open_marked(IBV_ACCESS_REMOTE_WRITE);

	mark(1, mark_of(HAZARD_WRITES));
	assert_int_equal(shm_drain(w.shm, MARKED_KEY, SHM_ANY_QP), SHM_LEFT_NOTHING);
	assert_int_equal(shm_drain(w.shm, SHM_ANY_KEY, MARKED_QPN), SHM_LEFT_NOTHING);
	assert_int_equal(w.board->counters[COUNT_DIRECT_HELD], 0);
	d->path->ops->dest_put(d);
}

static void shm_drain__waits_for_no_write_that_the_key_forbids(void **state)
{
	struct path_dest *d = open_marked(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);

	shm_expect(w.shm, d);
	mark(0, mark_of(HAZARD_WRITES));
	mark(1, board_hazard_word(UINT32_MAX - 7, MARKED_QPN, HAZARD_WRITES));
	assert_int_equal(shm_drain(w.shm, MARKED_KEY, SHM_ANY_QP), SHM_LEFT_NOTHING);
	assert_int_equal(shm_drain(w.shm, MEM_EVERY_KEY, SHM_ANY_QP), SHM_LEFT_NOTHING);
	assert_int_equal(w.board->counters[COUNT_DIRECT_HELD], 0);
	d->path->ops->dest_put(d);
}

/* Always has a mark, and keeps none. */
static void *mark_on_and_on(void *arg)
{
	for (u32 i = 0; !__atomic_load_n(&w.told, __ATOMIC_ACQUIRE); i++) {
		mark(0, board_hazard_word(MARKED_KEY, MARKED_QPN + (i & 1), HAZARD_WRITES));
	}
	return NULL;
}

static void shm_drain__waits_for_no_mark_that_comes_later(void **state)
{
	struct path_dest *d = open_marked(IBV_ACCESS_REMOTE_WRITE);

	shm_expect(w.shm, d);
	assert_int_equal(pthread_create(&w.teller, NULL, mark_on_and_on, NULL), 0);
	while (__atomic_load_n(&w.peer_board->hazards[0].word, __ATOMIC_ACQUIRE) == 0)
		sched_yield();
	assert_int_equal(shm_drain(w.shm, MARKED_KEY, SHM_ANY_QP), SHM_LEFT_NOTHING);
	__atomic_store_n(&w.told, 1, __ATOMIC_RELEASE);
	pthread_join(w.teller, NULL);
	d->path->ops->dest_put(d);
}

static void dest_get__leaves_a_process_of_the_wire_to_another_path(void **state)
{
	u32 qpn = PEER_WIRE_SLOT << NODE_INDEX_BITS | 2;
	struct path *path = shm_path(w.shm);
	struct path_av av = { .dgid = { 0xfe, 0x80 } };
	struct path_dest *handed;

	assert_null(path->ops->dest_get(path, &av, qpn));
	/* what processes hand to each other has no address */
	handed = dest_of(qpn);
	assert_non_null(handed);
	assert_int_equal(path->ops->resolve(handed), 0);
	assert_null(path->ops->dest_get(path, &av, qpn));
	path->ops->dest_put(handed);
}

/* The slot passes to another process before anybody has asked for its owner. */
static void dest_get__asks_again_while_the_owner_is_not_known(void **state)
{
	u32 qpn = PEER_WIRE_SLOT << NODE_INDEX_BITS | 2;
	struct path *path = shm_path(w.shm);
	struct path_av av = { .dgid = { 0xfe, 0x80 } };
	struct path_dest *handed = dest_of(qpn), *d;

	w.shares = true;
	d = path->ops->dest_get(path, &av, qpn);
	assert_ptr_equal(d, handed);
	path->ops->dest_put(handed);
	path->ops->dest_put(d);
}

/* Another node shows nothing of the process before it is back. */
static void shm_slot_is_wire_only__of_a_peer_that_the_node_does_not_know(void **state)
{
	u32 qpn = PEER_WIRE_SLOT << NODE_INDEX_BITS | 2;
	struct path *path = shm_path(w.shm);
	struct path_av av = { .dgid = { 0xfe, 0x80 } };
	struct path_dest *handed = dest_of(qpn);

	assert_true(shm_slot_is_wire_only(w.shm, PEER_WIRE_SLOT));
	assert_int_equal(path->ops->resolve(handed), 0);
	w.shares = true;
	assert_true(shm_slot_is_wire_only(w.shm, PEER_WIRE_SLOT));
	assert_false(shm_slot_is_wire_only(w.shm, PEER_WIRE_SLOT + 1));
	assert_null(path->ops->dest_get(path, &av, qpn));
	path->ops->dest_put(handed);
}

/* Who has routed before looks again when it has resolved. */
static void shm_slot_is_wire_only__of_a_peer_that_comes_back(void **state)
{
	u32 qpn = PEER_WIRE_SLOT << NODE_INDEX_BITS | 2;
	struct path *path = shm_path(w.shm);
	struct path_av av = { .dgid = { 0xfe, 0x80 } };
	struct path_dest *d;

	w.shares = w.comes_back = true;
	d = path->ops->dest_get(path, &av, qpn);
	assert_non_null(d);
	assert_false(shm_slot_is_wire_only(w.shm, PEER_WIRE_SLOT));
	assert_int_equal(path->ops->resolve(d), 0);
	assert_true(shm_slot_is_wire_only(w.shm, PEER_WIRE_SLOT));
	assert_null(path->ops->dest_get(path, &av, qpn));
	path->ops->dest_put(d);
}

/* The small-message path of a process to itself looks at one flag, as that to others does. */
static void shm_slot_own__leaves_nothing_to_look_at(void **state)
{
	u32 qpn = PEER_WIRE_SLOT << NODE_INDEX_BITS | 2;
	struct path *path = shm_path(w.shm);
	struct path_av av = { .dgid = { 0xfe, 0x80 } };
	struct path_dest *d;

	shm_slot_own(w.shm, PEER_WIRE_SLOT);
	d = path->ops->dest_get(path, &av, qpn);
	assert_ptr_equal(d, &w.shm->self->dest);
	assert_false(__atomic_load_n(&link_of(d)->must_look, __ATOMIC_RELAXED));
	path->ops->dest_put(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(shm_peer_gone__before_the_link_is_open, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(shm_peer_gone__of_a_process_that_has_ended, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(shm_peer_gone__after_the_link_is_open, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(shm_peer_gone__gives_back_mads_if_it_refuses,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			shm_dest_behind__says_whether_the_peer_had_more_to_send, set_up, tear_down),
		cmocka_unit_test_setup_teardown(shm_resolve__waits_for_no_dead_process, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(shm_resolve__waits_for_a_pair_under_way, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(shm_resolve__in_vain_is_repeated_for_a_new_pair,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			shm_dest_put__of_the_last_user_has_a_dead_link_buried, set_up, tear_down),
		cmocka_unit_test_setup_teardown(shm_peer_new__refuses_what_is_no_ring, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(
			shm_resolve__has_the_engine_look_at_the_new_link, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			dest_get__leaves_a_process_of_the_wire_to_another_path, set_up, tear_down),
		cmocka_unit_test_setup_teardown(dest_get__asks_again_while_the_owner_is_not_known,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			shm_slot_is_wire_only__of_a_peer_that_the_node_does_not_know, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(shm_slot_is_wire_only__of_a_peer_that_comes_back,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(shm_slot_own__leaves_nothing_to_look_at, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(shm_bell_arm__is_new_each_time, set_up, tear_down),
		cmocka_unit_test_setup_teardown(shm_flush__rings_once_per_arm, set_up, tear_down),
		cmocka_unit_test_setup_teardown(shm_flush__a_full_bell_makes_nobody_wait, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(shm_drain__waits_for_a_connected_peer, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(shm_drain__waits_for_no_peer_without_a_connection,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(shm_drain__waits_for_no_write_that_the_key_forbids,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(shm_drain__waits_for_no_mark_that_comes_later,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(shm_peer_new__refuses_a_bell_that_is_no_pipe,
						set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
