/* ib_bare.h: calls with and without their contract. */
#ifndef IB_BARE_H
#define IB_BARE_H

AV_EXPORT int ib_first(void);

/* Says what it does. 0. */
AV_EXPORT int ib_told(int a,
		      int b);
AV_EXPORT int ib_beside(void);

/* Of the one below, but for the empty line. */

AV_EXPORT int ib_far(void);

#endif
