/* dgram_format.h: the bytes of datagram rsockets, as rdma-core's librdmacm lays them out: pure
 * functions.
 *
 * Two rsockets learn each other's queue pair by messages between their UDP sockets, and the first
 * datagrams travel in them. After that each datagram is a UD message with a header in front that
 * names the sender's address. Both begin with the version of IP and the header's length:
 *
 *           message of the UDP sockets            header of a UD message
 *   IPv4    tag version op length - qpn addr      version length port addr
 *           4   1       1  1      1 4   4  = 16   1       1      2    4          = 8
 *   IPv6    the same, addr 16              = 28   1       1      2    4 flow, 16 = 24
 *
 * Numbers are big-endian.
 */
#ifndef RSOCKET_DGRAM_FORMAT_H
#define RSOCKET_DGRAM_FORMAT_H

#include <netinet/in.h>

#include "base/compiler.h"

/* The largest of each, and of a datagram with either: the original's receive buffers. */
enum { DGRAM_HEADER_BYTES = 24, DGRAM_HELLO_BYTES = 28, DGRAM_BYTES = 2048 };
/* What a message of the UDP sockets is for: with a datagram behind it, which asks for an answer; or
 * the answer. */
enum dgram_op { DGRAM_DATA = 0, DGRAM_CTRL = 7 };

union dgram_addr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

struct dgram_hello {
	enum dgram_op op;
	u32 qpn;    /* the sender's */
	bool v6;    /* the form, which is that of the sender's socket */
	u8 gid[16]; /* the sender's; zeroes: it says none */
} OWNED_BY(the caller);

/* The same address and port; flow labels do not count, scopes of link-local addresses do. */
bool dgram_addr_equal(const union dgram_addr *a, const union dgram_addr *b);
/* Copies an address of the application. false: neither IPv4 nor IPv6, or too short. */
bool dgram_addr_take(union dgram_addr *out, const struct sockaddr *addr, socklen_t bytes);
/* The size of the structure: 0 if it is neither. */
socklen_t dgram_addr_size(const union dgram_addr *a);
/* The address as RDMA knows it: an IPv6 address that stands for an IPv4 one becomes it. */
union dgram_addr dgram_addr_unmapped(const union dgram_addr *a);
/* Whether only this host sends from it. */
bool dgram_addr_is_loopback(const union dgram_addr *a);
/* Whether address and port are the same; headers know no scope of a link-local one. */
bool dgram_addr_same_end(const union dgram_addr *a, const union dgram_addr *b);
/* The GID of an address. */
void dgram_addr_gid(const union dgram_addr *a, u8 gid[16]);
/* The GID that the 40 bytes before a datagram's data say it comes from: a GRH, or, of RoCE v2 over
 * IPv4, the IP header in the last 20. False: neither. */
bool dgram_sender_gid(const u8 *in, u8 gid[16]);
/* The address that is such a GID, port 0. */
union dgram_addr dgram_addr_from_gid(const u8 gid[16]);

/* Both forms' sizes. */
u32 dgram_header_bytes(bool v6);
u32 dgram_hello_bytes(bool v6);

/* Writes the header of UD messages that come from `from`; returns its size. */
u32 dgram_header_pack(const union dgram_addr *from, u8 out[DGRAM_HEADER_BYTES]);
/* Reads a UD message of `bytes` bytes. Returns the size of its header, or -EBADMSG. */
int dgram_header_unpack(const u8 *in, size_t bytes, union dgram_addr *from);

/* Writes a message of the UDP sockets. The form for IPv4 has room for the GID of an IPv4 address
 * only. Returns its size. */
u32 dgram_hello_pack(const struct dgram_hello *hello, u8 out[DGRAM_HELLO_BYTES]);
/* Reads one that a socket of family `family` has sent: the size of what is before the datagram, or
 * -EBADMSG. */
int dgram_hello_unpack(const u8 *in, size_t bytes, int family, struct dgram_hello *out);

#endif
