/* serve_mcast.c: memberships of multicast groups.
 * In:    MCAST_JOIN, MCAST_LEAVE              Out: entries of the directory
 * Runs:  the daemon's only thread             Locks: none
 */
#include <errno.h>
#include <string.h>

#include "daemon/service.h"

/* Returns the membership's entry, or NULL; *free_entry: the first free one, NULL: none. */
static struct directory_member *serve_find_member(struct request *r,
						  struct directory_member **free_entry)
{
	const struct proto_mcast *q = &r->q->mcast;
	struct directory *n = r->daemon->directory;

	*free_entry = NULL;
	for (u32 i = 0; i < n->members; i++) {
		struct directory_member *m = &n->member[i];

		if (m->process == r->proc->process && m->qpn == q->qpn &&
		    memcmp(m->gid, q->gid, 16) == 0)
			return m;
		if (m->process == 0 && *free_entry == NULL)
			*free_entry = m;
	}
	if (*free_entry == NULL && n->members < DIRECTORY_MEMBERS)
		*free_entry = &n->member[n->members];
	return NULL;
}

static int serve_mcast_join(struct request *r)
{
	const struct proto_mcast *q = &r->q->mcast;
	struct directory *n = r->daemon->directory;
	struct directory_member *entry;

	if (!node_is_mcast(q->gid))
		return -EINVAL;
	if (serve_find_member(r, &entry) == NULL) {
		if (entry == NULL)
			return -ENOSPC;
		directory_write_begin(n);
		memcpy(entry->gid, q->gid, 16);
		entry->qpn = q->qpn;
		entry->process = r->proc->process;
		if (entry == &n->member[n->members])
			n->members++;
		directory_write_end(n);
		r->daemon->member_count++;
	}
	service_status(r, 0);
	return 0;
}

static int serve_mcast_leave(struct request *r)
{
	struct directory *n = r->daemon->directory;
	struct directory_member *unused, *entry = serve_find_member(r, &unused);

	if (entry == NULL)
		return -ENOENT;
	directory_write_begin(n);
	entry->process = 0;
	while (n->members > 0 && n->member[n->members - 1].process == 0)
		n->members--;
	directory_write_end(n);
	r->daemon->member_count--;
	service_status(r, 0);
	return 0;
}

static void serve_mcast_release(struct proc *p)
{
	struct directory *n = p->daemon->directory;

	directory_write_begin(n);
	for (u32 i = 0; i < n->members; i++) {
		if (n->member[i].process != p->process)
			continue;
		n->member[i].process = 0;
		p->daemon->member_count--;
	}
	while (n->members > 0 && n->member[n->members - 1].process == 0)
		n->members--;
	directory_write_end(n);
}

static const struct service_rule serve_mcast_rules[] = {
	[PROTO_OP(PROTO_MCAST_JOIN)] = { serve_mcast_join, sizeof(struct proto_mcast), 0,
					 SERVICE_FROM(PROC_ATTACHED) },
	[PROTO_OP(PROTO_MCAST_LEAVE)] = { serve_mcast_leave, sizeof(struct proto_mcast), 0,
					  SERVICE_FROM(PROC_ATTACHED) },
};

const struct service mcast_service = {
	.rules = serve_mcast_rules,
	.rule_count = ARRAY_LEN(serve_mcast_rules),
	.release = serve_mcast_release,
	.release_of = SERVICE_FROM(PROC_ATTACHED),
};
