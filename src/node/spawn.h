/* spawn.h: starts the daemon from inside an application's process, without a trace there. */
#ifndef NODE_SPAWN_H
#define NODE_SPAWN_H

#include "anyverbs/kernel.h"

/* Starts anyverbsd for node `name`: in a session of its own, with default signals, without
 * inherited descriptors, not as a child of this process, without SIGCHLD. Returns when the program
 * has been loaded: 0, or a negative errno (-ENOENT: no daemon found). It may still end at once,
 * because another daemon runs already. *pid: the daemon's. */
int spawn_daemon(const char *name, s32 *pid);
/* Finds the daemon's program; -ENOENT. */
int spawn_find(char *path, size_t size);

#endif
