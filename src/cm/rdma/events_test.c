/* events_test.c: ids of the RDMA CM over an IB CM that sends nothing: each event in each state,
 * events out of order, consumers that want their id destroyed, calls inside handlers, and
 * requests that cannot be.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cm/rdma/test_support/consumer.h"

enum { SEEDS = 300, STEPS = 60, IDS = 6, CM_EVENTS = IB_CM_SIDR_REP_RECEIVED + 1 };

/* ---- events ---------------------------------------------------------------------------------- */

static u8 message[256];
static struct ib_sa_path_rec message_path;

static struct ib_cm_event make_event(enum ib_cm_event_type type)
{
	struct ib_cm_event event = { .event = type, .private_data = message };

	if (type == IB_CM_REQ_RECEIVED)
		event.param.req_rcvd = (struct ib_cm_req_event_param){
			.port = 1, .primary_path = &message_path, .qp_type = IB_QPT_RC
		};
	event.private_data_len = type == IB_CM_REQ_RECEIVED ? IB_CM_REQ_PRIVATE_DATA_SIZE : 136;
	if (type == IB_CM_SIDR_REQ_RECEIVED) {
		event.private_data_len = IB_CM_SIDR_REQ_PRIVATE_DATA_SIZE;
		event.param.sidr_req_rcvd = (struct ib_cm_sidr_req_event_param){
			.port = 1, .sgid = message_path.dgid, .dgid = message_path.sgid
		};
	}
	return event;
}

/* A good header of a request. */
static void message_header(void)
{
	struct rdma_addr addr = { .pkey = 0xffff };

	memset(message, 0, sizeof(message));
	cma_addr_from_gid(&addr.src_addr, &adapter->gids[1]);
	cma_addr_from_gid(&addr.dst_addr, &adapter->gids[0]);
	cma_header_write(message, &addr);
	message_path = (struct ib_sa_path_rec){ .sgid = adapter->gids[0],
						.dgid = adapter->gids[1] };
}

/* A request for the listener. True: it was refused, and its id is gone. */
static bool request(struct rdma_cm_id *listener, enum ib_cm_event_type type)
{
	struct ib_cm_id *on = consumer_listener_ib(listener);
	struct ib_cm_id *ib = ib_create_cm_id(on->device, on->cm_handler, on->context);
	struct ib_cm_event event = make_event(type);

	return fake_cm_event(ib, &event);
}

enum { NOTHING = -1 };

/* What a consumer hears of each event while its id connects, and that nothing but the end of
 * timewait comes after a side has left. */
static const struct {
	enum ib_cm_event_type event;
	int connecting, disconnected;
} told[] = {
	{ IB_CM_REQ_ERROR, RDMA_CM_EVENT_UNREACHABLE, NOTHING },
	{ IB_CM_REQ_RECEIVED, NOTHING, NOTHING },
	{ IB_CM_REP_ERROR, RDMA_CM_EVENT_UNREACHABLE, NOTHING },
	{ IB_CM_REP_RECEIVED, RDMA_CM_EVENT_CONNECT_RESPONSE, NOTHING },
	{ IB_CM_RTU_RECEIVED, RDMA_CM_EVENT_ESTABLISHED, NOTHING },
	{ IB_CM_USER_ESTABLISHED, RDMA_CM_EVENT_ESTABLISHED, NOTHING },
	{ IB_CM_DREQ_ERROR, RDMA_CM_EVENT_DISCONNECTED, NOTHING },
	{ IB_CM_DREQ_RECEIVED, RDMA_CM_EVENT_DISCONNECTED, NOTHING },
	{ IB_CM_DREP_RECEIVED, RDMA_CM_EVENT_DISCONNECTED, NOTHING },
	{ IB_CM_TIMEWAIT_EXIT, NOTHING, RDMA_CM_EVENT_TIMEWAIT_EXIT },
	{ IB_CM_MRA_RECEIVED, NOTHING, NOTHING },
	{ IB_CM_REJ_RECEIVED, RDMA_CM_EVENT_REJECTED, NOTHING },
	{ IB_CM_LAP_ERROR, NOTHING, NOTHING },
	{ IB_CM_LAP_RECEIVED, NOTHING, NOTHING },
	{ IB_CM_APR_RECEIVED, NOTHING, NOTHING },
	{ IB_CM_SIDR_REQ_ERROR, RDMA_CM_EVENT_UNREACHABLE, NOTHING },
	{ IB_CM_SIDR_REQ_RECEIVED, NOTHING, NOTHING },
	{ IB_CM_SIDR_REP_RECEIVED, RDMA_CM_EVENT_ESTABLISHED, NOTHING },
};

