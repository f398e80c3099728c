/* board_fuzz.c: what a peer may show in its board, to whoever writes into its memory by itself,
 * copies out of it, rings its bell, or waits for it.
 *
 * The input is a list of steps: changes of the peer's board, and operations against it. The
 * kernel's copies are __wrap_process_vm_*: whatever the board says, this process' side of a copy
 * must be what the caller named, and as long as the peer's. Time is virtual.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "input.h"
#include "path/shm/shm_priv.h"

enum { STEPS = 64, OURS = 8192, SLOT = 6, KEYS = 4, QPN = 77 };

static struct fuzz {
	struct board *board, *peer;
	struct shm *shm;
	struct shm_link *link;
	struct input in;
	u64 now_ns;
	u8 memory[OURS];
	struct path_target target; /* of the copy at hand */
} f;

/* ---- the kernel ---- */

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n,
				const struct iovec *remote, unsigned long m, unsigned long flags);
ssize_t __wrap_process_vm_writev(pid_t pid, const struct iovec *local, unsigned long n,
				 const struct iovec *remote, unsigned long m, unsigned long flags);

static size_t kernel_sum(const struct iovec *iov, unsigned long n)
{
	size_t sum = 0;

	for (unsigned long i = 0; i < n; i++)
		sum += iov[i].iov_len;
	return sum;
}

static ssize_t kernel_copy(const struct iovec *local, unsigned long n, const struct iovec *remote,
			   unsigned long m)
{
	size_t sum = kernel_sum(local, n);

	for (unsigned long i = 0; i < n; i++) {
		const u8 *at = local[i].iov_base;

		fuzz_need(at >= f.memory && local[i].iov_len <= OURS &&
				  at + local[i].iov_len <= f.memory + OURS,
			  "a copy outside of what was named");
	}
	fuzz_need(sum == f.target.length && kernel_sum(remote, m) == sum,
		  "a copy of another length");
	return input_u8(&f.in) % 8 == 7 ? -1 : (ssize_t)sum;
}

ssize_t __wrap_process_vm_writev(pid_t pid, const struct iovec *local, unsigned long n,
				 const struct iovec *remote, unsigned long m, unsigned long flags)
{
	return kernel_copy(local, n, remote, m);
}

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n,
				const struct iovec *remote, unsigned long m, unsigned long flags)
{
	if (remote->iov_base == (void *)(uintptr_t)f.peer->nonce_addr && remote->iov_len == 8) {
		memcpy(local->iov_base, &f.peer->nonce, 8); /* who are you? */
		return 8;
	}
	return kernel_copy(local, n, remote, m);
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
	return 0;
}

/* A board as an honest peer has it: a queue pair and keys. */
static void fuzz_honest(void)
{
	struct board_qp *q = &f.peer->qps[2];

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
						      .addr = 0x10000 };
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

static void fuzz_copy(void)
{
	struct iovec iov[4];
	u8 key = input_u8(&f.in);
	u16 length, offset;
	int n;

	input_bytes(&f.in, &length, sizeof(length));
	input_bytes(&f.in, &offset, sizeof(offset));
	f.target = (struct path_target){ .sqpn = QPN,
					 .dqpn = SLOT << NODE_INDEX_BITS | 2,
					 .rkey = (key % (2 * KEYS)) << MEM_TAG_BITS | 5,
					 .va = 4096 + (u64)offset % 32768,
					 .length = 1 + length % OURS,
					 .write = key & 128 };
	n = fuzz_pieces(iov, f.target.length);
	f.shm->path.ops->direct(&f.link->dest, &f.target, iov, n);
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

	switch (input_u8(&f.in) % 6) {
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
		f.shm->path.ops->holds(&f.link->dest, qpn);
		f.shm->path.ops->flush(&f.link->dest);
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
