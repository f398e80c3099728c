/* stat.c: stat and access and their kin.
 * In: a path    Out: the attributes of the tree's file, shown as a device where it stands for one
 * Runs: any thread    Locks: none
 */
#include <anyverbs/kernel.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/sysfile.h"
#include "../next.h"
#include "ours.h"
#include "redirect.h"

_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "one layout for stat and stat64");

/* glibc's entries for programs built before 2.33; no header declares them any more. */
AV_EXPORT int __xstat(int version, const char *path, struct stat *st);
AV_EXPORT int __xstat64(int version, const char *path, struct stat64 *st);
AV_EXPORT int __lxstat(int version, const char *path, struct stat *st);
AV_EXPORT int __lxstat64(int version, const char *path, struct stat64 *st);
AV_EXPORT int __fxstatat(int version, int at, const char *path, struct stat *st, int flags);
AV_EXPORT int __fxstatat64(int version, int at, const char *path, struct stat64 *st, int flags);

NEXT_SLOT(stat);
NEXT_SLOT(stat64);
NEXT_SLOT(lstat);
NEXT_SLOT(lstat64);
NEXT_SLOT(fstatat);
NEXT_SLOT(fstatat64);
NEXT_SLOT(__xstat);
NEXT_SLOT(__xstat64);
NEXT_SLOT(__lxstat);
NEXT_SLOT(__lxstat64);
NEXT_SLOT(__fxstatat);
NEXT_SLOT(__fxstatat64);
NEXT_SLOT(statx);
NEXT_SLOT(access);
NEXT_SLOT(eaccess);
NEXT_SLOT(euidaccess);
NEXT_SLOT(faccessat);

__attribute__((constructor)) static void stat_resolve(void)
{
	NEXT_RESOLVE(stat);
	NEXT_RESOLVE(stat64);
	NEXT_RESOLVE(lstat);
	NEXT_RESOLVE(lstat64);
	NEXT_RESOLVE(fstatat);
	NEXT_RESOLVE(fstatat64);
	NEXT_RESOLVE(statx);
	NEXT_RESOLVE(access);
	NEXT_RESOLVE(faccessat);
}

/* The result for a redirected path. *st is a struct stat64, too. */
__attribute__((noinline)) int stat_ours(int at, const char *path, struct stat *st, int flags)
{
	struct redirect r;
	int rc;

	if (!redirect_find(path, &r))
		return NEXT(fstatat)(at, path, st, flags);
	rc = NEXT(fstatat)(at, r.path, st, flags);
	if (rc == 0 && r.kind == REDIRECT_NODE) {
		st->st_mode = S_IFCHR | 0666;
		st->st_rdev = makedev(r.major, r.minor);
		st->st_size = 0;
		st->st_blocks = 0;
		st->st_nlink = 1;
	}
	return rc;
}

AV_EXPORT int stat(const char *path, struct stat *st)
{
	return redirect_is_ours(path) ? stat_ours(AT_FDCWD, path, st, 0) : NEXT(stat)(path, st);
}

AV_EXPORT int stat64(const char *path, struct stat64 *st)
{
	return redirect_is_ours(path) ? stat_ours(AT_FDCWD, path, (struct stat *)st, 0) :
					NEXT(stat64)(path, st);
}

AV_EXPORT int lstat(const char *path, struct stat *st)
{
	return redirect_is_ours(path) ? stat_ours(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW) :
					NEXT(lstat)(path, st);
}

AV_EXPORT int lstat64(const char *path, struct stat64 *st)
{
	return redirect_is_ours(path) ?
		       stat_ours(AT_FDCWD, path, (struct stat *)st, AT_SYMLINK_NOFOLLOW) :
		       NEXT(lstat64)(path, st);
}

AV_EXPORT int fstatat(int at, const char *path, struct stat *st, int flags)
{
	return redirect_is_ours(path) ? stat_ours(at, path, st, flags) :
					NEXT(fstatat)(at, path, st, flags);
}

AV_EXPORT int fstatat64(int at, const char *path, struct stat64 *st, int flags)
{
	return redirect_is_ours(path) ? stat_ours(at, path, (struct stat *)st, flags) :
					NEXT(fstatat64)(at, path, st, flags);
}

