/* errno_test.c: the errno of each call of librdmacm in each state of its id, and with arguments
 * that are out of bounds: those of Linux's ucma and of rdma-core's librdmacm. docs/rdmacm.md has
 * the table in short.
 * In: calls      Out: verdicts      Runs: one thread; both ends are this process
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_verbs.h>

#include "cm.h"

enum { FIRST_QPN = 0x100, TIMEOUT_MS = 1000 };

enum state {
	IDLE,
	BOUND,
	RESOLVED,
	ROUTED,
	LISTENING,
	CONNECTING,
	REQUESTED, /* the id of a request, before rdma_accept */
	CONNECTED,
	DISCONNECTED,
	REMOVED, /* after DEVICE_REMOVAL */
	STATES
};

static const char *const state_names[] = {
	"idle",	      "bound",	   "resolved",	"route resolved", "listening",
	"connecting", "requested", "connected", "disconnected",	  "removed",
};

/* An id in some state, and who it needs for that. Peers have a channel of their own. */
struct bed {
	struct rdma_event_channel *channel, *peers;
	struct rdma_cm_id *id, *listener, *other;
};

/* ---- ids in every state ---------------------------------------------------------------------- */

static struct rdma_cm_event *next(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = event_of(ch, type);

	assert_int_equal(event->status, 0);
	return event;
}

static void pass(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	rdma_ack_cm_event(next(ch, type));
}

/* A queue pair number that no other end has. */
static struct rdma_conn_param some_param(void)
{
	static uint32_t qp_num = FIRST_QPN;

	return (struct rdma_conn_param){ .qp_num = qp_num++,
					 .responder_resources = 1,
					 .initiator_depth = 1,
					 .retry_count = 7,
					 .rnr_retry_count = 7 };
}

static void bed_open(struct bed *b, enum rdma_port_space ps)
{
	memset(b, 0, sizeof(*b));
	b->channel = rdma_create_event_channel();
	b->peers = rdma_create_event_channel();
	assert_non_null(b->channel);
	assert_non_null(b->peers);
	assert_int_equal(rdma_create_id(b->channel, &b->id, NULL, ps), 0);
}

static void bed_close(struct bed *b)
{
	struct rdma_cm_id *ids[] = { b->id, b->other, b->listener };

	for (int i = 0; i < 3; i++) {
		if (ids[i] == NULL)
			continue;
		rdma_destroy_qp(ids[i]);
		rdma_destroy_srq(ids[i]);
		assert_int_equal(rdma_destroy_id(ids[i]), 0);
	}
	rdma_destroy_event_channel(b->channel);
	rdma_destroy_event_channel(b->peers);
}

static void bed_listen(struct bed *b, struct rdma_event_channel *ch)
{
	assert_int_equal(rdma_create_id(ch, &b->listener, NULL, b->id->ps), 0);
	assert_int_equal(rdma_bind_addr(b->listener, local(0)), 0);
	assert_int_equal(rdma_listen(b->listener, 0), 0);
}

