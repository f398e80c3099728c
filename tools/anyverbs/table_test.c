/* table_test.c: order, choice, widths and JSON of a table. */
#include "table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct column columns[] = { { "NAME", "name", COLUMN_TEXT, 6, true },
					 { "N", "n", COLUMN_COUNT, 5, false },
					 { "R/s", "rate", COLUMN_RATE, 6, false },
					 { "QPN", "qpn", COLUMN_QPN, 8, false } };

static void add(struct table *t, const char *name, double n, double rate, double qpn)
{
	union cell *c = table_add(t);

	assert_non_null(c);
	c[0].text = name;
	c[1].number = n;
	c[2].number = rate;
	c[3].number = qpn;
}

static void fill(struct table *t)
{
	table_init(t, columns, ARRAY_LEN(columns));
	add(t, "beta", 2, 999.4, 0x4011);
	add(t, "alpha", 2, 1234.5, 0);
	add(t, "gamma", 1234567, 0, 0xabcdef);
}

static const char *line(const struct table *t, u32 i, u32 width)
{
	static char out[256];

	table_row_line(t, i, width, out, sizeof(out));
	return out;
}

static void table_arrange__sorts_and_keeps_equal_rows_in_order(void **state)
{
	struct table t;

	fill(&t);
	assert_true(table_arrange(&t, 1, true, ""));
	assert_int_equal(t.shown, 3);
	assert_memory_equal(line(&t, 0, 80), "gamma", 5);
	assert_memory_equal(line(&t, 1, 80), "beta", 4);
	assert_true(table_arrange(&t, 1, false, ""));
	assert_memory_equal(line(&t, 0, 80), "beta", 4);
	assert_true(table_arrange(&t, 0, false, ""));
	assert_memory_equal(line(&t, 0, 80), "alpha", 5);
	table_free(&t);
}

static void table_arrange__filters_by_what_is_printed(void **state)
{
	struct table t;

	fill(&t);
	assert_true(table_arrange(&t, 0, false, "ABC"));
	assert_int_equal(t.shown, 1);
	assert_memory_equal(line(&t, 0, 80), "gamma", 5);
	assert_true(table_arrange(&t, 0, false, "1.23"));
	assert_int_equal(t.shown, 2); /* 1.23k, 1.23M */
	assert_true(table_arrange(&t, 0, false, "nothing"));
	assert_int_equal(t.shown, 0);
	table_free(&t);
}

static void table_row_line__fits_any_width(void **state)
{
	struct table t;

	fill(&t);
	assert_true(table_arrange(&t, 0, false, ""));
	assert_string_equal(line(&t, 0, 28), "alpha      2  1.23k        -");
	assert_string_equal(line(&t, 1, 28), "beta       2    999 0x004011");
	assert_string_equal(line(&t, 2, 28), "gamma  1.23M      0 0xabcdef");
	assert_string_equal(line(&t, 1, 32), "beta           2    999 0x004011");
	for (u32 width = 0; width < 60; width++)
		assert_true(strlen(line(&t, 2, width)) <= width);
	table_free(&t);
}

static void table_row_line__shortens_without_rounding_to_1000(void **state)
{
	static const struct {
		double rate;
		const char *text;
	} cases[] = { { 0, "0" },	  { 0.25, "0.2" },	 { 9.96, "10" },
		      { 999.4, "999" },	  { 999.6, "1.00k" },	 { 9994, "9.99k" },
		      { 9996, "10.0k" },  { 99960, "100k" },	 { 999499, "999k" },
		      { 999600, "1.00M" }, { 2.5e12, "2.50T" },	 { 1.9e19, "19.0E" } };

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct table t;

		table_init(&t, &columns[2], 1);
		table_add(&t)->number = cases[i].rate;
		assert_true(table_arrange(&t, 0, false, ""));
		assert_string_equal(line(&t, 0, 6) + strspn(line(&t, 0, 6), " "), cases[i].text);
		table_free(&t);
	}
}

static void table_title_line__has_drawn_columns_which_share_the_room(void **state)
{
	static const struct column two[] = { { "A", "a", COLUMN_TEXT, 2, true },
					     { "B", "b", COLUMN_TEXT, 2, true },
					     { "C", "c", COLUMN_COUNT, 2, false } };
	struct table t;
	char out[64];

	table_init(&t, two, ARRAY_LEN(two));
	table_title_line(&t, 14, out, sizeof(out));
	assert_string_equal(out, "A     B      C");
	t.drawn = 2;
	table_title_line(&t, 15, out, sizeof(out));
	assert_string_equal(out, "A       B");
	assert_int_equal(table_column(&t, "c"), 2); /* it is there nonetheless */
}

static void table_column__by_title_or_key(void **state)
{
	struct table t;

	table_init(&t, columns, ARRAY_LEN(columns));
	assert_int_equal(table_column(&t, "r/S"), 2);
	assert_int_equal(table_column(&t, "rate"), 2);
	assert_int_equal(table_column(&t, "rat"), -1);
}

static void table_json__objects_with_escaped_texts(void **state)
{
	struct table t;
	char *text;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	table_init(&t, columns, ARRAY_LEN(columns));
	add(&t, "a\"b", 7, 0.5, 17);
	assert_true(table_arrange(&t, 0, false, ""));
	table_json(&t, out);
	fclose(out);
	assert_string_equal(text,
			    "[\n    {\"name\": \"a\\\"b\", \"n\": 7, \"rate\": 0.500, "
			    "\"qpn\": 17}]");
	free(text);
	table_free(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(table_arrange__sorts_and_keeps_equal_rows_in_order),
		cmocka_unit_test(table_arrange__filters_by_what_is_printed),
		cmocka_unit_test(table_row_line__fits_any_width),
		cmocka_unit_test(table_row_line__shortens_without_rounding_to_1000),
		cmocka_unit_test(table_title_line__has_drawn_columns_which_share_the_room),
		cmocka_unit_test(table_column__by_title_or_key),
		cmocka_unit_test(table_json__objects_with_escaped_texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
