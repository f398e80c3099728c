/* space.h: inside the shm room: a peer's address space, copied to and from by the kernel.
 *
 * The descriptor is one of /proc/PID/mem. It is bound to the address space that the process had
 * when it was opened: after exec or exit of that process copies move nothing, even if its pid is
 * another process' by then. Opening needs the right to attach by ptrace; using it does not, so a
 * process that drops that right later keeps its links.
 *
 * Like an adapter's DMA such a copy writes to private memory that the application has made
 * read-only since. Read-only shared memory refuses it.
 */
#ifndef PATH_SHM_SPACE_H
#define PATH_SHM_SPACE_H

#include <sys/types.h>
#include <sys/uio.h>

#include "base/compiler.h"

/* Opens the address space of process `pid` if `nonce` lies at `nonce_addr` in it: the pid says
 * where to look, the nonce that it is the right process. A descriptor, or a negative errno: -ESRCH
 * if it is another process. */
int space_open(pid_t pid, u64 nonce_addr, u64 nonce);

/* Copies `length` bytes from the pieces here to `addr` there, in ascending order; the last 8 become
 * visible after the others. 0; -EIO: part of the target is not mapped, or the process is gone;
 * -EFAULT: the pieces here are not mapped. Some bytes may have been copied. No cancellation
 * point. */
int space_write(int fd, u64 addr, u64 length, const struct iovec *here);
/* Copies `n` pieces there to the pieces here, which are as long together. As above. */
int space_read(int fd, const struct iovec *there, int n, const struct iovec *here);

/* Tells whether the process `pid` is stopped, as by SIGSTOP. A hint: the pid may be another
 * process' by now. */
bool space_is_stopped(pid_t pid);

#endif
