/* ulp.c: an upper layer in the style of the kernel's (IPoIB, SRP, NVMe over RDMA), in user space: a
 * client of the midlayer (ib_*), which is told of each device that comes and goes.
 *
 *   cc -D_GNU_SOURCE ulp.c $(pkg-config --cflags --libs anyverbs) -o ulp
 *   ./ulp 5                                   5 seconds; meanwhile elsewhere:
 *   anyverbs device add roce1; anyverbs port roce1 down; anyverbs device remove roce1
 *
 * The contract (docs/contract.md), which is Linux's:
 * - add() is called for each device that exists and for each that comes; it may sleep. remove()
 * ends   everything that the client has on the device before it returns: after it, the device is
 * gone.
 * - A completion handler runs on a thread of the adapter and may not sleep: no allocation that may
 *   block, no ib_create_*, no ib_modify_qp. It polls, posts, and wakes others.
 * - The missed-event rule: arming (ib_req_notify_cq) asks for one event, for completions added
 * after   it. Those added between the last poll and the arm raise none. With
 * IB_CQ_REPORT_MISSED_EVENTS the   call says so: above 0 means "poll again". So: poll until empty,
 * arm, and repeat while that   returns more than 0.
 * - Errors are negative errno; pointers carry theirs (IS_ERR, PTR_ERR).
 */
#include <errno.h>
#include <rdma/ib_verbs.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CQE = 64, BATCH = 8, MESSAGES = 10000, PORT = 1 };

/* What the client has on one device. */
struct ulp_device {
	struct ib_device *device;
	struct ib_pd *pd;
	struct ib_mr *mr;
	struct ib_cq *cq;
	struct ib_qp *qp; /* connected to itself */
	struct ib_event_handler events;
	u64 out, in;
	int sent, received, failed; /* the completion handler's */
	sem_t done;
};

static void ulp_add(struct ib_device *device);
static void ulp_remove(struct ib_device *device);

static struct ib_client ulp_client = { .name = "ulp", .add = ulp_add, .remove = ulp_remove };

static int ulp_failures; /* of all devices */

/* ---- in the completion handler: nothing sleeps ---- */

/* Posts a receive and then a send to ourselves. */
static int ulp_send(struct ulp_device *d)
{
	struct ib_sge out = { (uintptr_t)&d->out, sizeof(d->out), d->mr->lkey };
	struct ib_sge in = { (uintptr_t)&d->in, sizeof(d->in), d->mr->lkey };
	struct ib_recv_wr recv = { .sg_list = &in, .num_sge = 1 }, *bad_recv;
	struct ib_send_wr send = { .sg_list = &out,
				   .num_sge = 1,
				   .opcode = IB_WR_SEND,
				   .send_flags = IB_SEND_SIGNALED }, *bad_send;
	int err = ib_post_recv(d->qp, &recv, &bad_recv);

	d->out++;
	return err != 0 ? err : ib_post_send(d->qp, &send, &bad_send);
}

static void ulp_completed(struct ulp_device *d, const struct ib_wc *wc)
{
	if (wc->status != IB_WC_SUCCESS) {
		if (d->failed++ == 0 && wc->status != IB_WC_WR_FLUSH_ERR)
			printf("%s: a completion with status %d\n", d->device->name, wc->status);
		sem_post(&d->done);
		return;
	}
	if (wc->opcode & IB_WC_RECV)
		d->received++;
	else
		d->sent++;
	/* the SEND's buffer is the device's until its own completion */
	if (d->received != d->sent)
		return;
	if (d->received == MESSAGES)
		sem_post(&d->done);
	else if (ulp_send(d) != 0 && ++d->failed)
		sem_post(&d->done);
}

static void ulp_completion(struct ib_cq *cq, void *context)
{
	struct ulp_device *d = context;
	struct ib_wc wc[BATCH];
	int n;

	do
		while ((n = ib_poll_cq(cq, BATCH, wc)) > 0)
			for (int i = 0; i < n; i++)
				ulp_completed(d, &wc[i]);
	while (ib_req_notify_cq(cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS) > 0);
}

/* ---- events of the device, on a thread of the midlayer ---- */

static void ulp_event(struct ib_event_handler *handler, struct ib_event *event)
{
	const char *name = handler->device->name;

	if (event->event == IB_EVENT_PORT_ERR)
		printf("%s: port %d went down\n", name, event->element.port_num);
	else if (event->event == IB_EVENT_PORT_ACTIVE)
		printf("%s: port %d is up\n", name, event->element.port_num);
	else
		printf("%s: event %d\n", name, event->event);
}

/* ---- add and remove ---- */

/* The index of the GID to use. On RoCE that is one of an IPv4 address, if there is one: GID 0 may
 * be link-local, or be none that packets carry. On InfiniBand it is GID 0. */
static u8 ulp_gid_index(struct ib_device *device)
{
	static const u8 mapped[12] = { [10] = 0xff, [11] = 0xff };
	union ib_gid gid;

	for (int i = 0; ib_query_gid(device, PORT, i, &gid) == 0; i++)
		if (memcmp(gid.raw, mapped, sizeof(mapped)) == 0)
			return (u8)i;
	return 0;
}

