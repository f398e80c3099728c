/* version.h: the version that source code takes this for: 6.1, unless the compiler is told another
 * (-DLINUX_VERSION_CODE=...): which one fits says the level of the rdma/ headers. */
#ifndef ANYVERBS_LINUX_VERSION_H
#define ANYVERBS_LINUX_VERSION_H

#define KERNEL_VERSION(a, b, c) (((a) << 16) + ((b) << 8) + ((c) > 255 ? 255 : (c)))
#ifndef LINUX_VERSION_CODE
#define LINUX_VERSION_CODE KERNEL_VERSION(6, 1, 0)
#endif

#endif
