/* madhold.c: REQ and SIDR_REQ at a port of the fabric that find no listener on its host. They wait
 * for one, as between adapters a request is under way for so long: a program that listens only
 * after the handshake with its peer is in time (perftest -R).
 * In:    requests, processes that listen, time      Out: requests to listeners, refusals
 * Runs:  the daemon's only thread                   Locks: none
 */
#include <stdlib.h>

#include "base/clock.h"
#include "daemon/fabric/fabricd.h"

enum { MADHOLD_MAX = 256 };
#define MADHOLD_NS (20 * NS_PER_MS)

struct madhold_request {
	struct list_head node; /* fabricd.held, the oldest first */
	u64 until_ns;
	u32 port;
	struct fabric_mad mad;
} OWNED_BY(the daemon);

bool madhold_take(struct fabricd *f, u32 port, const struct fabric_mad *m)
{
	struct madhold_request *r;

	if (f->held_count >= MADHOLD_MAX)
		return false;
	r = malloc(sizeof(*r));
	if (r == NULL)
		return false;
	r->until_ns = clock_now_ns() + MADHOLD_NS;
	r->port = port;
	r->mad = *m;
	list_push_back(&f->held, &r->node);
	f->held_count++;
	return true;
}

static void madhold_let_go(struct fabricd *f, struct madhold_request *r)
{
	list_remove(&r->node);
	f->held_count--;
	free(r);
}

void madhold_listening(struct daemon *d)
{
	struct fabricd *f = d->fabric;

	if (f == NULL)
		return;
	list_for_each_safe(r, &f->held, struct madhold_request, node)
		if (madchannel_to_listener(f, r->port, &r->mad))
			madhold_let_go(f, r);
	madchannel_flush(f);
}

void madhold_run(struct fabricd *f, u64 now_ns)
{
	list_for_each_safe(r, &f->held, struct madhold_request, node) {
		if (r->until_ns > now_ns)
			return;
		madchannel_answer(f, r->port, &r->mad);
		madhold_let_go(f, r);
	}
}

u64 madhold_next_ns(const struct fabricd *f)
{
	return list_empty(&f->held) ? UINT64_MAX
				    : list_first(&f->held, struct madhold_request, node)->until_ns;
}

void madhold_clear(struct fabricd *f)
{
	list_for_each_safe(r, &f->held, struct madhold_request, node)
		madhold_let_go(f, r);
}