static void judge_event(struct rdma_cm_id *id, enum ib_cm_event_type type, int want, int answer)
{
	struct ib_cm_event event = make_event(type);
	bool gone;

	consumer.count = 0;
	consumer.answer = answer;
	gone = fake_cm_event(consumer_ib(id), &event);
	consumer.answer = 0;
	assert_int_equal(consumer.count, want == NOTHING ? 0 : 1);
	if (want != NOTHING)
		assert_int_equal(consumer.seen[0], want);
	assert_int_equal(gone, answer != 0 && want != NOTHING);
	if (!gone)
		rdma_destroy_id(id);
	assert_int_equal(consumer_ids(), 0);
	assert_int_equal(fake_cm.ids, 0);
}

/* Each event once while connecting and once after; then with a consumer that wants its id gone. */
static void cma_ib_event__tells_what_the_state_allows(void **state)
{
	for (u32 i = 0; i < ARRAY_LEN(told); i++) {
		for (int answer = 0; answer < 2; answer++) {
			judge_event(consumer_connecting(RDMA_PS_TCP), told[i].event,
				    told[i].connecting, answer);
			judge_event(consumer_disconnected(), told[i].event, told[i].disconnected,
				    answer);
		}
	}
}

/* Both sides leave at once, and everything of it comes twice. */
static void cma_ib_event__tells_each_end_once(void **state)
{
	static const enum ib_cm_event_type order[] = {
		IB_CM_REP_RECEIVED,  IB_CM_DREQ_RECEIVED, IB_CM_DREP_RECEIVED, IB_CM_DREQ_RECEIVED,
		IB_CM_REJ_RECEIVED,  IB_CM_RTU_RECEIVED,  IB_CM_DREQ_ERROR,    IB_CM_TIMEWAIT_EXIT,
	};
	struct rdma_cm_id *id = consumer_connecting(RDMA_PS_TCP);
	struct ib_cm_event event;

	for (u32 i = 0; i < ARRAY_LEN(order); i++) {
		event = make_event(order[i]);
		assert_false(fake_cm_event(consumer_ib(id), &event));
	}
	assert_int_equal(consumer.count, 3);
	assert_int_equal(consumer.seen[0], RDMA_CM_EVENT_CONNECT_RESPONSE);
	assert_int_equal(consumer.seen[1], RDMA_CM_EVENT_DISCONNECTED);
	assert_int_equal(consumer.seen[2], RDMA_CM_EVENT_TIMEWAIT_EXIT);
	rdma_destroy_id(id);
}

/* A consumer that takes its time with the REP is given it; the CM's own queue pair needs none. */
static void cma_ib_event__a_rep_may_wait(void **state)
{
	struct rdma_cm_id *id = consumer_connecting(RDMA_PS_TCP);
	struct ib_cm_event event = make_event(IB_CM_REP_RECEIVED);

	assert_false(fake_cm_event(consumer_ib(id), &event));
	assert_int_equal(consumer.seen[0], RDMA_CM_EVENT_CONNECT_RESPONSE);
	assert_int_equal(fake_cm.calls[FAKE_MRA], 1);
	rdma_destroy_id(id);
}

