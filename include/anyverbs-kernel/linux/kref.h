/* kref.h: references to an object, whose last put calls its release. Orders and warnings are those
 * of refcount.h. What a release may do, its kref_put may. */
#ifndef ANYVERBS_LINUX_KREF_H
#define ANYVERBS_LINUX_KREF_H

#include <linux/kernel.h>
#include <linux/refcount.h>

struct kref {
	refcount_t refcount;
};

#define KREF_INIT(n) { REFCOUNT_INIT(n) }

/* One reference, the caller's. */
static inline void kref_init(struct kref *kref)
{
	refcount_set(&kref->refcount, 1);
}

static inline unsigned int kref_read(const struct kref *kref)
{
	return refcount_read(&kref->refcount);
}

/* By somebody who has a reference. */
static inline void kref_get(struct kref *kref)
{
	refcount_inc(&kref->refcount);
}

/* By anybody; false: the object is going. */
static inline __must_check int kref_get_unless_zero(struct kref *kref)
{
	return refcount_inc_not_zero(&kref->refcount);
}

/* 1: it was the last, and `release` has returned. */
static inline int kref_put(struct kref *kref, void (*release)(struct kref *kref))
{
	if (!refcount_dec_and_test(&kref->refcount))
		return 0;
	release(kref);
	return 1;
}

/* `release` runs with the lock held, and unlocks it. */
static inline int kref_put_lock(struct kref *kref, void (*release)(struct kref *kref),
				spinlock_t *lock)
{
	if (!refcount_dec_and_lock(&kref->refcount, lock))
		return 0;
	release(kref);
	return 1;
}

static inline int kref_put_mutex(struct kref *kref, void (*release)(struct kref *kref),
				 struct mutex *lock)
{
	if (!refcount_dec_and_mutex_lock(&kref->refcount, lock))
		return 0;
	release(kref);
	return 1;
}

#endif
