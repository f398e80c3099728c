/* if_arp.h: kinds of interfaces, the C library's. */
#ifndef ANYVERBS_LINUX_IF_ARP_H
#define ANYVERBS_LINUX_IF_ARP_H

#include <net/if_arp.h>

#endif
