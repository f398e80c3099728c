/* block_initiator.c: writes to the block device of block_target.c, reads it back and compares; the
 * other end of a service of the kind of NVMe over Fabrics and iSER, with Linux 6.1's calls.
 *
 *   cc block_initiator.c $(pkg-config --cflags --libs anyverbs-linux-6.1 anyverbs-kernel) -o load
 *   echo initiator 1000 | ./load addr=127.0.0.1 port=7175 depth=16 length=16384
 *
 * The line is a session of 1000 rounds, a WRITE and a READ, of each of `depth` requests, which have
 * their own sectors. A request registers its memory, SENDs the command behind it, and may go on
 * when that has completed and the reply has come, which has invalidated the key.
 */
#include <linux/delay.h>
#include <linux/inet.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>
#include <net/net_namespace.h>
#include <rdma/ib_verbs.h>
#include <rdma/mr_pool.h>
#include <rdma/rdma_cm.h>

#include "block.h"

enum { INITIATOR_PAGES = BLOCK_MAX / PAGE_SIZE, INITIATOR_TIMEOUT_MS = 5000 };

struct initiator_request {
	struct initiator *session;
	struct ib_cqe registered, sent, invalidated, received;
	struct block_command command;
	struct block_reply reply; /* of any request */
	struct ib_mr *mr;
	struct scatterlist sg[INITIATOR_PAGES];
	u32 *data;
	int uses, round, opcode;
};

struct initiator {
	struct rdma_cm_id *id;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct initiator_request *requests;
	int rounds, running, err; /* err: 1 until the session is over */
	atomic_t ended;		  /* commands */
	wait_queue_head_t wait;
};

static char loopback[] = "127.0.0.1", *addr = loopback;
static int port = 7175, depth = 8, length = 16384, timeout = 30, retry;
static bool hasty;
module_param(addr, charp, 0644);
module_param(port, int, 0644);
module_param(depth, int, 0644);
module_param(length, int, 0644);
module_param(timeout, int, 0644); /* seconds in which a round comes to its end */
module_param(retry, int, 0644);	  /* seconds to begin again for, after a connection was lost */
module_param(hasty, bool, 0644);  /* leave when the first request has had its rounds */

/* Any context; the first one counts. */
static void initiator_over(struct initiator *session, int err)
{
	if (cmpxchg(&session->err, 1, err) == 1)
		wake_up(&session->wait);
}

/* ---- requests: on the CQ's thread, one `done` at a time; the first of each by the CM ---- */

static void initiator_issue(struct initiator_request *request)
{
	struct initiator *session = request->session;
	u32 tag = request - session->requests, sectors = length / BLOCK_SECTOR;
	int count = DIV_ROUND_UP(length, PAGE_SIZE);
	struct ib_sge sge = { (uintptr_t)&request->command, sizeof(request->command),
			      session->pd->local_dma_lkey };
	struct ib_send_wr send = { .wr_cqe = &request->sent,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IB_WR_SEND,
				   .send_flags = IB_SEND_SIGNALED };
	struct ib_reg_wr reg = {
		.wr = { .next = &send, .wr_cqe = &request->registered, .opcode = IB_WR_REG_MR },
		.mr = request->mr
	};

	ib_update_fast_reg_key(request->mr, ib_inc_rkey(request->mr->rkey));
	reg.key = request->mr->rkey;
	reg.access = request->opcode == BLOCK_WRITE
			     ? IB_ACCESS_REMOTE_READ
			     : IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE;
	if (ib_map_mr_sg(request->mr, request->sg, count, NULL, PAGE_SIZE) != count) {
		initiator_over(session, -EINVAL);
		return;
	}
	request->command = (struct block_command){
		.sector = cpu_to_be64((u64)tag * sectors),
		.addr = cpu_to_be64(request->mr->iova),
		.rkey = cpu_to_be32(request->mr->rkey),
		.length = cpu_to_be32(length),
		.tag = cpu_to_be16(tag),
		.opcode = request->opcode,
	};
	request->uses = 2;
	if (ib_post_send(session->id->qp, &reg.wr, NULL) != 0)
		initiator_over(session, -ENOTCONN);
}

