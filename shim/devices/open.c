/* open.c: open, fopen, opendir and their families.
 * In: a path    Out: a descriptor, stream or folder of the tree    Runs: any thread    Locks: none
 * Of device files only issmN can be opened, which is all about being open. The others cannot
 * (ENXIO): verbs go through the library, and a descriptor that accepts commands and does nothing
 * would report false success.
 */
#include <anyverbs/kernel.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sysfile.h"
#include "issm.h"
#include "../next.h"
#include "ours.h"
#include "redirect.h"

/* What _FORTIFY_SOURCE turns open() into. */
AV_EXPORT int __open_2(const char *path, int flags);
AV_EXPORT int __open64_2(const char *path, int flags);
AV_EXPORT int __openat_2(int at, const char *path, int flags);
AV_EXPORT int __openat64_2(int at, const char *path, int flags);

NEXT_SLOT(open);
NEXT_SLOT(open64);
NEXT_SLOT(openat);
NEXT_SLOT(openat64);
NEXT_SLOT(__open_2);
NEXT_SLOT(__open64_2);
NEXT_SLOT(__openat_2);
NEXT_SLOT(__openat64_2);
NEXT_SLOT(fopen);
NEXT_SLOT(fopen64);
NEXT_SLOT(opendir);
NEXT_SLOT(scandir);
NEXT_SLOT(scandir64);

__attribute__((constructor)) static void open_resolve(void)
{
	NEXT_RESOLVE(open);
	NEXT_RESOLVE(open64);
	NEXT_RESOLVE(openat);
	NEXT_RESOLVE(openat64);
	NEXT_RESOLVE(__open_2);
	NEXT_RESOLVE(__open64_2);
	NEXT_RESOLVE(fopen);
	NEXT_RESOLVE(fopen64);
	NEXT_RESOLVE(opendir);
}

static mode_t open_mode(int flags, va_list args)
{
	return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, mode_t) : 0;
}

/* Sets ENXIO for a device file that exists, ENOENT for one that does not. */
static bool open_is_device(const struct redirect *r)
{
	int fd;

	if (r->kind != REDIRECT_NODE)
		return false;
	fd = NEXT(openat)(AT_FDCWD, r->path, O_PATH | O_CLOEXEC);
	if (fd >= 0) {
		close(fd);
		errno = ENXIO;
	}
	return true;
}

/* The descriptor is as open(2) would give it. */
static int open_issm(const struct redirect *r, int flags)
{
	int fd = issm_open(r->path);

	if (fd >= 0 && !(flags & O_CLOEXEC))
		(void)fcntl(fd, F_SETFD, 0);
	return fd;
}

/* As sysfs does also for root, which the mode of a file does not stop elsewhere. Sets EACCES. */
static bool open_is_refused(const struct redirect *r, int flags)
{
	bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
	bool makes = (flags & O_CREAT) != 0;

	if (!r->read_only || (flags & O_PATH) != 0 || (!writes && !makes))
		return false;
	if (sysfile_access(AT_FDCWD, r->path, F_OK) == 0) {
		if (!writes || (makes && (flags & O_EXCL) != 0))
			return false;
	} else if (!makes) {
		return false;
	}
	errno = EACCES;
	return true;
}

/* A file of gid_attrs without text is that of an entry without a GID, or without a network
 * interface: sysfs opens it, and fails to read it with EINVAL, as the kernel does any descriptor of
 * an epoll set. That takes the file's number. */
static int open_without_text(const struct redirect *r, int fd)
{
	struct stat st;
	int none;

	if (fd < 0 || !r->read_only || strstr(r->path, "/gid_attrs/") == NULL ||
	    fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size != 0)
		return fd;
	none = epoll_create1(EPOLL_CLOEXEC);
	if (none >= 0) {
		(void)dup3(none, fd, fcntl(fd, F_GETFD) & FD_CLOEXEC ? O_CLOEXEC : 0);
		close(none);
	}
	return fd;
}

__attribute__((noinline)) int open_ours(int at, const char *path, int flags, mode_t mode)
{
	struct redirect r;
	int fd;

	if (!redirect_find(path, &r))
		return NEXT(openat)(at, path, flags, mode);
	if (open_is_device(&r))
		return errno == ENXIO && issm_is(r.path) ? open_issm(&r, flags) : -1;
	if (open_is_refused(&r, flags))
		return -1;
	fd = NEXT(openat)(at, r.path, flags, mode);
	return flags & O_PATH ? fd : open_without_text(&r, fd);
}

AV_EXPORT int open(const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = open_mode(flags, args);
	va_end(args);
	return redirect_is_ours(path) ? open_ours(AT_FDCWD, path, flags, mode) :
					NEXT(open)(path, flags, mode);
}

