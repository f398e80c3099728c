/* rates_test.c: what two surveys say per second. */
#include "rates.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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

static void counters__each_has_a_meaning_of_its_own(void **state)
{
	for (u32 i = 0; i < PATH_COUNTERS; i++) {
		assert_non_null(path_counter_names[i]);
		assert_string_not_equal(counter_meaning(i), path_counter_names[i]);
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
		cmocka_unit_test(counters__each_has_a_meaning_of_its_own),
		cmocka_unit_test(views__fit_80_columns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
