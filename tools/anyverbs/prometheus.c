/* prometheus.c: what `status` shows in Prometheus' text exposition format, version 0.0.4.
 * In:    a survey                Out: standard output
 * Runs:  the only thread         Locks: none
 */
#include "prometheus.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "counters.h"

/* ---- the format ------------------------------------------------------------------------------ */

/* The lines above a family's samples. */
static void prometheus_family(const char *name, const char *suffix, const char *type,
			      const char *help)
{
	printf("# HELP anyverbs_%s%s %s\n# TYPE anyverbs_%s%s %s\n", name, suffix, help, name,
	       suffix, type);
}

/* A label with its value escaped, behind the others. */
static void prometheus_label(const char *name, const char *value)
{
	printf(",%s=\"", name);
	for (const char *c = value; *c != '\0'; c++) {
		if (*c == '\\' || *c == '"')
			printf("\\%c", *c);
		else if (*c == '\n')
			fputs("\\n", stdout);
		else
			putchar(*c);
	}
	putchar('"');
}

/* Begins a sample: its name and the label that all have. prometheus_value ends it. */
static void prometheus_sample(const struct survey *s, const char *name, const char *suffix)
{
	printf("anyverbs_%s%s{host=\"", name, suffix);
	/* a node's name has letters, digits, dots, dashes and underscores only; it is checked
	 * nonetheless */
	for (const char *c = s->node.node; *c != '\0'; c++)
		putchar(*c == '"' || *c == '\\' ? '_' : *c);
	putchar('"');
}

static void prometheus_value(u64 value)
{
	printf("} %llu\n", (unsigned long long)value);
}

/* ---- the node -------------------------------------------------------------------------------- */

static void prometheus_node(const struct survey *s)
{
	prometheus_family("node_uptime_seconds", "", "gauge", "Age of the node.");
	prometheus_sample(s, "node_uptime_seconds", "");
	printf("} %.3f\n", (double)s->node.uptime_ms / 1e3);
	prometheus_family("processes", "", "gauge", "Processes attached to the node.");
	prometheus_sample(s, "processes", "");
	prometheus_value(s->count);
}

/* Begins a sample of a port of a fabric's host. */
static void prometheus_host_port(const struct survey *s, u32 i, const char *name,
				 const char *suffix)
{
	const struct host_port *p = &s->hosts.ports[i];

	prometheus_sample(s, name, suffix);
	prometheus_label("device", p->device);
	printf(",port=\"%u\"", p->number);
	prometheus_label("fabric_host", p->host);
}

static void prometheus_devices(const struct survey *s)
{
	prometheus_family("port_active", "", "gauge", "1 if the port is ACTIVE, 0 if it is DOWN.");
	for (u32 i = 0; i < s->device_count; i++) {
		prometheus_sample(s, "port_active", "");
		prometheus_label("device", s->devices[i].device);
		prometheus_label("port", "1");
		prometheus_value(s->devices[i].port_up != 0);
	}
	for (u32 i = 0; i < s->hosts.count; i++) {
		prometheus_host_port(s, i, "port_active", "");
		prometheus_value(hosts_port_active(&s->hosts.ports[i]));
	}
	prometheus_family("port_link_downed", "_total", "counter", "How often the port went down.");
	for (u32 i = 0; i < s->device_count; i++) {
		prometheus_sample(s, "port_link_downed", "_total");
		prometheus_label("device", s->devices[i].device);
		prometheus_label("port", "1");
		prometheus_value(s->devices[i].port_downs);
	}
	for (u32 i = 0; i < s->hosts.count; i++) {
		prometheus_host_port(s, i, "port_link_downed", "_total");
		prometheus_value(s->hosts.ports[i].counts.errors[FABRIC_ERR_LINK_DOWNED]);
	}
}

/* What ports of a fabric count, which adapters of RoCE do not. */
static const struct {
	const char *name, *help;
	size_t offset;
} prometheus_counts[] = {
	{ "port_sent_bytes", "Bytes that left the port.",
	  offsetof(struct fabric_counts, xmit_bytes) },
	{ "port_received_bytes", "Bytes that came to the port.",
	  offsetof(struct fabric_counts, rcv_bytes) },
	{ "port_sent_packets", "Packets that left the port.",
	  offsetof(struct fabric_counts, xmit_packets) },
	{ "port_received_packets", "Packets that came to the port.",
	  offsetof(struct fabric_counts, rcv_packets) },
};

static void prometheus_host_ports(const struct survey *s)
{
	for (size_t t = 0; s->hosts.count > 0 && t < ARRAY_LEN(prometheus_counts); t++) {
		prometheus_family(prometheus_counts[t].name, "_total", "counter",
				  prometheus_counts[t].help);
		for (u32 i = 0; i < s->hosts.count; i++) {
			u64 value;

			memcpy(&value,
			       (const char *)&s->hosts.ports[i].counts +
				       prometheus_counts[t].offset,
			       sizeof(value));
			prometheus_host_port(s, i, prometheus_counts[t].name, "_total");
			prometheus_value(value);
		}
	}
}

/* An address on one interface. */
static void prometheus_address(const struct survey *s, u32 i, const char *name)
{
	static const u8 mapped[12] = { [10] = 0xff, [11] = 0xff };
	const struct proto_address *a = &s->addresses.addresses[i];
	bool v4 = memcmp(a->gid, mapped, sizeof(mapped)) == 0;
	char text[INET6_ADDRSTRLEN] = "", interface[IF_NAMESIZE] = "";

	inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? a->gid + 12 : a->gid, text, sizeof(text));
	if (a->ifindex != 0 && if_indextoname(a->ifindex, interface) == NULL)
		interface[0] = '\0';
	prometheus_sample(s, name, "_total");
	prometheus_label("address", text);
	prometheus_label("interface", interface);
	printf(",index=\"%u\"", i);
	prometheus_value(strcmp(name, "datagrams_lost") == 0 ? a->lost : a->dropped);
}

