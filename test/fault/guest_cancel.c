/* guest_cancel.c: threads that are cancelled inside verbs.
 *
 * The cancellation is pending before the verb is called, so that its first cancellation point, if
 * it has one, ends the thread: every verb must return, but those that wait for an event.
 * In: the verbs    Out: status 0    Runs: a thread for each verb    Locks: none
 */
#include "guest.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static struct cancel {
	struct ibv_context *context;
	struct guest pair[2];
	struct guest_address to;
	struct ibv_qp *ud;
	struct ibv_ah *ah;
	struct ibv_srq *srq;
	struct ibv_mw *mw;
	union ibv_gid group;
} c;

static void verb_open(void)
{
	c.context = guest_open_device();
}

static void verb_create(void)
{
	guest_create(&c.pair[0], c.context);
}

static void verb_create_again(void)
{
	guest_create(&c.pair[1], c.context);
}

static void verb_connect(void)
{
	guest_connect_pair(&c.pair[0], &c.pair[1]);
}

static void verb_talk(void)
{
	guest_talk(&c.pair[0], &c.pair[1]);
	guest_talk(&c.pair[1], &c.pair[0]);
}

static void verb_create_ud(void)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD,
					 .cap = { 1, 1, 1, 1, 0 },
					 .send_cq = c.pair[0].cq,
					 .recv_cq = c.pair[0].cq };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1 };

	c.ud = ibv_create_qp(c.pair[0].pd, &init);
	guest_need(c.ud != NULL, "create_qp");
	guest_need(ibv_modify_qp(c.ud, &attr,
				 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					 IBV_QP_QKEY) == 0,
		   "modify_qp");
}

static void verb_attach_mcast(void)
{
	memcpy(c.group.raw, (uint8_t[16]){ 0xff, 0x15, [15] = 0x77 }, 16);
	guest_need(ibv_attach_mcast(c.ud, &c.group, 0) == 0, "attach_mcast");
}

static void verb_detach_mcast(void)
{
	guest_need(ibv_detach_mcast(c.ud, &c.group, 0) == 0, "detach_mcast");
}

static void verb_create_ah(void)
{
	struct ibv_ah_attr attr = { .is_global = 1,
				    .port_num = 1,
				    .grh = { .dgid = c.pair[1].gid, .hop_limit = 64 } };

	c.ah = ibv_create_ah(c.pair[0].pd, &attr);
	guest_need(c.ah != NULL, "create_ah");
}

static void verb_create_srq(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq_attr limit = { .srq_limit = 1 };

	c.srq = ibv_create_srq(c.pair[0].pd, &init);
	guest_need(c.srq != NULL, "create_srq");
	guest_need(ibv_modify_srq(c.srq, &limit, IBV_SRQ_LIMIT) == 0, "modify_srq");
	guest_need(ibv_query_srq(c.srq, &limit) == 0, "query_srq");
}

static void verb_windows(void)
{
	c.mw = ibv_alloc_mw(c.pair[0].pd, IBV_MW_TYPE_1);
	guest_need(c.mw != NULL && ibv_dealloc_mw(c.mw) == 0, "alloc_mw");
}

static void verb_queries(void)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	union ibv_gid gid;
	__be16 pkey;

	guest_need(ibv_query_device(c.context, &device) == 0, "query_device");
	guest_need(ibv_query_port(c.context, 1, &port) == 0, "query_port");
	guest_need(ibv_query_gid(c.context, 1, 1, &gid) == 0, "query_gid");
	guest_need(ibv_query_pkey(c.context, 1, 0, &pkey) == 0, "query_pkey");
	guest_need(ibv_query_qp(c.pair[0].qp, &attr, IBV_QP_STATE, &init) == 0, "query_qp");
}

static void verb_register(void)
{
	static uint8_t memory[1 << 16];
	struct ibv_mr *mr =
		ibv_reg_mr(c.pair[0].pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);

	guest_need(mr != NULL, "reg_mr");
	guest_need(ibv_dereg_mr(mr) == 0, "dereg_mr");
}

static void verb_queues(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(c.context);
	struct ibv_cq *cq = ibv_create_cq(c.context, 8, NULL, channel, 0);

	guest_need(channel != NULL && cq != NULL, "create_cq");
	guest_need(ibv_req_notify_cq(cq, 0) == 0, "req_notify_cq");
	guest_need(ibv_resize_cq(cq, 64) == 0, "resize_cq");
	guest_need(ibv_destroy_cq(cq) == 0, "destroy_cq");
	guest_need(ibv_destroy_comp_channel(channel) == 0, "destroy_comp_channel");
}

static void verb_list(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	guest_need(list != NULL && list[0] != NULL, "get_device_list");
	ibv_free_device_list(list);
}

static void verb_destroy(void)
{
	guest_need(ibv_destroy_ah(c.ah) == 0, "destroy_ah");
	guest_need(ibv_destroy_srq(c.srq) == 0, "destroy_srq");
	guest_need(ibv_destroy_qp(c.ud) == 0, "destroy_qp");
	guest_destroy(&c.pair[0]);
	guest_destroy(&c.pair[1]);
	guest_need(ibv_close_device(c.context) == 0, "close_device");
}

/* ---- threads ---- */

struct cancelled {
	void (*run)(void);
	bool returned;
};

static void *cancel_run(void *arg)
{
	struct cancelled *what = arg;

	pthread_cancel(pthread_self());
	what->run();
	what->returned = true;
	pthread_testcancel();
	return NULL;
}

/* Whether it has returned before the thread ended. */
static bool cancel_in(void (*run)(void))
{
	struct cancelled what = { run, false };
	pthread_t thread;
	void *end;

	guest_need(pthread_create(&thread, NULL, cancel_run, &what) == 0, "thread");
	guest_need(pthread_join(thread, &end) == 0 && end == PTHREAD_CANCELED, "join");
	return what.returned;
}

static void wait_cq_event(void)
{
	struct ibv_cq *cq;
	void *context;

	(void)ibv_get_cq_event(c.pair[0].channel, &cq, &context);
}

static void wait_async_event(void)
{
	struct ibv_async_event event;

	(void)ibv_get_async_event(c.context, &event);
}

static void cancel_all(void)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} verbs[] = {
		{ "get_device_list", verb_list },
		{ "open_device", verb_open },
		{ "first objects", verb_create },
		{ "objects", verb_create_again },
		{ "modify_qp", verb_connect },
		{ "post and poll", verb_talk },
		{ "create_qp", verb_create_ud },
		{ "attach_mcast", verb_attach_mcast },
		{ "detach_mcast", verb_detach_mcast },
		{ "create_ah", verb_create_ah },
		{ "create_srq", verb_create_srq },
		{ "alloc_mw", verb_windows },
		{ "queries", verb_queries },
		{ "reg_mr", verb_register },
		{ "create_cq", verb_queues },
		{ "destroy", verb_destroy },
	};

	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		guest_need(cancel_in(verbs[i].run), "%s has been cancelled", verbs[i].name);
		if (verbs[i].run != verb_talk)
			continue;
		guest_need(!cancel_in(wait_cq_event), "get_cq_event has not been cancelled");
		guest_need(!cancel_in(wait_async_event), "get_async_event has not been cancelled");
		verb_talk();
	}
}

void case_cancelled_verbs(void)
{
	alarm(120); /* a lock that is left held */
	cancel_all();
	/* and nothing is held */
	memset(&c, 0, sizeof(c));
	cancel_all();
}
