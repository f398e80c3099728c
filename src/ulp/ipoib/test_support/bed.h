/* bed.h: what the tests of IPoIB's files stand on: an interface, virtual time, address handles.
 *
 * Each test plays the other rooms that its file calls.
 */
#ifndef IPOIB_BED_H
#define IPOIB_BED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ulp/ipoib/ipoib_priv.h"

extern u64 bed_now_ns; /* the time that the clock tells; tests move it */
extern u32 bed_handles; /* address handles that exist */

/* An interface without neighbours, groups, packets and questions, which the test frees. The clock
 * begins at 1 s. */
struct ipoib *bed_create(void);
/* Frees `ip`, and gives the clock back. No address handle may be left. */
void bed_free(struct ipoib *ip);

#endif
