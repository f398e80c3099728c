/* space.h: inside the shm room: a peer's address space, as the kernel copies to and from it.
 *
 * The descriptor is one of /proc/PID/mem. It is bound to the address space that the process had
 * when it was opened: after exec or exit of that process copies move nothing, whoever has its
 * number by then. To open it takes the right to ptrace; to use it takes none, so a process that
 * gives that right away later is still reached by the links that it has.
 *
 * Such a copy is an adapter's DMA in this, too: it writes to private memory that the application
 * has made read-only since. Shared memory that is read-only refuses it.
 */
#ifndef PATH_SHM_SPACE_H
#define PATH_SHM_SPACE_H

#include <sys/types.h>
#include <sys/uio.h>

#include "base/compiler.h"

/* Opens the address space of process `pid` if `nonce` lies at `nonce_addr` in it: the number says
 * where to look, the nonce that it is the one that was meant. A descriptor, or a negative errno:
 * -ESRCH if it is another one. */
int space_open(pid_t pid, u64 nonce_addr, u64 nonce);

/* Copies `length` bytes from the pieces here to `addr` there, in ascending order, of which the last
 * 8 become visible after the others. 0; -EIO: not all of it is there, or nothing is there any more;
 * -EFAULT: our own pieces are not. Some bytes may have been copied. No cancellation point. */
int space_write(int fd, u64 addr, u64 length, const struct iovec *here);
/* Copies `n` pieces there to the pieces here, which are as long together. As above. */
int space_read(int fd, const struct iovec *there, int n, const struct iovec *here);

/* A hint: is the process `pid` stopped, as by SIGSTOP? It may be another one by now. */
bool space_is_stopped(pid_t pid);

#endif
