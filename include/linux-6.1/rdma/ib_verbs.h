/* ib_verbs.h: the midlayer as code of Linux 6.1 knows it (docs/linux-6.1.md). A translation unit
 * that has this folder before include/ on its path gets Linux 6.1's calls, any other one those of
 * rdma/ib_verbs.h; the objects are the same.
 *
 * Everything of the older headers is read first, by their own names. From here on, the names that
 * Linux 6.1 uses otherwise stand for their counterparts of ib_linux61.h, which says why by macros.
 */
#ifndef LINUX61_IB_VERBS_H
#define LINUX61_IB_VERBS_H

#include "../../rdma/ib_verbs.h"

/* Linux's header includes these, and its readers rely on that. They are there if the program has
 * the words of kernel code (docs/kernel-code.md). */
#if !defined(__cplusplus) && __has_include(<linux/workqueue.h>)
#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/device.h>
#include <linux/dma-mapping.h>
#include <linux/in6.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/refcount.h>
#include <linux/rwsem.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#endif

#include "../../rdma/ib_extended.h"
#include "../../rdma/rdma_cm.h"
#include "../../rdma/rdma_cm_ib.h"

#include "../../rdma/ib_linux61.h"

#define ib_alloc_pd ib_alloc_pd_linux61
#define ib_client ib_client_linux61
#define ib_cq_init_attr ib_cq_init_attr_linux61
#define ib_create_cq ib_create_cq_linux61
#define ib_create_qp ib_create_qp_linux61
#define ib_create_srq ib_create_srq_linux61
#define ib_dealloc_pd ib_dealloc_pd_linux61
#define ib_destroy_qp ib_destroy_qp_linux61
#define ib_device_attr ib_device_attrs
#define ib_get_client_data ib_get_client_data_linux61
#define ib_post_recv ib_post_recv_linux61
#define ib_post_send ib_post_send_linux61
#define ib_post_srq_recv ib_post_srq_recv_linux61
#define ib_qp_cap ib_qp_cap_linux61
#define ib_qp_init_attr ib_qp_init_attr_linux61
#define ib_query_qp ib_query_qp_linux61
#define ib_register_client ib_register_client_linux61
#define ib_send_wr ib_send_wr_linux61
#define ib_set_client_data ib_set_client_data_linux61
#define ib_srq_init_attr ib_srq_init_attr_linux61
#define ib_unregister_client ib_unregister_client_linux61
#define rdma_create_id rdma_create_id_linux61
#define rdma_create_qp rdma_create_qp_linux61
#define rdma_destroy_qp rdma_destroy_qp_linux61
#define rdma_resolve_addr rdma_resolve_addr_linux61
#define rdma_resolve_route rdma_resolve_route_linux61

/* Fields of struct ib_qp that lie in its pools. */
#define rdma_mrs pools->rdma_mrs
#define sig_mrs pools->sig_mrs

#endif
