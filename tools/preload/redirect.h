/* redirect.h: which paths are ours, and what stands for them. */
#ifndef PRELOAD_REDIRECT_H
#define PRELOAD_REDIRECT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum redirect_kind {
	REDIRECT_SYSFS,  /* something under /sys/class/infiniband*: `path` is its counterpart */
	REDIRECT_FOLDER, /* /dev/infiniband itself */
	REDIRECT_NODE,   /* /dev/infiniband/NAME: exists if `path` does, and looks like a device */
};

struct redirect {
	enum redirect_kind kind;
	unsigned major, minor; /* REDIRECT_NODE: as the kernel numbers them */
	char path[PATH_MAX];
};

/* The quick test that every call passes: nothing but a few characters are looked at. */
bool redirect_is_ours(const char *path);
/* Fills *out for a path of ours. False: no tree, let the call through as it is. Keeps errno. */
bool redirect_find(const char *path, struct redirect *out);

#endif
