/* input.h: reading a fuzzer's input from its beginning; what is missing reads as zeroes. */
#ifndef TEST_FUZZ_INPUT_H
#define TEST_FUZZ_INPUT_H

#include <string.h>

#include "base/compiler.h"

struct input {
	const u8 *at;
	size_t left;
};

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

/* Says so and aborts unless it is fine. */
void fuzz_need(bool fine, const char *what);

static inline void input_bytes(struct input *in, void *to, size_t size)
{
	size_t n = MIN(size, in->left);

	memset(to, 0, size);
	if (n != 0)
		memcpy(to, in->at, n);
	in->at += n;
	in->left -= n;
}

static inline u8 input_u8(struct input *in)
{
	u8 value;

	input_bytes(in, &value, sizeof(value));
	return value;
}

/* ---- handles.c: descriptors of every kind that somebody may send ---- */

enum { HANDLE_KINDS = 10 };

/* Once; more kinds may be told: descriptors that stay open. */
void handles_open(void);
/* A new descriptor of a kind (modulo their number), the caller's. `extra`: others to choose
 * from. */
int handle_make(u8 kind, const int *extra, int extras);
/* The lowest free descriptor: the same before and after, if nothing has been left open between. */
int handle_lowest(void);

#endif
