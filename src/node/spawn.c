/* spawn.c: starts the daemon through two nested vforks.
 *
 * The host may be multi-threaded, huge, and have handlers for SIGCHLD. So: no fork (it would run
 * atfork handlers and copy page tables), but clone(CLONE_VM | CLONE_VFORK), as posix_spawn does it.
 * The first child is made with exit signal 0, so that its end raises no SIGCHLD and no plain wait()
 * of the host finds it; it makes the second one, which becomes the daemon, and ends: the daemon is
 * nobody's child here.
 * In:    the node's name                         Out: a running daemon
 * Runs:  any thread, with all signals blocked    Locks: none
 */
#include "node/spawn.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sysfile.h"
#include "base/log.h"
#include "base/compiler.h"

#ifndef AV_DAEMON_PATH
#define AV_DAEMON_PATH "/usr/local/bin/anyverbsd"
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

enum { SPAWN_STACK = 64 * 1024, SPAWN_ENV = 64, SPAWN_FDS = 65536, SPAWN_SIGSET = 8 };

/* In a shared mapping, with the children's stacks. */
struct spawn {
	char path[PATH_MAX];
	char *argv[7];
	char *envp[SPAWN_ENV + 1];
	int flags;          /* for both clone()s */
	int inherited[SPAWN_INHERITED], inherited_count;
	volatile int error; /* written by the children */
	volatile s32 pid;   /* the daemon's, written by the first child */
	char stack[2][SPAWN_STACK] __attribute__((aligned(16)));
} OWNED_BY(the thread that starts the daemon, or the child for which it waits);

/* ThreadSanitizer wraps clone() as if it were fork(), and with shared memory its bookkeeping of the
 * child would blind it in the host: where it is there, the children get copies. */
extern void __tsan_init(void) __attribute__((weak));

static int spawn_flags(void)
{
	return __tsan_init != NULL ? CLONE_VFORK : CLONE_VM | CLONE_VFORK;
}

/* The daemon must not load libraries that were preloaded into its host, nor search where the host
 * does. */
static bool spawn_env_wanted(const char *entry)
{
	static const char *const wanted[] = { "ANYVERBS_",	"XDG_RUNTIME_DIR=", "PATH=",
					      "HOME=",		"ASAN_OPTIONS=",    "TSAN_OPTIONS=",
					      "UBSAN_OPTIONS=", "LSAN_OPTIONS=" };

	for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
		if (strncmp(entry, wanted[i], strlen(wanted[i])) == 0)
			return true;
	return false;
}

/* The folder of the file that contains this code; the caller frees it. NULL: not known. */
static char *spawn_own_folder(void)
{
	Dl_info info;
	char *folder;

	if (dladdr((void *)(uintptr_t)spawn_daemon, &info) == 0 || info.dli_fname == NULL)
		return NULL;
	/* a program's own name may be relative to a folder that it has left */
	folder = sysfile_realpath(info.dli_fname[0] == '/' ? info.dli_fname
								 : "/proc/self/exe");
	if (folder != NULL)
		*strrchr(folder, '/') = '\0';
	return folder;
}

int spawn_find(char *path, size_t size)
{
	/* from lib/anyverbs/, from lib/ARCH/anyverbs/, and from a test beside bin/ */
	static const char *const places[] = { "../../bin", "../../../bin", "../bin", "." };
	const char *told = secure_getenv("ANYVERBS_DAEMON");
	char *folder;
	bool found = false;

	if (told != NULL && told[0] != '\0') {
		snprintf(path, size, "%s", told);
		return access(path, X_OK) == 0 ? 0 : -errno;
	}
	folder = spawn_own_folder();
	for (size_t i = 0; folder != NULL && !found && i < ARRAY_LEN(places); i++)
		found = (size_t)snprintf(path, size, "%s/%s/anyverbsd", folder, places[i]) < size &&
			access(path, X_OK) == 0;
	free(folder);
	if (found)
		return 0;
	snprintf(path, size, "%s", AV_DAEMON_PATH);
	return access(path, X_OK) == 0 ? 0 : -errno;
}

/* Code that the children run. They share the host's memory, so they may change none of it: they
 * make system calls only, past wrappers of the C library's functions and without a sanitizer's
 * bookkeeping (a child never returns from a function). */
#define SPAWN_CHILD __attribute__((no_sanitize("thread"), no_sanitize("address")))

/* Gives the inherited the numbers from 3 on, without close-on-exec. 0 or a negative errno. */
SPAWN_CHILD static int spawn_place_inherited(struct spawn *s)
{
	const int behind = 3 + s->inherited_count;

	for (int i = 0; i < s->inherited_count; i++) {
		long fd = syscall(SYS_fcntl, s->inherited[i], F_DUPFD, behind);

		if (fd < 0)
			return -errno;
		s->inherited[i] = (int)fd;
	}
	for (int i = 0; i < s->inherited_count; i++)
		if (syscall(SYS_dup3, s->inherited[i], 3 + i, 0) < 0)
			return -errno;
	return 0;
}

