/* addrinfo_test.c: rdma_getaddrinfo as rdma-core's answers, and endpoints made of its answers. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/sa.h>
#include <rdma/rdma_verbs.h>

#include "cm.h"

/* Of newer headers. */
enum { EVENT_ADDRINFO_RESOLVED = 16, EVENT_ADDRINFO_ERROR, EVENT_USER, EVENT_INTERNAL };
enum { SA = 0x10, DNS = 0x20 }; /* of ai_flags */
int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);
int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
			  const struct rdma_addrinfo *hints);
int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
			uint64_t arg);

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

/* ---- answers by an event --------------------------------------------------------------------- */

/* The id's next event: its status, and the 64 bits that newer headers call param.arg. */
static int status_of(struct rdma_cm_id *id, int type, uint64_t *arg)
{
	struct rdma_cm_event *event = event_of(channel, (enum rdma_cm_event_type)type);
	int status = event->status;

	assert_ptr_equal(event->id, id);
	memcpy(arg, &event->param, sizeof(*arg));
	assert_int_equal(rdma_ack_cm_event(event), 0);
	return status;
}

static void expect_info(struct rdma_cm_id *id, const struct rdma_addrinfo *wanted)
{
	struct rdma_addrinfo *info;

	assert_int_equal(rdma_query_addrinfo(id, &info), 0);
	assert_int_equal(info->ai_family, wanted->ai_family);
	assert_int_equal(info->ai_qp_type, wanted->ai_qp_type);
	assert_int_equal(info->ai_port_space, wanted->ai_port_space);
	assert_int_equal(info->ai_src_len, wanted->ai_src_len);
	assert_int_equal(info->ai_dst_len, wanted->ai_dst_len);
	assert_memory_equal(info->ai_dst_addr, wanted->ai_dst_addr, wanted->ai_dst_len);
	assert_null(info->ai_next);
	rdma_freeaddrinfo(info);
}

static void rdma_resolve_addrinfo__answers_by_an_event(void **state)
{
	struct rdma_addrinfo hints = { .ai_flags = DNS, .ai_port_space = RDMA_PS_TCP }, *wanted;
	struct rdma_addrinfo *info;
	struct rdma_cm_id *id;
	uint64_t arg;

	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	fails(rdma_query_addrinfo(id, &info), ENODATA);
	errno = ENOTBLK;
	assert_int_equal(rdma_resolve_addrinfo(id, "127.0.0.1", "7471", &hints), 0);
	assert_int_equal(errno, ENOTBLK);
	assert_int_equal(status_of(id, EVENT_ADDRINFO_RESOLVED, &arg), 0);
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &wanted), 0);
	expect_info(id, wanted);
	expect_info(id, wanted);
	rdma_freeaddrinfo(wanted);
	/* the next answer takes its place, and leads on */
	assert_int_equal(rdma_resolve_addrinfo(id, "127.0.0.1", "7472", NULL), 0);
	assert_int_equal(status_of(id, EVENT_ADDRINFO_RESOLVED, &arg), 0);
	assert_int_equal(rdma_query_addrinfo(id, &info), 0);
	assert_int_equal(port_of(info->ai_dst_addr), 7472);
	assert_int_equal(rdma_resolve_addr(id, NULL, info->ai_dst_addr, 1000), 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED, id);
	rdma_freeaddrinfo(info);
	destroy(id);
}

static void rdma_resolve_addrinfo__says_why_there_is_none(void **state)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST }, *info;
	struct rdma_cm_id *id, *sync;
	uint64_t arg;

	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addrinfo(id, "127.0.0.1", "7471", NULL), 0);
	assert_int_equal(status_of(id, EVENT_ADDRINFO_RESOLVED, &arg), 0);
	assert_int_equal(rdma_resolve_addrinfo(id, "localhost", "7471", &hints), 0);
	assert_int_equal(status_of(id, EVENT_ADDRINFO_ERROR, &arg), -EADDRNOTAVAIL);
	fails(rdma_query_addrinfo(id, &info), ENODATA); /* that of the earlier call has gone */
	assert_int_equal(rdma_create_id(NULL, &sync, NULL, RDMA_PS_TCP), 0);
	fails(rdma_resolve_addrinfo(sync, "localhost", "7471", &hints), EADDRNOTAVAIL);
	assert_int_equal(rdma_resolve_addrinfo(sync, "127.0.0.1", "7471", NULL), 0);
	assert_int_equal(rdma_query_addrinfo(sync, &info), 0);
	rdma_freeaddrinfo(info);
	destroy(sync);
	destroy(id);
}

/* What the resolver says in place of an answer, and errno behind it; 0: it answers. */
static int resolver_says, resolver_errno;

/* In the C library's place. */
__attribute__((visibility("default"))) int getaddrinfo(const char *node, const char *service,
						       const struct addrinfo *hints,
						       struct addrinfo **out)
{
	static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

