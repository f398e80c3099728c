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

#endif
