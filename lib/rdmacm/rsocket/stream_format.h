/* stream_format.h: what stream rsockets say to each other: the private data of their connection,
 * the scatter/gather entries that they write into each other's memory, and the immediate data of
 * their writes. Version 1 of rdma-core's protocol. Pure functions, in stream_format.c.
 *
 * Immediate data, in network order: a type in the top 3 bits, a value in the other 29:
 *
 *   type  meaning                                   value
 *   0     bytes lie behind the last ones            how many
 *   4     credits; with 16 bytes also a buffer      number of the last message allowed, 16 bits
 *   6     an entry of the table of remote mappings  its index
 *   7     control                                   enum stream_control
 */
#ifndef RDMACM_STREAM_FORMAT_H
#define RDMACM_STREAM_FORMAT_H

#include "base/compiler.h"

enum stream_type { STREAM_DATA = 0, STREAM_CREDITS = 4, STREAM_IOMAP = 6, STREAM_CONTROL = 7 };

/* Never sent: the type of a plain write in the id of its work request. */
enum { STREAM_WRITE = 2 };

enum stream_control { STREAM_DISCONNECT, STREAM_KEEPALIVE, STREAM_SHUTDOWN };

enum { STREAM_VALUE_BITS = 29, STREAM_VALUE_MAX = (1 << STREAM_VALUE_BITS) - 1 };

static inline u32 stream_message(u32 type, u32 value)
{
	return type << STREAM_VALUE_BITS | (value & STREAM_VALUE_MAX);
}

static inline u32 stream_type(u32 message)
{
	return message >> STREAM_VALUE_BITS;
}

static inline u32 stream_value(u32 message)
{
	return message & STREAM_VALUE_MAX;
}

/* A piece of the peer's memory, in the order of bytes of the host that reads it (of the private
 * data: in network order). */
struct stream_sge {
	u64 addr;
	u32 key;
	u32 length;
} OWNED_BY(the caller);

/* A remote mapping, likewise. */
struct stream_iomap {
	u64 offset;
	struct stream_sge sge;
} OWNED_BY(the caller);

/* One half of what two rsockets tell each other when they connect. */
struct stream_hello {
	u16 credits;	     /* messages that may be sent before more are allowed */
	u32 iomaps;	     /* remote mappings offered, behind the entries of `table` */
	bool network_order;  /* the sender's own order of bytes is the network's */
	bool has_iomaps;     /* `iomaps` means something */
	struct stream_sge table;  /* `length` entries for buffers */
	struct stream_sge buffer; /* the first one */
} OWNED_BY(the caller);

/* A request between addresses of AF_IB begins with the room of the header that the CM writes into
 * one between IP addresses. A listener of AF_IB sees that header as private data, so it finds the
 * hello of either kind of request at one place. */
enum { STREAM_HELLO_SIZE = 40, STREAM_HEADER_SIZE = 36 };

void stream_hello_pack(const struct stream_hello *hello, u8 out[STREAM_HELLO_SIZE]);
/* 0; -ENOTSUP: another version, or too short; -EPROTO: it makes no sense. */
int stream_hello_unpack(const u8 *data, size_t len, struct stream_hello *out);
/* The private data of a request, and back. `af_ib`: of the end that sends, or listens. */
size_t stream_request_pack(const struct stream_hello *hello, bool af_ib,
			   u8 out[STREAM_HEADER_SIZE + STREAM_HELLO_SIZE]);
int stream_request_unpack(const u8 *data, size_t len, bool af_ib, struct stream_hello *out);
struct stream_sge stream_sge_swap(struct stream_sge sge);
/* The part of a mapping from an offset on: the peer's word, which it may change at any time, is
 * read once and judged. False: the offset lies outside. */
bool stream_iomap_covers(const volatile struct stream_iomap *entry, u64 offset,
			 struct stream_sge *out);

/* Is the host's order of bytes the network's? */
bool stream_host_is_network(void);

#endif
