/* command.c: what a person does to the fabric: cables, restarts, errors; and what software tells
 * of its port. In:    commands    Out: the map, links, traps Runs:  the owner's thread    Locks:
 * none
 */
#include "fabric/fabric_priv.h"

#include <errno.h>
#include <string.h>

#include "fabric/portinfo.h"
#include "fabric/trap.h"

enum { CHANGED_DESCRIPTION = 1 }; /* of trap 144's flags */

static bool command_is_software(struct fabric *f, u32 port)
{
	return port < f->view.ports && !fabric_is_switch(f, port) && f->port[port].number != 0;
}

/* Where a subnet manager may be. */
static bool command_is_home(struct fabric *f, u32 port)
{
	return port < f->view.ports && (f->port[port].number == 0) == fabric_is_switch(f, port);
}

static void command_cable(struct fabric *f, u32 port, bool up)
{
	struct fabric_port_rec *p = fabric_port_begin(f, port);

	fabric_store(p->flags, up ? p->flags & (u8)~FABRIC_PORT_CUT : p->flags | FABRIC_PORT_CUT);
	fabric_port_end(f, port);
}

int fabric_link_set(struct fabric *f, u32 port, bool up)
{
	bool outermost;
	u32 peer;

	if (port >= f->view.ports)
		return -EINVAL;
	peer = f->port[port].peer;
	if (peer == FABRIC_NONE)
		return -ENOTCONN;
	outermost = fabric_enter(f);
	command_cable(f, port, up);
	command_cable(f, peer, up);
	if (!up && f->port[port].state != FABRIC_DOWN) {
		fabric_count(f, port, FABRIC_ERR_LINK_DOWNED, 1);
		fabric_count(f, peer, FABRIC_ERR_LINK_DOWNED, 1);
		fabric_link_drop(f, port, f->port[port].link_down_default);
	}
	if (up)
		fabric_link_train(f, port);
	fabric_leave(f, outermost);
	return 0;
}

int fabric_node_reboot(struct fabric *f, u32 node)
{
	struct fabric_node_rec *n;
	bool outermost;

	if (node >= f->view.nodes)
		return -EINVAL;
	outermost = fabric_enter(f);
	n = &f->node[node];
	for (u32 i = 1; i <= n->ports; i++)
		if (f->port[n->first_port + i].state != FABRIC_DOWN)
			fabric_link_drop(f, n->first_port + i, FABRIC_PHYS_POLLING);
	fabric_node_reset(f, node, false);
	for (u32 i = 1; i <= n->ports; i++)
		fabric_link_train(f, n->first_port + i);
	for (u32 i = 1; i <= n->ports; i++)
		fabric_tell(f, n->first_port + i,
			    FABRIC_CHANGED_LID | FABRIC_CHANGED_SM | FABRIC_CHANGED_PKEYS |
				    FABRIC_CHANGED_GIDS);
	fabric_leave(f, outermost);
	return 0;
}

int fabric_port_error(struct fabric *f, u32 port, enum fabric_error which, u32 n)
{
	bool outermost;

	if (port >= f->view.ports || (u32)which >= FABRIC_ERRORS)
		return -EINVAL;
	outermost = fabric_enter(f);
	fabric_count(f, port, which, n);
	if (which == FABRIC_ERR_LOCAL_INTEGRITY && n > 0)
		trap_raise(f, port, FABRIC_TRAP_129);
	else if (which == FABRIC_ERR_BUFFER_OVERRUN && n > 0)
		trap_raise(f, port, FABRIC_TRAP_130);
	else if (which == FABRIC_ERR_LINK_RECOVERY && n > 0)
		trap_raise(f, port, FABRIC_TRAP_131);
	fabric_leave(f, outermost);
	return 0;
}

bool fabric_set_issm(struct fabric *f, u32 port, bool on)
{
	bool outermost;
	u32 caps;

	if (!command_is_home(f, port))
		return false;
	caps = f->port[port].cap_mask & ~(u32)FABRIC_CAP_SM;
	caps |= on ? FABRIC_CAP_SM : 0;
	if (caps == f->port[port].cap_mask)
		return false;
	outermost = fabric_enter(f);
	fabric_port_begin(f, port)->cap_mask = caps;
	fabric_port_end(f, port);
	trap_raise(f, port, FABRIC_TRAP_144);
	fabric_leave(f, outermost);
	return true;
}

int fabric_set_description(struct fabric *f, u32 node, const char *desc)
{
	struct fabric_node_rec *n;
	bool outermost;

	if (node >= f->view.nodes)
		return -EINVAL;
	outermost = fabric_enter(f);
	n = &f->node[node];
	memset(n->desc, 0, sizeof(n->desc));
	memcpy(n->desc, desc, strnlen(desc, sizeof(n->desc)));
	for (u32 i = n->type == FABRIC_SWITCH ? 0 : 1;
	     i <= (n->type == FABRIC_SWITCH ? 0 : n->ports); i++) {
		f->port[n->first_port + i].trap_changes |= CHANGED_DESCRIPTION;
		trap_raise(f, n->first_port + i, FABRIC_TRAP_144);
	}
	fabric_leave(f, outermost);
	return 0;
}

/* ---- keys that a port has refused
 * --------------------------------------------------------------- */

void violation_note(struct fabric *f, u32 port, const struct fabric_violation *v)
{
	u32 home = fabric_home(f, port);
	struct fabric_port_rec *p = fabric_port_begin(f, home);
	u16 *counter = v->is_qkey ? &p->qkey_violations : &p->pkey_violations;

	if (*counter < UINT16_MAX)
		++*counter;
	fabric_port_end(f, home);
	trap_bad_key(f, home, v);
}

void fabric_port_violation(struct fabric *f, u32 port, const struct fabric_violation *v)
{
	bool outermost;

	if (!command_is_software(f, port))
		return;
	outermost = fabric_enter(f);
	violation_note(f, port, v);
	fabric_leave(f, outermost);
}
