/* redirect.c: maps /sys/class/infiniband*, what its links lead to, and /dev/infiniband into the
 * node's tree.
 * In: a path    Out: another path, and the kind of file it names    Runs: any thread
 * Locks: none
 */
#include "redirect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sysfile.h"
#include "root.h"

static const char redirect_sysfs[] = "/sys/class/infiniband";
/* where DEV/device leads to: programs follow such links by their text, too */
static const char redirect_function[] = "/sys/devices/anyverbs";
static const char redirect_dev[] = "/dev/infiniband";

/* The device files of the kernel's verbs and MAD modules, and where their class folders lie. */
static const struct redirect_device {
	const char *prefix, *folder;
	unsigned major, minor;
	bool numbered;
} FIXED redirect_devices[] = {
	{ "uverbs", "class/infiniband_verbs", 231, 192, true },
	{ "umad", "class/infiniband_mad", 231, 0, true },
	{ "issm", "class/infiniband_mad", 231, 64, true },
	{ "rdma_cm", "class/misc", 10, 58, false },
};

static bool redirect_begins(const char *path, const char *with, size_t length, const char *ends)
{
	return strncmp(path, with, length) == 0 &&
	       (path[length] == '\0' || strchr(ends, path[length]));
}

/* __attribute__((noinline)): the interposers' prototypes promise a path that is not NULL, and
 * callers break it. */
__attribute__((noinline)) bool redirect_is_ours(const char *path)
{
	if (path == NULL || path[0] != '/' || (path[1] != 's' && path[1] != 'd'))
		return false;
	return redirect_begins(path, redirect_sysfs, sizeof(redirect_sysfs) - 1, "/_") ||
	       redirect_begins(path, redirect_function, sizeof(redirect_function) - 1, "/") ||
	       redirect_begins(path, redirect_dev, sizeof(redirect_dev) - 1, "/");
}

/* NAME of /dev/infiniband/NAME; "" for the folder itself. */
static const char *redirect_leaf(const char *path)
{
	const char *leaf = path + sizeof(redirect_dev) - 1;

	while (*leaf == '/')
		leaf++;
	return leaf;
}

static bool redirect_device_fill(const char *root, const char *leaf, struct redirect *out)
{
	for (size_t i = 0; i < sizeof(redirect_devices) / sizeof(redirect_devices[0]); i++) {
		const struct redirect_device *d = &redirect_devices[i];
		const char *rest = leaf + strlen(d->prefix);
		char *end = NULL;

		if (strncmp(leaf, d->prefix, strlen(d->prefix)) != 0)
			continue;
		out->minor = d->minor;
		if (d->numbered) {
			out->minor += (unsigned)strtoul(rest, &end, 10);
			rest = end == rest ? "?" : end;
		}
		if (*rest != '\0')
			continue;
		out->kind = REDIRECT_NODE;
		out->major = d->major;
		return snprintf(out->path, sizeof(out->path), "%s/%s/%s", root, d->folder, leaf) <
		       (int)sizeof(out->path);
	}
	return false;
}

static bool redirect_fill(const char *path, const char *root, struct redirect *out)
{
	const char *leaf;
	int n;

	out->major = out->minor = 0;
	out->read_only = path[1] == 's';
	if (out->read_only) {
		out->kind = REDIRECT_SYSFS;
		n = snprintf(out->path, sizeof(out->path), "%s%s", root, path + strlen("/sys"));
		return n < (int)sizeof(out->path);
	}
	leaf = redirect_leaf(path);
	if (strcmp(leaf, "..") == 0 || strncmp(leaf, "../", 3) == 0) {
		/* leads out of a folder that this machine may not have */
		out->kind = REDIRECT_SYSFS;
		n = snprintf(out->path, sizeof(out->path), "/dev%s", leaf + 2);
		return n < (int)sizeof(out->path);
	}
	if (*leaf == '\0' || strcmp(leaf, ".") == 0) {
		out->kind = REDIRECT_FOLDER;
		n = snprintf(out->path, sizeof(out->path), "%s/dev/infiniband", root);
		if (n < (int)sizeof(out->path) && sysfile_access(AT_FDCWD, out->path, F_OK) == 0)
			return true;
		/* a tree without it: the class folder has an entry for each device, too */
		n = snprintf(out->path, sizeof(out->path), "%s/class/infiniband_verbs", root);
		return n < (int)sizeof(out->path);
	}
	if (redirect_device_fill(root, leaf, out))
		return true;
	out->kind = REDIRECT_SYSFS; /* no such device: let the lookup fail in the tree */
	n = snprintf(out->path, sizeof(out->path), "%s/dev/infiniband/%s", root, leaf);
	return n < (int)sizeof(out->path);
}

/* A tree that is the kernel's own (ANYVERBS_SYSFS=/sys) is none: its paths would lead here. */
bool redirect_find(const char *path, struct redirect *out)
{
	char root[512];
	int saved = errno;
	bool found = root_find(root, sizeof(root)) && redirect_fill(path, root, out) &&
		     !redirect_is_ours(out->path);

	errno = saved;
	return found;
}
