/* config_test.c: GUIDs, GIDs, and what happens to them when addresses change.
 * In:    made-up tables                Out: verdicts
 * Runs:  one thread                    Locks: none
 */
#include "daemon/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <arpa/inet.h>
#include <cmocka.h>

static void test_put(struct node_config *c, int i, u8 kind, u8 last)
{
	memset(&c->gids[i], 0, sizeof(c->gids[i]));
	c->gids[i].gid[0] = kind;
	c->gids[i].gid[15] = last;
}

static void config_guid__differs_by_device(void **state)
{
	assert_true(config_guid("a", "roce0") != config_guid("a", "roce1"));
	assert_true(config_guid("a", "roce1") == config_guid("a", "roce1"));
	assert_true(config_guid("a", "roce1") != config_guid("b", "roce1"));
}

static void config_deal__in_turns_and_none_twice(void **state)
{
	struct config_told all, told[NODE_DEVICES];

	config_parse_told("10.0.0.1,10.0.0.1,10.0.0.2,10.0.0.3", &all);
	config_deal(&all, 2, told);
	assert_int_equal(told[0].count, 2);
	assert_int_equal(told[0].gid[0][15], 1);
	assert_int_equal(told[0].gid[1][15], 3);
	assert_int_equal(told[1].count, 1);
	assert_int_equal(told[1].gid[0][15], 2);
	/* a device that gets none has none of the host's either */
	assert_true(told[2].given);
	assert_int_equal(told[2].count, 0);
}

static void config_guid__differs_by_node_and_is_a_local_eui(void **state)
{
	u64 a = config_guid("a", "roce0"), b = config_guid("b", "roce0");

	assert_true(a != b);
	assert_true(a == config_guid("a", "roce0"));
	assert_int_equal(a >> 56 & 3, 2);
	assert_int_equal(b >> 56 & 3, 2);
}

/* ---- made-up hosts ---- */

static struct host_interface *host_interface(struct host *h, u32 ifindex, const char *name, u32 mtu)
{
	struct host_interface *l = &h->links[h->link_count++];

	*l = (struct host_interface){ .ifindex = ifindex, .mtu = mtu, .up = true, .running = true };
	memcpy(l->name, name, strlen(name) + 1);
	l->mac[5] = (u8)ifindex;
	return l;
}

static void host_address(struct host *h, u32 ifindex, const char *text)
{
	struct host_address *a = &h->addresses[h->address_count++];

	memset(a->gid, 0, 16);
	a->gid[10] = a->gid[11] = 0xff;
	a->ifindex = ifindex;
	assert_true(inet_pton(AF_INET, text, a->gid + 12) == 1 ||
		    inet_pton(AF_INET6, text, a->gid) == 1);
}

static struct host_interface *host_init(struct host *h)
{
	struct host_interface *lo;

	memset(h, 0, sizeof(*h));
	lo = host_interface(h, 1, "lo", 65536);
	lo->loopback = true;
	host_address(h, 1, "127.0.0.1");
	host_address(h, 1, "::1");
	return lo;
}

static void test_fill(struct node_config *c, const struct host *h, const char *node,
		      const char *told)
{
	struct config_told parsed;
	struct config_source s = { .host = h,
				   .node = node,
				   .device = "roce0",
				   .id = 1,
				   .told = &parsed,
				   .first = strcmp(node, "later") != 0 };

	config_parse_told(told, &parsed);
	config_fill(c, &s);
}

/* The index of an address in the table; -1: it is not there. */
static int test_index(const struct node_config *c, const char *text)
{
	struct host h = { .address_count = 0 };

	host_address(&h, 0, text);
	for (int i = 0; i < NODE_GIDS; i++)
		if (memcmp(c->gids[i].gid, h.addresses[0].gid, 16) == 0)
			return i;
	return -1;
}

static int test_count(const struct node_config *c)
{
	static const u8 empty[16];
	int count = 0;

	for (int i = 0; i < NODE_GIDS; i++)
		count += memcmp(c->gids[i].gid, empty, 16) != 0;
	return count;
}