static u32 initiator_pattern(const struct initiator_request *request, int i)
{
	return ((u32)(request - request->session->requests) << 24) + ((u32)request->round << 14) +
	       i;
}

/* The next command, if the last one has ended in each way. */
static void initiator_put(struct initiator_request *request)
{
	struct initiator *session = request->session;
	int count = length / sizeof(u32), wrong = 0;

	if (--request->uses > 0)
		return;
	atomic_inc(&session->ended);
	if (request->opcode == BLOCK_WRITE) {
		memset(request->data, 0, length);
		request->opcode = BLOCK_READ;
	} else {
		for (int i = 0; i < count && request->round > 0; i++)
			wrong += request->data[i] != initiator_pattern(request, i);
		if (wrong || request->round == session->rounds) {
			if (wrong || hasty || --session->running == 0)
				initiator_over(session, wrong ? -EIO : 0);
			return;
		}
		request->round++;
		for (int i = 0; i < count; i++)
			request->data[i] = initiator_pattern(request, i);
		request->opcode = BLOCK_WRITE;
	}
	initiator_issue(request);
}

/* Whether it is a success; else the session is over. */
static bool initiator_check(struct ib_cq *cq, const struct ib_wc *wc)
{
	if (wc->status != IB_WC_SUCCESS)
		initiator_over(cq->cq_context, -ENOTCONN);
	return wc->status == IB_WC_SUCCESS;
}

static void initiator_registered(struct ib_cq *cq, struct ib_wc *wc)
{
	initiator_check(cq, wc); /* it is not signalled: an error */
}

static void initiator_sent(struct ib_cq *cq, struct ib_wc *wc)
{
	if (initiator_check(cq, wc))
		initiator_put(container_of(wc->wr_cqe, struct initiator_request, sent));
}

static void initiator_invalidated(struct ib_cq *cq, struct ib_wc *wc)
{
	if (initiator_check(cq, wc))
		initiator_put(container_of(wc->wr_cqe, struct initiator_request, invalidated));
}

static int initiator_receive(struct initiator_request *request)
{
	struct initiator *session = request->session;
	struct ib_sge sge = { (uintptr_t)&request->reply, sizeof(request->reply),
			      session->pd->local_dma_lkey };
	struct ib_recv_wr wr = { .wr_cqe = &request->received, .sg_list = &sge, .num_sge = 1 };

	return ib_post_recv(session->id->qp, &wr, NULL);
}

/* A target that does not invalidate the key leaves it to the initiator. */
static void initiator_received(struct ib_cq *cq, struct ib_wc *wc)
{
	struct initiator *session = cq->cq_context;
	struct initiator_request *buffer = container_of(wc->wr_cqe, struct initiator_request,
							received);
	u32 tag = be16_to_cpu(buffer->reply.tag), error = be16_to_cpu(buffer->reply.error);
	struct initiator_request *request = &session->requests[tag];
	struct ib_send_wr wr = { .opcode = IB_WR_LOCAL_INV, .send_flags = IB_SEND_SIGNALED };

	if (!initiator_check(cq, wc))
		return;
	if (wc->byte_len != sizeof(buffer->reply) || tag >= (u32)depth || error) {
		initiator_over(session, error ? -(int)error : -EPROTO);
		return;
	}
	if (initiator_receive(buffer) != 0)
		initiator_over(session, -ENOTCONN);
	wr.wr_cqe = &request->invalidated;
	wr.ex.invalidate_rkey = request->mr->rkey;
	if ((wc->wc_flags & IB_WC_WITH_INVALIDATE) && wc->ex.invalidate_rkey == request->mr->rkey)
		initiator_put(request);
	else if (ib_post_send(session->id->qp, &wr, NULL) != 0)
		initiator_over(session, -ENOTCONN);
}

