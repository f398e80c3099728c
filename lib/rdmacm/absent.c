/* absent.c: calls that this library exports and does not have: each fails and says so.
 *
 * ENOSYS: rsockets, and what only a newer librdmacm has. EOPNOTSUPP: extended connection
 * establishment, which no device here has (ibv_set_ece). docs/rdmacm.md lists them.
 */
#include <rdma/rsocket.h>

#include "door.h"

/* Each takes what the original takes and looks at nothing of it. */
#define ABSENT_CALL(type, name, arguments)                                                         \
	AV_EXPORT type name arguments                                                              \
	{                                                                                          \
		errno = ENOSYS;                                                                    \
		return (type)-1;                                                                   \
	}

ABSENT_CALL(int, rsocket, (int domain, int type, int protocol))
ABSENT_CALL(int, rbind, (int socket, const struct sockaddr *addr, socklen_t addrlen))
ABSENT_CALL(int, rlisten, (int socket, int backlog))
ABSENT_CALL(int, raccept, (int socket, struct sockaddr *addr, socklen_t *addrlen))
ABSENT_CALL(int, rconnect, (int socket, const struct sockaddr *addr, socklen_t addrlen))
ABSENT_CALL(int, rshutdown, (int socket, int how))
ABSENT_CALL(int, rclose, (int socket))
ABSENT_CALL(ssize_t, rrecv, (int socket, void *buf, size_t len, int flags))
ABSENT_CALL(ssize_t, rrecvfrom, (int socket, void *buf, size_t len, int flags,
				 struct sockaddr *src_addr, socklen_t *addrlen))
ABSENT_CALL(ssize_t, rrecvmsg, (int socket, struct msghdr *msg, int flags))
ABSENT_CALL(ssize_t, rsend, (int socket, const void *buf, size_t len, int flags))
ABSENT_CALL(ssize_t, rsendto, (int socket, const void *buf, size_t len, int flags,
			       const struct sockaddr *dest_addr, socklen_t addrlen))
ABSENT_CALL(ssize_t, rsendmsg, (int socket, const struct msghdr *msg, int flags))
ABSENT_CALL(ssize_t, rread, (int socket, void *buf, size_t count))
ABSENT_CALL(ssize_t, rreadv, (int socket, const struct iovec *iov, int iovcnt))
ABSENT_CALL(ssize_t, rwrite, (int socket, const void *buf, size_t count))
ABSENT_CALL(ssize_t, rwritev, (int socket, const struct iovec *iov, int iovcnt))
ABSENT_CALL(int, rpoll, (struct pollfd *fds, nfds_t nfds, int timeout))
ABSENT_CALL(int, rselect, (int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds,
			   struct timeval *timeout))
ABSENT_CALL(int, rgetpeername, (int socket, struct sockaddr *addr, socklen_t *addrlen))
ABSENT_CALL(int, rgetsockname, (int socket, struct sockaddr *addr, socklen_t *addrlen))
ABSENT_CALL(int, rsetsockopt, (int socket, int level, int optname, const void *optval,
			       socklen_t optlen))
ABSENT_CALL(int, rgetsockopt, (int socket, int level, int optname, void *optval,
			       socklen_t *optlen))
ABSENT_CALL(int, rfcntl, (int socket, int cmd, ...))
ABSENT_CALL(off_t, riomap, (int socket, void *buf, size_t len, int prot, int flags, off_t offset))
ABSENT_CALL(int, riounmap, (int socket, void *buf, size_t len))
ABSENT_CALL(size_t, riowrite, (int socket, const void *buf, size_t count, off_t offset, int flags))

/* Of newer releases, whose headers are not the ones that this library is built with. */
AV_EXPORT int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);
AV_EXPORT int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
				    const struct rdma_addrinfo *hints);
AV_EXPORT int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
				  uint64_t arg);

ABSENT_CALL(int, rdma_query_addrinfo, (struct rdma_cm_id *id, struct rdma_addrinfo **info))
ABSENT_CALL(int, rdma_resolve_addrinfo, (struct rdma_cm_id *id, const char *node,
					 const char *service, const struct rdma_addrinfo *hints))
ABSENT_CALL(int, rdma_write_cm_event, (struct rdma_cm_id *id, enum rdma_cm_event_type event,
				       int status, uint64_t arg))

/* Options of no vendor are what every connection has. */
AV_EXPORT int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (ece == NULL || ece->comp_mask != 0)
		return door_result(-EINVAL);
	return door_result(ece->vendor_id == 0 ? 0 : -EOPNOTSUPP);
}

AV_EXPORT int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (ece == NULL || ece->comp_mask != 0)
		return door_result(-EINVAL);
	*ece = (struct ibv_ece){ .vendor_id = 0 };
	return 0;
}
