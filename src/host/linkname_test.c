/* linkname_test.c: the alias of an IPoIB interface's device, and what is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "host/linkname.h"

static struct linkname test_name(void)
{
	struct linkname name = { .host = "h1", .device = "ib0", .port = 2 };

	for (u8 i = 0; i < LINKNAME_ADDRESS; i++)
		name.address[i] = (u8)(i * 13);
	return name;
}

static void linkname__comes_back(void **state)
{
	struct linkname name = test_name(), got;
	char text[LINKNAME_BYTES];

	(void)state;
	linkname_write(&name, text);
	assert_true(linkname_read(text, strlen(text), &got));
	assert_memory_equal(got.address, name.address, LINKNAME_ADDRESS);
	assert_int_equal(got.port, 2);
	assert_string_equal(got.device, "ib0");
	assert_string_equal(got.host, "h1");
	strcpy(name.host, "a b\n");
	linkname_write(&name, text);
	assert_true(linkname_read(text, strlen(text), &got));
	assert_string_equal(got.host, "a_b_");
}

static void linkname__others_are_none(void **state)
{
	struct linkname name = test_name(), got = { .port = 77 };
	char text[LINKNAME_BYTES];
	size_t size;

	(void)state;
	linkname_write(&name, text);
	size = strlen(text);
	for (size_t cut = 0; cut < size - 1; cut++)
		assert_false(linkname_read(text, cut, &got));
	for (size_t i = 0; i < 6 + 60; i++) {
		char old = text[i];

		text[i] = 'z';
		assert_false(linkname_read(text, size, &got));
		text[i] = '\0';
		assert_false(linkname_read(text, size, &got));
		text[i] = old;
	}
	assert_false(linkname_read("uplink", 6, &got));
	assert_int_equal(got.port, 77);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(linkname__comes_back),
		cmocka_unit_test(linkname__others_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
