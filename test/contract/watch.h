/* watch.h: sees every call that may block, and what locks its thread holds.
 *
 * The program's own read(), poll(), pthread_cond_wait()... stand in front of libc's for every
 * library of the process. The locks of a library built with AV_LOCK_WATCH, and every pthread mutex,
 * are followed per thread. A breach is  - a call that may block, from a *sleepless* thread;  - a
 * call that may block while its thread holds a *short* lock: one that a sleepless thread has
 *    ever taken. So a lock that a sleepless call waits for is never held by one who sleeps.
 * Neither is a matter of time or luck.
 *
 * A thread may also be *parked* at its next call that may block, inside of whatever verb it is in,
 * until the test lets it go on.
 */
#ifndef TEST_CONTRACT_WATCH_H
#define TEST_CONTRACT_WATCH_H

#include <stdbool.h>

/* From here on breaches are counted, in all threads; watch_end gives their number and prints
 * them. */
void watch_begin(void);
int watch_end(void);
/* Calls of this thread seen since watch_begin, of all kinds: a test that sees none proves
 * nothing. */
int watch_seen(void);
/* Whether libanyverbs tells of its locks, as the build for this does. */
bool watch_sees_locks(void);

/* For the calling thread. */
void watch_sleepless(bool on);
/* The calling thread parks at every call that may block, from here to off. */
void watch_parkable(bool on);
/* Waits until a thread is parked or *done; true: parked. */
bool watch_await_parked(const int *done);
/* Lets the parked thread go on, to the next call. */
void watch_unpark(void);

#endif
