/* rsocket.h: options of rsockets beyond those of rdma-core's rdma/rsocket.h. */
#ifndef ANYVERBS_RSOCKET_H
#define ANYVERBS_RSOCKET_H

#ifndef SOL_RDMA
#define SOL_RDMA 0x10000 /* as rdma/rsocket.h has it */
#endif

/* SOL_RDMA, before rlisten: an int other than 0 leaves requests to raccept, one each. Their clients
 * are not connected before, and find another listener if this one ends without having called it.
 * 0 ends that, also of an rsocket that listens. */
enum { RDMA_ACCEPT_ON_DEMAND = 0x4156 };

/* SOL_RDMA, at any time, of stream rsockets: an int other than 0 makes rclose and rshutdown return
 * at once, as close and shutdown of TCP do. The library goes on to deliver what was sent. rclose
 * waits if SO_LINGER says so. What a listener accepts has its listener's. */
enum { RDMA_CLOSE_AT_ONCE = 0x4157 };

/* SOL_RDMA, to read, of any stream rsocket: how many streams of the process have been closed so
 * and are not delivered yet. What they have not delivered ends with the process. */
enum { RDMA_LINGERING = 0x4158 };

#endif
