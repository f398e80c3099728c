/* watch.h: watches for changes of the host's interfaces and addresses. */
#ifndef HOST_WATCH_H
#define HOST_WATCH_H

#include "base/compiler.h"

/* Opens a descriptor that becomes readable at each change; or a negative errno. */
int watch_open(void);
/* Reads announcements, a few dozen at most: then the descriptor stays readable. Tells whether one
 * could have changed an address. */
bool watch_read(int fd);

#endif
