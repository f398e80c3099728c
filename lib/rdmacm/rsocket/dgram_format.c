/* dgram_format.c: addresses, headers of UD messages, messages of the UDP sockets.
 * In:    bytes, structures      Out: the other      Runs: any thread      Locks: none
 */
#include <errno.h>
#include <string.h>

#include "dgram_format.h"

enum { HELLO_TAG = 0x55555555, QPN_MASK = 0xffffff };
enum { HEADER_BYTES_V4 = 8, HEADER_BYTES_V6 = 24, HELLO_BYTES_V4 = 16, HELLO_BYTES_V6 = 28 };
/* Where the fields of a message of the UDP sockets stand. */
enum { HELLO_VERSION = 4, HELLO_OP = 5, HELLO_LENGTH = 6, HELLO_QPN = 8, HELLO_ADDR = 12 };
/* The same of a header. */
enum {
	HEADER_LENGTH = 1,
	HEADER_PORT = 2,
	HEADER_ADDR_V4 = 4,
	HEADER_FLOW = 4,
	HEADER_ADDR_V6 = 8
};
/* The same of the 40 bytes before a UD message. */
enum { GRH_SGID = 8, GRH_IPV4 = 20, GRH_IPV4_SOURCE = GRH_IPV4 + 12 };

static const u8 mapped_prefix[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

/* ---- addresses ------------------------------------------------------------------------------- */

socklen_t dgram_addr_size(const union dgram_addr *a)
{
	if (a->sa.sa_family == AF_INET)
		return sizeof(a->in);
	return a->sa.sa_family == AF_INET6 ? sizeof(a->in6) : 0;
}

bool dgram_addr_take(union dgram_addr *out, const struct sockaddr *addr, socklen_t bytes)
{
	union dgram_addr copy;
	socklen_t size;

	if (addr == NULL || bytes < sizeof(addr->sa_family))
		return false;
	memset(&copy, 0, sizeof(copy));
	memcpy(&copy, addr, MIN(bytes, (socklen_t)sizeof(copy)));
	size = dgram_addr_size(&copy);
	if (size == 0 || bytes < size)
		return false;
	if (copy.sa.sa_family == AF_INET)
		memset(copy.in.sin_zero, 0, sizeof(copy.in.sin_zero));
	*out = copy;
	return true;
}

bool dgram_addr_equal(const union dgram_addr *a, const union dgram_addr *b)
{
	if (a->sa.sa_family != b->sa.sa_family)
		return false;
	if (a->sa.sa_family == AF_INET)
		return a->in.sin_port == b->in.sin_port &&
		       a->in.sin_addr.s_addr == b->in.sin_addr.s_addr;
	return a->in6.sin6_port == b->in6.sin6_port &&
	       a->in6.sin6_scope_id == b->in6.sin6_scope_id &&
	       memcmp(&a->in6.sin6_addr, &b->in6.sin6_addr, sizeof(a->in6.sin6_addr)) == 0;
}

union dgram_addr dgram_addr_unmapped(const union dgram_addr *a)
{
	union dgram_addr out = *a;

	if (a->sa.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr))
		return out;
	memset(&out, 0, sizeof(out));
	out.in.sin_family = AF_INET;
	out.in.sin_port = a->in6.sin6_port;
	memcpy(&out.in.sin_addr, &a->in6.sin6_addr.s6_addr[12], sizeof(out.in.sin_addr));
	return out;
}

