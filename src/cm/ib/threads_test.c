/* threads_test.c: the CM under threads: ids are made, connected, left and destroyed at any moment,
 * while the instance's own thread calls handlers. For ThreadSanitizer above all.
 *
 * MADs arrive inside the call that sends them: two instances, one after the other.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cm/ib/cm_priv.h"

enum { THREADS = 4, ROUNDS = 150, SERVICE = 0x4242, WAIT_MS = 20000 };

struct host {
	struct cm_device dev; /* first */
	struct ib_device ib;
	struct work_queue queue;
	struct cm *cm;
	struct host *peer;
	union ib_gid gid;
} OWNED_BY(the test);

static struct host hosts[2];

static void threads_send(struct cm_device *dev, const struct cm_route *route, const u8 *mad)
{
	struct host *to = ((struct host *)dev)->peer;
	struct cm_arrival a = { .back = *route, .mad = mad, .length = CM_MAD_BYTES };

	a.back.ah.grh.dgid = ((struct host *)dev)->gid;
	a.sgid = ((struct host *)dev)->gid;
	a.dgid = to->gid;
	cm_receive(&to->dev, &a);
}

static int threads_find_gid(struct cm_device *dev, const union ib_gid *gid, u8 *port, u16 *index)
{
	*port = 1;
	*index = 0;
	return memcmp(&((struct host *)dev)->gid, gid, 16) == 0 ? 0 : -ENOENT;
}

static int threads_find_pkey(struct cm_device *dev, u8 port, u16 pkey, u16 *index)
{
	(void)dev;
	(void)port;
	(void)pkey;
	*index = 0;
	return 0;
}

static const struct cm_device_ops threads_ops = {
	.send = threads_send,
	.find_gid = threads_find_gid,
	.find_pkey = threads_find_pkey,
};

/* ---- consumers ------------------------------------------------------------------------------- */

struct call {
	int events; /* atomic */
	int ended;  /* atomic: rejected, or the peer has left */
	bool connected; /* the handler's */
} OWNED_BY(the test);

static int server_handler(struct ib_cm_id *id, struct ib_cm_event *event)
{
	struct ib_cm_rep_param rep = { .qp_num = 0x99 };

	switch (event->event) {
	case IB_CM_REQ_RECEIVED:
		rep.qp_num = event->param.req_rcvd.remote_qpn;
		return ib_send_cm_rep(id, &rep);
	case IB_CM_DREQ_RECEIVED:
		(void)ib_send_cm_drep(id, NULL, 0);
		return 1;
	case IB_CM_REJ_RECEIVED:
	case IB_CM_REP_ERROR:
	case IB_CM_DREQ_ERROR:
	case IB_CM_TIMEWAIT_EXIT:
		return 1;
	default:
		return 0;
	}
}

static int client_handler(struct ib_cm_id *id, struct ib_cm_event *event)
{
	struct call *call = id->context;

	if (event->event == IB_CM_REP_RECEIVED)
		call->connected = ib_send_cm_rtu(id, NULL, 0) == 0;
	else
		__atomic_store_n(&call->ended, 1, __ATOMIC_RELEASE);
	__atomic_fetch_add(&call->events, 1, __ATOMIC_RELEASE);
	return 0;
}

static void await(const int *value)
{
	for (int i = 0; i < WAIT_MS * 10; i++) {
		if (__atomic_load_n(value, __ATOMIC_ACQUIRE) != 0)
			return;
		clock_sleep_ns(100 * NS_PER_US);
	}
	fail_msg("nothing has come");
}

static void connect_once(u32 thread, u32 round)
{
	struct ib_sa_path_rec path = { .sgid = hosts[0].gid,
				       .dgid = hosts[1].gid,
				       .hop_limit = 64,
				       .mtu = IB_MTU_1024,
				       .packet_life_time = 1 };
	struct ib_cm_req_param req = { .primary_path = &path,
				       .service_id = htobe64(SERVICE),
				       .qp_num = thread << 16 | (round + 1),
				       .qp_type = IB_QPT_RC,
				       .remote_cm_response_timeout = 18,
				       .local_cm_response_timeout = 18,
				       .max_cm_retries = 15 };
	struct call call = { 0 };
	struct ib_cm_id *id = ib_create_cm_id(&hosts[0].ib, client_handler, &call);

	assert_false(IS_ERR(id));
	assert_int_equal(ib_send_cm_req(id, &req), 0);
	if (round % 5 != 0) /* else it goes at once */
		await(&call.events);
	if (round % 3 == 0 && ib_send_cm_dreq(id, NULL, 0) == 0 && round % 6 == 3)
		await(&call.ended);
	ib_destroy_cm_id(id);
}

static void *threads_connect(void *arg)
{
	for (u32 i = 0; i < ROUNDS; i++)
		connect_once((u32)(size_t)arg + 1, i);
	return NULL;
}

static void hosts_open(void)
{
	for (u32 i = 0; i < 2; i++) {
		struct host *h = &hosts[i];

		work_queue_init(&h->queue, "cm test", false);
		h->cm = cm_create(&h->queue, i * 100);
		assert_non_null(h->cm);
		h->peer = &hosts[1 - i];
		h->gid.raw[15] = (u8)(i + 1);
		h->ib.node_guid = htobe64(i + 1);
		h->dev = (struct cm_device){ .ib = &h->ib,
					     .ops = &threads_ops,
					     .id_bits = (i + 1) << CM_ID_BITS };
		cm_device_add(h->cm, &h->dev);
	}
}

static void hosts_close(void)
{
	for (u32 i = 0; i < 2; i++) {
		for (int t = 0; cm_id_count(hosts[i].cm) > 0; t++) {
			assert_true(t < WAIT_MS);
			clock_sleep_ns(NS_PER_MS);
		}
		cm_device_remove(&hosts[i].dev);
		work_queue_flush(&hosts[i].queue);
		cm_destroy(hosts[i].cm);
	}
}

static void threads__make_and_end_connections(void **state)
{
	struct ib_cm_id *listener;
	pthread_t threads[THREADS];

	(void)state;
	hosts_open();
	listener = ib_create_cm_id(&hosts[1].ib, server_handler, NULL);
	assert_int_equal(ib_cm_listen(listener, htobe64(SERVICE), 0, NULL), 0);
	for (size_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, threads_connect, (void *)i), 0);
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ib_destroy_cm_id(listener);
	hosts_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads__make_and_end_connections),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
