/* sides.h: two ports of the MAD layer with a wire between them, in virtual time.
 *
 * The wire delivers at once, or after a delay, and may lose, double and reorder.
 */
#ifndef SIDES_H
#define SIDES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "core/test_support/fake_device.h"
#include "mad/mad_priv.h"

enum { SLOT_A = 5, SLOT_B = 1023, PARTITION = 0x8002 };

struct side {
	struct fake_device *fake;
	struct mad_port *port;
	struct ib_ah ah;
	u32 sent; /* MADs that left, lost ones too */
	int lose; /* so many more are lost */
	int full; /* so many more find no room */
	u64 listens;
	u32 agents; /* that the process has made known */
	bool taken; /* an agent of another process has everything */
	bool any_ah; /* sends have address handles of their own, not `ah` */
	struct side *peer;
	/* Sees each MAD that leaves, and may change it; false: it is lost. NULL: nothing. */
	bool (*watch)(struct side *from, struct ib_rmpp_mad *mad);
} OWNED_BY(the test);

/* What the wire does to both directions; all zeroes: delivers at once. */
struct wire {
	u32 delay_us;	/* the least, and ... */
	u32 jitter_us;	/* ... how much more it may be: reorders */
	u32 lose;	/* of 100 MADs */
	u32 duplicate;	/* of 100 MADs */
} OWNED_BY(the test);

extern struct side a, b;
extern struct wire wire;
extern struct work_queue queue;
extern u64 now_ns;

/* For cmocka: both ports stand, it is 1000 ms. */
int sides_setup(void **state);
int sides_teardown(void **state);
/* Runs everything up to a time. */
void run_to(u64 ms);
/* A MAD at `at` that has come from its peer. */
struct mad_arrival arrive(const struct side *at, const void *mad);
u32 sides_random(u32 below);
void sides_seed(u64 seed);
/* A transaction ID of the agent. */
u64 tid_of(const struct ib_mad_agent *agent, u32 low);
struct ib_mad_reg_req request_for(u8 class, u8 version, u8 method);

#endif
