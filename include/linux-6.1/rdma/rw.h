/* rw.h: transfers, declared in ib_verbs.h here. */
#include <rdma/ib_verbs.h>
