/* family.c: what the contexts of one opened device share after an import: the device, and the
 * numbers of their domains and regions.
 * In: descriptors that name a family by their inode, objects with handles
 * Out: the family of a descriptor, the object of a number
 * Runs: the application's threads
 * Locks: family_lock (which families there are) > door_family.lock (handles)
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/list.h"
#include "door.h"

struct door_family {
	struct list_head node OWNED_BY(family_lock);
	struct door_device *device FIXED;
	dev_t dev FIXED; /* with ino: whom the descriptor names, also after dup() */
	ino_t ino FIXED;
	int refs OWNED_BY(family_lock); /* contexts */
	struct lock lock;
	struct list_head handles GUARDED_BY(lock);
	u32 last_number ATOMIC_ONLY;
};

static struct lock family_lock;
static struct list_head family_known GUARDED_BY(family_lock) = LIST_HEAD_INIT(family_known);
static pthread_once_t family_once = PTHREAD_ONCE_INIT;

/* A fork must not freeze the list while another thread changes it. */
static void family_fork_prepare(void) NO_THREAD_SAFETY
{
	lock_acquire(&family_lock);
}

static void family_fork_done(void) NO_THREAD_SAFETY
{
	lock_release(&family_lock);
}

static void family_watch_fork(void)
{
	pthread_atfork(family_fork_prepare, family_fork_done, family_fork_done);
}

struct door_family *family_create(struct door_device *device, int fd)
{
	struct door_family *f;
	struct stat st;

	pthread_once(&family_once, family_watch_fork);
	f = fstat(fd, &st) ? NULL : calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	device_get(device);
	f->device = device;
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	f->refs = 1;
	list_init(&f->handles);
	lock_acquire(&family_lock);
	list_push_back(&family_known, &f->node);
	lock_release(&family_lock);
	return f;
}

struct door_family *family_find(int fd)
{
	struct door_family *found = NULL;
	struct stat st;

	if (fstat(fd, &st))
		return NULL;
	lock_acquire(&family_lock);
	list_for_each(f, &family_known, struct door_family, node)
		if (f->dev == st.st_dev && f->ino == st.st_ino)
			found = f;
	if (found)
		found->refs++;
	lock_release(&family_lock);
	return found;
}

void family_put(struct door_family *f)
{
	bool last;

	lock_acquire(&family_lock);
	last = --f->refs == 0;
	if (last)
		list_remove(&f->node);
	lock_release(&family_lock);
	if (!last)
		return;
	device_put(f->device);
	free(f);
}

struct door_device *family_device(struct door_family *f)
{
	return f->device;
}

u32 family_new_number(struct door_family *f)
{
	return __atomic_add_fetch(&f->last_number, 1, __ATOMIC_RELAXED);
}

void family_add(struct door_family *f, struct door_handle *h)
{
	lock_acquire(&f->lock);
	list_init(&h->copies);
	list_push_back(&f->handles, &h->node);
	lock_release(&f->lock);
}

void *family_share(struct door_family *f, enum door_handle_kind kind, u32 number, bool holds,
		   struct door_handle *copy)
{
	void *object = NULL;

	lock_acquire(&f->lock);
	list_for_each(h, &f->handles, struct door_handle, node) {
		if (h->kind != kind || h->number != number || h->gone)
			continue;
		object = h->object;
		*copy = (struct door_handle){
			.kind = kind, .number = number, .holds = holds, .object = object
		};
		list_push_back(&h->copies, &copy->copies);
		list_push_back(&f->handles, &copy->node);
		break;
	}
	lock_release(&f->lock);
	return object;
}

bool family_is_held(struct door_family *f, struct door_handle *h)
{
	bool held = false;

	lock_acquire(&f->lock);
	list_for_each(other, &h->copies, struct door_handle, copies)
		held |= other->holds;
	lock_release(&f->lock);
	return held;
}

void family_remove(struct door_family *f, struct door_handle *h, bool destroyed)
{
	lock_acquire(&f->lock);
	list_remove(&h->node);
	if (destroyed)
		list_for_each(other, &h->copies, struct door_handle, copies)
			other->gone = true;
	list_remove(&h->copies);
	lock_release(&f->lock);
}