/* ---- the session: the CM's handlers make it, the task that writes the line ends it ---- */

static int initiator_make(struct initiator *session)
{
	struct ib_device *device = session->id->device;
	struct ib_qp_init_attr init = { .qp_type = IB_QPT_RC,
					.port_num = session->id->port_num,
					.cap = { 3 * depth + 1, depth + 1, 1, 1, 0, 0 } };
	int err;

	session->pd = ib_alloc_pd(device, 0);
	if (IS_ERR(session->pd))
		return PTR_ERR(session->pd);
	session->cq = ib_alloc_cq_any(device, session, 4 * depth + 2, IB_POLL_WORKQUEUE);
	if (IS_ERR(session->cq))
		return PTR_ERR(session->cq);
	init.send_cq = init.recv_cq = session->cq;
	err = rdma_create_qp(session->id, session->pd, &init);
	if (err)
		return err;
	err = ib_mr_pool_init(session->id->qp, &session->id->qp->rdma_mrs, depth,
			      IB_MR_TYPE_MEM_REG, INITIATOR_PAGES, 0);
	for (int i = 0; i < depth && err == 0; i++) {
		session->requests[i].mr = ib_mr_pool_get(session->id->qp,
							 &session->id->qp->rdma_mrs);
		err = initiator_receive(&session->requests[i]);
	}
	return err;
}

static int initiator_connect(struct initiator *session)
{
	struct block_hello hello = { cpu_to_be16(depth) };
	struct rdma_conn_param param = { .private_data = &hello,
					 .private_data_len = sizeof(hello),
					 .responder_resources = 16,
					 .retry_count = 7,
					 .rnr_retry_count = 7 };
	int err = initiator_make(session);

	param.responder_resources = min_t(int, param.responder_resources,
					  session->id->device->attrs.max_qp_rd_atom);
	return err ? err : rdma_connect_locked(session->id, &param);
}

static int initiator_begin(struct initiator *session, const struct rdma_conn_param *told)
{
	const struct block_welcome *welcome = told->private_data;

	if (told->private_data_len < sizeof(*welcome))
		return -EPROTO;
	if (be64_to_cpu(welcome->sectors) < (u64)depth * (length / BLOCK_SECTOR))
		return -ENOSPC;
	session->running = depth;
	for (int i = 0; i < depth; i++) {
		session->requests[i].opcode = BLOCK_READ; /* the first round is a READ only */
		initiator_issue(&session->requests[i]);
	}
	return 0;
}

static int initiator_cm_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct initiator *session = id->context;
	int err = -ENOTCONN; /* unreachable, refused, disconnected, the device is leaving */

	if (READ_ONCE(session->err) <= 0)
		return 0;
	if (event->event == RDMA_CM_EVENT_ADDR_RESOLVED)
		err = rdma_resolve_route(id, INITIATOR_TIMEOUT_MS);
	else if (event->event == RDMA_CM_EVENT_ROUTE_RESOLVED)
		err = initiator_connect(session);
	else if (event->event == RDMA_CM_EVENT_ESTABLISHED)
		err = initiator_begin(session, &event->param.conn);
	else
		pr_err("initiator: %s, status %d\n", rdma_event_msg(event->event), event->status);
	if (err)
		initiator_over(session, err);
	return 0;
}

static void initiator_end(struct initiator *session)
{
	rdma_lock_handler(session->id); /* waits for a handler that is making it; none does later */
	rdma_unlock_handler(session->id);
	if (session->id->qp) {
		rdma_disconnect(session->id);
		ib_drain_qp(session->id->qp);
		for (int i = 0; i < depth && session->requests[i].mr; i++)
			ib_mr_pool_put(session->id->qp, &session->id->qp->rdma_mrs,
				       session->requests[i].mr);
		rdma_destroy_qp(session->id); /* and the pool */
	}
	if (!IS_ERR_OR_NULL(session->cq))
		ib_free_cq(session->cq);
	if (!IS_ERR_OR_NULL(session->pd))
		ib_dealloc_pd(session->pd);
	rdma_destroy_id(session->id);
}

