/* stream_format.c: bytes of the stream protocol. Pure functions.
 * In:    private data of a connection      Out: its fields, and back
 * Runs:  any thread                        Locks: none
 */
#include "stream_format.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "rsocket.h"

enum { HELLO_VERSION = 1, HELLO_NETWORK_ORDER = 1 << 0, HELLO_IOMAPS = 1 << 1 };

/* The layout, integers in network order. */
struct hello_wire {
	u8 version;
	u8 flags;
	u16 credits;
	u8 reserved[3];
	u8 iomaps; /* scaled */
	struct stream_sge table;
	struct stream_sge buffer;
} OWNED_BY(the caller);
_Static_assert(sizeof(struct hello_wire) == STREAM_HELLO_SIZE, "the private data's layout");

bool stream_host_is_network(void)
{
	return htobe16(1) == 1;
}

/* Up to 128 as it is; more in steps of 256, with the top bit set. */
static u8 iomaps_scale(u32 count)
{
	return count <= 128 ? (u8)count : (u8)(0x80 | count >> 8);
}

static u32 iomaps_unscale(u8 value)
{
	return value <= 128 ? value : (u32)(value & 0x7f) << 8;
}

u32 iomaps_round(u32 count)
{
	return iomaps_unscale(iomaps_scale(MIN(count, 127u << 8)));
}

static struct stream_sge sge_network(struct stream_sge sge)
{
	return (struct stream_sge){ .addr = htobe64(sge.addr),
				    .key = htobe32(sge.key),
				    .length = htobe32(sge.length) };
}

struct stream_sge stream_sge_swap(struct stream_sge sge)
{
	return (struct stream_sge){ .addr = __builtin_bswap64(sge.addr),
				    .key = __builtin_bswap32(sge.key),
				    .length = __builtin_bswap32(sge.length) };
}

void stream_hello_pack(const struct stream_hello *hello, u8 out[STREAM_HELLO_SIZE])
{
	struct hello_wire wire = {
		.version = HELLO_VERSION,
		.flags = (hello->network_order ? HELLO_NETWORK_ORDER : 0) |
			 (hello->has_iomaps ? HELLO_IOMAPS : 0),
		.credits = htobe16(hello->credits),
		.iomaps = iomaps_scale(hello->iomaps),
		.table = sge_network(hello->table),
		.buffer = sge_network(hello->buffer),
	};

	memcpy(out, &wire, sizeof(wire));
}

int stream_hello_unpack(const u8 *data, size_t len, struct stream_hello *out)
{
	struct hello_wire wire;

	if (data == NULL || len < sizeof(wire) || data[0] != HELLO_VERSION)
		return -ENOTSUP;
	memcpy(&wire, data, sizeof(wire));
	*out = (struct stream_hello){
		.credits = be16toh(wire.credits),
		.network_order = wire.flags & HELLO_NETWORK_ORDER,
		.has_iomaps = wire.flags & HELLO_IOMAPS,
		.iomaps = iomaps_unscale(wire.iomaps),
		.table = sge_network(wire.table),
		.buffer = sge_network(wire.buffer),
	};
	if (!out->has_iomaps)
		out->iomaps = 0;
	return out->table.length == 0 || out->buffer.length == 0 ? -EPROTO : 0;
}

size_t stream_request_pack(const struct stream_hello *hello, bool af_ib,
			   u8 out[STREAM_HEADER_SIZE + STREAM_HELLO_SIZE])
{
	size_t header = af_ib ? STREAM_HEADER_SIZE : 0;

	memset(out, 0, header);
	stream_hello_pack(hello, out + header);
	return header + STREAM_HELLO_SIZE;
}

int stream_request_unpack(const u8 *data, size_t len, bool af_ib, struct stream_hello *out)
{
	size_t header = af_ib ? STREAM_HEADER_SIZE : 0;

	if (data == NULL || len < header)
		return -ENOTSUP;
	return stream_hello_unpack(data + header, len - header, out);
}

bool stream_iomap_covers(const volatile struct stream_iomap *entry, u64 offset,
			 struct stream_sge *out)
{
	u64 begin = entry->offset, into = offset - begin;
	struct stream_sge sge = { .addr = entry->sge.addr,
				  .key = entry->sge.key,
				  .length = entry->sge.length };

	if (offset < begin || into >= sge.length)
		return false;
	*out = (struct stream_sge){ .addr = sge.addr + into,
				    .key = sge.key,
				    .length = sge.length - (u32)into };
	return true;
}
