/* anyverbs.c: the library's version, and nothing else: the rooms are the library. */
#include <rdma/ib_verbs.h>

AV_EXPORT const char *ib_anyverbs_version(void);

const char *ib_anyverbs_version(void)
{
	return AV_VERSION;
}