static void config_fill__a_host_without_interfaces(void **state)
{
	struct host none = { .link_count = 0 }, lo;
	struct node_config c;

	host_init(&lo);
	for (int i = 0; i < 4; i++) {
		test_fill(&c, i & 1 ? &lo : &none, i & 2 ? "default" : "later", NULL);
		assert_int_equal(test_count(&c), 2);
		assert_int_equal(c.gids[0].gid[0], 0xfe);
		assert_int_equal(c.gids[1].gid[10], 0xff);
		assert_int_equal(c.gids[1].gid[12], 127);
		assert_int_not_equal(c.gids[1].gid[13], 0);
		assert_int_equal(c.gids[1].ifindex, i & 1);
		assert_int_equal(c.mtu, 4096);
	}
}

static void config_fill__shows_every_address_of_the_host(void **state)
{
	static struct host h;
	struct node_config c;

	host_init(&h);
	host_interface(&h, 2, "eth0", 1500);
	host_interface(&h, 3, "eth1", 9000)->running = false;
	host_interface(&h, 4, "eth2", 9000)->up = false;
	host_address(&h, 3, "10.0.1.1");
	host_address(&h, 2, "fe80::77");
	host_address(&h, 2, "10.0.0.1");
	host_address(&h, 2, "10.0.0.2");
	host_address(&h, 2, "fd00::1");
	host_address(&h, 4, "10.0.2.1");
	test_fill(&c, &h, "default", NULL);
	assert_int_equal(test_count(&c), 5);
	/* index 0 is what others reach, index 1 an IPv4 address that can be used */
	assert_int_equal(test_index(&c, "fe80::77"), 0);
	assert_int_equal(test_index(&c, "10.0.0.1"), 1);
	assert_int_equal(test_index(&c, "10.0.0.2"), 2);
	assert_int_equal(test_index(&c, "10.0.1.1"), 3);
	assert_int_equal(test_index(&c, "fd00::1"), 4);
	assert_string_equal(c.gids[4].ifname, "eth0");
	assert_int_equal(c.gids[4].ifindex, 2);
	assert_int_equal(c.gids[4].mac[5], 2);
	assert_int_equal(c.gids[4].flags, NODE_GID_LINK);
	assert_int_equal(c.gids[3].flags, 0);
	assert_int_equal(c.gids[1].mtu, 1024);
	assert_int_equal(c.gids[3].mtu, 4096);
	assert_string_equal(c.gids[0].ifname, "eth0");
	test_fill(&c, &h, "a name", NULL);
	assert_int_equal(test_count(&c), 5);
	test_fill(&c, &h, "later", NULL);
	assert_int_equal(test_count(&c), 2);
	assert_int_equal(c.gids[1].gid[12], 127);
	test_fill(&c, &h, "default", "own");
	assert_int_equal(test_count(&c), 2);
	assert_int_equal(c.gids[1].gid[12], 127);
}

static void config_fill__gid_0_is_the_link_local_address_of_gid_1(void **state)
{
	static struct host h;
	struct node_config c;

	host_init(&h);
	host_interface(&h, 2, "eth0", 1500);
	host_interface(&h, 3, "eth1", 1500);
	host_address(&h, 2, "fe80::2");
	host_address(&h, 3, "fe80::3");
	host_address(&h, 3, "10.0.0.1");
	test_fill(&c, &h, "default", NULL);
	assert_int_equal(test_index(&c, "fe80::3"), 0);
	assert_int_equal(test_index(&c, "10.0.0.1"), 1);
	assert_int_equal(test_index(&c, "fe80::2"), 2);
	assert_int_equal(test_count(&c), 3);
	assert_int_equal(c.gids[0].ifindex, 3);
	/* without IPv4 that of any, without one or another node's interfaces the GUID's */
	h.address_count--;
	test_fill(&c, &h, "default", NULL);
	assert_int_equal(test_index(&c, "fe80::2"), 0);
	test_fill(&c, &h, "later", NULL);
	assert_memory_equal(c.gids[0].gid, ((u8[8]){ 0xfe, 0x80 }), 8);
	assert_int_equal(c.gids[0].gid[15], c.node_guid & 0xff);
	assert_int_equal(test_count(&c), 2);
	test_fill(&c, &h, "default", "127.0.0.7,fe80::3");
	assert_int_equal(c.gids[0].gid[15], c.node_guid & 0xff);
	assert_int_equal(test_index(&c, "fe80::3"), 2);
}

