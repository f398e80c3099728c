/* domain.c: names of XRC domains as read locks that end with their process.
 * In:    a device and a file                Out: locks on the slots file, numbers
 * Runs:  any thread that may sleep          Locks: domain_table.lock, then bind_table.lock
 */
#include "node/domain.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/fork.h"
#include "base/log.h"
#include "node/bind.h"

enum {
	DOMAIN_BITS = 61,
	DOMAIN_TRIES = 200, /* a creator holds the write lock for two system calls */
};

static struct domain_table {
	struct lock lock;
	bool ready GUARDED_BY(lock);
	struct list_head open GUARDED_BY(lock); /* struct node_domain */
} domain_table;

/* Mixes one word in (splitmix64's finalizer over the sum). */
static u64 domain_mix(u64 state, u64 word)
{
	u64 x = state + word + 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static u64 domain_name(const struct node_domain_file *file)
{
	u64 name = domain_mix(domain_mix(domain_mix(0, file->device), file->dev), file->ino);

	return name & ((1ull << DOMAIN_BITS) - 1);
}

u64 node_domain_number(const struct node_domain *d)
{
	return 1ull << DOMAIN_BITS | d->name;
}

/* Another process has the domain, or is about to. */
static int domain_join(u64 name, bool create)
{
	int err = -EADDRINUSE;

	for (int i = 0; err == -EADDRINUSE && i < DOMAIN_TRIES; i++) {
		if (i > 0)
			clock_sleep_ns(NS_PER_MS);
		err = bind_name_lock(F_RDLCK, name);
	}
	/* The other one may have closed it meanwhile. */
	if (err == 0 && !create && !bind_name_is_held(name)) {
		(void)bind_name_lock(F_UNLCK, name);
		return -EAGAIN;
	}
	return err;
}

static int domain_take(u64 name, bool create, bool exclusive)
{
	int err;

	if (!create)
		return bind_name_is_held(name) ? domain_join(name, create) : -EAGAIN;
	err = bind_name_lock(F_WRLCK, name);
	if (err == 0)
		return bind_name_lock(F_RDLCK, name);
	if (err == -EADDRINUSE)
		return exclusive ? -EINVAL : domain_join(name, create);
	return err;
}

int node_domain_open(struct node_domain *d, const struct node_domain_file *file, bool create,
		     bool exclusive)
{
	int fd = fd_own_copy(file->fd), err;

	if (fd < 0)
		return -errno;
	lock_acquire(&domain_table.lock);
	if (!domain_table.ready)
		list_init(&domain_table.open);
	domain_table.ready = true;
	d->name = domain_name(file);
	d->fd = fd;
	err = domain_take(d->name, create, exclusive);
	if (err == 0)
		list_push_back(&domain_table.open, &d->node);
	lock_release(&domain_table.lock);
	if (err != 0)
		close(fd);
	return err;
}

void node_domain_close(struct node_domain *d)
{
	lock_acquire(&domain_table.lock);
	list_remove(&d->node);
	(void)bind_name_lock(F_UNLCK, d->name);
	lock_release(&domain_table.lock);
	close(d->fd);
}

void domain_renew(void)
{
	lock_acquire(&domain_table.lock);
	if (domain_table.ready)
		list_for_each(d, &domain_table.open, struct node_domain, node)
			if (bind_name_lock(F_RDLCK, d->name) < 0)
				log_warn("node", "an XRC domain is no longer shared");
	lock_release(&domain_table.lock);
}

/* The child has the domains that its parent had, from its own attachment on. */
static void domain_mend(void) NO_THREAD_SAFETY
{
	if (domain_table.ready)
		list_mend(&domain_table.open);
}
FORK_MAKES_ANEW(FORK_DOMAINS, &domain_table.lock, .child = domain_mend);