/* The vector that leads to a datagram peer is the path's. */
static void cma_ib_event__tells_the_way_to_a_datagram_peer(void **state)
{
	struct rdma_cm_id *id = consumer_connecting(RDMA_PS_UDP);
	struct ib_cm_event event = make_event(IB_CM_SIDR_REP_RECEIVED);
	const struct ib_global_route *grh = &consumer.ah.grh;

	assert_false(fake_cm_event(consumer_ib(id), &event));
	assert_int_equal(consumer.seen[consumer.count - 1], RDMA_CM_EVENT_ESTABLISHED);
	assert_memory_equal(&grh->dgid, &adapter->gids[1], sizeof(grh->dgid));
	assert_int_equal(grh->flow_label, 0x12345);
	assert_int_equal(grh->traffic_class, 0x20);
	assert_int_equal(grh->hop_limit, 9);
	assert_int_equal(consumer.ah.port_num, 1);
	rdma_destroy_id(id);
}

/* An id whose route cannot be asked for is as it was: RoCE has none for an address of AF_IB. */
static void rdma_resolve_route__leaves_the_id_as_it_was(void **state)
{
	struct rdma_cm_id *id = consumer_make(RDMA_PS_TCP);
	sa_family_t *family = &id->route.addr.src_addr.ss_family;

	consumer_resolve(id);
	*family = AF_IB;
	for (int i = 0; i < 2; i++)
		assert_int_equal(rdma_resolve_route(id, 1000), -ENODEV);
	*family = AF_INET;
	assert_int_equal(rdma_resolve_route(id, 1000), 0);
	assert_int_equal(rdma_resolve_route(id, 1000), -EINVAL);
	rdma_destroy_id(id);
}

static void cma_ib_event__passes_on_the_status(void **state)
{
	struct rdma_cm_id *id = consumer_connecting(RDMA_PS_TCP);
	struct ib_cm_event event = make_event(IB_CM_REJ_RECEIVED);

	event.param.rej_rcvd.reason = IB_CM_REJ_STALE_CONN;
	assert_false(fake_cm_event(consumer_ib(id), &event));
	assert_int_equal(consumer.status[0], IB_CM_REJ_STALE_CONN);
	event = make_event(IB_CM_REQ_ERROR);
	assert_false(fake_cm_event(consumer_ib(id), &event));
	assert_int_equal(consumer.status[1], -ETIMEDOUT);
	rdma_destroy_id(id);
	id = consumer_connecting(RDMA_PS_UDP);
	event = make_event(IB_CM_SIDR_REP_RECEIVED);
	event.param.sidr_rep_rcvd.status = IB_SIDR_NO_QP;
	assert_false(fake_cm_event(consumer_ib(id), &event));
	assert_int_equal(consumer.seen[2], RDMA_CM_EVENT_UNREACHABLE);
	assert_int_equal(consumer.status[2], IB_SIDR_NO_QP);
	rdma_destroy_id(id);
}

/* ---- the id's queue pair --------------------------------------------------------------------- */

static struct destroyer {
	pthread_t thread;
	struct rdma_cm_id *id;
	int begun; /* atomic */
} destroyer;

static void *destroyer_run(void *arg)
{
	__atomic_store_n(&destroyer.begun, 1, __ATOMIC_RELEASE);
	rdma_destroy_qp(destroyer.id);
	return NULL;
}

/* Inside a modification that the CM makes: the consumer gives the queue pair up, and is soon done
 * if nothing holds it. */
static void destroyer_begin(struct ib_qp *qp)
{
	int objects = fake_count(&adapter->objects);

	adapter->on_modify_qp = NULL;
	assert_int_equal(pthread_create(&destroyer.thread, NULL, destroyer_run, NULL), 0);
	assert_true(fake_await(&destroyer.begun, 1));
	usleep(20000);
	assert_int_equal(fake_count(&adapter->objects), objects);
}

