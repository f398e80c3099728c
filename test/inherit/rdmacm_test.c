/* rdmacm_test.c: every call of librdmacm of a forked child on an id of its parent in each state.
 * In:    INHERIT_ADDRESS (rdmacm_bed.c)    Out: the exit status
 * Runs:  one thread; a child for each call    Locks: none
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/rdma_verbs.h>

#include "rdmacm_bed.h"

static uint8_t bytes[256];
static struct rdma_conn_param param = { .qp_num = 77, .retry_count = 7, .rnr_retry_count = 7 };
/* Of rdma-core's later releases. */
int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);
int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
			  const struct rdma_addrinfo *hints);
int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
			uint64_t arg);

static int init_qp_attr(struct rdma_cm_id *id, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	return rdma_init_qp_attr(id, &attr, &mask);
}

static int create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = { .cap = { 4, 4, 1, 1, 0 }, .qp_type = id->qp_type };

	return rdma_create_qp(id, NULL, &init);
}

static int create_qp_ex(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr_ex init = { .cap = { 4, 4, 1, 1, 0 },
					    .qp_type = id->qp_type,
					    .comp_mask = IBV_QP_INIT_ATTR_PD,
					    .pd = id->pd };

	return rdma_create_qp_ex(id, &init);
}

static int create_srq(struct rdma_cm_id *id, bool extended)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq_init_attr_ex ex = { .attr = { .max_wr = 4, .max_sge = 1 },
					   .comp_mask = IBV_SRQ_INIT_ATTR_TYPE,
					   .srq_type = IBV_SRQT_BASIC };

	return extended ? rdma_create_srq_ex(id, &ex) : rdma_create_srq(id, NULL, &init);
}

static int set_option(struct rdma_cm_id *id, int name, size_t size)
{
	int value = 1;

	return rdma_set_option(id, RDMA_OPTION_ID, name, &value, size);
}

static int join_ex(struct rdma_cm_id *id)
{
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER,
		.addr = (struct sockaddr *)&cm.group,
	};

	return rdma_join_multicast_ex(id, &attr, NULL);
}

/* What an id leads to, before and after. */
static void calls_of_way(struct rdma_cm_id *id)
{
	struct sockaddr *group = (struct sockaddr *)&cm.group;

	CALL(EINVAL, rdma_bind_addr(id, cm_address(0)));
	CALL(EINVAL, rdma_resolve_addr(id, NULL, cm_address(7471), 1000));
	CALL(EINVAL, rdma_resolve_route(id, 1000));
	CALL(EINVAL, rdma_resolve_addrinfo(id, "127.0.0.1", "7471", NULL));
	CALL(ENODATA, rdma_query_addrinfo(id, &(struct rdma_addrinfo *){ NULL }));
	CALL(EINVAL, rdma_listen(id, 4));
	CALL(EINVAL, rdma_connect(id, &param));
	CALL(EINVAL, rdma_accept(id, &param));
	CALL(EINVAL, rdma_establish(id));
	CALL(EINVAL, rdma_reject(id, "no", 2));
	CALL(EINVAL, rdma_reject_ece(id, "no", 2));
	CALL(EINVAL, rdma_disconnect(id));
	CALL(EINVAL, rdma_notify(id, IBV_EVENT_COMM_EST));
	CALL(EINVAL, rdma_join_multicast(id, group, NULL));
	CALL(EINVAL, join_ex(id));
	CALL(ANY, rdma_leave_multicast(id, group));
	CALL(ANY, rdma_get_src_port(id) == 0);
	CALL(ANY, rdma_get_dst_port(id) == 0);
	CALL(EINVAL, rdma_write_cm_event(id, (enum rdma_cm_event_type)18, 0, 0)); /* USER */
}

