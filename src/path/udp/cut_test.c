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

/* A message and an acknowledgement. */
static void cut_join_ack(struct cut_case *c, u32 length, u16 id)
{
	struct roce_flow f = c->flow;

	f.id = id;
	c->segment = cut_pack(&f, PKT_SEND_ONLY, length, c->data);
	f.id++;
	c->bytes = c->segment + cut_pack(&f, PKT_ACK, 0, c->data + c->segment);
}

/* Takes the packets as the path does. Returns whether they were judged before they were cut. */
static bool cut_take(struct cut_case *c)
{
	struct roce_flow f = c->flow;
	u32 left = c->bytes;
	const u8 *data = c->data;
	struct udp_cut cut;

	f.id = 0;
	assert_true(cut_find(&c->source, &f, data, left, 1, &cut));
	assert_int_equal(cut.segment, c->segment);
	while (left != 0) {
		u32 length = cut.segment == 0 ? left : MIN(left, cut.segment);

		assert_true(cut.judged || roce_icrc_matches(&c->source, &f, data, length, 1));
		f.id++;
		data += length;
		left -= length;
	}
	return cut.judged;
}

/* What cut_find says of it; 0 also where it finds more than one answer. */
static u32 cut_of(struct cut_case *c)
{
	struct udp_cut cut;

	return cut_find(&c->source, &c->flow, c->data, c->bytes, 1, &cut) ? cut.segment : 0;
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
			cut_take(&c);
		}
}

/* Messages with acknowledgements behind them, and without. */
static void cut_find__messages_in_turn(void **state)
{
	static struct cut_case c;

	for (int v4 = 0; v4 < 2; v4++) {
		memset(&c, 0, sizeof(c));
		c.flow = cut_flow(v4);
		for (u16 i = 0; i < 100; i++) {
			cut_join_ack(&c, 8, 700 + 2 * i);
			assert_int_equal(cut_take(&c), i != 0 || !v4);
			cut_join(&c, PKT_SEND_ONLY, 1, 8, 8, 701 + 2 * i);
			assert_false(cut_take(&c));
		}
		/* as many bytes, but one packet */
		cut_join(&c, PKT_SEND_ONLY, 1, 28, 28, 900);
		cut_take(&c);
		/* another number than the expected one */
		cut_join_ack(&c, 8, 950);
		assert_int_equal(cut_take(&c), !v4);
	}
}

/* What is damaged is nobody's, and takes nothing along that comes after. */
static void cut_find__damage(void **state)
{
	static struct cut_case c;

	memset(&c, 0, sizeof(c));
	c.flow = cut_flow(true);
	for (u16 id = 899; id <= 900; id++) {
		cut_join(&c, PKT_SEND_ONLY, 1, 8, 8, id);
		cut_take(&c);
	}
	for (u32 bit = 0; bit < 8 * 44; bit++) {
		struct roce_source before;

		cut_join_ack(&c, 8, 901);
		c.data[bit / 8] ^= (u8)(1 << bit % 8);
		if (bit / 8 == 4 || bit / 8 == 28)
			continue; /* BTH's FECN byte is not covered */
		before = c.source;
		assert_int_equal(cut_of(&c), 0);
		assert_memory_equal(&before, &c.source, offsetof(struct roce_source, unshift));
	}
	cut_join_ack(&c, 8, 901);
	assert_true(cut_take(&c));
}

/* Ends `c->data` with an ICRC that makes one packet of it, as its sender does. */
static void cut_seal(struct cut_case *c, u16 id)
{
	struct roce_flow f = c->flow;
	u32 icrc;

	f.id = id;
	icrc = roce_icrc_begin(&f, c->bytes, c->data, ROCE_BTH);
	icrc = roce_icrc_add(icrc, c->data + ROCE_BTH, c->bytes - ROCE_BTH - ROCE_ICRC);
	roce_icrc_end(icrc, 0, c->data + c->bytes - ROCE_ICRC);
}

/* The content of one honest message has the ICRC of a shorter message and whole packets behind it.
 * It is one packet, or none: its sender's identification may be an unexpected one. */
static void cut_find__packets_in_a_message(void **state)
{
	static struct cut_case c;

	for (int v4 = 0; v4 < 2; v4++)
		for (u16 id = 1; id < 5000; id += 2499)
			for (u32 more = 0; more <= 92; more += 4) {
				memset(&c, 0, sizeof(c));
				c.flow = cut_flow(v4);
				cut_join(&c, PKT_SEND_ONLY, 1, 32, 32, 1);
				cut_take(&c);
				cut_join(&c, PKT_SEND_ONLY, 4, 32, 32, 2);
				cut_take(&c);
				cut_join(&c, PKT_SEND_ONLY, 2, 32, 32, 6);
				memset(c.data + c.bytes, 'B', more + ROCE_ICRC);
				c.bytes += more + ROCE_ICRC;
				cut_seal(&c, id);
				assert_int_equal(cut_of(&c), 0);
			}
}

/* The same with a forged acknowledgement at its end, in the place of those that come by the
 * hundred. The forgery ends with the honest ICRC, so that its author may choose but the lengths:
 * 2^-15 of them fit. Its FECN byte is his, too. */
static void cut_find__an_acknowledgement_in_a_message(void **state)
{
	static struct cut_case c;
	u32 fit = 0;

	memset(&c, 0, sizeof(c));
	c.flow = cut_flow(true);
	for (u16 i = 0; i < 100; i++) {
		cut_join_ack(&c, 32, 2 * i);
		cut_take(&c);
	}
	for (u32 length = 32; length < 3000; length += 4)
		for (u32 fecn = 0; fecn < 256; fecn++) {
			struct roce_source before = c.source;

			cut_join_ack(&c, length, 200);
			c.data[c.segment + 4] = (u8)fecn;
			if (!roce_icrc_is_possible(&c.source.trial, &c.flow, c.data, c.bytes))
				continue;
			/* a single packet has these very bytes */
			fit++;
			assert_int_equal(cut_of(&c), 0);
			c.source = before;
		}
	assert_true(fit > 0);
}

/* Two joined packets for which the ICRC is right as one packet, too. It depends on their lengths
 * alone: one pair of 2^15 for IPv4. No sender of ours joins such (send.c), but others may. */
static bool cut_join_ambiguously(struct cut_case *c)
{
	for (u32 length = 0; length < 2000; length += 4)
		for (u32 last = 0; last <= length; last += 4) {
			cut_join(c, PKT_SEND_ONLY, 2, length, last, 0);
			if (roce_icrc_is_possible(&c->source.trial, &c->flow, c->data, c->bytes))
				return true;
		}
	return false;
}

/* What cannot be told apart is nobody's. */
static void cut_find__a_packet_of_two_messages(void **state)
{
	static struct cut_case c;
	struct udp_cut cut;

	memset(&c, 0, sizeof(c));
	c.flow = cut_flow(true);
	assert_true(cut_join_ambiguously(&c));
	assert_false(cut_find(&c.source, &c.flow, c.data, c.bytes, 1, &cut));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cut_find__every_length),
		cmocka_unit_test(cut_find__full_packets),
		cmocka_unit_test(cut_find__messages_in_turn),
		cmocka_unit_test(cut_find__damage),
		cmocka_unit_test(cut_find__packets_in_a_message),
		cmocka_unit_test(cut_find__an_acknowledgement_in_a_message),
		cmocka_unit_test(cut_find__a_packet_of_two_messages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
