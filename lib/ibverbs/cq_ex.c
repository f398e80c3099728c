/* cq_ex.c: the extended way to poll: start, next, end, and a reader per field.
 * In: completions one at a time from the driver
 * Out: cq->status, cq->wr_id and what the readers answer
 * Runs: the polling thread
 * Locks: poll_lock from start to end, unless the CQ is single-threaded
 */
#include "door.h"

static struct door_cq *cq_ex_door(struct ibv_cq_ex *ex)
{
	return container_of(ex, struct door_cq, ex);
}

/* 0, ENOENT: nothing there, or the driver's errno. */
static int cq_ex_fetch(struct door_cq *cq)
{
	int got = cq->poll_ex ? cq->poll_ex(cq->ib, 1, &cq->wc, &cq->side) :
				cq->poll(cq->ib, 1, &cq->wc);

	if (got < 1)
		return got ? door_errno(got) : ENOENT;
	cq->ex.status = cq->wc.status;
	cq->ex.wr_id = cq->wc.wr_id;
	return 0;
}

/* The lock is held between two calls of the application: the analysis cannot follow. */
static int cq_ex_start(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr) NO_THREAD_SAFETY
{
	struct door_cq *cq = cq_ex_door(ex);
	int error;

	if (attr->comp_mask)
		return EINVAL;
	if (!cq->single_threaded)
		lock_acquire(&cq->poll_lock);
	error = cq_ex_fetch(cq);
	if (error && !cq->single_threaded)
		lock_release(&cq->poll_lock);
	return error;
}

static int cq_ex_next(struct ibv_cq_ex *ex)
{
	return cq_ex_fetch(cq_ex_door(ex));
}

static void cq_ex_end(struct ibv_cq_ex *ex) NO_THREAD_SAFETY
{
	struct door_cq *cq = cq_ex_door(ex);

	if (!cq->single_threaded)
		lock_release(&cq->poll_lock);
}

static enum ibv_wc_opcode cq_ex_opcode(struct ibv_cq_ex *ex)
{
	return cq_ex_door(ex)->wc.opcode;
}

static uint32_t cq_ex_vendor_err(struct ibv_cq_ex *ex)
{
	return cq_ex_door(ex)->wc.vendor_err;
}

static uint32_t cq_ex_byte_len(struct ibv_cq_ex *ex)
{
	return cq_ex_door(ex)->wc.byte_len;
}

/* Also the invalidated key: the two share their place. */
static __be32 cq_ex_imm_data(struct ibv_cq_ex *ex)
{
	return cq_ex_door(ex)->wc.imm_data;
}

static uint32_t cq_ex_qp_num(struct ibv_cq_ex *ex)
{
	return cq_ex_door(ex)->wc.qp_num;
}

static uint32_t cq_ex_src_qp(struct ibv_cq_ex *ex)
{
	return cq_ex_door(ex)->wc.src_qp;
}

static unsigned int cq_ex_wc_flags(struct ibv_cq_ex *ex)
{
	return cq_ex_door(ex)->wc.wc_flags;
}

static uint32_t cq_ex_slid(struct ibv_cq_ex *ex)
{
	return cq_ex_door(ex)->wc.slid;
}

static uint8_t cq_ex_sl(struct ibv_cq_ex *ex)
{
	return cq_ex_door(ex)->wc.sl;
}

static uint8_t cq_ex_path_bits(struct ibv_cq_ex *ex)
{
	return cq_ex_door(ex)->wc.dlid_path_bits;
}

static uint64_t cq_ex_completion_ts(struct ibv_cq_ex *ex)
{
	return cq_ex_door(ex)->side.timestamp;
}

static uint64_t cq_ex_wallclock_ns(struct ibv_cq_ex *ex)
{
	return cq_ex_door(ex)->side.wallclock_ns;
}

static void cq_ex_tm_info(struct ibv_cq_ex *ex, struct ibv_wc_tm_info *info)
{
	const struct ib_wc_side *side = &cq_ex_door(ex)->side;

	*info = (struct ibv_wc_tm_info){ .tag = side->tm_tag, .priv = side->tm_priv };
}

static uint16_t cq_ex_cvlan(struct ibv_cq_ex *ex)
{
	return 0;
}

static uint32_t cq_ex_flow_tag(struct ibv_cq_ex *ex)
{
	return 0;
}

/* CQs without side data stay with the plain poll, which may get a completion straight from the
 * engine. */
static void cq_ex_init_side(struct door_cq *cq, uint64_t wc_flags)
{
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		cq->ex.read_completion_ts = cq_ex_completion_ts;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
		cq->ex.read_completion_wallclock_ns = cq_ex_wallclock_ns;
	if (wc_flags & IBV_WC_EX_WITH_TM_INFO)
		cq->ex.read_tm_info = cq_ex_tm_info;
	if (wc_flags & (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK | IBV_WC_EX_WITH_TM_INFO))
		cq->poll_ex = door_context(cq->ex.context)->ops->poll_cq_ex;
}

void cq_ex_init(struct door_cq *cq, uint64_t wc_flags)
{
	struct ibv_cq_ex *ex = &cq->ex;

	ex->start_poll = cq_ex_start;
	ex->next_poll = cq_ex_next;
	ex->end_poll = cq_ex_end;
	ex->read_opcode = cq_ex_opcode;
	ex->read_vendor_err = cq_ex_vendor_err;
	ex->read_wc_flags = cq_ex_wc_flags;
	if (wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
		ex->read_byte_len = cq_ex_byte_len;
	if (wc_flags & IBV_WC_EX_WITH_IMM)
		ex->read_imm_data = cq_ex_imm_data;
	if (wc_flags & IBV_WC_EX_WITH_QP_NUM)
		ex->read_qp_num = cq_ex_qp_num;
	if (wc_flags & IBV_WC_EX_WITH_SRC_QP)
		ex->read_src_qp = cq_ex_src_qp;
	if (wc_flags & IBV_WC_EX_WITH_SLID)
		ex->read_slid = cq_ex_slid;
	if (wc_flags & IBV_WC_EX_WITH_SL)
		ex->read_sl = cq_ex_sl;
	if (wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS)
		ex->read_dlid_path_bits = cq_ex_path_bits;
	if (wc_flags & IBV_WC_EX_WITH_CVLAN)
		ex->read_cvlan = cq_ex_cvlan;
	if (wc_flags & IBV_WC_EX_WITH_FLOW_TAG)
		ex->read_flow_tag = cq_ex_flow_tag;
	cq_ex_init_side(cq, wc_flags);
}
