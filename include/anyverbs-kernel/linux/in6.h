/* in6.h: the C library's structures of IPv6. */
#ifndef ANYVERBS_LINUX_IN6_H
#define ANYVERBS_LINUX_IN6_H

#include <netinet/in.h>

#endif