static void bed_resolve(struct rdma_cm_id *id, int port)
{
	assert_int_equal(rdma_resolve_addr(id, NULL, local(port), TIMEOUT_MS), 0);
	pass(id->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
}

static void bed_route(struct rdma_cm_id *id, int port)
{
	bed_resolve(id, port);
	assert_int_equal(rdma_resolve_route(id, TIMEOUT_MS), 0);
	pass(id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static void bed_request(struct bed *b, struct rdma_cm_id *id)
{
	struct rdma_conn_param param = some_param();

	bed_route(id, ntohs(rdma_get_src_port(b->listener)));
	assert_int_equal(rdma_connect(id, &param), 0);
}

static struct rdma_cm_id *bed_take_request(struct rdma_event_channel *ch)
{
	struct rdma_cm_event *event = next(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;

	rdma_ack_cm_event(event);
	return id;
}

static void bed_connect(struct bed *b)
{
	struct rdma_conn_param param = some_param();

	bed_listen(b, b->peers);
	bed_request(b, b->id);
	b->other = bed_take_request(b->peers);
	assert_int_equal(rdma_accept(b->other, &param), 0);
	pass(b->channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
	assert_int_equal(rdma_establish(b->id), 0);
	pass(b->peers, RDMA_CM_EVENT_ESTABLISHED);
}

static void bed_make(struct bed *b, enum state state)
{
	switch (state) {
	case BOUND:
		assert_int_equal(rdma_bind_addr(b->id, address_of("roce0", 0)), 0);
		return;
	case RESOLVED:
		bed_resolve(b->id, 7471);
		return;
	case ROUTED:
		bed_route(b->id, 7471);
		return;
	case LISTENING:
		assert_int_equal(rdma_bind_addr(b->id, address_of("roce0", 0)), 0);
		assert_int_equal(rdma_listen(b->id, 0), 0);
		return;
	case CONNECTING:
		bed_listen(b, b->peers);
		bed_request(b, b->id);
		return;
	case REQUESTED:
		bed_listen(b, b->channel);
		b->other = b->id;
		assert_int_equal(rdma_migrate_id(b->other, b->peers), 0);
		bed_request(b, b->other);
		b->id = bed_take_request(b->channel);
		return;
	case DISCONNECTED:
		bed_connect(b);
		assert_int_equal(rdma_disconnect(b->id), 0);
		pass(b->peers, RDMA_CM_EVENT_DISCONNECTED);
		assert_int_equal(rdma_disconnect(b->other), 0);
		pass(b->channel, RDMA_CM_EVENT_DISCONNECTED);
		return;
	case CONNECTED:
		bed_connect(b);
		return;
	default:
		return;
	}
}

/* ---- the calls ------------------------------------------------------------------------------- */

static int call_bind(struct bed *b)
{
	return rdma_bind_addr(b->id, address_of("roce0", 0));
}

static int call_resolve_addr(struct bed *b)
{
	return rdma_resolve_addr(b->id, NULL, local(7471), TIMEOUT_MS);
}

static int call_resolve_route(struct bed *b)
{
	return rdma_resolve_route(b->id, TIMEOUT_MS);
}

static int call_listen(struct bed *b)
{
	return rdma_listen(b->id, 0);
}

static int call_connect(struct bed *b)
{
	struct rdma_conn_param param = some_param();

	return rdma_connect(b->id, &param);
}

static int call_accept(struct bed *b)
{
	struct rdma_conn_param param = some_param();

	return rdma_accept(b->id, &param);
}

static int call_establish(struct bed *b)
{
	return rdma_establish(b->id);
}

static int call_reject(struct bed *b)
{
	return rdma_reject(b->id, "no", 3);
}

static int call_disconnect(struct bed *b)
{
	return rdma_disconnect(b->id);
}

static int call_notify(struct bed *b)
{
	return rdma_notify(b->id, IBV_EVENT_COMM_EST);
}

static int call_notify_other(struct bed *b)
{
	return rdma_notify(b->id, IBV_EVENT_QP_FATAL);
}

static int init_qp_attr(struct bed *b, int qp_state)
{
	struct ibv_qp_attr attr = { .qp_state = (enum ibv_qp_state)qp_state };
	int mask;

	return rdma_init_qp_attr(b->id, &attr, &mask);
}

static int call_init(struct bed *b)
{
	return init_qp_attr(b, IBV_QPS_INIT);
}

static int call_rtr(struct bed *b)
{
	return init_qp_attr(b, IBV_QPS_RTR);
}

static int call_rts(struct bed *b)
{
	return init_qp_attr(b, IBV_QPS_RTS);
}

static int call_no_state(struct bed *b)
{
	return init_qp_attr(b, IBV_QPS_ERR + 1);
}

static int call_migrate(struct bed *b)
{
	return rdma_migrate_id(b->id, b->peers);
}

static int call_create_qp(struct bed *b)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = b->id->qp_type,
	};

	return rdma_create_qp(b->id, NULL, &init);
}

static int call_create_srq(struct bed *b)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };

	return rdma_create_srq(b->id, NULL, &init);
}

static int set_option(struct bed *b, int name, int value, size_t size)
{
	return rdma_set_option(b->id, RDMA_OPTION_ID, name, &value, size);
}

static int call_tos(struct bed *b)
{
	return set_option(b, RDMA_OPTION_ID_TOS, 32, 1);
}

static int call_reuse(struct bed *b)
{
	return set_option(b, RDMA_OPTION_ID_REUSEADDR, 1, sizeof(int));
}

static int call_no_reuse(struct bed *b)
{
	return set_option(b, RDMA_OPTION_ID_REUSEADDR, 0, sizeof(int));
}

static int call_afonly(struct bed *b)
{
	return set_option(b, RDMA_OPTION_ID_AFONLY, 1, sizeof(int));
}

static int call_ack_timeout(struct bed *b)
{
	return set_option(b, RDMA_OPTION_ID_ACK_TIMEOUT, 14, 1);
}

static int call_no_option(struct bed *b)
{
	return set_option(b, 77, 0, sizeof(int));
}

static int call_get_request(struct bed *b)
{
	struct rdma_cm_id *id;

	return rdma_get_request(b->id, &id);
}

/* A group of this host only. */
static struct sockaddr *group(void)
{
	static struct sockaddr_in sin = { .sin_family = AF_INET };

	sin.sin_addr.s_addr = htonl(0xef000000 | ((uint32_t)getpid() & 0xffffff));
	return (struct sockaddr *)&sin;
}

static int call_join(struct bed *b)
{
	return rdma_join_multicast(b->id, group(), NULL);
}

static int call_join_ex(struct bed *b)
{
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER,
		.addr = group(),
	};

	return rdma_join_multicast_ex(b->id, &attr, NULL);
}