static void rdma_destroy_qp__waits_for_the_cms_modification(void **state)
{
	struct ib_qp_init_attr init = { .qp_type = IB_QPT_RC };
	struct rdma_conn_param param = { .retry_count = 7 };
	struct rdma_cm_id *id = consumer_make(RDMA_PS_TCP);
	struct ib_cm_event event = make_event(IB_CM_REJ_RECEIVED);
	struct ib_pd *pd;

	consumer_route(id);
	pd = ib_alloc_pd(&adapter->ib);
	init.send_cq = init.recv_cq = ib_create_cq(&adapter->ib, NULL, NULL, NULL, 1, 0);
	assert_int_equal(rdma_create_qp(id, pd, &init), 0);
	assert_int_equal(rdma_connect(id, &param), 0);
	destroyer = (struct destroyer){ .id = id };
	adapter->on_modify_qp = destroyer_begin;
	assert_false(fake_cm_event(consumer_ib(id), &event));
	assert_int_equal(pthread_join(destroyer.thread, NULL), 0);
	assert_null(id->qp);
	rdma_destroy_id(id);
	ib_destroy_cq(init.send_cq);
	ib_dealloc_pd(pd);
}

/* ---- calls that the IB CM refuses ------------------------------------------------------------ */

static void rdma_connect__leaves_the_id_as_it_was(void **state)
{
	struct rdma_conn_param param = { .qp_num = 7 };
	struct rdma_cm_id *id = consumer_make(RDMA_PS_TCP);

	consumer_route(id);
	fake_cm.fail[FAKE_REQ] = -ENOMEM;
	assert_int_equal(rdma_connect(id, &param), -ENOMEM);
	assert_int_equal(fake_cm.ids, 0);
	fake_cm.fail_create = -ENODEV;
	assert_int_equal(rdma_connect(id, &param), -ENODEV);
	fake_cm.fail_create = fake_cm.fail[FAKE_REQ] = 0;
	assert_int_equal(rdma_connect(id, &param), 0);
	assert_int_equal(rdma_connect(id, &param), -EINVAL);
	assert_int_equal(fake_cm.calls[FAKE_REQ], 2);
	rdma_destroy_id(id);
}

static void rdma_accept__refuses_what_it_cannot_accept(void **state)
{
	struct rdma_conn_param param = { .qp_num = 7 };
	struct rdma_cm_id *listener = consumer_listener(), *id;

	message_header();
	assert_false(request(listener, IB_CM_REQ_RECEIVED));
	id = consumer.last;
	assert_ptr_not_equal(id, listener);
	fake_cm.fail[FAKE_REP] = -EINVAL;
	assert_int_equal(rdma_accept(id, &param), -EINVAL);
	assert_int_equal(fake_cm.calls[FAKE_REJ], 1);
	rdma_destroy_id(id);
	rdma_destroy_id(listener);
}