/* Closes all descriptors but the inherited and 0 to 2, which become /dev/null. */
SPAWN_CHILD static void spawn_close_fds(int first)
{
	long null = syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0);

	for (int fd = 0; null >= 0 && fd < 3; fd++)
		if (fd != null)
			syscall(SYS_dup3, null, fd, 0);
	if (syscall(SYS_close_range, first, ~0u, 0) < 0)
		for (int fd = first; fd < SPAWN_FDS; fd++)
			syscall(SYS_close, fd);
	for (int fd = 0; null < 0 && fd < 3; fd++)
		syscall(SYS_close, fd);
}

/* Handlers of the host may not run there. Zeroes are the kernel's structure for the default action,
 * whatever its layout. */
SPAWN_CHILD static void spawn_default_signals(void)
{
	static const u8 zeroes[64];

	for (int sig = 1; sig < NSIG; sig++)
		syscall(SYS_rt_sigaction, sig, zeroes, NULL, SPAWN_SIGSET);
}

/* The second child: becomes the daemon. */
SPAWN_CHILD static int spawn_grandchild(void *arg)
{
	static const u64 none;
	struct spawn *s = arg;

	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, SPAWN_SIGSET);
	syscall(SYS_execve, s->path, s->argv, s->envp);
	s->error = -errno;
	syscall(SYS_exit, 127);
	return 0;
}

SPAWN_CHILD static int spawn_child(void *arg)
{
	struct spawn *s = arg;
	int pid;

	spawn_default_signals();
	s->error = spawn_place_inherited(s);
	if (s->error < 0)
		syscall(SYS_exit, 1);
	spawn_close_fds(3 + s->inherited_count);
	syscall(SYS_setsid);
	if (syscall(SYS_chdir, "/") < 0)
		s->error = -errno;
	pid = clone(spawn_grandchild, s->stack[1] + SPAWN_STACK, s->flags | SIGCHLD, s);
	if (pid < 0)
		s->error = -errno;
	s->pid = pid;
	syscall(SYS_exit, 0);
	return 0;
}

/* Runs the two children. All signals are blocked meanwhile: a handler in a child would run on the
 * host's memory. */
static int spawn_run(struct spawn *s)
{
	sigset_t all, old;
	pid_t pid;
	int cancel, err = 0;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pid = clone(spawn_child, s->stack[0] + SPAWN_STACK, s->flags, s);
	if (pid < 0)
		err = -errno;
	else
		while (waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_setcancelstate(cancel, NULL);
	return err < 0 ? err : s->error;
}

static void spawn_fill(struct spawn *s, const char *name, enum place_scope scope)
{
	int n = 0, last = 4;

	s->flags = spawn_flags();
	s->argv[0] = (char *)"anyverbsd";
	s->argv[1] = (char *)"--spawned";
	s->argv[2] = (char *)"--node";
	s->argv[3] = (char *)name;
	if (scope == PLACE_MACHINE)
		s->argv[last++] = (char *)"--machine";
	if (s->inherited_count > 0)
		s->argv[last] = (char *)"--successor";
	for (char **e = environ; e != NULL && *e != NULL && n < SPAWN_ENV; e++)
		if (spawn_env_wanted(*e))
			s->envp[n++] = *e;
}

/* Tells at once what would otherwise end in a node that answers nobody. */
static int spawn_check_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_max >= SPAWN_LEAST_FDS)
		return 0;
	log_error("node",
		  "no node: it would inherit this process' hard limit of %llu descriptors "
		  "(ulimit -Hn), and takes %d",
		  (unsigned long long)r.rlim_max, SPAWN_LEAST_FDS);
	return -EMFILE;
}

int spawn_successor(const char *name, enum place_scope scope, const int *fds, int count,
		    s32 *pid)
{
	struct spawn *s;
	int err = spawn_check_limit();

	if (err < 0)
		return err;
	s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s == MAP_FAILED)
		return -ENOMEM;
	s->inherited_count = MIN(count, SPAWN_INHERITED);
	if (s->inherited_count > 0)
		memcpy(s->inherited, fds, (size_t)s->inherited_count * sizeof(*fds));
	err = spawn_find(s->path, sizeof(s->path));
	if (err == 0) {
		spawn_fill(s, name, scope);
		err = spawn_run(s);
		*pid = s->pid;
	}
	if (err < 0)
		log_error("node", "cannot start %s: %s", s->path, strerror(-err));
	munmap(s, sizeof(*s));
	return err;
}

int spawn_daemon(const char *name, enum place_scope scope, s32 *pid)
{
	return spawn_successor(name, scope, NULL, 0, pid);
}
