/* ucontext.c: ucontexts and their tables of handles.
 * In: descriptors that name a ucontext by their inode, objects
 * Out: the ucontext of a descriptor, the object of a handle
 * Runs: the application's threads
 * Locks: ucontext_lock (which ucontexts exist) > ib_ucontext.lock (the table)
 */
#include <stdlib.h>
#include <sys/stat.h>

#include "base/fork.h"
#include "core/ucontext.h"

enum { UCONTEXT_BUCKETS = 64 }; /* to begin with */

struct ib_ucontext {
	struct list_head node OWNED_BY(ucontext_lock);
	void *owner FIXED;
	void (*release)(void *owner) FIXED;
	/* with ino: identifies the open file, also after dup(); both 0: its descriptor is closed */
	dev_t dev OWNED_BY(ucontext_lock);
	ino_t ino OWNED_BY(ucontext_lock);
	int refs OWNED_BY(ucontext_lock); /* contexts */
	struct lock lock;
	/* A hash table by handle: chains by ib_uobject.next */
	struct ib_uobject **buckets GUARDED_BY(lock);
	u32 bucket_count GUARDED_BY(lock); /* a power of two */
	u32 uobject_count GUARDED_BY(lock);
	u32 last_handle ATOMIC_ONLY;
};

static struct lock ucontext_lock;
static struct list_head ucontext_known
	GUARDED_BY(ucontext_lock) = LIST_HEAD_INIT(ucontext_known);

/* The child goes on with its parent's handles. The analysis cannot follow as many locks as there
 * are ucontexts. */
static void ucontext_lock_tables(void) NO_THREAD_SAFETY
{
	list_for_each(u, &ucontext_known, struct ib_ucontext, node)
		lock_acquire(&u->lock);
}

static void ucontext_unlock_tables(void) NO_THREAD_SAFETY
{
	list_for_each(u, &ucontext_known, struct ib_ucontext, node)
		lock_release(&u->lock);
}
FORK_TAKES(FORK_UCONTEXTS, &ucontext_lock, .before = ucontext_lock_tables,
	   .after = ucontext_unlock_tables, .child = ucontext_unlock_tables);

static struct ib_ucontext *ucontext_make(int fd, u32 last_handle, void *owner,
					 void (*release)(void *owner))
	NO_THREAD_SAFETY /* nobody else has it yet */
{
	struct ib_ucontext *u;
	struct stat st;

	u = fstat(fd, &st) ? NULL : calloc(1, sizeof(*u));
	if (!u)
		return NULL;
	u->bucket_count = UCONTEXT_BUCKETS;
	u->buckets = calloc(u->bucket_count, sizeof(struct ib_uobject *));
	if (!u->buckets) {
		free(u);
		return NULL;
	}
	u->owner = owner;
	u->release = release;
	u->last_handle = last_handle;
	u->dev = st.st_dev;
	u->ino = st.st_ino;
	u->refs = 1;
	return u;
}

static void ucontext_free(struct ib_ucontext *u) NO_THREAD_SAFETY /* nobody else has it */
{
	u->release(u->owner);
	free(u->buckets);
	free(u);
}

struct ib_ucontext *ib_ucontext_create(int fd, void *owner, void (*release)(void *owner))
{
	struct ib_ucontext *u = ucontext_make(fd, 0, owner, release);

	if (!u)
		return NULL;
	lock_acquire(&ucontext_lock);
	list_push_back(&ucontext_known, &u->node);
	lock_release(&ucontext_lock);
	return u;
}

/* With one more reference; NULL: none. */
static struct ib_ucontext *ucontext_get(dev_t dev, ino_t ino) REQUIRES(ucontext_lock)
{
	struct ib_ucontext *found = NULL;

	list_for_each(u, &ucontext_known, struct ib_ucontext, node)
		if (u->dev == dev && u->ino == ino)
			found = u;
	if (found)
		found->refs++;
	return found;
}

struct ib_ucontext *ib_ucontext_import(int fd, void *owner, void (*release)(void *owner))
{
	struct ib_ucontext *u = ucontext_make(fd, IB_UCONTEXT_OWN_HANDLES, owner, release);
	struct ib_ucontext *first;

	if (!u)
		return NULL;
	lock_acquire(&ucontext_lock);
	first = ucontext_get(u->dev, u->ino);
	if (!first)
		list_push_back(&ucontext_known, &u->node);
	lock_release(&ucontext_lock);
	if (!first)
		return u;
	ucontext_free(u);
	return first;
}

struct ib_ucontext *ib_ucontext_find(int fd)
{
	struct ib_ucontext *found;
	struct stat st;

	if (fstat(fd, &st))
		return NULL;
	lock_acquire(&ucontext_lock);
	found = ucontext_get(st.st_dev, st.st_ino);
	lock_release(&ucontext_lock);
	return found;
}

void ib_ucontext_put(struct ib_ucontext *u)
{
	bool last;

	lock_acquire(&ucontext_lock);
	last = --u->refs == 0;
	if (last)
		list_remove(&u->node);
	lock_release(&ucontext_lock);
	if (last)
		ucontext_free(u);
}

void ib_ucontext_unname(struct ib_ucontext *u)
{
	lock_acquire(&ucontext_lock);
	u->dev = 0;
	u->ino = 0;
	lock_release(&ucontext_lock);
}

void *ib_ucontext_owner(const struct ib_ucontext *u)
{
	return u->owner;
}

u32 ib_ucontext_new_handle(struct ib_ucontext *u)
{
	return __atomic_add_fetch(&u->last_handle, 1, __ATOMIC_RELAXED);
}

static struct ib_uobject **uobject_chain(struct ib_ucontext *u, u32 handle) REQUIRES(u->lock)
{
	return &u->buckets[handle & (u->bucket_count - 1)];
}

