/* ours.h: calls with a path that redirect_is_ours has found, for the other files of the shim.
 *
 * Each answers as the call of the C library does, also if there is no tree. Any thread. */
#ifndef PRELOAD_OURS_H
#define PRELOAD_OURS_H

#include <sys/stat.h>
#include <sys/types.h>

int open_ours(int at, const char *path, int flags, mode_t mode);
int stat_ours(int at, const char *path, struct stat *st, int flags);
int statx_ours(int at, const char *path, int flags, unsigned mask, struct statx *st);
int access_ours(int at, const char *path, int mode, int flags);
ssize_t readlink_ours(int at, const char *path, char *out, size_t size);

#endif
