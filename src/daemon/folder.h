/* folder.h: the node's folder, with its slots file and its sysfs tree. */
#ifndef DAEMON_FOLDER_H
#define DAEMON_FOLDER_H

#include "base/compiler.h"
#include "node/place.h"

enum {
	FOLDER_SLOTS = 8192,	   /* bytes: the slots file */
	FOLDER_TREE = 1024 * 1024, /* bytes: the sysfs tree, a block for each file */
};

struct folder {
	int fd; /* -1: there is none */
	char path[PLACE_PATH];
} OWNED_BY(the daemon);

/* Finds or makes the folder of node `name`: mode 0700, of this user, one per scope, and locks
 * it. A folder in which a living process holds slots takes precedence. A place without room for
 * the slots file and the tree is skipped. Without any place fd is -1, which is logged.
 * -EADDRINUSE: another daemon has the lock. */
int folder_open(struct folder *f, enum place_scope scope, const char *name);
/* Takes the folder that the node before has locked and passed on as descriptor `fd`. -ESTALE: it is
 * none of the places of node `name`; then `fd` is closed. */
int folder_inherit(struct folder *f, int fd, enum place_scope scope, const char *name);
void folder_close(struct folder *f);
/* Tells whether a living process holds a slot: a survivor of an earlier node, or an attached
 * one. */
bool folder_in_use(const struct folder *f);
/* Deletes the folder with its content, unless a process holds a slot. A log stays. */
void folder_remove(const struct folder *f);
/* Deletes a folder (relative, "sys" for the whole sysfs tree) with its content. */
void folder_remove_tree(const struct folder *f, const char *path);
/* Makes `path` (relative, with folders in front) hold `text`, unless it does already. Readers see
 * the old or the new text. The file's mode is 0444, as in /sys. */
int folder_put(const struct folder *f, const char *path, const char *text);
int folder_make(const struct folder *f, const char *path);
/* Makes `path` a symbolic link with the text `to`, in one step, unless it is one already. A folder
 * of an earlier node there goes with its content. */
int folder_link(const struct folder *f, const char *path, const char *to);
void folder_delete(const struct folder *f, const char *path);

#endif
