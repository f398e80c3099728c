/* await.h: waiting for the node's reply. A busy host may not run the node for seconds: that time
 * does not count as the node's silence. */
#ifndef NODE_AWAIT_H
#define NODE_AWAIT_H

#include "anyverbs/kernel.h"

enum {
	AWAIT_SILENT_S = 5, /* how long a node that could run may leave a request unanswered */
	AWAIT_BUSY_S = 60,  /* how long one may that is ready to run and gets no CPU */
};

/* How long one request has waited, in looks of the node; all zero at its beginning. */
struct await {
	u32 looks;
	u32 silent; /* looks that found the node asleep or stopped, or did not find it */
};

/* Waits until the node's socket is readable: 0; -ETIMEDOUT after AWAIT_SILENT_S or AWAIT_BUSY_S
 * of all calls with this *a together. Goes on after signals. */
int await_reply(int fd, struct await *a);
/* A hint: is the process ready to run, or does it wait for a disk? False where /proc does not say
 * so. */
bool await_is_busy(s32 pid);

#endif
