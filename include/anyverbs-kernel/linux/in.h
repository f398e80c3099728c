/* in.h: the C library's structures of IPv4. */
#ifndef ANYVERBS_LINUX_IN_H
#define ANYVERBS_LINUX_IN_H

#include <netinet/in.h>

#endif
