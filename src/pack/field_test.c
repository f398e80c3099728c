/* field_test.c: a table's fields: every width at every place, and nothing beside them. */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pack/pack.h"

struct members {
	u8 one;
	__be16 two;
	__be32 four;
	__be64 eight;
	u8 bytes[16];
};

/* The oracle: bit by bit, most significant first. */
static bool test_bit(const u8 *buf, u32 at)
{
	return buf[at / 8] >> (7 - at % 8) & 1;
}

static u64 test_bits(const u8 *buf, u32 first, u32 bits)
{
	u64 value = 0;

	for (u32 i = 0; i < bits; i++)
		value = value << 1 | test_bit(buf, first + i);
	return value;
}

static const struct ib_field *test_field(u32 size, u32 first, u32 bits)
{
	static struct ib_field f;
	static const size_t offsets[] = { [1] = offsetof(struct members, one),
					  [2] = offsetof(struct members, two),
					  [4] = offsetof(struct members, four),
					  [8] = offsetof(struct members, eight) };

	f = (struct ib_field){ offsets[size],	 size,		  (int)(first / 32),
			       (int)(first % 32), (int)bits, "test" };
	return &f;
}

static struct members test_members(u64 value)
{
	return (struct members){ .one = (u8)value,
				 .two = htobe16((u16)value),
				 .four = htobe32((u32)value),
				 .eight = htobe64(value) };
}

static u64 test_low(u64 value, u32 bits)
{
	return bits == 64 ? value : value & ((1ull << bits) - 1);
}

/* One field between bits that must stay as they are. */
static void test_one(u32 size, u32 first, u32 bits, u64 value, u8 around)
{
	struct members m = test_members(value), out;
	const struct ib_field *f = test_field(size, first, bits);
	u8 buf[24];

	memset(buf, around, sizeof(buf));
	ib_pack(f, 1, &m, buf);
	assert_int_equal(test_bits(buf, first, bits), test_low(value, bits));
	for (u32 i = 0; i < 8 * sizeof(buf); i++)
		if (i < first || i >= first + bits)
			assert_int_equal(test_bit(buf, i), around != 0);
	memset(&out, 0x5a, sizeof(out));
	ib_unpack(f, 1, buf, &out);
	m = test_members(test_low(value, bits));
	assert_memory_equal((u8 *)&out + f->struct_offset_bytes,
			    (u8 *)&m + f->struct_offset_bytes, size);
	memset((u8 *)&out + f->struct_offset_bytes, 0x5a, size);
	for (u32 i = 0; i < sizeof(out); i++)
		assert_int_equal(((u8 *)&out)[i], 0x5a);
}

static void numbers__every_width_at_every_place(void **state)
{
	static const u64 values[] = { 0, ~0ull, 0x123456789abcdef1, 0x8000000080008081 };

	(void)state;
	for (u32 size = 1; size <= 8; size *= 2)
		for (u32 bits = 1; bits <= 8 * size; bits++)
			for (u32 first = 0; first < 64; first++)
				for (u32 v = 0; v < ARRAY_LEN(values); v++)
					test_one(size, first, bits, values[v], v & 1 ? 0 : 0xff);
}

static void bytes__lie_as_they_are(void **state)
{
	static const struct ib_field field = {
		offsetof(struct members, bytes), 16, 1, 8, 128, "bytes"
	};
	struct members m = { .one = 0 }, out = { .one = 7 };
	u8 buf[24];

	(void)state;
	for (u8 i = 0; i < 16; i++)
		m.bytes[i] = (u8)(0xa0 + i);
	memset(buf, 0xee, sizeof(buf));
	ib_pack(&field, 1, &m, buf);
	assert_memory_equal(buf + 5, m.bytes, 16);
	assert_int_equal(buf[4], 0xee);
	assert_int_equal(buf[21], 0xee);
	ib_unpack(&field, 1, buf, &out);
	assert_memory_equal(out.bytes, m.bytes, 16);
	assert_int_equal(out.one, 7);
}

static void reserved__is_packed_as_zeroes_and_not_read(void **state)
{
	static const struct ib_field table[] = { PACK_RESERVED(0, 4, 6), PACK_RESERVED(1, 0, 96) };
	struct members m = { .one = 0xff }, out = { .one = 9 };
	u8 buf[20];

	(void)state;
	memset(buf, 0xff, sizeof(buf));
	ib_pack(table, 2, &m, buf);
	assert_int_equal(buf[0], 0xf0);
	assert_int_equal(buf[1], 0x3f);
	assert_int_equal(buf[3], 0xff);
	for (u32 i = 4; i < 16; i++)
		assert_int_equal(buf[i], 0);
	assert_int_equal(buf[16], 0xff);
	memset(buf, 0xff, sizeof(buf));
	ib_unpack(table, 2, buf, &out);
	assert_int_equal(out.one, 9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers__every_width_at_every_place),
		cmocka_unit_test(bytes__lie_as_they_are),
		cmocka_unit_test(reserved__is_packed_as_zeroes_and_not_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
