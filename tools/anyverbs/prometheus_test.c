/* prometheus_test.c: the value of each sample that Prometheus reads; each differs from the others.
 * others.
 * In: a survey made by hand    Out: verdicts    Runs: cmocka    Locks: none
 */
#include "prometheus.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "counters.h"

/* Of other files of the command. */
bool hosts_port_active(const struct host_port *p)
{
	return strcmp(p->state, "ACTIVE") == 0;
}

const char *view_type(const struct view_qp *q)
{
	return q->word == 6 ? "UD" : "RC";
}

const char *view_state(const struct view_qp *q)
{
	return q->word == 6 ? "ERR" : "RTS";
}

/* Two processes of two queue pairs, two devices, two addresses, the ports of two hosts. */
static struct {
	struct survey survey;
	struct proto_record record[2];
	struct view view[2];
	struct view_qp qp[2][2];
	struct host_port port[2];
	char *text;
} bed;

static void bed_add_process(u32 i)
{
	bed.record[i] = (struct proto_record){ .process = 7 + i, .pid = (s32)(500 + i),
					       .age_ms = 1000 * (11 + i) };
	bed.view[i] = (struct view){ .valid = true, .qps = bed.qp[i], .qp_count = 1 + i };
	for (u32 k = 0; k < 2; k++)
		bed.qp[i][k] = (struct view_qp){ .qpn = 0x100 + 16 * i + k,
						 .word = k == 1 ? 6 : 0,
						 .sent = 1000 + 10 * i + k,
						 .received = 2000 + 10 * i + k,
						 .sent_bytes = 3000 + 10 * i + k,
						 .received_bytes = 4000 + 10 * i + k,
						 .errors = 5000 + 10 * i + k };
	for (u32 k = 0; k < PATH_COUNTERS; k++)
		bed.view[i].counters[k] = 7000 + 100 * i + k;
}

static void bed_add_port(u32 i)
{
	struct host_port *p = &bed.port[i];

	*p = (struct host_port){ .device = "ib0", .number = 1, .state = i == 1 ? "ACTIVE" : "CUT" };
	snprintf(p->host, sizeof(p->host), "h%u", i + 1);
	p->counts = (struct fabric_counts){ .xmit_packets = 61 + i, .rcv_packets = 71 + i,
					    .xmit_bytes = 81 + i, .rcv_bytes = 91 + i };
	p->counts.errors[FABRIC_ERR_LINK_DOWNED] = 40 + i;
}

static void bed_add(u32 i)
{
	struct node_config *d = &bed.survey.devices[i];
	struct proto_address *a = &bed.survey.addresses.addresses[i];

	bed_add_process(i);
	bed_add_port(i);
	snprintf(d->device, sizeof(d->device), "roce%u", i);
	d->port_up = i == 0;
	d->port_downs = 30 + i;
	a->gid[10] = a->gid[11] = 0xff;
	a->gid[12] = 10;
	a->gid[15] = (u8)(1 + i);
	a->dropped = 15 + i;
	a->lost = 25 + i;
}

static int bed_open(void **state)
{
	FILE *was = stdout;
	size_t size;

	for (u32 i = 0; i < 2; i++)
		bed_add(i);
	strcpy(bed.survey.node.node, "here");
	bed.survey.node.uptime_ms = 77000;
	bed.survey.records = bed.record;
	bed.survey.views = bed.view;
	bed.survey.count = bed.survey.device_count = bed.survey.addresses.count = 2;
	bed.survey.hosts = (struct hosts){ .fabric = true, .ports = bed.port, .count = 2 };
	stdout = open_memstream(&bed.text, &size);
	prometheus_print(&bed.survey);
	fclose(stdout);
	stdout = was;
	return 0;
}

static int bed_close(void **state)
{
	free(bed.text);
	return 0;
}

/* The only sample of a family that has the label. */
static void expect(const char *family, const char *label, u32 value)
{
	char name[64];
	const char *found = NULL;
	size_t n = (size_t)snprintf(name, sizeof(name), "anyverbs_%s{host=\"here\"", family);

	for (const char *line = bed.text; *line != '\0'; line = strchr(line, '\n') + 1) {
		const char *at = strncmp(line, name, n) == 0 ? strstr(line, label) : NULL;

		if (at == NULL || at > strchr(line, '\n'))
			continue;
		if (found != NULL)
			fail_msg("two of %s %s", family, label);
		found = strstr(line, "} ");
	}
	if (found == NULL)
		fail_msg("no %s %s", family, label);
	if (strtod(found + 2, NULL) != value)
		fail_msg("%s %s: %.10s, not %u", family, label, found + 2, value);
}

