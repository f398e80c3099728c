/* user.h: arguments that lie in the application's memory. A pointer that leads nowhere is EFAULT,
 * as with the kernel's sockets, and never a fault of the application.
 *
 * All return 0 or a negative errno. None blocks.
 */
#ifndef RDMACM_RSOCKET_USER_H
#define RDMACM_RSOCKET_USER_H

#include "base/fault.h"
#include "rsocket.h"

/* Copies n bytes; either end may be the application's. Of NULL it is EFAULT without a fault, so
 * that a program's own handler does not hear of the most frequent mistake. */
static inline int user_copy(void *to, const void *from, size_t n)
{
	return (to == NULL || from == NULL) && n > 0 ? -EFAULT : fault_copy(to, from, n);
}

/* A socket address: `out` holds the bytes that were given, and zeroes behind them. -EINVAL: no
 * family, or more bytes than an address has. */
int user_take_addr(struct sockaddr_storage *out, const struct sockaddr *addr, socklen_t len);
/* Gives as much of an address as *len allows, and its whole size in *len. */
int user_give_addr(const void *from, socklen_t size, struct sockaddr *addr, socklen_t *len);
/* Gives as much of a value as *len allows, and that size in *len. */
int user_give(const void *from, socklen_t size, void *value, socklen_t *len);

enum { USER_IOV_FEW = 8 };

/* A copy of an application's vector. */
struct user_iov {
	struct iovec *iov; /* `few`, or malloc'ed */
	struct iovec few[USER_IOV_FEW];
} OWNED_BY(the caller);

/* -E2BIG: more parts than IOV_MAX; -EINVAL: more bytes than a result can say. user_drop_iov in any
 * case. */
int user_take_iov(struct user_iov *v, const struct iovec *iov, size_t count);
void user_drop_iov(struct user_iov *v);

#endif
