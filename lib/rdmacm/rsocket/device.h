/* device.h: what rsockets ask of their device beyond the verbs. */
#ifndef RDMACM_RSOCKET_DEVICE_H
#define RDMACM_RSOCKET_DEVICE_H

#include <infiniband/verbs.h>

#include "rsocket.h"

struct ib_device;
struct ib_sleep_ops;

/* The device of this context exists: threads that sleep drive it from now on. */
void rsocket_device_use(struct ibv_context *verbs);
/* Copies to memory of the queue pair's peer at once. What is posted later arrives behind it. False:
 * not possible now; a request does it. */
bool rsocket_store(struct ibv_qp *qp, u32 rkey, u64 va, const void *from, u32 length);
/* Does the death of the peer's process complete requests of the queue pair, which is connected,
 * with IBV_WC_RETRY_EXC_ERR at once, behind all that the process has posted? So between
 * processes of one node, unless their packets take a wire. After the death false means that some
 * of it is lost. */
bool rsocket_hears_of_death(struct ibv_qp *qp);
/* NULL: no device, or one that is not to be driven. */
const struct ib_sleep_ops *rsocket_device_sleep(void);

/* Registered memory, of the kind that peers on this host reach by loads and stores where there is
 * any. All zeroes: there is none. */
struct rsocket_buffer {
	u8 *at FIXED;
	struct ibv_mr *mr FIXED;
	struct ib_device *ib FIXED; /* whose memory it is; NULL: the C library's */
};

/* Whole pages, zeroed. 0 or a negative errno; nothing is left then. */
int rsocket_buffer_create(struct rsocket_buffer *b, struct ibv_pd *pd, size_t size, int access);
/* No queue pair uses it any more. Also of one that is all zeroes. */
void rsocket_buffer_destroy(struct rsocket_buffer *b);

#endif