static void calls_of_id(struct rdma_cm_id *id)
{
	struct ibv_ece ece = { 0 };
	struct rdma_cm_id *got;

	CALL(EINVAL, init_qp_attr(id, IBV_QPS_INIT));
	CALL(EINVAL, init_qp_attr(id, IBV_QPS_RTR));
	CALL(EINVAL, init_qp_attr(id, IBV_QPS_RTS));
	CALL(EINVAL, create_qp(id));
	CALL(EINVAL, create_qp_ex(id));
	CALL_VOID(rdma_destroy_qp(id));
	CALL(ANY, create_srq(id, false));
	CALL(ANY, create_srq(id, true));
	CALL_VOID(rdma_destroy_srq(id));
	CALL(EINVAL, set_option(id, RDMA_OPTION_ID_TOS, 1));
	CALL(EINVAL, set_option(id, RDMA_OPTION_ID_REUSEADDR, sizeof(int)));
	CALL(EINVAL, set_option(id, RDMA_OPTION_ID_AFONLY, sizeof(int)));
	CALL(EINVAL, set_option(id, RDMA_OPTION_ID_ACK_TIMEOUT, 1));
	CALL(0, rdma_set_local_ece(id, &ece));
	CALL(0, rdma_get_remote_ece(id, &ece));
	CALL(EINVAL, rdma_migrate_id(id, rdma_create_event_channel()));
	CALL(EINVAL, rdma_migrate_id(id, cm.requests));
	CALL(EINVAL, rdma_migrate_id(id, NULL));
	CALL(EINVAL, rdma_get_request(id, &got));
	CALL(0, rdma_destroy_id(id));
	CALL_VOID(rdma_destroy_ep(id));
}

static int post(struct rdma_cm_id *id, struct ibv_mr *mr)
{
	if (id->qp->qp_type == IBV_QPT_UD)
		return rdma_post_ud_send(id, NULL, bytes, 64, mr, IBV_SEND_SIGNALED, cm.ah,
					 0xffffff);
	return rdma_post_send(id, NULL, bytes, 64, mr, IBV_SEND_SIGNALED);
}

/* rdma_verbs.h, for ids with a queue pair. */
static void calls_of_transfers(struct rdma_cm_id *id)
{
	struct ibv_mr *mr = rdma_reg_msgs(id, bytes, sizeof(bytes));
	struct ibv_wc wc;

	CALL(0, rdma_dereg_mr(rdma_reg_msgs(id, bytes, sizeof(bytes))));
	CALL(0, rdma_dereg_mr(rdma_reg_read(id, bytes, sizeof(bytes))));
	CALL(0, rdma_dereg_mr(rdma_reg_write(id, bytes, sizeof(bytes))));
	CALL(0, rdma_dereg_mr(mr));
	CALL(0, rdma_post_recv(id, NULL, bytes, 64, mr));
	CALL(0, post(id, mr));
	CALL(0, post(id, mr) == 0 ? rdma_get_send_comp(id, &wc) - 1 : errno);
	CALL(ANY, rdma_post_read(id, NULL, bytes, 64, mr, 0, 0, 0));
	CALL(ANY, rdma_post_write(id, NULL, bytes, 64, mr, 0, 0, 0));
	CALL(EAGAIN, rdma_get_send_comp(id, &wc));
	CALL(EAGAIN, rdma_get_recv_comp(id, &wc));
	must(rdma_dereg_mr(mr) == 0);
}

static void calls_of_channel(void)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct rdma_addrinfo *info;

	inherit_about("channel");
	CALL(0, rdma_get_cm_event(cm.events, &event));
	CALL(0, rdma_ack_cm_event(cm.owed));
	CALL(0, rdma_ack_cm_event(cm.owed) + rdma_destroy_id(cm.owing));
	CALL(0, rdma_create_id(cm.events, &id, NULL, RDMA_PS_TCP));
	CALL(0, rdma_create_id(cm.events, &id, NULL, RDMA_PS_TCP) + rdma_destroy_id(id));
	CALL_VOID(rdma_destroy_event_channel(cm.events));
	CALL(0, rdma_get_devices(NULL));
	CALL_VOID(rdma_free_devices(rdma_get_devices(NULL)));
	CALL(0, rdma_getaddrinfo("127.0.0.1", "7471", NULL, &info));
	CALL_VOID(rdma_freeaddrinfo(cm.info));
	CALL(0, rdma_create_ep(&id, cm.info, NULL, NULL));
	CALL(0, rdma_create_ep(&id, cm.info, cm.ids[ID_CLIENT]->pd, NULL));
	inherit_about("all");
	CALL_VOID(cm_end());
}

static void calls(void)
{
	calls_of_channel();
	for (int i = 0; i < IDS; i++) {
		inherit_about(cm_names[i]);
		calls_of_way(cm.ids[i]);
		calls_of_id(cm.ids[i]);
		if (cm.ids[i]->qp != NULL)
			calls_of_transfers(cm.ids[i]);
	}
}

int main(void)
{
	static const struct inherit_bed kit = {
		.last = ATTACHED, .attach = cm_attach, .works = cm_works
	};
	int status;

	cm_make();
	status = inherit_run(&kit, calls);
	cm_end();
	return status;
}
