/* cancel.c: threads of the program that are cancelled in a call of ours.
 * In: pthread_cancel(), pthread_setcanceltype()    Out: threads that end and leave nothing held
 * Runs: any thread    Locks: none
 *
 * A call that may block is a cancellation point, as the C library's is: when it begins (call_begin)
 * and while it sleeps in the rsocket. What it holds it gives back by CLEANUP. In all other calls
 * cancellation is disabled (QUIET).
 *
 * With the asynchronous type a thread could end at any instruction, with a lock of librdmacm's
 * held. So the calls defer it: pthread_setcanceltype() is the shim's, and remembers what the
 * program has chosen. A thread that never chooses pays one look at cancel_async.
 */
#include <pthread.h>

#include "rsockets.h"

NEXT_SLOT(pthread_setcanceltype);

__thread bool cancel_async;

__attribute__((constructor)) static void cancel_resolve(void)
{
	NEXT_RESOLVE(pthread_setcanceltype);
}

/* The order: whenever the type is asynchronous, `cancel_async` says so. */
static int cancel_type(int type, int *old)
{
	bool before = cancel_async;
	int err;

	if (type == PTHREAD_CANCEL_ASYNCHRONOUS)
		cancel_async = true;
	err = NEXT(pthread_setcanceltype)(type, old);
	if (err != 0)
		cancel_async = before;
	else if (type != PTHREAD_CANCEL_ASYNCHRONOUS)
		cancel_async = false;
	return err;
}

AV_EXPORT int pthread_setcanceltype(int type, int *old)
{
	return cancel_type(type, old);
}

bool cancel_defer(void)
{
	(void)cancel_type(PTHREAD_CANCEL_DEFERRED, NULL);
	return true;
}

void cancel_restore(void)
{
	(void)cancel_type(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
}

int quiet_begin(void)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	return state;
}

void quiet_end(const int *state)
{
	pthread_setcancelstate(*state, NULL);
}
