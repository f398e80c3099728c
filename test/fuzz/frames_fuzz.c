/* frames_fuzz.c: what a process may put into a recorder's memory, up to the frames of the file.
 *
 * The input is a list of records without their payload, each as a writer would leave it in a slot.
 * Every frame must fit its buffer, and what is kept of it must be at most all of it.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <stdlib.h>
#include <string.h>

#include "capture/capture.h"

enum { HEAD = offsetof(struct capture_record, data), RECORDS = 16 };

static struct fuzz {
	struct capture c;
	struct capture_reader r;
	struct frames m;
	struct capture_record record;
} f;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

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
	flows_destroy(f.m.flows);
	return 0;
}
