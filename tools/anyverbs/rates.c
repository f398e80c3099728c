/* rates.c: what happens per second between two surveys, as tables.
 * In:    two surveys              Out: tables
 * Runs:  the only thread          Locks: none
 */
#include "rates.h"

#include <string.h>

#include "counters.h"

/* All columns of a view and a blank between them: 80 characters at most; of queue pairs without the
 * host. The host is the last one: see rates_drawn. */
static const struct column rates_processes[] = {
	{ "PID", "pid", COLUMN_COUNT, 7, false },
	{ "COMMAND", "command", COLUMN_TEXT, 11, true },
	{ "QPS", "qps", COLUMN_COUNT, 5, false },
	{ "TX/s", "sent_per_s", COLUMN_RATE, 6, false },
	{ "RX/s", "received_per_s", COLUMN_RATE, 6, false },
	{ "TXB/s", "sent_bytes_per_s", COLUMN_RATE, 6, false },
	{ "RXB/s", "received_bytes_per_s", COLUMN_RATE, 6, false },
	{ "DIRECT/s", "direct_per_s", COLUMN_RATE, 8, false },
	{ "ERR", "errors", COLUMN_COUNT, 5, false },
	{ "DROP", "drops", COLUMN_COUNT, 5, false },
	{ "HOST", "host", COLUMN_TEXT, 5, true },
};
static const struct column rates_qps[] = {
	{ "QPN", "qpn", COLUMN_QPN, 8, false },
	{ "PID", "pid", COLUMN_COUNT, 7, false },
	{ "COMMAND", "command", COLUMN_TEXT, 8, true },
	{ "TYPE", "type", COLUMN_TEXT, 4, false },
	{ "STATE", "state", COLUMN_TEXT, 5, false },
	{ "PEER", "peer_qpn", COLUMN_QPN, 8, false },
	{ "TX/s", "sent_per_s", COLUMN_RATE, 6, false },
	{ "RX/s", "received_per_s", COLUMN_RATE, 6, false },
	{ "TXB/s", "sent_bytes_per_s", COLUMN_RATE, 6, false },
	{ "RXB/s", "received_bytes_per_s", COLUMN_RATE, 6, false },
	{ "ERR", "errors", COLUMN_COUNT, 5, false },
	{ "HOST", "host", COLUMN_TEXT, 5, true },
};
static const struct column rates_devices[] = {
	{ "DEVICE", "device", COLUMN_TEXT, 8, true },
	{ "STATE", "state", COLUMN_TEXT, 6, false },
	{ "GUID", "guid", COLUMN_TEXT, 16, false },
	{ "MTU", "mtu", COLUMN_COUNT, 4, false },
	{ "DOWNS", "link_downed", COLUMN_COUNT, 5, false },
	{ "QPS", "qps", COLUMN_COUNT, 5, false },
	{ "TX/s", "sent_per_s", COLUMN_RATE, 6, false },
	{ "RX/s", "received_per_s", COLUMN_RATE, 6, false },
	{ "TXB/s", "sent_bytes_per_s", COLUMN_RATE, 6, false },
	{ "RXB/s", "received_bytes_per_s", COLUMN_RATE, 6, false },
};
static const struct column rates_drops[] = {
	{ "REASON", "reason", COLUMN_TEXT, 20, false },
	{ "PID", "pid", COLUMN_COUNT, 7, false },
	{ "COMMAND", "command", COLUMN_TEXT, 12, false },
	{ "/s", "per_s", COLUMN_RATE, 6, false },
	{ "TOTAL", "total", COLUMN_COUNT, 8, false },
	{ "MEANING", "meaning", COLUMN_TEXT, 22, true },
};

const char *const rates_view_names[RATES_VIEWS] = { "processes", "qps", "devices", "drops" };
const char *const rates_view_sorts[RATES_VIEWS] = { "sent_bytes_per_s", "sent_bytes_per_s",
						    "device", "total" };

