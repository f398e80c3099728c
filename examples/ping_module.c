/* ping_module.c: a kernel module, of the kind of krping, that is a program here: what it includes
 * are Linux's names (include/anyverbs-kernel), and it has no main.
 *
 *   cc ping_module.c $(pkg-config --cflags --libs anyverbs-kernel) -o ping
 *   echo ping server,port=7174 | ./ping &
 *   echo ping client,port=7174,addr=127.0.0.1,count=1000 | ./ping
 *
 * A line writes to /proc/ping, which returns when the peer has left. docs/kernel-code.md has the
 * rest.
 */
#include <linux/inet.h>
#include <linux/module.h>
#include <linux/parser.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/wait.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

enum { PING_WR = 4, PING_TIMEOUT_MS = 5000 };
enum ping_state { PING_IDLE, PING_ROUTE, PING_REQUEST, PING_CONNECTED, PING_LEFT, PING_FAILED };

struct ping {
	struct rdma_cm_id *id, *listener; /* a client has no listener */
	struct ib_pd *pd;
	struct ib_mr *mr;
	struct ib_cq *cq;
	int state; /* enum ping_state: the CM's handler writes, the task waits */
	atomic_t received;
	wait_queue_head_t wait;
	u64 in, out;
	bool is_server;
	int port, count;
	struct sockaddr_storage addr;
};

static int timeout = 10;
module_param(timeout, int, 0644);
MODULE_PARM_DESC(timeout, "seconds to wait for the peer");

static atomic_t ping_total;

/* ---- in handlers: the CM's may sleep, the completion queue's may not ---- */

static int ping_cm_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct ping *p = id->context;
	int state = PING_FAILED;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (rdma_resolve_route(id, PING_TIMEOUT_MS) == 0)
			return 0;
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		state = PING_ROUTE;
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		if (p->id)
			return -EBUSY; /* one client; the CM rejects and destroys this id */
		p->id = id;
		state = PING_REQUEST;
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		state = PING_CONNECTED;
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		state = PING_LEFT;
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		return 0;
	default:
		pr_err("ping: CM event %d, status %d\n", event->event, event->status);
	}
	smp_store_release(&p->state, state);
	wake_up(&p->wait);
	return 0;
}

static int ping_post(struct ping *p, bool is_receive)
{
	struct ib_sge sge = { (uintptr_t)(is_receive ? &p->in : &p->out), sizeof(u64),
			      p->mr->lkey };
	struct ib_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad_recv;
	struct ib_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = IB_WR_SEND }, *bad_send;

	send.send_flags = IB_SEND_SIGNALED;
	return is_receive ? ib_post_recv(p->id->qp, &recv, &bad_recv) :
			    ib_post_send(p->id->qp, &send, &bad_send);
}

static void ping_completed(struct ping *p, const struct ib_wc *wc)
{
	if (wc->status != IB_WC_SUCCESS || !(wc->opcode & IB_WC_RECV))
		return;
	atomic_inc(&ping_total);
	if (p->is_server) {
		p->out = p->in;
		if (ping_post(p, true) != 0 || ping_post(p, false) != 0)
			pr_err("ping: cannot answer\n");
	}
	atomic_inc_return(&p->received);
	wake_up(&p->wait);
}

/* Polls until nothing is left that no event will tell of: docs/contract.md. */
static void ping_completion(struct ib_cq *cq, void *context)
{
	struct ib_wc wc;

	do
		while (ib_poll_cq(cq, 1, &wc) > 0)
			ping_completed(context, &wc);
	while (ib_req_notify_cq(cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS) > 0);
}

/* ---- the task that writes to /proc/ping ---- */

/* 0 once the state is `wanted` or a later one that is no failure. */
static int ping_wait(struct ping *p, int wanted, long jiffies_left)
{
	long left = wait_event_interruptible_timeout(
		p->wait, smp_load_acquire(&p->state) >= wanted, jiffies_left);

	if (left <= 0)
		return left ? (int)left : -ETIMEDOUT;
	return smp_load_acquire(&p->state) == PING_FAILED ? -ECONNREFUSED : 0;
}

static int ping_setup(struct ping *p)
{
	struct ib_qp_init_attr init = { .qp_type = IB_QPT_RC,
					.sq_sig_type = IB_SIGNAL_REQ_WR,
					.cap = { PING_WR, PING_WR, 1, 1, 0 } };
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	int err;

	p->pd = ib_alloc_pd(p->id->device);
	if (IS_ERR(p->pd))
		return PTR_ERR_OR_ZERO(p->pd);
	p->mr = ib_get_dma_mr(p->pd, IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(p->mr))
		return PTR_ERR_OR_ZERO(p->mr);
	p->cq = ib_create_cq(p->id->device, ping_completion, NULL, p, 2 * PING_WR, 0);
	if (IS_ERR(p->cq))
		return PTR_ERR_OR_ZERO(p->cq);
	init.send_cq = init.recv_cq = p->cq;
	err = rdma_create_qp(p->id, p->pd, &init);
	if (err == 0)
		err = ping_post(p, true);
	if (err == 0)
		err = ib_req_notify_cq(p->cq, IB_CQ_NEXT_COMP);
	if (err == 0)
		err = p->is_server ? rdma_accept(p->id, &param) : rdma_connect(p->id, &param);
	return err ? err : ping_wait(p, PING_CONNECTED, timeout * HZ);
}

