/* ib_addr.h: from IP addresses to the link: which interface, which MAC, which VLAN, by the host's
 * routes and neighbours.
 *
 * Names and parameters are Linux's. Its struct net_device has no counterpart here: an interface is
 * its index (bound_dev_if). MAX_ADDR_LEN is IB_ADDR_LEN: libc's net/if_arp.h has another one.
 * Context: a call may block where it says so; any number of threads. Results: 0 or a negative
 * errno.
 */
#ifndef IB_ADDR_H
#define IB_ADDR_H

#include <errno.h>
#include <netinet/in.h>
#include <rdma/ib_types.h>
#include <string.h>
#include <sys/socket.h>

enum { IB_ADDR_LEN = 32, IB_ADDR_NO_VLAN = 0xffff };

/* A consumer of rdma_resolve_ip. */
struct rdma_addr_client {
	u32 requests; /* the callee's: those that are not over */
};

/* Both ends of a way, as the link layer has them. */
struct rdma_dev_addr {
	unsigned char src_dev_addr[IB_ADDR_LEN];
	unsigned char dst_dev_addr[IB_ADDR_LEN];
	unsigned char broadcast[IB_ADDR_LEN];
	unsigned short dev_type; /* ARPHRD_* */
	int bound_dev_if;	 /* the interface; set by a caller who wants that one, else 0 */
	int hoplimit;		 /* of the route; 0: the host's default */
};

/* Begins and ends a consumer's use. Unregistering waits until no callback of the client's runs or
 * will run, so that it may block; not from a callback. */
AV_EXPORT void rdma_addr_register_client(struct rdma_addr_client *client);
/* As said above. */
AV_EXPORT void rdma_addr_unregister_client(struct rdma_addr_client *client);

/* The interface that has the address: fills src_dev_addr, broadcast, dev_type and bound_dev_if, and
 * the VLAN (IB_ADDR_NO_VLAN: none) where vlan_id is not NULL. With bound_dev_if set the address is
 * not looked at. Asks the kernel, may block. -EADDRNOTAVAIL: none has; -ENODEV: no such interface;
 * -EINVAL: another family. */
AV_EXPORT int rdma_translate_ip(struct sockaddr *addr, struct rdma_dev_addr *dev_addr,
				u16 *vlan_id);

/* Finds the way to dst_addr: routes at once, then the neighbour, for at most timeout_ms.
 * `src_addr`: NULL or a wildcard: what the routes prefer, told to the callback; it and dst_addr are
 * copied. *addr is the caller's and stays valid until the callback has returned or the request is
 * cancelled; bound_dev_if is 0, or the interface to leave by.
 * The callback runs on a thread of the stack's, exactly once unless the request is cancelled:
 * status 0, and *addr is filled; -ETIMEDOUT: the neighbour did not answer; -ENODEV: the interface
 * has gone; *addr is then undefined.
 * An errno of this call (no callback then): -EINVAL: families that differ or are unknown;
 * -ENETUNREACH, -EHOSTUNREACH: no route; -EMFILE; -ENOMEM. Asks the kernel, may block. */
AV_EXPORT int rdma_resolve_ip(struct rdma_addr_client *client, struct sockaddr *src_addr,
			      struct sockaddr *dst_addr, struct rdma_dev_addr *addr,
			      int timeout_ms,
			      void (*callback)(int status, struct sockaddr *src_addr,
					       struct rdma_dev_addr *addr, void *context),
			      void *context);

/* Fills *dev_addr with the interface of that index (Linux: its struct net_device), as
 * rdma_translate_ip does, and with dst_dev_addr, IB_ADDR_LEN bytes of the other end's address;
 * NULL: dst_dev_addr stays. Asks the kernel, may block. 0; -ENODEV: no such interface; -EMFILE; on
 * failure *dev_addr stays. */
AV_EXPORT int rdma_copy_addr(struct rdma_dev_addr *dev_addr, int ifindex,
			     const unsigned char *dst_dev_addr);

/* Takes back the request for *addr, if there is one. No callback for it runs afterwards; waits for
 * one that runs, unless called by it. May block. */
AV_EXPORT void rdma_addr_cancel(struct rdma_dev_addr *addr);

/* Bytes of a socket address of its family; 0: an unknown one. Any context. */
AV_EXPORT int rdma_addr_size(struct sockaddr *addr);

/* The same of an IPv4 or IPv6 address, without a look at other families. Any context. */
static inline int ip_addr_size(struct sockaddr *addr)
{
	return (int)(addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
						 : sizeof(struct sockaddr_in));
}

/* ---- link-layer addresses -------------------------------------------------------------------- */

/* The parts of a way over InfiniBand (dev_type ARPHRD_INFINIBAND), whose interfaces are IPoIB's:
 * their addresses are 4 bytes with a queue pair's number, then a GID; the broadcast group's GID has
 * the P_Key in its bytes 4 and 5. P_Keys are in host order. Any context. */
enum { IB_ADDR_GID = 4, IB_ADDR_PKEY = 8 };