AV_EXPORT int __xstat(int version, const char *path, struct stat *st)
{
	return redirect_is_ours(path) ? stat_ours(AT_FDCWD, path, st, 0) :
					NEXT(__xstat)(version, path, st);
}

AV_EXPORT int __xstat64(int version, const char *path, struct stat64 *st)
{
	return redirect_is_ours(path) ? stat_ours(AT_FDCWD, path, (struct stat *)st, 0) :
					NEXT(__xstat64)(version, path, st);
}

AV_EXPORT int __lxstat(int version, const char *path, struct stat *st)
{
	return redirect_is_ours(path) ? stat_ours(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW) :
					NEXT(__lxstat)(version, path, st);
}

AV_EXPORT int __lxstat64(int version, const char *path, struct stat64 *st)
{
	return redirect_is_ours(path) ?
		       stat_ours(AT_FDCWD, path, (struct stat *)st, AT_SYMLINK_NOFOLLOW) :
		       NEXT(__lxstat64)(version, path, st);
}

AV_EXPORT int __fxstatat(int version, int at, const char *path, struct stat *st, int flags)
{
	return redirect_is_ours(path) ? stat_ours(at, path, st, flags) :
					NEXT(__fxstatat)(version, at, path, st, flags);
}

AV_EXPORT int __fxstatat64(int version, int at, const char *path, struct stat64 *st, int flags)
{
	return redirect_is_ours(path) ? stat_ours(at, path, (struct stat *)st, flags) :
					NEXT(__fxstatat64)(version, at, path, st, flags);
}

__attribute__((noinline)) int statx_ours(int at, const char *path, int flags, unsigned mask,
					 struct statx *st)
{
	struct redirect r;
	int rc;

	if (!redirect_find(path, &r))
		return NEXT(statx)(at, path, flags, mask, st);
	rc = NEXT(statx)(at, r.path, flags, mask, st);
	if (rc == 0 && r.kind == REDIRECT_NODE) {
		st->stx_mode = S_IFCHR | 0666;
		st->stx_rdev_major = r.major;
		st->stx_rdev_minor = r.minor;
		st->stx_size = 0;
		st->stx_blocks = 0;
		st->stx_nlink = 1;
	}
	return rc;
}

AV_EXPORT int statx(int at, const char *path, int flags, unsigned mask, struct statx *st)
{
	return redirect_is_ours(path) ? statx_ours(at, path, flags, mask, st) :
					NEXT(statx)(at, path, flags, mask, st);
}

/* A device file is readable and writable for all, executable for none. */
__attribute__((noinline)) int access_ours(int at, const char *path, int mode, int flags)
{
	struct redirect r;
	int rc;

	if (!redirect_find(path, &r))
		return NEXT(faccessat)(at, path, mode, flags);
	if (r.kind != REDIRECT_NODE)
		return flags == 0 ? sysfile_access(at, r.path, mode)
				  : NEXT(faccessat)(at, r.path, mode, flags);
	rc = sysfile_access(at, r.path, F_OK);
	if (rc == 0 && (mode & X_OK)) {
		errno = EACCES;
		rc = -1;
	}
	return rc;
}

AV_EXPORT int access(const char *path, int mode)
{
	return redirect_is_ours(path) ? access_ours(AT_FDCWD, path, mode, 0) :
					NEXT(access)(path, mode);
}

AV_EXPORT int eaccess(const char *path, int mode)
{
	return redirect_is_ours(path) ? access_ours(AT_FDCWD, path, mode, AT_EACCESS) :
					NEXT(eaccess)(path, mode);
}

AV_EXPORT int euidaccess(const char *path, int mode)
{
	return redirect_is_ours(path) ? access_ours(AT_FDCWD, path, mode, AT_EACCESS) :
					NEXT(euidaccess)(path, mode);
}

AV_EXPORT int faccessat(int at, const char *path, int mode, int flags)
{
	return redirect_is_ours(path) ? access_ours(at, path, mode, flags) :
					NEXT(faccessat)(at, path, mode, flags);
}
