/* block_target.c: a block device of RAM that hosts reach by RDMA: the target of a service of the
 * kind of NVMe over Fabrics and iSER, with Linux 6.1's calls. block_initiator.c is the other end,
 * block.h what goes between them; docs/kernel-code.md says how such code is built and run.
 *
 *   cc block_target.c $(pkg-config --cflags --libs anyverbs-linux-6.1 anyverbs-kernel) -o target
 *   ./target port=7175 mib=64
 *
 * A connection is a queue. Its CQ polls itself on a thread that may sleep (IB_POLL_WORKQUEUE) and
 * calls one `done` at a time, so what belongs to a queue needs no lock. A request begins with a
 * command and ends with the completion of its reply:
 *
 *   received, a READ:  rdma_rw WRITEs the data to the initiator, the reply behind it; replied
 *   received, a WRITE: rdma_rw READs the data from there; fetched; SENDs the reply; replied
 */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/proc_fs.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <net/net_namespace.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>
#include <rdma/rw.h>

#include "block.h"

enum { TARGET_PAGES = BLOCK_MAX / PAGE_SIZE + 1 }; /* that a command can touch */

struct target_request {
	struct list_head entry; /* of the queue's idle ones */
	struct target_queue *queue;
	struct ib_cqe received, fetched, replied;
	struct block_command command;
	struct block_reply reply;
	struct scatterlist sg[TARGET_PAGES];
	u32 sg_count; /* 0: `rw` is not there */
	enum dma_data_direction dir;
	struct rdma_rw_ctx rw;
};

struct target_queue {
	struct list_head entry;
	struct rdma_cm_id *id;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct target_request *requests; /* 2 * depth: the next command may come before a reply has
					    completed */
	struct list_head idle;
	int depth, owed; /* owed: receives that wait for an idle request */
	atomic_t ended;
	struct work_struct release;
};

static int port = 7175, mib = 16;
module_param(port, int, 0444);
module_param(mib, int, 0444);

static struct rdma_cm_id *target_listener;
static char *target_memory;
static u64 target_sectors;
static DEFINE_MUTEX(target_lock); /* over the list of queues */
static LIST_HEAD(target_queues);
static DECLARE_WAIT_QUEUE_HEAD(target_gone);
static atomic_t target_count, target_commands;

/* Any context, any number of times: the queue ends on a thread that may wait for its `done`s. */
static void target_end(struct target_queue *queue)
{
	if (atomic_xchg(&queue->ended, 1) == 0)
		schedule_work(&queue->release);
}

/* ---- requests: on the CQ's thread ---- */

/* Each command that is answered lets another one come, before its answer goes. */
static void target_receive(struct target_queue *queue)
{
	struct target_request *request = list_first_entry_or_null(&queue->idle,
								  struct target_request, entry);
	struct ib_sge sge = { .length = sizeof(request->command) };
	struct ib_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };

	if (!request) {
		queue->owed++;
		return;
	}
	list_del(&request->entry);
	wr.wr_cqe = &request->received;
	sge.addr = (uintptr_t)&request->command;
	sge.lkey = queue->pd->local_dma_lkey;
	if (ib_post_recv(queue->id->qp, &wr, NULL) != 0)
		target_end(queue);
}

static void target_idle(struct target_request *request)
{
	struct target_queue *queue = request->queue;

	if (request->sg_count > 0)
		rdma_rw_ctx_destroy(&request->rw, queue->id->qp, queue->id->port_num, request->sg,
				    request->sg_count, request->dir);
	request->sg_count = 0;
	list_add(&request->entry, &queue->idle);
	if (queue->owed > 0) {
		queue->owed--;
		target_receive(queue);
	}
}

/* A completion that is no success, or a request that cannot be posted, ends the queue. */
static void target_fail(struct target_request *request, const char *what, enum ib_wc_status status)
{
	if (status != IB_WC_WR_FLUSH_ERR)
		pr_err("target: %s: %s\n", what, ib_wc_status_msg(status));
	target_end(request->queue);
	target_idle(request);
}

static void target_replied(struct ib_cq *cq, struct ib_wc *wc)
{
	struct target_request *request = container_of(wc->wr_cqe, struct target_request, replied);

	if (wc->status == IB_WC_SUCCESS)
		target_idle(request);
	else
		target_fail(request, "reply", wc->status);
}

