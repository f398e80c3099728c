/* core.c: includes it. */
#include <rdma/ib_bare.h>
