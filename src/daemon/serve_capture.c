/* serve_capture.c: recording what all processes send and receive.
 * In:    CAPTURE                              Out: the memory file, to every process
 * Runs:  the daemon's only thread             Locks: none
 */
#include <errno.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/service.h"

static int serve_capture(struct request *r)
{
	struct daemon *d = r->daemon;

	if (d->recorder != NULL)
		return -EBUSY;
	d->recorder = r->proc;
	d->capture_fd = message_take_fd(r->m, 0);
	(void)capture_start(&d->capture, d->capture_fd); /* else the processes' packets only */
	event_capture_all(d);
	service_status(r, 0);
	return 0;
}

/* The recorder has disconnected. */
static void serve_capture_release(struct proc *p)
{
	struct daemon *d = p->daemon;

	if (p != d->recorder)
		return;
	d->recorder = NULL;
	capture_stop(&d->capture);
	close(d->capture_fd);
	d->capture_fd = -1;
	if (!d->ending)
		event_capture_all(d);
	if (d->attached == 0)
		d->idle_since_ns = clock_now_ns();
}

static const struct service_rule serve_capture_rules[] = {
	[PROTO_OP(PROTO_CAPTURE)] = { serve_capture, sizeof(struct proto_plain), 1,
				      SERVICE_FROM(PROC_TOOL) },
};

const struct service capture_service = {
	.rules = serve_capture_rules,
	.rule_count = ARRAY_LEN(serve_capture_rules),
	.release = serve_capture_release,
	.release_of = SERVICE_FROM(PROC_TOOL),
};