/* Behind the data of a READ, which is at `rw` still. */
static void target_reply(struct target_request *request, int err)
{
	struct target_queue *queue = request->queue;
	struct ib_qp *qp = queue->id->qp;
	struct ib_sge sge = { (uintptr_t)&request->reply, sizeof(request->reply),
			      queue->pd->local_dma_lkey };
	struct ib_send_wr wr = { .wr_cqe = &request->replied,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IB_WR_SEND_WITH_INV,
				 .send_flags = IB_SEND_SIGNALED };

	wr.ex.invalidate_rkey = be32_to_cpu(request->command.rkey);
	request->reply = (struct block_reply){ request->command.tag, cpu_to_be16(-err) };
	atomic_inc(&target_commands);
	target_receive(queue);
	if (request->sg_count > 0 && request->dir == DMA_TO_DEVICE)
		err = rdma_rw_ctx_post(&request->rw, qp, queue->id->port_num, NULL, &wr);
	else
		err = ib_post_send(qp, &wr, NULL);
	if (err)
		target_fail(request, "post of a reply", IB_WC_GENERAL_ERR);
}

static void target_fetched(struct ib_cq *cq, struct ib_wc *wc)
{
	struct target_request *request = container_of(wc->wr_cqe, struct target_request, fetched);

	if (wc->status == IB_WC_SUCCESS)
		target_reply(request, 0);
	else
		target_fail(request, "READ of data", wc->status);
}

/* 0, and `rw` moves the data of the command; else an errno for the initiator. */
static int target_prepare(struct target_request *request)
{
	const struct block_command *command = &request->command;
	const struct target_queue *queue = request->queue;
	u64 sector = be64_to_cpu(command->sector);
	u32 left = be32_to_cpu(command->length), part, count = 0;
	int err;

	if (left == 0 || left > BLOCK_MAX || left % BLOCK_SECTOR != 0 ||
	    (command->opcode != BLOCK_READ && command->opcode != BLOCK_WRITE))
		return -EINVAL;
	if (sector >= target_sectors || left / BLOCK_SECTOR > target_sectors - sector)
		return -ENOSPC;
	request->dir = command->opcode == BLOCK_READ ? DMA_TO_DEVICE : DMA_FROM_DEVICE;
	sg_init_table(request->sg, TARGET_PAGES);
	for (char *at = target_memory + sector * BLOCK_SECTOR; left > 0; at += part, left -= part) {
		part = min_t(u32, left, PAGE_SIZE - offset_in_page(at));
		sg_set_page(&request->sg[count++], vmalloc_to_page(at), part, offset_in_page(at));
	}
	sg_mark_end(&request->sg[count - 1]);
	err = rdma_rw_ctx_init(&request->rw, queue->id->qp, queue->id->port_num, request->sg, count,
			       0, be64_to_cpu(command->addr), be32_to_cpu(command->rkey),
			       request->dir);
	request->sg_count = err < 0 ? 0 : count;
	return min(err, 0);
}

static void target_received(struct ib_cq *cq, struct ib_wc *wc)
{
	struct target_request *request = container_of(wc->wr_cqe, struct target_request, received);
	struct rdma_cm_id *id = request->queue->id;
	int err;

	if (wc->status != IB_WC_SUCCESS || wc->byte_len != sizeof(request->command)) {
		target_fail(request, "command", wc->status);
		return;
	}
	err = target_prepare(request);
	if (err || request->dir == DMA_TO_DEVICE)
		target_reply(request, err);
	else if (rdma_rw_ctx_post(&request->rw, id->qp, id->port_num, &request->fetched, NULL) != 0)
		target_fail(request, "post of a READ", IB_WC_GENERAL_ERR);
}

/* ---- queues: in the CM's handlers and on work threads, which may sleep ---- */

/* What there is of it; nothing of it runs any more. */
static void target_free(struct target_queue *queue)
{
	if (queue->id->qp)
		rdma_destroy_qp(queue->id);
	if (!IS_ERR_OR_NULL(queue->cq))
		ib_free_cq(queue->cq);
	if (!IS_ERR_OR_NULL(queue->pd))
		ib_dealloc_pd(queue->pd);
	kvfree(queue->requests);
}

static void target_release(struct work_struct *work)
{
	struct target_queue *queue = container_of(work, struct target_queue, release);

	rdma_disconnect(queue->id);
	ib_drain_qp(queue->id->qp); /* all requests are idle behind it */
	target_free(queue);
	rdma_destroy_id(queue->id); /* no event of it comes behind it */
	mutex_lock(&target_lock);
	list_del(&queue->entry);
	mutex_unlock(&target_lock);
	kfree(queue);
	atomic_dec(&target_count);
	wake_up(&target_gone);
}

