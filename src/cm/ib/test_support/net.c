/* net.c: a network of hosts with a CM each, in virtual time. */
#include "cm/ib/test_support/net.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct net net;

struct net_mad {
	struct list_head link;
	u64 at;
	u32 to, from;
	u8 mad[CM_MAD_BYTES];
} OWNED_BY(the test);

static u64 net_clock(void)
{
	return net.now;
}

u32 net_random(u32 below)
{
	net.random ^= net.random << 13;
	net.random ^= net.random >> 7;
	net.random ^= net.random << 17;
	return (u32)((net.random >> 11) % below);
}

/* ---- the wire -------------------------------------------------------------------------------- */

static struct cm_route net_route_to(u32 host)
{
	return (struct cm_route){
		.ah = { .ah_flags = IB_AH_GRH,
			.port_num = 1,
			.grh = { .dgid = net.hosts[host].gid,
				 .sgid_index = NET_GID_INDEX,
				 .hop_limit = 64 } },
		.pkey_index = NET_PKEY_INDEX,
	};
}

static void net_fly(u32 to, u32 from, const u8 *mad)
{
	struct net_mad *m = malloc(sizeof(*m));
	struct list_head *before = &net.flying;

	assert_non_null(m);
	m->at = net.now + net.delay_min_ns;
	if (net.delay_max_ns > net.delay_min_ns)
		m->at += net_random((u32)(net.delay_max_ns - net.delay_min_ns));
	m->to = to;
	m->from = from;
	memcpy(m->mad, mad, CM_MAD_BYTES);
	list_for_each(other, &net.flying, struct net_mad, link) {
		if (other->at > m->at) {
			before = &other->link;
			break;
		}
	}
	list_insert(&m->link, before->prev, before);
}

static void net_send(struct cm_device *dev, const struct cm_route *route, const u8 *mad)
{
	u32 from = (u32)((struct net_host *)dev - net.hosts), to = 0;
	enum cm_attr attr = (enum cm_attr)(mad[16] << 8 | mad[17]);

	if (net.hosts[from].dead)
		return;
	memcpy(net.last, mad, CM_MAD_BYTES);
	net.sent[attr]++;
	assert_int_equal(route->ah.grh.sgid_index, NET_GID_INDEX);
	assert_int_equal(route->pkey_index, NET_PKEY_INDEX);
	assert_int_equal(route->ah.port_num, 1);
	while (to < NET_HOSTS && memcmp(&net.hosts[to].gid, &route->ah.grh.dgid, 16) != 0)
		to++;
	if (to == NET_HOSTS)
		return;
	if (net.drop_attr == attr && net.drop_count > 0) {
		net.drop_count--;
		return;
	}
	if (net.cut || net_random(100) < net.loss_percent)
		return;
	net_fly(to, from, mad);
	if (net_random(100) < net.duplicate_percent)
		net_fly(to, from, mad);
}

void net_inject(u32 to, u32 from, const u8 *mad, u32 length)
{
	struct cm_arrival a = { .back = net_route_to(from),
				.sgid = net.hosts[from].gid,
				.dgid = net.hosts[to].gid,
				.mad = mad,
				.length = length };

	if (!net.hosts[to].dead)
		cm_receive(&net.hosts[to].dev, &a);
}

/* ---- a host ---------------------------------------------------------------------------------- */

static int net_find_gid(struct cm_device *dev, const union ib_gid *gid, u8 *port, u16 *index)
{
	if (memcmp(&((struct net_host *)dev)->gid, gid, 16) != 0)
		return -ENOENT;
	*port = 1;
	*index = NET_GID_INDEX;
	return 0;
}

static int net_find_pkey(struct cm_device *dev, u8 port, u16 pkey, u16 *index)
{
	(void)dev;
	if (port != 1 || pkey != 0xffff)
		return -ENOENT;
	*index = NET_PKEY_INDEX;
	return 0;
}

static int net_listen_op(struct cm_device *dev, u64 service_id, u64 mask,
			 const struct ib_cm_compare_data *compare, bool on)
{
	struct net_host *host = (struct net_host *)dev;

	(void)service_id;
	(void)mask;
	(void)compare;
	host->listens += on ? 1 : -1u;
	return 0;
}

