/* file.c: files: open, close, what becomes of them when their device goes, and in a forked child.
 * In:    the program; the midlayer's devices    Out: files
 * Runs:  the program's threads; whoever removes a device    Locks: umad_table.lock, not held with a
 * file's; `held` keeps a file while its device is being removed
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fork.h"
#include "core/uverbs.h"
#include "umad/umad_priv.h"

static struct {
	struct lock lock;
	struct list_head files GUARDED_BY(lock);
	const struct umad_file *ending GUARDED_BY(lock); /* whose device goes, by another thread */
	struct cond ended GUARDED_BY(lock);
	struct lock joining ACQUIRED_BEFORE(lock); /* across the client's registration */
	bool joined GUARDED_BY(joining);	   /* the midlayer tells of devices */
} umad_table = { .files = LIST_HEAD_INIT(umad_table.files) };

/* ---- removal --------------------------------------------------------------------------------- */

/* Calls fail from now on, and the descriptor is readable for good. */
void umad_file_shut(struct umad_file *f)
{
	lock_acquire(&f->lock);
	f->dead = true;
	umad_queue_clear(f);
	umad_queue_tell(f);
	lock_release(&f->lock);
}

/* What the file has of its device. */
static void umad_file_release(struct umad_file *f)
{
	umad_agents_end(f);
	umad_ah_forget(f);
	if (f->pd != NULL)
		ib_dealloc_pd(f->pd);
	f->pd = NULL;
}

/* A file of the device that is not dead yet, kept from closing until umad_table_let_go. */
static struct umad_file *umad_table_find(const struct ib_device *device)
{
	struct umad_file *found = NULL;

	lock_acquire(&umad_table.lock);
	list_for_each(f, &umad_table.files, struct umad_file, node)
		if (f->device == device && f->pd != NULL && found == NULL)
			found = f;
	umad_table.ending = found;
	lock_release(&umad_table.lock);
	return found;
}

static void umad_table_let_go(void)
{
	lock_acquire(&umad_table.lock);
	umad_table.ending = NULL;
	cond_wake(&umad_table.ended);
	lock_release(&umad_table.lock);
}

/* The client's data of a device that is there: any pointer. */
static void umad_on_add(struct ib_device *device);
static void umad_on_remove(struct ib_device *device);

static struct ib_client umad_client = { .name = "umad",
					.add = umad_on_add,
					.remove = umad_on_remove };

static void umad_on_add(struct ib_device *device)
{
	ib_set_client_data(device, &umad_client, &umad_table);
}

static void umad_on_remove(struct ib_device *device)
{
	struct umad_file *f;

	/* from here on no file of the device joins the table */
	lock_acquire(&umad_table.lock);
	ib_set_client_data(device, &umad_client, NULL);
	lock_release(&umad_table.lock);
	while ((f = umad_table_find(device)) != NULL) {
		umad_file_shut(f);
		umad_file_release(f);
		umad_table_let_go();
	}
}

/* ---- fork ------------------------------------------------------------------------------------ */

/* The child has the number of the descriptor, and nothing behind it: agents and what they have
 * received are the parent's. */
static void umad_file_drop(struct atfork_watch *w) NO_THREAD_SAFETY /* the only thread */
{
	struct umad_file *f = container_of(w, struct umad_file, watch);

	lock_init(&f->lock);
	list_init(&f->node);
	list_init(&f->sends);
	list_init(&f->waiting);
	f->waiting_mads = 0;
	f->calm = (struct cond){ 0 };
	memset(f->agents, 0, sizeof(f->agents));
	f->way = NULL;
	f->pd = NULL;
	f->dead = f->told = true;
	ready_fd_renew(&f->ready_fd, 1);
}

static void umad_table_drop(void) NO_THREAD_SAFETY /* the only thread */
{
	umad_table.ending = NULL;
	umad_table.ended = (struct cond){ 0 };
	list_init(&umad_table.files);
}
FORK_TAKES(FORK_UMAD, &umad_table.lock, .child = umad_table_drop);

