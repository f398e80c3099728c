/* refcount.h: reference counts. A count that would go wrong (up from 0, below 0, over) warns and
 * stays saturated: the object is leaked rather than used after its end. None of this blocks.
 *
 * An increment is relaxed, a decrement a release, and the last one an acquire: what was done under
 * any reference is visible to the thread that frees.
 */
#ifndef ANYVERBS_LINUX_REFCOUNT_H
#define ANYVERBS_LINUX_REFCOUNT_H

#include <linux/atomic.h>
#include <linux/bug.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>

typedef struct refcount_struct {
	atomic_t refs;
} refcount_t;

#define REFCOUNT_INIT(n) { ATOMIC_INIT(n) }
#define REFCOUNT_SATURATED (INT32_MIN / 2)

static inline void refcount_set(refcount_t *r, int n)
{
	atomic_set(&r->refs, n);
}

static inline unsigned int refcount_read(const refcount_t *r)
{
	return (unsigned int)atomic_read(&r->refs);
}

static inline void anyverbs_refcount_judge(refcount_t *r, int old, int n)
{
	if (WARN_ONCE(old <= 0 || old + n < 0, KERN_CONT "refcount: %d from %d\n", n, old))
		atomic_set(&r->refs, REFCOUNT_SATURATED);
}

static inline void refcount_add(int n, refcount_t *r)
{
	anyverbs_refcount_judge(r, __atomic_fetch_add(&r->refs.counter, n, __ATOMIC_RELAXED), n);
}

static inline void refcount_inc(refcount_t *r)
{
	refcount_add(1, r);
}

/* False, and nothing is changed, if there is no reference any more. */
static inline __must_check bool refcount_inc_not_zero(refcount_t *r)
{
	return atomic_inc_not_zero(&r->refs);
}

/* Whether those were the last. */
static inline __must_check bool refcount_sub_and_test(int n, refcount_t *r)
{
	int old = __atomic_fetch_sub(&r->refs.counter, n, __ATOMIC_ACQ_REL);

	if (old == n)
		return true;
	anyverbs_refcount_judge(r, old, -n);
	return false;
}

static inline __must_check bool refcount_dec_and_test(refcount_t *r)
{
	return refcount_sub_and_test(1, r);
}

/* Not the last one. */
static inline void refcount_dec(refcount_t *r)
{
	WARN_ON_ONCE(refcount_dec_and_test(r));
}

/* Whether it was the last; then the lock is held. It is not touched else. */
static inline bool anyverbs_refcount_dec_not_one(refcount_t *r)
{
	int old = atomic_read(&r->refs);

	while (old != 1)
		if (atomic_try_cmpxchg(&r->refs, &old, old - 1))
			return true;
	return false;
}

static inline __must_check bool refcount_dec_and_lock(refcount_t *r, spinlock_t *lock)
{
	if (anyverbs_refcount_dec_not_one(r))
		return false;
	spin_lock(lock);
	if (refcount_dec_and_test(r))
		return true;
	spin_unlock(lock);
	return false;
}

/* May sleep. */
static inline __must_check bool refcount_dec_and_mutex_lock(refcount_t *r, struct mutex *lock)
{
	if (anyverbs_refcount_dec_not_one(r))
		return false;
	mutex_lock(lock);
	if (refcount_dec_and_test(r))
		return true;
	mutex_unlock(lock);
	return false;
}

#endif
