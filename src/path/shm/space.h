/* space.h: inside the shm room: a peer's address space, copied to and from by the kernel.
 *
 * The descriptor is one of /proc/PID/mem. It is bound to the address space that the process had
 * when it was opened: after exec or exit of that process copies move nothing, even if its pid is
 * another process' by then. Opening needs the right to attach by ptrace; using it does not, so a
 * process that drops that right later keeps its links.
 *
 * Long reads go by process_vm_readv(2), which copies from page to page where the descriptor has a
 * page of the kernel's in between. That call names the process by its number, which may be another
 * process', or another program's after exec. So the last piece of each call is the nonce, which
 * lies in one address space only. Where it is not found, or anything is missing, the descriptor is
 * read: no request succeeds by what came, though the reader's memory may keep it. Writes never name
 * a number, for no one could take them back.
 *
 * Like an adapter's DMA a copy by the descriptor writes to private memory that the application has
 * made read-only since. Read-only shared memory refuses it.
 */
#ifndef PATH_SHM_SPACE_H
#define PATH_SHM_SPACE_H

#include <sys/types.h>
#include <sys/uio.h>

#include "base/compiler.h"

enum { SPACE_JOINED = 16 /* copies of one system call, at most */ };

/* Opens the address space of process `pid` if `nonce` lies at `nonce_addr` in it: the pid says
 * where to look, the nonce that it is the right process. A descriptor, or a negative errno: -ESRCH
 * if it is another process. */
int space_open(pid_t pid, u64 nonce_addr, u64 nonce);

/* Copies `length` bytes from the pieces here to `addr` there, in ascending order; the last 8 become
 * visible after the others. 0; -EIO: part of the target is not mapped, or the process is gone;
 * -EFAULT: the pieces here are not mapped. Some bytes may have been copied. No cancellation
 * point. */
int space_write(int fd, u64 addr, u64 length, const struct iovec *here);
/* Lists the pieces of `n` copies, of which the last 8 bytes of each are to be visible last. Returns
 * how many. */
u32 space_pieces(const struct iovec *here, u32 n, struct iovec part[2 * SPACE_JOINED]);
/* Copies `n` pieces here to `addr` there, one behind the other, each as space_write does, at most
 * SPACE_JOINED. Returns how many were copied whole, from the first on; of the next one some bytes
 * may have been copied. */
u32 space_write_each(int fd, u64 addr, const struct iovec *here, u32 n);

/* The process whose address space a descriptor is of, for long reads. */
struct space_owner {
	pid_t pid FIXED;
	u64 nonce_addr FIXED, nonce FIXED; /* as for space_open */
	u32 state OWNED_BY(nobody : atomic); /* enum space_reads */
};

enum space_reads {
	SPACE_UNTRIED,
	SPACE_SERVES,  /* the number named the process when it was tried */
	SPACE_REFUSED, /* the kernel refuses, or the number names another process: never again */
};

/* Copies `n` pieces there to the pieces here, which are as long together. As above. `owner`:
 * that of the descriptor; NULL: the descriptor serves for long pieces, too. */
int space_read(int fd, struct space_owner *owner, const struct iovec *there, int n,
	       const struct iovec *here);

/* Tells whether the process `pid` is stopped, as by SIGSTOP. A hint: the pid may be another
 * process' by now. */
bool space_is_stopped(pid_t pid);

#endif