static void config_fill__an_ipv6_host_has_an_ipv4_gid_of_its_own(void **state)
{
	static struct host h;
	struct node_config c;

	host_init(&h);
	host_interface(&h, 2, "eth0", 1500);
	host_address(&h, 2, "fd00::1");
	test_fill(&c, &h, "default", NULL);
	assert_int_equal(c.gids[1].gid[12], 127);
	assert_int_equal(test_index(&c, "fd00::1"), 2);
}

static void config_fill__takes_what_it_is_told(void **state)
{
	static struct host h;
	struct node_config c;

	host_init(&h);
	host_interface(&h, 2, "eth0", 1500);
	host_address(&h, 2, "10.0.0.1");
	host_address(&h, 2, "10.0.0.2");
	test_fill(&c, &h, "default", "10.0.0.2, 127.0.0.5,fd00::9");
	assert_int_equal(test_count(&c), 4);
	assert_int_equal(test_index(&c, "10.0.0.2"), 1);
	assert_int_equal(c.gids[1].ifindex, 2);
	assert_int_equal(c.gids[2].ifindex, 1);
	/* the host has no such address */
	assert_int_equal(test_index(&c, "fd00::9"), 3);
	assert_int_equal(c.gids[3].ifindex, 0);
	test_fill(&c, &h, "default", "none of,0.0.0.0,::,224.0.0.1,ff0e::1,10.0.0.1.1,it");
	assert_int_equal(test_count(&c), 2);
	assert_int_equal(c.gids[1].gid[12], 127);
}

static bool test_refuse_1(void *arg, const u8 gid[16], u32 ifindex)
{
	(*(int *)arg)++;
	return gid[15] != 1;
}

static void config_fill__leaves_out_what_another_node_has(void **state)
{
	static struct host h;
	struct config_told told = { .given = false };
	int asked = 0;
	struct config_source s = { .host = &h,
				   .node = "default",
				   .device = "roce0",
				   .id = 1,
				   .told = &told,
				   .first = true,
				   .mine = test_refuse_1,
				   .arg = &asked };
	struct node_config c;

	host_init(&h);
	host_interface(&h, 2, "eth0", 1500);
	host_address(&h, 2, "10.0.0.1");
	host_address(&h, 2, "10.0.0.2");
	config_fill(&c, &s);
	assert_int_equal(asked, 2);
	assert_int_equal(test_count(&c), 2);
	assert_int_equal(test_index(&c, "10.0.0.2"), 1);
}

static void config_fill__as_many_as_there_is_room_for(void **state)
{
	static struct host h;
	struct node_config c;
	char text[32];

	host_init(&h);
	host_interface(&h, 2, "eth0", 1500);
	for (int i = 0; i < 200; i++) {
		snprintf(text, sizeof(text), "10.0.0.%d", i);
		host_address(&h, 2, text);
	}
	test_fill(&c, &h, "default", NULL);
	assert_int_equal(test_count(&c), NODE_GIDS - 1);
}

