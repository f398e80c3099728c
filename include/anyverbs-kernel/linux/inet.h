/* inet.h: IP addresses in texts. None of this blocks.
 *
 * Linux's rdma/ headers include netdevice.h and those here do not, so this one does.
 */
#ifndef ANYVERBS_LINUX_INET_H
#define ANYVERBS_LINUX_INET_H

#include <arpa/inet.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/netdevice.h>
#include <linux/types.h>
#include <sys/socket.h>

/* 1, and the address in network order at `to`; 0: it is none. `length` -1: up to the 0. `delimiter`
 * -1: the text ends with the address, else with that character; *end, if not NULL, is where. */
int in4_pton(const char *from, int length, u8 *to, int delimiter, const char **end);
int in6_pton(const char *from, int length, u8 *to, int delimiter, const char **end);

static inline __be32 in_aton(const char *from)
{
	struct in_addr address = { 0 };

	return inet_pton(AF_INET, from, &address) == 1 ? address.s_addr : 0;
}

/* An address of `family`, or, with AF_UNSPEC, of either, and a port or NULL. An IPv6 address may
 * name its interface behind a %. 0, or -EINVAL. */
int inet_pton_with_scope(struct net *net, sa_family_t family, const char *from, const char *port,
			 struct sockaddr_storage *to);

#endif
