/* rates_test.c: what two surveys say per second. */
#include "rates.h"

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
const struct node_config *survey_device(const struct survey *s, u32 gid_index)
{
	return gid_index / NODE_GIDS < s->device_count ? &s->devices[gid_index / NODE_GIDS] : NULL;
}

const struct host_port *hosts_find(const struct hosts *h, const char *name)
{
	for (u32 i = 0; i < h->count; i++)
		if (strcmp(h->ports[i].name, name) == 0)
			return &h->ports[i];
	return NULL;
}

const char *view_type(const struct view_qp *q)
{
	return "RC";
}

const char *view_state(const struct view_qp *q)
{
	return q->word == 6 ? "ERR" : "RTS";
}

/* One process with two queue pairs. */
struct bed {
	struct survey survey;
	struct proto_record record;
	struct view view;
	struct view_qp qps[2];
} OWNED_BY(the only thread);

static void make(struct bed *b, u64 process, u64 sent)
{
	memset(b, 0, sizeof(*b));
	b->record = (struct proto_record){ .process = process, .pid = 100, .command = "client" };
	b->qps[0] =
		(struct view_qp){ .place = 3, .qpn = 0x11, .sent = sent, .sent_bytes = 10 * sent };
	b->qps[1] = (struct view_qp){ .place = 9, .qpn = 0x22, .received = sent, .word = 6,
				      .errors = 2, .sgid_index = NODE_GIDS };
	b->view = (struct view){ .valid = true, .qps = b->qps, .qp_count = 2 };
	b->view.counters[COUNT_RX_ICRC] = sent / 10;
	b->view.counters[COUNT_RX_PACKETS] = 7 * sent;
	b->survey = (struct survey){ .records = &b->record, .views = &b->view, .count = 1,
				     .device_count = 2 };
	strcpy(b->survey.devices[1].device, "roce1");
}

static double cell(enum rates_view view, const struct bed *now, const struct bed *before, u32 row,
		   const char *key)
{
	struct table t;
	double value;

	rates_table(&t, view);
	assert_true(rates_fill(&t, view, &now->survey, before != NULL ? &before->survey : NULL, 2));
	assert_true(row < t.rows);
	value = t.cells[row * t.column_count + (u32)table_column(&t, key)].number;
	table_free(&t);
	return value;
}

static void rates__differences_per_second(void **state)
{
	struct bed before, now;

	make(&before, 1, 100);
	make(&now, 1, 300);
	assert_true(cell(VIEW_PROCESSES, &now, &before, 0, "sent_per_s") == 100);
	assert_true(cell(VIEW_PROCESSES, &now, &before, 0, "sent_bytes_per_s") == 1000);
	assert_true(cell(VIEW_PROCESSES, &now, &before, 0, "errors") == 2);
	assert_true(cell(VIEW_PROCESSES, &now, &before, 0, "drops") == 30);
	assert_true(cell(VIEW_QPS, &now, &before, 1, "received_per_s") == 100);
	assert_true(cell(VIEW_DROPS, &now, &before, 0, "per_s") == 10);
}

static void rates__none_for_what_is_new(void **state)
{
	struct bed before, now;

	make(&before, 1, 100);
	make(&now, 2, 300); /* another process with that PID */
	assert_true(cell(VIEW_PROCESSES, &now, &before, 0, "sent_per_s") == 0);
	assert_true(cell(VIEW_PROCESSES, &now, NULL, 0, "sent_per_s") == 0);
	make(&now, 1, 300);
	now.qps[0].qpn = 0x33; /* another queue pair in that place */
	assert_true(cell(VIEW_QPS, &now, &before, 0, "sent_per_s") == 0);
	assert_true(cell(VIEW_QPS, &now, &before, 1, "received_per_s") == 100);
}

static void rates__none_for_a_counter_that_has_fallen(void **state)
{
	struct bed before, now;

	make(&before, 1, 300);
	make(&now, 1, 100);
	assert_true(cell(VIEW_PROCESSES, &now, &before, 0, "sent_per_s") == 0);
}

static void rates__a_queue_pair_behind_one_that_is_gone(void **state)
{
	struct bed before, now;

	make(&before, 1, 100);
	make(&now, 1, 300);
	now.view.qps = &now.qps[1];
	now.view.qp_count = 1;
	assert_true(cell(VIEW_QPS, &now, &before, 0, "received_per_s") == 100);
}

