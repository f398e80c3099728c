/* umad_test.c: libibumad as a program sees it, over QP1 of the build's own adapter.
 * In:    calls    Out: verdicts
 * Runs:  one thread, and one that waits    Locks: none
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/umad.h>
#include <infiniband/umad_str.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { CLASS = 0x0a, VERSION = 2, GET = 1, MAD = 256 };

struct buffer {
	struct ib_user_mad umad;
	unsigned char mad[2 * MAD];
};

int umad_open_smi_port(const char *ca_name, int portnum);

/* ---- buffers --------------------------------------------------------------------------------- */

static void buffer__fields_are_in_network_order(void **state)
{
	struct buffer b = { .mad = { 0 } };
	ib_mad_addr_t *addr = umad_get_mad_addr(&b), grh = { .flow_label = 5, .hop_limit = 6 };

	assert_int_equal(umad_size(), 64);
	assert_ptr_equal(umad_get_mad(&b), b.mad);
	assert_int_equal(umad_set_addr(&b, 0x102, 1, 3, (int)0x80010000), 0);
	assert_int_equal(addr->lid, htobe16(0x102));
	assert_int_equal(addr->qpn, htobe32(1));
	assert_int_equal(addr->qkey, htobe32(0x80010000));
	assert_int_equal(addr->sl, 3);
	assert_int_equal(umad_set_addr_net(&b, htobe16(7), htobe32(8), 9, htobe32(10)), 0);
	assert_int_equal(addr->lid, htobe16(7));
	grh.gid[3] = 77;
	addr->gid_index = 2;
	assert_int_equal(umad_set_grh(&b, &grh), 0);
	assert_int_equal(addr->grh_present, 1);
	assert_int_equal(addr->flow_label, htobe32(5));
	assert_int_equal(addr->gid[3], 77);
	assert_int_equal(addr->gid_index, 2);
	assert_int_equal(umad_set_grh(&b, NULL), 0);
	assert_int_equal(addr->grh_present, 0);
	assert_int_equal(umad_set_pkey(&b, 4), 0);
	assert_int_equal(umad_get_pkey(&b), 4);
	b.umad.status = ETIMEDOUT;
	assert_int_equal(umad_status(&b), ETIMEDOUT);
}

static void strings__name_what_tools_show(void **state)
{
	assert_string_equal(umad_class_str(0x81), "Subn");
	assert_string_equal(umad_class_str(0x32), "Vendor");
	assert_string_equal(umad_class_str(0x50), "<unknown>");
	assert_string_equal(umad_method_str(3, 0x92), "GetTableResp");
	assert_string_equal(umad_method_str(4, 0x81), "GetResp");
	assert_string_equal(umad_attribute_str(0x81, htobe16(0x15)), "PortInfo");
	assert_string_equal(umad_attribute_str(3, htobe16(0x35)), "PathRecord");
	assert_string_equal(umad_common_mad_status_str(htobe16(0x0c)),
			    "Method/Attribute combo not supported");
	assert_string_equal(umad_sa_mad_status_str(htobe16(0x300)), "No Records");
}

/* ---- what is there --------------------------------------------------------------------------- */

static void ca__is_listed_and_described(void **state)
{
	char names[8][UMAD_CA_NAME_LEN];
	struct umad_device_node *list = umad_get_ca_device_list();
	__be64 guids[UMAD_CA_MAX_PORTS];
	umad_port_t port;
	umad_ca_t ca;

	assert_true(umad_get_cas_names(names, 8) >= 1);
	assert_string_equal(names[0], "roce0");
	assert_non_null(list);
	assert_int_equal(umad_sort_ca_device_list(&list, 0), 0);
	assert_string_equal(list->ca_name, "roce0");
	umad_free_ca_device_list(list);
	assert_int_equal(umad_get_ca("roce0", &ca), 0);
	assert_int_equal(ca.node_type, 1);
	assert_int_equal(ca.numports, 1);
	assert_null(ca.ports[0]);
	assert_non_null(ca.ports[1]);
	assert_string_equal(ca.ca_type, "anyverbs-roce");
	assert_int_equal(umad_get_ca_portguids("roce0", guids, UMAD_CA_MAX_PORTS), 2);
	assert_int_equal(guids[0], 0);
	assert_true(guids[1] == ca.ports[1]->port_guid);
	assert_true(umad_get_ca_portguids("roce0", guids, 1) < 0);
	assert_int_equal(umad_get_port("roce0", 1, &port), 0);
	assert_string_equal(port.link_layer, "Ethernet");
	assert_int_equal(port.rate, 100);
	assert_true(port.pkeys_size >= 1);
	assert_int_equal(port.pkeys[0], 0xffff);
	umad_release_port(&port);
	umad_release_ca(&ca);
}

