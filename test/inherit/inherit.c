/* inherit.c: children that make one call each.
 * In:    INHERIT_SHOW=1: prints what each call returns
 *        INHERIT_ONLY=TEXT: makes the calls with that text alone
 * Out:   the calls that crash, hang, or return another errno than the program says
 * Runs:  the program's thread; a child for each call
 * Locks: none
 */
#include "inherit.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HANG_S = 60, KILLED = 200 };
#ifdef __SANITIZE_ADDRESS__
enum { INHERIT_SANITIZED = 1 };
#else
enum { INHERIT_SANITIZED = 0 };
#endif

static const char *const who_names[] = { "child", "attached child", "grandchild" };

static const struct inherit_bed *bed;
static const char *about;
static enum who who;
static int calls_made, calls_wrong;

void inherit_about(const char *kind)
{
	about = kind;
}

/* The status of a child: its exit status, or KILLED and the signal. */
static int inherit_wait(pid_t pid)
{
	int status;

	must(waitpid(pid, &status, 0) == pid);
	return WIFSIGNALED(status) ? KILLED + WTERMSIG(status) : WEXITSTATUS(status);
}

static void inherit_judge(const char *call, int error, int status)
{
	const char *name = status > KILLED ? strsignal(status - KILLED) : strerrorname_np(status);

	calls_made++;
	if (status == KILLED + SIGALRM)
		name = "hangs";
	if (getenv("INHERIT_SHOW") != NULL)
		printf("%s, %s: %s: %s\n", who_names[who], about, call, name);
	if (status < KILLED && (error == ANY || status == error))
		return;
	fprintf(stderr, "%s, %s: %s: %s (%d) instead of %d\n", who_names[who], about, call, name,
		status, error);
	calls_wrong++;
}

bool inherit_begin(const char *call, int error)
{
	const char *only = getenv("INHERIT_ONLY");
	pid_t pid;

	if (only != NULL && strstr(call, only) == NULL)
		return false;
	fflush(NULL);
	pid = fork();
	must(pid >= 0);
	if (pid != 0) {
		inherit_judge(call, error, inherit_wait(pid));
		bed->works(call);
		return false;
	}
	alarm(HANG_S);
	if (who == GRANDCHILD) {
		pid = fork();
		must(pid >= 0);
		if (pid != 0)
			_exit(inherit_wait(pid));
		alarm(HANG_S);
	}
	if (who == ATTACHED)
		bed->attach();
	errno = 0;
	return true;
}

/* A child that has attached itself runs the libraries' destructors, too, but no search for leaks:
 * what is its parent's is lost to it. */
void inherit_end(long result, bool is_pointer)
{
	int error = is_pointer ? (result == 0 ? errno : 0)
		    : (int)result == -1 ? errno
					: abs((int)result);

	if (who == ATTACHED && !INHERIT_SANITIZED)
		exit(error);
	_exit(error);
}

int inherit_run(const struct inherit_bed *of, void (*calls)(void))
{
	bed = of;
	bed->works("nothing");
	for (who = CHILD; who <= bed->last; who++)
		calls();
	printf("%d calls, %d wrong\n", calls_made, calls_wrong);
	return calls_wrong == 0 && calls_made != 0 ? 0 : 1;
}
