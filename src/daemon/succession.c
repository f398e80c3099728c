/* succession.c: passes the node on to a successor that may have more descriptors.
 *
 * The node closes everything but the listening socket and its locked folder, and passes these two
 * to the process that has asked. So nobody else can begin in between. If that process dies
 * meanwhile the two are closed with it, as if this node had died.
 * In:    SUCCEED; descriptors of the node before      Out: the node's end
 * Runs:  the daemon's only thread                     Locks: the folder's, which is passed on
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/daemon_priv.h"
#include "node/successor.h"

static int succession_option(int fd, int name)
{
	int value = -1;
	socklen_t length = sizeof(value);

	return getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

struct loop_source *succession_listener(struct daemon *d, int fd)
{
	struct sockaddr_un at = { .sun_family = AF_UNSPEC };
	socklen_t length = sizeof(at);

	if (succession_option(fd, SO_DOMAIN) != AF_UNIX ||
	    succession_option(fd, SO_TYPE) != SOCK_SEQPACKET ||
	    succession_option(fd, SO_ACCEPTCONN) != 1 ||
	    getsockname(fd, (struct sockaddr *)&at, &length) < 0)
		return NULL;
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return at.sun_path[0] == '\0' ? &d->listener : &d->inner;
}

int succession_promise(struct daemon *d, struct proc *p, u32 serial, u64 limit)
{
	if (!d->options.spawned)
		return -EPERM;
	if (d->successor != NULL || !successor_is_better(limit, successor_limit()))
		return -EALREADY;
	if (!list_empty(&d->wills) || d->held_count > 0)
		return -EBUSY;
	d->successor = p;
	d->succession_serial = serial;
	daemon_stop(d, "a successor may have more descriptors");
	return 0;
}

void succession_forget(struct daemon *d, const struct proc *p)
{
	if (d->successor == p)
		d->successor = NULL;
}

int succession_detach(struct daemon *d)
{
	struct proc *p = d->successor;
	int fd;

	if (p == NULL)
		return -1;
	loop_remove(&d->loop, &p->control);
	fd = p->control.fd;
	p->control.fd = -1;
	return fd;
}

void succession_pass(struct daemon *d, int fd)
{
	struct proto_plain reply = { .head = { .magic = PROTO_MAGIC,
					       .version = PROTO_VERSION,
					       .type = PROTO_SUCCEED,
					       .serial = d->succession_serial } };
	int fds[2] = { d->listener.fd >= 0 ? d->listener.fd : d->inner.fd, d->folder.fd };

	(void)message_send(fd, &reply, sizeof(reply), fds, d->folder.fd >= 0 ? 2 : 1);
	close(fd);
}
