/* need.c: how a target says what it found.
 * In: a verdict    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <stdio.h>
#include <stdlib.h>

#include "input.h"

void fuzz_need(bool fine, const char *what)
{
	if (fine)
		return;
	dprintf(2, "fuzz: %s\n", what);
	abort();
}
