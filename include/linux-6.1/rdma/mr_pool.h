/* mr_pool.h: pools of regions, declared in ib_verbs.h here. */
#include <rdma/ib_verbs.h>
