/* parse_test.c: topologies from text: what ibsim and ibnetdiscover write is read, and each mistake
 * is named with its line and column.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fabric/topo/topo.h"

static const char small_net[] = "# two switches\n"
				"Switch\t8 \"Switch1\"\n"
				"[1]\t\"Hca1\"[1]\n"
				"[2]\t\"Hca2\"[2]\n"
				"[3]\t\"Switch2\"[3]\tw=12\n"
				"[4]\t\"Switch2\"[4] s=2\n"
				"\n"
				"Switch 8 \"Switch2\"\n"
				"[3]\t\"Switch1\"[3]\n"
				"\n"
				"Hca\t2 \"Hca1\"\n"
				"[1]\t\"Switch1\"[1]\n"
				"\n"
				"Hca\t2 \"Hca2\"\n"
				"[2]\t\"Switch1\"[2]\n";

static const char discovered[] =
	"#\n# Topology file: generated on Tue Jun  5 14:15:10 2007\n#\n\n"
	"Non-Chassis Nodes\n\n"
	"vendid=0x8f1\n"
	"devid=0x5a06\n"
	"sysimgguid=0x5442ba00003000\n"
	"switchguid=0x5442ba00003080(5442ba00003080)\n"
	"Switch\t24 \"S-005442ba00003080\"\t\t# \"ISR9024 Voltaire\" enhanced port 0 lid 6 lmc 0\n"
	"[22][ext 3]\t\"H-0008f10403961354\"[1](8f10403961355) \t\t# \"h1 mlx5_0\" lid 4 4xEDR\n"
	"\n"
	"vendid=0x2c9\n"
	"devid=0x5a44\n"
	"sysimgguid=0x8f10403961357\n"
	"caguid=0x8f10403961354\n"
	"Ca\t2 \"H-0008f10403961354\"\t\t# \"h1 mlx5_0\"\n"
	"[1](8f10403961355) \t\"S-005442ba00003080\"[22]\t\t# lid 4 lmc 1 \"ISR9024 Voltaire\" lid "
	"6 "
	"4xEDR\n";

static void topo_parse__net_file(void **state)
{
	struct topo_error e;
	struct topo t;
	u32 peer;
	u8 port;

	(void)state;
	assert_int_equal(topo_parse(small_net, strlen(small_net), &t, &e), 0);
	assert_int_equal(t.node_count, 4);
	assert_int_equal(t.link_count, 4);
	assert_int_equal(t.port_count, 9 + 9 + 3 + 3);
	assert_int_equal(t.nodes[0].type, FABRIC_SWITCH);
	assert_int_equal(t.nodes[2].type, FABRIC_CA);
	assert_string_equal(t.nodes[3].desc, "Hca2");
	assert_true(topo_peer(&t, 3, 2, &peer, &port));
	assert_int_equal(peer, 0);
	assert_int_equal(port, 2);
	assert_false(topo_peer(&t, 3, 1, &peer, &port));
	assert_int_equal(t.links[topo_port(&t, 0, 3)->link].width, TOPO_12X);
	assert_int_equal(t.links[topo_port(&t, 0, 4)->link].speed, TOPO_DDR);
	assert_int_equal(t.links[topo_port(&t, 0, 1)->link].width, TOPO_4X);
	assert_int_equal(topo_find(&t, "Hca1"), 2);
	assert_int_equal(topo_find(&t, "Hca"), TOPO_NONE);
	topo_free(&t);
}

static void topo_parse__ibnetdiscover(void **state)
{
	struct topo_error e;
	struct topo t;

	(void)state;
	assert_int_equal(topo_parse(discovered, strlen(discovered), &t, &e), 0);
	assert_int_equal(t.node_count, 2);
	assert_int_equal(t.link_count, 1);
	assert_true(t.nodes[0].enhanced);
	assert_string_equal(t.nodes[0].desc, "ISR9024 Voltaire");
	assert_true(t.nodes[0].guid == 0x5442ba00003080);
	assert_true(t.nodes[0].sys_guid == 0x5442ba00003000);
	assert_true(t.nodes[1].sys_guid == 0x8f10403961357);
	assert_int_equal(t.nodes[1].device_id, 0x5a44);
	assert_int_equal(t.nodes[1].vendor_id, 0x2c9);
	assert_true(topo_port(&t, 1, 1)->guid == 0x8f10403961355);
	assert_int_equal(t.links[0].speed, TOPO_EDR);
	assert_int_equal(topo_find(&t, "h1"), 1);
	assert_int_equal(topo_find(&t, "0x8f10403961354"), 1);
	topo_free(&t);
}

struct mistake {
	const char *text;
	u32 line, column;
	const char *message;
};

static void topo_parse__mistakes(void **state)
{
	static const struct mistake all[] = {
		{ "", 1, 1, "the text has no node" },
		{ "# none", 1, 7, "the text has no node" },
		{ "# none\n", 2, 1, "the text has no node" },
		{ "Swich 8 \"a\"\n", 1, 1, "\"Swich\" is no word of a topology" },
		{ "Switch 255 \"a\"\n", 1, 8, "the number of ports is more than 254" },
		{ "Switch 0 \"a\"\n", 1, 8, "a node has one port at least" },
		{ "Switch x \"a\"\n", 1, 8, "the number of ports must be a number" },
		{ "Switch 8 a\n", 1, 10, "a node's id in quotes must stand here" },
		{ "Switch 8 \"a\n", 1, 10, "a node's id has no closing quote" },
		{ "Switch 8 \"\"\n", 1, 10, "a node's id is empty" },
		{ "Switch 8 \"a\"\nSwitch 8 \"a\"\n", 2, 10, "another node has the id \"a\"" },
		{ "[1] \"a\"[1]\n", 1, 1,
		  "this cable belongs to no node: a node's line comes first" },
		{ "Switch 8 \"a\"\n\n[1] \"a\"[2]\n", 3, 1,
		  "this cable belongs to no node: a node's line comes first" },
		{ "Switch 8 \"a\"\n[9] \"a\"[2]\n", 2, 1, "\"a\" has ports 1 to 8" },
		{ "Switch 8 \"a\"\n[1 \"a\"[2]\n", 2, 4, "a closing bracket must stand here" },
		{ "Switch 8 \"a\"\n[1] \"b\"[2]\n", 2, 5, "there is no node \"b\"" },
		{ "Switch 8 \"a\"\n[1] \"a\"[9]\n", 2, 5, "\"a\" has ports 1 to 8" },
		{ "Switch 8 \"a\"\n[1] \"a\"[1]\n", 2, 5, "the cable begins and ends at one port" },
		{ "Switch 8 \"a\"\n[1] \"a\"[2]\n[1] \"a\"[3]\n", 3, 5,
		  "\"a\"[1] has a cable to \"a\"[2] already" },
		{ "Switch 8 \"a\"\n[1] \"a\"[2]\n[3] \"a\"[2]\n", 3, 5,
		  "\"a\"[2] has a cable to \"a\"[1] already" },
		{ "Switch 8 \"a\"\n[1] \"a\"[2] w=16\n", 2, 14, "the value is more than 15" },
		{ "Switch 8 \"a\"\n[1] \"a\"[2] s=0\n", 2, 12,
		  "a speed is a mask from 1 to 7: 1 SDR, 2 DDR, 4 QDR" },
		{ "Switch 8 \"a\"\n[1] \"a\"[2] q=1\n", 2, 12, "an option of a cable is w= or s=" },
		{ "caguid=12345678901234567\n", 1, 8,
		  "a GUID must be at most 16 hexadecimal digits" },
		{ "switchguid 5\n", 1, 12, "'=' must stand here" },
		{ "include \"x\"\n", 1, 1, "ibsim's \"include\" is not known here" },
		{ "caguid=0x5\nCa 1 \"a\"\ncaguid=0x6\nCa 1 \"b\"\n", 0, 0,
		  "b has the GUID 0x6, as has a" },
	};
	struct topo_error e;
	struct topo t;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		int err = topo_parse(all[i].text, strlen(all[i].text), &t, &e);

		assert_int_equal(err, -EINVAL);
		assert_null(t.nodes);
		assert_string_equal(e.message, all[i].message);
		assert_int_equal(e.line, all[i].line);
		assert_int_equal(e.column, all[i].column);
	}
}

/* A text cut at any place is a topology or a mistake with a place, and nothing else. */
static void topo_parse__cut(void **state)
{
	size_t n = strlen(discovered);
	struct topo_error e;
	struct topo t;

	(void)state;
	for (size_t i = 0; i < n; i++) {
		char *copy = malloc(i + 1);

		assert_non_null(copy);
		memcpy(copy, discovered, i);
		if (topo_parse(copy, i, &t, &e) != 0)
			assert_true(e.line > 0 && e.column > 0 && e.message[0] != '\0');
		topo_free(&t);
		free(copy);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(topo_parse__net_file),
		cmocka_unit_test(topo_parse__ibnetdiscover),
		cmocka_unit_test(topo_parse__mistakes),
		cmocka_unit_test(topo_parse__cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
