/* reach_test.c: whose memory is mapped when a connection is made: the test is the node, and every
 * peer, whose boards and memory files are its own. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "path/shm/reach.h"
#include "path/shm/shm_kit.h"

enum {
	PEERS = 20,
	FIRST_SLOT = 6,
	SHOWN = 16,	   /* regions of a peer that a connection brings along */
	SHOWN_MAPS = 256,  /* all that connections bring along */
	BYTES = 64 << 10,  /* of a region */
	ADDRESS = 1 << 30, /* of the first region, as its owner sees it */
	STEP = 1 << 20,	   /* to that of the next one */
};

static struct world {
	struct shm *shm;
	struct board *board, *peer[PEERS];
	int board_fd, peer_fd[PEERS], bell, epoll, memory;
	u32 kicks;
} w;

/* ---- the node ---- */

int node_connect(struct node *n, u32 slot, int ring_fd, struct node_peer *out)
{
	*out = (struct node_peer){ .process = slot, .pid = getpid(), .ring_fd = dup(ring_fd) };
	out->board_fd = dup(w.peer_fd[slot - FIRST_SLOT]);
	for (int i = 0; i < 2; i++)
		out->bell_fd[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	out->pid_fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	return 0;
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

/* ---- the engine ---- */

static void user_any(void *user, struct path_dest *dest)
{
}

static const struct path_user user = { .writable = user_any, .dead = user_any };

static void kick(void *arg)
{
	w.kicks++;
}

/* ---- setting up ---- */

static int memory_make(u64 size, int seals)
{
	int fd = memfd_create("reach-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void memory_fill(off_t at, size_t bytes)
{
	u8 *zeros = calloc(1, bytes);

	assert_non_null(zeros);
	assert_int_equal(pwrite(w.memory, zeros, bytes, at), bytes);
	free(zeros);
}

static void peer_show_file(struct board *b, int fd)
{
	struct stat st = { .st_ino = 0 };

	if (fd >= 0)
		assert_int_equal(fstat(fd, &st), 0);
	b->memory_fd = fd;
	b->memory_inode = st.st_ino;
}

static u64 region_address(u32 i)
{
	return ADDRESS + (u64)i * STEP;
}

static void peer_show(struct board *b, u32 regions)
{
	for (u32 i = 0; i < regions; i++)
		b->memory.at[i] = (struct adopt_shown){ .offset = (i + 1ull) << ADOPT_SLOT_SHIFT,
							.addr = region_address(i),
							.length = BYTES };
	b->memory.high = regions;
}

static int set_up(void **state)
{
	struct shm_config cfg = {
		.process = 1, .node = (struct node *)&w, .kick = kick, .direct = true
	};
	int err;

	memset(&w, 0, sizeof(w));
	w.memory = memory_make(ADOPT_FILE_BYTES, F_SEAL_SHRINK | F_SEAL_GROW);
	w.board = cfg.board = board_create(&w.board_fd, &err);
	w.board->direct = 1;
	for (int i = 0; i < PEERS; i++) {
		w.peer[i] = board_create(&w.peer_fd[i], &err);
		assert_non_null(w.peer[i]);
		w.peer[i]->direct = 1;
		peer_show_file(w.peer[i], w.memory);
	}
	w.epoll = cfg.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	w.bell = cfg.bell_fd[0] = cfg.bell_fd[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	w.shm = shm_create(&cfg, &err);
	assert_non_null(w.shm);
	shm_path(w.shm)->user_ops = &user;
	return 0;
}

static int tear_down(void **state)
{
	kit_destroy(w.shm);
	board_unmap(w.board);
	for (int i = 0; i < PEERS; i++) {
		board_unmap(w.peer[i]);
		close(w.peer_fd[i]);
	}
	close(w.board_fd);
	close(w.bell);
	close(w.epoll);
	close(w.memory);
	return 0;
}

/* What a queue pair's way to RTR does. The engine's thread has not run since. */
static struct shm_link *connect_to(u32 peer)
{
	struct path_av av = { .hop_limit = 1 };
	struct path *path = shm_path(w.shm);
	struct path_dest *d =
		path->ops->dest_get(path, &av, (FIRST_SLOT + peer) << NODE_INDEX_BITS | 2);

	assert_int_equal(path->ops->resolve(d), 0);
	path->ops->dest_put(d);
	return link_of(d);
}

static u32 maps_of_peers(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	u32 n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL)
		n += strstr(line, "/memfd:reach-test") != NULL;
	fclose(f);
	return n;
}

/* Of `bytes` at `at`. */
static u32 pages_present(const u8 *at, u64 bytes)
{
	u64 page = (u64)sysconf(_SC_PAGESIZE), entry;
	int fd = open("/proc/self/pagemap", O_RDONLY);
	u32 n = 0;

	assert_true(fd >= 0);
	for (u64 i = (uintptr_t)at / page, end = i + bytes / page; i < end; i++) {
		assert_int_equal(pread(fd, &entry, sizeof(entry), (off_t)(i * sizeof(entry))),
				 sizeof(entry));
		n += entry >> 63;
	}
	close(fd);
	return n;
}

static u8 *reach_region(struct shm_link *l, u32 i)
{
	return reach_address(l, region_address(i), BYTES);
}

/* ---- tests ---- */

static void reach_want_shown__maps_what_the_peer_shows(void **state)
{
	struct shm_link *l;
	u8 *at;

	peer_show(w.peer[0], 2);
	l = connect_to(0);
	shm_background(w.shm);
	at = reach_region(l, 1);
	assert_non_null(reach_region(l, 0));
	assert_non_null(at);
	at[BYTES - 1] = 7;
	assert_int_equal(pread(w.memory, at, 1, (off_t)((2ull << ADOPT_SLOT_SHIFT) + BYTES - 1)),
			 1);
	assert_int_equal(at[0], 7);
	/* once is enough */
	w.kicks = 0;
	connect_to(0);
	assert_int_equal(w.kicks, 0);
	assert_int_equal(maps_of_peers(), 2);
}

static void reach_want_shown__of_many_regions_a_few(void **state)
{
	struct shm_link *l;

	peer_show(w.peer[0], SHOWN + 4);
	l = connect_to(0);
	shm_background(w.shm);
	assert_int_equal(maps_of_peers(), SHOWN);
	assert_null(reach_region(l, SHOWN)); /* but who asks gets it */
	shm_background(w.shm);
	assert_non_null(reach_region(l, SHOWN));
}

static void reach_want_shown__of_many_peers_not_all(void **state)
{
	struct shm_link *l = NULL;

	for (u32 i = 0; i < PEERS; i++) {
		peer_show(w.peer[i], SHOWN);
		l = connect_to(i);
		shm_background(w.shm);
	}
	assert_int_equal(maps_of_peers(), SHOWN_MAPS);
	/* thousands of connections more wake nobody for it */
	w.kicks = 0;
	connect_to(PEERS - 1);
	assert_int_equal(w.kicks, 0);
	assert_null(reach_region(l, 0));
	shm_background(w.shm);
	assert_non_null(reach_region(l, 0));
}

static void reach_want_shown__peer_dies_before_the_map(void **state)
{
	peer_show(w.peer[0], 2);
	connect_to(0);
	shm_peer_gone(w.shm, FIRST_SLOT, 0);
	shm_background(w.shm);
	assert_int_equal(maps_of_peers(), 0);
}

static void reach_want_shown__peer_dies_with_the_maps(void **state)
{
	peer_show(w.peer[0], 2);
	connect_to(0);
	shm_background(w.shm);
	assert_int_equal(maps_of_peers(), 2);
	shm_peer_gone(w.shm, FIRST_SLOT, 0);
	shm_background(w.shm);
	assert_int_equal(maps_of_peers(), 0);
}

static void reach_want_shown__peer_adopts_later(void **state)
{
	struct shm_link *l = connect_to(0);

	shm_background(w.shm);
	assert_int_equal(maps_of_peers(), 0);
	peer_show(w.peer[0], 1);
	assert_null(reach_region(l, 0));
	shm_background(w.shm);
	assert_non_null(reach_region(l, 0));
}

/* The region may be on the board before the file is. */
static void reach_want_shown__fails_once_and_leaves_it_to_who_asks(void **state)
{
	struct shm_link *l;

	peer_show(w.peer[0], 1);
	peer_show_file(w.peer[0], -1);
	l = connect_to(0);
	shm_background(w.shm);
	assert_int_equal(maps_of_peers(), 0);
	w.kicks = 0;
	connect_to(0);
	assert_int_equal(w.kicks, 0);
	peer_show_file(w.peer[0], w.memory);
	assert_null(reach_region(l, 0));
	shm_background(w.shm);
	assert_non_null(reach_region(l, 0));
}

static void reach_want_shown__refuses_what_no_owner_shows(void **state)
{
	struct adopt_table *t[] = { &w.peer[0]->memory, &w.peer[1]->memory, &w.peer[2]->memory,
				    &w.peer[3]->memory, &w.peer[4]->memory };
	int open = memory_make(ADOPT_FILE_BYTES, F_SEAL_GROW);
	int little = memory_make(BYTES, F_SEAL_SHRINK | F_SEAL_GROW);

	for (u32 i = 0; i < ARRAY_LEN(t); i++)
		peer_show(w.peer[i], 1);
	t[0]->high = UINT32_MAX;
	t[0]->at[0].offset = UINT64_MAX;     /* beyond the file */
	t[1]->at[0].length = UINT64_MAX;     /* beyond everything */
	peer_show_file(w.peer[2], open);     /* pages of it may go */
	peer_show_file(w.peer[3], little);   /* or are not there */
	w.peer[4]->memory_inode ^= 1;	     /* another file */
	for (u32 i = 0; i < ARRAY_LEN(t); i++)
		connect_to(i);
	shm_background(w.shm);
	assert_int_equal(maps_of_peers(), 0);
	close(open);
	close(little);
}

/* Two stretches with a hole between them, and the second one ends within the region. */
static void reach_serve__makes_present_what_the_file_has(void **state)
{
	enum { LENGTH = 24 << 20, FIRST = 6 << 20, SECOND = 16 << 20, REST = 5 << 20 };
	off_t slot = 1ll << ADOPT_SLOT_SHIFT;
	u64 page = (u64)sysconf(_SC_PAGESIZE);
	struct stat before, after;
	u32 turns = 0;
	u8 *at;

	memory_fill(slot, FIRST);
	memory_fill(slot + SECOND, REST);
	assert_int_equal(fstat(w.memory, &before), 0);
	peer_show(w.peer[0], 1);
	w.peer[0]->memory.at[0].length = LENGTH;
	struct shm_link *l = connect_to(0);

	for (w.kicks = 1; w.kicks != 0 && turns < 100; turns++) {
		w.kicks = 0;
		shm_background(w.shm);
	}
	at = reach_region(l, 0);
	assert_non_null(at);
	assert_int_equal(pages_present(at, FIRST), FIRST / page);
	assert_int_equal(pages_present(at + SECOND, REST), REST / page);
	assert_int_equal(fstat(w.memory, &after), 0);
	assert_int_equal(after.st_blocks, before.st_blocks);
	assert_in_range(turns, 3, 20); /* not all at once, and no turn for nothing */
}

/* What the owner gives back before its turn comes is not made anew. */
static void reach_serve__leaves_what_has_ended(void **state)
{
	enum { LENGTH = 32 << 20 };
	off_t slot = 1ll << ADOPT_SLOT_SHIFT;
	struct stat none, after;

	assert_int_equal(fstat(w.memory, &none), 0);
	memory_fill(slot, LENGTH);
	peer_show(w.peer[0], 1);
	w.peer[0]->memory.at[0].length = LENGTH;
	connect_to(0);
	shm_background(w.shm);
	assert_int_equal(fallocate(w.memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, slot,
				   LENGTH),
			 0);
	for (u32 i = 0; i < 20; i++)
		shm_background(w.shm);
	assert_int_equal(fstat(w.memory, &after), 0);
	assert_int_equal(after.st_blocks, none.st_blocks);
}

static void reach_want_shown__not_where_memory_is_out_of_reach(void **state)
{
	peer_show(w.peer[0], 1);
	w.peer[0]->nonce++; /* it is another process than it says */
	connect_to(0);
	shm_background(w.shm);
	assert_int_equal(maps_of_peers(), 0);
}

enum { PD = 5, RKEY = 3 << MEM_TAG_BITS | 1, OTHER_RKEY = 4 << MEM_TAG_BITS | 1 };

/* A region of the first peer, by key, and the queue pair that may write to it. */
static void peer_show_key(struct board *b, u64 shared)
{
	b->keys[RKEY >> MEM_TAG_BITS] = (struct mem_entry){ .key = RKEY,
							    .access = IBV_ACCESS_REMOTE_WRITE,
							    .pd = PD,
							    .flags = MEM_CONTIGUOUS,
							    .iova = ADDRESS,
							    .addr = ADDRESS,
							    .length = BYTES,
							    .shared = shared };
	b->slots[0] = FIRST_SLOT;
	b->slot_count = 1;
	b->qps[2] = (struct board_qp){ .word = board_qp_word(IBV_QPS_RTS, IBV_QPT_RC,
							     IBV_ACCESS_REMOTE_WRITE),
				       .pd = PD,
				       .peer_qpn = 9,
				       .qpn = FIRST_SLOT << NODE_INDEX_BITS | 2 };
}

/* Without the right to the peer's address space what it shares is mapped at the first operation,
 * and nothing else is reached. */
static void link_reaches__what_is_shared_of_a_closed_process(void **state)
{
	static const u8 from[8] = "written";
	const struct iovec iov = { (void *)(uintptr_t)from, sizeof(from) };
	struct path_target t = { .sqpn = 9,
				 .dqpn = FIRST_SLOT << NODE_INDEX_BITS | 2,
				 .rkey = RKEY,
				 .va = ADDRESS + 64,
				 .length = sizeof(from),
				 .write = true,
				 .type = IBV_QPT_RC };
	struct shm_link *l = connect_to(0);
	u8 found[8];

	close(l->space_fd);
	l->space_fd = -1;
	peer_show_key(w.peer[0], 0);
	assert_false(link_reaches(&l->dest, &t));
	assert_false(link_pullable(&l->dest));
	assert_int_equal(link_direct(&l->dest, &t, &iov, 1), -EOPNOTSUPP);
	peer_show_key(w.peer[0], 1ull << ADOPT_SLOT_SHIFT);
	assert_true(link_reaches(&l->dest, &t));
	assert_int_equal(link_direct(&l->dest, &t, &iov, 1), -EOPNOTSUPP);
	shm_background(w.shm);
	assert_int_equal(link_direct(&l->dest, &t, &iov, 1), 0);
	assert_int_equal(pread(w.memory, found, sizeof(found), (1ll << ADOPT_SLOT_SHIFT) + 64),
			 sizeof(found));
	assert_memory_equal(found, from, sizeof(from));
	t.rkey++;
	assert_false(link_reaches(&l->dest, &t));
}

/* READs and pulled SENDs of what is not mapped: long ones name the process by its number, until
 * that serves no more. */
static void link_direct__long_reads_by_the_number(void **state)
{
	enum { LONG = 64 << 10 };
	const u32 qpn = FIRST_SLOT << NODE_INDEX_BITS | 2;
	struct shm_link *l = connect_to(0);
	u8 *from = malloc(LONG), *to = calloc(1, LONG);
	const struct iovec theirs = { from, LONG }, ours = { to, LONG };
	struct path_target t = { .sqpn = 9,
				 .dqpn = qpn,
				 .rkey = RKEY,
				 .va = (u64)(uintptr_t)from,
				 .length = LONG,
				 .type = IBV_QPT_RC };
	struct mem_entry *e = &w.peer[0]->keys[RKEY >> MEM_TAG_BITS];

	if (process_vm_readv(getpid(), &ours, 1, &theirs, 1, 0) < 0)
		skip(); /* a container's filter */
	memset(from, 1, LONG);
	peer_show_key(w.peer[0], 0);
	e->access = IBV_ACCESS_REMOTE_READ;
	e->iova = e->addr = t.va;
	w.peer[0]->qps[2].word = board_qp_word(IBV_QPS_RTS, IBV_QPT_RC, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(link_direct(&l->dest, &t, &ours, 1), 0);
	assert_memory_equal(to, from, LONG);
	assert_int_equal(l->owner.state, SPACE_SERVES);
	l->owner.pid = 1 << 30; /* nobody's */
	memset(from, 2, LONG);
	assert_int_equal(link_direct(&l->dest, &t, &ours, 1), 0);
	assert_memory_equal(to, from, LONG);
	assert_int_equal(l->owner.state, SPACE_REFUSED);
	l->owner.state = SPACE_UNTRIED;
	l->owner.pid = getpid();
	memset(from, 3, LONG);
	assert_int_equal(link_pull(&l->dest, qpn, 9, &theirs, 1, &ours, 1, LONG), 0);
	assert_memory_equal(to, from, LONG);
	assert_int_equal(l->owner.state, SPACE_SERVES);
	free(from);
	free(to);
}

/* ---- WRITEs that adjoin ---- */

enum { JOIN_N = 16, JOIN_EACH = 100, JOIN_QPN = FIRST_SLOT << NODE_INDEX_BITS | 2 };

/* Our end, which agrees with the peer's in path MTU and PSN. */
static void own_end_show(void)
{
	w.board->slots[0] = 0;
	w.board->slot_count = 1;
	w.board->qps[9] =
		(struct board_qp){ .word = w.peer[0]->qps[2].word, .qpn = 9, .peer_qpn = JOIN_QPN };
}

static void list_make(struct path_write list[JOIN_N], const u8 *from, u64 va)
{
	for (u32 i = 0; i < JOIN_N; i++)
		list[i] = (struct path_write){ .from = from + (size_t)i * JOIN_EACH,
					       .va = va + (u64)i * JOIN_EACH,
					       .length = JOIN_EACH,
					       .rkey = RKEY };
}

/* The target: two pages, of which the second one may go. */
static u8 *join_begin(struct path_write list[JOIN_N], const u8 *from, struct shm_link **l)
{
	u64 page = (u64)sysconf(_SC_PAGESIZE);
	u8 *to = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct mem_entry *e = &w.peer[0]->keys[RKEY >> MEM_TAG_BITS];

	assert_true(to != MAP_FAILED);
	*l = connect_to(0);
	peer_show_key(w.peer[0], 0);
	e->iova = e->addr = (u64)(uintptr_t)to;
	e->length = 2 * page;
	own_end_show();
	list_make(list, from, e->addr);
	return to;
}

static void link_writes_joined__takes_what_adjoins(void **state)
{
	u8 from[JOIN_N * JOIN_EACH] = { 0 };
	struct path_write list[JOIN_N];
	struct shm_link *l;
	u8 *to = join_begin(list, from, &l);

	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (u8)(i * 7 + 1);
	assert_int_equal(link_writes_joined(&l->dest, 9, JOIN_QPN, list, JOIN_N), JOIN_N);
	assert_memory_equal(to, from, sizeof(from));
	assert_int_equal(to[sizeof(from)], 0);
	assert_int_equal(w.board->hazards[0].done, JOIN_N);
	assert_int_equal(w.board->hazards[0].word, 0);
	/* of one there is nothing to join */
	assert_int_equal(link_writes_joined(&l->dest, 9, JOIN_QPN, list, 1), 0);
	list[5].va++;
	assert_int_equal(link_writes_joined(&l->dest, 9, JOIN_QPN, list, JOIN_N), 5);
	list[3].rkey++;
	assert_int_equal(link_writes_joined(&l->dest, 9, JOIN_QPN, list, JOIN_N), 3);
	list[1].length = (8 << 10) + 1; /* worth a system call of its own */
	assert_int_equal(link_writes_joined(&l->dest, 9, JOIN_QPN, list, JOIN_N), 0);
	munmap(to, 2 * (size_t)sysconf(_SC_PAGESIZE));
}

/* The first one that fails is left, with all behind it, so that its own error shows. */
static void link_writes_joined__ends_before_what_fails(void **state)
{
	u64 page = (u64)sysconf(_SC_PAGESIZE);
	u8 from[JOIN_N * JOIN_EACH] = { 0 };
	struct path_write list[JOIN_N];
	struct shm_link *l;
	u8 *to = join_begin(list, from, &l);

	memset(from, 1, sizeof(from));
	for (u32 i = 0; i < JOIN_N; i++)
		list[i].va += page - 4 * JOIN_EACH - 1; /* the fourth one ends at the page */
	munmap(to + page, page);
	assert_int_equal(link_writes_joined(&l->dest, 9, JOIN_QPN, list, JOIN_N), 4);
	assert_memory_equal(to + page - 4 * JOIN_EACH - 1, from, 4 * JOIN_EACH);
	list[0].va += JOIN_EACH / 2; /* in the middle of it, then from its beginning */
	list[1].va += JOIN_EACH / 2;
	list[2].va += JOIN_EACH / 2;
	list[3].va += JOIN_EACH / 2;
	list[4].va += JOIN_EACH / 2;
	assert_int_equal(link_writes_joined(&l->dest, 9, JOIN_QPN, list, 5), 3);
	list[2].from = to + page; /* the memory here */
	assert_int_equal(link_writes_joined(&l->dest, 9, JOIN_QPN, list, 5), 2);
	munmap(to, page);
}

/* A key that ends within the list, or no more: all of it is left. */
static void link_writes_joined__only_what_all_may(void **state)
{
	u8 from[JOIN_N * JOIN_EACH] = { 0 };
	struct path_write list[JOIN_N];
	struct shm_link *l;
	u8 *to = join_begin(list, from, &l);
	struct mem_entry *e = &w.peer[0]->keys[RKEY >> MEM_TAG_BITS];

	memset(from, 1, sizeof(from));
	e->length = JOIN_N * JOIN_EACH - 1;
	assert_int_equal(link_writes_joined(&l->dest, 9, JOIN_QPN, list, JOIN_N), 0);
	e->length++;
	w.peer[0]->firsts[2].rq = 1; /* the ends do not agree */
	assert_int_equal(link_writes_joined(&l->dest, 9, JOIN_QPN, list, JOIN_N), 0);
	w.peer[0]->firsts[2].rq = 0;
	e->access = IBV_ACCESS_REMOTE_READ;
	assert_int_equal(link_writes_joined(&l->dest, 9, JOIN_QPN, list, JOIN_N), 0);
	assert_int_equal(to[0], 0);
	e->access = IBV_ACCESS_REMOTE_WRITE;
	assert_int_equal(link_writes_joined(&l->dest, 9, JOIN_QPN, list, JOIN_N), JOIN_N);
	munmap(to, 2 * (size_t)sysconf(_SC_PAGESIZE));
}

/* Changes at ever other distances, so that some fall before the stores, some between and some
 * behind them. */
static void *board_churn(void *arg)
{
	bool *end = arg;

	for (u32 i = 0; !__atomic_load_n(end, __ATOMIC_RELAXED); i++) {
		for (volatile u32 wait = 0; wait < i % 1024; wait++)
			;
		__atomic_fetch_add(&w.peer[0]->generation, 1, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

/* Other queue pairs and keys of the peer come and go: WRITEs that were seen count as done, so that
 * they are not done again. Those that were not begun may be left. */
static void writes_are_done_once(u32 (*write)(struct shm_link *l, const struct path_write *list),
				 struct shm_link *l, const struct path_write *list, u8 *from,
				 u8 *to)
{
	bool end = false;
	u32 all = 0, wrong = 0;
	pthread_t other;

	assert_int_equal(pthread_create(&other, NULL, board_churn, &end), 0);
	for (int i = 0; i < 20000; i++) {
		u32 done;

		memset(from, i % 2 + 1, (size_t)JOIN_N * JOIN_EACH);
		memset(to, 0, (size_t)JOIN_N * JOIN_EACH);
		done = write(l, list);
		all += done == JOIN_N;
		wrong += done != 0 && done != JOIN_N;
		wrong += to[0] != (done == 0 ? 0 : from[0]);
	}
	__atomic_store_n(&end, true, __ATOMIC_RELAXED);
	pthread_join(other, NULL);
	assert_int_equal(wrong, 0);
	assert_true(all > 0);
}

static u32 write_joined(struct shm_link *l, const struct path_write *list)
{
	l->drive.copies = 0; /* no row that is worth waking the peer for */
	return link_writes_joined(&l->dest, 9, JOIN_QPN, list, JOIN_N);
}

static void link_writes_joined__are_done_once(void **state)
{
	u8 from[JOIN_N * JOIN_EACH] = { 0 };
	struct path_write list[JOIN_N];
	struct shm_link *l;
	u8 *to = join_begin(list, from, &l);

	writes_are_done_once(write_joined, l, list, from, to);
	munmap(to, 2 * (size_t)sysconf(_SC_PAGESIZE));
}

/* The target is mapped here. */
static u8 *granted_begin(struct path_write list[JOIN_N], const u8 *from, struct shm_link **l)
{
	u8 *to;

	peer_show(w.peer[0], 1);
	*l = connect_to(0);
	shm_background(w.shm);
	peer_show_key(w.peer[0], 1ull << ADOPT_SLOT_SHIFT);
	own_end_show();
	list_make(list, from, ADDRESS);
	to = reach_region(*l, 0);
	assert_non_null(to);
	return to;
}

static u32 write_granted(struct shm_link *l, const struct path_write *list)
{
	static struct path_grant grant;

	return link_writes(&l->dest, 9, JOIN_QPN, &grant, list, JOIN_N);
}

/* The same of memory that is mapped here. */
static void link_writes__are_done_once(void **state)
{
	u8 from[JOIN_N * JOIN_EACH] = { 0 }, *to;
	struct path_write list[JOIN_N];
	struct shm_link *l;

	to = granted_begin(list, from, &l);
	writes_are_done_once(write_granted, l, list, from, to);
}

/* A key that grants nothing leaves the grant of the last one. */
static void link_writes__of_two_keys(void **state)
{
	u8 from[JOIN_N * JOIN_EACH] = { 0 };
	struct path_write list[JOIN_N], other;
	struct path_grant grant = { 0 };
	struct shm_link *l;

	granted_begin(list, from, &l);
	w.peer[0]->keys[OTHER_RKEY >> MEM_TAG_BITS] = w.peer[0]->keys[RKEY >> MEM_TAG_BITS];
	w.peer[0]->keys[OTHER_RKEY >> MEM_TAG_BITS].key = OTHER_RKEY;
	w.peer[0]->keys[OTHER_RKEY >> MEM_TAG_BITS].shared = 0; /* not mapped */
	other = list[0];
	other.rkey = OTHER_RKEY;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(link_writes(&l->dest, 9, JOIN_QPN, &grant, list, JOIN_N), JOIN_N);
		assert_int_equal(link_writes(&l->dest, 9, JOIN_QPN, &grant, &other, 1), 0);
	}
}

/* A peer that was slow gets packets again after so many copies. */
static void link_writes_joined__count_as_copies(void **state)
{
	u8 from[JOIN_N * JOIN_EACH] = { 0 };
	struct path_write list[JOIN_N];
	struct shm_link *l;
	u8 *to = join_begin(list, from, &l);

	l->drive.shy = 100;
	assert_int_equal(link_writes_joined(&l->dest, 9, JOIN_QPN, list, JOIN_N), JOIN_N);
	assert_int_equal(l->drive.shy, 100 - JOIN_N);
	list[2].va++;
	assert_int_equal(link_writes_joined(&l->dest, 9, JOIN_QPN, list, JOIN_N), 2);
	assert_int_equal(l->drive.shy, 100 - JOIN_N - 2);
	munmap(to, 2 * (size_t)sysconf(_SC_PAGESIZE));
}

#define REACH_TEST(name)                                                                           \
	cmocka_unit_test_setup_teardown(reach_want_shown__##name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		REACH_TEST(maps_what_the_peer_shows),
		REACH_TEST(of_many_regions_a_few),
		REACH_TEST(of_many_peers_not_all),
		REACH_TEST(peer_dies_before_the_map),
		REACH_TEST(peer_dies_with_the_maps),
		REACH_TEST(peer_adopts_later),
		REACH_TEST(fails_once_and_leaves_it_to_who_asks),
		REACH_TEST(refuses_what_no_owner_shows),
		cmocka_unit_test_setup_teardown(reach_serve__makes_present_what_the_file_has,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(reach_serve__leaves_what_has_ended, set_up,
						tear_down),
		REACH_TEST(not_where_memory_is_out_of_reach),
		cmocka_unit_test_setup_teardown(link_direct__long_reads_by_the_number, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(link_writes_joined__takes_what_adjoins, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(link_writes_joined__ends_before_what_fails, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(link_writes_joined__only_what_all_may, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(link_writes_joined__are_done_once, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(link_writes__are_done_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(link_writes__of_two_keys, set_up, tear_down),
		cmocka_unit_test_setup_teardown(link_writes_joined__count_as_copies, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(link_reaches__what_is_shared_of_a_closed_process,
						set_up, tear_down),
	};

	return cmocka_run_group_tests_name("reach", tests, NULL, NULL);
}
