/* cut_test.c: joined packets are told apart by their ICRC, whatever their lengths. */
#include "path/udp/udp_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { CUT_BYTES = 65536 };

/* ---- packets, joined ---- */

static struct roce_flow cut_flow(bool v4)
{
	struct roce_flow f = { .sport = 0xc123, .df = true };

	f.sgid[10] = f.sgid[11] = f.dgid[10] = f.dgid[11] = v4 ? 0xff : 1;
	f.sgid[15] = 1;
	f.dgid[15] = 2;
	return f;
}

/* A packet with this much payload: its length on the wire. */
static u32 cut_pack(const struct roce_flow *f, u8 opcode, u32 length, u8 *out)
{
	struct pkt p = { .opcode = opcode, .qp_type = IBV_QPT_RC, .length = length, .dqpn = 17 };
	u32 bytes = (u32)roce_pack(&p, out), icrc, all = bytes + length + roce_pad(length) + 4;

	memset(out + bytes, 0x3c, length);
	icrc = roce_icrc_begin(f, all, out, bytes);
	icrc = roce_icrc_add(icrc, out + bytes, length);
	roce_icrc_end(icrc, roce_pad(length), out + bytes + length);
	return all;
}

struct cut_case {
	struct roce_flow flow;
	struct udp_cut cut;
	struct roce_source source;
	u8 data[CUT_BYTES];
	u32 bytes, segment;
};

/* `n` packets of which the last has `last` bytes, from this identification on. */
static void cut_join(struct cut_case *c, u8 opcode, u32 n, u32 length, u32 last, u16 id)
{
	struct roce_flow f = c->flow;

	c->bytes = 0;
	for (u32 i = 0; i < n; i++) {
		f.id = (u16)(id + i);
		c->bytes += cut_pack(&f, opcode, i + 1 == n ? last : length, c->data + c->bytes);
		if (i == 0)
			c->segment = n == 1 ? 0 : c->bytes;
	}
}

/* Takes the packets as the path does. False: they were not expected. */
static bool cut_take(struct cut_case *c)
{
	struct roce_flow f = c->flow;
	u32 segment, left = c->bytes;
	const u8 *data = c->data;
	bool expected;

	f.id = 0;
	expected = cut_expected(&c->cut, &c->source, &f, data, left, 1, &segment);
	if (!expected)
		cut_find(&c->cut, &c->source, &f, data, left, 1, &segment);
	assert_int_equal(segment, c->segment);
	for (bool judged = expected; left != 0; judged = false) {
		u32 length = segment == 0 ? left : MIN(left, segment);

		assert_true(judged || roce_icrc_matches(&c->source, &f, data, length, 1));
		f.id++;
		data += length;
		left -= length;
	}
	return expected;
}

/* ---- tests ---- */

static void cut_find__every_length(void **state)
{
	static struct cut_case c;

	for (int v4 = 0; v4 < 2; v4++)
		for (u32 length = 0; length <= 4096; length += length < 300 ? 1 : 97)
			for (u32 n = 1; n <= 7; n += 3) {
				memset(&c, 0, sizeof(c));
				c.flow = cut_flow(v4);
				cut_join(&c, PKT_SEND_ONLY, n, length, length / 2, 5000);
				cut_take(&c);
				assert_int_equal(c.source.id, v4 ? 5000 + n - 1 : 0);
			}
}

static void cut_find__full_packets(void **state)
{
	static const u8 opcodes[] = { PKT_SEND_MIDDLE, PKT_WRITE_FIRST, PKT_READ_FIRST };
	static struct cut_case c;

	for (u32 i = 0; i < ARRAY_LEN(opcodes); i++)
		for (u32 mtu = 256; mtu <= 4096; mtu *= 2) {
			memset(&c, 0, sizeof(c));
			c.flow = cut_flow(true);
			cut_join(&c, opcodes[i], 15, mtu, 8, 0);
			assert_false(cut_take(&c));
		}
}

static void cut_expected__the_same_again(void **state)
{
	static struct cut_case c;

	memset(&c, 0, sizeof(c));
	c.flow = cut_flow(true);
	for (u16 i = 0; i < 100; i++) {
		cut_join(&c, PKT_SEND_ONLY, 2, 8, 0, 700 + 2 * i);
		assert_int_equal(cut_take(&c), i > 0);
		cut_join(&c, PKT_SEND_ONLY, 1, 8, 8, 701 + 2 * i);
		assert_int_equal(cut_take(&c), i > 0);
	}
	/* as many bytes, but one packet */
	cut_join(&c, PKT_SEND_ONLY, 1, 24, 24, 900);
	assert_true(cut_take(&c));
}

/* What is damaged is nobody's, and takes nothing along that comes after. */
static void cut_find__damage(void **state)
{
	static struct cut_case c;
	u32 segment;

	memset(&c, 0, sizeof(c));
	c.flow = cut_flow(true);
	cut_join(&c, PKT_SEND_ONLY, 1, 8, 8, 900);
	assert_false(cut_take(&c));
	for (u32 bit = 0; bit < 8 * 40; bit++) {
		struct roce_source before;

		cut_join(&c, PKT_SEND_ONLY, 2, 8, 0, 901);
		c.data[bit / 8] ^= (u8)(1 << bit % 8);
		if (bit / 8 == 4 || bit / 8 == 28)
			continue; /* BTH's FECN byte is not covered */
		before = c.source;
		assert_false(cut_expected(&c.cut, &c.source, &c.flow, c.data, c.bytes, 1,
					  &segment));
		cut_find(&c.cut, &c.source, &c.flow, c.data, c.bytes, 1, &segment);
		assert_int_equal(segment, 0);
		assert_memory_equal(&before, &c.source, offsetof(struct roce_source, prefix));
	}
	cut_join(&c, PKT_SEND_ONLY, 2, 8, 0, 901);
	cut_take(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cut_find__every_length),
		cmocka_unit_test(cut_find__full_packets),
		cmocka_unit_test(cut_expected__the_same_again),
		cmocka_unit_test(cut_find__damage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
