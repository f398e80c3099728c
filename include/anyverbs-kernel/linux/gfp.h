/* gfp.h: how memory may be allocated. Only __GFP_ZERO changes what comes back; GFP_KERNEL and its
 * kin may sleep, and a caller that must not is warned of (might_sleep). */
#ifndef ANYVERBS_LINUX_GFP_H
#define ANYVERBS_LINUX_GFP_H

#include <linux/types.h>

#define __GFP_DIRECT_RECLAIM 0x01u /* may sleep */
#define __GFP_IO 0x02u
#define __GFP_FS 0x04u
#define __GFP_HIGH 0x08u
#define __GFP_ZERO 0x10u
#define __GFP_NOWARN 0x20u
#define __GFP_NORETRY 0x40u
#define __GFP_NOFAIL 0x80u
#define __GFP_COMP 0u
#define __GFP_NOMEMALLOC 0u
#define __GFP_MEMALLOC 0u
#define __GFP_HIGHMEM 0u

#define GFP_NOWAIT 0u
#define GFP_ATOMIC __GFP_HIGH
#define GFP_NOIO __GFP_DIRECT_RECLAIM
#define GFP_NOFS (__GFP_DIRECT_RECLAIM | __GFP_IO)
#define GFP_KERNEL (__GFP_DIRECT_RECLAIM | __GFP_IO | __GFP_FS)
#define GFP_USER GFP_KERNEL
#define GFP_DMA 0u

static inline bool gfpflags_allow_blocking(gfp_t flags)
{
	return flags & __GFP_DIRECT_RECLAIM;
}

#endif
