/* cm_fuzz.c: what a stranger may send to the IB CM, between calls of a consumer.
 *
 * The input is a list of steps: a MAD of which some fields may be told to be right, a call on one
 * of the ids, or time that passes. Whatever comes, the consumer's ids stay valid, every event is
 * within its bounds, and when all ids are destroyed and time has passed, none is left.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cm/ib/cm.h"
#include "cm/message/message.h"
#include "input.h"

enum { STEPS = 200, IDS = 8, SERVICE = 0x1061234, SLOT = 3 };

/* Bits of `right`: fields of the MAD that are set. */
enum { RIGHT_HEADER = 1, RIGHT_LOCAL = 2, RIGHT_REMOTE = 4, RIGHT_SERVICE = 8, RIGHT_QPN = 16 };

static struct fuzz {
	struct cm_device dev; /* first: the ops know it by it */
	struct ib_device ib;
	struct cm *cm;
	struct work_queue queue;
	u64 now_ns;
	struct ib_cm_id *ids[IDS]; /* 0: listens */
	u8 last[CM_MAD_BYTES];	   /* that was sent */
	int ends;		   /* what the handler returns next */
} f;

static u64 fuzz_clock(void)
{
	return f.now_ns;
}

static void fuzz_send(struct cm_device *dev, const struct cm_route *route, const u8 *mad)
{
	fuzz_need(dev == &f.dev && route->pkey_index == 0, "another device");
	memcpy(f.last, mad, sizeof(f.last));
}

static int fuzz_find_gid(struct cm_device *dev, const union ib_gid *gid, u8 *port, u16 *index)
{
	(void)dev;
	*port = 1;
	*index = 0;
	return gid->raw[15] & 0x80 ? -1 : 0;
}

static int fuzz_find_pkey(struct cm_device *dev, u8 port, u16 pkey, u16 *index)
{
	(void)dev;
	(void)port;
	*index = 0;
	return pkey == 0 ? -1 : 0;
}

static const struct cm_device_ops fuzz_ops = {
	.send = fuzz_send, .find_gid = fuzz_find_gid, .find_pkey = fuzz_find_pkey
};

/* ---- the consumer ---------------------------------------------------------------------------- */

static void fuzz_read(const void *data, u32 bytes)
{
	u8 copy[CM_DATA_BYTES];

	fuzz_need(bytes <= sizeof(copy), "more than a message holds");
	if (bytes > 0)
		memcpy(copy, data, bytes);
}

static int fuzz_handler(struct ib_cm_id *id, struct ib_cm_event *event)
{
	u32 at = 0;

	fuzz_read(event->private_data, event->private_data != NULL ? event->private_data_len : 0);
	if (event->event == IB_CM_REJ_RECEIVED)
		fuzz_read(event->param.rej_rcvd.ari, event->param.rej_rcvd.ari_length);
	if (event->event == IB_CM_APR_RECEIVED)
		fuzz_read(event->param.apr_rcvd.apr_info, event->param.apr_rcvd.info_len);
	if (event->event == IB_CM_SIDR_REP_RECEIVED)
		fuzz_read(event->param.sidr_rep_rcvd.info, event->param.sidr_rep_rcvd.info_len);
	while (at < IDS && f.ids[at] != id)
		at++;
	if (at == IDS) { /* a new one */
		fuzz_need(event->event == IB_CM_REQ_RECEIVED ||
				  event->event == IB_CM_SIDR_REQ_RECEIVED, "an unknown id");
		for (at = 1; at < IDS && f.ids[at] != NULL; at++)
			;
		if (at == IDS)
			return 1;
		f.ids[at] = id;
	}
	if (at == 0 || f.ends == 0)
		return 0;
	f.ends = 0;
	f.ids[at] = NULL;
	return 1;
}

static struct ib_sa_path_rec fuzz_path(struct input *in)
{
	struct ib_sa_path_rec path = { .hop_limit = input_u8(in),
				       .pkey = htobe16(input_u8(in)),
				       .mtu = input_u8(in) & 7,
				       .packet_life_time = input_u8(in) & 31 };

	path.sgid.raw[15] = input_u8(in);
	return path;
}

static void fuzz_ask(struct ib_cm_id *id, struct input *in)
{
	struct ib_sa_path_rec path = fuzz_path(in);
	struct ib_cm_req_param req = { .primary_path = &path,
				       .service_id = htobe64(SERVICE),
				       .qp_num = input_u8(in),
				       .qp_type = input_u8(in) & 1 ? IB_QPT_RC : IB_QPT_UC,
				       .peer_to_peer = input_u8(in) & 1,
				       .remote_cm_response_timeout = input_u8(in) & 15,
				       .max_cm_retries = input_u8(in) & 15 };
	struct ib_cm_sidr_req_param ask = { .path = &path,
					    .service_id = htobe64(SERVICE),
					    .timeout_ms = 10,
					    .max_cm_retries = 2 };

	if (input_u8(in) & 1)
		(void)ib_send_cm_req(id, &req);
	else
		(void)ib_send_cm_sidr_req(id, &ask);
}

