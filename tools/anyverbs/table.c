/* table.c: rows and columns: sorts, filters, prints.
 * In:    cells                    Out: lines of text, JSON
 * Runs:  the only thread          Locks: none
 */
#include "table.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "command.h"

enum { TABLE_FIRST_ROOM = 32 };

void table_init(struct table *t, const struct column *columns, u32 count)
{
	*t = (struct table){ .columns = columns, .column_count = count,
			     .drawn = count };
}

void table_free(struct table *t)
{
	free(t->cells);
	free(t->order);
	*t = (struct table){ .columns = t->columns, .column_count = t->column_count,
			     .drawn = t->drawn };
}

union cell *table_add(struct table *t)
{
	union cell *row;

	if (t->rows == t->room) {
		u32 room = t->room == 0 ? TABLE_FIRST_ROOM : 2 * t->room;
		size_t row_size = t->column_count * sizeof(union cell);
		union cell *grown = realloc(t->cells, room * row_size);

		if (grown == NULL)
			return NULL;
		t->cells = grown;
		t->room = room;
	}
	row = &t->cells[(size_t)t->rows++ * t->column_count];
	memset(row, 0, t->column_count * sizeof(*row));
	return row;
}

static const union cell *table_cell(const struct table *t, u32 row, u32 column)
{
	return &t->cells[(size_t)row * t->column_count + column];
}

/* ---- one cell as text ------------------------------------------------------------------------ */

/* Three digits and a letter: 999, 1.23k, 12.3k, 123k, 1.23M. */
static void table_shorten(double v, char *out, size_t size)
{
	static const char units[] = " kMGTPE";
	u32 unit = 0;

	while (v >= 999.5 && units[unit + 1] != '\0') {
		v /= 1000;
		unit++;
	}
	if (unit == 0)
		snprintf(out, size, v > 0 && v < 9.95 ? "%.1f" : "%.0f", v);
	else
		snprintf(out, size, "%.*f%c", v < 9.995 ? 2 : v < 99.95 ? 1 : 0, v, units[unit]);
}

static void table_text(const struct table *t, u32 row, u32 column, char out[TABLE_CELL])
{
	const struct column *c = &t->columns[column];
	const union cell *cell = table_cell(t, row, column);

	switch ((enum column_kind)c->kind) {
	case COLUMN_TEXT:
		snprintf(out, TABLE_CELL, "%s", cell->text != NULL ? cell->text : "-");
		return;
	case COLUMN_QPN:
		snprintf(out, TABLE_CELL, cell->number > 0 ? "0x%06x" : "-", (u32)cell->number);
		return;
	case COLUMN_COUNT:
		snprintf(out, TABLE_CELL, "%.0f", cell->number);
		if (strlen(out) > c->width)
			table_shorten(cell->number, out, TABLE_CELL);
		return;
	case COLUMN_RATE:
		table_shorten(cell->number, out, TABLE_CELL);
		return;
	}
}

/* ---- order and choice ------------------------------------------------------------------------ */

static bool table_matches(const struct table *t, u32 row, const char *filter)
{
	char text[TABLE_CELL];

	if (filter[0] == '\0')
		return true;
	for (u32 i = 0; i < t->column_count; i++) {
		table_text(t, row, i, text);
		if (strcasestr(text, filter) != NULL)
			return true;
	}
	return false;
}

/* What table_compare sorts by. */
struct table_sort {
	const struct table *t;
	u32 column;
	bool descending;
} OWNED_BY(the only thread);

static int table_compare(const void *a, const void *b, void *arg)
{
	const struct table_sort *s = arg;
	u32 x = *(const u32 *)a, y = *(const u32 *)b;
	const union cell *p = table_cell(s->t, x, s->column), *q = table_cell(s->t, y, s->column);
	int order;

	if (s->t->columns[s->column].kind == COLUMN_TEXT)
		order = strcmp(p->text != NULL ? p->text : "", q->text != NULL ? q->text : "");
	else
		order = (p->number > q->number) - (p->number < q->number);
	if (order == 0)
		return (x > y) - (x < y);
	return s->descending ? -order : order;
}

bool table_arrange(struct table *t, u32 column, bool descending, const char *filter)
{
	struct table_sort sort = { t, column, descending };

	free(t->order);
	t->shown = 0;
	t->order = malloc((t->rows + 1) * sizeof(*t->order));
	if (t->order == NULL)
		return false;
	for (u32 i = 0; i < t->rows; i++)
		if (table_matches(t, i, filter))
			t->order[t->shown++] = i;
	qsort_r(t->order, t->shown, sizeof(*t->order), table_compare, &sort);
	return true;
}

int table_column(const struct table *t, const char *name)
{
	for (u32 i = 0; i < t->column_count; i++)
		if (strcasecmp(t->columns[i].key, name) == 0 ||
		    strcasecmp(t->columns[i].title, name) == 0)
			return (int)i;
	return -1;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* The characters beyond all columns' own widths, for each column that grows. */
static u32 table_spare(const struct table *t, u32 width)
{
	u32 used = t->drawn - 1, growing = 0;

	for (u32 i = 0; i < t->drawn; i++) {
		used += t->columns[i].width;
		growing += t->columns[i].grows;
	}
	return width > used && growing > 0 ? (width - used) / growing : 0;
}

/* Appends a cell to the line, in its column's width. */
static void table_append(const struct table *t, u32 column, u32 spare, const char *text,
			 char *out, size_t size)
{
	const struct column *c = &t->columns[column];
	int width = (int)(c->width + (c->grows ? spare : 0));
	size_t at = strlen(out);

	if (at < size)
		snprintf(out + at, size - at, "%s%*.*s", column > 0 ? " " : "",
			 c->kind == COLUMN_TEXT ? -width : width, width, text);
}

/* Cuts a line at the width, and what it ends with in blanks. */
static void table_cut(char *line, u32 width)
{
	size_t n = strlen(line);

	if (n > width)
		n = width;
	while (n > 0 && line[n - 1] == ' ')
		n--;
	line[n] = '\0';
}

void table_title_line(const struct table *t, u32 width, char *out, size_t size)
{
	u32 spare = table_spare(t, width);

	out[0] = '\0';
	for (u32 i = 0; i < t->drawn; i++)
		table_append(t, i, spare, t->columns[i].title, out, size);
	table_cut(out, width);
}

void table_row_line(const struct table *t, u32 i, u32 width, char *out, size_t size)
{
	u32 spare = table_spare(t, width);
	char text[TABLE_CELL];

	out[0] = '\0';
	for (u32 k = 0; k < t->drawn; k++) {
		table_text(t, t->order[i], k, text);
		table_append(t, k, spare, text, out, size);
	}
	table_cut(out, width);
}

void table_json(const struct table *t, FILE *out)
{
	fputc('[', out);
	for (u32 i = 0; i < t->shown; i++) {
		fputs(i > 0 ? ",\n    {" : "\n    {", out);
		for (u32 k = 0; k < t->column_count; k++) {
			const union cell *cell = table_cell(t, t->order[i], k);

			fprintf(out, "%s\"%s\": ", k > 0 ? ", " : "", t->columns[k].key);
			if (t->columns[k].kind == COLUMN_TEXT)
				json_string(out, cell->text != NULL ? cell->text : "");
			else if (t->columns[k].kind == COLUMN_RATE)
				fprintf(out, "%.3f", cell->number);
			else
				fprintf(out, "%.0f", cell->number);
		}
		fputc('}', out);
	}
	fputc(']', out);
}
