/* filter.h: the kernel's filter in front of a receiving packet socket. */
#ifndef PATH_RAW_FILTER_H
#define PATH_RAW_FILTER_H

#include "base/compiler.h"

/* Lets through what raw.h says that comes: by the direction of a frame and its mark. 0 or a
 * negative errno. */
int filter_attach(int fd, u32 mark, bool loopback);

#endif
