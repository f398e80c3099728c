/* mad_fuzz.c: what arrives at a port of the MAD layer, among requests, cancels and timeouts.
 *
 * The input is a list of steps: MADs of which the beginning is told, requests, and time. Whatever
 * comes, each send ends exactly once, and nothing is left of port or agents.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <endian.h>

#include "base/clock.h"
#include "input.h"
#include "mad/port.h"

enum { AGENTS = 3, STEPS = 64, TOLD = 48, RIGHT_HEADER = 1, RIGHT_TID = 2, RIGHT_KEYS = 4 };

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
	fuzz_need(recv->wc->wr_id == 0 || ib_response_mad(recv->recv_buf.mad),
		  "a request that answers a request");
	ib_free_recv_mad(recv);
}

static void fuzz_begin(void)
{
	static const u8 classes[AGENTS] = { IB_MGMT_CLASS_CM, 0x30, IB_MGMT_CLASS_PERF_MGMT };
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
		f.agent[i] = ib_register_mad_agent(&f.device, 1, IB_QPT_GSI, &r, 0, on_sent,
						   on_received, NULL);
		fuzz_need(!IS_ERR(f.agent[i]), "no agent");
	}
}

static void fuzz_end(void)
{
	work_queue_run(&f.queue, f.now_ns);
	for (int i = 0; i < AGENTS; i++)
		ib_unregister_mad_agent(f.agent[i]);
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
	switch (input_u8(in) % 6) {
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
	default:
		f.now_ns += input_u8(in) * NS_PER_MS;
		work_queue_run(&f.queue, f.now_ns);
	}
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct input in = { data, size };

	fuzz_begin();
	for (int i = 0; i < STEPS && in.left != 0; i++)
		fuzz_step(&in);
	fuzz_end();
	return 0;
}
