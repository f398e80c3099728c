/* redirect.h: the paths that the shim redirects, and their targets. */
#ifndef PRELOAD_REDIRECT_H
#define PRELOAD_REDIRECT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

enum redirect_kind {
	/* something under /sys/class/infiniband* or /sys/devices/anyverbs: `path` is its
	 * counterpart */
	REDIRECT_SYSFS,
	REDIRECT_FOLDER, /* /dev/infiniband itself */
	REDIRECT_NODE,	 /* /dev/infiniband/NAME: exists if `path` does, and looks like a device */
};

struct redirect {
	enum redirect_kind kind;
	unsigned major, minor; /* REDIRECT_NODE: the kernel's numbers */
	bool read_only; /* of /sys, which takes no write and no new file, from root neither */
	char path[PATH_MAX];
} OWNED_BY(the caller);

/* The quick test that every call passes: reads a few characters only. */
bool redirect_is_ours(const char *path);
/* Fills *out for a redirected path. False: no tree, pass the call through unchanged. Keeps
 * errno. */
bool redirect_find(const char *path, struct redirect *out);

#endif
