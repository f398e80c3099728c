/* fault_signal.c: the handler of SIGSEGV and SIGBUS, and the program's own behind it.
 *
 * In:    faults    Out: a copy of ours that goes on with -EFAULT, or what the program wants done
 * Runs:  in a signal handler, and in callers of sigaction    Locks: none: a handler may interrupt
 *        anything, and a forked child has only one of the threads
 *
 * A fault that is not ours meets the program's disposition as the kernel would have applied it: the
 * handler sets the default action and the instruction runs again, so that a core shows the right
 * place. Without the
 * preloaded shim (shim/devices/signal.c) a handler that the program installs after ours replaces
 * it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fault_priv.h"

enum {
	FAULT_SLOTS = 16, /* changes of a disposition that a reader of one may sleep through */
	FAULT_SIGSET = 8, /* bytes of a set in the kernel */
};

typedef int fault_sigaction(int number, const struct sigaction *act, struct sigaction *old);

/* The program's disposition of one signal. A change fills the next slot and shows it. */
struct fault_program {
	u32 next ATOMIC_ONLY;
	struct sigaction *now ATOMIC_ONLY;
	struct sigaction slot[FAULT_SLOTS] OWNED_BY(whoever drew its number until now shows it);
};

static struct sigaction fault_default = { .sa_handler = SIG_DFL };
static struct fault_program fault_segv = { .now = &fault_default };
static struct fault_program fault_bus = { .now = &fault_default };
static fault_sigaction *fault_real = sigaction; /* the C library's */

static struct fault_program *fault_program_of(int number)
{
	return number == SIGSEGV ? &fault_segv : &fault_bus;
}

/* Shows what the kernel would from now on; returns what it showed before. */
static const struct sigaction *fault_change(struct fault_program *p, const struct sigaction *act)
{
	struct sigaction *slot =
		&p->slot[__atomic_fetch_add(&p->next, 1, __ATOMIC_RELAXED) % FAULT_SLOTS];

	*slot = *act;
	/* Pairs with the acquire in fault_now. */
	return __atomic_exchange_n(&p->now, slot, __ATOMIC_ACQ_REL);
}

static const struct sigaction *fault_now(const struct fault_program *p)
{
	return __atomic_load_n(&p->now, __ATOMIC_ACQUIRE); /* pairs with fault_change */
}

int fault_program_action(int number, const struct sigaction *act, struct sigaction *old)
{
	struct fault_program *p = fault_program_of(number);
	struct sigaction wanted, before;

	if (act == NULL) {
		before = *fault_now(p);
	} else {
		wanted = *act; /* first: `old` may be the same */
		sigdelset(&wanted.sa_mask, SIGKILL);
		sigdelset(&wanted.sa_mask, SIGSTOP);
		before = *fault_change(p, &wanted);
	}
	if (old != NULL)
		*old = before;
	return 0;
}

/* ---- in the handler ---- */

static void fault_mask(int how, const sigset_t *set, sigset_t *old)
{
	/* not pthread_sigmask: the shim's keeps these two out */
	syscall(SYS_rt_sigprocmask, how, set, old, FAULT_SIGSET);
}

/* The default action follows: by the same instruction again, or, if somebody has sent the signal,
 * by that. */
static void fault_let_die(int number, siginfo_t *info)
{
	struct sigaction act = { .sa_handler = SIG_DFL };

	fault_real(number, &act, NULL);
	if (info->si_code <= 0)
		syscall(SYS_rt_tgsigqueueinfo, getpid(), (pid_t)syscall(SYS_gettid), number, info);
}

/* Calls the handler as the kernel would: with its mask, and the former one afterwards. */
static void fault_call(int number, const struct sigaction *act, siginfo_t *info, void *context)
{
	sigset_t block = act->sa_mask, before;

	if ((act->sa_flags & SA_NODEFER) == 0)
		sigaddset(&block, number);
	fault_mask(SIG_BLOCK, &block, &before);
	if (act->sa_flags & SA_SIGINFO)
		act->sa_sigaction(number, info, context);
	else
		act->sa_handler(number);
	fault_mask(SIG_SETMASK, &before, NULL);
}

static void fault_hand_over(int number, siginfo_t *info, void *context)
{
	struct fault_program *p = fault_program_of(number);
	struct sigaction act = *fault_now(p);
	bool sent = info->si_code <= 0;

	if (act.sa_handler == SIG_IGN && sent)
		return;
	if (act.sa_handler == SIG_DFL || act.sa_handler == SIG_IGN) {
		fault_let_die(number, info);
		return;
	}
	if (act.sa_flags & (int)SA_RESETHAND)
		__atomic_store_n(&p->now, &fault_default, __ATOMIC_RELEASE);
	fault_call(number, &act, info, context);
}

static void fault_on_signal(int number, siginfo_t *info, void *context)
{
	int saved = errno;

	if (info->si_code <= 0 || !fault_recover(context, (u64)(uintptr_t)info->si_addr))
		fault_hand_over(number, info, context);
	errno = saved;
}

/* ---- installing ---- */

/* The C library's own functions: those of a sanitizer or of the shim stand in front for others. */
static void fault_find_libc(void)
{
	void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
	void *action = libc == NULL ? NULL : dlsym(libc, "sigaction");
	void *move = libc == NULL ? NULL : dlsym(libc, "memmove");

	if (action != NULL)
		fault_real = (fault_sigaction *)action;
	if (move != NULL)
		fault_use_memmove((void *(*)(void *, const void *, size_t))move);
}

static void fault_install(int number)
{
	/* Nothing is blocked meanwhile, so that a landing need not unblock it. */
	struct sigaction act = { .sa_sigaction = fault_on_signal,
				 .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER };
	struct sigaction before;

	if (fault_real(number, NULL, &before) != 0)
		return;
	fault_change(fault_program_of(number), &before);
	act.sa_flags |= before.sa_flags & SA_RESTART;
	fault_real(number, &act, NULL);
}

/* The shim's, where it is preloaded: from then on it asks us for the program's disposition. The
 * loader finds it: a dlsym that finds nothing has the next one call free, which a preloaded
 * allocator may itself be looking for. */
extern void anyverbs_preload_faults(fault_sigaction *action)
	__attribute__((weak, visibility("default")));

void fault_guard(void)
{
	static u32 begun;

	if (likely(__atomic_load_n(&begun, __ATOMIC_RELAXED) != 0) ||
	    __atomic_exchange_n(&begun, 1, __ATOMIC_RELAXED) != 0)
		return;
	fault_find_libc();
	fault_install(SIGSEGV);
	fault_install(SIGBUS);
	if (anyverbs_preload_faults != NULL)
		anyverbs_preload_faults(fault_program_action);
}
