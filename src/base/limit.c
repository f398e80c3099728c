/* limit.c: names the resource limits behind a refusal of the system.
 * In:    an errno        Out: a line on standard error
 * Runs:  any thread      Locks: none
 */
#include "base/limit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"

/* The C library says EAGAIN of a thread also where there is no memory for its stack. */
static const struct {
	int err;
	int resource;
	const char *name;
} limit_table[] OWNED_BY(nobody: fixed) = {
	{ EMFILE, RLIMIT_NOFILE, "RLIMIT_NOFILE" }, { ENOMEM, RLIMIT_AS, "RLIMIT_AS" },
	{ ENOMEM, RLIMIT_DATA, "RLIMIT_DATA" },	    { EAGAIN, RLIMIT_AS, "RLIMIT_AS" },
	{ EAGAIN, RLIMIT_DATA, "RLIMIT_DATA" },	    { EAGAIN, RLIMIT_NPROC, "RLIMIT_NPROC" },
	{ EFBIG, RLIMIT_FSIZE, "RLIMIT_FSIZE" },
};

const char *limit_behind(int err, char text[LIMIT_TEXT])
{
	struct rlimit r;
	size_t n = 0;

	text[0] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(limit_table); i++) {
		if (limit_table[i].err != err || n >= LIMIT_TEXT ||
		    getrlimit((__rlimit_resource_t)limit_table[i].resource, &r) != 0 ||
		    r.rlim_cur == RLIM_INFINITY)
			continue;
		n += (size_t)snprintf(text + n, LIMIT_TEXT - n, "%s%s is %llu", n > 0 ? ", " : "",
				      limit_table[i].name, (unsigned long long)r.rlim_cur);
	}
	return text;
}

bool limit_refuses(int err)
{
	return err == -EMFILE || err == -ENFILE || err == -ENOMEM || err == -EFBIG;
}

void limit_say(pid_t *said, const char *room, const char *what, int err)
{
	char text[LIMIT_TEXT];
	pid_t pid = getpid();

	if (__atomic_exchange_n(said, pid, __ATOMIC_RELAXED) == pid && log_level_get() < LOG_ERROR)
		return;
	limit_behind(-err, text);
	log_print(LOG_ERROR, room, "%s: %s%s%s%s", what, strerror(-err), text[0] ? " (" : "", text,
		  text[0] ? ")" : "");
}
