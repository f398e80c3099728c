/* attr.c: extended attributes (ls -l asks for them) and chdir.
 * In: a path    Out: the file system's answer about the tree's file    Runs: any thread
 * Locks: none
 */
#include <anyverbs/kernel.h>
#include <errno.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "../next.h"
#include "redirect.h"

NEXT_SLOT(getxattr);
NEXT_SLOT(lgetxattr);
NEXT_SLOT(listxattr);
NEXT_SLOT(llistxattr);
NEXT_SLOT(chdir);

static __attribute__((noinline)) ssize_t getxattr_ours(const char *path, const char *name,
						       void *value, size_t size)
{
	struct redirect r;

	return NEXT(getxattr)(redirect_find(path, &r) ? r.path : path, name, value, size);
}

AV_EXPORT ssize_t getxattr(const char *path, const char *name, void *value, size_t size)
{
	return redirect_is_ours(path) ? getxattr_ours(path, name, value, size) :
					NEXT(getxattr)(path, name, value, size);
}

static __attribute__((noinline)) ssize_t lgetxattr_ours(const char *path, const char *name,
							void *value, size_t size)
{
	struct redirect r;

	return NEXT(lgetxattr)(redirect_find(path, &r) ? r.path : path, name, value, size);
}

AV_EXPORT ssize_t lgetxattr(const char *path, const char *name, void *value, size_t size)
{
	return redirect_is_ours(path) ? lgetxattr_ours(path, name, value, size)
				      : NEXT(lgetxattr)(path, name, value, size);
}

static __attribute__((noinline)) ssize_t listxattr_ours(const char *path, char *list, size_t size)
{
	struct redirect r;

	return NEXT(listxattr)(redirect_find(path, &r) ? r.path : path, list, size);
}

AV_EXPORT ssize_t listxattr(const char *path, char *list, size_t size)
{
	return redirect_is_ours(path) ? listxattr_ours(path, list, size) :
					NEXT(listxattr)(path, list, size);
}

static __attribute__((noinline)) ssize_t llistxattr_ours(const char *path, char *list, size_t size)
{
	struct redirect r;

	return NEXT(llistxattr)(redirect_find(path, &r) ? r.path : path, list, size);
}

AV_EXPORT ssize_t llistxattr(const char *path, char *list, size_t size)
{
	return redirect_is_ours(path) ? llistxattr_ours(path, list, size)
				      : NEXT(llistxattr)(path, list, size);
}

/* From here on relative paths are the tree's own. */
static __attribute__((noinline)) int chdir_ours(const char *path)
{
	struct redirect r;

	if (!redirect_find(path, &r))
		return NEXT(chdir)(path);
	if (r.kind == REDIRECT_NODE) {
		errno = ENOTDIR;
		return -1;
	}
	return NEXT(chdir)(r.path);
}

AV_EXPORT int chdir(const char *path)
{
	return redirect_is_ours(path) ? chdir_ours(path) : NEXT(chdir)(path);
}
