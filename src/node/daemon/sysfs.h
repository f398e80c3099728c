/* sysfs.h: the tree that stands for /sys: class/infiniband and class/infiniband_verbs, in the
 * kernel's formats. */
#ifndef NODE_DAEMON_SYSFS_H
#define NODE_DAEMON_SYSFS_H

#include "node/daemon/folder.h"
#include "node/node.h"

/* Writes or updates the device's part of FOLDER/sys. 0 or a negative errno (the tree is then
 * incomplete, which is logged). */
int sysfs_write(const struct folder *f, const struct node_config *c);
/* Deletes the device's part. */
void sysfs_remove(const struct folder *f, const struct node_config *c);

#endif