void rates_table(struct table *t, enum rates_view view)
{
	switch (view) {
	case VIEW_QPS:
		return table_init(t, rates_qps, ARRAY_LEN(rates_qps));
	case VIEW_DEVICES:
		return table_init(t, rates_devices, ARRAY_LEN(rates_devices));
	case VIEW_DROPS:
		return table_init(t, rates_drops, ARRAY_LEN(rates_drops));
	default:
		return table_init(t, rates_processes, ARRAY_LEN(rates_processes));
	}
}

u32 rates_drawn(enum rates_view view, const struct survey *now)
{
	struct table t;
	u32 hosts = 0;

	rates_table(&t, view);
	for (u32 i = 0; now != NULL && i < now->count; i++)
		hosts += now->records[i].host[0] != '\0';
	return t.column_count - (hosts == 0 && (view == VIEW_PROCESSES || view == VIEW_QPS));
}

/* ---- differences ----------------------------------------------------------------------------- */

/* Rates and errors of a queue pair, or of several. */
struct rates_flow {
	double sent, received, sent_bytes, received_bytes;
	u64 errors;
	u32 qps, qps_err;
} OWNED_BY(the only thread);

/* The process in an earlier survey; NULL: it was not there. */
static const struct view *rates_earlier(const struct survey *before, u64 process)
{
	for (u32 i = 0; before != NULL && i < before->count; i++)
		if (before->records[i].process == process)
			return before->views[i].valid ? &before->views[i] : NULL;
	return NULL;
}

/* A counter that has fallen belongs to another object: no rate. */
static double rates_per_second(u64 now, u64 before, double seconds)
{
	return now > before && seconds > 0 ? (double)(now - before) / seconds : 0;
}

/* The queue pair in an earlier view. Both are in the order of places, so the search goes on from
 * *at; NULL: it was not there. */
static const struct view_qp *rates_find(const struct view *v, const struct view_qp *q, u32 *at)
{
	while (v != NULL && *at < v->qp_count && v->qps[*at].place < q->place)
		++*at;
	if (v == NULL || *at >= v->qp_count || v->qps[*at].place != q->place)
		return NULL;
	return v->qps[*at].qpn == q->qpn ? &v->qps[*at] : NULL;
}

static void rates_flow_add(struct rates_flow *f, const struct view_qp *now,
			   const struct view_qp *before, double seconds)
{
	f->qps++;
	f->qps_err += strcmp(view_state(now), "ERR") == 0;
	f->errors += now->errors;
	if (before == NULL)
		return;
	f->sent += rates_per_second(now->sent, before->sent, seconds);
	f->received += rates_per_second(now->received, before->received, seconds);
	f->sent_bytes += rates_per_second(now->sent_bytes, before->sent_bytes, seconds);
	f->received_bytes += rates_per_second(now->received_bytes, before->received_bytes,
					      seconds);
}

static void rates_process_flow(const struct view *now, const struct view *before,
			       double seconds, struct rates_flow *f)
{
	u32 at = 0;

	for (u32 i = 0; i < now->qp_count; i++)
		rates_flow_add(f, &now->qps[i], rates_find(before, &now->qps[i], &at),
			       seconds);
}

static double rates_counter(const struct view *now, const struct view *before, u32 counter,
			    double seconds)
{
	if (before == NULL)
		return 0;
	return rates_per_second(now->counters[counter], before->counters[counter], seconds);
}

/* Four cells of a row. */
static void rates_cells(union cell *c, const struct rates_flow *f)
{
	c[0].number = f->sent;
	c[1].number = f->received;
	c[2].number = f->sent_bytes;
	c[3].number = f->received_bytes;
}

/* ---- the views ------------------------------------------------------------------------------- */

static bool rates_fill_processes(struct table *t, const struct survey *now,
				 const struct survey *before, double seconds)
{
	for (u32 i = 0; i < now->count; i++) {
		const struct proto_record *r = &now->records[i];
		const struct view *v = &now->views[i], *old = rates_earlier(before, r->process);
		union cell *c = table_add(t);
		struct rates_flow f = { .qps = 0 };

		if (c == NULL)
			return false;
		rates_process_flow(v, old, seconds, &f);
		c[0].number = r->pid;
		c[1].text = r->command;
		c[2].number = f.qps;
		rates_cells(c + 3, &f);
		c[7].number = rates_counter(v, old, COUNT_DIRECT, seconds);
		c[8].number = (double)f.errors;
		c[9].number = (double)counter_drops(v->counters);
		c[10].text = r->host;
	}
	return true;
}

