/* addrinfo_test.c: rdma_getaddrinfo as rdma-core's answers, and endpoints made of its answers. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/sa.h>
#include <rdma/rdma_verbs.h>

#include "cm.h"


/* ---- answers --------------------------------------------------------------------------------- */

static const struct lookup {
	const char *node, *service;
	int flags, family, qp_type, port_space; /* hints */
	int result;
	int got_qp_type, got_port_space, got_family;
	uint16_t port;
	bool source; /* the address is the source */
} lookups[] = {
	{ "127.0.0.1", "7471", 0, 0, 0, 0, 0, IBV_QPT_RC, RDMA_PS_TCP, AF_INET, 7471, false },
	{ "127.0.0.1", NULL, 0, 0, 0, 0, 0, IBV_QPT_RC, RDMA_PS_TCP, AF_INET, 0, false },
	{ "::1", "80", 0, 0, 0, RDMA_PS_TCP, 0, IBV_QPT_RC, RDMA_PS_TCP, AF_INET6, 80, false },
	{ "::1", "80", 0, 0, IBV_QPT_UD, RDMA_PS_UDP, 0, IBV_QPT_UD, RDMA_PS_UDP, AF_INET6, 80,
	  false },
	/* what one hint leaves open the other says */
	{ "127.0.0.1", "5", 0, 0, IBV_QPT_UD, 0, 0, IBV_QPT_UD, RDMA_PS_UDP, AF_INET, 5, false },
	{ "127.0.0.1", "5", 0, 0, 0, RDMA_PS_UDP, 0, IBV_QPT_UD, RDMA_PS_UDP, AF_INET, 5, false },
	{ "127.0.0.1", "5", 0, 0, IBV_QPT_UD, RDMA_PS_IB, 0, IBV_QPT_UD, RDMA_PS_IB, AF_INET, 5,
	  false },
	{ "127.0.0.1", "5", 0, 0, IBV_QPT_XRC_SEND, RDMA_PS_IB, 0, IBV_QPT_XRC_SEND, RDMA_PS_IB,
	  AF_INET, 5, false },
	{ NULL, "7471", RAI_PASSIVE, AF_INET, 0, RDMA_PS_TCP, 0, IBV_QPT_RC, RDMA_PS_TCP, AF_INET,
	  7471, true },
	{ NULL, "7471", RAI_PASSIVE | RAI_FAMILY, AF_INET6, 0, RDMA_PS_TCP, 0, IBV_QPT_RC,
	  RDMA_PS_TCP, AF_INET6, 7471, true },
	{ "127.0.0.1", "7", RAI_NUMERICHOST | RAI_NOROUTE, 0, 0, RDMA_PS_TCP, 0, IBV_QPT_RC,
	  RDMA_PS_TCP, AF_INET, 7, false },
	{ "localhost", "7", RAI_NUMERICHOST, 0, 0, RDMA_PS_TCP, EAI_NONAME, 0, 0, 0, 0, false },
	{ "localhost", "7", RAI_NUMERICHOST | RAI_PASSIVE, 0, 0, RDMA_PS_TCP, EAI_NONAME, 0, 0, 0,
	  0, true },
	{ "127.0.0.1", "no such service", 0, 0, 0, RDMA_PS_TCP, EAI_SERVICE, 0, 0, 0, 0, false },
	{ "127.0.0.1", "7", 0, 99, 0, RDMA_PS_TCP, EAI_FAMILY, 0, 0, 0, 0, false },
	{ "127.0.0.1", "7", 0, 0, IBV_QPT_UD, RDMA_PS_TCP, EAI_SOCKTYPE, 0, 0, 0, 0, false },
};

static uint16_t port_of(const struct sockaddr *addr)
{
	return ntohs(addr->sa_family == AF_INET ? ((const struct sockaddr_in *)addr)->sin_port
						: ((const struct sockaddr_in6 *)addr)->sin6_port);
}