static void fuzz_call(struct input *in)
{
	u32 at = input_u8(in) % IDS;
	struct ib_cm_id *id = f.ids[at];
	struct ib_cm_rep_param rep = { .qp_num = 0x77 };
	struct ib_cm_sidr_rep_param sidr = { .qp_num = 0x78 };
	struct ib_sa_path_rec path;
	u8 what = input_u8(in) % 12;

	if (id == NULL) {
		if (at != 0)
			f.ids[at] = ib_create_cm_id(&f.ib, fuzz_handler, NULL);
		return;
	}
	if (what == 0)
		fuzz_ask(id, in);
	else if (what == 1)
		(void)ib_send_cm_rep(id, &rep);
	else if (what == 2)
		(void)ib_send_cm_rtu(id, "rtu", 3);
	else if (what == 3)
		(void)ib_send_cm_dreq(id, NULL, 0);
	else if (what == 4)
		(void)ib_send_cm_drep(id, NULL, 0);
	else if (what == 5)
		(void)ib_send_cm_rej(id, input_u8(in), NULL, 0, NULL, 0);
	else if (what == 6)
		(void)ib_send_cm_mra(id, input_u8(in), NULL, 0);
	else if (what == 7)
		(void)(path = fuzz_path(in), ib_send_cm_lap(id, &path, NULL, 0));
	else if (what == 8)
		(void)ib_send_cm_apr(id, input_u8(in) & 15, NULL, 0, NULL, 0);
	else if (what == 9)
		(void)ib_send_cm_sidr_rep(id, &sidr);
	else if (what == 10)
		(void)ib_cm_notify(id, input_u8(in) & 1 ? IB_EVENT_COMM_EST : IB_EVENT_PATH_MIG);
	else if (at != 0)
		ib_destroy_cm_id((f.ids[at] = NULL, id));
}

/* ---- the stranger ---------------------------------------------------------------------------- */

static void fuzz_fix(u8 *mad, u8 right, const struct ib_cm_id *id)
{
	static const u8 head[4] = { 1, CM_CLASS, CM_CLASS_VERSION, CM_METHOD_SEND };
	u64 service = htobe64(SERVICE);
	u8 *data = mad + CM_MAD_HEADER;

	if (right & RIGHT_HEADER) {
		memcpy(mad, head, sizeof(head));
		mad[16] = 0;
		mad[17] = (u8)(CM_REQ + mad[17] % (CM_ATTR_END - CM_REQ));
	}
	if ((right & RIGHT_LOCAL) && id != NULL)
		memcpy(data, &id->remote_id, 4);
	if ((right & RIGHT_REMOTE) && id != NULL)
		memcpy(data + (mad[17] == CM_SIDR_REP ? 0 : 4), &id->local_id, 4);
	if (right & RIGHT_SERVICE)
		memcpy(data + 8, &service, 8);
	if (right & RIGHT_QPN)
		memset(data + 8, 0, 8);
}

static void fuzz_stranger(struct input *in)
{
	struct cm_arrival a = { .length = CM_MAD_BYTES };
	u8 right = input_u8(in), *mad = malloc(CM_MAD_BYTES);

	if (right & 32)
		memcpy(mad, f.last, CM_MAD_BYTES); /* our own comes back */
	else
		input_bytes(in, mad, CM_MAD_BYTES);
	fuzz_fix(mad, right, f.ids[input_u8(in) % IDS]);
	a.back.ah.port_num = 1;
	a.sgid.raw[0] = right >> 6;
	a.back.ah.dlid = right & 64 ? 1 : (u16)(mad[76] << 8 | mad[77]); /* as a REQ's path says */
	a.mad = mad;
	cm_receive(&f.dev, &a);
	free(mad);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void fuzz_pass(u64 ns)
{
	u64 end = f.now_ns + ns, next;

	work_queue_run(&f.queue, f.now_ns);
	while ((next = work_queue_next_ns(&f.queue)) <= end) {
		f.now_ns = MAX(f.now_ns, next);
		work_queue_run(&f.queue, f.now_ns);
	}
	f.now_ns = end;
}

static void fuzz_open(void)
{
	memset(&f, 0, sizeof(f));
	f.now_ns = NS_PER_S;
	clock_set_source(fuzz_clock);
	work_queue_init(&f.queue, "fuzz", true);
	f.cm = cm_create(&f.queue, 1);
	f.ib.node_guid = 77;
	f.dev = (struct cm_device){ .ib = &f.ib, .ops = &fuzz_ops, .id_bits = SLOT << CM_ID_BITS };
	cm_device_add(f.cm, &f.dev);
	f.ids[0] = ib_create_cm_id(&f.ib, fuzz_handler, NULL);
	fuzz_need(ib_cm_listen(f.ids[0], htobe64(SERVICE), 0, NULL) == 0, "listening");
}

static void fuzz_close(void)
{
	for (u32 i = 0; i < IDS; i++) {
		if (f.ids[i] != NULL)
			ib_destroy_cm_id(f.ids[i]);
		f.ids[i] = NULL;
	}
	fuzz_pass(3 * 16 * (4096ull << 31)); /* the longest that a message may make us wait */
	fuzz_need(cm_id_count(f.cm) == 0, "an id is left");
	cm_device_remove(&f.dev);
	cm_destroy(f.cm);
	timer_set_destroy(&f.queue.timers);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct input in = { data, size };

	fuzz_open();
	for (u32 i = 0; i < STEPS && in.left > 0; i++) {
		u8 step = input_u8(&in);

		f.ends = step & 0x40;
		if (step % 4 < 2)
			fuzz_stranger(&in);
		else
			fuzz_call(&in);
		if (step & 0x80)
			fuzz_pass((u64)input_u8(&in) << 20);
		else
			fuzz_pass(0);
	}
	fuzz_close();
	return 0;
}
