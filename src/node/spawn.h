/* spawn.h: starts the daemon from inside somebody's process without the process noticing. */
#ifndef NODE_SPAWN_H
#define NODE_SPAWN_H

#include "anyverbs/kernel.h"

/* Starts anyverbsd for node `name`: in a session of its own, default signals, no inherited
 * descriptor, no child of ours, no SIGCHLD. Returns when the program has been loaded: 0, or a
 * negative errno (-ENOENT: no daemon found). It may still end at once, because another one is there
 * already. *pid: the daemon's. */
int spawn_daemon(const char *name, s32 *pid);
/* Where the daemon's program is; -ENOENT. */
int spawn_find(char *path, size_t size);

#endif
