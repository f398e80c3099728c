/* route_test.c: what the node answers to datagrams to QP1 that find nobody.
 * In:    a daemon without processes, a host on another loopback address    Out: verdicts
 * Runs:  one thread                                                        Locks: none
 */
#include "daemon/other_host_test.h"

#include <fcntl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "node/steer.h"

enum { THEIR_ID = 7 << 22 | 5, SLOT = 9, OUR_ID = SLOT << 22 | 77, QUIET_MS = 50, WAIT_MS = 10000 };
#define SERVICE 0x0000000001064321ull
#define HOLD_NS (20 * NS_PER_MS)

static void send_datagram(const struct node_mad *m)
{
	assert_int_equal(node_udp_socket_send(host, m, 1), 0);
	loop_turn(&d->loop, WAIT_MS);
}

static u64 now;

static u64 route_clock(void)
{
	return now;
}

static int route_setup(void **state)
{
	now = NS_PER_S;
	clock_set_source(route_clock);
	return other_host_setup(state);
}

static int route_teardown(void **state)
{
	clock_set_source(NULL);
	return other_host_teardown(state);
}

/* So much time passes. */
static void pass(u64 ns)
{
	now += ns;
	route_run(d, now);
}

/* A request without a listener is answered when it has waited. */
static bool ask(const struct cm_msg *msg, struct cm_msg *answer, int timeout_ms)
{
	struct node_mad m = make_datagram(msg);

	send_datagram(&m);
	pass(HOLD_NS);
	return other_host_receive(answer, timeout_ms);
}

static struct cm_msg a_req(void)
{
	struct cm_msg msg = { .attr = CM_REQ, .tid = 11 };

	msg.req = (struct cm_req_msg){ .local_id = THEIR_ID, .service_id = SERVICE };
	return msg;
}

static struct cm_msg a_sidr_req(void)
{
	struct cm_msg msg = { .attr = CM_SIDR_REQ, .tid = 12 };

	msg.sidr_req = (struct cm_sidr_req_msg){ .request_id = THEIR_ID, .service_id = SERVICE };
	return msg;
}

static void route__refuses_requests_for_a_service_of_nobody(void **state)
{
	struct cm_msg req = a_req(), sidr = a_sidr_req(), answer;

	(void)state;
	assert_true(ask(&req, &answer, WAIT_MS));
	assert_int_equal(answer.attr, CM_REJ);
	assert_int_equal(answer.tid, 11);
	assert_int_equal(answer.rej.remote_id, THEIR_ID);
	assert_int_equal(answer.rej.reason, CM_REASON_UNKNOWN_SERVICE);
	assert_true(ask(&sidr, &answer, WAIT_MS));
	assert_int_equal(answer.attr, CM_SIDR_REP);
	assert_int_equal(answer.sidr_rep.request_id, THEIR_ID);
	assert_int_equal(answer.sidr_rep.status, CM_SIDR_UNKNOWN_SERVICE);
}

static void route__answers_for_processes_that_are_gone(void **state)
{
	struct cm_msg dreq = { .attr = CM_DREQ }, rep = { .attr = CM_REP }, answer;

	(void)state;
	dreq.dreq = (struct cm_dreq_msg){ .local_id = THEIR_ID, .remote_id = OUR_ID };
	assert_true(ask(&dreq, &answer, WAIT_MS));
	assert_int_equal(answer.attr, CM_DREP);
	assert_int_equal(answer.drep.local_id, (u32)OUR_ID);
	assert_int_equal(answer.drep.remote_id, THEIR_ID);
	rep.rep = (struct cm_rep_msg){ .local_id = THEIR_ID, .remote_id = OUR_ID };
	assert_true(ask(&rep, &answer, WAIT_MS));
	assert_int_equal(answer.attr, CM_REJ);
	assert_int_equal(answer.rej.reason, CM_REASON_UNKNOWN_ID);
	assert_int_equal(answer.rej.about, CM_ABOUT_REP);
}