static void umad_joining_drop(void) NO_THREAD_SAFETY
{
	umad_table.joined = false;
}
FORK_MAKES_ANEW(FORK_UMAD_JOINING, &umad_table.joining, .child = umad_joining_drop);

static int umad_table_join(void)
{
	int err = 0;

	lock_acquire(&umad_table.joining);
	if (!umad_table.joined)
		err = ib_register_client(&umad_client);
	umad_table.joined = umad_table.joined || err == 0;
	lock_release(&umad_table.joining);
	return err;
}

/* ---- open and close -------------------------------------------------------------------------- */

/* Not yet visible to other threads. */
static int umad_file_begin(struct umad_file *f) NO_THREAD_SAFETY
{
	int err;

	list_init(&f->node);
	list_init(&f->sends);
	list_init(&f->waiting);
	for (u32 i = 0; i < UMAD_AGENTS; i++)
		f->agents[i].file = f;
	f->pd = ib_alloc_pd(f->device);
	if (IS_ERR(f->pd))
		return (int)PTR_ERR(f->pd);
	err = ready_fd_open(&f->ready_fd);
	if (err == 0) {
		err = atfork_watch_add(&f->watch, umad_file_drop);
		if (err == 0)
			return 0;
		ready_fd_close(&f->ready_fd);
	}
	ib_dealloc_pd(f->pd);
	return err;
}

/* False: the device is about to go. */
static bool umad_table_add(struct umad_file *f)
{
	bool there;

	lock_acquire(&umad_table.lock);
	there = ib_get_client_data(f->device, &umad_client) != NULL;
	if (there)
		list_push_back(&umad_table.files, &f->node);
	lock_release(&umad_table.lock);
	return there;
}

/* The device is held. */
static int umad_file_make(struct ib_device *device, u8 port_num, struct umad_file **out)
{
	struct umad_file *f;
	int err;

	if (port_num < 1 || port_num > device->phys_port_cnt)
		return -EINVAL;
	err = umad_table_join();
	if (err != 0)
		return err;
	f = calloc(1, sizeof(*f));
	if (f == NULL)
		return -ENOMEM;
	f->device = device;
	f->port_num = port_num;
	err = umad_file_begin(f);
	if (err != 0) {
		free(f);
		return err;
	}
	if (!umad_table_add(f)) {
		umad_file_close(f);
		return -ENODEV;
	}
	*out = f;
	return 0;
}

int umad_file_open(const char *name, u8 port_num, struct umad_file **out)
{
	struct ib_device **list = NULL;
	int n = ib_uverbs_get_devices(&list), err = -ENODEV;

	if (n < 0)
		return n;
	for (int i = 0; i < n; i++)
		if (err == -ENODEV && strcmp(list[i]->name, name) == 0)
			err = umad_file_make(list[i], port_num, out);
	ib_uverbs_put_devices(list);
	return err;
}

static int umad_device_open_sm(struct ib_device *device, u8 port_num)
{
	if (port_num < 1 || port_num > device->phys_port_cnt)
		return -EINVAL;
	if (device->uverbs == NULL || device->uverbs->open_sm == NULL)
		return -ENXIO;
	return device->uverbs->open_sm(device, port_num);
}

int umad_open_sm(const char *name, u8 port_num)
{
	struct ib_device **list = NULL;
	int n = ib_uverbs_get_devices(&list), fd = -ENODEV;

	if (n < 0)
		return n;
	for (int i = 0; i < n; i++)
		if (fd == -ENODEV && strcmp(list[i]->name, name) == 0)
			fd = umad_device_open_sm(list[i], port_num);
	ib_uverbs_put_devices(list);
	return fd;
}

void umad_file_close(struct umad_file *f)
{
	lock_acquire(&umad_table.lock);
	while (umad_table.ending == f)
		cond_wait(&umad_table.ended, &umad_table.lock);
	list_remove(&f->node);
	lock_release(&umad_table.lock);
	umad_file_shut(f);
	umad_file_release(f);
	atfork_watch_remove(&f->watch);
	ready_fd_close(&f->ready_fd);
	free(f);
}

int umad_file_fd(const struct umad_file *f)
{
	return f->ready_fd.fd;
}
