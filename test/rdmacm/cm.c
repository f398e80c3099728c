/* cm.c: channels, addresses and events for the tests of librdmacm.
 * In:    -    Out: -    Runs: the test's thread
 */
#include "cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

struct rdma_event_channel *channel;

int begin(void **state)
{
	channel = rdma_create_event_channel();
	return channel == NULL ? -1 : 0;
}

int end(void **state)
{
	rdma_destroy_event_channel(channel);
	return 0;
}

struct sockaddr *local(int port)
{
	static struct sockaddr_in sin;

	sin = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return (struct sockaddr *)&sin;
}

struct sockaddr *address_of(const char *device, int port)
{
	static const uint8_t mapped[12] = { [10] = 0xff, 0xff };
	static struct sockaddr_in sin;
	struct ibv_context **list = rdma_get_devices(NULL);
	union ibv_gid gid;

	assert_non_null(list);
	sin = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	for (int i = 0; list[i] != NULL; i++) {
		if (strcmp(ibv_get_device_name(list[i]->device), device) != 0)
			continue;
		for (int at = 0; ibv_query_gid(list[i], 1, at, &gid) == 0; at++)
			if (memcmp(gid.raw, mapped, sizeof(mapped)) == 0)
				memcpy(&sin.sin_addr, gid.raw + 12, 4);
	}
	rdma_free_devices(list);
	assert_int_not_equal(sin.sin_addr.s_addr, 0);
	return (struct sockaddr *)&sin;
}

struct rdma_cm_event *event_of(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct pollfd p = { .fd = ch->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	assert_int_equal(poll(&p, 1, EVENT_MS), 1);
	assert_int_equal(rdma_get_cm_event(ch, &event), 0);
	assert_string_equal(rdma_event_str(event->event), rdma_event_str(type));
	return event;
}

void expect(enum rdma_cm_event_type type, struct rdma_cm_id *id)
{
	struct rdma_cm_event *event = event_of(channel, type);

	assert_ptr_equal(event->id, id);
	assert_int_equal(event->status, 0);
	assert_int_equal(rdma_ack_cm_event(event), 0);
}

void fails(int result, int error)
{
	assert_int_equal(result, -1);
	assert_int_equal(errno, error);
}

/* ---- the two ends of a connection ------------------------------------------------------------ */

void make_listener(struct ends *e, enum rdma_port_space ps)
{
	memset(e, 0, sizeof(*e));
	assert_int_equal(rdma_create_id(channel, &e->listener, e, ps), 0);
	assert_int_equal(rdma_bind_addr(e->listener, local(0)), 0);
	assert_int_equal(rdma_listen(e->listener, 8), 0);
	assert_int_not_equal(rdma_get_src_port(e->listener), 0);
}

void resolve(struct rdma_cm_id *id, int port)
{
	assert_int_equal(rdma_resolve_addr(id, NULL, local(port), 1000), 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED, id);
	assert_int_equal(rdma_resolve_route(id, 1000), 0);
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED, id);
}

void make_client(struct ends *e, enum rdma_port_space ps)
{
	assert_int_equal(rdma_create_id(channel, &e->client, NULL, ps), 0);
	resolve(e->client, ntohs(rdma_get_src_port(e->listener)));
}

void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = id->qp_type,
		.sq_sig_all = 1,
	};

	assert_int_equal(rdma_create_qp(id, NULL, &init), 0);
	assert_non_null(id->qp);
	assert_non_null(id->pd);
	assert_non_null(id->send_cq);
	assert_non_null(id->recv_cq_channel);
	assert_ptr_equal(id->send_cq->channel, id->send_cq_channel);
}

void destroy(struct rdma_cm_id *id)
{
	if (id == NULL)
		return;
	rdma_destroy_qp(id);
	assert_int_equal(rdma_destroy_id(id), 0);
}

void destroy_all(struct ends *e)
{
	destroy(e->client);
	destroy(e->server);
	destroy(e->listener);
}