/* A target that has lost its device says nothing: what does not go on has ended. */
static void initiator_wait(struct initiator *session)
{
	long left = 0;
	int ended = -1;

	while (left == 0 && ended != atomic_read(&session->ended)) {
		ended = atomic_read(&session->ended);
		left = wait_event_interruptible_timeout(session->wait, READ_ONCE(session->err) <= 0,
							timeout * HZ);
	}
	initiator_over(session, left < 0 ? -EINTR : -ENOTCONN);
}

static int initiator_session(struct initiator *session)
{
	struct sockaddr_storage to;
	char number[8];
	int err;

	scnprintf(number, sizeof(number), "%d", port);
	err = inet_pton_with_scope(&init_net, AF_UNSPEC, addr, number, &to);
	if (err)
		return err;
	session->id = rdma_create_id(&init_net, initiator_cm_event, session, RDMA_PS_TCP,
				     IB_QPT_RC);
	if (IS_ERR(session->id))
		return PTR_ERR(session->id);
	err = rdma_resolve_addr(session->id, NULL, (struct sockaddr *)&to, INITIATOR_TIMEOUT_MS);
	if (err)
		initiator_over(session, err);
	initiator_wait(session);
	initiator_end(session);
	return session->err;
}

static int initiator_run(int rounds)
{
	struct initiator session = { .rounds = rounds, .err = 1 };
	char *data = vzalloc((size_t)depth * BLOCK_MAX);
	int err = -ENOMEM;

	init_waitqueue_head(&session.wait);
	session.requests = kvcalloc(depth, sizeof(*session.requests), GFP_KERNEL);
	for (int i = 0; i < depth && session.requests && data; i++) {
		struct initiator_request *request = &session.requests[i];

		request->session = &session;
		request->registered.done = initiator_registered;
		request->sent.done = initiator_sent;
		request->received.done = initiator_received;
		request->invalidated.done = initiator_invalidated;
		request->data = (u32 *)(data + (size_t)i * BLOCK_MAX);
		sg_init_table(request->sg, INITIATOR_PAGES);
		for (int at = 0; at < length; at += PAGE_SIZE)
			sg_set_page(&request->sg[at / PAGE_SIZE],
				    vmalloc_to_page((char *)request->data + at),
				    min_t(int, PAGE_SIZE, length - at), 0);
	}
	if (session.requests && data)
		err = initiator_session(&session);
	kvfree(session.requests);
	vfree(data);
	return err;
}

static ssize_t initiator_write(struct file *file, const char __user *buffer, size_t size,
			       loff_t *pos)
{
	unsigned long until = jiffies + retry * HZ;
	int rounds, err = kstrtoint_from_user(buffer, size, 10, &rounds);

	if (err || rounds < 1)
		return err ? err : -EINVAL;
	do
		err = initiator_run(rounds);
	while (err == -ENOTCONN && time_before(jiffies, until) && !msleep_interruptible(100));
	if (err == 0)
		pr_info("initiator: %d rounds\n", rounds);
	return err ? err : (ssize_t)size;
}

static const struct proc_ops initiator_ops = { .proc_write = initiator_write };

static int __init initiator_init(void)
{
	if (depth < 1 || depth > BLOCK_DEPTH_MAX || length < BLOCK_SECTOR || length > BLOCK_MAX ||
	    length % BLOCK_SECTOR != 0)
		return -EINVAL;
	return proc_create("initiator", 0222, NULL, &initiator_ops) ? 0 : -ENOMEM;
}

static void __exit initiator_exit(void)
{
	remove_proc_entry("initiator", NULL);
}

module_init(initiator_init);
module_exit(initiator_exit);
MODULE_LICENSE("MIT");
MODULE_DESCRIPTION("a load for a block device, by RDMA");
