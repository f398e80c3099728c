#include "queue/cq.h"
#include <rdma/ib_verbs.h>
