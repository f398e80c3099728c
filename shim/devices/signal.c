/* signal.c: sigaction, sigprocmask and their families: SIGSEGV and SIGBUS stay with the stack,
 * which needs them for copies whose memory has gone (docs/faults.md), and the program reads back
 * what it set.
 *
 * In: dispositions and masks of the program    Out: the same without those two signals
 * Runs: any thread, in signal handlers too    Locks: none
 *
 * A fault whose signal is blocked ends the process, so the two are never really blocked, neither in
 * a thread nor by another signal's handler. Once the stack has installed its handlers it keeps the
 * program's dispositions; before that they are the kernel's.
 */
#include <anyverbs/kernel.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "../next.h"

enum { SIGNALS = 65, KEPT_SEGV = 1, KEPT_BUS = 2 };

typedef int fault_sigaction(int number, const struct sigaction *act, struct sigaction *old);

/* The stack calls this when it installs its handlers: `action` keeps the program's dispositions of
 * the two signals. */
AV_EXPORT void anyverbs_preload_faults(fault_sigaction *action);
/* Names of `signal` that headers no longer have. */
AV_EXPORT sighandler_t bsd_signal(int number, sighandler_t handler);
AV_EXPORT sighandler_t __sysv_signal(int number, sighandler_t handler);

/* They exist for programs that still call them. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

NEXT_SLOT(sigaction);
NEXT_SLOT(signal);
NEXT_SLOT(sysv_signal);
NEXT_SLOT(sigset);
NEXT_SLOT(sigignore);
NEXT_SLOT(sighold);
NEXT_SLOT(sigprocmask);
NEXT_SLOT(pthread_sigmask);
NEXT_SLOT(pthread_attr_setsigmask_np);

static fault_sigaction *stack_action;
/* Which of the two the program has blocked in this thread. */
static __thread u8 kept_by_thread;
/* The same for the mask of each signal's handler. */
static u8 kept_by_handler[SIGNALS];

__attribute__((constructor)) static void signal_resolve(void)
{
	NEXT_RESOLVE(sigaction);
	NEXT_RESOLVE(signal);
	NEXT_RESOLVE(sigprocmask);
	NEXT_RESOLVE(pthread_sigmask);
}

AV_EXPORT void anyverbs_preload_faults(fault_sigaction *action)
{
	__atomic_store_n(&stack_action, action, __ATOMIC_RELEASE);
}

static fault_sigaction *signal_keeper(int number)
{
	if (number != SIGSEGV && number != SIGBUS)
		return (fault_sigaction *)0;
	return __atomic_load_n(&stack_action, __ATOMIC_ACQUIRE);
}

/* ---- sets without the two ---- */

static u8 set_take(sigset_t *set)
{
	u8 kept = (u8)((sigismember(set, SIGSEGV) == 1 ? KEPT_SEGV : 0) |
		       (sigismember(set, SIGBUS) == 1 ? KEPT_BUS : 0));

	sigdelset(set, SIGSEGV);
	sigdelset(set, SIGBUS);
	return kept;
}

static void set_give_back(sigset_t *set, u8 kept)
{
	if (kept & KEPT_SEGV)
		sigaddset(set, SIGSEGV);
	if (kept & KEPT_BUS)
		sigaddset(set, SIGBUS);
}

typedef int signal_mask(int how, const sigset_t *set, sigset_t *old);

static int mask_change(signal_mask *next, int how, const sigset_t *set, sigset_t *old)
{
	u8 before = kept_by_thread, kept;
	sigset_t real;
	int err;

	if (set == (void *)0) {
		err = next(how, set, old);
	} else {
		real = *set;
		/* A signal that the kernel blocks around a handler may be unblocked. */
		kept = how == SIG_UNBLOCK ? 0 : set_take(&real);
		err = next(how, &real, old);
		if (err == 0 && how == SIG_UNBLOCK)
			kept_by_thread = before & (u8)~set_take(&real);
		else if (err == 0)
			kept_by_thread = how == SIG_BLOCK ? before | kept : kept;
	}
	if (err == 0 && old != (void *)0)
		set_give_back(old, before);
	return err;
}

AV_EXPORT int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	return mask_change(NEXT(sigprocmask), how, set, old);
}

AV_EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	return mask_change(NEXT(pthread_sigmask), how, set, old);
}

AV_EXPORT int pthread_attr_setsigmask_np(pthread_attr_t *attr, const sigset_t *set)
{
	sigset_t real;

	if (set == (void *)0)
		return NEXT(pthread_attr_setsigmask_np)(attr, set);
	real = *set;
	set_take(&real);
	return NEXT(pthread_attr_setsigmask_np)(attr, &real);
}

