/* rsocket_fuzz.c: what a peer of an rsocket may say: the private data of its connection, entries of
 * the table of mappings, messages of its UDP socket, headers of its datagrams.
 *
 * Whatever is taken lies within its bytes, and says the same when it is written again.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <stdlib.h>
#include <string.h>

#include "input.h"
#include "rsocket/dgram_format.h"
#include "rsocket/stream_format.h"

static void fuzz_hello(const u8 *data, size_t size)
{
	u8 again[STREAM_HELLO_SIZE];
	struct stream_hello hello, back;

	if (stream_hello_unpack(data, size, &hello) != 0)
		return;
	fuzz_need(size >= STREAM_HELLO_SIZE, "a short hello");
	fuzz_need(hello.table.length > 0 && hello.buffer.length > 0, "nothing to write to");
	fuzz_need(hello.iomaps <= 127u << 8, "more mappings than one byte says");
	stream_hello_pack(&hello, again);
	fuzz_need(stream_hello_unpack(again, sizeof(again), &back) == 0, "the hello again");
	fuzz_need(back.credits == hello.credits && back.iomaps == hello.iomaps &&
			  back.table.addr == hello.table.addr &&
			  back.table.key == hello.table.key &&
			  back.buffer.addr == hello.buffer.addr &&
			  back.buffer.length == hello.buffer.length,
		  "another hello");
}

/* The same behind the room of an IP header. */
static void fuzz_request(const u8 *data, size_t size)
{
	u8 again[STREAM_HEADER_SIZE + STREAM_HELLO_SIZE];
	struct stream_hello hello, back;

	if (stream_request_unpack(data, size, true, &hello) != 0)
		return;
	fuzz_need(size >= sizeof(again), "a short request");
	fuzz_need(stream_request_pack(&hello, true, again) == sizeof(again), "the size");
	fuzz_need(stream_request_unpack(again, sizeof(again), true, &back) == 0 &&
			  back.table.addr == hello.table.addr &&
			  back.buffer.length == hello.buffer.length,
		  "another request");
}

/* What is covered begins where the offset is, and ends where the mapping does. */
static void fuzz_entry(const u8 *data, size_t size)
{
	struct input in = { .at = data, .left = size };
	struct stream_iomap entry;
	struct stream_sge sge;
	u64 offset;

	input_bytes(&in, &entry, sizeof(entry));
	input_bytes(&in, &offset, sizeof(offset));
	if (!stream_iomap_covers(&entry, offset, &sge))
		return;
	fuzz_need(sge.length > 0 && sge.length <= entry.sge.length, "the length");
	fuzz_need(sge.addr + sge.length == entry.sge.addr + entry.sge.length, "the end");
	fuzz_need(sge.addr - entry.sge.addr == offset - entry.offset, "the beginning");
	fuzz_need(sge.key == entry.sge.key, "the key");
}

static void fuzz_datagram(const u8 *data, size_t size)
{
	u8 again[DGRAM_HEADER_BYTES];
	union dgram_addr from;
	int header = dgram_header_unpack(data, size, &from);

	if (header < 0)
		return;
	fuzz_need((size_t)header <= size, "a header longer than its message");
	fuzz_need(dgram_header_pack(&from, again) == (u32)header, "the size");
	fuzz_need(memcmp(again, data, (size_t)header) == 0, "another header");
}

static void fuzz_message(const u8 *data, size_t size, int family)
{
	u8 again[DGRAM_HELLO_BYTES];
	struct dgram_hello hello, back;
	int head = dgram_hello_unpack(data, size, family, &hello);

	if (head < 0)
		return;
	fuzz_need((size_t)head <= size && hello.qpn <= 0xffffff, "bounds");
	fuzz_need(dgram_hello_pack(&hello, again) == (u32)head, "the size");
	fuzz_need(dgram_hello_unpack(again, (size_t)head, family, &back) == head &&
			  back.op == hello.op && back.qpn == hello.qpn &&
			  memcmp(back.gid, hello.gid, sizeof(hello.gid)) == 0,
		  "another message");
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	u8 *copy;

	if (size == 0)
		return 0;
	copy = malloc(size - 1 > 0 ? size - 1 : 1); /* of that size, for the sanitizer */
	memcpy(copy, data + 1, size - 1);
	switch (data[0] % 5) {
	case 0:
		fuzz_hello(copy, size - 1);
		fuzz_request(copy, size - 1);
		break;
	case 1:
		fuzz_entry(copy, size - 1);
		break;
	case 2:
		fuzz_datagram(copy, size - 1);
		break;
	default:
		fuzz_message(copy, size - 1, data[0] % 5 == 3 ? AF_INET : AF_INET6);
		break;
	}
	free(copy);
	return 0;
}
