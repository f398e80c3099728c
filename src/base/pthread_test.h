/* pthread_test.h: a pthread_create in front of the C library's, which refuses or is slow on demand.
 * The test that includes it has no other.
 */
#ifndef BASE_PTHREAD_TEST_H
#define BASE_PTHREAD_TEST_H

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

enum { PTHREAD_SLOW_US = 100000 };

static bool pthread_refused; /* the system's answer to the next threads */
static bool pthread_slow;    /* the next thread runs a while before its creator goes on */

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
	int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	int err;

	if (pthread_refused)
		return EAGAIN;
	*(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
	err = next(thread, attr, fn, arg);
	if (__atomic_exchange_n(&pthread_slow, false, __ATOMIC_RELAXED))
		usleep(PTHREAD_SLOW_US);
	return err;
}

#endif
