/* board_fuzz.c: what a peer may show in its board, to whoever writes into its memory by itself,
 * copies out of it, maps it, rings its bell, or waits for it.
 *
 * The input is a list of steps: changes of the peer's board, and operations against it. The
 * kernel's copies are __wrap_space_*: whatever the board says, this process' side of a copy
 * must be what the caller named, and as long as the peer's. Maps are real ones, of files that the
 * peer may show: of its memory, too short, not sealed, of no memory at all. An operation that left
 * its map, or touched a page that may be missing, would crash; our own memory must stay as it was.
 * Time is virtual.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "input.h"
#include "path/shm/reach.h"
#include "path/shm/space.h"

enum {
	STEPS = 64,
	OURS = 8192,
	SLOT = 6,
	KEYS = 4,
	QPN = 77,
	THEIRS = 64 << 10, /* of a region */
	FILES = 5,
	GUARD = 4096,
	MAPS = 256 + STEPS, /* what connections bring along, and what each step asks for */
};

static struct fuzz {
	struct board *board, *peer;
	struct shm *shm;
	struct shm_link *link;
	struct input in;
	u64 now_ns;
	u8 memory[OURS];
	struct path_target target; /* of the copy at hand */
	int file[FILES];	   /* the first one is as it should be */
	struct path_grant grant;
} f;

/* ---- the kernel ---- */

int __wrap_space_open(pid_t pid, u64 nonce_addr, u64 nonce);
int __wrap_space_write(int fd, u64 addr, u64 length, const struct iovec *here);
int __wrap_space_read(int fd, struct space_owner *owner, const struct iovec *there, int n,
		      const struct iovec *here);

static int kernel_copy(u64 length, const struct iovec *here)
{
	fuzz_need(length == f.target.length, "a copy of another length");
	for (; length != 0; here++) {
		const u8 *at = here->iov_base;

		fuzz_need(at >= f.memory && here->iov_len <= length &&
				  at + here->iov_len <= f.memory + OURS,
			  "a copy outside of what was named");
		length -= here->iov_len;
	}
	return input_u8(&f.in) % 8 == 7 ? -EIO : 0;
}

int __wrap_space_open(pid_t pid, u64 nonce_addr, u64 nonce)
{
	fuzz_need(nonce_addr == f.peer->nonce_addr && nonce == f.peer->nonce, "another nonce");
	return open("/dev/null", O_RDWR | O_CLOEXEC);
}

int __wrap_space_write(int fd, u64 addr, u64 length, const struct iovec *here)
{
	return kernel_copy(length, here);
}

int __wrap_space_read(int fd, struct space_owner *owner, const struct iovec *there, int n,
		      const struct iovec *here)
{
	u64 length = 0;

	for (int i = 0; i < n; i++)
		length += there[i].iov_len;
	return kernel_copy(length, here);
}

/* Behind each map of a file is a page that nobody may touch. */
void *__real_mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset);
int __real_munmap(void *addr, size_t length);
int __wrap_munmap(void *addr, size_t length);

void *__wrap_mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	u8 *room;

	if ((flags & MAP_SHARED) == 0)
		return __real_mmap(addr, length, prot, flags, fd, offset);
	room = __real_mmap(NULL, length + GUARD, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED ||
	    __real_mmap(room, length, prot, flags | MAP_FIXED, fd, offset) != MAP_FAILED)
		return room;
	__real_munmap(room, length + GUARD);
	return MAP_FAILED;
}

int __wrap_munmap(void *addr, size_t length)
{
	return __real_munmap(addr, length + GUARD);
}

static u64 fuzz_clock(void)
{
	f.now_ns += 100 * NS_PER_MS;
	return f.now_ns;
}

static void fuzz_kick(void *arg)
{
}

/* ---- setting up ---- */

static int fuzz_make_file(u64 size, int seals)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	fuzz_need(fd >= 0 && ftruncate(fd, (off_t)size) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0,
		  "no file");
	return fd;
}

