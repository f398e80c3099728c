/* top_keys.c: the keys of `anyverbs top`.
 * In:    keys                     Out: what is shown, and how
 * Runs:  the only thread          Locks: none
 */
#include <ctype.h>
#include <string.h>

#include "screen.h"
#include "top.h"

bool top_is_number(enum rates_view view, u32 column)
{
	struct table t;

	rates_table(&t, view);
	return t.columns[column].kind != COLUMN_TEXT && t.columns[column].kind != COLUMN_QPN;
}

void top_sort_first(struct top *t)
{
	for (u32 i = 0; i < RATES_VIEWS; i++) {
		struct table table;

		rates_table(&table, i);
		t->sort[i] = (u32)table_column(&table, rates_view_sorts[i]);
		t->descending[i] = top_is_number(i, t->sort[i]);
	}
}

static void top_edit(struct top *t, int key)
{
	size_t n = strlen(t->filter);

	if (key == KEY_ENTER || key == KEY_ESCAPE)
		t->editing = false;
	if (key == KEY_ESCAPE)
		t->filter[0] = '\0';
	if (key == KEY_BACKSPACE && n > 0)
		t->filter[n - 1] = '\0';
	if (key < KEY_BACKSPACE && isprint(key) && n + 1 < sizeof(t->filter)) {
		t->filter[n] = (char)key;
		t->filter[n + 1] = '\0';
	}
	t->first = 0;
}

/* By the column to the right or left, around the end. */
static void top_sort_by(struct top *t, bool right)
{
	u32 *column = &t->sort[t->view], count = rates_drawn(t->view, top_now(t));

	*column = (*column + (right ? 1 : count - 1)) % count;
	t->descending[t->view] = top_is_number(t->view, *column);
}

static void top_interval(struct top *t, bool longer)
{
	u32 ms = longer ? t->interval_ms * 2 : t->interval_ms / 2;

	t->interval_ms = MIN(MAX(ms, (u32)TOP_INTERVAL_MIN_MS), (u32)TOP_INTERVAL_MAX_MS);
}

/* The draw limits `first` at the end of the table. */
static void top_scroll(struct top *t, s64 rows)
{
	s64 first = (s64)t->first + rows;

	t->first = first < 0 ? 0 : (u32)MIN(first, (s64)t->shown);
}

static void top_move(struct top *t, int key)
{
	switch (key) {
	case KEY_UP:
	case 'k':
		return top_scroll(t, -1);
	case KEY_DOWN:
	case 'j':
		return top_scroll(t, 1);
	case KEY_PAGE_UP:
		return top_scroll(t, -(s64)t->page);
	case KEY_PAGE_DOWN:
		return top_scroll(t, t->page);
	case KEY_HOME:
		return top_scroll(t, -(s64)t->shown);
	case KEY_END:
		return top_scroll(t, t->shown);
	}
}

static void top_see(struct top *t, u32 view)
{
	t->view = view;
	t->first = 0;
	t->help = false;
}

bool top_key(struct top *t, int key)
{
	if (t->editing) {
		top_edit(t, key);
		return true;
	}
	if (key >= '1' && key < '1' + RATES_VIEWS)
		top_see(t, (u32)(key - '1'));
	else if (key == KEY_TAB)
		top_see(t, (t->view + 1) % RATES_VIEWS);
	else if (key == '<' || key == ',' || key == KEY_LEFT)
		top_sort_by(t, false);
	else if (key == '>' || key == '.' || key == KEY_RIGHT)
		top_sort_by(t, true);
	else if (key == 'r')
		t->descending[t->view] = !t->descending[t->view];
	else if (key == '+' || key == '-')
		top_interval(t, key == '+');
	else if (key == '/')
		t->editing = true;
	else if (key == 'h' || key == '?')
		t->help = !t->help;
	else if (key == KEY_ESCAPE && t->help)
		t->help = false;
	else if (key == KEY_ESCAPE)
		t->filter[0] = '\0';
	else
		top_move(t, key);
	return key != 'q' && key != 'Q';
}