static void uobject_insert(struct ib_ucontext *u, struct ib_uobject *uobj) REQUIRES(u->lock)
{
	struct ib_uobject **chain = uobject_chain(u, uobj->handle);

	uobj->next = *chain;
	*chain = uobj;
}

/* Twice as many chains, so that each stays short. Without memory they grow instead. */
static void uobject_grow(struct ib_ucontext *u) REQUIRES(u->lock)
{
	u32 count = u->bucket_count;
	struct ib_uobject **old = u->buckets;
	struct ib_uobject **grown = calloc(2 * (size_t)count, sizeof(struct ib_uobject *));

	if (!grown)
		return;
	u->buckets = grown;
	u->bucket_count = 2 * count;
	for (u32 i = 0; i < count; i++) {
		struct ib_uobject *next;

		for (struct ib_uobject *o = old[i]; o; o = next) {
			next = o->next;
			uobject_insert(u, o);
		}
	}
	free(old);
}

static void uobject_add(struct ib_ucontext *u, struct ib_uobject *uobj) REQUIRES(u->lock)
{
	if (++u->uobject_count > u->bucket_count)
		uobject_grow(u);
	uobject_insert(u, uobj);
}

static void uobject_remove(struct ib_ucontext *u, struct ib_uobject *uobj) REQUIRES(u->lock)
{
	struct ib_uobject **at = uobject_chain(u, uobj->handle);

	while (*at && *at != uobj)
		at = &(*at)->next;
	if (!*at)
		return;
	*at = uobj->next;
	u->uobject_count--;
}

static struct ib_uobject *uobject_find(struct ib_ucontext *u, enum ib_uobject_kind kind,
				       u32 handle) REQUIRES(u->lock)
{
	struct ib_uobject *o = *uobject_chain(u, handle);

	while (o && (o->kind != (u8)kind || o->handle != handle || o->gone))
		o = o->next;
	return o;
}

void ib_uobject_add(struct ib_ucontext *u, struct ib_uobject *uobj, enum ib_uobject_kind kind,
		    void *object)
{
	*uobj = (struct ib_uobject){ .kind = (u8)kind,
				     .handle = ib_ucontext_new_handle(u),
				     .next_hold = uobj,
				     .object = object };
	lock_acquire(&u->lock);
	uobject_add(u, uobj);
	lock_release(&u->lock);
}

bool ib_uobject_stand_in(struct ib_ucontext *u, struct ib_uobject *uobj, enum ib_uobject_kind kind,
			 u32 handle, void *object)
{
	bool first;

	*uobj = (struct ib_uobject){
		.kind = (u8)kind, .handle = handle, .next_hold = uobj, .object = object
	};
	lock_acquire(&u->lock);
	first = uobject_find(u, kind, handle) == NULL;
	if (first)
		uobject_add(u, uobj);
	lock_release(&u->lock);
	return first;
}

void *ib_uobject_share(struct ib_ucontext *u, enum ib_uobject_kind kind, u32 handle, bool blocks,
		       struct ib_uobject *copy)
{
	struct ib_uobject *o;
	void *object = NULL;

	lock_acquire(&u->lock);
	o = uobject_find(u, kind, handle);
	if (o) {
		object = o->object;
		*copy = (struct ib_uobject){ .kind = (u8)kind,
					     .handle = handle,
					     .blocks = blocks,
					     .next_hold = o->next_hold,
					     .object = object };
		o->next_hold = copy;
		uobject_add(u, copy);
	}
	lock_release(&u->lock);
	return object;
}

bool ib_uobject_is_blocked(struct ib_ucontext *u, struct ib_uobject *uobj)
{
	bool blocked = false;

	lock_acquire(&u->lock);
	for (struct ib_uobject *o = uobj->next_hold; o != uobj; o = o->next_hold)
		blocked |= o->blocks;
	lock_release(&u->lock);
	return blocked;
}

void ib_uobject_remove(struct ib_ucontext *u, struct ib_uobject *uobj, bool destroyed)
{
	struct ib_uobject *before = uobj;

	lock_acquire(&u->lock);
	uobject_remove(u, uobj);
	for (; before->next_hold != uobj; before = before->next_hold)
		before->next_hold->gone |= destroyed;
	before->next_hold = uobj->next_hold;
	uobj->next_hold = uobj;
	lock_release(&u->lock);
}

void **ib_uobject_list(struct ib_ucontext *u, enum ib_uobject_kind kind, u32 *count)
{
	void **list;

	*count = 0;
	lock_acquire(&u->lock);
	list = u->uobject_count ? calloc(u->uobject_count, sizeof(*list)) : NULL;
	for (u32 i = 0; list && i < u->bucket_count; i++)
		for (struct ib_uobject *o = u->buckets[i]; o; o = o->next)
			if (o->kind == (u8)kind)
				list[(*count)++] = o->object;
	lock_release(&u->lock);
	return list;
}

static void uobject_each_of(struct ib_ucontext *u, enum ib_uobject_kind kind,
			    void (*fn)(struct ib_uobject *uobj)) REQUIRES(u->lock)
{
	for (u32 i = 0; i < u->bucket_count; i++)
		for (struct ib_uobject *o = u->buckets[i]; o; o = o->next)
			if (o->kind == (u8)kind)
				fn(o);
}

void ib_uobject_each_in_child(enum ib_uobject_kind kind, void (*fn)(struct ib_uobject *uobj))
{
	lock_acquire(&ucontext_lock);
	list_for_each(u, &ucontext_known, struct ib_ucontext, node) {
		lock_acquire(&u->lock);
		uobject_each_of(u, kind, fn);
		lock_release(&u->lock);
	}
	lock_release(&ucontext_lock);
}