	if (resolver_says != 0) {
		errno = resolver_errno;
		return resolver_says;
	}
	if (real == NULL)
		*(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
	return real(node, service, hints, out);
}

static int status_if(struct rdma_cm_id *id, int says, int err)
{
	uint64_t arg;

	resolver_says = says;
	resolver_errno = err;
	assert_int_equal(rdma_resolve_addrinfo(id, "127.0.0.1", "7471", NULL), 0);
	resolver_says = 0;
	return status_of(id, EVENT_ADDRINFO_ERROR, &arg);
}

static void rdma_resolve_addrinfo__says_what_the_resolver_says(void **state)
{
	struct rdma_cm_id *id, *sync;
	struct rdma_addrinfo *info;

	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(status_if(id, EAI_AGAIN, 0), -EAGAIN);
	assert_int_equal(status_if(id, EAI_MEMORY, 0), -ENOMEM);
	assert_int_equal(status_if(id, EAI_SYSTEM, EMFILE), -EMFILE);
	assert_int_equal(status_if(id, EAI_SYSTEM, 0), -EADDRNOTAVAIL);
	assert_int_equal(status_if(id, EAI_BADFLAGS, 0), -EADDRNOTAVAIL);
	fails(rdma_query_addrinfo(id, &info), ENODATA);
	destroy(id);
	/* EPERM is -1, which of the CM's events says that errno tells */
	assert_int_equal(rdma_create_id(NULL, &sync, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_write_cm_event(sync, (enum rdma_cm_event_type)EVENT_USER, -EPERM, 0),
			 0);
	fails(rdma_resolve_addrinfo(sync, "127.0.0.1", "7471", NULL), EPERM);
	destroy(sync);
}

/* As Linux has it where no port has a subnet administration. */
static void rdma_resolve_addrinfo__asks_no_sa(void **state)
{
	struct rdma_addrinfo sa = { .ai_flags = SA }, both = { .ai_flags = SA | DNS }, *info;
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	fails(rdma_resolve_addrinfo(id, NULL, NULL, NULL), EINVAL);
	fails(rdma_resolve_addrinfo(NULL, "127.0.0.1", NULL, NULL), EINVAL);
	fails(rdma_resolve_addrinfo(id, NULL, "0x1", &sa), EINVAL); /* it has no device */
	assert_int_equal(rdma_bind_addr(id, address_of("roce0", 0)), 0);
	fails(rdma_resolve_addrinfo(id, NULL, "0x1", &sa), EOPNOTSUPP);
	fails(rdma_resolve_addrinfo(id, "127.0.0.1", "0x1", &sa), EOPNOTSUPP);
	fails(rdma_resolve_addrinfo(id, NULL, "0x1", &both), EOPNOTSUPP);
	fails(rdma_getaddrinfo(NULL, "0x1", &sa, &info), EOPNOTSUPP);
	fails(rdma_query_addrinfo(id, &info), ENODATA);
	destroy(id);
}

static void rdma_write_cm_event__comes_in_its_turn(void **state)
{
	struct rdma_cm_id *id;
	uint64_t arg = 0;

	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_write_cm_event(id, (enum rdma_cm_event_type)EVENT_USER, -7,
					     0x123456789abcdef0),
			 0);
	assert_int_equal(status_of(id, EVENT_USER, &arg), -7);
	assert_true(arg == 0x123456789abcdef0);
	assert_int_equal(rdma_resolve_addr(id, NULL, local(7471), 1000), 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED, id);
	assert_int_equal(rdma_write_cm_event(id, (enum rdma_cm_event_type)EVENT_USER, 0, 2), 0);
	for (int type = -1; type < 21; type++)
		if (type != EVENT_USER)
			fails(rdma_write_cm_event(id, (enum rdma_cm_event_type)type, 0, 0), EINVAL);
	destroy(id); /* with an event that nobody takes */
}

/* ---- events that another thread takes -------------------------------------------------------- */

enum { ANSWERS = 50, EINVAL_MS = 10000 };

/* Takes an answer, looks at it and destroys its id. NULL: the answer was not there. */
static void *take_answer(void *arg)
{
	struct rdma_cm_event *event;
	struct rdma_addrinfo *info = NULL;
	struct rdma_cm_id *id;
	bool resolved;
	int err;

	if (rdma_get_cm_event(channel, &event) != 0)
		return NULL;
	id = event->id;
	resolved = (int)event->event == EVENT_ADDRINFO_RESOLVED;
	err = rdma_query_addrinfo(id, &info);
	rdma_freeaddrinfo(info);
	rdma_ack_cm_event(event);
	rdma_destroy_id(id);
	return resolved == (err == 0) ? arg : NULL;
}

/* The answer is there when its event is, and the call touches the id no more. */
static void rdma_resolve_addrinfo__is_done_when_its_event_is_taken(void **state)
{
	struct rdma_addrinfo numeric = { .ai_flags = RAI_NUMERICHOST };
	struct rdma_cm_id *id;
	pthread_t thread;
	void *good;

	for (int i = 0; i < ANSWERS; i++) {
		assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
		assert_int_equal(pthread_create(&thread, NULL, take_answer, channel), 0);
		assert_int_equal(rdma_resolve_addrinfo(id, i % 2 ? "127.0.0.1" : "localhost",
						       "7471", &numeric),
				 0);
		assert_int_equal(pthread_join(thread, &good), 0);
		assert_non_null(good);
	}
}

/* Asks again and again until there is no answer. */
static void *query_on_and_on(void *arg)
{
	struct rdma_addrinfo *info;
	bool right = true;

	while (rdma_query_addrinfo(arg, &info) == 0) {
		right = right && port_of(info->ai_dst_addr) == 7471;
		rdma_freeaddrinfo(info);
	}
	return right && errno == ENODATA ? arg : NULL;
}

/* One answer takes the other's place while another thread copies it. */
static void rdma_query_addrinfo__beside_the_next_call(void **state)
{
	struct rdma_addrinfo numeric = { .ai_flags = RAI_NUMERICHOST };
	struct rdma_cm_id *id;
	pthread_t thread;
	uint64_t arg;
	void *good;

	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addrinfo(id, "127.0.0.1", "7471", &numeric), 0);
	assert_int_equal(pthread_create(&thread, NULL, query_on_and_on, id), 0);
	for (int i = 0; i < ANSWERS; i++) {
		assert_int_equal(status_of(id, EVENT_ADDRINFO_RESOLVED, &arg), 0);
		assert_int_equal(rdma_resolve_addrinfo(id, "127.0.0.1", "7471", &numeric), 0);
	}
	assert_int_equal(status_of(id, EVENT_ADDRINFO_RESOLVED, &arg), 0);
	assert_int_equal(rdma_resolve_addrinfo(id, "localhost", "7471", &numeric), 0);
	assert_int_equal(status_of(id, EVENT_ADDRINFO_ERROR, &arg), -EADDRNOTAVAIL);
	assert_int_equal(pthread_join(thread, &good), 0);
	assert_non_null(good);
	destroy(id);
}