static int ulp_connect(struct ulp_device *d)
{
	u8 index = ulp_gid_index(d->device);
	struct ib_qp_attr a = { .qp_state = IB_QPS_INIT,
				.port_num = PORT,
				.path_mtu = IB_MTU_1024,
				.dest_qp_num = d->qp->qp_num,
				.max_rd_atomic = 1,
				.max_dest_rd_atomic = 1,
				.min_rnr_timer = 12,
				.timeout = 14,
				.retry_cnt = 7,
				.rnr_retry = 7 };
	int err = ib_query_gid(d->device, PORT, index, &a.ah_attr.grh.dgid);

	a.ah_attr.ah_flags = IB_AH_GRH;
	a.ah_attr.port_num = PORT;
	a.ah_attr.grh.sgid_index = index;
	a.ah_attr.grh.hop_limit = 64;
	if (err == 0)
		err = ib_modify_qp(d->qp, &a, IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT |
						      IB_QP_ACCESS_FLAGS);
	a.qp_state = IB_QPS_RTR;
	if (err == 0)
		err = ib_modify_qp(d->qp, &a, IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU |
						      IB_QP_DEST_QPN | IB_QP_RQ_PSN |
						      IB_QP_MAX_DEST_RD_ATOMIC |
						      IB_QP_MIN_RNR_TIMER);
	a.qp_state = IB_QPS_RTS;
	if (err == 0)
		err = ib_modify_qp(d->qp, &a, IB_QP_STATE | IB_QP_SQ_PSN | IB_QP_TIMEOUT |
						      IB_QP_RETRY_CNT | IB_QP_RNR_RETRY |
						      IB_QP_MAX_QP_RD_ATOMIC);
	return err;
}

static int ulp_open(struct ulp_device *d)
{
	struct ib_qp_init_attr init = { .qp_type = IB_QPT_RC,
					.sq_sig_type = IB_SIGNAL_REQ_WR,
					.cap = { CQE / 4, CQE / 4, 1, 1, 0 } };

	d->pd = ib_alloc_pd(d->device);
	if (IS_ERR(d->pd))
		return (int)PTR_ERR(d->pd);
	d->mr = ib_get_dma_mr(d->pd, IB_ACCESS_LOCAL_WRITE); /* all of memory, as in the kernel */
	if (IS_ERR(d->mr))
		return (int)PTR_ERR(d->mr);
	d->cq = ib_create_cq(d->device, ulp_completion, NULL, d, CQE, 0);
	if (IS_ERR(d->cq))
		return (int)PTR_ERR(d->cq);
	init.send_cq = init.recv_cq = d->cq;
	d->qp = ib_create_qp(d->pd, &init);
	return IS_ERR(d->qp) ? (int)PTR_ERR(d->qp) : ulp_connect(d);
}

/* Whatever ulp_open has made. ib_destroy_cq waits until the handler does not run. */
static void ulp_close(struct ulp_device *d)
{
	if (d->qp != NULL && !IS_ERR(d->qp))
		ib_destroy_qp(d->qp);
	if (d->cq != NULL && !IS_ERR(d->cq))
		ib_destroy_cq(d->cq);
	if (d->mr != NULL && !IS_ERR(d->mr))
		ib_dereg_mr(d->mr);
	if (d->pd != NULL && !IS_ERR(d->pd))
		ib_dealloc_pd(d->pd);
	sem_destroy(&d->done);
	free(d);
}

static void ulp_add(struct ib_device *device)
{
	struct ulp_device *d = calloc(1, sizeof(*d));
	int err = d == NULL ? -ENOMEM : 0;

	if (err == 0) {
		d->device = device;
		sem_init(&d->done, 0, 0);
		err = ulp_open(d);
	}
	if (err == 0 && ib_req_notify_cq(d->cq, IB_CQ_NEXT_COMP) == 0)
		err = ulp_send(d); /* the handler does the rest */
	if (err != 0) {
		printf("%s: cannot be used: error %d\n", device->name, -err);
		ulp_failures++;
		if (d != NULL)
			ulp_close(d);
		return;
	}
	INIT_IB_EVENT_HANDLER(&d->events, device, ulp_event);
	ib_register_event_handler(&d->events);
	ib_set_client_data(device, &ulp_client, d);
	sem_wait(&d->done);
	printf("%s: added; %d messages came\n", device->name, d->received);
	ulp_failures += d->failed;
}

static void ulp_remove(struct ib_device *device)
{
	struct ulp_device *d = ib_get_client_data(device, &ulp_client);

	if (d == NULL)
		return; /* it could not be used */
	ib_unregister_event_handler(&d->events);
	printf("%s: removed, %d failures\n", device->name, d->failed);
	ulp_close(d);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (ib_register_client(&ulp_client) != 0) {
		fputs("no devices: is the stack there?\n", stderr);
		return 1;
	}
	sleep(argc > 1 ? (unsigned)atoi(argv[1]) : 0);
	ib_unregister_client(&ulp_client); /* calls remove() for each device */
	return ulp_failures == 0 ? 0 : 1;
}
