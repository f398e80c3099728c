/* netlink.h: one question to the kernel by rtnetlink, and its answers; what it announces. */
#ifndef HOST_NETLINK_H
#define HOST_NETLINK_H

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>

#include "base/compiler.h"

struct netlink_request {
	struct nlmsghdr head;
	union {
		struct rtmsg route;
		struct ndmsg neighbour;
		struct ifinfomsg link;
		struct ifaddrmsg address;
		char attributes[128]; /* behind the body of the type */
	};
} OWNED_BY(the caller);

static inline bool netlink_gid_is_v4(const u8 gid[16])
{
	static const u8 mapped[12] = { [10] = 0xff, [11] = 0xff };

	return __builtin_memcmp(gid, mapped, sizeof(mapped)) == 0;
}

/* Begins a question of RTM_* `type`, whose body of `size` bytes is zero. */
void netlink_begin(struct netlink_request *q, u16 type, size_t size);
/* Adds an attribute of at most 16 bytes. */
void netlink_add(struct netlink_request *q, u16 type, const void *data, size_t size);
/* Adds an address of the family that the GID says. */
void netlink_add_gid(struct netlink_request *q, u16 type, const u8 gid[16]);

/* An attribute that holds an address of IPv4 or IPv6, as a GID. False: another size. */
bool netlink_take_gid(const struct rtattr *a, u8 gid[16]);

/* Asks, and calls `take` for each message of `type` that answers; of a dump (NLM_F_DUMP in the
 * head's flags) for all of them. 0; the errno with which the kernel refuses; -EMFILE or another of
 * socket(); -EAGAIN: no answer in two seconds; -EINTR: what a dump reads has changed meanwhile;
 * -EPROTO. Blocks as long as the kernel looks. */
int netlink_ask(struct netlink_request *q, u16 type,
		void (*take)(const struct nlmsghdr *m, void *context), void *context);

/* Opens a descriptor, closed on exec, that never blocks: it gets what the kernel announces to the
 * groups (RTMGRP_*). Or a negative errno. */
int netlink_watch(u32 groups);

#endif