/* What is damaged, or no MAD of QP1, is not answered. */
static void route__does_not_answer_what_is_damaged(void **state)
{
	struct cm_msg req = a_req(), answer;
	struct node_mad m;

	(void)state;
	m = make_datagram(&req);
	m.payload[QP1_MAD + 50] ^= 1;
	send_datagram(&m);
	assert_false(other_host_receive(&answer, QUIET_MS));
	m = make_datagram(&req);
	m.sgid[15] ^= 1; /* the ICRC is of another sender's */
	qp1_pack(&m, 0, 1, m.payload + QP1_MAD);
	m.sgid[15] ^= 1;
	send_datagram(&m);
	assert_false(other_host_receive(&answer, QUIET_MS));
	m = make_datagram(&req);
	qp1_pack(&m, 0x1234, 1, m.payload + QP1_MAD);
	send_datagram(&m);
	assert_false(other_host_receive(&answer, QUIET_MS));
	assert_int_equal(daemon_udp_find(&d->udp, ours)->dropped, 3);
	assert_true(ask(&req, &answer, WAIT_MS));
}

/* The next node knows no listener of a process that has not come back. */
static void route__is_silent_for_processes_of_an_earlier_node(void **state)
{
	struct cm_msg req = a_req(), sidr = a_sidr_req(), dreq = { .attr = CM_DREQ }, answer;
	int survivor = slots_describe(&d->slots);
	struct flock l = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SLOTS_LOCKS + SLOT, .l_len = 1
	};

	(void)state;
	assert_true(survivor >= 0);
	assert_int_equal(fcntl(survivor, F_OFD_SETLK, &l), 0);
	d->slots.absent[SLOT] = true; /* as slots_open finds it in a file with a name */
	d->slots.absent_count = 1;
	assert_false(ask(&req, &answer, QUIET_MS));
	dreq.dreq = (struct cm_dreq_msg){ .local_id = THEIR_ID, .remote_id = OUR_ID };
	assert_false(ask(&dreq, &answer, QUIET_MS));
	assert_false(ask(&sidr, &answer, QUIET_MS));
	close(survivor); /* it is dead */
	assert_true(ask(&req, &answer, WAIT_MS));
	assert_int_equal(d->slots.absent_count, 0);
	assert_true(ask(&dreq, &answer, WAIT_MS));
	d->resuming = 1; /* one comes back: it will name its listeners */
	assert_false(ask(&req, &answer, QUIET_MS));
	assert_true(ask(&dreq, &answer, WAIT_MS));
}

/* ---- to processes ---------------------------------------------------------------------------- */

/* A process of the node, and the other end of its events socket. */
struct listener {
	struct proc proc;
	int end;
};

static void listener_begin(struct listener *l, u64 process)
{
	int ends[2];

	l->proc = (struct proc){ .daemon = d, .process = process, .kind = PROC_ATTACHED };
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
	l->proc.events.fd = ends[0];
	l->proc.will_fd = -1;
	l->end = ends[1];
	list_init(&l->proc.waiting);
	list_push_back(&d->procs, &l->proc.node);
}

static void listener_end(struct listener *l)
{
	close(l->proc.events.fd);
	close(l->end);
}

static bool listener_gets(struct listener *l, const struct node_mad *m)
{
	struct proto_mad event;

	return recv(l->end, &event, sizeof(event), 0) == sizeof(event) &&
	       memcmp(event.mad.payload, m->payload, sizeof(m->payload)) == 0;
}

/* A host that gives up before it has got an answer does not know our ID. */
static void route__a_refusal_without_our_id(void **state)
{
	struct cm_msg rej = { .attr = CM_REJ };
	struct listener l;
	struct node_mad m;

	(void)state;
	listener_begin(&l, 5);
	rej.rej = (struct cm_rej_msg){ .local_id = THEIR_ID, .reason = 4 };
	m = make_datagram(&rej);
	send_datagram(&m);
	assert_false(listener_gets(&l, &m));
	l.proc.will_fd = d->directory_fd; /* any: it has had peers */
	send_datagram(&m);
	assert_true(listener_gets(&l, &m));
	listener_end(&l);
}