static int call_leave(struct bed *b)
{
	return rdma_leave_multicast(b->id, group());
}

/* ---- each call in each state ----------------------------------------------------------------- */

enum { S = 0, E = EINVAL, C = EISCONN, X = EIO, N = ENOSYS, A = EADDRNOTAVAIL };

/* From left to right: idle, bound, resolved, route resolved, listening, connecting, requested,
 * connected, disconnected, removed. Where rdma-core's library would read a null pointer (an id
 * without a device), ours says EINVAL. */
static const struct row {
	const char *name;
	int (*call)(struct bed *b);
	int want[STATES];
} rows[] = {
	{ "rdma_bind_addr", call_bind, { S, E, E, E, E, E, E, E, E, X } },
	{ "rdma_resolve_addr", call_resolve_addr, { S, S, E, E, E, E, E, E, E, X } },
	{ "rdma_resolve_route", call_resolve_route, { E, E, S, E, E, E, E, E, E, X } },
	{ "rdma_listen", call_listen, { S, S, E, E, E, E, E, E, E, X } },
	{ "rdma_connect", call_connect, { E, E, E, S, E, E, E, E, E, X } },
	{ "rdma_accept", call_accept, { E, E, E, E, E, E, S, E, E, X } },
	{ "rdma_establish", call_establish, { E, E, E, E, E, E, E, E, E, X } },
	/* a request that was sent may be withdrawn */
	{ "rdma_reject", call_reject, { E, E, E, E, E, S, S, E, E, X } },
	{ "rdma_disconnect", call_disconnect, { E, E, E, E, S, S, S, S, S, X } },
	{ "rdma_notify COMM_EST", call_notify, { E, E, E, E, E, E, E, C, E, X } },
	{ "rdma_notify QP_FATAL", call_notify_other, { E, E, E, E, E, E, E, E, E, X } },
	{ "rdma_init_qp_attr INIT", call_init, { E, S, S, S, E, S, S, S, E, X } },
	{ "rdma_init_qp_attr RTR", call_rtr, { E, S, S, S, E, E, S, S, E, X } },
	{ "rdma_init_qp_attr RTS", call_rts, { E, S, S, S, E, E, S, S, E, X } },
	{ "rdma_init_qp_attr no state", call_no_state, { E, E, E, E, E, E, E, E, E, E } },
	{ "rdma_create_qp", call_create_qp, { E, S, S, S, E, S, S, S, E, X } },
	{ "rdma_create_srq", call_create_srq, { E, S, S, S, S, S, S, S, S, X } },
	{ "rdma_migrate_id", call_migrate, { S, S, S, S, S, S, S, S, S, X } },
	{ "rdma_set_option TOS", call_tos, { S, S, S, S, S, S, S, S, S, X } },
	{ "rdma_set_option REUSEADDR 1", call_reuse, { S, S, S, S, E, S, S, S, S, X } },
	{ "rdma_set_option REUSEADDR 0", call_no_reuse, { S, E, E, E, E, E, E, E, E, X } },
	{ "rdma_set_option AFONLY", call_afonly, { S, S, E, E, E, E, E, E, E, X } },
	{ "rdma_set_option ACK_TIMEOUT", call_ack_timeout, { S, S, S, S, S, S, S, S, S, X } },
	{ "rdma_set_option 77", call_no_option, { N, N, N, N, N, N, N, N, N, X } },
	/* of a stream's id; datagram ids: mcast_test.c */
	{ "rdma_join_multicast", call_join, { E, E, E, E, E, E, E, E, E, X } },
	{ "rdma_join_multicast_ex", call_join_ex, { E, E, E, E, E, E, E, E, E, X } },
	{ "rdma_leave_multicast", call_leave, { A, A, A, A, A, A, A, A, A, A } },
	{ "rdma_get_request", call_get_request, { E, E, E, E, E, E, E, E, E, E } },
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* 1: another errno than the table's, and says which. */
static int row_judge(const struct row *row, struct bed *b, enum state state)
{
	int got;

	errno = 0;
	got = row->call(b) == 0 ? 0 : errno;
	if (got == row->want[state])
		return 0;
	print_error("%s, %s: %s instead of %s\n", row->name, state_names[state], strerror(got),
		    strerror(row->want[state]));
	return 1;
}

static void rdma_calls__answer_by_the_state_of_the_id(void **state)
{
	int wrong = 0;
	struct bed b;

	for (int r = 0; r < ROWS; r++) {
		for (enum state s = IDLE; s < REMOVED; s++) {
			bed_open(&b, RDMA_PS_TCP);
			bed_make(&b, s);
			wrong += row_judge(&rows[r], &b, s);
			bed_close(&b);
		}
	}
	assert_int_equal(wrong, 0);
}

/* ---- a device that goes ---------------------------------------------------------------------- */

static struct ibv_context *device_named(const char *name)
{
	struct ibv_context **list = rdma_get_devices(NULL), *found = NULL;

	assert_non_null(list);
	for (int i = 0; list[i] != NULL && found == NULL; i++)
		if (strcmp(ibv_get_device_name(list[i]->device), name) == 0)
			found = list[i];
	rdma_free_devices(list);
	return found;
}

/* The first IPv4 address among the device's GIDs. */
static struct sockaddr_in device_address(struct ibv_context *verbs)
{
	struct sockaddr_in sin = { .sin_family = AF_INET };
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	union ibv_gid gid;

	for (int i = 0; ibv_query_gid(verbs, 1, i, &gid) == 0; i++) {
		if (memcmp(gid.raw, mapped, sizeof(mapped)) != 0)
			continue;
		memcpy(&sin.sin_addr, gid.raw + 12, 4);
		return sin;
	}
	fail_msg("no IPv4 address");
	return sin;
}

static void device_command(const char *verb)
{
	char line[sizeof(ANYVERBS) + 64];

	snprintf(line, sizeof(line), ANYVERBS " device %s roce1 >/dev/null", verb);
	assert_int_equal(system(line), 0);
}

/* Many ids of a device that goes: after their events they can only be destroyed. */
static void rdma_calls__say_eio_when_the_device_has_gone(void **state)
{
	struct ibv_context *verbs = device_named("roce1");
	struct sockaddr_in sin;
	struct bed beds[ROWS];
	int wrong = 0;

	assert_non_null(verbs);
	sin = device_address(verbs);
	for (int r = 0; r < ROWS; r++) {
		bed_open(&beds[r], RDMA_PS_TCP);
		assert_int_equal(rdma_bind_addr(beds[r].id, (struct sockaddr *)&sin), 0);
		assert_ptr_equal(beds[r].id->verbs, verbs);
	}
	device_command("remove");
	for (int r = 0; r < ROWS; r++) {
		pass(beds[r].channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
		wrong += row_judge(&rows[r], &beds[r], REMOVED);
		bed_close(&beds[r]);
	}
	assert_int_equal(wrong, 0);
}

/* A device that comes again under its old name is another one. */
static void rdma_get_devices__follows_devices_that_go_and_come(void **state)
{
	struct ibv_context *verbs;
	struct sockaddr_in sin;
	struct bed b;

	assert_null(device_named("roce1"));
	device_command("add");
	for (int i = 0; i < 100 && device_named("roce1") == NULL; i++)
		usleep(10000);
	verbs = device_named("roce1");
	assert_non_null(verbs);
	sin = device_address(verbs);
	bed_open(&b, RDMA_PS_TCP);
	assert_int_equal(rdma_bind_addr(b.id, (struct sockaddr *)&sin), 0);
	assert_ptr_equal(b.id->verbs, verbs);
	assert_int_equal(call_create_qp(&b), 0);
	bed_close(&b);
}

/* ---- arguments ------------------------------------------------------------------------------- */

static void rdma_create_id__takes_known_port_spaces(void **state)
{
	static const int unknown[] = { 0, 1, 0x105, 0x7777 };
	struct rdma_cm_id *id;

	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
		fails(rdma_create_id(channel, &id, NULL, (enum rdma_port_space)unknown[i]), EINVAL);
}

/* An address of either family, until the next call. */
static struct sockaddr *at(const char *host)
{
	static struct sockaddr_in6 sin6;
	static struct sockaddr_in sin;

	sin = (struct sockaddr_in){ .sin_family = AF_INET };
	if (inet_pton(AF_INET, host, &sin.sin_addr) == 1)
		return (struct sockaddr *)&sin;
	sin6 = (struct sockaddr_in6){ .sin6_family = AF_INET6 };
	assert_int_equal(inet_pton(AF_INET6, host, &sin6.sin6_addr), 1);
	return (struct sockaddr *)&sin6;
}

static void rdma_bind_addr__judges_the_address(void **state)
{
	struct sockaddr_storage other = { .ss_family = AF_UNIX };
	struct rdma_cm_id *id, *second;

	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	fails(rdma_bind_addr(id, NULL), EINVAL);
	fails(rdma_bind_addr(id, (struct sockaddr *)&other), EINVAL);
	fails(rdma_bind_addr(id, at("198.51.100.7")), EADDRNOTAVAIL); /* not this host's */
	fails(rdma_bind_addr(id, at("fe80::1")), EINVAL);	      /* of which interface? */
	assert_int_equal(rdma_bind_addr(id, local(0)), 0);
	assert_int_equal(rdma_create_id(channel, &second, NULL, RDMA_PS_TCP), 0);
	fails(rdma_bind_addr(second, local(ntohs(rdma_get_src_port(id)))), EADDRINUSE);
	assert_int_equal(rdma_bind_addr(second, local(0)), 0); /* the failure left it idle */
	assert_int_equal(rdma_destroy_id(second), 0);
	assert_int_equal(rdma_destroy_id(id), 0);
}

static void rdma_resolve_addr__judges_both_addresses(void **state)
{
	struct sockaddr unknown = { .sa_family = AF_UNIX };
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	fails(rdma_resolve_addr(id, NULL, NULL, TIMEOUT_MS), EINVAL);
	fails(rdma_resolve_addr(id, NULL, &unknown, TIMEOUT_MS), EINVAL);
	fails(rdma_resolve_addr(id, &unknown, local(7471), TIMEOUT_MS), EINVAL);
	assert_int_equal(rdma_bind_addr(id, local(0)), 0);
	fails(rdma_resolve_addr(id, NULL, at("::1"), TIMEOUT_MS), EINVAL); /* it is bound to IPv4 */
	assert_int_equal(rdma_resolve_addr(id, NULL, local(7471), TIMEOUT_MS), 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED, id);
	fails(rdma_resolve_route(id, 0), EINVAL);
	assert_int_equal(rdma_destroy_id(id), 0);
}

/* As many bytes of private data as there are, and one more. */
static int with_data(struct bed *b, int (*call)(struct rdma_cm_id *, struct rdma_conn_param *),
		     uint8_t len)
{
	static const char data[256];
	struct rdma_conn_param param = some_param();

	param.private_data = data;
	param.private_data_len = len;
	return call(b->id, &param);
}

static const struct room {
	enum rdma_port_space ps;
	uint8_t request, accept, reject;
} rooms[] = { { RDMA_PS_TCP, 56, 196, 148 }, { RDMA_PS_UDP, 180, 136, 136 } };

static void rdma_connect__bounds_private_data(void **state)
{
	struct bed b;

	for (int i = 0; i < 2; i++) {
		bed_open(&b, rooms[i].ps);
		bed_make(&b, ROUTED);
		fails(with_data(&b, rdma_connect, rooms[i].request + 1), EINVAL);
		fails(with_data(&b, rdma_connect, 255), EINVAL);
		assert_int_equal(with_data(&b, rdma_connect, rooms[i].request), 0);
		bed_close(&b);
	}
}

static void rdma_accept__bounds_private_data(void **state)
{
	struct bed b;

	for (int i = 0; i < 2; i++) {
		bed_open(&b, rooms[i].ps);
		bed_make(&b, REQUESTED);
		assert_int_equal(with_data(&b, rdma_accept, rooms[i].accept), 0);
		bed_close(&b);
		bed_open(&b, rooms[i].ps);
		bed_make(&b, REQUESTED);
		fails(with_data(&b, rdma_accept, rooms[i].accept + 1), EINVAL);
		bed_close(&b);
	}
}

static void rdma_reject__bounds_private_data(void **state)
{
	static const char data[256];
	struct bed b;

	for (int i = 0; i < 2; i++) {
		bed_open(&b, rooms[i].ps);
		bed_make(&b, REQUESTED);
		fails(rdma_reject(b.id, data, rooms[i].reject + 1), EINVAL);
		assert_int_equal(rdma_reject(b.id, data, rooms[i].reject), 0);
		bed_close(&b);
	}
}

static int with_depths(struct bed *b, int (*call)(struct rdma_cm_id *, struct rdma_conn_param *),
		       uint8_t initiator, uint8_t responder)
{
	struct rdma_conn_param param = some_param();

	param.initiator_depth = initiator;
	param.responder_resources = responder;
	return call(b->id, &param);
}

/* Of the TCP port space only: others are not looked at. */
static void rdma_connect__bounds_the_depths_to_the_device(void **state)
{
	struct ibv_device_attr attr;
	struct bed b;

	bed_open(&b, RDMA_PS_TCP);
	bed_make(&b, ROUTED);
	assert_int_equal(ibv_query_device(b.id->verbs, &attr), 0);
	fails(rdma_connect(b.id, NULL), EINVAL); /* which queue pair? */
	fails(with_depths(&b, rdma_connect, (uint8_t)(attr.max_qp_init_rd_atom + 1), 1), EINVAL);
	fails(with_depths(&b, rdma_connect, 1, (uint8_t)(attr.max_qp_rd_atom + 1)), EINVAL);
	assert_int_equal(with_depths(&b, rdma_connect, RDMA_MAX_INIT_DEPTH, RDMA_MAX_RESP_RES), 0);
	bed_close(&b);
	bed_open(&b, RDMA_PS_IB);
	bed_make(&b, ROUTED);
	assert_int_equal(with_depths(&b, rdma_connect, 200, 200), 0);
	bed_close(&b);
}

static void rdma_set_option__judges_size_and_name(void **state)
{
	static const struct {
		int level, name;
		size_t size;
		int want;
	} cases[] = {
		{ RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 0, EINVAL },
		{ RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 4, EINVAL },
		{ RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, 1, EINVAL },
		{ RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, 8, EINVAL },
		{ RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, 4, EINVAL },
		{ RDMA_OPTION_ID, 4, 4, ENOSYS },
		{ RDMA_OPTION_ID, -1, 4, ENOSYS },
		{ RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, 0, EINVAL },
		{ RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, 7, EINVAL },
		{ RDMA_OPTION_IB, 0, 8, ENOSYS },
		{ 2, RDMA_OPTION_ID_TOS, 1, ENOSYS },
		{ -1, 0, 0, ENOSYS },
	};
	uint64_t value = 0;
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		fails(rdma_set_option(id, cases[i].level, cases[i].name, &value, cases[i].size),
		      cases[i].want);
	fails(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, NULL, 1), EFAULT);
	assert_int_equal(rdma_destroy_id(id), 0);
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP), 0);
	fails(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &value, 1), EINVAL);
	assert_int_equal(rdma_destroy_id(id), 0);
}

