/* mad_fuzz.c: what arrives at a port of the MAD layer, among requests, cancels and timeouts.
 *
 * The input is a list of steps: MADs of which the beginning is told, packets of RMPP, requests,
 * messages, and time. Whatever comes, each send ends exactly once, what arrives is no longer than
 * its segments, and nothing is left of port or agents.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <endian.h>

#include "base/clock.h"
#include "input.h"
#include "mad/mad_priv.h"

enum {
	AGENTS = 4,
	STEPS = 64,
	TOLD = 48,
	RIGHT_HEADER = 1,
	RIGHT_TID = 2,
	RIGHT_KEYS = 4,
	RMPP_AGENT = 1, /* leaves RMPP to the midlayer */
	RAW_AGENT = 3,	/* does it itself */
	METHOD = 5,
};

static struct fuzz {
	struct ib_device device;
	struct ib_ah ah;
	struct work_queue queue;
	struct mad_port *port;
	struct ib_mad_agent *agent[AGENTS];
	struct ib_mad_send_buf *last; /* posted, and not yet ended */
	u64 now_ns;
	u32 posted, ended, number;
} f;

int __wrap_ib_get_cached_pkey(struct ib_device *device, u8 port_num, int index, u16 *pkey);
int __wrap_ib_get_cached_pkey(struct ib_device *device, u8 port_num, int index, u16 *pkey)
{
	*pkey = 0xffff;
	return index == 0 ? 0 : -1;
}

int __wrap_ib_init_ah_from_wc(struct ib_device *device, u8 port_num, struct ib_wc *wc,
			      struct ib_grh *grh, struct ib_ah_attr *attr);
int __wrap_ib_init_ah_from_wc(struct ib_device *device, u8 port_num, struct ib_wc *wc,
			      struct ib_grh *grh, struct ib_ah_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	return (wc->wc_flags & IB_WC_GRH) != 0 ? 0 : -1;
}

static u64 fuzz_time(void)
{
	return f.now_ns;
}

static int fuzz_send(void *arg, const struct mad_departure *d)
{
	return 0;
}

static const struct mad_port_ops fuzz_ops = { .send = fuzz_send };

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	clock_set_source(fuzz_time);
	f.ah.device = &f.device;
	return 0;
}

static void on_sent(struct ib_mad_agent *agent, struct ib_mad_send_wc *wc)
{
	f.ended++;
	if (f.last == wc->send_buf)
		f.last = NULL;
	ib_free_send_mad(wc->send_buf);
}

static void on_received(struct ib_mad_agent *agent, struct ib_mad_recv_wc *recv)
{
	int space = 0;

	fuzz_need(recv->wc->wr_id == 0 || ib_response_mad(recv->recv_buf.mad),
		  "a request that answers a request");
	list_for_each(buf, &recv->rmpp_list, struct ib_mad_recv_buf, list)
		space += buf->mad->mad_hdr.base_version * IB_MGMT_MAD_SIZE; /* read, for ASan */
	fuzz_need(recv->mad_len >= IB_MGMT_MAD_HDR && recv->mad_len <= space,
		  "a message longer than its segments");
	ib_free_recv_mad(recv);
}

static void fuzz_begin(void)
{
	static const u8 classes[AGENTS] = { IB_MGMT_CLASS_CM, 0x30, IB_MGMT_CLASS_PERF_MGMT, 0x31 };
	struct mad_port_config config = { .device = &f.device,
					  .port_num = 1,
					  .qp_type = IB_QPT_GSI,
					  .ops = &fuzz_ops,
					  .queue = &f.queue };
	int err;

	work_queue_init(&f.queue, "fuzz", true);
	f.posted = f.ended = f.number = 0;
	f.port = mad_port_add(&config, &err);
	fuzz_need(f.port != NULL, "no port");
	for (int i = 0; i < AGENTS; i++) {
		struct ib_mad_reg_req r = { .mgmt_class = classes[i],
					    .mgmt_class_version = 1,
					    .oui = { 0, 0x14, 5 } };

		r.method_mask[0] = 0x7e;
		f.agent[i] = ib_register_mad_agent(&f.device, 1, IB_QPT_GSI, &r, i == RMPP_AGENT,
						   on_sent, on_received, NULL);
		fuzz_need(!IS_ERR(f.agent[i]), "no agent");
	}
}

static void fuzz_end(void)
{
	work_queue_run(&f.queue, f.now_ns);
	for (int i = 0; i < AGENTS; i++)
		ib_unregister_mad_agent(f.agent[i]);
	fuzz_need(f.port->rmpp.segments == 0, "a segment is left");
	mad_port_remove(f.port);
	fuzz_need(f.ended == f.posted, "a send did not end once");
	fuzz_need(work_queue_next_ns(&f.queue) == TIMER_NEVER, "a work is left");
	timer_set_destroy(&f.queue.timers);
}

static void fuzz_request(struct input *in)
{
	struct ib_mad_agent *agent = f.agent[input_u8(in) % AGENTS];
	struct ib_mad_send_buf *buf = ib_create_send_mad(agent, 1, 0, 0, IB_MGMT_MAD_HDR,
							 IB_MGMT_MAD_DATA, 0);
	struct ib_mad *mad;

	fuzz_need(!IS_ERR(buf), "no buffer");
	mad = buf->mad;
	mad->mad_hdr.mgmt_class = IB_MGMT_CLASS_PERF_MGMT;
	mad->mad_hdr.tid = htobe64((u64)agent->hi_tid << 32 | f.number++ % 4);
	buf->ah = &f.ah;
	buf->timeout_ms = input_u8(in) % 64;
	buf->retries = input_u8(in) % 4;
	fuzz_need(ib_post_send_mad(buf, NULL) == 0, "a request is refused");
	f.posted++;
	f.last = buf;
}

