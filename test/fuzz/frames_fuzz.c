/* frames_fuzz.c: what a process may put into a recorder's memory, up to the frames of the file.
 *
 * The input is a list of records without their payload, each as a writer would leave it in a slot,
 * and what is left over upsets the file's own numbers. Every frame must fit its buffer, and what is
 * kept of it must be at most all of it; a writer writes into the file or not at all.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <stdlib.h>
#include <string.h>

#include "capture/capture.h"
#include "input.h"

enum { HEAD = offsetof(struct capture_record, data), RECORDS = 16, TURNS = 4 };

static struct fuzz {
	struct capture c;
	struct capture_reader r;
	struct frames m;
	struct capture_record record;
} f;

static void fuzz_take(void *arg, const struct frame *frame)
{
	if (frame->length > FRAME_MAX || frame->kept > frame->length || frame->kept > f.m.snaplen)
		abort();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	int fd = capture_create(65535, &f.r);

	capture_init(&f.c);
	f.m.emit = fuzz_take;
	memset(f.m.gids[1] + 10, 0xff, 2);
	f.m.gids[2][0] = 0xfe;
	return fd < 0 || capture_start(&f.c, fd) != 0;
}

/* A slot that is taken, with this record in it. */
static void fuzz_put(const u8 *head)
{
	struct capture_packet p = { .kind = CAPTURE_VOID, .mtu = 1 };
	u64 at = f.r.shared->head % CAPTURE_SLOTS;
	struct capture_hold h;

	capture_begin(&f.c, &p, &h);
	capture_end(&f.c, &h, &p, NULL, 0, false);
	memcpy(&f.r.shared->slots[at].record, head, HEAD);
}

/* Where the next slot is said to be, whose turn it is there and at the reader, and how much is to
 * be kept of a frame: then a writer and the reader go on. In the end all is as before. */
static void fuzz_upset(const u8 *data, size_t size)
{
	static const u8 payload[64];
	static const struct roce_flow flow;
	struct capture_shared *s = f.r.shared;
	struct capture_reader before = f.r;
	u64 number[3] = { s->head, s->head, s->head }, head = s->head;
	u32 snaplen = s->snaplen;
	struct capture_slot *at[1 + TURNS];
	u64 seq[1 + TURNS];

	memcpy(number, data, MIN(size, sizeof(number)));
	if (size > sizeof(number))
		memcpy(&s->snaplen, data + sizeof(number), MIN(size - sizeof(number), sizeof(u32)));
	at[0] = &s->slots[number[0] % CAPTURE_SLOTS];
	for (u32 i = 0; i < TURNS; i++)
		at[1 + i] = &s->slots[(f.r.tail + i) % CAPTURE_SLOTS];
	for (u32 i = 0; i <= TURNS; i++)
		seq[i] = at[i]->seq;
	s->head = number[0];
	at[0]->seq = number[1];
	at[1]->seq = number[2];
	capture_datagram(&f.c, true, &flow, payload, sizeof(payload));
	for (u64 now = 1; now <= TURNS; now++)
		if (capture_next(&f.r, &f.record, now << 30))
			frames_make(&f.m, &f.record);
	for (u32 i = 0; i <= TURNS; i++)
		at[i]->seq = seq[i];
	s->head = head;
	s->snaplen = snaplen;
	f.r = before;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	f.m.flows = flows_create();
	f.m.snaplen = size % 2 == 0 ? 65535 : 100;
	for (int i = 0; i < RECORDS && size >= HEAD; i++, data += HEAD, size -= HEAD) {
		fuzz_put(data);
		if (!capture_next(&f.r, &f.record, 1))
			abort();
		frames_make(&f.m, &f.record);
	}
	if (size < HEAD)
		fuzz_upset(data, size);
	flows_destroy(f.m.flows);
	return 0;
}
