/* ipoib_fuzz.c: frames of a stranger on the fabric, and packets of the host's own kernel.
 *
 * The first byte says which: a frame as it is; one of neighbour discovery whose checksum is made
 * valid; a packet to send; an interface's alias. What is read as a question or an answer is written
 * again, and read as it was.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <stdlib.h>
#include <string.h>

#include "input.h"
#include "host/linkname.h"
#include "ulp/ipoib/frame.h"

static void fuzz_again(const struct ipoib_frame *f)
{
	struct ipoib_frame again, asked = *f;
	u8 bytes[FRAME_BYTES];
	u32 size;

	if (f->kind == FRAME_BAD || f->kind == FRAME_IP)
		return;
	fuzz_need(!f->has_hw || ipoib_hw_is_valid(&f->hw), "a hardware address that is none");
	size = f->kind == FRAME_ASK ? ipoib_frame_write_ask(bytes, &asked, NULL)
				    : ipoib_frame_write_answer(bytes, &asked, NULL);
	fuzz_need(size <= FRAME_BYTES, "longer than all frames");
	if (!f->has_hw)
		return;
	ipoib_frame_read(bytes, size, &again);
	fuzz_need(again.kind == f->kind, "another kind");
	fuzz_need(memcmp(again.about, f->about, 16) == 0, "about another address");
	fuzz_need(memcmp(&again.hw, &f->hw, sizeof(f->hw)) == 0, "another hardware address");
}

/* In memory of exactly the size. */
static u8 *fuzz_copy(const u8 *data, size_t size)
{
	u8 *copy = malloc(size + (size == 0));

	if (copy == NULL)
		abort();
	memcpy(copy, data, size);
	return copy;
}

static void fuzz_make_sum(u8 *frame, size_t size)
{
	u32 sum = 0, icmp_bytes, end;
	u8 *packet = frame + IPOIB_HEAD;

	if (size < IPOIB_HEAD + 64)
		return;
	icmp_bytes = (u32)packet[4] << 8 | packet[5];
	end = 40 + icmp_bytes;
	if (icmp_bytes < 4 || end > size - IPOIB_HEAD)
		return;
	packet[42] = packet[43] = 0;
	sum = icmp_bytes + 58;
	for (u32 i = 8; i < end; i++)
		sum += i % 2 == 0 ? (u32)packet[i] << 8 : packet[i];
	while (sum >> 16 != 0)
		sum = (sum & 0xffff) + (sum >> 16);
	packet[42] = (u8)(~sum >> 8);
	packet[43] = (u8)~sum;
}

static void fuzz_alias(const u8 *data, size_t size)
{
	struct linkname name, again;
	char text[LINKNAME_BYTES];

	if (!linkname_read((const char *)data, size, &name))
		return;
	linkname_write(&name, text);
	fuzz_need(linkname_read(text, strlen(text), &again), "not taken again");
	fuzz_need(memcmp(name.address, again.address, LINKNAME_ADDRESS) == 0, "another address");
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct ipoib_frame f;
	u8 to[16], refusal[REFUSAL_BYTES], *copy;

	if (size < 1)
		return 0;
	copy = fuzz_copy(data + 1, size - 1);
	size--;
	switch (data[0] % 4) {
	case 0:
		ipoib_frame_read(copy, (u32)size, &f);
		fuzz_again(&f);
		break;
	case 1:
		fuzz_make_sum(copy, size);
		ipoib_frame_read(copy, (u32)size, &f);
		fuzz_again(&f);
		break;
	case 2:
		if (size < IPOIB_HEAD)
			break;
		(void)ipoib_frame_wrap(copy, (u32)size - IPOIB_HEAD, to);
		fuzz_need(ipoib_frame_refuse(copy + IPOIB_HEAD, (u32)size - IPOIB_HEAD, refusal) <=
				  REFUSAL_BYTES,
			  "a longer refusal");
		break;
	default:
		fuzz_alias(copy, size);
	}
	free(copy);
	return 0;
}
