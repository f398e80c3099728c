/* folder.h: the node's own folder, where its slots file and its sysfs tree lie. */
#ifndef NODE_DAEMON_FOLDER_H
#define NODE_DAEMON_FOLDER_H

#include "base/compiler.h"
#include "node/place.h"

enum {
	FOLDER_SLOTS = 8192,	  /* bytes: the slots file */
	FOLDER_TREE = 1024 * 1024, /* bytes: the sysfs tree, a block for each file */
};

struct folder {
	int fd; /* -1: there is none */
	char path[PLACE_PATH];
};

/* Finds or makes the folder of node `name`: mode 0700, ours, one per network namespace. A folder in
 * which a living process holds slots goes before the others. A place without room for the slots
 * file and the tree is passed over. Without any place fd is -1, which is logged. The folder is
 * locked: -EADDRINUSE if another daemon has it. */
int folder_open(struct folder *f, const char *name);
void folder_close(struct folder *f);
/* Whether a living process holds a slot: a survivor of an earlier node, or one that is attached. */
bool folder_in_use(const struct folder *f);
/* Deletes the folder with all that is in it, unless somebody holds a slot. A log stays. */
void folder_remove(const struct folder *f);
/* Deletes a folder (relative, "sys" for the whole sysfs tree) with all that is in it. */
void folder_remove_tree(const struct folder *f, const char *path);
/* Makes `path` (relative, with folders in front) hold `text`, unless it does already; readers see
 * the old or the new. */
int folder_put(const struct folder *f, const char *path, const char *text);
int folder_make(const struct folder *f, const char *path);
void folder_delete(const struct folder *f, const char *path);

#endif