static void rdma_disconnect__answers_if_it_cannot_ask(void **state)
{
	struct rdma_cm_id *id = consumer_connecting(RDMA_PS_TCP);

	assert_int_equal(rdma_disconnect(id), 0);
	assert_int_equal(fake_cm.calls[FAKE_DREP], 0);
	fake_cm.fail[FAKE_DREQ] = fake_cm.fail[FAKE_DREP] = -EINVAL;
	assert_int_equal(rdma_disconnect(id), 0);
	assert_int_equal(fake_cm.calls[FAKE_DREP], 1);
	rdma_destroy_id(id);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Its header names an address that is not its path's. */
static void cma_request__refuses_one_from_elsewhere(void **state)
{
	struct rdma_cm_id *listener = consumer_listener();

	for (int datagram = 0; datagram < 2; datagram++) {
		enum ib_cm_event_type type = datagram ? IB_CM_SIDR_REQ_RECEIVED
						      : IB_CM_REQ_RECEIVED;

		message_header();
		assert_false(request(listener, type));
		rdma_destroy_id(consumer.last);
		message_path.dgid = adapter->gids[2];
		assert_true(request(listener, type));
		message_path.dgid = adapter->gids[1];
		message[CMA_HEADER - 1] ^= 0x40; /* of the listener's address */
		assert_true(request(listener, type));
		assert_int_equal(consumer.count, 1 + datagram);
		assert_int_equal(fake_cm.misnamed, 2 + 2 * datagram);
	}
	rdma_destroy_id(listener);
}

static void cma_request__makes_an_id_or_none(void **state)
{
	struct rdma_cm_id *listener = consumer_listener(), *id;

	message_header();
	assert_false(request(listener, IB_CM_REQ_RECEIVED));
	assert_int_equal(consumer.seen[0], RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(fake_cm.calls[FAKE_MRA], 1);
	id = consumer.last;
	assert_ptr_equal(id->context, &consumer);
	assert_ptr_equal(id->device, &adapter->ib);
	rdma_destroy_id(id);
	consumer.answer = 1; /* the consumer does not want it */
	assert_true(request(listener, IB_CM_REQ_RECEIVED));
	consumer.answer = 0;
	assert_int_equal(consumer.count, 2);
	assert_int_equal(consumer_ids(), 1);
	message[0] = 1; /* another version of the header */
	assert_true(request(listener, IB_CM_REQ_RECEIVED));
	message[0] = 0;
	message[1] = 0x50; /* another one of IP */
	assert_true(request(listener, IB_CM_REQ_RECEIVED));
	assert_int_equal(consumer.count, 2);
	assert_int_equal(consumer_ids(), 1);
	rdma_destroy_id(listener);
}

/* Two paths of a REQ are the route of its id; without the alternate one there is one. */
static void cma_request__has_the_paths_of_the_req(void **state)
{
	struct rdma_cm_id *listener = consumer_listener(), *id;
	struct ib_cm_id *on = consumer_listener_ib(listener), *ib;
	struct ib_sa_path_rec alternate = { .sgid = adapter->gids[2], .dgid = adapter->gids[3] };
	struct ib_cm_event event;

	message_header();
	for (int paths = 1; paths <= 2; paths++) {
		event = make_event(IB_CM_REQ_RECEIVED);
		event.param.req_rcvd.alternate_path = paths == 2 ? &alternate : NULL;
		ib = ib_create_cm_id(on->device, on->cm_handler, on->context);
		assert_false(fake_cm_event(ib, &event));
		id = consumer.last;
		assert_int_equal(id->route.num_paths, paths);
		assert_memory_equal(&id->route.path_rec[0], &message_path, sizeof(message_path));
		if (paths == 2)
			assert_memory_equal(&id->route.path_rec[1], &alternate, sizeof(alternate));
		rdma_destroy_id(id);
	}
	rdma_destroy_id(listener);
}

static int call_accept(struct rdma_cm_id *id)
{
	struct rdma_conn_param param = { .qp_num = 7 };

	return rdma_accept(id, &param);
}

static int call_disconnect(struct rdma_cm_id *id)
{
	return rdma_disconnect(id);
}

static int call_reject(struct rdma_cm_id *id)
{
	return rdma_reject(id, "no", 2, IB_CM_REJ_CONSUMER_DEFINED);
}

/* A consumer may answer inside its handler. */
static void cma_request__lets_the_handler_answer(void **state)
{
	struct rdma_cm_id *listener = consumer_listener();

	message_header();
	consumer.call = call_accept;
	assert_false(request(listener, IB_CM_REQ_RECEIVED));
	assert_int_equal(consumer.called, 0);
	assert_int_equal(fake_cm.calls[FAKE_REP], 1);
	rdma_destroy_id(consumer.last);
	consumer.call = call_reject;
	consumer.answer = 1;
	assert_true(request(listener, IB_CM_REQ_RECEIVED));
	assert_int_equal(consumer.called, 0);
	assert_int_equal(fake_cm.calls[FAKE_REJ], 1);
	consumer.call = NULL;
	consumer.answer = 0;
	rdma_destroy_id(listener);
}

static void cma_ib_event__lets_the_handler_leave(void **state)
{
	struct rdma_cm_id *id = consumer_connecting(RDMA_PS_TCP);
	struct ib_cm_event event = make_event(IB_CM_DREQ_RECEIVED);

	consumer.call = call_disconnect;
	consumer.answer = 1;
	fake_cm.fail[FAKE_DREQ] = -EINVAL;
	assert_true(fake_cm_event(consumer_ib(id), &event));
	assert_int_equal(consumer.called, 0);
	assert_int_equal(fake_cm.calls[FAKE_DREP], 1);
}

/* A server whose client's RTU was lost, and the client's DREQ was not. */
static void cma_ib_event__of_a_dreq_without_an_rtu(void **state)
{
	static const enum ib_cm_event_type order[] = { IB_CM_DREQ_RECEIVED, IB_CM_DREQ_RECEIVED,
						       IB_CM_RTU_RECEIVED };
	struct rdma_cm_id *listener = consumer_listener(), *id;
	struct ib_cm_event event;

	message_header();
	assert_false(request(listener, IB_CM_REQ_RECEIVED));
	id = consumer.last;
	assert_int_equal(call_accept(id), 0);
	for (u32 i = 0; i < ARRAY_LEN(order); i++) {
		event = make_event(order[i]);
		assert_false(fake_cm_event(consumer_ib(id), &event));
	}
	assert_int_equal(consumer.count, 3);
	assert_int_equal(consumer.seen[1], RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(consumer.seen[2], RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_id(id);
	/* one that wants its id gone hears no more */
	assert_false(request(listener, IB_CM_REQ_RECEIVED));
	id = consumer.last;
	assert_int_equal(call_accept(id), 0);
	consumer.answer = 1;
	event = make_event(IB_CM_DREQ_RECEIVED);
	assert_true(fake_cm_event(consumer_ib(id), &event));
	consumer.answer = 0;
	assert_int_equal(consumer.count, 5);
	assert_int_equal(consumer.seen[4], RDMA_CM_EVENT_ESTABLISHED);
	rdma_destroy_id(listener);
}

/* An RTU that came is told once. */
static void cma_ib_event__of_a_dreq_behind_an_rtu(void **state)
{
	static const enum ib_cm_event_type order[] = { IB_CM_RTU_RECEIVED, IB_CM_DREQ_RECEIVED };
	struct rdma_cm_id *listener = consumer_listener();
	struct ib_cm_event event;

	message_header();
	assert_false(request(listener, IB_CM_REQ_RECEIVED));
	assert_int_equal(call_accept(consumer.last), 0);
	for (u32 i = 0; i < ARRAY_LEN(order); i++) {
		event = make_event(order[i]);
		assert_false(fake_cm_event(consumer_ib(consumer.last), &event));
	}
	assert_int_equal(consumer.count, 3);
	assert_int_equal(consumer.seen[2], RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_id(consumer.last);
	rdma_destroy_id(listener);
}

/* ---- the end of ids and devices -------------------------------------------------------------- */

static struct rdma_cm_id *victim;

static int call_destroy_victim(struct rdma_cm_id *id)
{
	rdma_destroy_id(victim);
	return 0;
}

/* A thread of the parent has the id's turn when it forks: nobody gives it back in the child. */
static void rdma_destroy_id__in_the_child_of_a_busy_id(void **state)
{
	struct rdma_cm_id *id = consumer_make(RDMA_PS_TCP);
	int status = 1;
	pid_t child;

	(void)state;
	assert_true(cma_enter_alive(cma_id(id)));
	child = fork();
	if (child == 0) {
		alarm(10);
		rdma_destroy_id(id);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	cma_leave(cma_id(id));
	rdma_destroy_id(id);
}

/* A handler may destroy another id than its own. */
static void rdma_destroy_id__of_another_id_in_a_handler(void **state)
{
	struct rdma_cm_id *id = consumer_connecting(RDMA_PS_TCP);
	struct ib_cm_event event = make_event(IB_CM_REP_RECEIVED);

	victim = consumer_connecting(RDMA_PS_TCP);
	consumer.call = call_destroy_victim;
	assert_false(fake_cm_event(consumer_ib(id), &event));
	consumer.call = NULL;
	assert_int_equal(consumer_ids(), 1);
	assert_int_equal(fake_cm.ids, 1);
	rdma_destroy_id(id);
}

static int waits, go_on; /* atomic */

static int call_wait(struct rdma_cm_id *id)
{
	__atomic_store_n(&waits, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&go_on, __ATOMIC_ACQUIRE) == 0)
		usleep(1000);
	return 0;
}

static void *send_event(void *ib)
{
	struct ib_cm_event event = make_event(IB_CM_REP_RECEIVED);

	(void)fake_cm_event(ib, &event);
	return NULL;
}

static int destroyed; /* atomic */

static void *destroy_thread(void *id)
{
	rdma_destroy_id(id);
	__atomic_store_n(&destroyed, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* Of a handler that runs: the id is destroyed when it has returned. */
static void rdma_destroy_id__waits_for_the_handler(void **state)
{
	struct rdma_cm_id *id = consumer_make(RDMA_PS_TCP);
	/* the IB CM's destroys wait, too: not asked */
	struct ib_cm_id *ib = calloc(1, sizeof(*ib));
	pthread_t threads[2];

	consumer_route(id);
	assert_true(cma_move(cma_id(id), CMA_ROUTE_RESOLVED, CMA_CONNECT));
	ib->context = id;
	ib->cm_handler = cma_ib_event;
	waits = go_on = destroyed = 0;
	consumer.call = call_wait;
	pthread_create(&threads[0], NULL, send_event, ib);
	while (__atomic_load_n(&waits, __ATOMIC_ACQUIRE) == 0)
		usleep(1000);
	pthread_create(&threads[1], NULL, destroy_thread, id);
	usleep(20000);
	assert_int_equal(__atomic_load_n(&destroyed, __ATOMIC_ACQUIRE), 0);
	__atomic_store_n(&go_on, 1, __ATOMIC_RELEASE);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	assert_int_equal(destroyed, 1);
	assert_int_equal(consumer.count, 1);
	consumer.call = NULL;
	free(ib);
}

/* ---- anything, in any order ------------------------------------------------------------------ */

static u32 dice_state;

static u32 dice(u32 sides)
{
	dice_state = dice_state * 1664525 + 1013904223;
	return (dice_state >> 16) % sides;
}

static struct rdma_cm_id *ids[IDS];

/* A handler that wants its id destroyed now and then, and takes new ones. */
static int handle_anything(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	bool ends = dice(4) == 0;

	for (int i = 0; i < IDS; i++) {
		if (ids[i] != id)
			continue;
		if (ends)
			ids[i] = NULL;
		return ends;
	}
	for (int i = 1; i < IDS && !ends; i++) {
		if (ids[i] != NULL)
			continue;
		ids[i] = id;
		return 0;
	}
	return 1; /* no room for a new one */
}

static void step_call(int at)
{
	struct rdma_conn_param param = { .qp_num = 7 };
	struct rdma_cm_id *id = ids[at];

	switch (dice(7)) {
	case 0:
		(void)rdma_connect(id, &param);
		return;
	case 1:
		(void)rdma_accept(id, dice(2) ? &param : NULL);
		return;
	case 2:
		(void)rdma_reject(id, NULL, 0, IB_CM_REJ_CONSUMER_DEFINED);
		return;
	case 3:
		(void)rdma_disconnect(id);
		return;
	case 4:
		(void)rdma_notify(id, IB_EVENT_COMM_EST);
		return;
	case 5:
		(void)rdma_listen(id, 1);
		return;
	default:
		ids[at] = NULL;
		rdma_destroy_id(id);
	}
}

static void step(void)
{
	int at = (int)dice(IDS);
	struct ib_cm_event event;

	if (ids[at] == NULL) {
		ids[at] = rdma_create_id(handle_anything, NULL, RDMA_PS_TCP, IB_QPT_RC);
		if (dice(2))
			consumer_route(ids[at]);
		return;
	}
	for (int i = 0; i < FAKE_CALLS; i++)
		fake_cm.fail[i] = dice(8) == 0 ? -EINVAL : 0;
	if (consumer_ib(ids[at]) != NULL && dice(2)) {
		event = make_event((enum ib_cm_event_type)dice(CM_EVENTS));
		(void)fake_cm_event(consumer_ib(ids[at]), &event);
	} else if (cma_is_in(cma_id(ids[at]), CMA_LISTEN) && dice(2)) {
		(void)request(ids[at], dice(2) ? IB_CM_REQ_RECEIVED : IB_CM_SIDR_REQ_RECEIVED);
	} else {
		step_call(at);
	}
}

/* Whatever comes, in whatever order: every id that is left can be destroyed, and then nothing
 * is. */
static void rdma_calls__and_events_in_any_order(void **state)
{
	message_header();
	for (u32 seed = 1; seed <= SEEDS; seed++) {
		dice_state = seed;
		for (int i = 0; i < STEPS; i++)
			step();
		for (int i = 0; i < IDS; i++) {
			if (ids[i] != NULL)
				rdma_destroy_id(ids[i]);
			ids[i] = NULL;
		}
		assert_int_equal(consumer_ids(), 0);
		assert_int_equal(fake_cm.ids, 0);
	}
}

#define ADAPTER_TEST(name) cmocka_unit_test_setup_teardown(name, consumer_open, consumer_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ADAPTER_TEST(cma_ib_event__tells_what_the_state_allows),
		ADAPTER_TEST(cma_ib_event__tells_each_end_once),
		ADAPTER_TEST(cma_ib_event__passes_on_the_status),
		ADAPTER_TEST(cma_ib_event__tells_the_way_to_a_datagram_peer),
		ADAPTER_TEST(rdma_resolve_route__leaves_the_id_as_it_was),
		ADAPTER_TEST(cma_ib_event__a_rep_may_wait),
		ADAPTER_TEST(rdma_destroy_qp__waits_for_the_cms_modification),
		ADAPTER_TEST(rdma_connect__leaves_the_id_as_it_was),
		ADAPTER_TEST(rdma_accept__refuses_what_it_cannot_accept),
		ADAPTER_TEST(rdma_disconnect__answers_if_it_cannot_ask),
		ADAPTER_TEST(cma_request__refuses_one_from_elsewhere),
		ADAPTER_TEST(cma_request__makes_an_id_or_none),
		ADAPTER_TEST(cma_request__has_the_paths_of_the_req),
		ADAPTER_TEST(cma_request__lets_the_handler_answer),
		ADAPTER_TEST(cma_ib_event__lets_the_handler_leave),
		ADAPTER_TEST(cma_ib_event__of_a_dreq_without_an_rtu),
		ADAPTER_TEST(cma_ib_event__of_a_dreq_behind_an_rtu),
		ADAPTER_TEST(rdma_destroy_id__in_the_child_of_a_busy_id),
		ADAPTER_TEST(rdma_destroy_id__of_another_id_in_a_handler),
		ADAPTER_TEST(rdma_destroy_id__waits_for_the_handler),
		ADAPTER_TEST(rdma_calls__and_events_in_any_order),
	};

	alarm(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
