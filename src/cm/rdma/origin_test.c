/* origin_test.c: requests that come from and to the addresses that they name, and others. */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cm/rdma/test_support/fake_cm.h"
#include "core/test_support/fake_device.h"

enum { LID = 7 };

static struct fake_device *adapter;
static struct cma_device known;

static union ib_gid gid_of(const char *text)
{
	union ib_gid gid = { .raw = { [10] = 0xff, [11] = 0xff } };

	if (strchr(text, ':') != NULL)
		assert_int_equal(inet_pton(AF_INET6, text, gid.raw), 1);
	else
		assert_int_equal(inet_pton(AF_INET, text, gid.raw + 12), 1);
	return gid;
}

static struct sockaddr_storage address_of(const char *text)
{
	struct sockaddr_in6 sin6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in sin = { .sin_family = AF_INET };
	struct sockaddr_storage out = { 0 };

	if (inet_pton(AF_INET6, text, &sin6.sin6_addr) == 1) {
		memcpy(&out, &sin6, sizeof(sin6));
		return out;
	}
	assert_int_equal(inet_pton(AF_INET, text, &sin.sin_addr), 1);
	memcpy(&out, &sin, sizeof(sin));
	return out;
}

/* A host with two addresses of IPv4 and two of IPv6. */
static int open_adapter(void **state)
{
	static const char *const own[] = { "10.0.0.1", "10.0.0.2", "fd00::1", "fe80::1" };

	memset(&fake_cm, 0, sizeof(fake_cm));
	adapter = fake_create("fake0");
	for (u32 i = 0; i < ARRAY_LEN(own); i++)
		adapter->gids[i] = gid_of(own[i]);
	assert_int_equal(ib_register_device(&adapter->ib), 0);
	memset(&known, 0, sizeof(known));
	known.device = &adapter->ib;
	lock_acquire(&cma.lock);
	list_init(&cma.devices);
	list_push_back(&cma.devices, &known.node);
	lock_release(&cma.lock);
	return 0;
}

static int close_adapter(void **state)
{
	lock_acquire(&cma.lock);
	list_remove(&known.node);
	lock_release(&cma.lock);
	ib_unregister_device(&adapter->ib);
	fake_destroy(adapter);
	return 0;
}

struct request {
	const char *peer, *own; /* where it comes from and to */
	const char *from, *to;	/* what it says of that */
	bool holds;
};

static void judge(const struct request *r, u16 lid)
{
	struct cma_request_way way = { .peer = gid_of(r->peer),
				       .own = gid_of(r->own),
				       .lid = lid };
	struct rdma_addr claimed = { .dst_addr = address_of(r->from),
				     .src_addr = address_of(r->to) };

	if (cma_origin_holds(&adapter->ib, &way, &claimed) != r->holds)
		fail_msg("from %s (%s) to %s (%s): %s", r->peer, r->from, r->own, r->to,
			 r->holds ? "refused" : "taken");
}

static void cma_origin_holds__on_roce(void **state)
{
	static const struct request requests[] = {
		{ "10.0.0.9", "10.0.0.1", "10.0.0.9", "10.0.0.1", true },
		{ "10.0.0.9", "10.0.0.1", "::ffff:10.0.0.9", "::ffff:10.0.0.1", true },
		{ "fd00::9", "fd00::1", "fd00::9", "fd00::1", true },
		{ "fe80::9", "fe80::1", "fe80::9", "fe80::1", true },
		{ "127.9.0.2", "10.0.0.1", "127.9.0.2", "10.0.0.1", true }, /* a node's own */
		/* another host's, or nobody's */
		{ "10.0.0.9", "10.0.0.1", "10.0.0.8", "10.0.0.1", false },
		{ "10.0.0.9", "10.0.0.1", "10.0.0.9", "10.0.0.2", false },
		{ "10.0.0.9", "10.0.0.1", "10.0.0.1", "10.0.0.1", false },
		{ "10.0.0.9", "10.0.0.1", "0.0.0.0", "10.0.0.1", false },
		{ "10.0.0.9", "10.0.0.1", "10.0.0.9", "0.0.0.0", false },
		{ "10.0.0.9", "10.0.0.1", "fd00::9", "fd00::1", false },
		{ "fd00::9", "fd00::1", "::", "::", false },
		{ "fe80::9", "fe80::1", "fe80::8", "fe80::1", false },
		/* another host that says it is this one */
		{ "10.0.0.9", "10.0.0.1", "127.0.0.1", "10.0.0.1", false },
		{ "10.0.0.9", "10.0.0.1", "10.0.0.9", "127.0.0.1", false },
		{ "10.0.0.9", "10.0.0.1", "127.0.0.1", "127.0.0.1", false },
		{ "10.0.0.9", "10.0.0.1", "127.3.2.1", "127.3.2.1", false },
		{ "10.0.0.9", "10.0.0.1", "::ffff:127.0.0.1", "::ffff:127.0.0.1", false },
		{ "fd00::9", "fd00::1", "::1", "::1", false },
		{ "127.9.0.2", "10.0.0.1", "127.0.0.1", "10.0.0.1", false },
		/* a process of this host */
		{ "10.0.0.1", "10.0.0.1", "127.0.0.1", "127.0.0.1", true },
		{ "10.0.0.1", "10.0.0.2", "127.0.0.1", "10.0.0.2", true },
		{ "10.0.0.1", "10.0.0.2", "10.0.0.1", "127.0.0.1", true },
		{ "10.0.0.1", "10.0.0.1", "::ffff:127.0.0.1", "::ffff:127.0.0.1", true },
		{ "10.0.0.1", "10.0.0.1", "::1", "::1", true },
		{ "fd00::1", "fd00::1", "::1", "fd00::1", true },
		{ "10.0.0.1", "10.0.0.1", "10.0.0.9", "127.0.0.1", false },
		{ "10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.1", false },
	};

	for (u32 i = 0; i < ARRAY_LEN(requests); i++)
		judge(&requests[i], 0);
}

