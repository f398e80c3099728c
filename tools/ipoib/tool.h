/* tool.h: the parts of anyverbs-ipoib: one IPoIB interface of one host of a fabric, as a TUN
 * device.
 *
 *   main.c  the command line, becoming a daemon, the two threads
 *    tun.c  the device
 *   link.c  what the kernel is told of it: MTU, addresses, neighbours
 *  watch.c  what the kernel says of it: addresses, groups, routes
 */
#ifndef IPOIB_TOOL_H
#define IPOIB_TOOL_H

#include <net/if.h>

#include "ulp/ipoib/frame.h"
#include "ulp/ipoib/ipoib.h"

enum { TOOL_ADDRESSES = 16 };

struct tool_options {
	const char *host;
	const char *name; /* of the interface */
	const char *netns;
	bool foreground;
	struct ipoib_config ib;
	struct ipoib_prefix address[TOOL_ADDRESSES];
	u32 address_count;
};

/* ---- tun.c ---- */
/* Makes the interface. A descriptor, or a negative errno after a message. */
int tun_open(const struct tool_options *o, u32 *ifindex);
/* Gives the interface a carrier or takes it. */
void tun_carrier(int fd, bool on);

/* ---- link.c ---- */
/* All of them: 0 or a negative errno. */
int link_set_name(u32 ifindex, const struct ipoib_hw *own, const char *host,
		  const struct ipoib_config *ib);
int link_set_mtu(u32 ifindex, u32 mtu);
/* How many packets wait for this process before the kernel drops the next one. */
int link_set_queue(u32 ifindex, u32 packets);
int link_up(u32 ifindex);
int link_no_ipv6_addresses(u32 ifindex);
int link_add_address(u32 ifindex, const struct ipoib_prefix *a);
int link_del_address(u32 ifindex, const struct ipoib_prefix *a);
/* Has the kernel keep that the address is at the GID, for whoever asks it (host_neighbour_find);
 * NULL: has it forget. */
int link_neighbour(u32 ifindex, const u8 ip[16], const u8 *gid);

/* ---- watch.c ---- */
/* A descriptor that is readable when addresses, routes or the link change. */
int watch_open(void);
/* Of the interface. */
struct watch_news {
	bool link_up, gone; /* it has been set up; it has been deleted */
	u32 mtu;	    /* what it has now; 0: that is not told */
} OWNED_BY(the caller);
/* Reads what has come. False: nothing changed. */
bool watch_read(int fd, u32 ifindex, struct watch_news *out);
/* The interface's addresses; returns how many. */
u32 watch_addresses(u32 ifindex, struct ipoib_prefix *out, u32 max);
/* The groups that its sockets listen to; returns how many. */
u32 watch_groups(u32 ifindex, u8 (*out)[16], u32 max);
/* Does a packet that leaves say that they may have changed? IGMP or MLD. */
bool watch_is_report(const u8 *packet, u32 size);

#endif
