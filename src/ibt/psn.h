/* psn.h: packet sequence numbers, 24 bits that wrap. IBA vol 1, 9.7 (packet sequence numbers). */
#ifndef IBT_PSN_H
#define IBT_PSN_H

#include "base/compiler.h"

enum { PSN_MASK = 0xffffff };

/* Signed distance of two PSNs: how far a is ahead of b. */
static inline s32 psn_ahead(u32 a, u32 b)
{
	return (s32)((a - b) << 8) >> 8;
}

#endif