static bool rates_fill_process_qps(struct table *t, const struct proto_record *r,
				   const struct view *now, const struct view *before,
				   double seconds)
{
	u32 at = 0;

	for (u32 i = 0; i < now->qp_count; i++) {
		const struct view_qp *q = &now->qps[i];
		union cell *c = table_add(t);
		struct rates_flow f = { .qps = 0 };

		if (c == NULL)
			return false;
		rates_flow_add(&f, q, rates_find(before, q, &at), seconds);
		c[0].number = q->qpn;
		c[1].number = r->pid;
		c[2].text = r->command;
		c[3].text = view_type(q);
		c[4].text = view_state(q);
		c[5].number = q->peer_qpn;
		rates_cells(c + 6, &f);
		c[10].number = (double)q->errors;
		c[11].text = r->host;
	}
	return true;
}

static bool rates_fill_qps(struct table *t, const struct survey *now, const struct survey *before,
			   double seconds)
{
	for (u32 i = 0; i < now->count; i++)
		if (!rates_fill_process_qps(t, &now->records[i], &now->views[i],
					    rates_earlier(before, now->records[i].process),
					    seconds))
			return false;
	return true;
}

/* The queue pairs that send from a GID of the device. */
static void rates_device_flow(const struct node_config *device, const struct survey *now,
			      const struct survey *before, double seconds, struct rates_flow *f)
{
	for (u32 i = 0; i < now->count; i++) {
		const struct view *v = &now->views[i];
		const struct view *old = rates_earlier(before, now->records[i].process);
		u32 at = 0;

		for (u32 k = 0; k < v->qp_count; k++)
			if (survey_device(now, v->qps[k].sgid_index) == device)
				rates_flow_add(f, &v->qps[k],
					       rates_find(old, &v->qps[k], &at), seconds);
	}
}

/* Queue pairs of the processes on a host. */
static u32 rates_host_qps(const struct survey *now, const char *host)
{
	u32 qps = 0;

	for (u32 i = 0; i < now->count; i++)
		if (strcmp(now->records[i].host, host) == 0)
			qps += now->views[i].qp_count;
	return qps;
}

/* The ports of a fabric's hosts: their rates are what the fabric has counted, in packets. */
static bool rates_fill_hosts(struct table *t, const struct survey *now,
			     const struct survey *before, double seconds)
{
	for (u32 i = 0; i < now->hosts.count; i++) {
		const struct host_port *p = &now->hosts.ports[i];
		const struct host_port *old =
			before != NULL ? hosts_find(&before->hosts, p->name) : NULL;
		const struct fabric_counts *n = &p->counts, *o = old != NULL ? &old->counts : n;
		union cell *c = table_add(t);

		if (c == NULL)
			return false;
		c[0].text = p->name;
		c[1].text = p->state;
		c[2].text = p->guid;
		c[3].number = p->mtu;
		c[4].number = (double)n->errors[FABRIC_ERR_LINK_DOWNED];
		c[5].number = rates_host_qps(now, p->host);
		c[6].number = rates_per_second(n->xmit_packets, o->xmit_packets, seconds);
		c[7].number = rates_per_second(n->rcv_packets, o->rcv_packets, seconds);
		c[8].number = rates_per_second(n->xmit_bytes, o->xmit_bytes, seconds);
		c[9].number = rates_per_second(n->rcv_bytes, o->rcv_bytes, seconds);
	}
	return true;
}

