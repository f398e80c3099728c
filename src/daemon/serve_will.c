/* serve_will.c: the files in which processes leave MADs for their death.
 * In:    WILL, the end of connections         Out: wills
 * Runs:  the daemon's only thread             Locks: none
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/wills.h"
#include "daemon/service.h"

/* Only memory files have seals: reading one never waits. Nor can it become another size. */
static bool serve_is_will_file(int fd)
{
	const int needed = F_SEAL_SHRINK | F_SEAL_GROW;
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	return seals >= 0 && (seals & needed) == needed && fstat(fd, &st) == 0 &&
	       st.st_size == (off_t)sizeof(struct will_file);
}

static int serve_will(struct request *r)
{
	if (!serve_is_will_file(r->m->fds[0]))
		return -EINVAL;
	if (r->proc->will_fd >= 0)
		close(r->proc->will_fd);
	r->proc->will_fd = message_take_fd(r->m, 0);
	/* a process whose connection broke, and which has come back */
	wills_discard(r->daemon, r->proc->process);
	service_status(r, 0);
	return 0;
}

/* The process is dead, or has called exec, or this node has dropped its connection: then it comes
 * back, and what it brings replaces this. */
static void serve_release_wills(struct proc *p)
{
	if (p->will_fd >= 0)
		wills_open(p);
}

static const struct service_rule serve_will_rules[] = {
	[PROTO_OP(PROTO_WILL)] = { serve_will, sizeof(struct proto_plain), 1,
				   SERVICE_FROM(PROC_ATTACHED) },
};

const struct service will_service = {
	.rules = serve_will_rules,
	.rule_count = ARRAY_LEN(serve_will_rules),
	.release = serve_release_wills,
	.release_of = SERVICE_FROM(PROC_ATTACHED),
};