static void config_mtu__the_largest_that_fits(void **state)
{
	static const u8 v4[16] = { [10] = 0xff, [11] = 0xff, 10, 0, 0, 1 }, v6[16] = { 0xfd };
	static const struct {
		u32 ip, v4, v6;
	} cases[] = {
		{ 68, 256, 256 },     { 1280, 1024, 1024 }, { 1400, 1024, 1024 },
		{ 1500, 1024, 1024 }, { 2127, 1024, 1024 }, { 2128, 2048, 1024 },
		{ 2132, 2048, 2048 }, { 4175, 2048, 2048 }, { 4176, 4096, 2048 },
		{ 4180, 4096, 4096 }, { 9000, 4096, 4096 }, { 65536, 4096, 4096 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_equal(config_mtu(v4, cases[i].ip), cases[i].v4);
		assert_int_equal(config_mtu(v6, cases[i].ip), cases[i].v6);
	}
}

static void config_fill__the_ports_mtu_is_the_least_of_those_in_use(void **state)
{
	static struct host h;
	struct node_config c;

	host_init(&h);
	host_interface(&h, 2, "eth0", 9000);
	host_interface(&h, 3, "eth1", 1500)->running = false;
	host_address(&h, 2, "10.0.0.1");
	host_address(&h, 3, "10.0.1.1");
	test_fill(&c, &h, "default", NULL);
	assert_int_equal(c.mtu, 4096);
	h.links[2].running = true;
	test_fill(&c, &h, "default", NULL);
	assert_int_equal(c.mtu, 1024);
}

/* ---- the link ---- */

static bool test_link(struct config_links *links, const struct host *h, const char *node,
		      const char *text)
{
	struct config_told told;
	struct config_source s = { .host = h,
				   .node = node,
				   .device = "roce0",
				   .id = 1,
				   .told = &told,
				   .first = strcmp(node, "later") != 0 };

	config_parse_told(text, &told);
	return config_link(links, &s);
}

static void config_link__of_interfaces_with_addresses(void **state)
{
	static struct host h;
	struct config_links links = { .count = 0 };

	host_init(&h);
	assert_true(test_link(&links, &h, "default", NULL));
	/* without an address it is none of ours */
	host_interface(&h, 2, "eth0", 1500)->running = false;
	assert_true(test_link(&links, &h, "default", NULL));
	host_address(&h, 2, "10.0.0.1");
	assert_false(test_link(&links, &h, "default", NULL));
	assert_true(test_link(&links, &h, "later", NULL));
	assert_true(test_link(&links, &h, "later", "127.0.0.2"));
	assert_false(test_link(&links, &h, "later", "127.0.0.2,10.0.0.1"));
	/* one link of several is enough */
	host_interface(&h, 3, "eth1", 1500);
	host_address(&h, 3, "fe80::1");
	assert_true(test_link(&links, &h, "default", NULL));
	h.links[2].running = false;
	assert_false(test_link(&links, &h, "default", NULL));
	h.links[1].running = true;
	assert_true(test_link(&links, &h, "default", NULL));
}

static void config_link__a_bridge_has_none_of_its_own(void **state)
{
	static struct host h;
	struct config_links links = { .count = 0 };
	struct host_interface *bridge;

	host_init(&h);
	bridge = host_interface(&h, 2, "docker0", 1500);
	bridge->running = false;
	bridge->bridge = true;
	host_address(&h, 2, "172.17.0.1");
	assert_true(test_link(&links, &h, "default", NULL));
}

static void config_link__taken_down_it_still_counts(void **state)
{
	static struct host h;
	struct config_links links = { .count = 0 };

	host_init(&h);
	host_interface(&h, 2, "eth0", 1500);
	host_address(&h, 2, "fe80::1");
	assert_true(test_link(&links, &h, "default", NULL));
	/* its IPv6 addresses go with it */
	h.links[1].up = h.links[1].running = false;
	h.address_count--;
	assert_false(test_link(&links, &h, "default", NULL));
	assert_false(test_link(&links, &h, "default", NULL));
	/* deleted */
	h.link_count--;
	assert_true(test_link(&links, &h, "default", NULL));
}

/* ---- indices ---- */

static void config_merge__keeps_indices(void **state)
{
	struct node_config c = { .mtu = 1 }, fresh = { .mtu = 1 };

	test_put(&c, 0, 0xfe, 1);
	test_put(&c, 1, 0x0a, 1);
	test_put(&c, 2, 0x0a, 2);
	test_put(&c, 3, 0x0a, 3);
	fresh = c;
	assert_false(config_merge(&c, &fresh));
	/* 2 goes, 4 comes: the others stay where they are */
	test_put(&fresh, 2, 0x0a, 3);
	test_put(&fresh, 3, 0x0a, 4);
	assert_true(config_merge(&c, &fresh));
	assert_int_equal(c.gids[1].gid[15], 1);
	assert_int_equal(c.gids[2].gid[15], 4);
	assert_int_equal(c.gids[3].gid[15], 3);
	assert_int_equal(c.gids[4].gid[15], 0);
}

static void config_merge__first_address_goes(void **state)
{
	struct node_config c = { .mtu = 1 }, fresh = { .mtu = 1 };

	test_put(&c, 0, 0xfe, 1);
	test_put(&c, 1, 0x0a, 1);
	test_put(&c, 2, 0x0a, 2);
	test_put(&fresh, 0, 0xfe, 1);
	test_put(&fresh, 1, 0x0a, 9);
	assert_true(config_merge(&c, &fresh));
	assert_int_equal(c.gids[1].gid[15], 9);
	assert_int_equal(c.gids[2].gid[15], 0);
	/* the only one that is left stands elsewhere: index 1 must not be empty */
	test_put(&c, 2, 0x0a, 2);
	test_put(&fresh, 1, 0x0a, 2);
	assert_true(config_merge(&c, &fresh));
	assert_int_equal(c.gids[1].gid[15], 2);
	assert_int_equal(c.gids[2].gid[15], 2);
}

static void config_merge__gid_0_is_never_empty(void **state)
{
	struct node_config c = { .mtu = 1 }, fresh = { .mtu = 1 };

	/* the interface's own address comes a moment after it is up, and goes with it */
	test_put(&c, 0, 0xfe, 1);
	test_put(&c, 1, 0x0a, 1);
	fresh = c;
	test_put(&fresh, 0, 0xfe, 2);
	assert_true(config_merge(&c, &fresh));
	assert_int_equal(c.gids[0].gid[15], 2);
	assert_int_equal(c.gids[2].gid[15], 0);
	/* another that would come first does not displace it */
	test_put(&fresh, 0, 0xfe, 3);
	test_put(&fresh, 2, 0xfe, 2);
	assert_true(config_merge(&c, &fresh));
	assert_int_equal(c.gids[0].gid[15], 2);
	assert_int_equal(c.gids[2].gid[15], 3);
	test_put(&fresh, 2, 0x0b, 1);
	assert_true(config_merge(&c, &fresh));
	assert_int_equal(c.gids[0].gid[15], 3);
}

static void config_merge__table_never_full(void **state)
{
	struct node_config c = { .mtu = 1 }, fresh = { .mtu = 1 };

	test_put(&c, 0, 0xfe, 1);
	test_put(&c, 1, 0x0a, 1);
	for (int i = 0; i < NODE_GIDS - 1; i++)
		test_put(&fresh, i, 0x0b, (u8)(i + 1));
	for (int i = 0; i < 3; i++)
		config_merge(&c, &fresh);
	assert_int_equal(c.gids[NODE_GIDS - 1].gid[0], 0);
	assert_int_equal(c.gids[1].gid[0], 0x0b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(config_guid__differs_by_device),
		cmocka_unit_test(config_deal__in_turns_and_none_twice),
		cmocka_unit_test(config_guid__differs_by_node_and_is_a_local_eui),
		cmocka_unit_test(config_fill__a_host_without_interfaces),
		cmocka_unit_test(config_fill__shows_every_address_of_the_host),
		cmocka_unit_test(config_fill__gid_0_is_the_link_local_address_of_gid_1),
		cmocka_unit_test(config_fill__an_ipv6_host_has_an_ipv4_gid_of_its_own),
		cmocka_unit_test(config_fill__takes_what_it_is_told),
		cmocka_unit_test(config_fill__leaves_out_what_another_node_has),
		cmocka_unit_test(config_fill__as_many_as_there_is_room_for),
		cmocka_unit_test(config_mtu__the_largest_that_fits),
		cmocka_unit_test(config_fill__the_ports_mtu_is_the_least_of_those_in_use),
		cmocka_unit_test(config_link__of_interfaces_with_addresses),
		cmocka_unit_test(config_link__a_bridge_has_none_of_its_own),
		cmocka_unit_test(config_link__taken_down_it_still_counts),
		cmocka_unit_test(config_merge__keeps_indices),
		cmocka_unit_test(config_merge__first_address_goes),
		cmocka_unit_test(config_merge__gid_0_is_never_empty),
		cmocka_unit_test(config_merge__table_never_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