/* The hosts of a fabric: 127.64.0.1 is this one, 127.64.0.2 another. */
static int find_host(const u8 ip[16], struct node_hostip *out)
{
	union ib_gid hosts[] = { gid_of("127.64.0.1"), gid_of("127.64.0.2") };
	union ib_gid gids[] = { gid_of("fe80::11"), gid_of("fe80::22") };

	for (u32 i = 0; i < ARRAY_LEN(hosts); i++) {
		if (memcmp(hosts[i].raw, ip, 16) != 0)
			continue;
		memcpy(out->gid, gids[i].raw, 16);
		out->own = i == 0;
		return 0;
	}
	return ip[12] == 127 && ip[13] == 64 ? -EHOSTUNREACH : -EADDRNOTAVAIL;
}

/* "::" stands for a SIDR_REQ, which says no GID. */
static void cma_origin_holds__on_infiniband(void **state)
{
	static const struct request from_here[] = {
		{ "fe80::11", "fe80::11", "127.64.0.1", "127.64.0.1", true },
		{ "fe80::11", "fe80::11", "127.0.0.1", "127.0.0.1", true },
		{ "fe80::11", "fe80::11", "::1", "::1", true },
		{ "::", "fe80::11", "127.0.0.1", "127.64.0.1", true },
		{ "::", "fe80::11", "127.64.0.1", "127.64.0.1", true },
		{ "::", "fe80::11", "127.64.0.2", "127.64.0.1", false },
		{ "fe80::11", "fe80::11", "127.64.0.2", "127.64.0.1", false },
	}, from_there[] = {
		{ "fe80::22", "fe80::11", "127.64.0.2", "127.64.0.1", true },
		{ "::", "fe80::11", "127.64.0.2", "127.64.0.1", true },
		{ "fe80:0:0:5::22", "fe80::11", "127.64.0.2", "127.64.0.1", true },
		{ "fe80::22", "fe80::11", "127.64.0.1", "127.64.0.1", false },
		{ "::", "fe80::11", "127.64.0.1", "127.64.0.1", false },
		{ "fe80::22", "fe80::11", "127.64.0.3", "127.64.0.1", false },
		{ "fe80::22", "fe80::11", "127.0.0.1", "127.64.0.1", false },
		{ "fe80::22", "fe80::11", "127.64.0.2", "127.0.0.1", false },
		{ "fe80::22", "fe80::11", "127.64.0.2", "127.64.0.2", false },
		{ "fe80::22", "fe80::11", "::1", "::1", false },
		{ "fe80::22", "fe80::11", "::ffff:127.0.0.1", "127.64.0.1", false },
		/* nothing leads there by the port */
		{ "fe80::22", "fe80::11", "224.0.0.1", "127.64.0.1", false },
		{ "fe80::22", "fe80::11", "255.255.255.255", "127.64.0.1", false },
		{ "fe80::22", "fe80::11", "0.1.2.3", "127.64.0.1", false },
		{ "fe80::22", "fe80::11", "10.0.0.9", "127.64.0.1", false },
		{ "fe80::22", "fe80::11", "10.0.0.9", "10.0.0.1", false },
	};

	known.infiniband = true;
	fake_cm.hostip = find_host;
	adapter->lid = LID;
	for (u32 i = 0; i < ARRAY_LEN(from_here); i++)
		judge(&from_here[i], LID);
	for (u32 i = 0; i < ARRAY_LEN(from_there); i++)
		judge(&from_there[i], LID + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(cma_origin_holds__on_roce, open_adapter,
						close_adapter),
		cmocka_unit_test_setup_teardown(cma_origin_holds__on_infiniband, open_adapter,
						close_adapter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
