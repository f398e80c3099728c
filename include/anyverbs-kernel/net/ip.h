/* ip.h: addresses of IPv4, the C library's. */
#ifndef ANYVERBS_NET_IP_H
#define ANYVERBS_NET_IP_H

#include <linux/in.h>
#include <linux/types.h>

static inline bool ipv4_is_loopback(__be32 address)
{
	return (ntohl(address) >> 24) == 127;
}

static inline bool ipv4_is_multicast(__be32 address)
{
	return (ntohl(address) >> 28) == 14;
}

static inline bool ipv4_is_zeronet(__be32 address)
{
	return (ntohl(address) >> 24) == 0;
}

#endif
