/* crc_test.c: both ways, against a third one, bit by bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/crc.h"

enum { TEST_BYTES = 300 };

static u32 test_crc(u32 crc, const u8 *data, u32 bytes)
{
	crc = ~crc;
	while (bytes-- > 0) {
		crc ^= *data++;
		for (int i = 0; i < 8; i++)
			crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
	}
	return ~crc;
}

static void crc_add__check_value(void **state)
{
	assert_int_equal(crc_add(0, "123456789", 9), 0xcbf43926);
}

/* Every length and every place in a word, going on from another CRC. */
static void crc_add__both_ways_at_all_lengths(void **state)
{
	u8 *data = malloc(TEST_BYTES + 8);

	crc_add(0, "", 0); /* the tables are there */
	for (u32 i = 0; i < TEST_BYTES + 8; i++)
		data[i] = (u8)(i * 37 + (i >> 3));
	for (u32 from = 0; from < 8; from++)
		for (u32 bytes = 0; bytes <= TEST_BYTES; bytes++) {
			u32 expected = test_crc(bytes * 0x9e3779b9u, data + from, bytes);

			assert_int_equal(crc_add_isal(bytes * 0x9e3779b9u, data + from, bytes),
					 expected);
			assert_int_equal(crc_add_tables(bytes * 0x9e3779b9u, data + from, bytes),
					 expected);
		}
	free(data);
}

static void crc_add__in_pieces(void **state)
{
	u8 data[97];
	u32 whole;

	for (u32 i = 0; i < sizeof(data); i++)
		data[i] = (u8)(i * i);
	whole = test_crc(0, data, sizeof(data));
	for (u32 cut = 0; cut <= sizeof(data); cut++)
		assert_int_equal(crc_add(crc_add(0, data, cut), data + cut, sizeof(data) - cut),
				 whole);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(crc_add__check_value),
		cmocka_unit_test(crc_add__both_ways_at_all_lengths),
		cmocka_unit_test(crc_add__in_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
