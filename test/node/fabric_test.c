/* fabric_test.c: a node that carries a fabric: processes enter its hosts, exchange SMPs with its
 * agents and GMPs with each other, and find it again after the node's death.
 */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "node/fabric.h"

enum {
	TEST_LID_ROUTED = 0x01,
	TEST_DIRECTED = 0x81,
	TEST_CLASS = 0x0a, /* application specific: nobody else takes it */
	TEST_GET = 1,
	TEST_SET = 2,
	TEST_GET_RESP = 0x81,
	TEST_NODE_INFO = 0x11,
	TEST_SWITCH_INFO = 0x12,
	TEST_PORT_INFO = 0x15,
	TEST_LFT = 0x19,
	TEST_DATA = 64, /* of an SMP */
	QUIET_MS = 50,
};

/* Which host a process of a test is on. */
struct guest {
	struct harness h;
	const struct node_fabric *f;
	u32 slot, port;
};

static int fabric_setup(void **state)
{
	int err = harness_setup(state);

	setenv("ANYVERBS_HOST", "h1", 1);
	return err;
}

static int fabric_teardown(void **state)
{
	int err = harness_teardown(state);

	unsetenv("ANYVERBS_HOST");
	return err;
}

/* One request of a tool, with a descriptor if fd >= 0; the reply's status. */
static int tool_ask(void *request, size_t size, u16 type, int fd)
{
	struct proto_plain hello = { .head = { PROTO_MAGIC, PROTO_VERSION, PROTO_TOOL, 1, 0 } };
	char name[NODE_NAME_MAX];
	struct proto_plain reply;
	struct proto_head *head = request;
	struct message m;
	int control;

	assert_int_equal(address_node_name(name), 0);
	control = connection_open(name, PLACE_MACHINE, true);
	assert_true(control >= 0);
	assert_int_equal(message_send(control, &hello, sizeof(hello), NULL, 0), 0);
	assert_int_equal(message_wait(control, clock_now_ns() + HARNESS_PATIENCE_NS), 0);
	assert_int_equal(message_receive(control, &reply, sizeof(reply), &m), 0);
	*head = (struct proto_head){ PROTO_MAGIC, PROTO_VERSION, type, 2, 0 };
	assert_int_equal(message_send(control, request, size, &fd, fd >= 0), 0);
	assert_int_equal(message_wait(control, clock_now_ns() + HARNESS_PATIENCE_NS), 0);
	assert_int_equal(message_receive(control, &reply, sizeof(reply), &m), 0);
	close(control);
	return reply.head.status;
}

static int fabric_up(const char *spec)
{
	struct proto_fabric_up request;
	int err, fd = memfd_create("topology", MFD_CLOEXEC);

	memset(&request, 0, sizeof(request));
	request.flags = PROTO_FABRIC_SPEC | PROTO_FABRIC_NO_SM;
	(void)snprintf(request.source, sizeof(request.source), "%s", spec);
	assert_int_equal(write(fd, spec, strlen(spec)), strlen(spec));
	err = tool_ask(&request, sizeof(request), PROTO_FABRIC_UP, fd);
	close(fd);
	return err;
}

static int fabric_down(bool force)
{
	struct proto_fabric_down request = { .force = force };

	return tool_ask(&request, sizeof(request), PROTO_FABRIC_DOWN, -1);
}

static void guest_enter(struct guest *g, const char *host)
{
	struct fabric_node_attr n;

	harness_attach(&g->h);
	assert_int_equal(node_fabric_enter(g->h.node, host, &g->f), 0);
	assert_int_equal(g->f->ca_count, 1);
	assert_int_equal(fabric_node_read(&g->f->view, g->f->ca[0], &n), 0);
	assert_int_equal(strncmp(n.desc, host, strlen(host)), 0);
	g->port = n.first_port + 1;
	assert_int_equal(node_slot_take(g->h.node, &g->slot), 0);
}

static void mad_head(struct fabric_mad *m, const struct guest *g, u8 mgmt_class, u8 method,
		     u16 attribute, u32 tid)
{
	memset(m, 0, sizeof(*m));
	m->mad[0] = 1;
	m->mad[1] = mgmt_class;
	m->mad[2] = 1;
	m->mad[3] = method;
	m->mad[8] = (u8)(g->slot >> 2); /* the top ten bits of the transaction ID */
	m->mad[9] = (u8)(g->slot << 6);
	m->mad[14] = (u8)(tid >> 8);
	m->mad[15] = (u8)tid;
	m->mad[16] = (u8)(attribute >> 8);
	m->mad[17] = (u8)attribute;
	m->pkey = 0xffff;
}

