/* rdma_user_cm.h: the ABI of /dev/infiniband/rdma_cm.
 *
 * Linux's own header (Debian's linux-libc-dev), so that each name of the kernel's rdma/ is here. An
 * installed copy of this file would hide the system's. */
#pragma GCC system_header /* ISO C has no include_next */
#include_next <rdma/rdma_user_cm.h>