static void *destroy_it(void *arg)
{
	return rdma_destroy_id(arg) == 0 ? arg : NULL;
}

/* A thread that holds an event may call for an id that another one destroys: what it writes is
 * withdrawn with the rest, or refused. */
static void rdma_write_cm_event__is_refused_once_the_id_ends(void **state)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	pthread_t thread;
	int err = 0;

	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, local(7471), 1000), 0);
	event = event_of(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(pthread_create(&thread, NULL, destroy_it, id), 0);
	for (int i = 0; i < EINVAL_MS && err == 0; i++) {
		err = rdma_write_cm_event(id, (enum rdma_cm_event_type)EVENT_USER, 0, 0);
		usleep(1000);
	}
	fails(err, EINVAL);
	assert_int_equal(rdma_ack_cm_event(event), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
	fails(rdma_get_cm_event(channel, &event), EAGAIN);
}

/* ---- names ----------------------------------------------------------------------------------- */

static void rdma_event_str__names_every_event(void **state)
{
	const char *name;

	for (int i = 0; i <= EVENT_INTERNAL; i++) {
		name = rdma_event_str((enum rdma_cm_event_type)i);
		assert_int_equal(strncmp(name, "RDMA_CM_EVENT_", 14), 0);
	}
	assert_string_equal(rdma_event_str((enum rdma_cm_event_type)20), "UNKNOWN EVENT");
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
		cmocka_unit_test_setup_teardown(rdma_resolve_addrinfo__answers_by_an_event, begin,
						end),
		cmocka_unit_test_setup_teardown(rdma_resolve_addrinfo__says_why_there_is_none,
						begin, end),
		cmocka_unit_test_setup_teardown(rdma_resolve_addrinfo__says_what_the_resolver_says,
						begin, end),
		cmocka_unit_test_setup_teardown(rdma_resolve_addrinfo__asks_no_sa, begin, end),
		cmocka_unit_test_setup_teardown(rdma_write_cm_event__comes_in_its_turn, begin, end),
		cmocka_unit_test_setup_teardown(
			rdma_resolve_addrinfo__is_done_when_its_event_is_taken, begin, end),
		cmocka_unit_test_setup_teardown(rdma_query_addrinfo__beside_the_next_call, begin,
						end),
		cmocka_unit_test_setup_teardown(rdma_write_cm_event__is_refused_once_the_id_ends,
						begin, end),
		cmocka_unit_test(rdma_event_str__names_every_event),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
