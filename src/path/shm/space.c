/* space.c: copies by the kernel between this process and a peer's address space.
 * In: a peer's number, once; then addresses    Out: the peer's memory
 * Runs: the engine's thread opens, posters and receivers copy    Locks: none
 */
#include "path/shm/space.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/task.h"

enum {
	/* Bytes that are visible last, so a piece of their own: within one piece the kernel's
	 * memcpy stores in an order of its own (x86: `rep movsb`, whose stores are not ordered
	 * among each other; arm64: no store is). Up to 8 bytes are one piece anyway. */
	SPACE_TAIL = 8,
	SPACE_PIECES = 16,     /* of one system call */
	SPACE_CALL = 1 << 30,  /* bytes of one: the kernel takes no more than twice that */
	SPACE_LONG = 16 << 10, /* bytes: from here on process_vm_readv is faster */
};

/* A place in a list of pieces. */
struct space_cursor {
	const struct iovec *piece;
	size_t done; /* bytes of the current piece */
} OWNED_BY(the caller);

/* Lists the next pieces here, of `length` bytes at most; *bytes (out): their sum. */
static int space_take(struct space_cursor *c, u64 length, struct iovec *out, int max, u64 *bytes)
{
	int n = 0;

	for (*bytes = 0; *bytes < length && n < max; n++) {
		u64 k = MIN(length - *bytes, (u64)(c->piece->iov_len - c->done));

		out[n] = (struct iovec){ (u8 *)c->piece->iov_base + c->done, k };
		*bytes += k;
		c->done += k;
		if (c->done == c->piece->iov_len) {
			c->piece++;
			c->done = 0;
		}
	}
	return n;
}

/* The kernel copies piece by piece, each in ascending order. syscall(): pwritev() is a cancellation
 * point, and the caller holds locks. */
static int space_call(long number, int fd, u64 addr, const struct iovec *here, int n, u64 bytes)
{
	long done = syscall(number, fd, here, n, (unsigned long)addr, (unsigned long)(addr >> 32));

	if (done == (long)bytes)
		return 0;
	return done < 0 && errno == EFAULT ? -EFAULT : -EIO;
}

static int space_copy(long number, int fd, u64 addr, u64 length, struct space_cursor *c, u64 tail)
{
	u64 front = length > tail ? length - tail : length, done = 0;
	struct iovec part[SPACE_PIECES];
	int err = 0;

	while (done < length && err == 0) {
		u64 bytes = 0, more = 0;
		int n = 0;

		if (done < front)
			n = space_take(c, MIN(front - done, (u64)SPACE_CALL), part, SPACE_PIECES,
				       &bytes);
		/* The tail is a piece of its own. */
		if (done + bytes >= front && n < SPACE_PIECES)
			n += space_take(c, length - done - bytes, part + n, SPACE_PIECES - n,
					&more);
		err = space_call(number, fd, addr + done, part, n, bytes + more);
		done += bytes + more;
	}
	return err;
}

int space_write(int fd, u64 addr, u64 length, const struct iovec *here)
{
	struct space_cursor c = { here, 0 };

	return space_copy(SYS_pwritev, fd, addr, length, &c, SPACE_TAIL);
}

u32 space_pieces(const struct iovec *here, u32 n, struct iovec part[2 * SPACE_JOINED])
{
	u32 parts = 0;

	for (u32 i = 0; i < n; i++) {
		struct space_cursor c = { &here[i], 0 };
		u64 length = here[i].iov_len, bytes;

		if (length > SPACE_TAIL)
			parts += (u32)space_take(&c, length - SPACE_TAIL, &part[parts], 1, &bytes);
		parts += (u32)space_take(&c, MIN(length, (u64)SPACE_TAIL), &part[parts], 1, &bytes);
	}
	return parts;
}

u32 space_write_each(int fd, u64 addr, const struct iovec *here, u32 n)
{
	struct iovec part[2 * SPACE_JOINED];
	u32 parts = space_pieces(here, n, part), whole = 0;
	long done = syscall(SYS_pwritev, fd, part, (unsigned long)parts, (unsigned long)addr,
			    (unsigned long)(addr >> 32));

	while (whole < n && done >= (long)here[whole].iov_len)
		done -= (long)here[whole++].iov_len;
	return whole;
}