static void rates__devices_by_the_gid_that_is_sent_from(void **state)
{
	struct bed before, now;

	make(&before, 1, 100);
	make(&now, 1, 300);
	assert_true(cell(VIEW_DEVICES, &now, &before, 0, "sent_per_s") == 100);
	assert_true(cell(VIEW_DEVICES, &now, &before, 1, "received_per_s") == 100);
	now.qps[1].sgid_index = BOARD_NO_GID;
	assert_true(cell(VIEW_DEVICES, &now, &before, 1, "qps") == 0);
}

static void rates__ports_of_hosts_by_what_the_fabric_counts(void **state)
{
	struct bed before, now;
	struct host_port old[1] = { { .host = "h2", .name = "h2 ib0", .state = "ACTIVE" } };
	struct host_port new[2] = { { .host = "h1", .name = "h1 ib0", .state = "ACTIVE" },
				    { .host = "h2", .name = "h2 ib0", .state = "ACTIVE" } };

	make(&before, 1, 100);
	make(&now, 1, 300);
	strcpy(now.record.host, "h2");
	old[0].counts.xmit_bytes = 1000;
	new[1].counts.xmit_bytes = 5000;
	new[1].counts.rcv_packets = 8;
	new[0].counts.xmit_bytes = 700; /* it had no process before */
	before.survey.hosts = (struct hosts){ .fabric = true, .ports = old, .count = 1 };
	now.survey.hosts = (struct hosts){ .fabric = true, .ports = new, .count = 2 };
	assert_true(cell(VIEW_DEVICES, &now, &before, 2, "sent_bytes_per_s") == 0);
	assert_true(cell(VIEW_DEVICES, &now, &before, 3, "sent_bytes_per_s") == 2000);
	assert_true(cell(VIEW_DEVICES, &now, &before, 3, "received_per_s") == 4);
	assert_true(cell(VIEW_DEVICES, &now, &before, 2, "qps") == 0);
	assert_true(cell(VIEW_DEVICES, &now, &before, 3, "qps") == 2);
}

static void rates_drawn__hosts_only_where_a_process_is_on_one(void **state)
{
	struct bed now;
	u32 most = rates_drawn(VIEW_PROCESSES, NULL) + 1;

	make(&now, 1, 300);
	assert_int_equal(rates_drawn(VIEW_PROCESSES, &now.survey), most - 1);
	strcpy(now.record.host, "h2");
	assert_int_equal(rates_drawn(VIEW_PROCESSES, &now.survey), most);
	assert_int_equal(rates_drawn(VIEW_DEVICES, NULL), rates_drawn(VIEW_DEVICES, &now.survey));
}

static void rates_add_up__all_processes(void **state)
{
	struct bed before, now;
	struct rates_sum sum;

	make(&before, 1, 100);
	make(&now, 1, 300);
	rates_add_up(&now.survey, &before.survey, 2, &sum);
	assert_int_equal(sum.qps, 2);
	assert_int_equal(sum.qps_err, 1);
	assert_true(sum.sent == 100 && sum.received == 100);
	assert_int_equal(sum.drops, 30);
}

/* ---- each field has a value of its own ---- */

enum { SENT, RECEIVED, SENT_BYTES, RECEIVED_BYTES, ERRORS, FIELDS };
enum { EACH_SECONDS = 2 };

/* Two processes of two queue pairs, two devices, the ports of two hosts. */
struct each {
	struct survey survey;
	struct proto_record record[2];
	struct view view[2];
	struct view_qp qp[2][2];
	struct host_port port[2];
} OWNED_BY(the only thread);

/* No two of them are the same, nor sums of two. */
static u32 each(u32 process, u32 qp, u32 field)
{
	return 1u << (2 * process + qp) | (field + 1) << 8;
}