/* A directed route from the host: through `hops` links, by the ports path[1] and so on. */
static void smp_route(struct fabric_mad *m, u8 hops, const u8 *path)
{
	m->slid = m->dlid = 0xffff;
	m->mad[1] = TEST_DIRECTED;
	m->mad[7] = hops;
	memset(m->mad + 32, 0xff, 4); /* permissive LIDs at both ends */
	for (u8 i = 1; i <= hops; i++)
		m->mad[128 + i] = path[i];
}

/* Waits for a MAD; others with another transaction ID are passed over. False: none came. */
static bool guest_wait(struct guest *g, u32 tid, struct node_fabric_mad *out, int timeout_ms)
{
	u64 deadline = clock_now_ns() + (u64)timeout_ms * NS_PER_MS;

	while (clock_now_ns() < deadline) {
		if (!harness_readable(node_fabric_fd(g->f), 10))
			continue;
		while (node_fabric_receive(g->f, out, 1) == 1)
			if (out->mad.mad[14] == (u8)(tid >> 8) && out->mad.mad[15] == (u8)tid)
				return true;
	}
	return false;
}

static void guest_exchange(struct guest *g, const struct fabric_mad *m, struct node_fabric_mad *out)
{
	assert_int_equal(node_fabric_send(g->f, g->port, m), 0);
	assert_true(guest_wait(g, (u32)m->mad[14] << 8 | m->mad[15], out, HARNESS_PATIENCE_MS));
	assert_int_equal(out->port, g->port);
	assert_int_equal(out->mad.mad[3], TEST_GET_RESP);
}

static void fabric__enter(void **state)
{
	const struct node_fabric *f;
	struct harness h;

	harness_attach(&h);
	assert_int_equal(node_fabric_enter(h.node, "h1", &f), -ENODEV);
	assert_int_equal(fabric_up("star:4"), 0);
	assert_int_equal(fabric_up("star:4"), -EEXIST);
	assert_int_equal(node_fabric_enter(h.node, "h5", &f), -ENOENT);
	assert_int_equal(node_fabric_enter(h.node, "h4", &f), 0);
	assert_int_equal(node_fabric_enter(h.node, "h4", &f), -EALREADY);
	assert_int_equal(fabric_down(false), -EBUSY);
	assert_int_equal(fabric_down(true), 0);
	assert_int_equal(harness_wait_event(&h, NODE_EVENT_FABRIC).fabric.what,
			 (u32)NODE_FABRIC_GONE);
	assert_int_equal(fabric_down(true), -ENODEV);
	harness_detach(&h);
	assert_int_equal(fabric_up("star:0"), -EINVAL);
}

static void fabric__node_info_by_directed_route(void **state)
{
	static const u8 path[] = { 0, 1, 3 }; /* from h1 to the switch, to port 3: h3 */
	struct node_fabric_mad got;
	struct fabric_mad m;
	struct guest g;

	assert_int_equal(fabric_up("star:4"), 0);
	guest_enter(&g, "h1");
	for (u8 hops = 0; hops <= 2; hops++) {
		mad_head(&m, &g, TEST_DIRECTED, TEST_GET, TEST_NODE_INFO, 100u + hops);
		smp_route(&m, hops, path);
		guest_exchange(&g, &m, &got);
		/* NodeType: a CA, a switch, a CA */
		assert_int_equal(got.mad.mad[TEST_DATA + 2], hops == 1 ? 2 : 1);
	}
	harness_detach(&g.h);
}

/* What an SM does, as far as these tests need it: LIDs, routes, active ports. */
static void sm_set_port(struct guest *g, u8 hops, const u8 *path, u8 port, u16 lid, u8 state)
{
	struct node_fabric_mad got;
	struct fabric_mad m;

	mad_head(&m, g, TEST_DIRECTED, TEST_GET, TEST_PORT_INFO, 200);
	smp_route(&m, hops, path);
	m.mad[23] = port;
	guest_exchange(g, &m, &got);
	mad_head(&m, g, TEST_DIRECTED, TEST_SET, TEST_PORT_INFO, 201);
	smp_route(&m, hops, path);
	m.mad[23] = port;
	memcpy(m.mad + TEST_DATA, got.mad.mad + TEST_DATA, 64);
	if (lid != 0) {
		m.mad[TEST_DATA + 16] = (u8)(lid >> 8);
		m.mad[TEST_DATA + 17] = (u8)lid;
	}
	m.mad[TEST_DATA + 18] = 0; /* the SM's LID */
	m.mad[TEST_DATA + 19] = 1;
	m.mad[TEST_DATA + 32] = (u8)((m.mad[TEST_DATA + 32] & 0xf0) | state);
	m.mad[TEST_DATA + 33] &= 0x0f; /* no change of the physical state */
	guest_exchange(g, &m, &got);
	assert_int_equal(got.mad.mad[4] & 0x7f, 0);
	assert_int_equal(got.mad.mad[5], 0);
}

