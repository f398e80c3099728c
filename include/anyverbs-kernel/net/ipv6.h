/* ipv6.h: addresses of IPv6. None of this blocks. */
#ifndef ANYVERBS_NET_IPV6_H
#define ANYVERBS_NET_IPV6_H

#include <linux/in6.h>
#include <linux/types.h>

static inline bool ipv6_addr_any(const struct in6_addr *address)
{
	return IN6_IS_ADDR_UNSPECIFIED(address);
}

static inline bool ipv6_addr_equal(const struct in6_addr *a, const struct in6_addr *b)
{
	return __builtin_memcmp(a, b, sizeof(*a)) == 0;
}

static inline bool ipv6_addr_loopback(const struct in6_addr *address)
{
	return IN6_IS_ADDR_LOOPBACK(address);
}

static inline bool ipv6_addr_is_multicast(const struct in6_addr *address)
{
	return IN6_IS_ADDR_MULTICAST(address);
}

/* ::ffff:a.b.c.d */
static inline bool ipv6_addr_v4mapped(const struct in6_addr *address)
{
	return IN6_IS_ADDR_V4MAPPED(address);
}

static inline void ipv6_addr_set_v4mapped(const __be32 address, struct in6_addr *to)
{
	*to = (struct in6_addr){ .s6_addr = { [10] = 0xff, [11] = 0xff } };
	__builtin_memcpy(&to->s6_addr[12], &address, sizeof(address));
}

#endif