/* Two listen on one service ID; the bytes of a REQ's private data say which is asked. */
static void route__to_the_listener_whose_address_is_asked_for(void **state)
{
	enum { AT = 32 };
	struct cm_msg req = a_req(), answer;
	struct directory *n = d->directory;
	struct listener l[2];
	struct node_mad m;

	(void)state;
	for (u32 i = 0; i < 2; i++) {
		listener_begin(&l[i], 5 + i);
		n->listener[i] = (struct directory_listener){ .service_id = SERVICE,
							      .mask = UINT64_MAX,
							      .process = 5 + i,
							      .slot = SLOT + i,
							      .next = i == 0 ? 2 : 0 };
		n->listener[i].match.mask[AT] = 0xff;
		n->listener[i].match.data[AT] = (u8)(i + 1);
	}
	n->listeners = 2;
	n->chain[directory_chain(SERVICE, UINT64_MAX)] = 1;
	for (u8 asked = 2; asked > 0; asked--) {
		req.req.private_data[AT] = asked;
		m = make_datagram(&req);
		send_datagram(&m);
		assert_true(listener_gets(&l[asked - 1], &m));
		assert_false(listener_gets(&l[2 - asked], &m));
	}
	req.req.private_data[AT] = 3;
	assert_true(ask(&req, &answer, WAIT_MS));
	assert_int_equal(answer.rej.reason, CM_REASON_UNKNOWN_SERVICE);
	listener_end(&l[0]);
	listener_end(&l[1]);
}

/* ---- unsolicited MADs of other classes ------------------------------------------------------- */

enum { CLASS = 0x0a, VERSION = 1, GET = 1, SEND = 3, GET_RESP = 0x81 };

static struct node_mad an_unsolicited(u8 method)
{
	struct node_mad m = { .sport = NODE_UDP_PORT };
	u8 mad[CM_MAD_BYTES] = { 1, CLASS, VERSION, method, [100] = 7 };

	memcpy(m.sgid, theirs, 16);
	memcpy(m.dgid, ours, 16);
	qp1_pack(&m, 0, 1, mad);
	return m;
}

/* What has come to the other host; false: nothing in time. */
static bool other_host_hears(u8 mad[CM_MAD_BYTES], int timeout_ms)
{
	struct pollfd p = { .fd = host, .events = POLLIN };
	struct node_mad m = { .sport = 0 };
	u32 sqpn;

	if (poll(&p, 1, timeout_ms) != 1)
		return false;
	assert_int_equal(node_udp_socket_read(host, m.payload, sizeof(m.payload), &m),
			 NODE_MAD_BYTES);
	memcpy(m.dgid, theirs, 16);
	assert_true(qp1_judge(&m, &sqpn));
	memcpy(mad, m.payload + QP1_MAD, CM_MAD_BYTES);
	return true;
}

static void agent_add(u32 at, u64 process, u64 methods)
{
	struct directory_agent a = { .process = process, .slot = SLOT };

	a.agent = (struct node_agent){ .device = 1,
				       .methods = { methods },
				       .port = 1,
				       .qpn = 1,
				       .mgmt_class = CLASS,
				       .version = VERSION };
	d->directory->agent[at] = a;
	d->directory->agents = at + 1;
}

/* Two processes have agents for different methods of one class. */
static void route__to_the_agent_of_the_method(void **state)
{
	struct node_mad m;
	struct listener l[2];
	u8 mad[CM_MAD_BYTES];

	(void)state;
	for (u32 i = 0; i < 2; i++) {
		listener_begin(&l[i], 5 + i);
		agent_add(i, 5 + i, 1ull << (i == 0 ? GET : SEND));
	}
	for (u32 i = 0; i < 2; i++) {
		m = an_unsolicited(i == 0 ? GET : SEND);
		send_datagram(&m);
		assert_true(listener_gets(&l[i], &m));
		assert_false(listener_gets(&l[1 - i], &m));
	}
	/* of another device, or of another queue pair than QP1: nobody's */
	d->directory->agent[0].agent.device = 2;
	d->directory->agent[1].agent.qpn = 0;
	m = an_unsolicited(SEND);
	send_datagram(&m);
	m = an_unsolicited(GET);
	send_datagram(&m);
	assert_true(other_host_hears(mad, WAIT_MS)); /* the Get is refused, the Send is not */
	assert_int_equal(mad[STEER_METHOD], GET_RESP);
	assert_false(other_host_hears(mad, QUIET_MS));
	listener_end(&l[0]);
	listener_end(&l[1]);
}

static void route__refuses_a_get_that_no_agent_takes(void **state)
{
	struct node_mad m = an_unsolicited(GET);
	u8 mad[CM_MAD_BYTES];

	(void)state;
	send_datagram(&m);
	assert_true(other_host_hears(mad, WAIT_MS));
	assert_int_equal(mad[STEER_METHOD], GET_RESP);
	assert_int_equal(mad[4] << 8 | mad[5], 0x0c);
	assert_int_equal(mad[100], 7);
	/* the refusal itself names a slot of nobody, and is not answered */
	m = an_unsolicited(GET_RESP);
	send_datagram(&m);
	assert_false(other_host_hears(mad, QUIET_MS));
	/* a damaged one is not, nor while agents may be on their way to this node */
	m = an_unsolicited(GET);
	m.payload[QP1_MAD + 50] ^= 1;
	send_datagram(&m);
	assert_false(other_host_hears(mad, QUIET_MS));
	d->resuming = 1;
	m = an_unsolicited(GET);
	send_datagram(&m);
	assert_false(other_host_hears(mad, QUIET_MS));
}