static int target_make(struct target_queue *queue)
{
	struct ib_device *device = queue->id->device;
	u8 port_num = queue->id->port_num;
	int count = 2 * queue->depth;
	u32 ctxs = count * rdma_rw_mr_factor(device, port_num, TARGET_PAGES);
	struct ib_qp_init_attr init = {
		.qp_type = IB_QPT_RC,
		.port_num = port_num,
		/* one more for the drain; the send queue grows by what the transfers need */
		.cap = { count + 1, count + 1, min(device->attrs.max_send_sge, (int)TARGET_PAGES),
			 1, 0, ctxs },
	};

	queue->requests = kvcalloc(count, sizeof(*queue->requests), GFP_KERNEL);
	if (!queue->requests)
		return -ENOMEM;
	for (int i = 0; i < count; i++) {
		queue->requests[i].queue = queue;
		queue->requests[i].received.done = target_received;
		queue->requests[i].fetched.done = target_fetched;
		queue->requests[i].replied.done = target_replied;
		list_add(&queue->requests[i].entry, &queue->idle);
	}
	queue->pd = ib_alloc_pd(device, 0);
	if (IS_ERR(queue->pd))
		return PTR_ERR(queue->pd);
	queue->cq = ib_alloc_cq_any(
		device, queue, 2 * (count + 1) + rdma_rw_max_send_wr(device, port_num, ctxs, 0),
		IB_POLL_WORKQUEUE);
	if (IS_ERR(queue->cq))
		return PTR_ERR(queue->cq);
	init.send_cq = init.recv_cq = queue->cq;
	return rdma_create_qp(queue->id, queue->pd, &init);
}

/* The id is the CM's until 0 is returned; then it is the queue's. */
static int target_connect(struct rdma_cm_id *id, const struct rdma_conn_param *asked)
{
	const struct block_hello *hello = asked->private_data;
	struct block_welcome welcome = { cpu_to_be64(target_sectors) };
	struct rdma_conn_param param = { .private_data = &welcome,
					 .private_data_len = sizeof(welcome),
					 .rnr_retry_count = 7 };
	struct target_queue *queue = kzalloc(sizeof(*queue), GFP_KERNEL);
	int err = -EINVAL;

	if (!queue)
		return -ENOMEM;
	queue->id = id;
	INIT_LIST_HEAD(&queue->idle);
	INIT_WORK(&queue->release, target_release);
	if (asked->private_data_len >= sizeof(*hello))
		queue->depth = be16_to_cpu(hello->depth);
	if (queue->depth >= 1 && queue->depth <= BLOCK_DEPTH_MAX)
		err = target_make(queue);
	if (err) {
		target_free(queue);
		kfree(queue);
		return err;
	}
	id->context = queue;
	atomic_inc(&target_count);
	mutex_lock(&target_lock);
	list_add(&queue->entry, &target_queues);
	mutex_unlock(&target_lock);
	for (int i = 0; i < queue->depth; i++)
		target_receive(queue);
	param.initiator_depth = min_t(int, asked->initiator_depth,
				      id->device->attrs.max_qp_init_rd_atom);
	if (rdma_accept(id, &param) != 0)
		target_end(queue);
	return 0;
}

/* All but a request and its establishment is the end of a connection: of the listener, whose
 * context is NULL, nothing else is told. */
static int target_cm_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		return target_connect(id, &event->param.conn);
	if (event->event != RDMA_CM_EVENT_ESTABLISHED && id->context)
		target_end(id->context);
	return 0;
}

/* ---- the module ---- */

static int target_show(struct seq_file *seq, void *unused)
{
	seq_printf(seq, "%d queues, %d commands\n", atomic_read(&target_count),
		   atomic_read(&target_commands));
	return 0;
}

static int __init target_init(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(port) };
	int err;

	target_sectors = (u64)max(mib, 1) * 1024 * 1024 / BLOCK_SECTOR;
	target_memory = vzalloc(target_sectors * BLOCK_SECTOR);
	if (!target_memory)
		return -ENOMEM;
	target_listener = rdma_create_id(&init_net, target_cm_event, NULL, RDMA_PS_TCP, IB_QPT_RC);
	err = PTR_ERR_OR_ZERO(target_listener);
	if (err)
		goto free;
	err = rdma_bind_addr(target_listener, (struct sockaddr *)&any);
	if (err == 0)
		err = rdma_listen(target_listener, 128);
	if (err == 0 && !proc_create_single("target", 0444, NULL, target_show))
		err = -ENOMEM;
	if (err == 0)
		return 0;
	rdma_destroy_id(target_listener);
free:
	vfree(target_memory);
	return err;
}

static void __exit target_exit(void)
{
	struct target_queue *queue;

	remove_proc_entry("target", NULL);
	rdma_destroy_id(target_listener); /* no connection comes behind it */
	mutex_lock(&target_lock);
	list_for_each_entry(queue, &target_queues, entry) target_end(queue);
	mutex_unlock(&target_lock);
	wait_event(target_gone, atomic_read(&target_count) == 0);
	flush_scheduled_work();
	vfree(target_memory);
}

module_init(target_init);
module_exit(target_exit);
MODULE_LICENSE("MIT");
MODULE_DESCRIPTION("a block device of RAM, by RDMA");
