/* ib_user_verbs.h: the ABI of /dev/infiniband/uverbsN.
 *
 * Linux's own header (Debian's linux-libc-dev), so that each name of the kernel's rdma/ is here. An
 * installed copy of this file would hide the system's. */
#pragma GCC system_header /* ISO C has no include_next */
#include_next <rdma/ib_user_verbs.h>