static void lookup_judge(const struct lookup *l, const struct rdma_addrinfo *res)
{
	const struct sockaddr *addr = l->source ? res->ai_src_addr : res->ai_dst_addr;

	assert_int_equal(res->ai_flags, l->source ? RAI_PASSIVE : 0);
	assert_int_equal(res->ai_qp_type, l->got_qp_type);
	assert_int_equal(res->ai_port_space, l->got_port_space);
	assert_int_equal(res->ai_family, l->got_family);
	assert_non_null(addr);
	assert_null(l->source ? res->ai_dst_addr : res->ai_src_addr);
	assert_int_equal(l->source ? res->ai_src_len : res->ai_dst_len,
			 l->got_family == AF_INET ? sizeof(struct sockaddr_in)
						  : sizeof(struct sockaddr_in6));
	assert_int_equal(addr->sa_family, l->got_family);
	assert_int_equal(port_of(addr), l->port);
	assert_null(res->ai_route);
	assert_int_equal(res->ai_route_len, 0);
	assert_null(res->ai_connect);
	assert_null(res->ai_next);
}

static void rdma_getaddrinfo__answers_as_the_hints_say(void **state)
{
	for (size_t i = 0; i < sizeof(lookups) / sizeof(lookups[0]); i++) {
		const struct lookup *l = &lookups[i];
		struct rdma_addrinfo hints = { .ai_flags = l->flags,
					       .ai_family = l->family,
					       .ai_qp_type = l->qp_type,
					       .ai_port_space = l->port_space };
		struct rdma_addrinfo *res = NULL;
		int result = rdma_getaddrinfo(l->node, l->service, &hints, &res);

		if (result != l->result)
			print_error("lookup %zu: %s\n", i, gai_strerror(result));
		assert_int_equal(result, l->result);
		if (result == 0)
			lookup_judge(l, res);
		else
			assert_null(res);
		rdma_freeaddrinfo(res);
	}
}

static void rdma_getaddrinfo__needs_something_to_look_for(void **state)
{
	struct rdma_addrinfo *res;

	fails(rdma_getaddrinfo(NULL, NULL, NULL, &res), EINVAL);
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "7471", NULL, &res), 0);
	assert_int_equal(res->ai_qp_type, IBV_QPT_RC);
	assert_int_equal(res->ai_port_space, RDMA_PS_TCP);
	rdma_freeaddrinfo(res);
	rdma_freeaddrinfo(NULL);
}

/* Addresses that the caller has already are handed back as copies. */
static void rdma_getaddrinfo__copies_the_addresses_of_the_hints(void **state)
{
	struct sockaddr_in from = { .sin_family = AF_INET, .sin_port = htons(1) };
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(2) };
	struct rdma_addrinfo hints = { .ai_flags = RAI_NOROUTE,
				       .ai_family = AF_INET,
				       .ai_qp_type = IBV_QPT_RC,
				       .ai_port_space = RDMA_PS_TCP,
				       .ai_src_len = sizeof(from),
				       .ai_src_addr = (struct sockaddr *)&from,
				       .ai_dst_len = sizeof(to),
				       .ai_dst_addr = (struct sockaddr *)&to };
	struct rdma_addrinfo *res;

	assert_int_equal(rdma_getaddrinfo(NULL, NULL, &hints, &res), 0);
	assert_int_equal(res->ai_flags, RAI_NOROUTE);
	assert_ptr_not_equal(res->ai_src_addr, &from);
	assert_memory_equal(res->ai_src_addr, &from, sizeof(from));
	assert_memory_equal(res->ai_dst_addr, &to, sizeof(to));
	rdma_freeaddrinfo(res);
	/* with a name, the source of the hints still counts */
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "3", &hints, &res), 0);
	assert_memory_equal(res->ai_src_addr, &from, sizeof(from));
	assert_int_equal(port_of(res->ai_dst_addr), 3);
	rdma_freeaddrinfo(res);
}

/* ---- endpoints ------------------------------------------------------------------------------- */

static struct rdma_cm_id *listen_at(enum rdma_port_space ps)
{
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(channel, &id, NULL, ps), 0);
	assert_int_equal(rdma_bind_addr(id, local(0)), 0);
	assert_int_equal(rdma_listen(id, 4), 0);
	return id;
}

