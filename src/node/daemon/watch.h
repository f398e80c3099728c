/* watch.h: hears when the host's interfaces or addresses change. */
#ifndef NODE_DAEMON_WATCH_H
#define NODE_DAEMON_WATCH_H

#include "base/compiler.h"

/* A descriptor that becomes readable with each change; or a negative errno. */
int watch_open(void);
/* Reads what has come. Whether it could have changed an address. */
bool watch_read(int fd);

#endif