static void rdma_create_qp__judges_queue_pair_and_domain(void **state)
{
	struct ibv_qp_init_attr init = { .cap = { .max_send_wr = 1, .max_recv_wr = 1 },
					 .qp_type = IBV_QPT_RC };
	struct ibv_srq_init_attr_ex ex = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_context *other;
	struct ibv_cq *cq;
	struct ibv_pd *pd;
	struct bed b;

	bed_open(&b, RDMA_PS_TCP);
	bed_make(&b, BOUND);
	other = ibv_open_device(b.id->verbs->device);
	assert_non_null(other);
	pd = ibv_alloc_pd(other);
	assert_non_null(pd);
	fails(rdma_create_qp(b.id, pd, &init), EINVAL); /* a domain of another context */
	ibv_dealloc_pd(pd);
	ibv_close_device(other);
	assert_int_equal(call_create_qp(&b), 0);
	fails(call_create_qp(&b), EINVAL); /* it has one */
	cq = b.id->recv_cq;
	assert_non_null(cq);
	ex.comp_mask = IBV_SRQ_INIT_ATTR_PD;
	fails(rdma_create_srq_ex(b.id, &ex), EINVAL); /* of which type? */
	bed_close(&b);
}

static void rdma_get_cm_event__judges_its_arguments(void **state)
{
	fails(rdma_get_cm_event(channel, NULL), EINVAL);
	fails(rdma_ack_cm_event(NULL), EINVAL);
}

