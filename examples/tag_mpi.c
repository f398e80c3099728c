/* tag_mpi.c: a small MPI over tag-matching shared receive queues (ibv_post_srq_ops(3)), to be
 * copied. tag_ranks.c is a program over it.
 *
 * The adapter has a list of posted receives. A message that matches one lands in its buffer: a
 * short one at once (eager), a long one by an RDMA READ of the adapter's own (rendezvous). A
 * message that matches none is unexpected: it lands in an ordinary buffer, and this file keeps it
 * until a receive is posted that it matches. Both lists must agree on who was first. Therefore
 * every operation tells the adapter how many unexpected messages have been seen here.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <infiniband/tm_types.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tag_mpi.h"

/* ---- the adapter ----------------------------------------------------------------------------- */

/* A message that came unexpected: all of it, or for a rendezvous its request. */
struct unexpected {
	struct unexpected *next;
	uint32_t length;
	uint8_t packet[HEADER + EAGER];
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *send_cq;
static struct ibv_cq_ex *tm_cq;
static struct ibv_srq *srq;
static struct ibv_qp *qps[MAX_RANKS];
static uint8_t (*buffers)[HEADER + EAGER];
static struct ibv_mr *buffers_mr;

static struct receive **receives; /* by id */
static struct unexpected *unexpected_first, **unexpected_last = &unexpected_first;
static struct transfer **transfers; /* by id; NULL: done */
static struct transfer **sends;     /* by number, until they are done */
static uint32_t transfer_count;

struct receive posted = { .prev = &posted, .next = &posted };
struct counts counts;
FILE *trace;

static void note(const char *fmt, ...)
{
	va_list args;

	if (trace == NULL)
		return;
	va_start(args, fmt);
	vfprintf(trace, fmt, args);
	va_end(args);
}

/* A tag has 16 bits for its source and 32 for what the application says. */
uint64_t tag_of(int source, int tag)
{
	return (uint64_t)(source == ANY ? 0 : source) << 32 | (tag == ANY ? 0 : (uint32_t)tag);
}

static uint64_t mask_of(int source, int tag)
{
	return (source == ANY ? 0 : 0xffffull << 32) | (tag == ANY ? 0 : UINT32_MAX);
}

/* How the trace names a message: its source, and its number there. */
static uint64_t message_of(const uint8_t *packet)
{
	struct ibv_tmh tmh;

	memcpy(&tmh, packet, sizeof(tmh));
	return be64toh(tmh.tag) >> 32 << 32 | ntohl(tmh.app_ctx);
}

static void buffer_post(uint64_t i)
{
	struct ibv_sge sge = { (uintptr_t)buffers[i], sizeof(buffers[i]), buffers_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

	must(ibv_post_srq_recv(srq, &wr, &bad) == 0, "ibv_post_srq_recv");
}

/* The SRQ has a completion queue of its own: of list operations and of all that is received. */
void adapter_open(void)
{
	struct ibv_cq_init_attr_ex cq = { .cqe = 4096,
					  .wc_flags = IBV_WC_EX_WITH_BYTE_LEN |
						      IBV_WC_EX_WITH_TM_INFO };
	struct ibv_srq_init_attr_ex init = { .attr = { .max_wr = BUFFERS, .max_sge = 1 },
					     .comp_mask = IBV_SRQ_INIT_ATTR_TYPE |
							  IBV_SRQ_INIT_ATTR_PD |
							  IBV_SRQ_INIT_ATTR_CQ |
							  IBV_SRQ_INIT_ATTR_TM,
					     .srq_type = IBV_SRQT_TM };
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_device_attr_ex attr;

	receives = new(sizeof(*receives) * (size_t)(4 * opt.ranks * opt.messages + 1));
	transfers = new(sizeof(*transfers) * (size_t)((opt.ranks + 1) * opt.messages));
	sends = new(sizeof(*sends) * (size_t)opt.messages);
	must(list != NULL && list[0] != NULL, "a device");
	ctx = ibv_open_device(list[0]);
	must(ctx != NULL && ibv_query_device_ex(ctx, NULL, &attr) == 0, "ibv_open_device");
	ibv_free_device_list(list);
	if ((attr.tm_caps.flags & IBV_TM_CAP_RC) == 0)
		die("the device matches no tags");
	must((pd = ibv_alloc_pd(ctx)) != NULL, "ibv_alloc_pd");
	must((send_cq = ibv_create_cq(ctx, 4096, NULL, NULL, 0)) != NULL, "ibv_create_cq");
	must((tm_cq = ibv_create_cq_ex(ctx, &cq)) != NULL, "ibv_create_cq_ex");
	init.pd = pd;
	init.cq = ibv_cq_ex_to_cq(tm_cq);
	init.tm_cap.max_num_tags = attr.tm_caps.max_num_tags;
	init.tm_cap.max_ops = MAX_OPS;
	must((srq = ibv_create_srq_ex(ctx, &init)) != NULL, "ibv_create_srq_ex");
	buffers = new(BUFFERS * sizeof(*buffers));
	buffers_mr = ibv_reg_mr(pd, buffers, BUFFERS * sizeof(*buffers), IBV_ACCESS_LOCAL_WRITE);
	must(buffers_mr != NULL, "ibv_reg_mr");
	for (uint64_t i = 0; i < BUFFERS; i++)
		buffer_post(i);
}

static void qp_connect(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT,
				 .port_num = 1,
				 .qp_access_flags = IBV_ACCESS_REMOTE_READ,
				 .path_mtu = IBV_MTU_1024,
				 .dest_qp_num = peer,
				 .max_dest_rd_atomic = 8,
				 .max_rd_atomic = 8,
				 .min_rnr_timer = 6,
				 .timeout = 14,
				 .retry_cnt = 7,
				 .rnr_retry = 7 };

	a.ah_attr.is_global = 1;
	a.ah_attr.port_num = 1;
	a.ah_attr.grh.dgid = *gid;
	a.ah_attr.grh.sgid_index = (uint8_t)opt.gid;
	a.ah_attr.grh.hop_limit = 64;
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					   IBV_QP_ACCESS_FLAGS) == 0, "to INIT");
	a.qp_state = IBV_QPS_RTR;
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					   IBV_QP_MIN_RNR_TIMER) == 0, "to RTR");
	a.qp_state = IBV_QPS_RTS;
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
					   IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					   IBV_QP_MAX_QP_RD_ATOMIC) == 0, "to RTS");
}