static void space_refuse(struct space_owner *o, long done)
{
	log_info("shm", "long reads of process %d go by its descriptor: %s", (int)o->pid,
		 done < 0 ? strerror(errno) : "its number is another process'");
	__atomic_store_n(&o->state, SPACE_REFUSED, __ATOMIC_RELAXED);
}

/* Reads `bytes` at `addr`, then the nonce, into `part`, which has room for it behind its `n`
 * elements. False: nothing of what came counts. */
static bool space_call_owner(struct space_owner *o, u64 addr, u64 bytes, struct iovec *part, int n)
{
	u64 found = ~o->nonce;
	const struct iovec there[] = { { (void *)(uintptr_t)addr, bytes },
				       { (void *)(uintptr_t)o->nonce_addr, sizeof(found) } };
	long done;

	part[n] = (struct iovec){ &found, sizeof(found) };
	done = syscall(SYS_process_vm_readv, o->pid, part, n + 1ul, there, ARRAY_LEN(there), 0ul);
	/* The nonce came last: a process that has it now had it during the copy, for exec leaves it
	 * behind, and a child does not inherit it. */
	if (likely(done == (long)(bytes + sizeof(found)) && found == o->nonce))
		return true;
	/* If memory is missing, there or here, the descriptor tells which. */
	if (done >= (long)bytes ||
	    (done < 0 && (bytes == 0 || (errno != EFAULT && errno != ENOMEM))))
		space_refuse(o, done);
	return false;
}

/* Tells whether long reads may name the owner's number. Before the first one it is tried by the
 * nonce alone, so that no other process' memory comes where the number was never the owner's: in
 * another PID namespace. */
static bool space_serves(struct space_owner *o)
{
	u32 state = __atomic_load_n(&o->state, __ATOMIC_RELAXED);
	struct iovec nonce;

	if (likely(state != SPACE_UNTRIED))
		return state == SPACE_SERVES;
	/* not over the refusal that another thread has met meanwhile */
	return space_call_owner(o, 0, 0, &nonce, 0) &&
	       __atomic_compare_exchange_n(&o->state, &state, SPACE_SERVES, false, __ATOMIC_RELAXED,
					   __ATOMIC_RELAXED);
}

/* False: it is to be read again, by the descriptor. */
static bool space_read_long(struct space_owner *o, const struct iovec *there,
			    struct space_cursor *c)
{
	u64 addr = (u64)(uintptr_t)there->iov_base, done = 0, bytes;
	struct iovec part[SPACE_PIECES];

	for (; done < there->iov_len; done += bytes) {
		int n = space_take(c, MIN(there->iov_len - done, (u64)SPACE_CALL), part,
				   SPACE_PIECES - 1, &bytes);

		if (!space_call_owner(o, addr + done, bytes, part, n))
			return false;
	}
	return true;
}

int space_read(int fd, struct space_owner *owner, const struct iovec *there, int n,
	       const struct iovec *here)
{
	struct space_cursor c = { here, 0 };
	int err = 0;

	for (int i = 0; i < n && err == 0; i++) {
		struct space_cursor before = c;

		if (owner != NULL && there[i].iov_len >= SPACE_LONG && space_serves(owner) &&
		    space_read_long(owner, &there[i], &c))
			continue;
		c = before;
		err = space_copy(SYS_preadv, fd, (u64)(uintptr_t)there[i].iov_base,
				 there[i].iov_len, &c, 0);
	}
	return err;
}

int space_open(pid_t pid, u64 nonce_addr, u64 nonce)
{
	u64 found = ~nonce;
	const struct iovec there = { (void *)(uintptr_t)nonce_addr, sizeof(found) };
	const struct iovec here = { &found, sizeof(found) };
	char path[32];
	int fd, err;

	if (pid <= 0)
		return -ESRCH;
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	fd = fd_own(open(path, O_RDWR | O_CLOEXEC));
	if (fd < 0)
		return -errno;
	err = space_read(fd, NULL, &there, 1, &here);
	if (err == 0 && found == nonce)
		return fd;
	close(fd);
	return err == 0 ? -ESRCH : err;
}

bool space_is_stopped(pid_t pid)
{
	return task_state(pid) == 'T';
}
