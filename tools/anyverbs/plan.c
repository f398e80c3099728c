/* plan.c: reads the fabric: names of nodes and ports, rates, states, errors.
 * In:    the node's maps, of any content      Out: nodes and ports
 * Runs:  the only thread                       Locks: none
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "fabric.h"

static const char *const plan_error_names[FABRIC_ERRORS] = {
	[FABRIC_ERR_SYMBOL] = "symbol",
	[FABRIC_ERR_LINK_RECOVERY] = "link-recovery",
	[FABRIC_ERR_LINK_DOWNED] = "link-downed",
	[FABRIC_ERR_RCV] = "receive",
	[FABRIC_ERR_RCV_PHYSICAL] = "receive-remote-physical",
	[FABRIC_ERR_RCV_SWITCH_RELAY] = "receive-switch-relay",
	[FABRIC_ERR_XMIT_DISCARDS] = "transmit-discards",
	[FABRIC_ERR_XMIT_CONSTRAINT] = "transmit-constraint",
	[FABRIC_ERR_RCV_CONSTRAINT] = "receive-constraint",
	[FABRIC_ERR_LOCAL_INTEGRITY] = "local-integrity",
	[FABRIC_ERR_BUFFER_OVERRUN] = "buffer-overrun",
	[FABRIC_ERR_VL15_DROPPED] = "vl15-dropped",
	[FABRIC_ERR_XMIT_WAIT] = "transmit-wait",
};

const char *plan_error_name(u32 error)
{
	return error < FABRIC_ERRORS ? plan_error_names[error] : NULL;
}

static void *plan_map(int fd, int prot, size_t *bytes)
{
	struct stat st;
	void *map;

	if (fstat(fd, &st) < 0 || st.st_size <= 0)
		return NULL;
	*bytes = (size_t)st.st_size;
	map = mmap(NULL, *bytes, prot, MAP_SHARED, fd, 0);
	return map == MAP_FAILED ? NULL : map;
}

int plan_open(struct plan *p, int fd)
{
	struct proto_plain request;
	struct message m;
	int err;

	memset(p, 0, sizeof(*p));
	err = link_ask(fd, PROTO_FABRIC_SHOW, &request, sizeof(request), &p->show, sizeof(p->show),
		       &m);
	if (err < 0)
		return err;
	text_clean(p->show.source, sizeof(p->show.source));
	err = -EPROTO;
	if (m.fd_count == 2) {
		p->map = plan_map(m.fds[0], PROT_READ, &p->map_bytes);
		p->counters_map = plan_map(m.fds[1], PROT_READ | PROT_WRITE, &p->counters_bytes);
		if (p->map != NULL && p->counters_map != NULL)
			err = fabric_view_open(&p->view, p->map, p->map_bytes);
		if (err == 0)
			err = fabric_counters_open(&p->counters, p->counters_map,
						   p->counters_bytes, &p->view);
	}
	message_close(&m);
	if (err < 0)
		plan_close(p);
	return err;
}

void plan_close(struct plan *p)
{
	if (p->map != NULL)
		munmap(p->map, p->map_bytes);
	if (p->counters_map != NULL)
		munmap(p->counters_map, p->counters_bytes);
	p->map = p->counters_map = NULL;
}

/* How well a name fits: 0 not at all. */
static int plan_fits(const struct fabric_node_attr *n, const char *name, u64 guid)
{
	size_t word = strcspn(n->desc, " ");

	if (strcmp(n->desc, name) == 0 || (guid != 0 && n->guid == guid))
		return 2;
	return strlen(name) == word && strncmp(n->desc, name, word) == 0;
}

u32 plan_find(const struct plan *p, const char *name)
{
	bool hex = strncmp(name, "0x", 2) == 0 || strncmp(name, "S-", 2) == 0 ||
		   strncmp(name, "H-", 2) == 0 || strncmp(name, "R-", 2) == 0;
	u64 guid = hex ? strtoull(name + 2, NULL, 16) : 0;
	u32 found = FABRIC_NONE;
	int best = 0;

	for (u32 i = 0; i < p->view.nodes; i++) {
		struct fabric_node_attr n;
		int fits;

		if (fabric_node_read(&p->view, i, &n) < 0)
			continue;
		fits = plan_fits(&n, name, guid);
		if (fits == 0 || fits < best)
			continue;
		found = fits > best ? i : FABRIC_NONE;
		best = fits;
	}
	return found;
}

int plan_find_port(const struct plan *p, const char *text, struct fabric_node_attr *node,
		   u32 *index, u32 *number)
{
	const char *colon = strrchr(text, ':');
	char name[128], *end = NULL;
	int length = colon != NULL ? (int)(colon - text) : (int)strlen(text);

	snprintf(name, sizeof(name), "%.*s", length, text);
	*index = plan_find(p, name);
	if (*index == FABRIC_NONE || fabric_node_read(&p->view, *index, node) < 0)
		return command_fail(EXIT_FAILED,
				    "fabric: no node, or more than one, has the name %s", name);
	*number = 0;
	if (colon == NULL)
		return EXIT_OK;
	*number = (u32)strtoul(colon + 1, &end, 10);
	if (end == colon + 1 || *end != '\0' || *number == 0 || *number > node->ports)
		return command_fail(EXIT_FAILED, "fabric: %s has ports 1 to %u", name, node->ports);
	return EXIT_OK;
}

bool plan_port(const struct plan *p, u32 port, struct fabric_port_attr *out)
{
	return fabric_port_read(&p->view, port, out) == 0;
}

double plan_rate(const struct fabric_port_attr *a)
{
	static const struct {
		u8 speed;
		double rate;
	} lanes[] = { { 1, 2.5 }, { 2, 5 },   { 4, 10 },  { 8, 10 },
		      { 16, 14 }, { 32, 25 }, { 64, 50 }, { 128, 100 } };

	for (size_t i = 0; i < ARRAY_LEN(lanes); i++)
		if (lanes[i].speed == a->speed)
			return lanes[i].rate * topo_width_lanes((enum topo_width)a->width);
	return 0;
}

const char *plan_state(const struct fabric_port_attr *a)
{
	static const char *const names[] = { "?", "DOWN", "INIT", "ARMED", "ACTIVE" };

	if (a->cut)
		return "CUT";
	if (a->state == FABRIC_DOWN && a->phys == FABRIC_PHYS_DISABLED)
		return "DISABLED"; /* by an SMP: no cable brings it up */
	return a->state < ARRAY_LEN(names) ? names[a->state] : "?";
}

u64 plan_errors(const struct plan *p, u32 port)
{
	struct fabric_counts c;
	u64 sum = 0;

	if (fabric_counts_read(&p->counters, port, &c) < 0)
		return 0;
	for (u32 i = 0; i < FABRIC_ERRORS; i++)
		sum += i == FABRIC_ERR_XMIT_WAIT ? 0 : c.errors[i];
	return sum;
}