/* h1 and h2 of a star get the LIDs 1 and 2. */
static void sm_configure(struct guest *g)
{
	static const u8 path[] = { 0, 1, 2 };
	struct node_fabric_mad got;
	struct fabric_mad m;

	for (u8 state = 3; state <= 4; state++) { /* ARMED, ACTIVE */
		for (u8 port = 1; port <= 2; port++)
			sm_set_port(g, 1, path, port, 0, state);
		sm_set_port(g, 0, path, 1, 1, state);
		sm_set_port(g, 2, path, 1, 2, state);
	}
	mad_head(&m, g, TEST_DIRECTED, TEST_GET, TEST_SWITCH_INFO, 203);
	smp_route(&m, 1, path);
	guest_exchange(g, &m, &got);
	mad_head(&m, g, TEST_DIRECTED, TEST_SET, TEST_SWITCH_INFO, 204);
	smp_route(&m, 1, path);
	memcpy(m.mad + TEST_DATA, got.mad.mad + TEST_DATA, 64);
	m.mad[TEST_DATA + 7] = 2; /* LinearFDBTop */
	guest_exchange(g, &m, &got);
	mad_head(&m, g, TEST_DIRECTED, TEST_SET, TEST_LFT, 202);
	smp_route(&m, 1, path);
	memset(m.mad + TEST_DATA, 0xff, 64);
	m.mad[TEST_DATA + 1] = 1;
	m.mad[TEST_DATA + 2] = 2;
	guest_exchange(g, &m, &got);
}

static void gmp_make(struct fabric_mad *m, const struct guest *from, u8 method, u16 dlid, u32 tid)
{
	mad_head(m, from, TEST_CLASS, method, 0x20, tid);
	m->src_qp = m->dst_qp = 1;
	m->qkey = 0x80010000;
	m->dlid = dlid;
}

/* The agent of h2 gets a request of h1, whose slot gets the response. */
static void fabric__gmp_from_host_to_host(void **state)
{
	struct node_agent agent = { .methods = { 1ull << TEST_GET },
				    .port = 1,
				    .qpn = 1,
				    .mgmt_class = TEST_CLASS,
				    .version = 1 };
	struct node_fabric_mad got, back;
	struct guest a, b;
	struct fabric_mad m;

	assert_int_equal(fabric_up("star:4"), 0);
	guest_enter(&a, "h1");
	guest_enter(&b, "h2");
	sm_configure(&a);
	/* nobody takes it: h2 answers as a host without an agent */
	gmp_make(&m, &a, TEST_GET, 2, 300);
	guest_exchange(&a, &m, &back);
	assert_int_equal(back.mad.mad[5], 0x0c);
	m.has_grh = true; /* and from the address that it was asked at */
	for (int i = 0; i < 32; i++)
		m.grh[8 + i] = (u8)(i < 16 ? 1 : 2);
	guest_exchange(&a, &m, &back);
	assert_true(back.mad.has_grh);
	assert_memory_equal(back.mad.grh + 8, m.grh + 24, 16);
	assert_memory_equal(back.mad.grh + 24, m.grh + 8, 16);
	agent.device = node_fabric_device(a.f->ca[0]);
	assert_int_equal(node_agent_add(b.h.node, &agent, b.slot), -ENODEV);
	agent.device = node_fabric_device(b.f->ca[0]);
	assert_int_equal(node_agent_add(b.h.node, &agent, b.slot), 0);
	gmp_make(&m, &a, TEST_GET, 2, 301);
	assert_int_equal(node_fabric_send(a.f, a.port, &m), 0);
	assert_true(guest_wait(&b, 301, &got, HARNESS_PATIENCE_MS));
	assert_int_equal(got.port, b.port);
	assert_int_equal(got.mad.slid, 1);
	assert_int_equal(got.mad.dst_qp, 1);
	m = got.mad;
	m.dlid = got.mad.slid;
	m.mad[3] = TEST_GET_RESP;
	assert_int_equal(node_fabric_send(b.f, b.port, &m), 0);
	assert_true(guest_wait(&a, 301, &back, HARNESS_PATIENCE_MS));
	assert_int_equal(back.mad.slid, 2);
	harness_detach(&a.h);
	harness_detach(&b.h);
}

