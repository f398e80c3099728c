/* uio.h: struct iovec, the C library's. */
#ifndef ANYVERBS_LINUX_UIO_H
#define ANYVERBS_LINUX_UIO_H

#include <sys/uio.h>

/* Memory of the program itself. */
#define kvec iovec

#endif
