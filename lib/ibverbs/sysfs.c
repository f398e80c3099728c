/* sysfs.c: finds the tree that describes devices, and reads a file of it.
 * In: a folder and a name
 * Out: text without its last newline
 * Runs: any thread
 * Locks: sysfs_lock (the path)
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fork.h"
#include "door.h"

AV_EXPORT const char *ibv_get_sysfs_path(void);
AV_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

static struct lock sysfs_lock;
static char sysfs_path[256] GUARDED_BY(sysfs_lock);
FORK_TAKES(FORK_SYSFS, &sysfs_lock);

/* The node makes the tree, so a device names it; without a device the kernel's serves. */
static void sysfs_ask_device(char *out, size_t size)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	const char *found = list && list[0] ? door_device(list[0])->sysfs : "";

	snprintf(out, size, "%s", *found ? found : "/sys");
	ibv_free_device_list(list);
}

/* The string stays valid and unchanged after the first call. */
const char *ibv_get_sysfs_path(void)
{
	char asked[sizeof(sysfs_path)];
	const char *answer;
	bool known;

	lock_acquire(&sysfs_lock);
	known = sysfs_path[0];
	lock_release(&sysfs_lock);
	if (!known)
		sysfs_ask_device(asked, sizeof(asked));
	lock_acquire(&sysfs_lock);
	if (!sysfs_path[0])
		memcpy(sysfs_path, asked, sizeof(asked));
	answer = sysfs_path;
	lock_release(&sysfs_lock);
	return answer;
}

/* Returns how many bytes it read into buf, or -1 and errno. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[PATH_MAX];
	ssize_t got;
	int fd, error;

	if (!size || snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path))
		return door_minus_one(-EINVAL);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	got = read(fd, buf, size);
	error = errno;
	close(fd);
	if (got < 0)
		return door_minus_one(-error);
	if (got > 0 && buf[got - 1] == '\n')
		buf[--got] = 0;
	else if ((size_t)got < size)
		buf[got] = 0;
	return (int)got;
}