static void fabric__changes_are_told(void **state)
{
	struct guest a;
	u32 seen = 0;

	assert_int_equal(fabric_up("star:4"), 0);
	guest_enter(&a, "h1");
	sm_configure(&a);
	while ((seen & FABRIC_CHANGED_STATE) == 0 || (seen & FABRIC_CHANGED_LID) == 0 ||
	       (seen & NODE_FABRIC_ROUTES) == 0)
		seen |= harness_wait_event(&a.h, NODE_EVENT_FABRIC).fabric.what;
	harness_detach(&a.h);
}

/* Packets of wrong sizes and foreign ports do not harm. */
static void fabric__bad_packets(void **state)
{
	const struct fabric_violation foreign = { .key = 1 };
	struct node_fabric_mad got;
	struct fabric_mad m;
	struct guest g;

	assert_int_equal(fabric_up("star:4"), 0);
	guest_enter(&g, "h1");
	mad_head(&m, &g, TEST_DIRECTED, TEST_GET, TEST_NODE_INFO, 7);
	assert_int_equal(node_fabric_send(g.f, g.port + 1, &m), -EINVAL);
	assert_int_equal(node_fabric_send(g.f, 0, &m), -EINVAL);
	m.dst_qp = 17;
	assert_int_equal(node_fabric_send(g.f, g.port, &m), 0);
	m.dst_qp = 0;
	node_fabric_refuse(g.f, g.port + 1, &foreign);
	smp_route(&m, 0, NULL);
	guest_exchange(&g, &m, &got);
	harness_detach(&g.h);
}

/* The state outlives the node, and each process comes back to its host. */
static void fabric__survives_the_node(void **state)
{
	struct node_fabric_mad got;
	struct fabric_mad m;
	struct fabric_port_attr before, after;
	struct guest a, b;

	assert_int_equal(fabric_up("star:4"), 0);
	guest_enter(&a, "h1");
	guest_enter(&b, "h2");
	sm_configure(&a);
	assert_int_equal(fabric_port_read(&a.f->view, b.port, &before), 0);
	for (int i = 0; i < 3; i++) {
		harness_kill_daemon();
		(void)harness_wait_event(&a.h, NODE_EVENT_LOST);
		(void)harness_wait_event(&b.h, NODE_EVENT_LOST);
		assert_int_equal(node_recover(a.h.node), 0);
		assert_int_equal(node_recover(b.h.node), 0);
		gmp_make(&m, &a, TEST_GET, 2, 400u + (u32)i);
		guest_exchange(&a, &m, &got);
	}
	assert_int_equal(fabric_port_read(&a.f->view, b.port, &after), 0);
	assert_int_equal(after.lid, 2);
	assert_int_equal(after.state, before.state);
	harness_detach(&a.h);
	harness_detach(&b.h);
}

/* A request that comes to the next node before its agent does is lost, not refused. */
static void fabric__an_agent_comes_back(void **state)
{
	struct node_agent agent = { .methods = { 1ull << TEST_GET },
				    .port = 1,
				    .qpn = 1,
				    .mgmt_class = TEST_CLASS,
				    .version = 1 };
	struct node_fabric_mad got;
	struct guest a, b;
	struct fabric_mad m;

	assert_int_equal(fabric_up("star:2"), 0);
	guest_enter(&a, "h1");
	guest_enter(&b, "h2");
	sm_configure(&a);
	agent.device = node_fabric_device(b.f->ca[0]);
	assert_int_equal(node_agent_add(b.h.node, &agent, b.slot), 0);
	harness_kill_daemon();
	(void)harness_wait_event(&a.h, NODE_EVENT_LOST);
	(void)harness_wait_event(&b.h, NODE_EVENT_LOST);
	assert_int_equal(node_recover(a.h.node), 0);
	gmp_make(&m, &a, TEST_GET, 2, 500);
	assert_int_equal(node_fabric_send(a.f, a.port, &m), 0);
	assert_false(guest_wait(&a, 500, &got, QUIET_MS));
	assert_int_equal(node_recover(b.h.node), 0);
	gmp_make(&m, &a, TEST_GET, 2, 501);
	assert_int_equal(node_fabric_send(a.f, a.port, &m), 0);
	assert_true(guest_wait(&b, 501, &got, HARNESS_PATIENCE_MS));
	harness_detach(&a.h);
	harness_detach(&b.h);
}

