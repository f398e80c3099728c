/* rcm_fuzz.c: what a stranger may put into a request of the RDMA CM, and what the IB CM may say at
 * any time, between calls of librdmacm.
 *
 * The input is a list of steps: a request with arbitrary private data, an event of the IB CM with
 * arbitrary content, a call on one of the ids, or an event that the application takes. Whatever
 * comes: a header that is taken says what a header written from it says again, every event stays
 * within its bounds, and when all ids are destroyed, no id of either CM is left.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "cm/rdma/test_support/fake_cm.h"
#include "cm/rdma/ucma.h"
#include "input.h"

enum { STEPS = 200, IDS = 6, PORT = 7471, EVENTS = IB_CM_SIDR_REP_RECEIVED + 1 };

static struct fuzz {
	struct ib_device ib;
	struct cma_device device;
	struct ucma_channel *channels[2];
	struct ucma_id *ids[IDS]; /* 0: listens */
	struct ib_cm_id *listener;
} f;

int __wrap_cma_start(void);
int __wrap_cma_start(void)
{
	return 0;
}

int __wrap_ib_find_cached_gid(struct ib_device *device, union ib_gid *gid, u8 *port, u16 *index);
int __wrap_ib_find_cached_gid(struct ib_device *device, union ib_gid *gid, u8 *port, u16 *index)
{
	*port = 1;
	*index = 0;
	return 0;
}

int __wrap_ib_find_cached_pkey(struct ib_device *device, u8 port, u16 pkey, u16 *index);
int __wrap_ib_find_cached_pkey(struct ib_device *device, u8 port, u16 pkey, u16 *index)
{
	*index = 0;
	return 0;
}

/* ---- the header ------------------------------------------------------------------------------ */

/* A header that is taken has both addresses, and they make the same header again. */
static void fuzz_header(struct input *in)
{
	u8 size = input_u8(in), *data = malloc(size > 0 ? size : 1), again[CMA_HEADER];
	struct rdma_addr addr, back;

	input_bytes(in, data, size);
	if (size > 0 && (data[0] & 3) != 0)
		data[0] = 0;
	if (cma_header_read(data, size, PORT, &addr) == 0) {
		fuzz_need(size >= CMA_HEADER, "a short header");
		back = addr;
		back.src_addr = addr.dst_addr;
		back.dst_addr = addr.src_addr;
		cma_header_write(again, &back);
		fuzz_need(again[1] >> 4 == data[1] >> 4, "the version of IP");
		fuzz_need(memcmp(again + 2, data + 2, 2) == 0, "the port");
		fuzz_need(data[1] >> 4 != 6 || memcmp(again + 4, data + 4, 32) == 0, "addresses");
	}
	free(data);
}

/* ---- the IB CM ------------------------------------------------------------------------------- */

static struct ib_cm_event fuzz_event(struct input *in, u8 *data, struct ib_sa_path_rec *paths)
{
	struct ib_cm_event event = { .event = (enum ib_cm_event_type)(input_u8(in) % EVENTS) };
	u8 bits = input_u8(in);

	if (event.event == IB_CM_REQ_RECEIVED) {
		input_bytes(in, paths, 2 * sizeof(*paths));
		event.param.req_rcvd = (struct ib_cm_req_event_param){
			.port = 1,
			.primary_path = paths,
			.alternate_path = bits & 1 ? paths + 1 : NULL,
			.qp_type = bits & 2 ? IB_QPT_UC : IB_QPT_RC,
			.responder_resources = bits,
		};
	} else if (event.event == IB_CM_SIDR_REP_RECEIVED) {
		event.param.sidr_rep_rcvd.status = (enum ib_cm_sidr_status)(bits & 7);
	} else if (event.event == IB_CM_REJ_RECEIVED) {
		event.param.rej_rcvd.reason = (enum ib_cm_rej_reason)bits;
	}
	event.private_data = data;
	event.private_data_len = event.event == IB_CM_REQ_RECEIVED ? IB_CM_REQ_PRIVATE_DATA_SIZE
								   : 224;
	input_bytes(in, data, event.private_data_len);
	if (event.event == IB_CM_REQ_RECEIVED && (bits & 16)) { /* as a sender of IPv6 has it */
		data[1] = 6 << 4;
		memcpy(data + 4, paths->dgid.raw, 16);
		memcpy(data + 20, paths->sgid.raw, 16);
	}
	return event;
}

/* The end of a handler has the IB CM's id destroyed; the room's, too. */
static void fuzz_send(struct input *in, struct ib_cm_id *ib)
{
	struct ib_sa_path_rec paths[2];
	u8 data[256];
	struct ib_cm_event event = fuzz_event(in, data, paths);

	(void)fake_cm_event(ib, &event);
}

static void fuzz_request(struct input *in)
{
	struct ib_cm_id *ib = ib_create_cm_id(&f.ib, f.listener->cm_handler, f.listener->context);
	struct ib_sa_path_rec paths[2];
	u8 data[256];
	struct ib_cm_event event = fuzz_event(in, data, paths);

	if (!fake_cm_event(ib, &event) && ib->context == f.listener->context)
		ib_destroy_cm_id(ib); /* not a request: nobody has taken it */
}

/* ---- the application ------------------------------------------------------------------------- */

