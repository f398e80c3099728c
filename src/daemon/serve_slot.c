/* serve_slot.c: slots of the QPN space.
 * In:    SLOT_TAKE, SLOT_CLAIM                Out: byte locks on the slots file
 * Runs:  the daemon's only thread             Locks: none
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/fabric/fabricd.h"
#include "daemon/service.h"

void serve_slot_show(struct daemon *d)
{
	u64 words[NODE_SLOTS / 64], any = 0;

	memcpy(words, d->slots.file.wire_only, sizeof(words));
	for (u32 i = 0; i < ARRAY_LEN(words); i++)
		any |= words[i];
	words[0] |= any != 0;
	for (u32 i = 0; i < ARRAY_LEN(words); i++)
		__atomic_store_n(&d->directory->wire_only[i], words[i], __ATOMIC_RELEASE);
}

/* The process has taken or claimed slots. */
static void serve_slot_show_of(const struct proc *p)
{
	slots_note_wire_only(&p->daemon->slots, p->process, p->who.wire_only != 0);
	serve_slot_show(p->daemon);
}

static int serve_slot_take(struct request *r)
{
	struct proto_slot_reply reply;
	struct slots *s = &r->daemon->slots;
	int slot;

	/* a claim would replace the description through which the slot gets locked */
	(void)service_claim(r->proc, PROTO_SERVICE_SLOT);
	slot = slots_take(s, r->proc->process, r->proc->slots_fd, clock_now_ns());
	if (slot < 0)
		return slot;
	reply.slot = (u32)slot;
	reply.generation = s->file.generation[slot];
	madchannel_show(r->proc);
	serve_slot_show_of(r->proc);
	service_reply(r, &reply.head, sizeof(reply), 0, NULL, 0);
	return 0;
}

/* A process that has come back claims its slots: those of its own description if it is of this
 * slots file, else those that are free in this one. */
static int serve_slot_claim(struct request *r)
{
	const struct proto_slot_claim *q = &r->q->slot_claim;
	struct slots *s = &r->daemon->slots;
	struct proto_slot_claim reply;
	struct proc *p = r->proc;

	if (!service_claim(p, PROTO_SERVICE_SLOT))
		return -EINVAL;
	memset(&reply, 0, sizeof(reply));
	if (slots_same_file(s, r->m->fds[0])) {
		close(p->slots_fd);
		p->slots_fd = message_take_fd(r->m, 0);
	}
	for (u32 slot = 0; slot < NODE_SLOTS; slot++) {
		u8 bit = (u8)(1u << (slot % 8));

		if ((q->slots[slot / 8] & bit) &&
		    slots_claim(s, p->process, p->slots_fd, slot) == 0)
			reply.slots[slot / 8] |= bit;
	}
	/* one that the last node gave without a reply */
	slots_tidy(s, p->process, p->slots_fd);
	madchannel_show(p);
	serve_slot_show_of(p);
	service_reply(r, &reply.head, sizeof(reply), 0, &p->slots_fd, 1);
	return 0;
}

/* The sockets of its slots first, which are found by owner. */
static void serve_slot_release(struct proc *p)
{
	struct daemon *d = p->daemon;

	for (u32 slot = SLOTS_FIRST; slot < NODE_SLOTS; slot++)
		if (d->slots.owner[slot] == p->process)
			daemon_udp_release(&d->udp, slot);
	slots_release(&d->slots, p->process, p->slots_fd, clock_now_ns());
	serve_slot_show(d);
}

static const struct service_rule serve_slot_rules[] = {
	[PROTO_OP(PROTO_SLOT_CLAIM)] = { serve_slot_claim, sizeof(struct proto_slot_claim), 1,
					 SERVICE_FROM(PROC_ATTACHED) },
	[PROTO_OP(PROTO_SLOT_TAKE)] = { serve_slot_take, sizeof(struct proto_plain), 0,
					SERVICE_FROM(PROC_ATTACHED) },
};

const struct service slot_service = {
	.rules = serve_slot_rules,
	.rule_count = ARRAY_LEN(serve_slot_rules),
	.release = serve_slot_release,
	.release_of = SERVICE_FROM(PROC_ATTACHED),
};
