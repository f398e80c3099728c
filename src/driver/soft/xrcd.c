/* xrcd.c: XRC domains: of a file, for all processes that open it, or of nobody else.
 * In: verbs    Out: domains with their numbers
 * Runs: any thread that may block    Locks: xrc_domains.lock, then node/domain.c's
 */
#include "driver/soft/soft.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/fork.h"
#include "node/domain.h"

/* A domain of this process, for all handles that have it open. */
struct xrc_domain {
	struct list_head node OWNED_BY(xrc_domains.lock);
	u64 number FIXED; /* what the engine compares; the node's, or one below 2^32 */
	u32 opens OWNED_BY(xrc_domains.lock);
	bool is_named FIXED; /* of the file, on the device */
	const struct ib_device *device FIXED;
	dev_t dev FIXED;
	ino_t ino FIXED;
	int fd FIXED; /* the opener's, while it opens the domain */
	struct node_domain shared GUARDS_ITSELF; /* of a file */
};

static struct xrc_domains {
	struct lock lock;
	struct list_head named GUARDED_BY(lock);
	u32 last GUARDED_BY(lock); /* number */
} xrc_domains = { .named = LIST_HEAD_INIT(xrc_domains.named) };

/* The child has its parent's domains. */
static void xrcd_mend(void) NO_THREAD_SAFETY
{
	list_mend(&xrc_domains.named);
}
FORK_MAKES_ANEW(FORK_XRC_DOMAINS, &xrc_domains.lock, .child = xrcd_mend);

static struct xrc_domain *xrcd_find(const struct xrc_domain *wanted) REQUIRES(xrc_domains.lock)
{
	list_for_each(d, &xrc_domains.named, struct xrc_domain, node)
		if (d->device == wanted->device && d->dev == wanted->dev && d->ino == wanted->ino)
			return d;
	return NULL;
}

/* The first of this process. */
static int xrcd_share(struct xrc_domain *d, int oflags) REQUIRES(xrc_domains.lock)
{
	const struct node_domain_file file = { .device = be64toh(d->device->node_guid),
					       .dev = d->dev,
					       .ino = d->ino,
					       .fd = d->fd };
	int err = node_domain_open(&d->shared, &file, (oflags & O_CREAT) != 0,
				   (oflags & O_EXCL) != 0);

	if (err != 0)
		return err;
	d->number = node_domain_number(&d->shared);
	list_push_back(&xrc_domains.named, &d->node);
	return 0;
}

static int xrcd_make(const struct xrc_domain *wanted, int oflags, struct xrc_domain **out)
	REQUIRES(xrc_domains.lock)
{
	struct xrc_domain *d = malloc(sizeof(*d));
	int err = 0;

	if (d == NULL)
		return -ENOMEM;
	*d = *wanted;
	if (d->is_named)
		err = xrcd_share(d, oflags);
	else
		d->number = ++xrc_domains.last;
	if (err != 0)
		free(d);
	else
		*out = d;
	return err;
}

/* 0, or a negative errno; *out is open once more. */
static int xrcd_enter(const struct xrc_domain *wanted, int oflags, struct xrc_domain **out)
	REQUIRES(xrc_domains.lock)
{
	struct xrc_domain *d = wanted->is_named ? xrcd_find(wanted) : NULL;
	int err = 0;

	if (d != NULL && (oflags & O_EXCL) != 0)
		return -EINVAL;
	if (d == NULL)
		err = xrcd_make(wanted, oflags, &d);
	if (err != 0)
		return err;
	d->opens++;
	*out = d;
	return 0;
}

static void xrcd_leave(struct xrc_domain *d)
{
	bool last;

	lock_acquire(&xrc_domains.lock);
	last = --d->opens == 0;
	if (last && d->is_named) {
		list_remove(&d->node);
		node_domain_close(&d->shared);
	}
	lock_release(&xrc_domains.lock);
	if (last)
		free(d);
}

static int xrcd_name(const struct ib_device *ib, int fd, struct xrc_domain *wanted)
{
	struct stat st;

	*wanted = (struct xrc_domain){ .device = ib, .is_named = fd != -1, .fd = fd };
	if (fd == -1)
		return 0;
	if (fstat(fd, &st) != 0)
		return -errno;
	wanted->dev = st.st_dev;
	wanted->ino = st.st_ino;
	return 0;
}

struct ib_xrcd *soft_open_xrcd(struct ib_device *ib, const struct ib_xrcd_init_attr *attr)
{
	struct soft_device *dev = soft_dev(ib);
	struct soft_xrcd *xrcd = NULL;
	struct xrc_domain wanted;
	int err = soft_attach(dev);

	if (err == 0)
		err = xrcd_name(ib, attr->fd, &wanted);
	if (err != 0)
		return ERR_PTR(err);
	err = -ENOMEM;
	if (__atomic_add_fetch(&dev->xrcd_count, 1, __ATOMIC_RELAXED) <= SOFT_MAX_XRCD)
		xrcd = calloc(1, sizeof(*xrcd));
	if (xrcd != NULL) {
		lock_acquire(&xrc_domains.lock);
		err = xrcd_enter(&wanted, attr->oflags, &xrcd->domain);
		lock_release(&xrc_domains.lock);
	}
	if (err == 0) {
		xrcd->ib.number = xrcd->domain->number;
		return &xrcd->ib;
	}
	free(xrcd);
	__atomic_sub_fetch(&dev->xrcd_count, 1, __ATOMIC_RELAXED);
	return ERR_PTR(err);
}

int soft_close_xrcd(struct ib_xrcd *ib)
{
	struct soft_xrcd *xrcd = SOFT_OF(xrcd, ib);

	xrcd_leave(xrcd->domain);
	__atomic_sub_fetch(&soft_dev(ib->device)->xrcd_count, 1, __ATOMIC_RELAXED);
	free(xrcd);
	return 0;
}