/* Process 0 sends by devices 0 and 1, process 1 by 1 and 0. */
static void each_make_process(struct each *e, u32 i, u64 at)
{
	e->record[i] = (struct proto_record){ .process = 7 + i, .pid = (s32)(500 + i) };
	snprintf(e->record[i].command, sizeof(e->record[i].command), "program%u", i);
	snprintf(e->record[i].host, sizeof(e->record[i].host), "h%u", i + 1);
	for (u32 k = 0; k < 2; k++)
		e->qp[i][k] = (struct view_qp){ .place = 3 + k,
						.qpn = 0x100 + 16 * i + k,
						.peer_qpn = 0x200 + 16 * i + k,
						.word = i == 1 && k == 1 ? 6 : 0,
						.sgid_index = (u16)((i ^ k) * NODE_GIDS),
						.sent = at * each(i, k, SENT),
						.received = at * each(i, k, RECEIVED),
						.sent_bytes = at * each(i, k, SENT_BYTES),
						.received_bytes = at * each(i, k, RECEIVED_BYTES),
						.errors = each(i, k, ERRORS) };
	e->view[i] = (struct view){ .valid = true, .qps = e->qp[i], .qp_count = 2 };
	for (u32 k = 0; k < PATH_COUNTERS; k++)
		e->view[i].counters[k] = at * (1000 + 100 * i + k);
}

static void each_make(struct each *e, u64 at)
{
	memset(e, 0, sizeof(*e));
	for (u32 i = 0; i < 2; i++) {
		each_make_process(e, i, at);
		snprintf(e->survey.devices[i].device, sizeof(e->survey.devices[i].device), "roce%u",
			 i);
		snprintf(e->survey.guids[i], sizeof(e->survey.guids[i]), "guid%u", i);
		e->survey.devices[i].mtu = 1024 + i;
		e->survey.devices[i].port_downs = 30 + i;
		e->survey.devices[i].port_up = i == 1;
		e->port[i] = (struct host_port){ .mtu = 2048 + i,
						 .state = i == 0 ? "CUT" : "INIT" };
		snprintf(e->port[i].host, sizeof(e->port[i].host), "h%u", i + 1);
		snprintf(e->port[i].name, sizeof(e->port[i].name), "h%u ib0", i + 1);
		snprintf(e->port[i].guid, sizeof(e->port[i].guid), "guid%u", 2 + i);
		e->port[i].counts = (struct fabric_counts){ .xmit_packets = at * (61 + i),
							    .rcv_packets = at * (71 + i),
							    .xmit_bytes = at * (81 + i),
							    .rcv_bytes = at * (91 + i) };
		e->port[i].counts.errors[FABRIC_ERR_LINK_DOWNED] = 40 + i;
	}
	e->survey.records = e->record;
	e->survey.views = e->view;
	e->survey.count = e->survey.device_count = 2;
	e->survey.hosts = (struct hosts){ .fabric = true, .ports = e->port, .count = 2 };
}

/* The expected cell is `number`, or where that is 0 `text`. */
struct each_row {
	enum rates_view view;
	u32 row;
	const char *key;
	u32 number;
	const char *text;
};

static void each_expect(const struct each *now, const struct each *before,
			const struct each_row *x)
{
	struct table t;
	const union cell *c;

	rates_table(&t, x->view);
	assert_true(rates_fill(&t, x->view, &now->survey, &before->survey, EACH_SECONDS));
	assert_true(x->row < t.rows);
	c = &t.cells[x->row * t.column_count + (u32)table_column(&t, x->key)];
	if (x->text != NULL)
		assert_string_equal(c->text, x->text);
	else if (c->number != x->number)
		fail_msg("view %u, row %u, %s: %g, not %u", x->view, x->row, x->key, c->number,
			 x->number);
	table_free(&t);
}

#define EACH_FLOW(view, row, a, b)                                                                 \
	{ view, row, "sent_per_s", a(SENT) + b(SENT), NULL },                                      \
		{ view, row, "received_per_s", a(RECEIVED) + b(RECEIVED), NULL },                  \
		{ view, row, "sent_bytes_per_s", a(SENT_BYTES) + b(SENT_BYTES), NULL },            \
	{                                                                                          \
		view, row, "received_bytes_per_s", a(RECEIVED_BYTES) + b(RECEIVED_BYTES), NULL     \
	}
#define EACH_00(field) each(0, 0, field)
#define EACH_01(field) each(0, 1, field)
#define EACH_10(field) each(1, 0, field)
#define EACH_11(field) each(1, 1, field)
#define EACH_NO(field) 0