/* What a rank tells all others. */
struct card {
	union ibv_gid gid;
	uint32_t qpn[MAX_RANKS]; /* for each of them */
};

/* A queue pair to every other rank; all of them share the SRQ. The adapter reads and sends on them,
 * and so does this program. */
void ranks_connect(void)
{
	struct card mine = { 0 }, *all = new(sizeof(*all) * (size_t)opt.ranks);
	struct ibv_qp_init_attr init = { .send_cq = send_cq,
					 .recv_cq = send_cq,
					 .srq = srq,
					 .cap = { .max_send_wr = 4 * SENDS, .max_send_sge = 2 },
					 .qp_type = IBV_QPT_RC };
	char ready = 1, *readies = new((size_t)opt.ranks);

	must(ibv_query_gid(ctx, 1, opt.gid, &mine.gid) == 0, "ibv_query_gid");
	for (int i = 0; i < opt.ranks; i++) {
		if (i == rank)
			continue;
		must((qps[i] = ibv_create_qp(pd, &init)) != NULL, "ibv_create_qp");
		mine.qpn[i] = qps[i]->qp_num;
	}
	gather(&mine, sizeof(mine), all);
	for (int i = 0; i < opt.ranks; i++)
		if (i != rank)
			qp_connect(qps[i], all[i].qpn[rank], &all[i].gid);
	gather(&ready, 1, readies);
	free(readies);
	free(all);
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void transfer_read(struct receive *r, const uint8_t *packet);

/* Each operation says how many unexpected messages have been seen: an entry that is posted without
 * knowing of one must not match before that one is dealt with. */
static void op_post(struct ibv_ops_wr *wr, enum ibv_ops_wr_opcode opcode, struct receive *r)
{
	struct ibv_ops_wr *bad;

	wr->opcode = opcode;
	wr->wr_id = r == NULL ? 0 : r->id;
	wr->flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC;
	wr->tm.unexpected_cnt = counts.unexpected_count;
	must(ibv_post_srq_ops(srq, wr, &bad) == 0, "ibv_post_srq_ops");
	counts.ops_open++;
}

static void list_append(struct receive *r)
{
	r->next = &posted;
	r->prev = posted.prev;
	r->prev->next = posted.prev = r;
	r->waits = true;
}

static void list_remove(struct receive *r)
{
	r->prev->next = r->next;
	r->next->prev = r->prev;
	r->waits = false;
}

bool receive_matches(const struct receive *r, uint64_t tag)
{
	return (tag & mask_of(r->source, r->tag)) == tag_of(r->source, r->tag);
}

/* A message that came unexpected gets its receive. */
static void receive_take(struct receive *r, const uint8_t *packet, uint32_t length)
{
	r->message = message_of(packet);
	note("take %u %llu\n", r->id, (unsigned long long)r->message);
	if (packet[0] == IBV_TMH_RNDV) {
		transfer_read(r, packet);
		return;
	}
	length -= sizeof(struct ibv_tmh);
	if (length > r->length)
		die("a message of %u bytes for a receive of %u", length, r->length);
	memcpy(r->bytes, packet + sizeof(struct ibv_tmh), length);
	receive_done(r, length);
}

/* The memory that it had for its message. */
void receive_free(struct receive *r)
{
	must(ibv_dereg_mr(r->mr) == 0, "ibv_dereg_mr");
	free(r->bytes);
	r->bytes = NULL;
}

static bool receive_take_unexpected(struct receive *r)
{
	for (struct unexpected **at = &unexpected_first; *at != NULL; at = &(*at)->next) {
		struct unexpected *u = *at;
		struct ibv_tmh tmh;

		memcpy(&tmh, u->packet, sizeof(tmh));
		if (!receive_matches(r, be64toh(tmh.tag)))
			continue;
		*at = u->next;
		if (u->next == NULL)
			unexpected_last = at;
		receive_take(r, u->packet, u->length);
		free(u);
		return true;
	}
	return false;
}

void receive_post(int source, int tag, uint32_t length)
{
	struct receive *r = new(sizeof(*r));
	struct ibv_ops_wr wr = { 0 };
	struct ibv_sge sge;

	*r = (struct receive){
		.id = counts.receive_count, .source = source, .tag = tag, .length = length
	};
	r->bytes = new((size_t)length + 1);
	must((r->mr = ibv_reg_mr(pd, r->bytes, (size_t)length + 1, IBV_ACCESS_LOCAL_WRITE)) != NULL,
	     "ibv_reg_mr");
	receives[counts.receive_count++] = r;
	note("post %u %llu %llu\n", r->id, (unsigned long long)tag_of(source, tag),
	     (unsigned long long)mask_of(source, tag));
	if (receive_take_unexpected(r))
		return;
	list_append(r);
	sge = (struct ibv_sge){ (uintptr_t)r->bytes, length, r->mr->lkey };
	wr.tm.add.recv_wr_id = r->id;
	wr.tm.add.sg_list = &sge;
	wr.tm.add.num_sge = 1;
	wr.tm.add.tag = tag_of(source, tag);
	wr.tm.add.mask = mask_of(source, tag);
	op_post(&wr, IBV_WR_TAG_ADD, r);
	r->handle = wr.tm.handle;
}

static void entry_delete(struct receive *r)
{
	struct ibv_ops_wr wr = { .tm.handle = r->handle };

	op_post(&wr, IBV_WR_TAG_DEL, r);
}

void receive_cancel(struct receive *r)
{
	r->cancelling = true;
	entry_delete(r);
}

/* An ordinary buffer has got a message that no entry took. If a receive was posted too late for it,
 * its entry is in the list, but has matched nothing since: the adapter knew that its poster did not
 * know of this message. */
static void on_unexpected(const uint8_t *packet, uint32_t length)
{
	struct unexpected *u;
	struct ibv_tmh tmh;

	memcpy(&tmh, packet, sizeof(tmh));
	counts.unexpected_count++;
	counts.arrived++;
	note("unexpected %llu %llu\n", (unsigned long long)message_of(packet),
	     (unsigned long long)be64toh(tmh.tag));
	for (struct receive *r = posted.next; r != &posted; r = r->next) {
		if (!receive_matches(r, be64toh(tmh.tag)))
			continue;
		list_remove(r);
		if (!r->cancelling)
			entry_delete(r);
		receive_take(r, packet, length);
		return;
	}
	u = new(sizeof(*u));
	u->length = length;
	memcpy(u->packet, packet, length);
	*unexpected_last = u;
	unexpected_last = &u->next;
}

static void on_match(struct receive *r)
{
	struct ibv_wc_tm_info info;

	ibv_wc_read_tm_info(tm_cq, &info);
	r->message = info.tag >> 32 << 32 | info.priv;
	counts.arrived++;
	note("match %u %llu %llu\n", r->id, (unsigned long long)r->message,
	     (unsigned long long)info.tag);
	if (!receive_matches(r, info.tag) || !r->waits)
		die("receive %u matches a message with tag %llx", r->id,
		    (unsigned long long)info.tag);
	list_remove(r);
}

/* It is over when it has been sent, and the peer has the data of a rendezvous. */
static void transfer_settle(struct transfer *t)
{
	if (!t->sent || !t->read)
		return;
	must(ibv_dereg_mr(t->mr) == 0 && ibv_dereg_mr(t->header_mr) == 0, "ibv_dereg_mr");
	transfers[t->id] = NULL;
	if (t->receive == NULL) {
		sends[t->number] = NULL;
		counts.sends_open[t->peer]--;
	}
	counts.transfers_open--;
	free(t->bytes);
	free(t);
}

/* The sender of a rendezvous hears that its memory has been read. */
static void on_fin(const uint8_t *packet)
{
	uint32_t number = (uint32_t)message_of(packet);

	if (number >= (uint32_t)opt.messages || sends[number] == NULL || sends[number]->read)
		die("a FIN for message %u", number);
	sends[number]->read = true;
	transfer_settle(sends[number]);
}

static void on_buffer(uint64_t i, uint32_t length)
{
	if (buffers[i][0] == IBV_TMH_FIN)
		on_fin(buffers[i]);
	else
		on_unexpected(buffers[i], length);
	buffer_post(i);
}

static void on_receive(void)
{
	unsigned flags = ibv_wc_read_wc_flags(tm_cq);

	if ((flags & (IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID)) == 0) {
		on_buffer(tm_cq->wr_id, ibv_wc_read_byte_len(tm_cq));
		return;
	}
	if (flags & IBV_WC_TM_MATCH)
		on_match(receives[tm_cq->wr_id]);
	if (flags & IBV_WC_TM_DATA_VALID)
		receive_done(receives[tm_cq->wr_id], ibv_wc_read_byte_len(tm_cq));
}

static void on_deleted(struct receive *r)
{
	counts.ops_open--;
	if (!r->cancelling) {
		if (tm_cq->status != IBV_WC_SUCCESS)
			die("receive %u: a message overtook one that came unexpected", r->id);
		return;
	}
	if (tm_cq->status == IBV_WC_TM_ERR || !r->waits)
		return; /* a message has it; its completion came or comes */
	note("cancel %u\n", r->id);
	list_remove(r);
	receive_free(r);
	counts.receives_cancelled++;
}

static void on_completion(void)
{
	enum ibv_wc_opcode opcode = ibv_wc_read_opcode(tm_cq);

	if (tm_cq->status != IBV_WC_SUCCESS && tm_cq->status != IBV_WC_TM_ERR)
		die("%s", ibv_wc_status_str(tm_cq->status));
	switch (opcode) {
	case IBV_WC_TM_RECV:
		on_receive();
		break;
	case IBV_WC_TM_NO_TAG:
		on_buffer(tm_cq->wr_id, ibv_wc_read_byte_len(tm_cq));
		break;
	case IBV_WC_TM_DEL:
		on_deleted(receives[tm_cq->wr_id]);
		break;
	case IBV_WC_TM_ADD:
	case IBV_WC_TM_SYNC:
		counts.ops_open--;
		break;
	default:
		die("a completion with opcode %d", opcode);
	}
}

/* ---- sending --------------------------------------------------------------------------------- */

struct transfer *transfer_new(int peer, uint32_t length)
{
	struct transfer *t = new(sizeof(*t));

	t->peer = peer;
	t->id = transfer_count;
	t->length = length;
	t->bytes = new((size_t)length + 1); /* a region has one byte at least */
	t->header_mr = ibv_reg_mr(pd, t->header, sizeof(t->header), IBV_ACCESS_LOCAL_WRITE);
	t->mr = ibv_reg_mr(pd, t->bytes, (size_t)length + 1,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	must(t->header_mr != NULL && t->mr != NULL, "ibv_reg_mr");
	transfers[transfer_count++] = t;
	counts.transfers_open++;
	return t;
}

static void transfer_post(struct transfer *t, enum ibv_wr_opcode opcode, struct ibv_sge *sge, int n,
			  uint64_t va, uint32_t rkey)
{
	struct ibv_send_wr wr = { .wr_id = t->id,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED,
				  .sg_list = sge,
				  .num_sge = n,
				  .wr.rdma = { va, rkey } }, *bad;

	must(ibv_post_send(qps[t->peer], &wr, &bad) == 0, "ibv_post_send");
}

/* The header goes in front: the application's tag and, in app_ctx, this message's number. A
 * rendezvous carries the place of the data instead of the data. */
void message_send(struct transfer *t, int tag)
{
	struct ibv_tmh tmh = { .opcode = t->length > EAGER ? IBV_TMH_RNDV : IBV_TMH_EAGER,
			       .app_ctx = htonl(t->number),
			       .tag = htobe64(tag_of(rank, tag)) };
	struct ibv_rvh rvh = { .va = htobe64((uintptr_t)t->bytes),
			       .rkey = htonl(t->mr->rkey),
			       .len = htonl(t->length) };
	struct ibv_sge sge[2] = { { (uintptr_t)t->header, sizeof(tmh), t->header_mr->lkey },
				  { (uintptr_t)t->bytes, t->length, t->mr->lkey } };

	memcpy(t->header, &tmh, sizeof(tmh));
	memcpy(t->header + sizeof(tmh), &rvh, sizeof(rvh));
	t->read = tmh.opcode == IBV_TMH_EAGER;
	if (!t->read)
		sge[0].length = HEADER;
	sends[t->number] = t;
	counts.sends_open[t->peer]++;
	transfer_post(t, IBV_WR_SEND, sge, t->read && t->length != 0 ? 2 : 1, 0, 0);
}

/* A rendezvous that came unexpected: this program reads the data itself, and then says so. */
static void transfer_read(struct receive *r, const uint8_t *packet)
{
	struct transfer *t;
	struct ibv_rvh rvh;
	struct ibv_sge sge;

	memcpy(&rvh, packet + sizeof(struct ibv_tmh), sizeof(rvh));
	t = transfer_new((int)(r->message >> 32), 0);
	t->receive = r;
	t->length = ntohl(rvh.len);
	if (t->length > r->length)
		die("%u bytes for a receive of %u", t->length, r->length);
	memcpy(t->header, packet, HEADER);
	t->header[0] = IBV_TMH_FIN;
	sge = (struct ibv_sge){ (uintptr_t)r->bytes, t->length, r->mr->lkey };
	transfer_post(t, IBV_WR_RDMA_READ, &sge, 1, be64toh(rvh.va), ntohl(rvh.rkey));
}

static void transfer_fin(struct transfer *t)
{
	struct ibv_sge sge = { (uintptr_t)t->header, HEADER, t->header_mr->lkey };

	t->read = true;
	receive_done(t->receive, t->length);
	transfer_post(t, IBV_WR_SEND, &sge, 1, 0, 0);
}

static void on_sent(const struct ibv_wc *wc)
{
	struct transfer *t = transfers[wc->wr_id];

	if (wc->status != IBV_WC_SUCCESS)
		die("%s", ibv_wc_status_str(wc->status));
	if (wc->opcode == IBV_WC_RDMA_READ) {
		transfer_fin(t);
		return;
	}
	t->sent = true;
	transfer_settle(t);
}

/* ---- progress -------------------------------------------------------------------------------- */

void progress(void)
{
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_wc wc[16];
	int n;

	if (ibv_start_poll(tm_cq, &attr) == 0) {
		do
			on_completion();
		while (ibv_next_poll(tm_cq) == 0);
		ibv_end_poll(tm_cq);
	}
	must((n = ibv_poll_cq(send_cq, 16, wc)) >= 0, "ibv_poll_cq");
	for (int i = 0; i < n; i++)
		on_sent(&wc[i]);
}

bool is_unexpected(void)
{
	return unexpected_first != NULL;
}

void adapter_close(void)
{
	for (int i = 0; i < opt.ranks; i++)
		must(i == rank || ibv_destroy_qp(qps[i]) == 0, "ibv_destroy_qp");
	must(ibv_destroy_srq(srq) == 0, "ibv_destroy_srq");
	must(ibv_destroy_cq(ibv_cq_ex_to_cq(tm_cq)) == 0 && ibv_destroy_cq(send_cq) == 0,
	     "ibv_destroy_cq");
	must(ibv_dereg_mr(buffers_mr) == 0 && ibv_dealloc_pd(pd) == 0 &&
		     ibv_close_device(ctx) == 0,
	     "ibv_close_device");
}
