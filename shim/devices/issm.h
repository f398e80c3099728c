/* issm.h: /dev/infiniband/issmN: its port is a subnet manager's while it is open. */
#ifndef PRELOAD_ISSM_H
#define PRELOAD_ISSM_H

#include <stdbool.h>

/* path: of a class folder of the node's tree. */
bool issm_is(const char *path);
/* Asks the stack, which it loads if the program has not. A descriptor, close-on-exec; or -1 and
 * errno: ENXIO, EBUSY, or as the stack says. */
int issm_open(const char *path);

#endif
