/* await.h: waiting for the node's reply. A busy host may not run the node for seconds: that time
 * does not count as the node's silence. */
#ifndef NODE_AWAIT_H
#define NODE_AWAIT_H

#include "base/compiler.h"

enum {
	/* seconds for which a node that can run may leave a request unanswered */
	AWAIT_SILENT_S = 5,
	AWAIT_BUSY_S = 60,  /* seconds for which a node may be ready to run without a CPU */
};

/* The wait for one reply, counted in polls of the node's state; all zero at its beginning. */
struct await {
	u32 looks;
	u32 silent; /* polls that found the node asleep or stopped, or did not find it */
} OWNED_BY(the caller);

/* Waits until the node's socket is readable: 0; -ETIMEDOUT after AWAIT_SILENT_S or AWAIT_BUSY_S
 * of all calls with this *a together. Goes on after signals. */
int await_reply(int fd, struct await *a);
/* A hint: tells whether the process is ready to run, or waits for a disk. False where /proc does
 * not say. */
bool await_is_busy(s32 pid);

#endif