static int ping_serve(struct ping *p)
{
	int err = rdma_bind_addr(p->listener, (struct sockaddr *)&p->addr);

	if (err == 0)
		err = rdma_listen(p->listener, 1);
	if (err == 0)
		err = ping_wait(p, PING_REQUEST, MAX_SCHEDULE_TIMEOUT);
	if (err == 0)
		err = ping_setup(p);
	return err ? err : ping_wait(p, PING_LEFT, MAX_SCHEDULE_TIMEOUT);
}

static int ping_ask(struct ping *p)
{
	int err = rdma_resolve_addr(p->id, NULL, (struct sockaddr *)&p->addr, PING_TIMEOUT_MS);
	long left;

	if (err == 0)
		err = ping_wait(p, PING_ROUTE, timeout * HZ);
	if (err == 0)
		err = ping_setup(p);
	for (int i = 1; err == 0 && i <= p->count; i++) {
		p->out = (u64)i;
		err = ping_post(p, false);
		if (err)
			break;
		left = wait_event_interruptible_timeout(p->wait,
							atomic_read_acquire(&p->received) >= i,
							timeout * HZ);
		if (left <= 0)
			err = left ? (int)left : -ETIMEDOUT;
		else if (p->in != (u64)i)
			err = -EIO;
		else if (i < p->count)
			err = ping_post(p, true);
	}
	if (err == 0)
		pr_info("ping: %d of %d came back\n", atomic_read(&p->received), p->count);
	return err;
}

/* Whatever there is, in the opposite order of its creation. */
static void ping_end(struct ping *p)
{
	if (p->id && p->id->qp) {
		rdma_disconnect(p->id);
		rdma_destroy_qp(p->id);
	}
	if (!IS_ERR_OR_NULL(p->cq))
		ib_destroy_cq(p->cq);
	if (!IS_ERR_OR_NULL(p->mr))
		ib_dereg_mr(p->mr);
	if (!IS_ERR_OR_NULL(p->pd))
		ib_dealloc_pd(p->pd);
	if (p->listener)
		rdma_destroy_id(p->listener);
	if (p->id)
		rdma_destroy_id(p->id);
}

static int ping_run(struct ping *p)
{
	struct rdma_cm_id *id = rdma_create_id(ping_cm_event, p, RDMA_PS_TCP, IB_QPT_RC);
	int err;

	if (IS_ERR(id))
		return PTR_ERR_OR_ZERO(id);
	*(p->is_server ? &p->listener : &p->id) = id;
	err = p->is_server ? ping_serve(p) : ping_ask(p);
	ping_end(p);
	return err;
}

/* ---- /proc/ping ---- */

static int ping_parse(struct ping *p, char *text)
{
	enum { SERVER, CLIENT, ADDR, PORT, COUNT, BAD };
	static const match_table_t options = { { SERVER, "server" },   { CLIENT, "client" },
					       { ADDR, "addr=%s" },    { PORT, "port=%d" },
					       { COUNT, "count=%d" },  { BAD, NULL } };
	substring_t value[MAX_OPT_ARGS];
	char any[] = "0.0.0.0", *addr = any, *option, number[8];
	int err = 0;

	while (err == 0 && (option = strsep(&text, ",")) != NULL) {
		switch (match_token(option, options, value)) {
		case SERVER:
			p->is_server = true;
			break;
		case CLIENT:
			p->is_server = false;
			break;
		case ADDR:
			addr = value[0].from;
			break;
		case PORT:
			err = match_int(value, &p->port);
			break;
		case COUNT:
			err = match_int(value, &p->count);
			break;
		default:
			err = -EINVAL;
		}
	}
	scnprintf(number, sizeof(number), "%d", p->port);
	return err ? err : inet_pton_with_scope(NULL, AF_UNSPEC, addr, number, &p->addr);
}

static ssize_t ping_write(struct file *file, const char __user *buffer, size_t size, loff_t *pos)
{
	struct ping *p = kzalloc(sizeof(*p), GFP_KERNEL);
	char *text = kzalloc(size + 1, GFP_KERNEL);
	int err = p && text ? 0 : -ENOMEM;

	(void)file, (void)pos;
	if (err == 0) {
		p->count = 1;
		init_waitqueue_head(&p->wait);
		if (copy_from_user(text, buffer, size))
			err = -EFAULT;
	}
	if (err == 0)
		err = ping_parse(p, strim(text));
	if (err == 0)
		err = ping_run(p);
	if (err)
		pr_err("ping: error %d\n", err);
	kfree(text);
	kfree(p);
	return err ? err : (ssize_t)size;
}

static int ping_show(struct seq_file *seq, void *unused)
{
	(void)unused;
	seq_printf(seq, "%d messages\n", atomic_read(&ping_total));
	return 0;
}

static int ping_open(struct inode *inode, struct file *file)
{
	return single_open(file, ping_show, pde_data(inode));
}

static const struct proc_ops ping_ops = { .proc_open = ping_open,
					  .proc_read = seq_read,
					  .proc_write = ping_write,
					  .proc_release = single_release };

static int __init ping_init(void)
{
	return proc_create("ping", 0666, NULL, &ping_ops) ? 0 : -ENOMEM;
}

static void __exit ping_exit(void)
{
	remove_proc_entry("ping", NULL);
}

module_init(ping_init);
module_exit(ping_exit);
MODULE_LICENSE("MIT");
MODULE_DESCRIPTION("messages there and back");