static struct rdma_addrinfo *look_up(const struct rdma_cm_id *listener)
{
	struct rdma_addrinfo hints = { .ai_port_space = listener->ps }, *res;
	char port[8];

	snprintf(port, sizeof(port), "%d",
		 ntohs(rdma_get_src_port((struct rdma_cm_id *)listener)));
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", port, &hints, &res), 0);
	return res;
}

/* What a name service that knows the path would have added to the answer. */
static void add_route(struct rdma_addrinfo *res)
{
	struct ibv_path_data *data = calloc(2, sizeof(*data));
	const struct ibv_sa_path_rec *path;
	struct rdma_cm_id *id;

	assert_non_null(data);
	assert_int_equal(rdma_create_ep(&id, res, NULL, NULL), 0);
	path = id->route.path_rec;
	data[0].flags = IBV_PATH_FLAG_ALTERNATE; /* not the one that is taken */
	data[1] = (struct ibv_path_data){
		.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL,
		.path = { .dgid = path->dgid,
			  .sgid = path->sgid,
			  .flowlabel_hoplimit = htobe32(0x12345 << 8 | path->hop_limit),
			  .tclass = 0x60,
			  .reversible_numpath = 0x81,
			  .pkey = path->pkey,
			  .qosclass_sl = htobe16(0x123),
			  .mtu = (uint8_t)(2 << 6 | path->mtu),
			  .rate = (uint8_t)(2 << 6 | path->rate),
			  .packetlifetime = 2 << 6 | 15 },
	};
	rdma_destroy_ep(id);
	res->ai_route = data;
	res->ai_route_len = 2 * sizeof(*data);
}

static void rdma_create_ep__takes_the_route_of_the_answer(void **state)
{
	struct rdma_cm_id *listener = listen_at(RDMA_PS_TCP), *id;
	struct rdma_addrinfo *res = look_up(listener);

	add_route(res);
	assert_int_equal(rdma_create_ep(&id, res, NULL, NULL), 0);
	assert_int_equal(id->route.num_paths, 1);
	assert_int_equal(be32toh(id->route.path_rec->flow_label), 0x12345);
	assert_int_equal(id->route.path_rec->traffic_class, 0x60);
	assert_int_equal(id->route.path_rec->sl, 3);
	assert_int_equal(id->route.path_rec->packet_life_time, 15);
	rdma_destroy_ep(id);
	res->ai_route_len = sizeof(struct ibv_path_data); /* no path that is for all */
	fails(rdma_create_ep(&id, res, NULL, NULL), EINVAL);
	res->ai_route_len++;
	fails(rdma_create_ep(&id, res, NULL, NULL), EINVAL);
	rdma_freeaddrinfo(res);
	rdma_destroy_id(listener);
}

