/* many_test.c: links to many processes: what a poll looks at, and the descriptors that they take.
 * The test is the node, and all peers.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "path/shm/shm_kit.h"
#include "path/shm/shm_priv.h"

enum {
	PEERS = 255,
	LIMIT = 1024,		/* descriptors of a process */
	SPARE = LIMIT / 16 * 3, /* of those, for what links can do without */
	BASE = 2,		/* that a link needs */
	POLLS_MAX = 1000000,
};

static struct world {
	struct shm *shm;
	struct board *board, *peer_board;
	int board_fd, peer_board_fd, epoll;
	struct ring_pair *theirs[PEERS];
	struct ring_tx tx[PEERS];
	u32 received, dead;
	u32 visits[PEERS + 1];
	const struct path_dest *last;
	struct rlimit before;
} w;

int node_connect(struct node *n, u32 slot, int ring_fd, struct node_peer *out)
{
	return -ENOENT;
}

void node_pair_refuse(struct node *n, u64 process, int err)
{
}

void node_say_no_pair(int err)
{
}

bool node_slot_is_wire_only(struct node *n, u32 slot)
{
	return false;
}

bool node_event_take(struct node *n, enum node_event_type type, struct node_event *ev)
{
	return false;
}

static void user_receive(void *user, struct path_dest *from, const struct pkt *p,
			 const void *payload)
{
	w.received++;
	w.last = from;
}

static bool user_receive_brief(void *user, struct path_dest *from, const struct pkt_brief *b,
			       const void *payload)
{
	return false;
}

static u32 user_receive_run(void *user, struct path_dest *from, const struct pkt_brief *b,
			    const void *const *payload, u32 n)
{
	return 0;
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
	.receive_brief = user_receive_brief,
	.receive_run = user_receive_run,
	.batch_end = user_batch_end,
	.writable = user_dead,
	.dead = user_dead,
};

static void kick(void *arg)
{
}

static void add_peer(u32 i)
{
	struct node_peer peer = { .process = 2 + i,
				  .pid = getpid(),
				  .ring_fd = ring_pair_create() };

	w.theirs[i] = ring_pair_map(peer.ring_fd);
	assert_non_null(w.theirs[i]);
	ring_tx_init(&w.tx[i], &w.theirs[i]->ring[1], NULL);
	peer.board_fd = dup(w.peer_board_fd);
	for (int k = 0; k < 2; k++)
		peer.bell_fd[k] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	peer.pid_fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	assert_int_equal(shm_peer_new(w.shm, &peer), 0);
}