static void each_field_has_its_value(void **state)
{
	static const struct {
		const char *family, *label;
		u32 value;
	} rows[] = {
		{ "node_uptime_seconds", "", 77 },
		{ "processes", "", 2 },
		{ "port_active", "device=\"roce0\"", 1 },
		{ "port_active", "device=\"roce1\"", 0 },
		{ "port_active", "fabric_host=\"h1\"", 0 },
		{ "port_active", "fabric_host=\"h2\"", 1 },
		{ "port_link_downed_total", "device=\"roce0\"", 30 },
		{ "port_link_downed_total", "device=\"roce1\"", 31 },
		{ "port_link_downed_total", "fabric_host=\"h1\"", 40 },
		{ "port_link_downed_total", "fabric_host=\"h2\"", 41 },
		{ "port_sent_packets_total", "fabric_host=\"h1\"", 61 },
		{ "port_sent_packets_total", "fabric_host=\"h2\"", 62 },
		{ "port_received_packets_total", "fabric_host=\"h1\"", 71 },
		{ "port_received_packets_total", "fabric_host=\"h2\"", 72 },
		{ "port_sent_bytes_total", "fabric_host=\"h1\"", 81 },
		{ "port_sent_bytes_total", "fabric_host=\"h2\"", 82 },
		{ "port_received_bytes_total", "fabric_host=\"h1\"", 91 },
		{ "port_received_bytes_total", "fabric_host=\"h2\"", 92 },
		{ "datagrams_for_nobody_total", "address=\"10.0.0.1\"", 15 },
		{ "datagrams_for_nobody_total", "address=\"10.0.0.2\"", 16 },
		{ "datagrams_lost_total", "address=\"10.0.0.1\"", 25 },
		{ "datagrams_lost_total", "address=\"10.0.0.2\"", 26 },
		{ "process_age_seconds", "pid=\"500\"", 11 },
		{ "process_age_seconds", "pid=\"501\"", 12 },
		{ "process_queue_pairs", "pid=\"500\"", 1 },
		{ "process_queue_pairs", "process=\"8\"", 2 },
		{ "qp_sent_messages_total", "qpn=\"0x000100\"", 1000 },
		{ "qp_sent_messages_total", "qpn=\"0x000111\"", 1011 },
		{ "qp_received_messages_total", "qpn=\"0x000110\"", 2010 },
		{ "qp_received_messages_total", "qpn=\"0x000111\"", 2011 },
		{ "qp_sent_bytes_total", "qpn=\"0x000111\"", 3011 },
		{ "qp_received_bytes_total", "qpn=\"0x000111\"", 4011 },
		{ "qp_errors_total", "qpn=\"0x000111\"", 5011 },
		{ "qp_state", "qpn=\"0x000110\",type=\"RC\",state=\"RTS\"", 1 },
		{ "qp_state", "qpn=\"0x000111\",type=\"UD\",state=\"ERR\"", 1 },
	};

	for (u32 i = 0; i < ARRAY_LEN(rows); i++)
		expect(rows[i].family, rows[i].label, rows[i].value);
}

static void each_counter_has_its_value(void **state)
{
	char family[64], label[64];

	for (u32 i = 0; i < 2; i++)
		for (u32 k = 0; k < PATH_COUNTERS; k++) {
			bool drop = counter_is_drop(k);

			snprintf(family, sizeof(family), "%s_total",
				 drop ? "drops" : path_counter_names[k]);
			snprintf(label, sizeof(label), "pid=\"%u\",command=\"\"%s%s%s", 500 + i,
				 drop ? ",reason=\"" : "", drop ? path_counter_names[k] : "",
				 drop ? "\"" : "");
			expect(family, label, 7000 + 100 * i + k);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_field_has_its_value),
		cmocka_unit_test(each_counter_has_its_value),
	};

	return cmocka_run_group_tests(tests, bed_open, bed_close);
}
