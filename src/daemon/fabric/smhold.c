/* smhold.c: ports at which a process is a subnet manager: the IsSM bit of their PortInfo.
 *
 * The bit is set while the process has the port's issm device open. Its descriptor there is the
 * reading end of a pipe, the node has the writing end: closed in whichever way, by the process or
 * by its death, the kernel tells.
 * In:    pipes of processes     Out: IsSM bits
 * Runs:  the daemon's only thread      Locks: none
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/fabric/smd.h"

struct smhold {
	struct list_head node;
	struct proc *proc;
	struct loop_source pipe;
	u32 port;
} OWNED_BY(the daemon);

static void smhold_free(struct smhold *h)
{
	list_remove(&h->node);
	loop_remove(&h->proc->daemon->loop, &h->pipe);
	close(h->pipe.fd);
	free(h);
}

/* The node's own subnet manager at the port, if there is one, steps aside for that of a process. */
static void smhold_set(struct fabricd *f, u32 port, bool on)
{
	smd_yield(f->smd, port, on);
	fabric_set_issm(f->fabric, port, on || smd_is_at(f->smd, port));
	hosttree_changed(f, port, 0);
}

static void smhold_end(struct smhold *h)
{
	smhold_set(h->proc->daemon->fabric, h->port, false);
	smhold_free(h);
}

/* No reader is left. */
static void smhold_on_pipe(struct loop_source *s, u32 events)
{
	smhold_end(container_of(s, struct smhold, pipe));
}

static bool smhold_is_over(const struct smhold *h)
{
	struct pollfd fd = { .fd = h->pipe.fd };

	return poll(&fd, 1, 0) > 0;
}

static struct smhold *smhold_find(const struct fabricd *f, u32 port)
{
	list_for_each(h, &f->sms, struct smhold, node)
		if (h->port == port)
			return h;
	return NULL;
}

bool smhold_has(const struct fabricd *f, u32 port)
{
	return smhold_find(f, port) != NULL;
}

static int smhold_add(struct proc *p, u32 port, int fd)
{
	struct smhold *h = malloc(sizeof(*h));
	int mine = h == NULL ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0), err;

	if (mine < 0) {
		err = h == NULL ? -ENOMEM : -errno;
		free(h);
		return err;
	}
	*h = (struct smhold){ .proc = p, .port = port };
	err = loop_add(&p->daemon->loop, &h->pipe, mine, 0, smhold_on_pipe);
	if (err < 0) {
		close(mine);
		free(h);
		return err;
	}
	list_push_back(&p->daemon->fabric->sms, &h->node);
	return 0;
}

int smhold_take(struct proc *p, u32 port, int fd)
{
	struct fabricd *f = p->daemon->fabric;
	struct smhold *other;
	int err;

	if (p->host == NULL || !fabricd_place_has(&p->host->at, port))
		return -ENOENT;
	other = smhold_find(f, port);
	if (other != NULL && !smhold_is_over(other))
		return -EBUSY;
	if (other != NULL)
		smhold_end(other);
	err = smhold_add(p, port, fd);
	if (err == 0)
		smhold_set(f, port, true);
	return err;
}

void smhold_leave(struct proc *p)
{
	list_for_each_safe(h, &p->daemon->fabric->sms, struct smhold, node) {
		if (h->proc != p)
			continue;
		/* the next node hears of it again */
		if (p->daemon->ending)
			smhold_free(h);
		else
			smhold_end(h);
	}
}