bool dgram_addr_is_loopback(const union dgram_addr *a)
{
	union dgram_addr plain = dgram_addr_unmapped(a);

	if (plain.sa.sa_family == AF_INET)
		return ntohl(plain.in.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return IN6_IS_ADDR_LOOPBACK(&plain.in6.sin6_addr);
}

bool dgram_addr_same_end(const union dgram_addr *a, const union dgram_addr *b)
{
	u8 left[16], right[16];

	dgram_addr_gid(a, left);
	dgram_addr_gid(b, right);
	return a->in.sin_port == b->in.sin_port && /* both families have it there */
	       memcmp(left, right, sizeof(left)) == 0;
}

void dgram_addr_gid(const union dgram_addr *a, u8 gid[16])
{
	if (a->sa.sa_family == AF_INET6) {
		memcpy(gid, &a->in6.sin6_addr, 16);
		return;
	}
	memcpy(gid, mapped_prefix, sizeof(mapped_prefix));
	memcpy(gid + sizeof(mapped_prefix), &a->in.sin_addr, 4);
}

bool dgram_sender_gid(const u8 *in, u8 gid[16])
{
	if (in[0] >> 4 == 6) {
		memcpy(gid, in + GRH_SGID, 16);
		return true;
	}
	if (in[GRH_IPV4] != 0x45)
		return false;
	memcpy(gid, mapped_prefix, sizeof(mapped_prefix));
	memcpy(gid + sizeof(mapped_prefix), in + GRH_IPV4_SOURCE, 4);
	return true;
}

union dgram_addr dgram_addr_from_gid(const u8 gid[16])
{
	union dgram_addr out;

	memset(&out, 0, sizeof(out));
	out.in6.sin6_family = AF_INET6;
	memcpy(&out.in6.sin6_addr, gid, sizeof(out.in6.sin6_addr));
	return dgram_addr_unmapped(&out);
}

/* ---- headers of UD messages ------------------------------------------------------------------ */

u32 dgram_header_bytes(bool v6)
{
	return v6 ? HEADER_BYTES_V6 : HEADER_BYTES_V4;
}

u32 dgram_header_pack(const union dgram_addr *from, u8 out[DGRAM_HEADER_BYTES])
{
	bool v6 = from->sa.sa_family == AF_INET6;

	out[0] = v6 ? 6 : 4;
	out[HEADER_LENGTH] = (u8)dgram_header_bytes(v6);
	if (v6) {
		memcpy(out + HEADER_PORT, &from->in6.sin6_port, 2);
		memcpy(out + HEADER_FLOW, &from->in6.sin6_flowinfo, 4);
		memcpy(out + HEADER_ADDR_V6, &from->in6.sin6_addr, 16);
	} else {
		memcpy(out + HEADER_PORT, &from->in.sin_port, 2);
		memcpy(out + HEADER_ADDR_V4, &from->in.sin_addr, 4);
	}
	return dgram_header_bytes(v6);
}

int dgram_header_unpack(const u8 *in, size_t bytes, union dgram_addr *from)
{
	bool v6 = bytes > 0 && in[0] == 6;

	if (bytes < dgram_header_bytes(v6) || (in[0] != 4 && in[0] != 6) ||
	    in[HEADER_LENGTH] != dgram_header_bytes(v6))
		return -EBADMSG;
	memset(from, 0, sizeof(*from));
	if (v6) {
		from->in6.sin6_family = AF_INET6;
		memcpy(&from->in6.sin6_port, in + HEADER_PORT, 2);
		memcpy(&from->in6.sin6_flowinfo, in + HEADER_FLOW, 4);
		memcpy(&from->in6.sin6_addr, in + HEADER_ADDR_V6, 16);
	} else {
		from->in.sin_family = AF_INET;
		memcpy(&from->in.sin_port, in + HEADER_PORT, 2);
		memcpy(&from->in.sin_addr, in + HEADER_ADDR_V4, 4);
	}
	return in[HEADER_LENGTH];
}

/* ---- messages of the UDP sockets ------------------------------------------------------------- */

static void put_be32(u8 *out, u32 number)
{
	for (int i = 0; i < 4; i++)
		out[i] = (u8)(number >> (24 - 8 * i));
}

static u32 get_be32(const u8 *in)
{
	return (u32)in[0] << 24 | (u32)in[1] << 16 | (u32)in[2] << 8 | in[3];
}

u32 dgram_hello_bytes(bool v6)
{
	return v6 ? HELLO_BYTES_V6 : HELLO_BYTES_V4;
}

u32 dgram_hello_pack(const struct dgram_hello *hello, u8 out[DGRAM_HELLO_BYTES])
{
	memset(out, 0, DGRAM_HELLO_BYTES);
	put_be32(out, HELLO_TAG);
	out[HELLO_VERSION] = hello->v6 ? 6 : 4;
	out[HELLO_OP] = (u8)hello->op;
	out[HELLO_LENGTH] = (u8)dgram_hello_bytes(hello->v6);
	put_be32(out + HELLO_QPN, hello->qpn & QPN_MASK);
	if (hello->v6)
		memcpy(out + HELLO_ADDR, hello->gid, sizeof(hello->gid));
	else if (memcmp(hello->gid, mapped_prefix, sizeof(mapped_prefix)) == 0)
		memcpy(out + HELLO_ADDR, hello->gid + sizeof(mapped_prefix), 4);
	return dgram_hello_bytes(hello->v6);
}

static void hello_take_gid(const u8 *in, struct dgram_hello *out)
{
	static const u8 none[4];

	if (out->v6) {
		memcpy(out->gid, in, sizeof(out->gid));
	} else if (memcmp(in, none, sizeof(none)) != 0) {
		memcpy(out->gid, mapped_prefix, sizeof(mapped_prefix));
		memcpy(out->gid + sizeof(mapped_prefix), in, 4);
	}
}

int dgram_hello_unpack(const u8 *in, size_t bytes, int family, struct dgram_hello *out)
{
	bool v6 = family == AF_INET6;

	if (bytes < dgram_hello_bytes(v6) || get_be32(in) != HELLO_TAG ||
	    in[HELLO_VERSION] != (v6 ? 6 : 4) || in[HELLO_LENGTH] != dgram_hello_bytes(v6) ||
	    (in[HELLO_OP] != DGRAM_DATA && in[HELLO_OP] != DGRAM_CTRL))
		return -EBADMSG;
	*out = (struct dgram_hello){
		.op = (enum dgram_op)in[HELLO_OP],
		.qpn = get_be32(in + HELLO_QPN) & QPN_MASK,
		.v6 = v6,
	};
	hello_take_gid(in + HELLO_ADDR, out);
	return (int)dgram_hello_bytes(v6);
}