static void prometheus_addresses(const struct survey *s)
{
	prometheus_family("datagrams_for_nobody", "_total", "counter",
			  "Datagrams to port 4791 whose slot no process has.");
	for (u32 i = 0; i < s->addresses.count; i++)
		prometheus_address(s, i, "datagrams_for_nobody");
	prometheus_family("datagrams_lost", "_total", "counter",
			  "Datagrams that found a socket's buffer full.");
	for (u32 i = 0; i < s->addresses.count; i++)
		prometheus_address(s, i, "datagrams_lost");
}

/* ---- processes ------------------------------------------------------------------------------- */

/* Begins a sample of a process. The node's number makes it unique: a PID may come twice, from two
 * PID namespaces. */
static void prometheus_process(const struct survey *s, u32 i, const char *name, const char *suffix)
{
	prometheus_sample(s, name, suffix);
	printf(",process=\"%llu\",pid=\"%d\"", (unsigned long long)s->records[i].process,
	       s->records[i].pid);
	prometheus_label("command", s->records[i].command);
	if (s->records[i].host[0] != '\0')
		prometheus_label("fabric_host", s->records[i].host);
}

static void prometheus_processes(const struct survey *s)
{
	prometheus_family("process_age_seconds", "", "gauge",
			  "Time since the process attached to the node.");
	for (u32 i = 0; i < s->count; i++) {
		prometheus_process(s, i, "process_age_seconds", "");
		printf("} %.3f\n", (double)s->records[i].age_ms / 1e3);
	}
	prometheus_family("process_queue_pairs", "", "gauge", "Queue pairs of the process.");
	for (u32 i = 0; i < s->count; i++) {
		prometheus_process(s, i, "process_queue_pairs", "");
		prometheus_value(s->views[i].qp_count);
	}
}

static void prometheus_drops(const struct survey *s)
{
	prometheus_family("drops", "_total", "counter",
			  "Packets and messages dropped, by reason.");
	for (u32 i = 0; i < s->count; i++)
		for (u32 k = 0; s->views[i].valid && k < PATH_COUNTERS; k++) {
			if (!counter_is_drop(k))
				continue;
			prometheus_process(s, i, "drops", "_total");
			prometheus_label("reason", path_counter_names[k]);
			prometheus_value(s->views[i].counters[k]);
		}
}

static void prometheus_counters(const struct survey *s)
{
	for (u32 k = 0; k < PATH_COUNTERS; k++) {
		if (counter_is_drop(k))
			continue;
		prometheus_family(path_counter_names[k], "_total", "counter", counter_meaning(k));
		for (u32 i = 0; i < s->count; i++) {
			if (!s->views[i].valid)
				continue;
			prometheus_process(s, i, path_counter_names[k], "_total");
			prometheus_value(s->views[i].counters[k]);
		}
	}
}

/* ---- queue pairs ----------------------------------------------------------------------------- */

static const struct {
	const char *name, *help;
	size_t offset;
} prometheus_tallies[] = {
	{ "qp_sent_messages", "Messages completed by the requester.",
	  offsetof(struct view_qp, sent) },
	{ "qp_sent_bytes", "Bytes of messages completed by the requester.",
	  offsetof(struct view_qp, sent_bytes) },
	{ "qp_received_messages", "Messages completed by the responder.",
	  offsetof(struct view_qp, received) },
	{ "qp_received_bytes", "Bytes of messages completed by the responder.",
	  offsetof(struct view_qp, received_bytes) },
	{ "qp_errors", "Completions with an error.", offsetof(struct view_qp, errors) },
};

static void prometheus_qp(const struct survey *s, u32 i, const struct view_qp *q, const char *name,
			  const char *suffix)
{
	prometheus_process(s, i, name, suffix);
	printf(",qpn=\"0x%06x\",type=\"%s\"", q->qpn, view_type(q));
}

static void prometheus_states(const struct survey *s)
{
	prometheus_family("qp_state", "", "gauge",
			  "1 for the state that the queue pair is in.");
	for (u32 i = 0; i < s->count; i++)
		for (u32 k = 0; k < s->views[i].qp_count; k++) {
			prometheus_qp(s, i, &s->views[i].qps[k], "qp_state", "");
			prometheus_label("state", view_state(&s->views[i].qps[k]));
			prometheus_value(1);
		}
}

static void prometheus_qps(const struct survey *s)
{
	prometheus_states(s);
	for (size_t t = 0; t < ARRAY_LEN(prometheus_tallies); t++) {
		const char *name = prometheus_tallies[t].name;

		prometheus_family(name, "_total", "counter", prometheus_tallies[t].help);
		for (u32 i = 0; i < s->count; i++)
			for (u32 k = 0; k < s->views[i].qp_count; k++) {
				const struct view_qp *q = &s->views[i].qps[k];
				u64 value;

				memcpy(&value, (const char *)q + prometheus_tallies[t].offset,
				       sizeof(value));
				prometheus_qp(s, i, q, name, "_total");
				prometheus_value(value);
			}
	}
}

void prometheus_print(const struct survey *s)
{
	prometheus_family("up", "", "gauge", "1 if a node runs.");
	printf("anyverbs_up %d\n", s != NULL);
	if (s == NULL)
		return;
	prometheus_node(s);
	prometheus_devices(s);
	prometheus_host_ports(s);
	prometheus_addresses(s);
	prometheus_processes(s);
	prometheus_drops(s);
	prometheus_counters(s);
	prometheus_qps(s);
}