AV_EXPORT int sighold(int number)
{
	sigset_t set;

	if (number != SIGSEGV && number != SIGBUS)
		return NEXT(sighold)(number);
	sigemptyset(&set);
	sigaddset(&set, number);
	return sigprocmask(SIG_BLOCK, &set, (void *)0);
}

/* ---- dispositions ---- */

static u8 kept_of(int number)
{
	return number > 0 && number < SIGNALS ?
		       __atomic_load_n(&kept_by_handler[number], __ATOMIC_RELAXED) :
		       0;
}

static void kept_set(int number, u8 kept)
{
	if (number > 0 && number < SIGNALS)
		__atomic_store_n(&kept_by_handler[number], kept, __ATOMIC_RELAXED);
}

static int action_of_other(int number, const struct sigaction *act, struct sigaction *old)
{
	u8 before = kept_of(number), kept = 0;
	struct sigaction real;
	int err;

	if (act != (void *)0) {
		real = *act;
		kept = set_take(&real.sa_mask);
		act = &real;
	}
	err = NEXT(sigaction)(number, act, old);
	if (err != 0)
		return err;
	if (act != (void *)0)
		kept_set(number, kept);
	if (old != (void *)0)
		set_give_back(&old->sa_mask, before);
	return 0;
}

AV_EXPORT int sigaction(int number, const struct sigaction *act, struct sigaction *old)
{
	fault_sigaction *keeper = signal_keeper(number);

	return keeper != (void *)0 ? keeper(number, act, old) : action_of_other(number, act, old);
}

static sighandler_t signal_keep(fault_sigaction *keeper, int number, sighandler_t handler,
				int flags)
{
	struct sigaction act = { .sa_handler = handler, .sa_flags = flags }, old;

	if (handler == SIG_ERR) {
		errno = EINVAL;
		return SIG_ERR;
	}
	if ((flags & SA_NODEFER) == 0)
		sigaddset(&act.sa_mask, number);
	return keeper(number, &act, &old) == 0 ? old.sa_handler : SIG_ERR;
}

AV_EXPORT sighandler_t signal(int number, sighandler_t handler)
{
	fault_sigaction *keeper = signal_keeper(number);

	if (keeper != (void *)0)
		return signal_keep(keeper, number, handler, SA_RESTART);
	kept_set(number, 0);
	return NEXT(signal)(number, handler);
}

AV_EXPORT sighandler_t bsd_signal(int number, sighandler_t handler)
{
	return signal(number, handler);
}

AV_EXPORT sighandler_t ssignal(int number, sighandler_t handler)
{
	return signal(number, handler);
}

AV_EXPORT sighandler_t sysv_signal(int number, sighandler_t handler)
{
	fault_sigaction *keeper = signal_keeper(number);

	return keeper == (void *)0
		       ? NEXT(sysv_signal)(number, handler)
		       : signal_keep(keeper, number, handler, (int)(SA_RESETHAND | SA_NODEFER));
}

AV_EXPORT sighandler_t __sysv_signal(int number, sighandler_t handler)
{
	return sysv_signal(number, handler);
}

AV_EXPORT int sigignore(int number)
{
	fault_sigaction *keeper = signal_keeper(number);

	if (keeper == (void *)0)
		return NEXT(sigignore)(number);
	return signal_keep(keeper, number, SIG_IGN, 0) == SIG_ERR ? -1 : 0;
}

/* Blocks the signal, or sets its handler and unblocks it; SIG_HOLD: it was blocked. */
static sighandler_t signal_set(fault_sigaction *keeper, int number, sighandler_t handler)
{
	sighandler_t before;
	struct sigaction now;
	sigset_t set, old;

	sigemptyset(&set);
	sigaddset(&set, number);
	if (sigprocmask(handler == SIG_HOLD ? SIG_BLOCK : SIG_UNBLOCK, &set, &old) != 0)
		return SIG_ERR;
	if (handler == SIG_HOLD)
		before = keeper(number, (void *)0, &now) == 0 ? now.sa_handler : SIG_ERR;
	else
		before = signal_keep(keeper, number, handler, 0);
	return sigismember(&old, number) == 1 ? SIG_HOLD : before;
}

AV_EXPORT sighandler_t sigset(int number, sighandler_t handler)
{
	fault_sigaction *keeper = signal_keeper(number);

	return keeper == (void *)0 ? NEXT(sigset)(number, handler)
				   : signal_set(keeper, number, handler);
}
