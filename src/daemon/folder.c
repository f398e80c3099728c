/* folder.c: the node's folder, and files that change in one step.
 * In:    the user, the node's name, the environment
 * Out:   files of mode 0600 in folders of mode 0700
 * Runs:  the daemon's only thread
 * Locks: flock on the folder, against a second daemon (and it looks at the slots file's byte locks)
 */
#include "daemon/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "node/place.h"

enum {
	FOLDER_TEXT = 4096,
	FOLDER_DEPTH = 10,
	FOLDER_TRIES = 50,
	FOLDER_PAUSE_MS = 20,
};

/* Survivors of an earlier node may have had another environment. */
bool folder_in_use(const struct folder *f)
{
	return place_in_use(f->fd);
}

/* Tells whether the place has room. Space reserved for the file `name` stays reserved. */
static int folder_reserve_file(const struct folder *f, const char *name, off_t size)
{
	int err, fd = openat(f->fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return -errno;
	err = posix_fallocate(fd, 0, size);
	close(fd);
	return -err;
}

static int folder_reserve(const struct folder *f)
{
	int err = folder_reserve_file(f, "slots", FOLDER_SLOTS);

	if (err == 0)
		err = folder_reserve_file(f, ".new", FOLDER_TREE);
	unlinkat(f->fd, ".new", 0);
	return err;
}

void folder_close(struct folder *f)
{
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
	f->path[0] = '\0';
}

/* Deletes the content of a folder, as deep as the sysfs tree. */
static void folder_empty(int fd, int depth)
{
	DIR *dir = fdopendir(fd); /* owns fd from here on */
	struct dirent *e;
	int sub;

	while (dir != NULL && (e = readdir(dir)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (unlinkat(dirfd(dir), e->d_name, 0) == 0 || depth == 0)
			continue;
		sub = openat(dirfd(dir), e->d_name,
			     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (sub >= 0)
			folder_empty(sub, depth - 1);
		unlinkat(dirfd(dir), e->d_name, AT_REMOVEDIR);
	}
	if (dir != NULL)
		closedir(dir);
	else
		close(fd);
}

void folder_remove_tree(const struct folder *f, const char *path)
{
	int fd = openat(f->fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0)
		folder_empty(fd, FOLDER_DEPTH);
	unlinkat(f->fd, path, AT_REMOVEDIR);
}

void folder_remove(const struct folder *f)
{
	if (f->fd < 0 || folder_in_use(f))
		return;
	folder_remove_tree(f, "sys");
	folder_remove_tree(f, "hosts");
	unlinkat(f->fd, "slots", 0);
	unlinkat(f->fd, "devices", 0);
	unlinkat(f->fd, "traffic", 0);
	unlinkat(f->fd, "fabric", 0);
	unlinkat(f->fd, "fabric.map", 0);
	unlinkat(f->fd, "fabric.counters", 0);
	unlinkat(f->fd, PLACE_SOCKET, 0);
	unlinkat(f->fd, ".new", 0);
	rmdir(f->path);
}

static int folder_try(struct folder *f, int place, enum place_scope scope, const char *name,
		      bool make)
{
	f->fd = place_open(place, scope, name, make, f->path);
	return f->fd < 0 ? f->fd : 0;
}

/* Locks the folder for this daemon. -EWOULDBLOCK: another daemon has it, or removes it. The lock
 * also keeps cleaners of temporary files away (tmpfiles.d(5)). */
static int folder_lock(const struct folder *f)
{
	struct stat st;

	if (flock(f->fd, LOCK_EX | LOCK_NB) < 0) {
		log_debug("node", "cannot lock %s: %s", f->path, strerror(errno));
		return errno == EWOULDBLOCK ? -EWOULDBLOCK : 0;
	}
	/* its last daemon may have removed it meanwhile */
	return fstat(f->fd, &st) == 0 && st.st_nlink > 0 ? 0 : -EWOULDBLOCK;
}

/* Makes the folder at a place and locks it. Its content changes only after that. */
static int folder_take(struct folder *f, int place, enum place_scope scope, const char *name)
{
	int err = folder_try(f, place, scope, name, true);

	if (err == 0)
		err = folder_lock(f);
	if (err < 0)
		return err;
	err = folder_reserve(f);
	if (err < 0)
		folder_remove(f);
	return err;
}

/* Chooses the folder that an earlier node's processes use, else the first possible one, and locks
 * it. f->fd is -1 if there is none. -EWOULDBLOCK: another daemon has it. */
static int folder_choose(struct folder *f, enum place_scope scope, const char *name)
{
	int err;

	memset(f, 0, sizeof(*f));
	for (int i = 0; i < PLACE_COUNT; i++) {
		if (folder_try(f, i, scope, name, false) < 0)
			continue;
		if (folder_in_use(f))
			return folder_lock(f);
		folder_close(f);
	}
	for (int i = 0; i < PLACE_COUNT; i++) {
		err = folder_take(f, i, scope, name);
		if (err == 0 || err == -EWOULDBLOCK)
			return err;
		if (err != -ENODEV)
			log_warn("node", "cannot use %s: %s", f->path, strerror(-err));
		folder_close(f);
	}
	log_error("node",
		  "no writable folder: there is no sysfs tree, and slots do not survive this node");
	return 0;
}

int folder_open(struct folder *f, enum place_scope scope, const char *name)
{
	for (int i = 0; i < FOLDER_TRIES; i++) {
		if (folder_choose(f, scope, name) == 0)
			return 0;
		folder_close(f);
		nanosleep(&(struct timespec){ .tv_nsec = FOLDER_PAUSE_MS * NS_PER_MS }, NULL);
	}
	return -EADDRINUSE;
}

int folder_inherit(struct folder *f, int fd, enum place_scope scope, const char *name)
{
	struct stat passed, found;

	if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 || fstat(fd, &passed) < 0)
		return -ESTALE;
	for (int i = 0; i < PLACE_COUNT; i++) {
		int at = place_open(i, scope, name, false, f->path);
		bool same = at >= 0 && fstat(at, &found) == 0 && found.st_dev == passed.st_dev &&
			    found.st_ino == passed.st_ino;

		if (at >= 0)
			close(at);
		if (same) {
			f->fd = fd;
			return 0;
		}
	}
	close(fd);
	return -ESTALE;
}

int folder_make(const struct folder *f, const char *path)
{
	char part[PLACE_PATH];

	for (const char *slash = strchr(path, '/');; slash = strchr(slash + 1, '/')) {
		size_t length = slash == NULL ? strlen(path) : (size_t)(slash - path);

		snprintf(part, sizeof(part), "%.*s", (int)length, path);
		if (mkdirat(f->fd, part, 0700) < 0 && errno != EEXIST)
			return -errno;
		if (slash == NULL)
			return 0;
	}
}

static bool folder_holds(const struct folder *f, const char *path, const char *text)
{
	char now[FOLDER_TEXT];
	int fd = openat(f->fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, now, sizeof(now));
	close(fd);
	return n >= 0 && (size_t)n == strlen(text) && memcmp(now, text, (size_t)n) == 0;
}

int folder_put(const struct folder *f, const char *path, const char *text)
{
	size_t length = strlen(text);
	ssize_t n;
	int fd, err = 0;

	if (folder_holds(f, path, text))
		return 0;
	unlinkat(f->fd, ".new", 0); /* of a node that was killed in here */
	fd = openat(f->fd, ".new", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0400);
	if (fd < 0)
		return -errno;
	n = write(fd, text, length);
	if (n < 0 || fchmod(fd, 0444) < 0) /* whatever the umask is */
		err = -errno;
	else if ((size_t)n != length)
		err = -ENOSPC;
	close(fd);
	if (err == 0 && renameat(f->fd, ".new", f->fd, path) < 0)
		err = -errno;
	return err;
}

static bool folder_links(const struct folder *f, const char *path, const char *to)
{
	char now[PLACE_PATH];
	ssize_t n = readlinkat(f->fd, path, now, sizeof(now));

	return n >= 0 && (size_t)n == strlen(to) && memcmp(now, to, (size_t)n) == 0;
}

int folder_link(const struct folder *f, const char *path, const char *to)
{
	if (folder_links(f, path, to))
		return 0;
	unlinkat(f->fd, ".new", 0); /* of a node that was killed in here */
	if (symlinkat(to, f->fd, ".new") < 0)
		return -errno;
	if (renameat(f->fd, ".new", f->fd, path) == 0)
		return 0;
	if (errno != EISDIR)
		return -errno;
	folder_remove_tree(f, path);
	return renameat(f->fd, ".new", f->fd, path) < 0 ? -errno : 0;
}

void folder_delete(const struct folder *f, const char *path)
{
	unlinkat(f->fd, path, 0);
}
