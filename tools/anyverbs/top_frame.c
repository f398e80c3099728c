/* top_frame.c: what `anyverbs top` shows.
 * In:    two surveys and what the user chose      Out: a frame on the terminal
 * Runs:  the only thread                          Locks: none
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "screen.h"
#include "top.h"

enum { TOP_SILENT_S = 2, TOP_HEAD_DEVICES = 3 };

static const char *const top_help[] = {
	"1 2 3 4, Tab   processes, queue pairs, devices, drops by reason",
	"< >, arrows    sort by the column to the left or right     r  reverse the order",
	"/              filter: rows that contain a text; Enter keeps it, Esc drops it",
	"up down PgUp PgDn Home End    scroll",
	"+ -            a longer or shorter interval",
	"space          look now          Ctrl-L  draw anew",
	"h ?            this help         q  quit",
	"",
	"TX/s, RX/s     messages completed by requester and responder, per second",
	"TXB/s, RXB/s   their bytes       DIRECT/s  one-sided operations in shared memory",
	"ERR            completions with an error since the queue pair was created",
	"DROP           packets dropped since the process started: view 4 says why",
	"HOST           of a fabric; its ports in view 3 count packets, not messages",
	"",
	"Rates shorten: 12.3k is 12,300, M a million, G a thousand million.",
};

double top_seconds(const struct top *t)
{
	if (t->now == NULL || t->before == NULL)
		return 0;
	return (double)(t->now->at_ns - t->before->at_ns) / 1e9;
}

static const struct survey *top_before(const struct top *t)
{
	return t->before != NULL ? &t->before->survey : NULL;
}

const struct survey *top_now(const struct top *t)
{
	return t->now != NULL && t->now->err == 0 ? &t->now->survey : NULL;
}

bool top_arrange(const struct top *t, enum rates_view view, struct table *table)
{
	rates_table(table, view);
	table->drawn = rates_drawn(view, top_now(t));
	if (t->now != NULL && t->now->err == 0 &&
	    !rates_fill(table, view, &t->now->survey, top_before(t), top_seconds(t)))
		return false;
	return table_arrange(table, t->sort[view], t->descending[view], t->filter);
}

/* ---- the lines above the table --------------------------------------------------------------- */

static void top_head_node(const struct top *t, char out[TOP_LINE])
{
	const struct proto_status_reply *n = &t->now->survey.node;
	u64 s = n->uptime_ms / 1000;

	snprintf(out, TOP_LINE,
		 "anyverbs top - node %s, pid %d, up %llu:%02llu:%02llu, every %.1f s", n->node,
		 n->pid, (unsigned long long)(s / 3600), (unsigned long long)(s / 60 % 60),
		 (unsigned long long)(s % 60), t->interval_ms / 1e3);
}

static void top_head_devices(const struct top *t, const struct rates_sum *sum, char out[TOP_LINE])
{
	const struct survey *s = &t->now->survey;
	int at = snprintf(out, TOP_LINE, "%u processes, %u queue pairs (%u in ERR)",
			  sum->processes, sum->qps, sum->qps_err);

	for (u32 i = 0; i < MIN(s->device_count, (u32)TOP_HEAD_DEVICES); i++)
		at += snprintf(out + at, (size_t)(TOP_LINE - at), ", %s %s", s->devices[i].device,
			       s->devices[i].port_up ? "ACTIVE" : "DOWN");
	if (s->device_count > TOP_HEAD_DEVICES)
		at += snprintf(out + at, (size_t)(TOP_LINE - at), ", ...");
	if (s->hosts.fabric)
		snprintf(out + at, (size_t)(TOP_LINE - at), ", %u hosts in use", s->hosts.used);
}

static void top_head_rates(const struct rates_sum *sum, char out[TOP_LINE])
{
	snprintf(out, TOP_LINE,
		 "tx %.0f msg/s %.1f MB/s, rx %.0f msg/s %.1f MB/s, direct %.0f/s, %llu errors, "
		 "%llu drops",
		 sum->sent, sum->sent_bytes / 1e6, sum->received, sum->received_bytes / 1e6,
		 sum->direct, (unsigned long long)sum->errors, (unsigned long long)sum->drops);
}

/* Why there is nothing to show. */
static void top_head_absent(const struct top *t, u32 i, char out[TOP_LINE])
{
	int err = t->now == NULL ? 0 : t->now->err;

	snprintf(out, TOP_LINE, "%s",
		 i == 0		  ? "anyverbs top"
		 : i == 2	  ? ""
		 : t->now == NULL ? "asking the node..."
		 : err == -ECONNREFUSED
			 ? "no node is up; waiting (the first verbs program starts one)"
			 : absent_strerror(err));
}

