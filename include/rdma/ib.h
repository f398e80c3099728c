/* ib.h: InfiniBand addresses as socket addresses (AF_IB): a GID and a service ID in the place of an
 * IP address and a port. The layout is Linux's. */
#ifndef RDMA_IB_H
#define RDMA_IB_H

#include <endian.h>
#include <rdma/ib_types.h>

#ifndef AF_IB
#define AF_IB 27
#endif

/* All in network order. */
struct sockaddr_ib {
	unsigned short sib_family; /* AF_IB, in host order */
	__be16 sib_pkey;
	__be32 sib_flowinfo;
	union ib_gid sib_addr; /* all zeroes or ::1: any */
	__be64 sib_sid;	       /* service ID: the port space, and 16 bits of port */
	__be64 sib_sid_mask;   /* which bits of sib_sid are known; others the CM chooses */
	u64 sib_scope_id;
};

/* The parts of a service ID, in host order. */
#define RDMA_IB_IP_PS_MASK 0xffffffffffff0000ull
#define RDMA_IB_IP_PORT_MASK 0x000000000000ffffull
#define RDMA_IB_IP_PS_TCP 0x0000000001060000ull
#define RDMA_IB_IP_PS_UDP 0x0000000001110000ull
#define RDMA_IB_IP_PS_IB 0x00000000013f0000ull

#endif
