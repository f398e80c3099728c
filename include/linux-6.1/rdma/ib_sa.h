/* ib_sa.h: as in include/rdma/, with Linux 6.1's names (ib_verbs.h here). */
#include <rdma/ib_verbs.h>

#include "../../rdma/ib_sa.h"
