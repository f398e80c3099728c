/* address.c: socket addresses as GIDs and ports.
 * In: addresses of AF_INET, AF_INET6, AF_IB    Out: the same in another form
 * Runs: any thread                             Locks: none
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "addr/addr.h"
#include "cm/rdma/cma_priv.h"
#include "node/hostip.h"

/* A copy, for a consumer's address may lie anywhere. */
static struct sockaddr_in cma_addr_v4(const struct sockaddr *addr)
{
	struct sockaddr_in sin;

	memcpy(&sin, addr, sizeof(sin));
	return sin;
}

static struct sockaddr_in6 cma_addr_v6(const struct sockaddr *addr)
{
	struct sockaddr_in6 sin6;

	memcpy(&sin6, addr, sizeof(sin6));
	return sin6;
}

bool cma_family_is_known(const struct sockaddr *addr)
{
	return addr->sa_family == AF_INET || addr->sa_family == AF_INET6 ||
	       addr->sa_family == AF_IB;
}

static struct sockaddr_ib cma_addr_ib(const struct sockaddr *addr)
{
	struct sockaddr_ib sib;

	memcpy(&sib, addr, sizeof(sib));
	return sib;
}

static bool cma_addr_is_ib_loopback(const struct sockaddr *addr)
{
	static const union ib_gid one = { .raw = { [15] = 1 } };
	struct sockaddr_ib sib = cma_addr_ib(addr);

	return memcmp(&sib.sib_addr, &one, sizeof(one)) == 0;
}

/* Of the wildcard, and of ::1 as well, which is no port's. */
static bool cma_addr_is_ib_any(const struct sockaddr *addr)
{
	static const union ib_gid none;
	struct sockaddr_ib sib = cma_addr_ib(addr);

	return memcmp(&sib.sib_addr, &none, sizeof(none)) == 0 || cma_addr_is_ib_loopback(addr);
}

bool cma_addr_is_any(const struct sockaddr *addr)
{
	struct sockaddr_in6 sin6;

	if (addr->sa_family == AF_INET)
		return cma_addr_v4(addr).sin_addr.s_addr == htonl(INADDR_ANY);
	if (addr->sa_family == AF_IB)
		return cma_addr_is_ib_any(addr);
	if (addr->sa_family != AF_INET6)
		return true;
	sin6 = cma_addr_v6(addr);
	return IN6_IS_ADDR_UNSPECIFIED(&sin6.sin6_addr);
}

bool cma_addr_lacks_scope(const struct sockaddr *addr)
{
	struct sockaddr_in6 sin6;

	if (addr->sa_family != AF_INET6)
		return false;
	sin6 = cma_addr_v6(addr);
	return IN6_IS_ADDR_LINKLOCAL(&sin6.sin6_addr) && sin6.sin6_scope_id == 0;
}

void cma_addr_set_scope(struct sockaddr_storage *addr, u32 ifindex)
{
	struct sockaddr_in6 sin6;

	if (!cma_addr_lacks_scope(cma_addr(addr)))
		return;
	sin6 = cma_addr_v6(cma_addr(addr));
	sin6.sin6_scope_id = ifindex;
	memcpy(addr, &sin6, sizeof(sin6));
}

bool cma_addr_is_loopback(const struct sockaddr *addr)
{
	struct sockaddr_in6 sin6;

	if (addr->sa_family == AF_INET)
		return ntohl(cma_addr_v4(addr).sin_addr.s_addr) >> 24 == 127;
	if (addr->sa_family == AF_IB)
		return cma_addr_is_ib_loopback(addr);
	if (addr->sa_family != AF_INET6)
		return false;
	sin6 = cma_addr_v6(addr);
	return IN6_IS_ADDR_LOOPBACK(&sin6.sin6_addr);
}

static size_t cma_addr_size(const struct sockaddr *addr)
{
	if (addr->sa_family == AF_INET)
		return sizeof(struct sockaddr_in);
	return addr->sa_family == AF_IB ? sizeof(struct sockaddr_ib) : sizeof(struct sockaddr_in6);
}

void cma_addr_copy(struct sockaddr_storage *out, const struct sockaddr *addr)
{
	memset(out, 0, sizeof(*out));
	memcpy(out, addr, cma_addr_size(addr));
}

bool cma_gid_is_v4(const union ib_gid *gid)
{
	static const u8 mapped[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(gid->raw, mapped, sizeof(mapped)) == 0;
}

void cma_addr_from_gid(struct sockaddr_storage *out, const union ib_gid *gid)
{
	memset(out, 0, sizeof(*out));
	rdma_gid2ip((struct sockaddr *)out, gid);
}

void cma_addr_gid(const struct sockaddr *addr, union ib_gid *out)
{
	memset(out, 0, sizeof(*out));
	if (addr->sa_family == AF_IB)
		*out = cma_addr_ib(addr).sib_addr;
	else
		(void)rdma_ip2gid(addr, out);
}

int cma_addr_port_gid(const struct sockaddr *addr, union ib_gid *out)
{
	struct node_hostip host;
	union ib_gid gid;
	int err;

	cma_addr_gid(addr, &gid);
	err = node_hostip_find(gid.raw, &host);
	if (err == 0 && host.own)
		memcpy(gid.raw, host.gid, sizeof(gid.raw));
	else if (err == 0 || err == -EHOSTUNREACH)
		return -EADDRNOTAVAIL;
	else if (err == -EADDRNOTAVAIL && addr->sa_family != AF_IB) /* a process on a host */
		(void)cma_ipoib_port_gid(gid.raw, addr_scope(addr), &gid);
	*out = gid;
	return 0;
}

void cma_addr_of_port(struct sockaddr_storage *out, const union ib_gid *gid)
{
	union ib_gid ip = *gid;

	(void)node_hostip_of(gid->raw, ip.raw);
	cma_addr_from_gid(out, &ip);
}

u16 cma_addr_port(const struct sockaddr *addr)
{
	if (addr->sa_family == AF_IB)
		return (u16)be64toh(cma_addr_ib(addr).sib_sid & cma_addr_ib(addr).sib_sid_mask);
	if (addr->sa_family == AF_INET)
		return ntohs(cma_addr_v4(addr).sin_port);
	return addr->sa_family == AF_INET6 ? ntohs(cma_addr_v6(addr).sin6_port) : 0;
}

/* Both families have it in the same place. */
_Static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port),
	       "the port of either family");

void cma_addr_set_port(struct sockaddr_storage *addr, u16 port)
{
	__be16 wire = htons(port);
	struct sockaddr_ib sib;

	if (addr->ss_family == AF_IB) {
		sib = cma_addr_ib(cma_addr(addr));
		sib.sib_sid = (sib.sib_sid & sib.sib_sid_mask) | htobe64(port);
		sib.sib_sid_mask = htobe64(UINT64_MAX);
		memcpy(addr, &sib, sizeof(sib));
		return;
	}
	memcpy((char *)addr + offsetof(struct sockaddr_in, sin_port), &wire, sizeof(wire));
}
