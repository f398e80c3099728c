/* fortify.c: the names that _FORTIFY_SOURCE gives the calls of the other files.
 * In: a call, and how large its buffer is    Out: the plain call, if the buffer has room; else
 * the C library's, which ends the program    Runs: any thread    Locks: none
 */
#include <poll.h>
#include <unistd.h>

#include "rsockets.h"

AV_EXPORT ssize_t __read_chk(int fd, void *buf, size_t size, size_t room);
AV_EXPORT ssize_t __recv_chk(int fd, void *buf, size_t size, size_t room, int flags);
AV_EXPORT ssize_t __recvfrom_chk(int fd, void *buf, size_t size, size_t room, int flags,
				 struct sockaddr *addr, socklen_t *addr_size);
AV_EXPORT int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room);
AV_EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
			  const sigset_t *mask, size_t room);

NEXT_SLOT(__read_chk);
NEXT_SLOT(__recv_chk);
NEXT_SLOT(__recvfrom_chk);
NEXT_SLOT(__poll_chk);
NEXT_SLOT(__ppoll_chk);

AV_EXPORT ssize_t __read_chk(int fd, void *buf, size_t size, size_t room)
{
	return size <= room ? read(fd, buf, size) : NEXT(__read_chk)(fd, buf, size, room);
}

AV_EXPORT ssize_t __recv_chk(int fd, void *buf, size_t size, size_t room, int flags)
{
	return size <= room ? recv(fd, buf, size, flags) :
			      NEXT(__recv_chk)(fd, buf, size, room, flags);
}

AV_EXPORT ssize_t __recvfrom_chk(int fd, void *buf, size_t size, size_t room, int flags,
				 struct sockaddr *addr, socklen_t *addr_size)
{
	return size <= room ?
		       recvfrom(fd, buf, size, flags, addr, addr_size) :
		       NEXT(__recvfrom_chk)(fd, buf, size, room, flags, addr, addr_size);
}

AV_EXPORT int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room)
{
	return count <= room / sizeof(*fds) ? poll(fds, count, timeout) :
					      NEXT(__poll_chk)(fds, count, timeout, room);
}

AV_EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
			  const sigset_t *mask, size_t room)
{
	return count <= room / sizeof(*fds) ?
		       ppoll(fds, count, timeout, mask) :
		       NEXT(__ppoll_chk)(fds, count, timeout, mask, room);
}
