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
#include "base/task.h"

enum {
	SPACE_TAIL = 8,	   /* bytes that are visible last */
	SPACE_PIECES = 16, /* of one system call */
	SPACE_CALL = 1 << 30, /* bytes of one: the kernel takes no more than twice that */
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

int space_read(int fd, const struct iovec *there, int n, const struct iovec *here)
{
	struct space_cursor c = { here, 0 };
	int err = 0;

	for (int i = 0; i < n && err == 0; i++)
		err = space_copy(SYS_preadv, fd, (u64)(uintptr_t)there[i].iov_base,
				 there[i].iov_len, &c, 0);
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
	err = space_read(fd, &there, 1, &here);
	if (err == 0 && found == nonce)
		return fd;
	close(fd);
	return err == 0 ? -ESRCH : err;
}

bool space_is_stopped(pid_t pid)
{
	return task_state(pid) == 'T';
}