static void net_will_op(struct cm_device *dev, u32 slot, const struct cm_route *route,
			const u8 *mad, const struct mad_connection *connection)
{
	struct net_host *host = (struct net_host *)dev;
	struct net_will *w = &host->wills[slot];

	assert_true(slot < NET_WILLS);
	assert_true(mad != NULL || w->set); /* what was never written is not taken back */
	w->set = mad != NULL;
	if (mad == NULL)
		return;
	for (u32 i = CM_WILL_BYTES; i < CM_MAD_BYTES; i++)
		assert_int_equal(mad[i], 0);
	w->route = *route;
	w->connection = *connection;
	memcpy(w->mad, mad, CM_MAD_BYTES);
}

u32 net_wills(u32 host)
{
	u32 count = 0;

	for (u32 i = 0; i < NET_WILLS; i++)
		count += net.hosts[host].wills[i].set;
	return count;
}

void net_kill(u32 host)
{
	struct net_host *h = &net.hosts[host];

	for (u32 i = 0; i < NET_WILLS; i++) {
		struct net_will *w = &h->wills[i];

		if (w->set)
			net_send(&h->dev, &w->route, w->mad);
	}
	h->dead = true;
}

static const struct cm_device_ops net_ops = {
	.send = net_send,
	.find_gid = net_find_gid,
	.find_pkey = net_find_pkey,
	.listen = net_listen_op,
	.will = net_will_op,
};

void net_open(u64 seed)
{
	memset(&net, 0, sizeof(net));
	net.now = NS_PER_S;
	net.random = seed * 0x9e3779b97f4a7c15 + 1;
	net.delay_min_ns = net.delay_max_ns = 10 * NS_PER_US;
	list_init(&net.flying);
	clock_set_source(net_clock);
	work_queue_init(&net.queue, "cm test", true);
	for (u32 i = 0; i < NET_HOSTS; i++) {
		struct net_host *h = &net.hosts[i];

		h->gid.raw[0] = 0xfe;
		h->gid.raw[15] = (u8)(i + 1);
		h->ib.node_guid = htobe64(0x1000 + i);
		h->cm = cm_create(&net.queue, net_random(1u << CM_ID_BITS));
		assert_non_null(h->cm);
		h->dev = (struct cm_device){ .ib = &h->ib,
					     .ops = &net_ops,
					     .id_bits = (i + 1) << CM_ID_BITS,
					     .hi_tid = (i + 1) << CM_ID_BITS };
		cm_device_add(h->cm, &h->dev);
	}
}

void net_close(void)
{
	struct list_head *link;

	for (u32 i = 0; i < NET_HOSTS; i++) {
		assert_int_equal(cm_id_count(net.hosts[i].cm), 0);
		assert_int_equal(net.hosts[i].listens, 0);
		assert_int_equal(net_wills(i), 0);
		cm_device_remove(&net.hosts[i].dev);
		cm_destroy(net.hosts[i].cm);
	}
	while ((link = list_pop_front(&net.flying)) != NULL)
		free(list_entry(link, struct net_mad, link));
	timer_set_destroy(&net.queue.timers);
	clock_set_source(NULL);
}

/* ---- time ------------------------------------------------------------------------------------ */

static u64 net_next_ns(void)
{
	u64 next = work_queue_next_ns(&net.queue);

	if (!list_empty(&net.flying))
		next = MIN(next, list_first(&net.flying, struct net_mad, link)->at);
	return next;
}

static void net_arrive(void)
{
	while (!list_empty(&net.flying) &&
	       list_first(&net.flying, struct net_mad, link)->at <= net.now) {
		struct net_mad *m = list_entry(list_pop_front(&net.flying), struct net_mad, link);

		net_inject(m->to, m->from, m->mad, CM_MAD_BYTES);
		free(m);
	}
}

/* One step to what happens next, at `end` at the latest. False: that is reached. */
static bool net_step(u64 end)
{
	u64 next = net_next_ns();

	if (next > end) {
		net.now = end;
		return false;
	}
	net.now = MAX(net.now, next);
	net_arrive();
	work_queue_run(&net.queue, net.now);
	return true;
}

void net_run_for(u64 ns)
{
	u64 end = net.now + ns;

	while (net_step(end))
		;
}

bool net_run_until(const bool *flag, u64 ns)
{
	u64 end = net.now + ns;

	while (!*flag && net_step(end))
		;
	return *flag;
}

/* ---- ids ------------------------------------------------------------------------------------- */

