/* base.c: a sample. In: nothing    Out: nothing    Runs: any thread    Locks: none */
#include <stdlib.h>

int base_reads(void)
{
	return getenv("ANYVERBS_TOLD") != NULL && getenv("ANYVERBS_SECRET") != NULL;
}
