/* link.c: readlink, realpath and their families.
 * In: a path    Out: the tree's answer; a device file is its own real path    Runs: any thread
 * Locks: none
 */
#include <anyverbs/kernel.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sysfile.h"
#include "../next.h"
#include "ours.h"
#include "redirect.h"

/* What _FORTIFY_SOURCE turns them into. */
AV_EXPORT ssize_t __readlink_chk(const char *path, char *out, size_t size, size_t room);
AV_EXPORT ssize_t __readlinkat_chk(int at, const char *path, char *out, size_t size, size_t room);
AV_EXPORT char *__realpath_chk(const char *path, char *out, size_t room);

NEXT_SLOT(readlink);
NEXT_SLOT(readlinkat);
NEXT_SLOT(__readlink_chk);
NEXT_SLOT(__readlinkat_chk);
NEXT_SLOT(realpath);
NEXT_SLOT(__realpath_chk);
NEXT_SLOT(canonicalize_file_name);

__attribute__((constructor)) static void link_resolve(void)
{
	NEXT_RESOLVE(readlink);
	NEXT_RESOLVE(readlinkat);
	NEXT_RESOLVE(realpath);
}

__attribute__((noinline)) ssize_t readlink_ours(int at, const char *path, char *out, size_t size)
{
	struct redirect r;

	return NEXT(readlinkat)(at, redirect_find(path, &r) ? r.path : path, out, size);
}

AV_EXPORT ssize_t readlink(const char *path, char *out, size_t size)
{
	return redirect_is_ours(path) ? readlink_ours(AT_FDCWD, path, out, size) :
					NEXT(readlink)(path, out, size);
}

AV_EXPORT ssize_t readlinkat(int at, const char *path, char *out, size_t size)
{
	return redirect_is_ours(path) ? readlink_ours(at, path, out, size) :
					NEXT(readlinkat)(at, path, out, size);
}

AV_EXPORT ssize_t __readlink_chk(const char *path, char *out, size_t size, size_t room)
{
	return redirect_is_ours(path) && size <= room ? readlink_ours(AT_FDCWD, path, out, size) :
							NEXT(__readlink_chk)(path, out, size, room);
}

AV_EXPORT ssize_t __readlinkat_chk(int at, const char *path, char *out, size_t size, size_t room)
{
	return redirect_is_ours(path) && size <= room ?
		       readlink_ours(at, path, out, size) :
		       NEXT(__readlinkat_chk)(at, path, out, size, room);
}

/* A device file has no links in its path; any other path of the shim's really lies in the tree. */
static __attribute__((noinline)) char *realpath_ours(const char *path, char *out)
{
	struct redirect r;
	size_t length = strlen(path) + 1;

	if (!redirect_find(path, &r))
		return NEXT(realpath)(path, out);
	if (r.kind == REDIRECT_SYSFS)
		return NEXT(realpath)(r.path, out);
	if (sysfile_access(AT_FDCWD, r.path, F_OK) != 0)
		return NULL;
	if (out == NULL)
		return strdup(path);
	if (length > PATH_MAX) {
		errno = ENAMETOOLONG;
		return NULL;
	}
	return memcpy(out, path, length);
}

AV_EXPORT char *realpath(const char *path, char *out)
{
	return redirect_is_ours(path) ? realpath_ours(path, out) : NEXT(realpath)(path, out);
}

AV_EXPORT char *__realpath_chk(const char *path, char *out, size_t room)
{
	return redirect_is_ours(path) && room >= PATH_MAX ? realpath_ours(path, out) :
							    NEXT(__realpath_chk)(path, out, room);
}

AV_EXPORT char *canonicalize_file_name(const char *path)
{
	return redirect_is_ours(path) ? realpath_ours(path, NULL) :
					NEXT(canonicalize_file_name)(path);
}