/* The channel of a synchronous id is its own. */
static void rdma_migrate_id__judges_the_channel(void **state)
{
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), 0);
	fails(rdma_migrate_id(id, NULL), EINVAL);
	assert_int_equal(rdma_migrate_id(id, channel), 0);
	assert_ptr_equal(id->channel, channel);
	assert_int_equal(rdma_migrate_id(id, NULL), 0);
	assert_ptr_not_equal(id->channel, channel);
	assert_int_equal(rdma_destroy_id(id), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rdma_calls__answer_by_the_state_of_the_id),
		cmocka_unit_test(rdma_calls__say_eio_when_the_device_has_gone),
		cmocka_unit_test(rdma_get_devices__follows_devices_that_go_and_come),
		cmocka_unit_test_setup_teardown(rdma_create_id__takes_known_port_spaces, begin,
						end),
		cmocka_unit_test_setup_teardown(rdma_bind_addr__judges_the_address, begin, end),
		cmocka_unit_test_setup_teardown(rdma_resolve_addr__judges_both_addresses, begin,
						end),
		cmocka_unit_test(rdma_connect__bounds_private_data),
		cmocka_unit_test(rdma_accept__bounds_private_data),
		cmocka_unit_test(rdma_reject__bounds_private_data),
		cmocka_unit_test(rdma_connect__bounds_the_depths_to_the_device),
		cmocka_unit_test_setup_teardown(rdma_set_option__judges_size_and_name, begin, end),
		cmocka_unit_test(rdma_create_qp__judges_queue_pair_and_domain),
		cmocka_unit_test_setup_teardown(rdma_get_cm_event__judges_its_arguments, begin,
						end),
		cmocka_unit_test_setup_teardown(rdma_migrate_id__judges_the_channel, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
