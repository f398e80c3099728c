/* sysfile.h: looks at files under a filter of system calls.
 *
 * The C library's faccessat, and its realpath of a path with "..", call faccessat2. An old
 * container's filter does not know that call and refuses it with EPERM, and the C library falls
 * back to the older one after ENOSYS only. */
#ifndef BASE_SYSFILE_H
#define BASE_SYSFILE_H

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As faccessat without flags: 0, or -1 and errno. */
static inline int sysfile_access(int at, const char *path, int mode)
{
	return (int)syscall(SYS_faccessat, at, path, mode);
}

/* As realpath with NULL: memory that the caller frees, or NULL and errno. */
static inline char *sysfile_realpath(const char *path)
{
	char name[32], *found = realpath(path, NULL);
	ssize_t n;
	int fd;

	if (found != NULL)
		return found;
	fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	found = calloc(1, PATH_MAX);
	n = found != NULL ? readlink(name, found, PATH_MAX - 1) : -1;
	close(fd);
	if (n > 0)
		return found;
	free(found);
	return NULL;
}

#endif