static void rates__each_field_of_each_view(void **state)
{
	const struct each_row rows[] = {
		{ VIEW_PROCESSES, 1, "pid", 501, NULL },
		{ VIEW_PROCESSES, 1, "command", 0, "program1" },
		{ VIEW_PROCESSES, 1, "host", 0, "h2" },
		{ VIEW_PROCESSES, 1, "qps", 2, NULL },
		EACH_FLOW(VIEW_PROCESSES, 0, EACH_00, EACH_01),
		EACH_FLOW(VIEW_PROCESSES, 1, EACH_10, EACH_11),
		{ VIEW_PROCESSES, 0, "errors", EACH_00(ERRORS) + EACH_01(ERRORS), NULL },
		{ VIEW_PROCESSES, 1, "errors", EACH_10(ERRORS) + EACH_11(ERRORS), NULL },
		{ VIEW_PROCESSES, 1, "direct_per_s", 1100 + COUNT_DIRECT, NULL },
		{ VIEW_QPS, 3, "qpn", 0x111, NULL },
		{ VIEW_QPS, 3, "peer_qpn", 0x211, NULL },
		{ VIEW_QPS, 3, "pid", 501, NULL },
		{ VIEW_QPS, 3, "command", 0, "program1" },
		{ VIEW_QPS, 3, "host", 0, "h2" },
		{ VIEW_QPS, 3, "state", 0, "ERR" },
		{ VIEW_QPS, 2, "state", 0, "RTS" },
		{ VIEW_QPS, 2, "type", 0, "RC" },
		EACH_FLOW(VIEW_QPS, 0, EACH_00, EACH_NO),
		EACH_FLOW(VIEW_QPS, 3, EACH_11, EACH_NO),
		{ VIEW_QPS, 2, "errors", EACH_10(ERRORS), NULL },
		{ VIEW_DEVICES, 1, "device", 0, "roce1" },
		{ VIEW_DEVICES, 0, "state", 0, "DOWN" },
		{ VIEW_DEVICES, 1, "state", 0, "ACTIVE" },
		{ VIEW_DEVICES, 1, "guid", 0, "guid1" },
		{ VIEW_DEVICES, 1, "mtu", 1025, NULL },
		{ VIEW_DEVICES, 1, "link_downed", 31, NULL },
		{ VIEW_DEVICES, 1, "qps", 2, NULL },
		EACH_FLOW(VIEW_DEVICES, 0, EACH_00, EACH_11),
		EACH_FLOW(VIEW_DEVICES, 1, EACH_01, EACH_10),
		{ VIEW_DEVICES, 3, "device", 0, "h2 ib0" },
		{ VIEW_DEVICES, 3, "state", 0, "INIT" },
		{ VIEW_DEVICES, 3, "guid", 0, "guid3" },
		{ VIEW_DEVICES, 3, "mtu", 2049, NULL },
		{ VIEW_DEVICES, 3, "link_downed", 41, NULL },
		{ VIEW_DEVICES, 3, "qps", 2, NULL },
		{ VIEW_DEVICES, 3, "sent_per_s", 62, NULL },
		{ VIEW_DEVICES, 3, "received_per_s", 72, NULL },
		{ VIEW_DEVICES, 3, "sent_bytes_per_s", 82, NULL },
		{ VIEW_DEVICES, 3, "received_bytes_per_s", 92, NULL },
	};
	static struct each before, now;

	each_make(&before, 3);
	each_make(&now, 3 + EACH_SECONDS);
	for (u32 i = 0; i < ARRAY_LEN(rows); i++)
		each_expect(&now, &before, &rows[i]);
}

