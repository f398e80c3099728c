/* errno.h: the errnos, with those that only the kernel sees. */
#ifndef ANYVERBS_LINUX_ERRNO_H
#define ANYVERBS_LINUX_ERRNO_H

#include_next <linux/errno.h>

#define ERESTARTSYS 512 /* a signal interrupted the wait */
#define ENOTSUPP 524

#endif
