/* device.c: the devices as librdmacm opens them: each once, for the life of the library. One that
 * goes and comes again is another device.
 * In:    libibverbs' list of devices      Out: contexts, domains
 * Runs:  the application's threads        Locks: door_devices.lock, held across opening
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/fork.h"
#include "door.h"

static struct door_devices {
	struct lock lock;
	struct list_head open GUARDED_BY(lock); /* struct door_device */
	bool begun GUARDED_BY(lock);
} door_devices;

/* The child goes on with its parent's contexts. */
static void device_mend(void) NO_THREAD_SAFETY
{
	if (door_devices.begun)
		list_mend(&door_devices.open);
}
FORK_MAKES_ANEW(FORK_DOOR_DEVICES, &door_devices.lock, .child = device_mend);

static void device_begin(void) REQUIRES(door_devices.lock)
{
	if (!door_devices.begun)
		list_init(&door_devices.open);
	door_devices.begun = true;
}

static struct door_device *device_find(u32 number) REQUIRES(door_devices.lock)
{
	list_for_each(d, &door_devices.open, struct door_device, node)
		if (d->number == number)
			return d;
	return NULL;
}

static struct door_device *device_find_opened(const struct ibv_device *ibv)
	REQUIRES(door_devices.lock)
{
	list_for_each(d, &door_devices.open, struct door_device, node)
		if (d->verbs->device == ibv)
			return d;
	return NULL;
}

static u8 device_depth(int most)
{
	return (u8)MIN(most, RDMA_MAX_INIT_DEPTH);
}

static int device_make(struct ibv_device *ibv, struct door_device **out) REQUIRES(door_devices.lock)
{
	struct door_device *d = calloc(1, sizeof(*d));
	struct ibv_device_attr attr;
	int err;

	if (d == NULL)
		return -ENOMEM;
	d->verbs = ibv_open_device(ibv);
	if (d->verbs == NULL) {
		err = errno != 0 ? -errno : -ENODEV;
		free(d);
		return err;
	}
	err = ibv_query_device(d->verbs, &attr);
	if (err != 0) {
		ibv_close_device(d->verbs);
		free(d);
		return -err;
	}
	d->max_initiator_depth = device_depth(attr.max_qp_init_rd_atom);
	d->max_responder_resources = device_depth(attr.max_qp_rd_atom);
	list_push_back(&door_devices.open, &d->node);
	*out = d;
	return 0;
}

static int device_take(struct ibv_device *ibv, struct door_device **out) REQUIRES(door_devices.lock)
{
	struct door_device *d = device_find_opened(ibv);

	if (d == NULL)
		return device_make(ibv, out);
	*out = d;
	return 0;
}

static int device_take_named(const char *name, struct door_device **out)
	REQUIRES(door_devices.lock)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int err = -ENODEV;

	if (list == NULL)
		return -errno;
	for (int i = 0; list[i] != NULL && err == -ENODEV; i++)
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			err = device_take(list[i], out);
	ibv_free_device_list(list);
	return err;
}

int device_open(const char *name, u32 number, struct door_device **out)
{
	struct door_device *d;
	int err = 0;

	lock_acquire(&door_devices.lock);
	device_begin();
	d = device_find(number);
	if (d == NULL)
		err = device_take_named(name, &d);
	if (err == 0)
		d->number = number;
	lock_release(&door_devices.lock);
	if (err == 0)
		*out = d;
	return err;
}

struct ibv_pd *device_pd(struct door_device *d)
{
	struct ibv_pd *pd;

	lock_acquire(&door_devices.lock);
	if (d->pd == NULL)
		d->pd = ibv_alloc_pd(d->verbs);
	pd = d->pd;
	lock_release(&door_devices.lock);
	return pd;
}

struct ibv_xrcd *device_xrcd(struct door_device *d)
{
	struct ibv_xrcd_init_attr attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD |
							IBV_XRCD_INIT_ATTR_OFLAGS,
					   .fd = -1,
					   .oflags = O_CREAT };
	struct ibv_xrcd *xrcd;

	lock_acquire(&door_devices.lock);
	if (d->xrcd == NULL)
		d->xrcd = ibv_open_xrcd(d->verbs, &attr);
	xrcd = d->xrcd;
	lock_release(&door_devices.lock);
	return xrcd;
}

/* Opens what is on libibverbs' list; the contexts, and their number. */
static int device_open_all(struct ibv_device **list, struct ibv_context **out)
{
	struct door_device *d;
	int count = 0;

	lock_acquire(&door_devices.lock);
	device_begin();
	for (int i = 0; list[i] != NULL; i++)
		if (device_take(list[i], &d) == 0)
			out[count++] = d->verbs;
	lock_release(&door_devices.lock);
	return count;
}

AV_EXPORT struct ibv_context **rdma_get_devices(int *num_devices)
{
	struct ibv_context **out = NULL;
	struct ibv_device **list;
	int most = 0, count = 0;

	list = ibv_get_device_list(&most);
	if (list != NULL) {
		out = calloc((size_t)most + 1, sizeof(*out));
		if (out != NULL)
			count = device_open_all(list, out);
		else
			errno = ENOMEM;
		ibv_free_device_list(list);
	}
	if (num_devices != NULL)
		*num_devices = count;
	return out;
}

AV_EXPORT void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}
