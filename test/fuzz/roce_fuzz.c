/* roce_fuzz.c: what a stranger may put into a UDP datagram, up to the decoded packet.
 *
 * The first byte of an input says which address family it came over; the rest is the UDP payload,
 * in memory of exactly its size. Whatever is taken for a packet must lie inside, and must come out
 * of roce_pack and roce_unpack as it is.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <stdlib.h>
#include <string.h>

#include "input.h"
#include "wire/source.h"

static void fuzz_unpack(const u8 *data, u32 length)
{
	struct pkt p, again;
	u8 headers[ROCE_HEADERS_MAX + ROCE_MTU_MAX + 4] = { 0 };
	u32 payload, at;
	int bytes;

	if (roce_unpack(data, length, &p, &payload) != 0)
		return;
	fuzz_need(payload <= length && p.length <= length - payload, "payload outside");
	fuzz_need(p.length + 3 >= length - payload, "more padding than 3");
	bytes = roce_pack(&p, headers);
	fuzz_need(bytes == (int)payload, "other headers");
	fuzz_need(roce_unpack(headers, length, &again, &at) == 0, "not taken again");
	fuzz_need(memcmp(&p, &again, sizeof(p)) == 0, "another packet");
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	static struct roce_source source;
	struct roce_flow flow = { .sport = 4791 };
	u8 *copy;

	if (size == 0)
		return 0;
	copy = malloc(size - 1 + (size == 1));
	memcpy(copy, data + 1, size - 1);
	if (data[0] & 1)
		flow.dgid[10] = flow.dgid[11] = flow.sgid[10] = flow.sgid[11] = 0xff;
	fuzz_unpack(copy, (u32)size - 1);
	roce_icrc_matches(&source, &flow, copy, (u32)size - 1, size);
	free(copy);
	return 0;
}