/* By name: all, or so many from the first on, behind which the others stay as they are. */
static void ca__are_sorted_by_name(void **state)
{
	static const char *const want[][4] = { { "a", "b", "c", "d" },
					       { "d", "c", "a", "b" },
					       { "c", "d", "a", "b" },
					       { "a", "c", "d", "b" },
					       { "a", "b", "c", "d" },
					       { "a", "b", "c", "d" } };

	for (size_t size = 0; size < sizeof(want) / sizeof(*want); size++) {
		struct umad_device_node d[] = { { .ca_name = "d" },
						{ .ca_name = "c" },
						{ .ca_name = "a" },
						{ .ca_name = "b" } };
		struct umad_device_node *list = d;

		for (int i = 0; i < 3; i++)
			d[i].next = &d[i + 1];
		assert_int_equal(umad_sort_ca_device_list(&list, size), 0);
		for (int i = 0; i < 4; i++, list = list->next) {
			assert_non_null(list);
			assert_string_equal(list->ca_name, want[size][i]);
		}
		assert_null(list);
	}
}

/* The library chooses among InfiniBand's ports only. */
static void ca__absent_ones_are_errors(void **state)
{
	umad_port_t port;
	umad_ca_t ca;
	char path[64];

	assert_true(umad_get_ca("none", &ca) < 0);
	assert_true(umad_get_port("none", 1, &port) < 0);
	assert_true(umad_get_port("roce0", 2, &port) < 0);
	assert_true(umad_get_issm_path("roce0", 9, path, sizeof(path)) < 0);
	assert_int_equal(umad_open_port("roce0", 9), -EINVAL);
	assert_int_equal(umad_open_port("none", 1), -EINVAL);
	assert_int_equal(umad_open_port("none", 0), -ENODEV);
	assert_int_equal(umad_open_port(NULL, 0), -ENODEV);
}

static void port__bad_numbers_are_errors(void **state)
{
	static const int bad[] = { -1, 0, 12345, 1 << 30 };
	struct umad_reg_attr attr = { .mgmt_class = CLASS };
	struct buffer b;
	uint32_t id;
	int length = MAD;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(umad_close_port(bad[i]), -EINVAL);
		assert_int_equal(umad_get_fd(bad[i]), -EINVAL);
		assert_int_equal(umad_poll(bad[i], 0), -EINVAL);
		assert_int_equal(umad_recv(bad[i], &b, &length, 0), -EINVAL);
		assert_int_equal(umad_send(bad[i], 0, &b, MAD, 0, 0), -EINVAL);
		assert_int_equal(umad_register(bad[i], CLASS, VERSION, 0, NULL), -EINVAL);
		assert_int_equal(umad_unregister(bad[i], 0), -EINVAL);
		assert_int_equal(umad_register2(bad[i], &attr, &id), EBADF);
	}
}

/* ---- agents ---------------------------------------------------------------------------------- */

