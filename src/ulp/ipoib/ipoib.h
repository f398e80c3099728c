/* ipoib.h: IP over InfiniBand in datagram mode (RFC 4391, RFC 4392): an upper layer of the midlayer
 * (ib_*), and of nothing else.
 *
 * An instance is one interface: a port, a partition. Below it are a UD queue pair, the multicast
 * groups of the partition and the subnet administrator. Above it is an IP stack that knows packets
 * and no link layer (a TUN device): the instance itself asks for neighbours and answers them.
 *
 *  client.c   the instance: its device as the midlayer tells of it, its port, the thread of works
 *    ring.c   buffers, the queue pair, completions
 *    wait.c   packets that wait for a neighbour or a group
 *   group.c   multicast groups: joining, sending, leaving
 *   neigh.c   neighbours: who is known, who is asked, aging
 *    path.c   the way to a neighbour: path records, address handles
 *  refuse.c  what the stack above is told when a neighbour does not answer
 *   speak.c   ARP and neighbour discovery: questions, answers, announcements
 *   frame.c   frames as bytes; pure functions
 * address.c   hardware addresses, MGIDs; pure functions
 *
 * IP addresses are 16 bytes: IPv4 as ::ffff:a.b.c.d.
 */
#ifndef ULP_IPOIB_IPOIB_H
#define ULP_IPOIB_IPOIB_H

#include "base/compiler.h"

enum {
	IPOIB_HW = 20,	  /* bytes of a hardware address: flags, QPN, GID */
	IPOIB_HEAD = 4,	  /* of the encapsulation */
	IPOIB_MTU = 4092, /* the greatest */
	IPOIB_PREFIXES = 64,
	IPOIB_GROUPS = 256,
	IPOIB_CALLERS = 4, /* of ipoib_get and ipoib_send */
};

/* A hardware address as on the wire. */
struct ipoib_hw {
	u8 raw[IPOIB_HW];
} OWNED_BY(the caller);

/* An address of the interface, and how many of its 128 bits are the subnet's. */
struct ipoib_prefix {
	u8 ip[16];
	u8 bits;
} OWNED_BY(the caller);

struct ipoib_config {
	char device[64];
	u8 port;
	u16 pkey; /* 0: what the port's first entry has */
} FIXED;

/* The IP stack. */
struct ipoib_ops {
	/* A packet has come. Does not block. */
	void (*receive)(void *arg, const void *packet, u32 size);
	/* The interface has a link, or none. `own`, `mtu`: with a link. May block. */
	void (*link)(void *arg, bool up, const struct ipoib_hw *own, u32 mtu);
	/* A neighbour's hardware address is this, or (NULL) is not known any more. May block. */
	void (*neighbour)(void *arg, const u8 ip[16], const struct ipoib_hw *hw);
	/* The neighbour by which packets to the address leave. 0 or a negative errno. May block. */
	int (*next_hop)(void *arg, const u8 to[16], u8 next[16]);
	/* The device is gone for good, and the link with it. Does not block. */
	void (*gone)(void *arg);
} FIXED;

/* Why packets are dropped. */
enum ipoib_drop {
	IPOIB_DROP_FORM,      /* received: no frame of IPoIB, or ARP or ND that breaks a rule */
	IPOIB_DROP_STATUS,    /* a completion with an error */
	IPOIB_DROP_LINK,      /* to send: there is no link */
	IPOIB_DROP_SIZE,      /* to send: longer than the MTU */
	IPOIB_DROP_ADDRESS,   /* to send: no IP packet, or no route */
	IPOIB_DROP_NEIGHBOUR, /* to send: the neighbour does not answer */
	IPOIB_DROP_GROUP,     /* to send: nobody is in the group */
	IPOIB_DROP_ROOM,      /* to send: too many wait */
	IPOIB_DROPS
};

struct ipoib_counters {
	u64 received, sent;
	u64 dropped[IPOIB_DROPS];
} OWNED_BY(the caller);

struct ipoib;

/* A packet to send. */
struct ipoib_buffer {
	struct list_head node;
	struct list_head all;	  /* of all that wait */
	struct ipoib_wait *waits; /* where; NULL: nowhere */
	u8 frame[IPOIB_HEAD + IPOIB_MTU];
	u32 size; /* of the frame */
} OWNED_BY(ipoib.lock or, between ipoib_get and ipoib_send, the caller);

static inline u8 *ipoib_packet(struct ipoib_buffer *b)
{
	return b->frame + IPOIB_HEAD;
}

/* Begins: the device's port is used when it is there and active. NULL and -errno in *err: -ENODEV:
 * no such device or port; -ENOMEM. The ops' functions run on threads of this room and of the
 * midlayer until ipoib_close returns. May block. */
struct ipoib *ipoib_open(const struct ipoib_config *config, const struct ipoib_ops *ops, void *arg,
			 int *err);
/* Leaves all groups. Afterwards packets to send are dropped; the memory stays. May block. */
void ipoib_close(struct ipoib *ip);

/* A buffer to fill. Waits while the device has as many as it takes; not for neighbours. At most
 * IPOIB_CALLERS threads at once. */
struct ipoib_buffer *ipoib_get(struct ipoib *ip);
/* Sends the IP packet of `size` bytes in the buffer, or drops it; the buffer is given back.
 * May block: next_hop. */
void ipoib_send(struct ipoib *ip, struct ipoib_buffer *b, u32 size);

/* The interface's addresses and the multicast addresses that its stack listens to: all of them, as
 * they are now. What exceeds the limits is ignored. Any context. */
void ipoib_set_addresses(struct ipoib *ip, const struct ipoib_prefix *prefix, u32 count);
void ipoib_set_groups(struct ipoib *ip, const u8 (*group)[16], u32 count);
/* Routes have changed: next hops are asked for anew. */
void ipoib_routes_changed(struct ipoib *ip);
/* The stack has forgotten neighbours: all that are known are told again. */
void ipoib_tell_again(struct ipoib *ip);

void ipoib_count(struct ipoib *ip, struct ipoib_counters *out);
const char *ipoib_drop_name(enum ipoib_drop why);

#endif