struct ib_sa_path_rec net_path(u32 from, u32 to)
{
	return (struct ib_sa_path_rec){ .dgid = net.hosts[to].gid,
					.sgid = net.hosts[from].gid,
					.hop_limit = 64,
					.reversible = 1,
					.pkey = htobe16(0xffff),
					.mtu_selector = IB_SA_EQ,
					.mtu = IB_MTU_1024,
					.rate_selector = IB_SA_EQ,
					.rate = IB_RATE_100_GBPS,
					.packet_life_time_selector = IB_SA_EQ,
					.packet_life_time = 10 };
}

struct ib_cm_req_param net_req(struct ib_sa_path_rec *path, u64 service_id)
{
	return (struct ib_cm_req_param){ .primary_path = path,
					 .service_id = htobe64(service_id),
					 .qp_num = 0x100 + net_random(1 << 20),
					 .qp_type = IB_QPT_RC,
					 .starting_psn = 0x123456,
					 .responder_resources = 4,
					 .initiator_depth = 3,
					 .remote_cm_response_timeout = 13,
					 .local_cm_response_timeout = 13,
					 .retry_count = 7,
					 .rnr_retry_count = 6,
					 .max_cm_retries = 15 };
}

/* A copy of what the event points at, for after the handler. */
static void net_keep(struct net_end *end, const struct ib_cm_event *event)
{
	end->last = *event;
	end->seen[event->event]++;
	end->total++;
	if (event->private_data != NULL)
		memcpy(end->private_data, event->private_data, event->private_data_len);
	if (event->event == IB_CM_REQ_RECEIVED) {
		end->primary = *event->param.req_rcvd.primary_path;
		if (event->param.req_rcvd.alternate_path != NULL)
			end->alternate = *event->param.req_rcvd.alternate_path;
	} else if (event->event == IB_CM_REJ_RECEIVED) {
		memcpy(end->info, event->param.rej_rcvd.ari, sizeof(end->info));
	} else if (event->event == IB_CM_APR_RECEIVED) {
		memcpy(end->info, event->param.apr_rcvd.apr_info, sizeof(end->info));
	} else if (event->event == IB_CM_SIDR_REP_RECEIVED) {
		memcpy(end->info, event->param.sidr_rep_rcvd.info, sizeof(end->info));
	} else if (event->event == IB_CM_LAP_RECEIVED) {
		end->alternate = *event->param.lap_rcvd.alternate_path;
	}
}

int net_handler(struct ib_cm_id *cm_id, struct ib_cm_event *event)
{
	struct net_end *end = cm_id->context;

	if (end->child != NULL && end->id != cm_id) { /* a request for the listener */
		end = end->child;
		end->id = cm_id;
		cm_id->context = end;
	}
	assert_ptr_equal(end->id, cm_id);
	net_keep(end, event);
	if (end->act != NULL)
		end->act(end, event);
	if (end->result != 0)
		end->id = NULL;
	return end->result;
}

struct net_end net_end_create(u32 host)
{
	struct net_end end = { .id = ib_create_cm_id(&net.hosts[host].ib, net_handler, NULL) };

	assert_false(IS_ERR(end.id));
	return end;
}

struct net_end net_listen(u32 host, u64 service_id, struct net_end *child)
{
	struct net_end end = net_end_create(host);

	end.child = child;
	assert_int_equal(ib_cm_listen(end.id, htobe64(service_id), 0, NULL), 0);
	return end;
}

void net_end_bind(struct net_end *end)
{
	end->id->context = end;
}

/* ---- the usual three ------------------------------------------------------------------------- */

void net_trio_open(struct net_trio *trio, u64 seed, u64 service_id)
{
	net_open(seed);
	memset(trio, 0, sizeof(*trio));
	trio->client = net_end_create(0);
	net_end_bind(&trio->client);
	trio->listener = net_listen(1, service_id, &trio->server);
	net_end_bind(&trio->listener);
}

void net_trio_close(struct net_trio *trio)
{
	struct net_end *ends[] = { &trio->client, &trio->server, &trio->listener };

	net.cut = false;
	net.loss_percent = 0;
	net.drop_count = 0;
	for (u32 i = 0; i < ARRAY_LEN(ends); i++) {
		if (ends[i]->id != NULL)
			ib_destroy_cm_id(ends[i]->id);
		ends[i]->id = NULL;
	}
	net_run_for(20 * NS_PER_S);
	net_close();
}