/* cap_mask of the first port, as the host's /sys shows it. */
static u32 host_cap_mask(const char *host)
{
	char path[256], text[32] = "";
	int fd, n;

	n = snprintf(path, sizeof(path),
		     "%s/anyverbs/%s-fabric/hosts/%s/sys/class/infiniband/ib0/ports/1/cap_mask",
		     getenv("XDG_RUNTIME_DIR"), getenv("ANYVERBS_NODE"), host);
	assert_in_range(n, 1, sizeof(path) - 1);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_true(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	return (u32)strtoul(text, NULL, 0);
}

/* The IsSM bit of the guest's port on h1 becomes `on` in time, on the map and in /sys. */
static bool guest_sm(const struct guest *g, bool on)
{
	u64 deadline = clock_now_ns() + HARNESS_PATIENCE_NS;
	struct fabric_port_attr p;

	do {
		assert_int_equal(fabric_port_read(&g->f->view, g->port, &p), 0);
		if (((p.cap_mask & 2) != 0) == on && host_cap_mask("h1") == p.cap_mask)
			return true;
		(void)poll(NULL, 0, 1);
	} while (clock_now_ns() < deadline);
	return false;
}

/* A port is a subnet manager's while its descriptor is open, whichever node there is. */
static void fabric__subnet_manager_while_open(void **state)
{
	struct guest a, b;
	int fd, other, copy;

	assert_int_equal(fabric_up("star:4"), 0);
	guest_enter(&a, "h1");
	guest_enter(&b, "h1");
	assert_true(guest_sm(&a, false));
	assert_int_equal(node_fabric_issm(a.f, a.port + 1, &fd), -ENOENT);
	assert_int_equal(node_fabric_issm(a.f, a.port, &fd), 0);
	assert_true(guest_sm(&a, true));
	assert_int_equal(node_fabric_issm(b.f, b.port, &other), -EBUSY);
	copy = dup(fd);
	close(fd);
	harness_kill_daemon();
	(void)harness_wait_event(&a.h, NODE_EVENT_LOST);
	(void)harness_wait_event(&b.h, NODE_EVENT_LOST);
	assert_int_equal(node_recover(a.h.node), 0);
	assert_int_equal(node_recover(b.h.node), 0);
	assert_int_equal(node_fabric_issm(b.f, b.port, &other), -EBUSY);
	assert_true(guest_sm(&a, true));
	close(copy);
	assert_true(guest_sm(&a, false));
	assert_int_equal(node_fabric_issm(b.f, b.port, &other), 0);
	harness_detach(&b.h);
	assert_true(guest_sm(&a, false));
	close(other);
	harness_detach(&a.h);
}

/* A subnet manager that dies with its node is none's: the next node clears what it left. */
static void fabric__subnet_manager_dies_with_the_node(void **state)
{
	struct guest a, b;
	int fd;

	assert_int_equal(fabric_up("star:2"), 0);
	guest_enter(&a, "h1");
	guest_enter(&b, "h1");
	assert_int_equal(node_fabric_issm(a.f, a.port, &fd), 0);
	assert_true(guest_sm(&b, true));
	harness_kill_daemon();
	harness_detach(&a.h);
	close(fd);
	(void)harness_wait_event(&b.h, NODE_EVENT_LOST);
	assert_int_equal(node_recover(b.h.node), 0);
	assert_true(guest_sm(&b, true));
	assert_true(guest_sm(&b, false));
	harness_detach(&b.h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(fabric__enter, fabric_setup, fabric_teardown),
		cmocka_unit_test_setup_teardown(fabric__node_info_by_directed_route, fabric_setup,
						fabric_teardown),
		cmocka_unit_test_setup_teardown(fabric__gmp_from_host_to_host, fabric_setup,
						fabric_teardown),
		cmocka_unit_test_setup_teardown(fabric__changes_are_told, fabric_setup,
						fabric_teardown),
		cmocka_unit_test_setup_teardown(fabric__bad_packets, fabric_setup, fabric_teardown),
		cmocka_unit_test_setup_teardown(fabric__survives_the_node, fabric_setup,
						fabric_teardown),
		cmocka_unit_test_setup_teardown(fabric__an_agent_comes_back, fabric_setup,
						fabric_teardown),
		cmocka_unit_test_setup_teardown(fabric__subnet_manager_while_open, fabric_setup,
						fabric_teardown),
		cmocka_unit_test_setup_teardown(fabric__subnet_manager_dies_with_the_node,
						fabric_setup, fabric_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
