/* fabric_show.c: the fabric as text, as JSON and as a graph.
 * In:    struct plan          Out: text
 * Runs:  the only thread      Locks: none
 */
#include <string.h>

#include "fabric.h"

/* A node's description, and after it the next node; false: there are no more. */
static bool show_node(const struct plan *p, u32 index, struct fabric_node_attr *n)
{
	if (index >= p->view.nodes || fabric_node_read(&p->view, index, n) < 0)
		return false;
	text_clean(n->desc, sizeof(n->desc));
	return true;
}

static const char *show_type(const struct fabric_node_attr *n)
{
	return n->type == FABRIC_SWITCH ? "switch" : n->type == FABRIC_CA ? "ca" : "router";
}

/* The node and number at the other end of a cable. */
static bool show_peer(const struct plan *p, const struct fabric_port_attr *a,
		      struct fabric_node_attr *peer, struct fabric_port_attr *there)
{
	return a->peer != FABRIC_NONE && plan_port(p, a->peer, there) &&
	       show_node(p, there->node, peer);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void show_text_port(const struct plan *p, u32 port)
{
	struct fabric_port_attr a, there;
	struct fabric_node_attr peer;
	u64 errors = plan_errors(p, port);

	if (!plan_port(p, port, &a) || !show_peer(p, &a, &peer, &there))
		return;
	printf("  [%u] -> %s [%u]  %s %g Gb/s", a.number, peer.desc, there.number, plan_state(&a),
	       plan_rate(&a));
	if (a.lid != 0)
		printf(" lid %u", a.lid);
	if (errors != 0)
		printf(" errors %llu", (unsigned long long)errors);
	putchar('\n');
}

static void show_text_node(const struct plan *p, const struct fabric_node_attr *n)
{
	struct fabric_port_attr zero;

	printf("%s %s 0x%016llx", show_type(n), n->desc, (unsigned long long)n->guid);
	if (n->type == FABRIC_SWITCH && plan_port(p, n->first_port, &zero) && zero.lid != 0)
		printf(" lid %u", zero.lid);
	putchar('\n');
	for (u32 i = 1; i <= n->ports; i++)
		show_text_port(p, n->first_port + i);
}

/* What there is of each state. */
struct show_sum {
	u32 switches, cas, links, active, down;
};

static void show_add_up(const struct plan *p, struct show_sum *s)
{
	struct fabric_node_attr n;
	struct fabric_port_attr a;

	memset(s, 0, sizeof(*s));
	for (u32 i = 0; show_node(p, i, &n); i++) {
		s->switches += n.type == FABRIC_SWITCH;
		s->cas += n.type != FABRIC_SWITCH;
		for (u32 k = 1; k <= n.ports; k++) {
			u32 port = n.first_port + k;

			if (!plan_port(p, port, &a) || a.peer == FABRIC_NONE || a.peer < port)
				continue;
			s->links++;
			s->active += a.state == FABRIC_ACTIVE;
			s->down += a.state == FABRIC_DOWN;
		}
	}
}

static const char *show_sm_state(const struct plan *p)
{
	static const char *const states[] = { "not active", "discovering", "standby", "master" };

	return p->show.sm_state < ARRAY_LEN(states) ? states[p->show.sm_state] : "none";
}

static void show_text_sm(const struct plan *p)
{
	printf("subnet manager of its own: %s", show_sm_state(p));
	if (p->show.sm_state != PROTO_FABRIC_SM_NONE)
		printf("%s; %llu sweeps, %llu SMPs, %llu queries",
		       p->show.sm_busy != 0 ? ", busy" : "", (unsigned long long)p->show.sm_sweeps,
		       (unsigned long long)p->show.sm_smps, (unsigned long long)p->show.sm_queries);
	putchar('\n');
}

int show_text(const struct plan *p)
{
	struct fabric_node_attr n;
	struct show_sum s;

	show_add_up(p, &s);
	printf("fabric of %s: %u switches, %u CAs, %u links (%u active, %u down), %u ports\n",
	       p->show.source, s.switches, s.cas, s.links, s.active, s.down, p->view.ports);
	printf("%u processes on hosts; MADs: %llu sent, %llu received, %llu for nobody, "
	       "%llu without room, %llu malformed\n",
	       p->show.processes, (unsigned long long)p->show.sent,
	       (unsigned long long)p->show.received, (unsigned long long)p->show.unclaimed,
	       (unsigned long long)p->show.overrun, (unsigned long long)p->show.malformed);
	show_text_sm(p);
	for (u32 i = 0; show_node(p, i, &n); i++)
		show_text_node(p, &n);
	return EXIT_OK;
}

static void show_host_port(const struct plan *p, u32 port)
{
	u32 ip = fabric_ip_of(&p->view, port);
	struct fabric_port_attr a;

	if (!plan_port(p, port, &a))
		return;
	printf(" [%u] %s lid %u", a.number, plan_state(&a), a.lid);
	if (ip != 0)
		printf(" %u.%u.%u.%u", ip >> 24, ip >> 16 & 255, ip >> 8 & 255, ip & 255);
}

int show_hosts(const struct plan *p)
{
	struct fabric_node_attr n;

	for (u32 i = 0; show_node(p, i, &n); i++) {
		if (n.type != FABRIC_CA)
			continue;
		printf("%s 0x%016llx", n.desc, (unsigned long long)n.guid);
		for (u32 k = 1; k <= n.ports; k++)
			show_host_port(p, n.first_port + k);
		putchar('\n');
	}
	return EXIT_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void show_json_port(const struct plan *p, u32 port, bool first)
{
	struct fabric_port_attr a, there;
	struct fabric_node_attr peer;
	struct fabric_counts c;

	if (!plan_port(p, port, &a) || fabric_counts_read(&p->counters, port, &c) < 0)
		return;
	printf("%s{\"port\": %u, \"guid\": \"0x%016llx\", \"lid\": %u, \"lmc\": %u, "
	       "\"state\": \"%s\", \"gbps\": %g",
	       first ? "" : ", ", a.number, (unsigned long long)a.guid, a.lid, a.lmc,
	       plan_state(&a), plan_rate(&a));
	if (show_peer(p, &a, &peer, &there)) {
		printf(", \"peer\": ");
		json_string(stdout, peer.desc);
		printf(", \"peer_port\": %u", there.number);
	}
	printf(", \"xmit_bytes\": %llu, \"rcv_bytes\": %llu, \"xmit_packets\": %llu, "
	       "\"rcv_packets\": %llu",
	       (unsigned long long)c.xmit_bytes, (unsigned long long)c.rcv_bytes,
	       (unsigned long long)c.xmit_packets, (unsigned long long)c.rcv_packets);
	for (u32 i = 0; i < FABRIC_ERRORS; i++)
		if (c.errors[i] != 0)
			printf(", \"%s\": %llu", plan_error_name(i),
			       (unsigned long long)c.errors[i]);
	putchar('}');
}

static void show_json_node(const struct plan *p, const struct fabric_node_attr *n)
{
	u32 first = n->type == FABRIC_SWITCH ? 0 : 1;

	printf("{\"type\": \"%s\", \"description\": ", show_type(n));
	json_string(stdout, n->desc);
	printf(", \"guid\": \"0x%016llx\", \"ports\": [", (unsigned long long)n->guid);
	for (u32 i = first; i <= n->ports; i++)
		show_json_port(p, n->first_port + i, i == first);
	printf("]}");
}

int show_json(const struct plan *p)
{
	struct fabric_node_attr n;

	printf("{\"source\": ");
	json_string(stdout, p->show.source);
	printf(", \"sm\": \"%s\", \"sweeps\": %llu", show_sm_state(p),
	       (unsigned long long)p->show.sm_sweeps);
	printf(", \"processes\": %u, \"sent\": %llu, \"received\": %llu, \"unclaimed\": %llu, "
	       "\"overrun\": %llu, \"malformed\": %llu, \"nodes\": [",
	       p->show.processes, (unsigned long long)p->show.sent,
	       (unsigned long long)p->show.received, (unsigned long long)p->show.unclaimed,
	       (unsigned long long)p->show.overrun, (unsigned long long)p->show.malformed);
	for (u32 i = 0; show_node(p, i, &n); i++) {
		printf("%s\n", i == 0 ? "" : ",");
		show_json_node(p, &n);
	}
	printf("\n]}\n");
	return EXIT_OK;
}

/* ---- graph ----------------------------------------------------------------------------------- */

static void show_dot_link(const struct plan *p, u32 port, FILE *out)
{
	struct fabric_port_attr a, there;
	struct fabric_node_attr peer;
	const char *color;
	u64 errors;

	/* each cable once */
	if (!plan_port(p, port, &a) || a.peer < port || !show_peer(p, &a, &peer, &there))
		return;
	errors = plan_errors(p, port) + plan_errors(p, a.peer);
	color = a.state == FABRIC_DOWN	 ? "red"
		: a.state != FABRIC_ACTIVE ? "orange"
		: errors != 0		   ? "purple"
					   : "darkgreen";
	fprintf(out, "n%u -- n%u [color=%s, taillabel=\"%u\", headlabel=\"%u\", label=\"%g", a.node,
		there.node, color, a.number, there.number, plan_rate(&a));
	if (a.state != FABRIC_ACTIVE)
		fprintf(out, "\\n%s", plan_state(&a));
	if (errors != 0)
		fprintf(out, "\\n%llu errors", (unsigned long long)errors);
	fprintf(out, "\"];\n");
}

int show_dot(const struct plan *p, FILE *out)
{
	struct fabric_node_attr n;

	fprintf(out, "graph fabric {\nnode [shape=box, fontname=\"sans-serif\"];\n"
		     "edge [fontsize=8, fontname=\"sans-serif\"];\n");
	for (u32 i = 0; show_node(p, i, &n); i++) {
		fprintf(out, "n%u [label=", i);
		json_string(out, n.desc);
		fprintf(out, "%s];\n",
			n.type == FABRIC_SWITCH ? ", style=filled, fillcolor=lightblue" : "");
	}
	for (u32 i = 0; show_node(p, i, &n); i++)
		for (u32 k = 1; k <= n.ports; k++)
			show_dot_link(p, n.first_port + k, out);
	fprintf(out, "}\n");
	return EXIT_OK;
}