/* Its listener comes a moment later, or never. */
static void waits_for_a_listener(const struct cm_msg *request)
{
	struct cm_msg answer;
	struct directory *n = d->directory;
	struct listener l;
	struct node_mad m = make_datagram(request);

	listener_begin(&l, 5);
	send_datagram(&m);
	assert_int_equal(route_next_ns(d), now + HOLD_NS);
	pass(HOLD_NS / 2);
	assert_false(other_host_receive(&answer, QUIET_MS));
	n->listener[0] = (struct directory_listener){ .service_id = SERVICE + 1,
						      .mask = UINT64_MAX,
						      .process = 5 };
	n->listeners = 1;
	n->chain[directory_chain(SERVICE + 1, UINT64_MAX)] = 1;
	route_listening(d); /* on another service ID */
	assert_false(listener_gets(&l, &m));
	n->chain[directory_chain(SERVICE + 1, UINT64_MAX)] = 0;
	n->listener[0].service_id = SERVICE;
	n->chain[directory_chain(SERVICE, UINT64_MAX)] = 1;
	route_listening(d);
	assert_true(listener_gets(&l, &m));
	assert_int_equal(d->held_count, 0);
	pass(HOLD_NS);
	assert_false(other_host_receive(&answer, QUIET_MS));
	n->chain[directory_chain(SERVICE, UINT64_MAX)] = 0;
	list_remove(&l.proc.node);
	listener_end(&l);
}

static void route__waits_for_a_listener_that_comes_soon(void **state)
{
	struct cm_msg req = a_req(), sidr = a_sidr_req();

	(void)state;
	waits_for_a_listener(&req);
	waits_for_a_listener(&sidr);
}

/* So many wait; those beyond are refused at once. */
static void route__holds_so_many_requests(void **state)
{
	enum { HELD = 256 };
	struct cm_msg req = a_req(), answer;
	struct node_mad m;
	u32 refused = 0;

	(void)state;
	for (u32 i = 0; i < HELD + 3; i++) {
		req.req.local_id = THEIR_ID + i;
		m = make_datagram(&req);
		send_datagram(&m);
	}
	assert_int_equal(d->held_count, HELD);
	for (; refused < 3; refused++) {
		assert_true(other_host_receive(&answer, WAIT_MS));
		assert_int_equal(answer.rej.remote_id, (u32)(THEIR_ID + HELD) + refused);
	}
	pass(HOLD_NS);
	while (other_host_receive(&answer, 0))
		refused++;
	assert_int_equal(refused, HELD + 3);
	assert_int_equal(d->held_count, 0);
	assert_int_equal(route_next_ns(d), UINT64_MAX);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(route__refuses_requests_for_a_service_of_nobody,
						route_setup, route_teardown),
		cmocka_unit_test_setup_teardown(route__answers_for_processes_that_are_gone,
						route_setup, route_teardown),
		cmocka_unit_test_setup_teardown(route__does_not_answer_what_is_damaged, route_setup,
						route_teardown),
		cmocka_unit_test_setup_teardown(route__is_silent_for_processes_of_an_earlier_node,
						route_setup, route_teardown),
		cmocka_unit_test_setup_teardown(route__a_refusal_without_our_id, route_setup,
						route_teardown),
		cmocka_unit_test_setup_teardown(route__to_the_listener_whose_address_is_asked_for,
						route_setup, route_teardown),
		cmocka_unit_test_setup_teardown(route__to_the_agent_of_the_method, route_setup,
						route_teardown),
		cmocka_unit_test_setup_teardown(route__refuses_a_get_that_no_agent_takes,
						route_setup, route_teardown),
		cmocka_unit_test_setup_teardown(route__waits_for_a_listener_that_comes_soon,
						route_setup, route_teardown),
		cmocka_unit_test_setup_teardown(route__holds_so_many_requests, route_setup,
						route_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
