/* table.h: rows and columns for `anyverbs top`: sorted, filtered, as text or as JSON. */
#ifndef ANYVERBS_TABLE_H
#define ANYVERBS_TABLE_H

#include <stdio.h>

#include "base/compiler.h"

enum { TABLE_COLUMNS = 12, TABLE_CELL = 48 };

enum column_kind {
	COLUMN_TEXT,  /* to the left */
	COLUMN_COUNT, /* a number in full, shortened where it does not fit */
	COLUMN_RATE,  /* per second, shortened: 1.25M */
	COLUMN_QPN,   /* 0x00abcd */
};

struct column {
	const char *title; /* at most `width` characters */
	const char *key;   /* in JSON, and of --sort */
	u8 kind;	   /* enum column_kind */
	u8 width;
	bool grows; /* takes the room that is left, with the others that grow */
} FIXED;

union cell {
	const char *text; /* stays its owner's */
	double number;
} OWNED_BY(the table);

struct table {
	const struct column *columns; /* at most TABLE_COLUMNS */
	u32 column_count;
	u32 drawn; /* of them, the first ones: those that lines have; JSON has all */
	union cell *cells; /* column_count for each row */
	u32 rows, room;
	u32 *order; /* rows that are shown, in their order; NULL before table_arrange */
	u32 shown;
} OWNED_BY(the only thread);

void table_init(struct table *t, const struct column *columns, u32 count);
void table_free(struct table *t);
/* Adds a row, and returns its cells to be filled, all zero; NULL: no memory. */
union cell *table_add(struct table *t);
/* Selects the rows that contain `filter` (any cell as printed, case ignored; "" all), and sorts
 * them by a column; equal rows stay in their order. False: no memory. */
bool table_arrange(struct table *t, u32 column, bool descending, const char *filter);
/* The column of that key or title, case ignored; -1: none. */
int table_column(const struct table *t, const char *name);
/* A line of at most `width` characters with the titles, or with row `i` of those shown. */
void table_title_line(const struct table *t, u32 width, char *out, size_t size);
void table_row_line(const struct table *t, u32 i, u32 width, char *out, size_t size);
/* Prints the shown rows as a JSON array of objects. */
void table_json(const struct table *t, FILE *out);

#endif