static int set_up(void **state)
{
	struct shm_config cfg = {
		.process = 1, .node = (struct node *)&w, .kick = kick, .direct = true
	};
	struct rlimit limit;
	int err;

	memset(&w, 0, sizeof(w));
	getrlimit(RLIMIT_NOFILE, &w.before);
	limit = (struct rlimit){ LIMIT, w.before.rlim_max };
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
		return -1;
	w.board = cfg.board = board_create(&w.board_fd, &err);
	w.peer_board = board_create(&w.peer_board_fd, &err);
	w.peer_board->direct = 1;
	w.epoll = cfg.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	cfg.bell_fd[0] = cfg.bell_fd[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	w.shm = shm_create(&cfg, &err);
	if (w.shm == NULL)
		return -1;
	shm_path(w.shm)->user_ops = &user;
	for (u32 i = 0; i < PEERS; i++)
		add_peer(i);
	return 0;
}

static int tear_down(void **state) NO_THREAD_SAFETY
{
	for (u32 i = 0; i < PEERS; i++)
		ring_pair_unmap(w.theirs[i]);
	close(w.shm->cfg.bell_fd[0]);
	shm_background(w.shm); /* buries the dead */
	kit_destroy(w.shm);
	board_unmap(w.board);
	board_unmap(w.peer_board);
	close(w.board_fd);
	close(w.peer_board_fd);
	close(w.epoll);
	setrlimit(RLIMIT_NOFILE, &w.before);
	return 0;
}

static void send_from(u32 i)
{
	struct pkt p = { .opcode = PKT_SEND_ONLY, .qp_type = IBV_QPT_RC, .dqpn = 5 };

	assert_int_equal(ring_push(&w.tx[i], &p, NULL, 0), 0);
}

static int poll_once(bool must)
{
	return shm_path(w.shm)->ops->poll(shm_path(w.shm), 16, must);
}

static int count_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < LIMIT; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Which link a packet comes by is of no matter to the last poll before a sleep. */
static void shm_poll__that_must_looks_at_all_links(void **state)
{
	for (u32 i = 0; i < PEERS; i++) {
		send_from(i);
		assert_int_equal(poll_once(true), 1);
		assert_int_equal(w.received, i + 1);
		assert_int_equal(poll_once(true), 0);
	}
}

static void shm_poll__hears_of_each_link_soon(void **state)
{
	for (u32 i = 0; i < PEERS; i++) {
		int polls = 0;

		send_from(i);
		while (w.received != i + 1 && polls++ < POLLS_MAX)
			poll_once(false);
		assert_int_equal(w.received, i + 1);
	}
}

/* The first pass finds it: a link that was heard of is looked at each time. */
static void shm_poll__keeps_a_busy_link_warm(void **state) NO_THREAD_SAFETY
{
	const struct path_dest *busy = &w.shm->links[PEERS]->dest;

	for (u32 i = 0; i < PEERS - 1; i++) {
		send_from(PEERS - 1);
		while (w.received != 2 * i + 1)
			poll_once(true);
		send_from(i);
		while (w.received != 2 * i + 2)
			poll_once(true);
		send_from(PEERS - 1);
		w.shm->cold_ns = UINT64_MAX / 2; /* no turn of a cold link is due */
		poll_once(false);
		assert_ptr_equal(w.last, busy);
		w.received = 2 * i + 2;
		w.shm->cold_ns = 0;
	}
}

/* A busy link must not keep a poll from the others. */
static void shm_poll__a_busy_link_starves_none(void **state)
{
	u32 polls = 0;

	send_from(PEERS / 2);
	while (w.last != &w.shm->links[PEERS / 2 + 1]->dest && polls++ < POLLS_MAX) {
		for (int k = 0; k < 16; k++)
			send_from(0);
		poll_once(false);
	}
	assert_true(polls < POLLS_MAX);
}

static void each_link(struct shm_link *l, void *arg)
{
	if (!l->self)
		w.visits[l->process - 2]++;
	if (w.dead == 0 && !l->self) /* one whose place another link takes */
		shm_peer_gone(w.shm, l->process, 0);
}

/* shm_drain would miss the hazard of a link that is not visited. */
static void shm_each_link__visits_all_though_one_dies(void **state)
{
	shm_each_link(w.shm, each_link, NULL);
	assert_int_equal(w.dead, 1);
	for (u32 i = 0; i < PEERS; i++)
		assert_true(w.visits[i] >= 1);
}

static void shm_peer_new__leaves_descriptors_to_the_application(void **state)
{
	assert_true(count_descriptors() <= BASE * PEERS + SPARE + 16);
	assert_int_equal(__atomic_load_n(&w.shm->spare_fds, __ATOMIC_RELAXED), SPARE);
}

static void shm_peer_gone__gives_its_descriptors_to_others(void **state)
{
	for (u32 i = 0; i < PEERS; i++)
		shm_peer_gone(w.shm, 2 + i, 0);
	shm_background(w.shm);
	assert_int_equal(__atomic_load_n(&w.shm->spare_fds, __ATOMIC_RELAXED), 0);
	assert_true(count_descriptors() <= 16);
}

/* The engine's thread hears the first doorbell, whoever sleeps. */
static void shm_flush__rings_the_first_bell_where_the_second_is_spared(void **state)
{
	struct shm_link *l = w.shm->links[PEERS];
	u64 count;

	assert_int_equal(l->bell_fd[1], -1);
	w.peer_board->bell = BELL_STEP | BELL_ARMED | BELL_SECOND;
	l->dest.path->ops->flush(&l->dest);
	assert_int_equal(read(l->bell_fd[0], &count, sizeof(count)), sizeof(count));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(shm_poll__that_must_looks_at_all_links),
		TEST(shm_poll__hears_of_each_link_soon),
		TEST(shm_poll__keeps_a_busy_link_warm),
		TEST(shm_poll__a_busy_link_starves_none),
		TEST(shm_each_link__visits_all_though_one_dies),
		TEST(shm_peer_new__leaves_descriptors_to_the_application),
		TEST(shm_peer_gone__gives_its_descriptors_to_others),
		TEST(shm_flush__rings_the_first_bell_where_the_second_is_spared),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
