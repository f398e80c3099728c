/* header.c: the RDMA CM's header in front of the private data of REQ and SIDR_REQ, and the service
 * ID of a port.
 * In: addresses, bytes of a peer    Out: bytes, addresses    Runs: any thread; pure functions
 * Spec: IBA annex A11 (RDMA IP CM service)
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "cm/rdma/cma_priv.h"

/* Where the fields lie. The version of the protocol is 0; that of IP is the high half of its byte.
 * An IPv4 address is the last 4 of its 16 bytes. */
enum { AT_VERSION = 0, AT_IP_VERSION = 1, AT_PORT = 2, AT_SRC = 4, AT_DST = 20, AT_V4 = 12 };

static void cma_header_put(u8 *out, const struct sockaddr *addr)
{
	union ib_gid gid;

	cma_addr_gid(addr, &gid);
	memset(out, 0, 16);
	if (addr->sa_family == AF_INET)
		memcpy(out + AT_V4, gid.raw + AT_V4, 4);
	else
		memcpy(out, gid.raw, 16);
}

static u8 cma_header_ip_version(const struct sockaddr *addr)
{
	return (u8)((addr->sa_family == AF_INET ? 4 : 6) << 4);
}

void cma_header_write(u8 out[CMA_HEADER], const struct rdma_addr *addr)
{
	__be16 port = htons(cma_addr_port(cma_addr(&addr->src_addr)));

	out[AT_VERSION] = 0;
	out[AT_IP_VERSION] = cma_header_ip_version(cma_addr(&addr->src_addr));
	memcpy(out + AT_PORT, &port, sizeof(port));
	cma_header_put(out + AT_SRC, cma_addr(&addr->src_addr));
	cma_header_put(out + AT_DST, cma_addr(&addr->dst_addr));
}

static void cma_header_get(const u8 *in, bool v4, u16 port, struct sockaddr_storage *out)
{
	struct sockaddr_in6 sin6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in sin = { .sin_family = AF_INET };

	memset(out, 0, sizeof(*out));
	if (v4) {
		memcpy(&sin.sin_addr, in + AT_V4, 4);
		memcpy(out, &sin, sizeof(sin));
	} else {
		memcpy(&sin6.sin6_addr, in, 16);
		memcpy(out, &sin6, sizeof(sin6));
	}
	cma_addr_set_port(out, port);
}

int cma_header_read(const void *data, u32 size, u16 port, struct rdma_addr *out)
{
	const u8 *in = data;
	__be16 peer;
	u8 version;

	if (in == NULL || size < CMA_HEADER || in[AT_VERSION] != 0)
		return -EINVAL;
	version = in[AT_IP_VERSION] >> 4;
	if (version != 4 && version != 6)
		return -EINVAL;
	memcpy(&peer, in + AT_PORT, sizeof(peer));
	cma_header_get(in + AT_SRC, version == 4, ntohs(peer), &out->dst_addr);
	cma_header_get(in + AT_DST, version == 4, port, &out->src_addr);
	return 0;
}

__be64 cma_service_id(enum rdma_port_space ps, u16 port)
{
	return htobe64((u64)ps << 16 | port);
}

__be64 rdma_get_service_id(const struct rdma_cm_id *id, const struct sockaddr *addr)
{
	struct sockaddr_ib sib;

	if (addr->sa_family != AF_IB)
		return cma_service_id(id->ps, cma_addr_port(addr));
	memcpy(&sib, addr, sizeof(sib));
	return sib.sib_sid;
}

void cma_header_compare(const struct sockaddr *addr, struct ib_cm_compare_data *out)
{
	memset(out, 0, sizeof(*out));
	out->data[AT_IP_VERSION] = cma_header_ip_version(addr);
	out->mask[AT_IP_VERSION] = 0xf0;
	if (cma_addr_is_any(addr))
		return;
	cma_header_put(out->data + AT_DST, addr);
	if (addr->sa_family == AF_INET)
		memset(out->mask + AT_DST + AT_V4, 0xff, 4);
	else
		memset(out->mask + AT_DST, 0xff, 16);
}