static int port_open(void)
{
	int port = umad_open_port("roce0", 1);

	assert_true(port >= 0);
	assert_int_equal(umad_get_fd(port), port);
	assert_true(fcntl(port, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(port, F_GETFD) & FD_CLOEXEC);
	return port;
}

static void agents__are_numbered_and_judged(void **state)
{
	int port = port_open();
	unsigned char oui[3] = { 1, 2, 3 };
	struct umad_reg_attr attr = { .mgmt_class = 0x31, .mgmt_class_version = 1, .oui = 5 };
	uint32_t id = 99;

	assert_int_equal(umad_register(port, CLASS, VERSION, 0, NULL), 0);
	assert_int_equal(umad_register_oui(port, 0x30, 1, oui, NULL), 1);
	assert_int_equal(umad_register_oui(port, CLASS, 1, oui, NULL), -EINVAL);
	assert_int_equal(umad_register(port, CLASS, VERSION, 1, NULL), -EPERM);
	assert_int_equal(umad_register2(port, &attr, &id), 0);
	assert_int_equal(id, 2);
	attr.oui = 1 << 24;
	assert_int_equal(umad_register2(port, &attr, &id), EINVAL);
	attr.oui = 5;
	attr.flags = 0x10;
	assert_int_equal(umad_register2(port, &attr, &id), EINVAL);
	assert_int_equal(attr.flags, UMAD_USER_RMPP);
	assert_int_equal(umad_unregister(port, 1), 0);
	assert_int_equal(umad_unregister(port, 1), -EINVAL);
	assert_int_equal(umad_unregister(port, -1), -EINVAL);
	assert_int_equal(umad_close_port(port), 0);
	assert_int_equal(umad_close_port(port), -EINVAL);
}

static int agent2_on(int port, unsigned oui, unsigned method)
{
	struct umad_reg_attr attr = { .mgmt_class = 0x31, .mgmt_class_version = 1, .oui = oui,
				      .method_mask = { 1ull << method } };
	uint32_t id;

	return umad_register2(port, &attr, &id);
}

/* Each call for itself says which OUI it takes: another agent of the same one is refused. */
static void agents__of_vendors_have_an_oui(void **state)
{
	enum { OPENIB = 0x001405, OTHER = 0x010203, TURNED = 0x030201 };
	long get = 1l << GET, set = 1l << 2;
	unsigned char openib[3] = { 0, 0x14, 5 }, other[3] = { 1, 2, 3 };
	int port = port_open();

	assert_int_equal(umad_register(port, 0x31, 1, 0, (long[]){ get, 0 }), 0);
	assert_int_equal(umad_register_oui(port, 0x31, 0, other, (long[]){ set, 0 }), 1);
	assert_int_equal(umad_register_oui(port, 0x31, 0, openib, (long[]){ get, 0 }), -EPERM);
	assert_int_equal(agent2_on(port, OPENIB, GET), EINVAL);
	assert_int_equal(agent2_on(port, OTHER, 2), EINVAL);
	/* other OUIs and methods are free */
	assert_int_equal(umad_register_oui(port, 0x31, 0, other, (long[]){ get, 0 }), 2);
	assert_int_equal(umad_register(port, 0x31, 1, 0, (long[]){ set, 0 }), 3);
	assert_int_equal(agent2_on(port, TURNED, GET), 0);
	assert_int_equal(umad_close_port(port), 0);
}

/* ---- MADs ------------------------------------------------------------------------------------ */

static int agent_on(int port, int method)
{
	long mask[16 / sizeof(long)] = { method == 0 ? 0 : 1l << method };

	return umad_register(port, CLASS, VERSION, 0, mask);
}

/* To this host's own QP1. */
static struct buffer buffer_to_self(int tid)
{
	struct buffer b = { .mad = { 1, CLASS, VERSION, GET } };
	ib_mad_addr_t *addr = umad_get_mad_addr(&b);
	umad_port_t port;

	assert_int_equal(umad_get_port("roce0", 1, &port), 0);
	umad_set_addr(&b, 0, 1, 0, (int)0x80010000);
	addr->grh_present = 1;
	addr->hop_limit = 64;
	memcpy(addr->gid, &port.gid_prefix, 8);
	memcpy(addr->gid + 8, &port.port_guid, 8);
	umad_release_port(&port);
	b.mad[15] = (unsigned char)tid;
	return b;
}

static void mad__goes_and_comes_back(void **state)
{
	int client = port_open(), server = port_open(), length = MAD;
	int from = agent_on(client, 0), to = agent_on(server, GET);
	struct pollfd p = { .fd = umad_get_fd(server), .events = POLLIN };
	struct buffer b = buffer_to_self(7);

	assert_true(from >= 0 && to >= 0);
	errno = 0;
	assert_int_equal(umad_recv(server, &b, &length, 0), -EWOULDBLOCK);
	assert_int_equal(errno, EWOULDBLOCK);
	assert_int_equal(umad_recv(server, &b, &length, 10), -ETIMEDOUT);
	assert_int_equal(umad_poll(server, 10), -ETIMEDOUT);
	b = buffer_to_self(7);
	assert_int_equal(umad_send(client, from, &b, MAD, 2000, 3), 0);
	assert_int_equal(umad_send(client, from, &b, MAD, 2000, 3), -EINVAL); /* is on its way */
	assert_int_equal(umad_send(client, 31, &b, MAD, 2000, 3), -EINVAL);
	assert_int_equal(poll(&p, 1, 5000), 1);
	length = MAD - 1;
	assert_int_equal(umad_recv(server, &b, &length, 0), -ENOSPC);
	assert_int_equal(length, MAD);
	assert_int_equal(umad_recv(server, &b, &length, 0), to);
	assert_int_equal(b.mad[15], 7);
	assert_int_equal(poll(&p, 1, 0), 0);
	b.mad[3] |= 0x80;
	assert_int_equal(umad_send(server, to, &b, MAD, 0, 0), 0);
	length = 2 * MAD;
	assert_int_equal(umad_recv(client, &b, &length, 5000), from);
	assert_int_equal(length, MAD);
	assert_int_equal(umad_status(&b), 0);
	umad_close_port(client);
	umad_close_port(server);
}

static void mad__without_answer_comes_back(void **state)
{
	int port = port_open(), length = MAD, agent = agent_on(port, 0);
	struct buffer b = buffer_to_self(8);

	b.mad[1] = 0x09; /* a class that nobody has, and a method that nobody must answer */
	b.mad[3] = 3;
	assert_int_equal(umad_send(port, agent, &b, MAD, 50, 1), 0);
	assert_int_equal(umad_recv(port, &b, &length, 5000), agent);
	assert_int_equal(umad_status(&b), ETIMEDOUT);
	assert_int_equal(length, 24);
	assert_int_equal(b.mad[15], 8);
	umad_close_port(port);
}

static void *wait_for_ever(void *arg)
{
	int length = MAD;
	struct buffer b;

	return (void *)(intptr_t)umad_recv(*(int *)arg, &b, &length, -1);
}

static void wait__ends_when_it_is_cancelled(void **state)
{
	int port = port_open();
	pthread_t thread;
	void *result;

	assert_int_equal(pthread_create(&thread, NULL, wait_for_ever, &port), 0);
	usleep(20000);
	assert_int_equal(pthread_cancel(thread), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	assert_int_equal(umad_close_port(port), 0);
}

/* A thread that a busy machine lets begin only when the port is closed finds no such port: it is
 * given more time, up to some seconds. */
static void wait__ends_when_the_port_is_closed(void **state)
{
	void *result = (void *)(intptr_t)-EINVAL;

	for (useconds_t us = 1000; us < 5000000 && (int)(intptr_t)result == -EINVAL; us *= 2) {
		int port = port_open();
		pthread_t thread;

		assert_int_equal(pthread_create(&thread, NULL, wait_for_ever, &port), 0);
		usleep(us);
		assert_int_equal(umad_close_port(port), 0);
		assert_int_equal(pthread_join(thread, &result), 0);
	}
	assert_int_equal((int)(intptr_t)result, -EIO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(buffer__fields_are_in_network_order),
		cmocka_unit_test(strings__name_what_tools_show),
		cmocka_unit_test(ca__is_listed_and_described),
		cmocka_unit_test(ca__are_sorted_by_name),
		cmocka_unit_test(ca__absent_ones_are_errors),
		cmocka_unit_test(port__bad_numbers_are_errors),
		cmocka_unit_test(agents__are_numbered_and_judged),
		cmocka_unit_test(agents__of_vendors_have_an_oui),
		cmocka_unit_test(mad__goes_and_comes_back),
		cmocka_unit_test(mad__without_answer_comes_back),
		cmocka_unit_test(wait__ends_when_it_is_cancelled),
		cmocka_unit_test(wait__ends_when_the_port_is_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
