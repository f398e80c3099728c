/* memfile.c: see memfile.h.
 * In: a size    Out: a descriptor
 * Runs: any thread    Locks: none
 */
#include "base/fd.h"
#include "base/memfile.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

int memfile_create(const char *name, u64 size)
{
	struct rlimit most;
	int fd, err;

	/* ftruncate would raise a signal, which ends most programs. */
	if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < size)
		return -EFBIG;
	fd = fd_own(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)size) == 0)
		return fd;
	err = -errno;
	close(fd);
	return err;
}
