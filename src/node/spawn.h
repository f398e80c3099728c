/* spawn.h: starts the daemon from inside an application's process, without a trace there. */
#ifndef NODE_SPAWN_H
#define NODE_SPAWN_H

#include "node/place.h"

enum {
	SPAWN_INHERITED = 2,
	/* Descriptors without which a node cannot serve one process: its own and the process'. */
	SPAWN_LEAST_FDS = 28,
};

/* Starts anyverbsd for node `name`: in a session of its own, with default signals, without
 * inherited descriptors, not as a child of this process, without SIGCHLD. Returns when the program
 * has been loaded: 0, or a negative errno (-ENOENT: no daemon found; -EMFILE: the hard limit of
 * descriptors, which the daemon inherits, is below SPAWN_LEAST_FDS). It may still end at once,
 * because another daemon runs already. *pid: the daemon's. */
int spawn_daemon(const char *name, enum place_scope scope, s32 *pid);
/* As spawn_daemon, for the node that follows one that has ended: the daemon gets copies of its
 * descriptors, SPAWN_INHERITED at most, from number 3 on. */
int spawn_successor(const char *name, enum place_scope scope, const int *fds, int count,
		    s32 *pid);
/* Finds the daemon's program; -ENOENT. */
int spawn_find(char *path, size_t size);

#endif