static bool rates_fill_devices(struct table *t, const struct survey *now,
			       const struct survey *before, double seconds)
{
	for (u32 i = 0; i < now->device_count; i++) {
		const struct node_config *d = &now->devices[i];
		union cell *c = table_add(t);
		struct rates_flow f = { .qps = 0 };

		if (c == NULL)
			return false;
		rates_device_flow(d, now, before, seconds, &f);
		c[0].text = d->device;
		c[1].text = d->port_up ? "ACTIVE" : "DOWN";
		c[2].text = now->guids[i];
		c[3].number = d->mtu;
		c[4].number = d->port_downs;
		c[5].number = f.qps;
		rates_cells(c + 6, &f);
	}
	return rates_fill_hosts(t, now, before, seconds);
}

static bool rates_fill_process_drops(struct table *t, const struct proto_record *r,
				     const struct view *now, const struct view *before,
				     double seconds)
{
	for (u32 i = 0; i < PATH_COUNTERS; i++) {
		union cell *c;

		if (!counter_is_drop(i) || now->counters[i] == 0)
			continue;
		c = table_add(t);
		if (c == NULL)
			return false;
		c[0].text = path_counter_names[i];
		c[1].number = r->pid;
		c[2].text = r->command;
		c[3].number = rates_counter(now, before, i, seconds);
		c[4].number = (double)now->counters[i];
		c[5].text = counter_meaning(i);
	}
	return true;
}

/* What the node itself has counted, per address of the host. */
static bool rates_fill_node_drops(struct table *t, const struct survey *now,
				  const struct survey *before, double seconds)
{
	u64 nobody[2] = { 0 }, lost[2] = { 0 };
	const struct survey *both[2] = { now, before };

	for (u32 k = 0; k < 2 && both[k] != NULL; k++)
		for (u32 i = 0; i < both[k]->addresses.count; i++) {
			nobody[k] += both[k]->addresses.addresses[i].dropped;
			lost[k] += both[k]->addresses.addresses[i].lost;
		}
	for (u32 i = 0; i < 2; i++) {
		u64 *n = i == 0 ? nobody : lost;
		union cell *c;

		if (n[0] == 0)
			continue;
		c = table_add(t);
		if (c == NULL)
			return false;
		c[0].text = i == 0 ? "datagrams_for_nobody" : "datagrams_lost";
		c[1].number = now->node.pid;
		c[2].text = "(the node)";
		c[3].number = before != NULL ? rates_per_second(n[0], n[1], seconds) : 0;
		c[4].number = (double)n[0];
		c[5].text = i == 0 ? "no process has the slot" : "the socket's buffer was full";
	}
	return true;
}

static bool rates_fill_drops(struct table *t, const struct survey *now,
			     const struct survey *before, double seconds)
{
	for (u32 i = 0; i < now->count; i++)
		if (!rates_fill_process_drops(t, &now->records[i], &now->views[i],
					      rates_earlier(before, now->records[i].process),
					      seconds))
			return false;
	return rates_fill_node_drops(t, now, before, seconds);
}

bool rates_fill(struct table *t, enum rates_view view, const struct survey *now,
		const struct survey *before, double seconds)
{
	switch (view) {
	case VIEW_QPS:
		return rates_fill_qps(t, now, before, seconds);
	case VIEW_DEVICES:
		return rates_fill_devices(t, now, before, seconds);
	case VIEW_DROPS:
		return rates_fill_drops(t, now, before, seconds);
	default:
		return rates_fill_processes(t, now, before, seconds);
	}
}

void rates_add_up(const struct survey *now, const struct survey *before, double seconds,
		  struct rates_sum *out)
{
	struct rates_flow f = { .qps = 0 };

	memset(out, 0, sizeof(*out));
	for (u32 i = 0; i < now->count; i++) {
		const struct view *old = rates_earlier(before, now->records[i].process);

		rates_process_flow(&now->views[i], old, seconds, &f);
		out->direct += rates_counter(&now->views[i], old, COUNT_DIRECT, seconds);
		out->drops += counter_drops(now->views[i].counters);
	}
	out->processes = now->count;
	out->qps = f.qps;
	out->qps_err = f.qps_err;
	out->sent = f.sent;
	out->received = f.received;
	out->sent_bytes = f.sent_bytes;
	out->received_bytes = f.received_bytes;
	out->errors = f.errors;
}