/* A message, of which the packets of fuzz_packet may be the answers. */
static void fuzz_message(struct input *in)
{
	struct ib_mad_agent *agent = f.agent[RMPP_AGENT];
	struct ib_mad_send_buf *buf =
		ib_create_send_mad(agent, 1, 0, 1, IB_MGMT_VENDOR_HDR, input_u8(in) * 100, 0);
	struct ib_vendor_mad *mad;
	u8 choice = input_u8(in);

	fuzz_need(!IS_ERR(buf), "no buffer");
	mad = buf->mad;
	mad->mad_hdr.mgmt_class = 0x30;
	mad->mad_hdr.method = (choice & 1) != 0 ? METHOD | IB_MGMT_METHOD_RESP : METHOD;
	mad->mad_hdr.tid = htobe64((u64)agent->hi_tid << 32 | (choice >> 1 & 1));
	mad->rmpp_hdr.rmpp_type = IB_MGMT_RMPP_TYPE_DATA;
	buf->ah = &f.ah;
	buf->timeout_ms = choice >> 4;
	buf->retries = choice >> 2 & 3;
	fuzz_need(ib_post_send_mad(buf, NULL) == 0, "a message is refused");
	f.posted++;
	f.last = buf;
}

static void fuzz_packet(struct input *in)
{
	static const u32 lengths[] = { 0, 1, 3, 4, 5, 219, 220, 221, 440, 441, 64, 65, 20000,
				       UINT32_MAX };
	u8 choice = input_u8(in);
	struct ib_vendor_mad mad = {
		.mad_hdr = { .base_version = 1,
			     .mgmt_class = (choice & 0x80) != 0 ? 0x31 : 0x30,
			     .class_version = 1,
			     .method = (choice & 1) != 0 ? METHOD | IB_MGMT_METHOD_RESP : METHOD },
		.rmpp_hdr = { .rmpp_version = (choice & 0x7c) != 0,
			      .rmpp_type = input_u8(in) % 6,
			      .rmpp_rtime_flags = input_u8(in) | IB_MGMT_RMPP_FLAG_ACTIVE,
			      .rmpp_status = (choice & 0x60) == 0x60 ? input_u8(in) : 0 },
		.oui = { 0, 0x14, 5 }
	};
	struct mad_arrival a = { .mad = &mad,
				 .length = IB_MGMT_MAD_SIZE,
				 .src_qp = 1,
				 .qkey = IB_QP1_QKEY,
				 .pkey = 0xffff,
				 .has_grh = (choice & 2) != 0 };
	u32 hi_tid = f.agent[(choice & 0x80) != 0 ? RAW_AGENT : RMPP_AGENT]->hi_tid;

	mad.mad_hdr.tid = htobe64((u64)hi_tid << 32 | (choice >> 2 & 1));
	mad.rmpp_hdr.seg_num = htobe32(input_u8(in) % 80);
	mad.rmpp_hdr.paylen_newwin =
		htobe32(lengths[input_u8(in) % (sizeof(lengths) / sizeof(lengths[0]))]);
	mad_port_receive(f.port, &a);
}

static void fuzz_arrival(struct input *in)
{
	u8 right = input_u8(in), mad[IB_MGMT_MAD_SIZE + 4] = { 0 };
	struct mad_arrival a = { .mad = mad, .length = IB_MGMT_MAD_SIZE, .src_qp = 1 };
	struct ib_mad_hdr *hdr = (void *)mad;

	a.has_grh = (right & 8) != 0;
	a.qkey = right & RIGHT_KEYS ? IB_QP1_QKEY : input_u8(in);
	a.pkey = right & RIGHT_KEYS ? 0x7fff : input_u8(in);
	if ((right & 16) != 0)
		a.length = input_u8(in);
	input_bytes(in, mad, TOLD);
	if (right & RIGHT_HEADER)
		hdr->base_version = hdr->class_version = 1;
	if (right & RIGHT_TID)
		hdr->tid = htobe64((u64)f.agent[right >> 5 & 1]->hi_tid << 32 | (hdr->tid & 3));
	mad_port_receive(f.port, &a);
}

static void fuzz_step(struct input *in)
{
	switch (input_u8(in) % 12) {
	case 0:
	case 1:
		fuzz_arrival(in);
		break;
	case 2:
		fuzz_request(in);
		break;
	case 3:
		if (f.last != NULL)
			ib_cancel_mad(f.last->mad_agent, f.last);
		break;
	case 4:
		if (f.last != NULL)
			(void)ib_modify_mad(f.last->mad_agent, f.last, input_u8(in));
		break;
	case 5:
		fuzz_message(in);
		break;
	case 6:
	case 7:
	case 8:
	case 9:
		fuzz_packet(in);
		break;
	case 10: /* long enough for what is kept and what is given up */
		f.now_ns += input_u8(in) * NS_PER_S;
		work_queue_run(&f.queue, f.now_ns);
		break;
	default:
		f.now_ns += input_u8(in) * NS_PER_MS;
		work_queue_run(&f.queue, f.now_ns);
	}
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct input in = { data, size };

	fuzz_begin();
	for (int i = 0; i < STEPS && in.left != 0; i++) {
		fuzz_step(&in);
		fuzz_need(f.port->rmpp.counts[RMPP_STATE_OPEN] <= STEPS, "messages without end");
	}
	fuzz_end();
	return 0;
}
