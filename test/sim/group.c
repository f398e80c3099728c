/* group.c: multicast groups: who is attached, and who may get what is sent to them.
 * In: programs that come and go    Out: members for the engine, messages that may arrive
 */
#include <string.h>

#include "model.h"

struct group groups[SIM_GROUPS];

void groups_begin(void)
{
	static const u8 mapped[16] = { [10] = 0xff, [11] = 0xff, [12] = 224, [14] = 1 };
	static const u8 global[16] = { [0] = 0xff, [1] = 0x0e };

	for (u32 i = 0; i < SIM_GROUPS; i++) {
		memcpy(groups[i].gid, world.plan.ipv6 ? global : mapped, 16);
		groups[i].gid[15] = (u8)(i + 1);
		groups[i].qkey = (u32)rng_range(RNG, 1, 0x7fffffff);
	}
}

bool group_is_attached(const struct sqp *q, const struct group *g)
{
	return q->engine != NULL && q->attached && q->group == g;
}

int group_members(struct proc *p, const u8 gid[16], u32 from, struct ibt_member *out, int max)
{
	int n = 0;

	for (u32 i = from; i < sqp_count && n < max; i++) {
		struct sqp *q = sqps[i];

		if (q->group == NULL || memcmp(gid, q->group->gid, 16) != 0 ||
		    !group_is_attached(q, q->group))
			continue;
		out[n++] = (struct ibt_member){ path_dest_of(p, q->proc), q->qpn, i };
	}
	return n;
}

/* What is still waiting to be sent to the group will be sent to it as well. */
static void group_attach(struct sqp *q)
{
	q->attached = true;
	for (u32 i = 0; i < sqp_count; i++)
		list_for_each(s, &sqps[i]->sends, struct send, node)
			if (s->group == q->group)
				message_expect(q, s);
}

void group_change(struct sqp *q)
{
	if (q->group == NULL)
		return;
	trace(q->proc, TR_GROUP, q->qpn, !q->attached, q->group->gid[15], 0);
	if (q->attached)
		q->attached = false;
	else
		group_attach(q);
}