static inline u16 ib_addr_get_pkey(struct rdma_dev_addr *dev_addr)
{
	return (u16)(dev_addr->broadcast[IB_ADDR_PKEY] << 8 |
		     dev_addr->broadcast[IB_ADDR_PKEY + 1]);
}

static inline void ib_addr_set_pkey(struct rdma_dev_addr *dev_addr, u16 pkey)
{
	dev_addr->broadcast[IB_ADDR_PKEY] = (unsigned char)(pkey >> 8);
	dev_addr->broadcast[IB_ADDR_PKEY + 1] = (unsigned char)pkey;
}

static inline void ib_addr_get_mgid(struct rdma_dev_addr *dev_addr, union ib_gid *gid)
{
	memcpy(gid->raw, dev_addr->broadcast + IB_ADDR_GID, 16);
}

static inline void ib_addr_get_sgid(struct rdma_dev_addr *dev_addr, union ib_gid *gid)
{
	memcpy(gid->raw, dev_addr->src_dev_addr + IB_ADDR_GID, 16);
}

static inline void ib_addr_set_sgid(struct rdma_dev_addr *dev_addr, union ib_gid *gid)
{
	memcpy(dev_addr->src_dev_addr + IB_ADDR_GID, gid->raw, 16);
}

static inline void ib_addr_get_dgid(struct rdma_dev_addr *dev_addr, union ib_gid *gid)
{
	memcpy(gid->raw, dev_addr->dst_dev_addr + IB_ADDR_GID, 16);
}

static inline void ib_addr_set_dgid(struct rdma_dev_addr *dev_addr, union ib_gid *gid)
{
	memcpy(dev_addr->dst_dev_addr + IB_ADDR_GID, gid->raw, 16);
}

/* The GIDs of iWARP devices: a MAC, then zeroes. */
static inline void iw_addr_get_sgid(struct rdma_dev_addr *dev_addr, union ib_gid *gid)
{
	memcpy(gid->raw, dev_addr->src_dev_addr, 16);
}

static inline void iw_addr_get_dgid(struct rdma_dev_addr *dev_addr, union ib_gid *gid)
{
	memcpy(gid->raw, dev_addr->dst_dev_addr, 16);
}

/* ---- GIDs ------------------------------------------------------------------------------------ */

/* The GID of an IP address: IPv4 is mapped. -EINVAL: another family. Any context. */
static inline int rdma_ip2gid(const struct sockaddr *addr, union ib_gid *gid)
{
	struct sockaddr_in6 sin6;
	struct sockaddr_in sin;

	if (addr->sa_family == AF_INET) {
		memcpy(&sin, addr, sizeof(sin));
		memset(gid->raw, 0, 16);
		gid->raw[10] = gid->raw[11] = 0xff;
		memcpy(gid->raw + 12, &sin.sin_addr, 4);
	} else if (addr->sa_family == AF_INET6) {
		memcpy(&sin6, addr, sizeof(sin6));
		memcpy(gid->raw, &sin6.sin6_addr, 16);
	} else {
		return -EINVAL;
	}
	return 0;
}

/* The IP address of a GID, port 0; `out` has room for either family. Any context. */
static inline void rdma_gid2ip(struct sockaddr *out, const union ib_gid *gid)
{
	struct sockaddr_in6 sin6;
	struct sockaddr_in sin;
	struct in6_addr in6;

	memcpy(&in6, gid->raw, sizeof(in6));
	if (IN6_IS_ADDR_V4MAPPED(&in6)) {
		memset(&sin, 0, sizeof(sin));
		sin.sin_family = AF_INET;
		memcpy(&sin.sin_addr, gid->raw + 12, 4);
		memcpy(out, &sin, sizeof(sin));
	} else {
		memset(&sin6, 0, sizeof(sin6));
		sin6.sin6_family = AF_INET6;
		sin6.sin6_addr = in6;
		memcpy(out, &sin6, sizeof(sin6));
	}
}

/* Is it a group's address, of either family, as a GID? */
static inline int rdma_is_multicast_addr(const struct in6_addr *addr)
{
	return addr->s6_addr[0] == 0xff ||
	       (IN6_IS_ADDR_V4MAPPED(addr) && addr->s6_addr[12] >> 4 == 0xe);
}

/* The MAC of a group's address: IPv4's in 01:00:5e, IPv6's in 33:33. */
static inline void rdma_get_mcast_mac(const struct in6_addr *addr, u8 *mac)
{
	if (addr->s6_addr[0] != 0xff) {
		mac[0] = 0x01;
		mac[1] = 0x00;
		mac[2] = 0x5e;
		mac[3] = addr->s6_addr[13] & 0x7f;
		mac[4] = addr->s6_addr[14];
		mac[5] = addr->s6_addr[15];
	} else {
		mac[0] = mac[1] = 0x33;
		memcpy(mac + 2, addr->s6_addr + 12, 4);
	}
}

/* The MAC from which a link-local address was made (EUI-64). */
static inline void rdma_get_ll_mac(const struct in6_addr *addr, u8 *mac)
{
	memcpy(mac, addr->s6_addr + 8, 3);
	memcpy(mac + 3, addr->s6_addr + 13, 3);
	mac[0] ^= 2;
}

#endif