void top_head(const struct top *t, u32 i, char out[TOP_LINE])
{
	struct rates_sum sum;

	if (t->now == NULL || t->now->err != 0)
		return top_head_absent(t, i, out);
	rates_add_up(&t->now->survey, top_before(t), top_seconds(t), &sum);
	if (i == 0)
		top_head_node(t, out);
	else if (i == 1)
		top_head_devices(t, &sum, out);
	else
		top_head_rates(&sum, out);
}

/* ---- the frame ------------------------------------------------------------------------------- */

/* The views, the chosen one in brackets, and the filter. */
static void top_draw_views(const struct top *t, const struct table *table)
{
	static const char *const names[RATES_VIEWS] = { "processes", "queue pairs", "devices",
							"drops" };
	char line[TOP_LINE];
	int at = 0;

	for (int i = 0; i < RATES_VIEWS; i++)
		at += snprintf(line + at, (size_t)(TOP_LINE - at),
			       i == (int)t->view ? "[%d %s]" : " %d %s ", i + 1, names[i]);
	at += snprintf(line + at, (size_t)(TOP_LINE - at), " sort %s%s",
		       table->columns[t->sort[t->view]].title,
		       t->descending[t->view] ? " down" : " up");
	if (t->editing || t->filter[0] != '\0')
		snprintf(line + at, (size_t)(TOP_LINE - at), "  filter: %s%s", t->filter,
			 t->editing ? "_" : "");
	screen_line(STYLE_PLAIN, line);
}

/* A row with errors, drops or a state that stops it stands out. */
static enum screen_style top_row_style(const struct top *t, const struct table *table, u32 i)
{
	const union cell *row = &table->cells[(size_t)table->order[i] * table->column_count];

	switch (t->view) {
	case VIEW_QPS:
		return strcmp(row[4].text, "ERR") == 0 || row[10].number > 0 ? STYLE_RED
									      : STYLE_PLAIN;
	case VIEW_DEVICES:
		return strcmp(row[1].text, "ACTIVE") != 0 ? STYLE_RED : STYLE_PLAIN;
	case VIEW_DROPS:
		return row[3].number > 0 ? STYLE_RED : STYLE_PLAIN;
	default:
		return row[8].number > 0 ? STYLE_RED : STYLE_PLAIN;
	}
}

static void top_draw_rows(struct top *t, const struct table *table, u32 columns)
{
	char line[TOP_LINE];

	t->shown = table->shown;
	if (t->first + t->page > table->shown)
		t->first = table->shown > t->page ? table->shown - t->page : 0;
	for (u32 i = 0; i < t->page; i++) {
		bool there = t->first + i < table->shown;

		line[0] = '\0';
		if (there)
			table_row_line(table, t->first + i, columns, line, sizeof(line));
		screen_line(there ? top_row_style(t, table, t->first + i) : STYLE_PLAIN, line);
	}
}

static void top_draw_foot(const struct top *t)
{
	u64 silent_s = t->asked ? (clock_now_ns() - t->asked_ns) / NS_PER_S : 0;
	char line[TOP_LINE], rows[64] = "";

	if (t->shown > t->page)
		snprintf(rows, sizeof(rows), "rows %u-%u of %u  ", t->first + 1,
			 t->first + t->page, t->shown);
	if (silent_s >= TOP_SILENT_S)
		snprintf(line, sizeof(line), "%sthe node has not answered for %llu s", rows,
			 (unsigned long long)silent_s);
	else
		snprintf(line, sizeof(line), "%sh help  1-4 view  < > sort  / filter  q quit",
			 rows);
	screen_line(silent_s >= TOP_SILENT_S ? STYLE_RED : STYLE_DIM, line);
}

static void top_draw_help(const struct top *t)
{
	for (u32 i = 0; i < t->page + 1; i++)
		screen_line(STYLE_PLAIN, i < ARRAY_LEN(top_help) ? top_help[i] : "");
}

bool top_draw(struct top *t)
{
	u32 rows, columns;
	struct table table;
	char line[TOP_LINE];

	screen_size(&rows, &columns);
	columns = MIN(columns, (u32)TOP_LINE - 1);
	t->page = rows > TOP_HEAD + 3 ? rows - TOP_HEAD - 3 : 1;
	screen_begin();
	for (u32 i = 0; i < TOP_HEAD; i++) {
		top_head(t, i, line);
		screen_line(i == 0 ? STYLE_BOLD : STYLE_PLAIN, line);
	}
	if (top_arrange(t, t->view, &table)) {
		top_draw_views(t, &table);
		table_title_line(&table, columns, line, sizeof(line));
		if (t->help) {
			top_draw_help(t);
		} else {
			snprintf(line + strlen(line), sizeof(line) - strlen(line), "%*s",
				 (int)(columns - MIN((u32)strlen(line), columns)), "");
			screen_line(STYLE_REVERSE, line);
			top_draw_rows(t, &table, columns);
		}
	}
	table_free(&table);
	top_draw_foot(t);
	return screen_end();
}
