/* signature.h: signatures of data, which no device has; declared in ib_verbs.h here. */
#include <rdma/ib_verbs.h>
