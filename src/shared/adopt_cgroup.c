/* adopt_cgroup.c: how much memory the control groups of this process allow.
 *
 * A process stands in one group of each hierarchy, and every group above it limits it, too. Here is
 * read what the mounts of this namespace show: of version 2 memory.max and memory.high, of version
 * 1 memory.limit_in_bytes, for the group and all above it up to the mount.
 *
 * In: /proc/self/cgroup and mountinfo, the groups' files    Out: the tightest limit, the least room
 * Runs: verbs that register memory    Locks: none
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/lines.h"
#include "shared/adopt_priv.h"

enum {
	CGROUP_DEPTH = 64,
};

/* The files of one cgroup version. */
struct cgroup_files {
	const char *limit[2], *usage, *cache;
} FIXED;

static const struct cgroup_files cgroup_v1 = {
	.limit = { "memory.limit_in_bytes", NULL },
	.usage = "memory.usage_in_bytes",
	.cache = "total_inactive_file ",
};
static const struct cgroup_files cgroup_v2 = {
	.limit = { "memory.max", "memory.high" },
	.usage = "memory.current",
	.cache = "inactive_file ",
};

/* Reads a file of the group a->folder as text. False: no such file. */
static bool cgroup_read(struct cgroup_ask *a, const char *name, char *text, size_t size)
{
	ssize_t n;
	int fd;

	snprintf(a->path, sizeof(a->path), "%s/%s", a->folder, name);
	fd = open(a->path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, size - 1);
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	return true;
}

/* "max", or no number: no limit. */
static u64 cgroup_number(struct cgroup_ask *a, const char *name, u64 otherwise)
{
	char text[32], *end;
	u64 value;

	if (name == NULL || !cgroup_read(a, name, text, sizeof(text)))
		return otherwise;
	value = strtoull(text, &end, 10);
	return end == text ? otherwise : value;
}

/* Bytes of file pages that the kernel would reclaim first. */
static u64 cgroup_cache(struct cgroup_ask *a, const char *name)
{
	const char *at = a->stat;

	if (!cgroup_read(a, "memory.stat", a->stat, sizeof(a->stat)))
		return 0;
	while (at != NULL && strncmp(at, name, strlen(name)) != 0) {
		at = strchr(at, '\n');
		at = at == NULL ? NULL : at + 1;
	}
	return at == NULL ? 0 : strtoull(at + strlen(name), NULL, 10);
}

static void cgroup_ask_one(const struct cgroup_files *f, struct cgroup_ask *a)
{
	u64 limit = MIN(cgroup_number(a, f->limit[0], UINT64_MAX),
			cgroup_number(a, f->limit[1], UINT64_MAX));
	u64 used, left;

	if (limit >= CGROUP_NO_LIMIT)
		return;
	used = cgroup_number(a, f->usage, 0);
	left = limit > used ? limit - used : 0;
	if (left < a->need)
		left = MIN(left + MIN(cgroup_cache(a, f->cache), used), limit);
	a->room.limit = MIN(a->room.limit, limit);
	a->room.left = MIN(a->room.left, left);
}

/* Asks the group and all above it, up to a->mount, which shows a->root of the hierarchy. The mount
 * does not show a group outside of it (a path with ..): then the mount's own limit is all that is
 * known. */
static void cgroup_ask_up(const struct cgroup_files *f, const char *group, struct cgroup_ask *a)
{
	size_t skip = strcmp(a->root, "/") == 0 ? 0 : strlen(a->root), top = strlen(a->mount);
	bool inside = strncmp(group, a->root, skip) == 0 &&
		      (group[skip] == '/' || group[skip] == '\0') && strstr(group, "/..") == NULL;

	snprintf(a->folder, sizeof(a->folder), "%s%s", a->mount, inside ? group + skip : "");
	for (int i = 0; i < CGROUP_DEPTH; i++) {
		char *cut = strrchr(a->folder, '/');

		cgroup_ask_one(f, a);
		if (cut == NULL || (size_t)(cut - a->folder) < top)
			return;
		*cut = '\0';
	}
}

/* Tells whether `word` is in the list, which commas separate. */
static bool cgroup_list_has(const char *list, size_t length, const char *word)
{
	size_t n = strlen(word);

	for (const char *at = list, *end = list + length; at < end; at++) {
		size_t left = (size_t)(end - at), next = strcspn(at, ",");

		next = MIN(next, left);
		if (next == n && memcmp(at, word, n) == 0)
			return true;
		at += next;
	}
	return false;
}

/* "4:cpu,memory:/group"; of version 2 "0::/group". */
static bool cgroup_line(const char *line, void *arg)
{
	struct cgroup_ask *a = arg;
	const char *list = strchr(line, ':');
	const char *group = list == NULL ? NULL : strchr(list + 1, ':');
	char *to = NULL;

	if (group == NULL)
		return true;
	if (group == list + 1)
		to = a->v2;
	else if (cgroup_list_has(list + 1, (size_t)(group - list - 1), "memory"))
		to = a->v1;
	if (to != NULL)
		snprintf(to, CGROUP_PATH, "%s", group + 1);
	return true;
}

/* "36 35 98:0 /root /mount rw,noatime shared:1 - cgroup cgroup rw,memory" */
static bool cgroup_mount_line(const char *line, void *arg)
{
	const char *rest = strstr(line, " - "), *options;
	struct cgroup_ask *a = arg;

	if (rest == NULL || strncmp(rest + 3, "cgroup", 6) != 0 ||
	    sscanf(line, "%*s %*s %*s %1023s %1023s", a->root, a->mount) != 2)
		return true;
	options = strrchr(rest, ' ') + 1;
	if (strncmp(rest + 3, "cgroup2 ", 8) == 0 && a->v2[0] != '\0')
		cgroup_ask_up(&cgroup_v2, a->v2, a);
	else if (strncmp(rest + 3, "cgroup ", 7) == 0 && a->v1[0] != '\0' &&
		 cgroup_list_has(options, strlen(options), "memory"))
		cgroup_ask_up(&cgroup_v1, a->v1, a);
	return true;
}

static bool cgroup_each_line(const char *proc, const char *name,
			     bool (*fn)(const char *line, void *arg), struct cgroup_ask *a)
{
	int fd;
	bool all;

	snprintf(a->path, sizeof(a->path), "%s/%s", proc, name);
	fd = open(a->path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	all = lines_each(fd, fn, a);
	close(fd);
	return all;
}

struct cgroup_room cgroup_ask(const char *proc, u64 need, struct cgroup_ask *a)
{
	a->v1[0] = a->v2[0] = '\0';
	a->need = need;
	a->room = (struct cgroup_room){ .limit = CGROUP_NO_LIMIT, .left = CGROUP_NO_LIMIT };
	/* Kernels without groups have neither file: no limit is known. */
	if (cgroup_each_line(proc, "cgroup", cgroup_line, a))
		cgroup_each_line(proc, "mountinfo", cgroup_mount_line, a);
	return a->room;
}
