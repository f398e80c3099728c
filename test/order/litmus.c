/* litmus.c: flags with fences, a message, a counter under a lock.
 * In: nothing    Out: what a judge says    Runs: under the explorer of memory.c    Locks: its own
 */
#include "litmus.h"

#include "base/lock.h"

static u32 flag[2], saw[2], data, ready, heard;
static struct lock lock;
static u32 count;

/* Each raises its flag and looks at the other's: one of them must see it. */
static void litmus_raise(int i, bool fence)
{
	__atomic_store_n(&flag[i], 1, __ATOMIC_RELAXED);
	if (fence)
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
	saw[i] = __atomic_load_n(&flag[!i], __ATOMIC_RELAXED);
}

void litmus_flag_0(void)
{
	litmus_raise(0, true);
}

void litmus_flag_1(void)
{
	litmus_raise(1, true);
}

void litmus_flag_0_bare(void)
{
	litmus_raise(0, false);
}

const char *litmus_both(void)
{
	return saw[0] == 0 && saw[1] == 0 ? "neither saw the other" : (const char *)0;
}

void litmus_tell(void)
{
	data = 1;
	__atomic_store_n(&ready, 1, __ATOMIC_RELEASE);
}

void litmus_tell_bare(void)
{
	data = 1;
	__atomic_store_n(&ready, 1, __ATOMIC_RELAXED);
}

void litmus_hear(void)
{
	if (__atomic_load_n(&ready, __ATOMIC_ACQUIRE))
		heard = data;
}

void litmus_hear_bare(void)
{
	if (__atomic_load_n(&ready, __ATOMIC_RELAXED))
		heard = data;
}

const char *litmus_heard(void)
{
	return heard > 1 ? "something else was told" : (const char *)0;
}

void litmus_count(void)
{
	lock_acquire(&lock);
	count++;
	lock_release(&lock);
}

void litmus_count_bare(void)
{
	count++;
}

const char *litmus_counted(void)
{
	return count == 2 ? (const char *)0 : "a step is lost";
}

const char *litmus_nothing(void)
{
	return (const char *)0;
}