/* The drops of the second process and of the node's addresses, each with its reason. */
static void rates__each_drop(void **state)
{
	static const struct proto_address address[2] = { { .dropped = 3, .lost = 50 },
							 { .dropped = 4, .lost = 60 } };
	static struct each before, now;
	u32 row = 0;

	each_make(&before, 3);
	each_make(&now, 3 + EACH_SECONDS);
	now.survey.node.pid = 900;
	now.survey.addresses.count = before.survey.addresses.count = 2;
	memcpy(now.survey.addresses.addresses, address, sizeof(address));
	before.survey.addresses.addresses[0].dropped = 1;
	before.survey.addresses.addresses[1].lost = 90;
	for (u32 i = 0; i < 2 * PATH_COUNTERS; i++) {
		u32 k = i % PATH_COUNTERS, second = i / PATH_COUNTERS,
		    per_s = 1000 + 100 * second + k;
		const struct each_row rows[] = {
			{ VIEW_DROPS, row, "reason", 0, path_counter_names[k] },
			{ VIEW_DROPS, row, "meaning", 0, counter_meaning(k) },
			{ VIEW_DROPS, row, "pid", 500 + second, NULL },
			{ VIEW_DROPS, row, "per_s", per_s, NULL },
			{ VIEW_DROPS, row, "total", (3 + EACH_SECONDS) * per_s, NULL },
		};

		for (u32 n = 0; counter_is_drop(k) && n < ARRAY_LEN(rows); n++)
			each_expect(&now, &before, &rows[n]);
		row += counter_is_drop(k);
	}
	for (u32 i = 0; i < 2; i++) {
		const struct each_row rows[] = {
			{ VIEW_DROPS, row + i, "reason", 0,
			  i == 0 ? "datagrams_for_nobody" : "datagrams_lost" },
			{ VIEW_DROPS, row + i, "pid", 900, NULL },
			{ VIEW_DROPS, row + i, "per_s", i == 0 ? 3 : 10, NULL },
			{ VIEW_DROPS, row + i, "total", i == 0 ? 7 : 110, NULL },
		};

		for (u32 n = 0; n < ARRAY_LEN(rows); n++)
			each_expect(&now, &before, &rows[n]);
	}
}

static void rates_add_up__each_field(void **state)
{
	static struct each before, now;
	struct rates_sum sum;
	u64 drops = 0;

	each_make(&before, 3);
	each_make(&now, 3 + EACH_SECONDS);
	for (u32 k = 0; k < PATH_COUNTERS; k++)
		drops += counter_is_drop(k) ? (3 + EACH_SECONDS) * (2100 + 2 * k) : 0;
	rates_add_up(&now.survey, &before.survey, EACH_SECONDS, &sum);
#define EACH_SUM(field) (EACH_00(field) + EACH_01(field) + EACH_10(field) + EACH_11(field))
	assert_true(sum.sent == EACH_SUM(SENT) && sum.received == EACH_SUM(RECEIVED));
	assert_true(sum.sent_bytes == EACH_SUM(SENT_BYTES));
	assert_true(sum.received_bytes == EACH_SUM(RECEIVED_BYTES));
	assert_true(sum.direct == 2100 + 2 * COUNT_DIRECT);
	assert_int_equal(sum.errors, EACH_SUM(ERRORS));
	assert_int_equal(sum.drops, drops);
	assert_int_equal(sum.processes, 2);
	assert_int_equal(sum.qps, 4);
	assert_int_equal(sum.qps_err, 1);
}