static void fuzz_read(const void *data, u32 bytes)
{
	u8 copy[UCMA_PRIVATE_DATA];

	fuzz_need(bytes <= sizeof(copy), "more than an event holds");
	if (bytes > 0)
		memcpy(copy, data, bytes);
}

static void fuzz_take(struct input *in)
{
	struct ucma_event event;
	u32 at = 0;

	if (ucma_get_event(f.channels[input_u8(in) & 1], &event) < 0)
		return;
	fuzz_read(event.conn.private_data, event.conn.private_data_len);
	if (event.owner != event.id) {
		for (at = 1; at < IDS && f.ids[at] != NULL; at++)
			;
		if (at == IDS) {
			ucma_destroy_id(event.id);
		} else {
			f.ids[at] = event.id;
			ucma_set_cookie(event.id, &f.ids[at]);
		}
	}
	ucma_ack(event.owner, event.mcast);
}

static struct sockaddr_storage fuzz_address(struct input *in)
{
	struct sockaddr_storage addr = { .ss_family = input_u8(in) & 1 ? AF_INET : AF_INET6 };

	input_bytes(in, (char *)&addr + 2, 26);
	return addr;
}

static void fuzz_route(struct ucma_id *id, struct input *in)
{
	struct ib_sa_path_rec path;
	struct ucma_route route;

	input_bytes(in, &path, sizeof(path));
	(void)ucma_set_path(id, &path);
	ucma_query(id, &route);
	fuzz_need(route.num_paths <= UCMA_PATHS, "paths");
}

static void fuzz_call(struct input *in)
{
	u32 at = 1 + input_u8(in) % (IDS - 1);
	struct ucma_conn conn = { .qp_num = 7 };
	struct ucma_id *id = f.ids[at];
	u8 what = input_u8(in) % 9, data[256];

	conn.private_data = data;
	conn.private_data_len = input_u8(in);
	input_bytes(in, data, conn.private_data_len);
	if (id == NULL) {
		id = ucma_create_id(f.channels[0], &f, RDMA_PS_TCP, IB_QPT_RC);
		f.ids[at] = IS_ERR(id) ? NULL : id;
	} else if (what == 0) {
		(void)ucma_connect(id, &conn);
	} else if (what == 1) {
		(void)ucma_accept(id, conn.private_data_len & 1 ? &conn : NULL);
	} else if (what == 2) {
		(void)ucma_disconnect(id);
	} else if (what == 3) {
		(void)ucma_migrate(id, f.channels[conn.private_data_len & 1]);
	} else if (what == 4) {
		struct sockaddr_storage addr = fuzz_address(in);

		(void)ucma_bind(id, (struct sockaddr *)&addr);
	} else if (what == 5) {
		fuzz_route(id, in);
	} else if (what == 6) {
		(void)ucma_listen(id, conn.private_data_len);
	} else if (what == 7) {
		(void)ucma_notify(id, conn.private_data_len);
	} else {
		f.ids[at] = NULL;
		ucma_destroy_id(id);
	}
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* One of the connections that there are. */
static struct ib_cm_id *fuzz_choose(u8 which)
{
	struct ib_cm_id *chosen = NULL;

	list_for_each(id, &cma.ids, struct cma_id, node)
		if (id->ib != NULL && which-- % 4 == 0)
			chosen = id->ib;
	return chosen;
}

static void fuzz_open(void)
{
	int err;

	memset(&f, 0, sizeof(f));
	memset(&fake_cm, 0, sizeof(fake_cm));
	memcpy(f.ib.name, "fuzz0", 6);
	f.device = (struct cma_device){ .device = &f.ib, .number = 1 };
	list_push_back(&cma.devices, &f.device.node);
	for (int i = 0; i < 2; i++) {
		f.channels[i] = ucma_channel_create(&err);
		fcntl(ucma_channel_fd(f.channels[i]), F_SETFL, O_NONBLOCK);
	}
	f.ids[0] = ucma_create_id(f.channels[0], &f, RDMA_PS_TCP, IB_QPT_RC);
	fuzz_need(ucma_listen(f.ids[0], 3) == 0, "listening");
	f.listener = fake_cm.last;
}

static void fuzz_close(void)
{
	for (u32 i = 0; i < IDS; i++)
		if (f.ids[i] != NULL)
			ucma_destroy_id(f.ids[i]);
	fuzz_need(list_empty(&cma.ids), "an id is left");
	fuzz_need(fake_cm.ids == 0, "an id of the IB CM is left");
	ucma_channel_destroy(f.channels[0]);
	ucma_channel_destroy(f.channels[1]);
	list_remove(&f.device.node);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct input in = { data, size };
	struct ib_cm_id *ib;

	fuzz_open();
	for (u32 i = 0; i < STEPS && in.left > 0; i++) {
		u8 kind = input_u8(&in);

		fake_cm.fail[kind % FAKE_CALLS] = kind & 0x80 ? -1 : 0;
		if (kind % 5 == 0)
			fuzz_header(&in);
		else if (kind % 5 == 1)
			fuzz_request(&in);
		else if (kind % 5 == 2 && (ib = fuzz_choose(input_u8(&in))) != NULL)
			fuzz_send(&in, ib);
		else if (kind % 5 == 3)
			fuzz_take(&in);
		else
			fuzz_call(&in);
	}
	fuzz_close();
	return 0;
}
