/* neighbour.c: the neighbours that are known, in a table of fixed size.
 *
 * An entry is valid until the kernel tells of a change. Changes are read before the table is looked
 * at, so that no thread waits for them. Without a watch nothing is kept.
 * In:    interface and address       Out: MACs
 * Runs:  any thread                  Locks: addr_instance.lock
 */
#include <errno.h>
#include <string.h>

#include "addr/addr.h"

static struct host_neighbour *addr_neighbour_slot(struct addr_instance *a, u32 ifindex,
						  const u8 gid[16]) REQUIRES(&a->lock)
{
	u32 hash = ifindex * 0x9e3779b1u;

	for (u32 i = 0; i < 16; i++)
		hash = (hash ^ gid[i]) * 0x01000193u;
	return &a->neighbours[(hash >> 16) % ADDR_NEIGHBOURS];
}

static bool addr_neighbour_is(const struct host_neighbour *n, u32 ifindex, const u8 gid[16])
{
	return n->ifindex == ifindex && memcmp(n->gid, gid, 16) == 0;
}

/* What changed is forgotten, and asked for again by whoever needs it. */
static void addr_neighbour_changed(const struct host_change *c, void *context) NO_THREAD_SAFETY
{
	struct addr_instance *a = context; /* whose lock addr_neighbour_refresh has */
	struct host_neighbour *slot;

	if (c->kind == HOST_CHANGE_ALL) {
		memset(a->neighbours, 0, sizeof(a->neighbours));
		return;
	}
	slot = addr_neighbour_slot(a, c->neighbour.ifindex, c->neighbour.gid);
	if (!addr_neighbour_is(slot, c->neighbour.ifindex, c->neighbour.gid))
		return;
	if (c->neighbour.valid)
		*slot = c->neighbour;
	else
		slot->ifindex = 0;
}

static void addr_neighbour_refresh(struct addr_instance *a) REQUIRES(&a->lock)
{
	if (!a->watch_tried)
		(void)a->ops->watch_open(&a->watch);
	a->watch_tried = true;
	if (a->watch.fd < 0 || a->ops->watch_read(&a->watch, addr_neighbour_changed, a))
		return;
	memset(a->neighbours, 0, sizeof(a->neighbours));
	a->watch_tried = false;
}

static bool addr_neighbour_known(struct addr_instance *a, u32 ifindex, const u8 gid[16],
				 u8 out[HOST_LINK_ADDRESS])
{
	const struct host_neighbour *slot;
	bool known;

	lock_acquire(&a->lock);
	addr_neighbour_refresh(a);
	slot = addr_neighbour_slot(a, ifindex, gid);
	known = addr_neighbour_is(slot, ifindex, gid);
	if (known)
		memcpy(out, slot->address, HOST_LINK_ADDRESS);
	lock_release(&a->lock);
	return known;
}

/* A change that comes between the answer and this waits at the watch, and is read before the entry
 * is used. */
static void addr_neighbour_keep(struct addr_instance *a, const struct host_neighbour *n)
{
	lock_acquire(&a->lock);
	if (a->watch.fd >= 0)
		*addr_neighbour_slot(a, n->ifindex, n->gid) = *n;
	lock_release(&a->lock);
}

int addr_neighbour(struct addr_instance *a, u32 ifindex, const u8 gid[16],
		   u8 out[HOST_LINK_ADDRESS])
{
	struct host_neighbour n;
	int err;

	if (addr_neighbour_known(a, ifindex, gid, out))
		return 0;
	err = a->ops->neighbour(ifindex, gid, &n);
	if (err == 0 && n.valid) {
		n.ifindex = ifindex;
		memcpy(n.gid, gid, sizeof(n.gid));
		addr_neighbour_keep(a, &n);
		memcpy(out, n.address, HOST_LINK_ADDRESS);
		return 0;
	}
	if (err != 0 && err != -ENOENT)
		return err;
	err = a->ops->probe(ifindex, gid);
	if (err == -EPERM || err == -EACCES) /* a firewall's: the neighbour may answer others */
		return -EOPNOTSUPP;
	return err == -EMFILE || err == -ENFILE ? err : -ENODATA;
}