/* A word of what people read of each counter. */
static const char *const counter_words[PATH_COUNTERS][2] = {
	[COUNT_RX_PACKETS] = { "rx_packets", "received" },
	[COUNT_RX_MALFORMED] = { "rx_malformed", "malformed" },
	[COUNT_RX_NO_QP] = { "rx_no_qp", "do not exist" },
	[COUNT_RX_NOT_RECEIVING] = { "rx_not_receiving", "RTR" },
	[COUNT_RX_WRONG_PEER] = { "rx_wrong_peer", "another peer" },
	[COUNT_RX_OPCODE] = { "rx_wrong_opcode", "opcode" },
	[COUNT_RX_PSN] = { "rx_psn_errors", "order" },
	[COUNT_RX_QKEY] = { "rx_wrong_qkey", "Q_Key" },
	[COUNT_RX_NO_WQE] = { "rx_no_receive_posted", "posted" },
	[COUNT_RX_LENGTH] = { "rx_wrong_length", "length" },
	[COUNT_RX_DUPLICATE] = { "rx_duplicates", "before" },
	[COUNT_TX_NAK] = { "tx_naks", "NAKs sent" },
	[COUNT_TX_RNR] = { "tx_rnr_naks", "RNR NAKs" },
	[COUNT_TX_RETRY] = { "tx_retries", "retransmissions" },
	[COUNT_DIRECT] = { "direct_operations", "shared memory" },
	[COUNT_DIRECT_REFUSED] = { "direct_refused", "instead" },
	[COUNT_DIRECT_LEFT] = { "direct_left", "faster" },
	[COUNT_DIRECT_HELD] = { "direct_held", "given up" },
	[COUNT_TX_BLOCKED] = { "tx_blocked", "room" },
	[COUNT_CQ_OVERFLOW] = { "cq_overflows", "queue full" },
	[COUNT_PEER_DEATHS] = { "peer_deaths", "ended" },
	[COUNT_BELLS] = { "doorbells_rung", "woken" },
	[COUNT_RX_ICRC] = { "rx_wrong_icrc", "ICRC" },
	[COUNT_RX_PKEY] = { "rx_wrong_pkey", "P_Key" },
	[COUNT_RX_WRONG_SLOT] = { "rx_wrong_slot", "joined" },
	[COUNT_TX_PACKETS] = { "tx_packets", "handed to the kernel" },
	[COUNT_TX_TOO_LONG] = { "tx_too_long", "longer than the route" },
	[COUNT_TX_FAILED] = { "tx_failed", "refused by the kernel" },
	[COUNT_PORT_DOWN] = { "port_down", "down" },
	[COUNT_RX_MARKED] = { "rx_ecn_marked", "marked" },
	[COUNT_RX_CNP] = { "rx_cnps", "notifications received" },
	[COUNT_TX_CNP] = { "tx_cnps", "notifications sent" },
	[COUNT_TX_UNBATCHED] = { "tx_unbatched", "one packet per call" },
	[COUNT_TX_PACED] = { "tx_paced", "between packets" },
	[COUNT_RX_REFUSED] = { "rx_refused", "without access" },
	[COUNT_MAD_FIRST] = { "mad_sent", "MADs sent" },
	{ "mad_received", "MADs received" },
	{ "mad_send_failed", "could not be sent" },
	{ "mad_retried", "again" },
	{ "mad_timed_out", "never answered" },
	{ "mad_wrong_length", "length" },
	{ "mad_wrong_version", "version" },
	{ "mad_wrong_qkey", "Q_Key" },
	{ "mad_wrong_pkey", "P_Key" },
	{ "mad_no_room", "room" },
	{ "mad_no_agent", "agent" },
	{ "mad_wrong_rmpp", "RMPP" },
	[COUNT_CM_FIRST] = { "cm_sent", "manager sent" },
	{ "cm_received", "manager received" },
	{ "cm_resent", "sent again" },
	{ "cm_failed", "never answered" },
	{ "cm_duplicates", "twice" },
	{ "cm_malformed", "malformed" },
	{ "cm_unknown", "do not exist" },
	{ "cm_no_room", "backlog" },
	{ "cm_no_memory", "memory" },
	{ "cm_stale", "stale" },
	{ "cm_wrong_source", "address" },
};

static void counters__each_has_its_own_name_and_meaning(void **state)
{
	for (u32 i = 0; i < PATH_COUNTERS; i++) {
		assert_string_equal(path_counter_names[i], counter_words[i][0]);
		assert_non_null(strstr(counter_meaning(i), counter_words[i][1]));
	}
}

static void views__fit_80_columns(void **state)
{
	for (u32 view = 0; view < RATES_VIEWS; view++) {
		struct table t;
		u32 width, drawn;

		rates_table(&t, view);
		drawn = view == VIEW_QPS ? rates_drawn(view, NULL) : t.column_count;
		width = drawn - 1;
		for (u32 i = 0; i < drawn; i++) {
			width += t.columns[i].width;
			assert_true(strlen(t.columns[i].title) <= t.columns[i].width);
		}
		assert_true(width <= 80);
		assert_true(table_column(&t, rates_view_sorts[view]) >= 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rates__differences_per_second),
		cmocka_unit_test(rates__none_for_what_is_new),
		cmocka_unit_test(rates__none_for_a_counter_that_has_fallen),
		cmocka_unit_test(rates__a_queue_pair_behind_one_that_is_gone),
		cmocka_unit_test(rates__devices_by_the_gid_that_is_sent_from),
		cmocka_unit_test(rates__ports_of_hosts_by_what_the_fabric_counts),
		cmocka_unit_test(rates_drawn__hosts_only_where_a_process_is_on_one),
		cmocka_unit_test(rates_add_up__all_processes),
		cmocka_unit_test(rates__each_field_of_each_view),
		cmocka_unit_test(rates__each_drop),
		cmocka_unit_test(rates_add_up__each_field),
		cmocka_unit_test(counters__each_has_its_own_name_and_meaning),
		cmocka_unit_test(views__fit_80_columns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