AV_EXPORT int open64(const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = open_mode(flags, args);
	va_end(args);
	return redirect_is_ours(path) ? open_ours(AT_FDCWD, path, flags | O_LARGEFILE, mode) :
					NEXT(open64)(path, flags, mode);
}

AV_EXPORT int openat(int at, const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = open_mode(flags, args);
	va_end(args);
	return redirect_is_ours(path) ? open_ours(at, path, flags, mode) :
					NEXT(openat)(at, path, flags, mode);
}

AV_EXPORT int openat64(int at, const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = open_mode(flags, args);
	va_end(args);
	return redirect_is_ours(path) ? open_ours(at, path, flags | O_LARGEFILE, mode) :
					NEXT(openat64)(at, path, flags, mode);
}

AV_EXPORT int __open_2(const char *path, int flags)
{
	return redirect_is_ours(path) ? open_ours(AT_FDCWD, path, flags, 0) :
					NEXT(__open_2)(path, flags);
}

AV_EXPORT int __open64_2(const char *path, int flags)
{
	return redirect_is_ours(path) ? open_ours(AT_FDCWD, path, flags | O_LARGEFILE, 0) :
					NEXT(__open64_2)(path, flags);
}

AV_EXPORT int __openat_2(int at, const char *path, int flags)
{
	return redirect_is_ours(path) ? open_ours(at, path, flags, 0) :
					NEXT(__openat_2)(at, path, flags);
}

AV_EXPORT int __openat64_2(int at, const char *path, int flags)
{
	return redirect_is_ours(path) ? open_ours(at, path, flags | O_LARGEFILE, 0) :
					NEXT(__openat64_2)(at, path, flags);
}

/* What fopen opens with. */
static int fopen_flags(const char *mode)
{
	bool both = memchr(mode, '+', strcspn(mode, ",")) != NULL; /* behind it: ",ccs=" */

	return (both ? O_RDWR : mode[0] == 'r' ? O_RDONLY : O_WRONLY) |
	       (mode[0] == 'r' ? 0 : O_CREAT);
}

static __attribute__((noinline)) FILE *fopen_ours(const char *path, const char *mode)
{
	struct redirect r;
	FILE *f;

	if (!redirect_find(path, &r))
		return NEXT(fopen)(path, mode);
	if (open_is_device(&r) || open_is_refused(&r, fopen_flags(mode)))
		return NULL;
	f = NEXT(fopen)(r.path, mode);
	if (f != NULL)
		(void)open_without_text(&r, fileno(f));
	return f;
}

AV_EXPORT FILE *fopen(const char *path, const char *mode)
{
	return redirect_is_ours(path) ? fopen_ours(path, mode) : NEXT(fopen)(path, mode);
}

AV_EXPORT FILE *fopen64(const char *path, const char *mode)
{
	return redirect_is_ours(path) ? fopen_ours(path, mode) : NEXT(fopen64)(path, mode);
}

static __attribute__((noinline)) DIR *opendir_ours(const char *path)
{
	struct redirect r;

	if (!redirect_find(path, &r))
		return NEXT(opendir)(path);
	if (r.kind == REDIRECT_NODE) {
		errno = ENOTDIR;
		return NULL;
	}
	return NEXT(opendir)(r.path);
}

AV_EXPORT DIR *opendir(const char *path)
{
	return redirect_is_ours(path) ? opendir_ours(path) : NEXT(opendir)(path);
}

static __attribute__((noinline)) int scandir_ours(const char *path, struct dirent ***list,
						  int (*filter)(const struct dirent *),
						  int (*order)(const struct dirent **,
							       const struct dirent **))
{
	struct redirect r;

	return NEXT(scandir)(redirect_find(path, &r) ? r.path : path, list, filter, order);
}

AV_EXPORT int scandir(const char *path, struct dirent ***list, int (*filter)(const struct dirent *),
		      int (*order)(const struct dirent **, const struct dirent **))
{
	return redirect_is_ours(path) ? scandir_ours(path, list, filter, order) :
					NEXT(scandir)(path, list, filter, order);
}

static __attribute__((noinline)) int scandir64_ours(const char *path, struct dirent64 ***list,
						    int (*filter)(const struct dirent64 *),
						    int (*order)(const struct dirent64 **,
								 const struct dirent64 **))
{
	struct redirect r;

	return NEXT(scandir64)(redirect_find(path, &r) ? r.path : path, list, filter, order);
}

AV_EXPORT int scandir64(const char *path, struct dirent64 ***list,
			int (*filter)(const struct dirent64 *),
			int (*order)(const struct dirent64 **, const struct dirent64 **))
{
	return redirect_is_ours(path) ? scandir64_ours(path, list, filter, order) :
					NEXT(scandir64)(path, list, filter, order);
}