static void fuzz_make_files(void)
{
	f.file[0] = fuzz_make_file(ADOPT_FILE_BYTES, F_SEAL_SHRINK | F_SEAL_GROW);
	f.file[1] = fuzz_make_file(ADOPT_FILE_BYTES, F_SEAL_GROW);
	f.file[2] = fuzz_make_file(THEIRS, F_SEAL_SHRINK | F_SEAL_GROW);
	f.file[3] = open("/dev/zero", O_RDWR | O_CLOEXEC);
	f.file[4] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

static void fuzz_show_file(u8 which)
{
	struct stat st = { .st_ino = 0 };

	fstat(f.file[which % FILES], &st);
	f.peer->memory_fd = f.file[which % FILES];
	f.peer->memory_inode = st.st_ino;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct shm_config cfg = { .process = 1, .direct = true, .kick = fuzz_kick };
	struct node_peer peer = { .process = 2, .pid = getpid() };
	int fd, err;

	clock_set_source(fuzz_clock);
	f.board = cfg.board = board_create(&fd, &err);
	f.peer = board_create(&peer.board_fd, &err);
	fuzz_need(f.board != NULL && f.peer != NULL, "no board");
	f.board->direct = f.peer->direct = 1;
	cfg.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	cfg.bell_fd[0] = cfg.bell_fd[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	f.shm = shm_create(&cfg, &err);
	peer.ring_fd = ring_pair_create();
	peer.bell_fd[0] = peer.bell_fd[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	peer.pid_fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	fuzz_need(f.shm != NULL && shm_peer_new(f.shm, &peer) == 0, "no link");
	f.link = f.shm->links[1];
	fuzz_need(f.link->direct, "no direct copies");
	fuzz_make_files();
	return 0;
}

/* Nothing is mapped any more, and nothing has been tried. */
static void fuzz_unmap(void)
{
	reach_close(f.link);
	f.link->want_slot = f.link->want_length = 0;
	f.link->want_shown = f.link->shown_none = f.link->reach_none = false;
	memset(&f.grant, 0, sizeof(f.grant));
	fuzz_need(fallocate(f.file[0], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			    (off_t)ADOPT_FILE_BYTES) == 0,
		  "no hole");
}

/* A board as an honest peer has it: a queue pair, keys, and regions. */
static void fuzz_honest(void)
{
	struct board_qp *q = &f.peer->qps[2];

	fuzz_unmap();
	fuzz_show_file(0);
	memset(&f.peer->memory, 0, sizeof(f.peer->memory));
	f.peer->memory.high = KEYS;
	f.peer->slot_count = 1;
	f.peer->slots[0] = SLOT;
	f.peer->bell = 0;
	f.peer->hazard_high = 0;
	f.link->rung = 0;
	memset(f.peer->hazards, 0, sizeof(f.peer->hazards));
	*q = (struct board_qp){ .word = board_qp_word(IBV_QPS_RTS, IBV_QPT_RC, 0xf),
				.pd = 1,
				.peer_qpn = QPN,
				.qpn = SLOT << NODE_INDEX_BITS | 2 };
	for (u32 i = 0; i < KEYS; i++)
		f.peer->keys[i] = (struct mem_entry){ .key = i << MEM_TAG_BITS | 5,
						      .access = 0xf,
						      .pd = 1,
						      .flags = MEM_CONTIGUOUS,
						      .iova = 4096,
						      .length = 4096 * (i + 1),
						      .addr = 0x10000,
						      .shared = (i + 1ull) << ADOPT_SLOT_SHIFT };
	for (u32 i = 0; i < KEYS; i++)
		f.peer->memory.at[i] = (struct adopt_shown){
			.offset = (i + 1ull) << ADOPT_SLOT_SHIFT,
			.addr = 0x10000 + i * THEIRS,
			.length = THEIRS,
		};
}

/* ---- steps ---- */

static void fuzz_change(void)
{
	u8 which = input_u8(&f.in), at = input_u8(&f.in);
	struct { void *begin; size_t size; } parts[] = {
		{ &f.peer->slot_count, sizeof(u32) * (1 + BOARD_SLOTS) },
		{ &f.peer->bell, sizeof(u32) },
		{ &f.peer->hazard_high, sizeof(u32) },
		{ f.peer->hazards, sizeof(f.peer->hazards[0]) * 4 },
		{ &f.peer->qps[2], sizeof(f.peer->qps[2]) },
		{ f.peer->keys, sizeof(f.peer->keys[0]) * KEYS },
		{ &f.peer->memory, sizeof(u32) + sizeof(f.peer->memory.at[0]) * KEYS },
		{ &f.peer->memory_fd, sizeof(s32) },
		{ &f.peer->memory_inode, sizeof(u64) },
		{ &f.peer->generation, sizeof(u64) },
	};
	size_t size = parts[which % ARRAY_LEN(parts)].size;
	size_t from = at * 4u % size;

	input_bytes(&f.in, (u8 *)parts[which % ARRAY_LEN(parts)].begin + from,
		    MIN(size - from, 8u));
}

/* Cuts our memory into pieces of `length` bytes together. */
static int fuzz_pieces(struct iovec iov[4], u64 length)
{
	u8 *at = f.memory;
	int n = 1 + input_u8(&f.in) % 4;

	for (int i = 0; i < n; i++) {
		u64 piece = input_u8(&f.in);

		piece = i == n - 1 ? length : MIN(length, piece);

		iov[i] = (struct iovec){ at, piece };
		at += piece;
		length -= piece;
	}
	return n;
}

static u32 fuzz_key(u8 key)
{
	return (key % (2 * KEYS)) << MEM_TAG_BITS | 5;
}

/* Where an operation goes: somewhere about the honest regions. */
static u8 fuzz_aim(void)
{
	u8 key = input_u8(&f.in);
	u16 length, offset;

	input_bytes(&f.in, &length, sizeof(length));
	input_bytes(&f.in, &offset, sizeof(offset));
	f.target = (struct path_target){ .sqpn = QPN,
					 .dqpn = SLOT << NODE_INDEX_BITS | 2,
					 .rkey = fuzz_key(key),
					 .va = 4096 + (u64)offset % 32768,
					 .length = 1 + length % OURS,
					 .write = key & 128 };
	return key;
}

static void fuzz_copy(void)
{
	struct iovec iov[4];
	int n;

	fuzz_aim();
	n = fuzz_pieces(iov, f.target.length);
	f.shm->path.ops->direct(&f.link->dest, &f.target, iov, n);
}

/* WRITEs of one piece each, which remember what they have found. */
static void fuzz_writes(void)
{
	struct path_write w[3];
	u32 n = 1 + fuzz_aim() % 3, done;

	for (u32 i = 0; i < n; i++)
		w[i] = (struct path_write){ .from = f.memory,
					    .va = f.target.va + i * 8,
					    .rkey = f.target.rkey,
					    .length = (u32)f.target.length };
	done = f.shm->path.ops->writes(&f.link->dest, QPN, f.target.dqpn, &f.grant, w, n);
	fuzz_need(done <= n, "more than there are");
}

static void fuzz_atomic(void)
{
	struct path_atomic a = { .swap = fuzz_aim() & 64, .operand = 1 };

	f.target.length = 8;
	f.target.write = true;
	f.shm->path.ops->atomic(&f.link->dest, &f.target, &a);
}

/* A queue pair is connected, and the engine's thread maps what was asked for. */
static void fuzz_map(bool connect)
{
	const struct reach *r;
	struct stat st;
	u32 maps = 0;

	if (connect)
		f.shm->path.ops->resolve(&f.link->dest);
	reach_serve(f.shm);
	r = f.link->reach;
	if (r == NULL)
		return;
	fuzz_need(fstat(r->fd, &st) == 0 && adopt_is_file(r->fd, st.st_ino),
		  "a file that is not safe to map");
	for (const struct reach_map *m = r->maps; m != NULL; m = m->next)
		maps++;
	fuzz_need(maps <= MAPS, "maps without end");
}

/* A PKT_PULL: the sender's memory as its packet names it. */
static void fuzz_pull(void)
{
	struct iovec ours[4], theirs[2];
	u16 length;
	int n;

	input_bytes(&f.in, &length, sizeof(length));
	f.target.length = 1 + length % OURS;
	theirs[0] = (struct iovec){ (void *)0x10000, f.target.length };
	n = fuzz_pieces(ours, f.target.length);
	f.shm->path.ops->pull(&f.link->dest, SLOT << NODE_INDEX_BITS | 2, QPN, theirs, 1, ours, n,
			      f.target.length);
}

static void fuzz_step(void)
{
	u32 qpn;

	switch (input_u8(&f.in) % 10) {
	case 0:
	case 1:
		fuzz_change();
		break;
	case 2:
		fuzz_copy();
		break;
	case 3:
		fuzz_pull();
		break;
	case 4:
		input_bytes(&f.in, &qpn, sizeof(qpn));
		f.shm->path.ops->holds(&f.link->dest, qpn, 0);
		f.shm->path.ops->flush(&f.link->dest);
		break;
	case 5:
		fuzz_writes();
		break;
	case 6:
		fuzz_atomic();
		break;
	case 7:
		fuzz_map(input_u8(&f.in) & 1);
		break;
	case 8:
		fuzz_show_file(input_u8(&f.in));
		break;
	default:
		shm_drain(f.shm, input_u8(&f.in) % KEYS, QPN);
	}
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	f.in = (struct input){ data, size };
	fuzz_honest();
	for (int i = 0; i < STEPS && f.in.left != 0; i++)
		fuzz_step();
	for (int i = 0; i < BOARD_HAZARDS; i++)
		fuzz_need(f.board->hazards[i].word == 0, "a hazard is left");
	return 0;
}