static void *refuse(void *arg)
{
	struct rdma_cm_event *event = event_of(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;

	memcpy(arg, event->param.conn.private_data, 56);
	rdma_ack_cm_event(event);
	rdma_reject(id, NULL, 0);
	rdma_destroy_id(id);
	return NULL;
}

/* ai_connect goes in front of the private data, once. */
static void rdma_create_ep__sends_the_data_of_the_answer(void **state)
{
	static const char mine[50] = "mine";
	struct rdma_cm_id *listener = listen_at(RDMA_PS_TCP), *id;
	struct rdma_conn_param param = { .private_data = mine, .private_data_len = 5 };
	struct rdma_addrinfo *res = look_up(listener);
	char request[56];
	pthread_t thread;

	res->ai_connect = strdup("theirs+");
	res->ai_connect_len = 7;
	assert_int_equal(rdma_create_ep(&id, res, NULL, NULL), 0);
	assert_int_equal(pthread_create(&thread, NULL, refuse, request), 0);
	fails(rdma_connect(id, &param), ECONNREFUSED);
	pthread_join(thread, NULL);
	assert_string_equal(request, "theirs+mine");
	rdma_destroy_ep(id);
	assert_int_equal(rdma_create_ep(&id, res, NULL, NULL), 0);
	param.private_data_len = sizeof(mine);
	fails(rdma_connect(id, &param), EINVAL); /* 57 bytes together */
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(res);
	rdma_destroy_id(listener);
}

/* A call that waits says the status of a datagram answer, as its event would. */
static void rdma_connect__fails_where_a_datagram_service_refuses(void **state)
{
	struct rdma_cm_id *listener = listen_at(RDMA_PS_UDP), *id;
	struct rdma_addrinfo *res = look_up(listener);
	struct rdma_conn_param param = { .private_data = "mine", .private_data_len = 5 };
	char request[56];
	pthread_t thread;

	assert_int_equal(rdma_create_ep(&id, res, NULL, NULL), 0);
	assert_int_equal(pthread_create(&thread, NULL, refuse, request), 0);
	fails(rdma_connect(id, &param), 2); /* IB_SIDR_REJECT */
	pthread_join(thread, NULL);
	assert_string_equal(request, "mine");
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(res);
	rdma_destroy_id(listener);
}

/* The IB port space has queue pairs of any type. */
static void rdma_create_ep__takes_the_type_of_the_answer(void **state)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_IB, .ai_qp_type = IBV_QPT_UD };
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 }
	};
	struct rdma_addrinfo *res;
	struct rdma_cm_id *id;

	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "9", &hints, &res), 0);
	assert_int_equal(rdma_create_ep(&id, res, NULL, &init), 0);
	assert_int_equal(id->qp_type, IBV_QPT_UD);
	assert_int_equal(id->qp->qp_type, IBV_QPT_UD);
	assert_int_equal(id->qp->state, IBV_QPS_RTS);
	assert_int_equal(id->ps, RDMA_PS_IB);
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(res);
}

/* Failures leave nothing behind, and say the errno of the step that failed. */
static void rdma_create_ep__says_why_it_fails(void **state)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *res;
	struct rdma_cm_id *id;

	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "9", &hints, &res), 0);
	res->ai_port_space = 0x7777;
	fails(rdma_create_ep(&id, res, NULL, NULL), EINVAL);
	res->ai_port_space = RDMA_PS_TCP;
	res->ai_flags = RAI_PASSIVE; /* without a source */
	fails(rdma_create_ep(&id, res, NULL, NULL), EINVAL);
	res->ai_flags = 0;
	res->ai_dst_addr->sa_family = AF_UNIX;
	fails(rdma_create_ep(&id, res, NULL, NULL), EINVAL);
	rdma_freeaddrinfo(res);
}

/* ---- names ----------------------------------------------------------------------------------- */

static void rdma_event_str__names_every_event(void **state)
{
	const char *name;

	for (int i = 0; i <= RDMA_CM_EVENT_TIMEWAIT_EXIT; i++) {
		name = rdma_event_str((enum rdma_cm_event_type)i);
		assert_int_equal(strncmp(name, "RDMA_CM_EVENT_", 14), 0);
	}
	assert_string_equal(rdma_event_str((enum rdma_cm_event_type)16), "UNKNOWN EVENT");
	assert_string_equal(rdma_event_str((enum rdma_cm_event_type)-1), "UNKNOWN EVENT");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rdma_getaddrinfo__answers_as_the_hints_say),
		cmocka_unit_test_setup_teardown(rdma_getaddrinfo__needs_something_to_look_for,
						begin, end),
		cmocka_unit_test(rdma_getaddrinfo__copies_the_addresses_of_the_hints),
		cmocka_unit_test_setup_teardown(rdma_create_ep__takes_the_route_of_the_answer,
						begin, end),
		cmocka_unit_test_setup_teardown(rdma_create_ep__sends_the_data_of_the_answer, begin,
						end),
		cmocka_unit_test_setup_teardown(
			rdma_connect__fails_where_a_datagram_service_refuses, begin, end),
		cmocka_unit_test(rdma_create_ep__takes_the_type_of_the_answer),
		cmocka_unit_test(rdma_create_ep__says_why_it_fails),
		cmocka_unit_test(rdma_event_str__names_every_event),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
