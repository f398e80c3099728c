/* umad_test.c: files of two ports with a wire between them, in virtual time.
 * In:    buffers of any content    Out: verdicts
 * Runs:  one thread; the wait's own    Locks: none
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mad/test_support/sides.h"
#include "umad/umad_priv.h"

enum { CLASS = 0x0a, VERSION = 2, SA_HDR = 56, LONG = 5000 };

struct buffer {
	struct ib_user_mad_hdr hdr;
	union {
		struct ib_rmpp_mad mad;
		u8 bytes[8192];
	};
} OWNED_BY(the test);

static struct umad_file *fa, *fb;

static int files_setup(void **state)
{
	sides_setup(state);
	a.any_ah = b.any_ah = true;
	assert_int_equal(umad_file_open(a.fake->ib.name, 1, &fa), 0);
	assert_int_equal(umad_file_open(b.fake->ib.name, 1, &fb), 0);
	return 0;
}

static int files_teardown(void **state)
{
	if (fa != NULL)
		umad_file_close(fa);
	if (fb != NULL)
		umad_file_close(fb);
	fa = fb = NULL;
	return sides_teardown(state);
}

static struct umad_agent_attr attr_for(u8 class, u8 version, u8 method)
{
	struct umad_agent_attr attr = { .mgmt_class = class, .mgmt_class_version = version };

	if (method != 0)
		attr.method_mask[method / 64] = 1ull << method % 64;
	return attr;
}

static u32 agent_on(struct umad_file *f, u8 method)
{
	struct umad_agent_attr attr = attr_for(CLASS, VERSION, method);
	int id = umad_file_register(f, &attr);

	assert_true(id >= 0);
	return (u32)id;
}

static u32 sa_agent_on(struct umad_file *f, u8 method)
{
	struct umad_agent_attr attr = attr_for(IB_MGMT_CLASS_SUBN_ADM, VERSION, method);
	int id;

	attr.rmpp_version = 1;
	id = umad_file_register(f, &attr);
	assert_true(id >= 0);
	return (u32)id;
}

/* To the peer of `from`. */
static struct buffer buffer_of(const struct side *from, u32 id, u8 class, u8 method, u64 tid)
{
	struct buffer buf = { .hdr = { .id = id,
				       .qpn = htonl(1),
				       .grh_present = 1,
				       .pkey_index = 1,
				       .timeout_ms = 100 },
			      .mad = { .mad_hdr = { .base_version = 1,
						    .mgmt_class = class,
						    .class_version = VERSION,
						    .method = method,
						    .tid = htobe64(tid) } } };

	memcpy(buf.hdr.gid, from->peer->fake->gids[0].raw, 16);
	return buf;
}

static int buffer_write(struct umad_file *f, const struct buffer *buf)
{
	return umad_file_write(f, buf, sizeof(buf->hdr) + IB_MGMT_MAD_SIZE);
}

static bool is_readable(struct umad_file *f)
{
	struct pollfd p = { .fd = umad_file_fd(f), .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* Reads what must have come, of one MAD. */
static struct buffer buffer_read(struct umad_file *f)
{
	struct buffer buf;

	assert_true(is_readable(f));
	assert_int_equal(umad_file_wait(f, 0), 0);
	memset(&buf, 0xee, sizeof(buf));
	assert_int_equal(umad_file_read(f, &buf, sizeof(buf.hdr) + IB_MGMT_MAD_SIZE),
			 sizeof(buf.hdr) + IB_MGMT_MAD_SIZE);
	return buf;
}

/* The answer goes back by the header with which the request came. */
static void answer(struct umad_file *f, struct buffer *buf)
{
	buf->mad.mad_hdr.method |= IB_MGMT_METHOD_RESP;
	buf->hdr.timeout_ms = 0;
	assert_int_equal(buffer_write(f, buf), 0);
}

/* ---- open ------------------------------------------------------------------------------------ */

static void umad_file_open__knows_devices_and_ports(void **state)
{
	struct umad_file *f = NULL;

	assert_int_equal(umad_file_open("none", 1, &f), -ENODEV);
	assert_int_equal(umad_file_open(a.fake->ib.name, 0, &f), -EINVAL);
	assert_int_equal(umad_file_open(a.fake->ib.name, 3, &f), -EINVAL);
	assert_null(f);
}

/* ---- agents ---------------------------------------------------------------------------------- */

static void umad_file_register__gives_numbers_from_0(void **state)
{
	struct umad_agent_attr attr = attr_for(0, 0, 0);

	for (int i = 0; i < UMAD_AGENTS; i++)
		assert_int_equal(umad_file_register(fa, &attr), i);
	assert_int_equal(umad_file_register(fa, &attr), -ENOMEM);
	assert_int_equal(umad_file_unregister(fa, 7), 0);
	assert_int_equal(umad_file_unregister(fa, 7), -EINVAL);
	assert_int_equal(umad_file_unregister(fa, UMAD_AGENTS), -EINVAL);
	assert_int_equal(umad_file_register(fa, &attr), 7);
	for (u32 i = 0; i < UMAD_AGENTS; i++)
		assert_int_equal(umad_file_unregister(fa, i), 0);
}

static void umad_file_register__refuses_as_the_midlayer(void **state)
{
	struct umad_agent_attr attr = attr_for(IB_MGMT_CLASS_SUBN_LID_ROUTED, 1, 1);

	assert_int_equal(umad_file_register(fa, &attr), -EINVAL); /* needs QP0 */
	attr = attr_for(CLASS, 8, 1);
	assert_int_equal(umad_file_register(fa, &attr), -EINVAL);
	attr = attr_for(0x30, 1, 1);
	assert_int_equal(umad_file_register(fa, &attr), -EINVAL); /* without OUI */
	attr = attr_for(CLASS, VERSION, 1);
	attr.rmpp_version = 1;
	assert_int_equal(umad_file_register(fa, &attr), -EINVAL); /* has no RMPP */
	attr.user_rmpp = true;
	assert_int_equal(umad_file_register(fa, &attr), -EINVAL);
	attr.rmpp_version = 0;
	assert_int_equal(umad_file_register(fa, &attr), 0);
	assert_int_equal(umad_file_register(fa, &attr), -EINVAL); /* is taken */
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void umad_address_fill__has_each_field(void **state)
{
	struct ib_mad_agent agent = { .device = &a.fake->ib, .port_num = 1 };
	struct ib_wc wc = { .wc_flags = IB_WC_GRH,
			    .src_qp = 0x123456,
			    .slid = 0x1234,
			    .sl = 5,
			    .dlid_path_bits = 3,
			    .pkey_index = 2 };
	struct ib_grh grh = { .version_tclass_flow = htobe32(6u << 28 | 0x25 << 20 | 0xabcde),
			      .hop_limit = 9,
			      .dgid = a.fake->gids[1],
			      .sgid.raw = { [15] = 44 } };
	struct ib_mad_recv_wc recv = { .wc = &wc, .recv_buf.grh = &grh, .mad_len = 256 };
	struct ib_user_mad_hdr hdr;

	umad_address_fill(&hdr, &agent, &recv);
	assert_int_equal(be32toh(hdr.qpn), 0x123456);
	assert_int_equal(be16toh(hdr.lid), 0x1234);
	assert_int_equal(hdr.sl, 5);
	assert_int_equal(hdr.path_bits, 3);
	assert_int_equal(hdr.pkey_index, 2);
	assert_int_equal(hdr.length, sizeof(hdr) + 256);
	assert_int_equal(hdr.grh_present, 1);
	assert_int_equal(hdr.gid_index, 1);
	assert_int_equal(hdr.hop_limit, 9);
	assert_int_equal(hdr.traffic_class, 0x25);
	assert_int_equal(be32toh(hdr.flow_label), 0xabcde);
	assert_int_equal(hdr.gid[15], 44);
}

/* A way that differs in anything from that of the MAD before is another one. */
static void umad_address_same__looks_at_each_field(void **state)
{
	const struct ib_user_mad_hdr hdr = { .lid = htobe16(7), .grh_present = 1, .gid = { 1 } };
	const struct ib_ah_attr one = umad_address_of(&hdr, 1);
	struct ib_user_mad_hdr others[9];

	for (u32 i = 0; i < ARRAY_LEN(others); i++)
		others[i] = hdr;
	others[0].lid = htobe16(8);
	others[1].sl = 1;
	others[2].path_bits = 1;
	others[3].grh_present = 0;
	others[4].gid[15] = 1;
	others[5].flow_label = htobe32(1);
	others[6].gid_index = 1;
	others[7].hop_limit = 1;
	others[8].traffic_class = 1;
	for (u32 i = 0; i < ARRAY_LEN(others); i++) {
		struct ib_ah_attr other = umad_address_of(&others[i], 1);

		assert_true(umad_address_same(&other, &other));
		assert_false(umad_address_same(&one, &other));
		assert_false(umad_address_same(&other, &one));
	}
}

/* ---- requests and answers -------------------------------------------------------------------- */

static void umad_file_write__is_answered(void **state)
{
	u32 client = agent_on(fa, 0), server = agent_on(fb, IB_MGMT_METHOD_GET);
	struct buffer buf = buffer_of(&a, client, CLASS, IB_MGMT_METHOD_GET, 0xdead00001234ull);
	u32 hi;

	buf.mad.data[100] = 77;
	assert_false(is_readable(fb));
	assert_int_equal(umad_file_wait(fb, 0), -ETIMEDOUT);
	assert_int_equal(buffer_write(fa, &buf), 0);
	run_to(1001);
	buf = buffer_read(fb);
	assert_int_equal(buf.hdr.id, server);
	assert_int_equal(buf.hdr.status, 0);
	assert_int_equal(buf.hdr.length, sizeof(buf.hdr) + IB_MGMT_MAD_SIZE);
	assert_int_equal(ntohl(buf.hdr.qpn), 1);
	assert_int_equal(buf.hdr.grh_present, 1);
	assert_int_equal(buf.hdr.pkey_index, 1);
	assert_memory_equal(buf.hdr.gid, a.fake->gids[0].raw, 16);
	assert_int_equal(buf.mad.data[100], 77);
	/* the low half is the program's, the high half the agent's */
	assert_int_equal((u32)be64toh(buf.mad.mad_hdr.tid), 0x1234);
	hi = (u32)(be64toh(buf.mad.mad_hdr.tid) >> 32);
	assert_int_equal(hi >> MAD_SLOT_SHIFT, SLOT_A);
	assert_false(is_readable(fb));
	buf.mad.data[100] = 78;
	answer(fb, &buf);
	run_to(1002);
	buf = buffer_read(fa);
	assert_int_equal(buf.hdr.id, client);
	assert_int_equal(buf.mad.data[100], 78);
	assert_int_equal((u32)(be64toh(buf.mad.mad_hdr.tid) >> 32), hi);
	assert_int_equal(umad_file_read(fa, &buf, sizeof(buf)), -EAGAIN);
}

static void umad_file_write__comes_back_after_its_timeouts(void **state)
{
	u32 client = agent_on(fa, 0);
	struct buffer buf = buffer_of(&a, client, CLASS, IB_MGMT_METHOD_GET, 5);

	buf.hdr.retries = 2;
	assert_int_equal(buffer_write(fa, &buf), 0);
	run_to(1299);
	assert_int_equal(a.sent, 3);
	assert_false(is_readable(fa));
	run_to(1301);
	assert_true(is_readable(fa));
	memset(&buf, 0, sizeof(buf));
	assert_int_equal(umad_file_read(fa, &buf, sizeof(buf)), sizeof(buf.hdr) + 24);
	assert_int_equal(buf.hdr.status, ETIMEDOUT);
	assert_int_equal(buf.hdr.id, client);
	assert_int_equal(buf.hdr.length, sizeof(buf.hdr) + 24);
	assert_int_equal((u32)be64toh(buf.mad.mad_hdr.tid), 5);
	assert_int_equal(buf.mad.mad_hdr.mgmt_class, CLASS);
}

static void umad_file_write__negative_timeout_waits_for_ever(void **state)
{
	struct buffer buf = buffer_of(&a, agent_on(fa, 0), CLASS, IB_MGMT_METHOD_GET, 5);

	buf.hdr.timeout_ms = (u32)-1;
	buf.hdr.retries = (u32)-1;
	assert_int_equal(buffer_write(fa, &buf), 0);
	run_to(10000000);
	assert_false(is_readable(fa));
	assert_int_equal(a.sent, 1);
}

static void umad_file_write__refuses_a_double(void **state)
{
	u32 client = agent_on(fa, 0);
	struct buffer buf = buffer_of(&a, client, CLASS, IB_MGMT_METHOD_GET, 5);

	assert_int_equal(buffer_write(fa, &buf), 0);
	assert_int_equal(buffer_write(fa, &buf), -EINVAL);
	buf.mad.mad_hdr.mgmt_class = CLASS + 1; /* each class has transactions of its own */
	assert_int_equal(buffer_write(fa, &buf), 0);
	assert_int_equal(buffer_write(fa, &buf), -EINVAL);
	buf.mad.mad_hdr.tid = htobe64(6);
	assert_int_equal(buffer_write(fa, &buf), 0);
	run_to(1200);
	for (u32 i = 0; i < 3; i++)
		assert_int_equal(umad_file_read(fa, &buf, sizeof(buf)), sizeof(buf.hdr) + 24);
	buf = buffer_of(&a, client, CLASS, IB_MGMT_METHOD_GET, 5);
	assert_int_equal(buffer_write(fa, &buf), 0);
}

/* Peers may choose one transaction ID, also that of a request of this file. */
static void umad_file_write__answers_each_peer(void **state)
{
	static const struct {
		u16 lid;
		u8 gid; /* of the peer with LID 0, which has a GRH */
		int err;
	} rows[] = { { 3, 0, 0 }, { 3, 0, -EINVAL }, { 4, 0, 0 }, { 4, 0, -EINVAL },
		     { 0, 3, 0 }, { 0, 3, -EINVAL }, { 0, 4, 0 }, { 0, 4, -EINVAL },
		     { 0, 0xb, 0 } /* the request's own peer */ };
	u32 id = agent_on(fa, 0);
	struct buffer buf = buffer_of(&a, id, CLASS, IB_MGMT_METHOD_GET, 5);

	(void)agent_on(fb, IB_MGMT_METHOD_GET);
	assert_int_equal(buffer_write(fa, &buf), 0);
	run_to(1001);
	buf = buffer_read(fb);
	buf.mad.mad_hdr.method = IB_MGMT_METHOD_GET_RESP;
	buf.hdr.timeout_ms = 0;
	for (u32 i = 0; i < ARRAY_LEN(rows); i++) {
		buf.hdr.grh_present = rows[i].lid == 0;
		buf.hdr.lid = htons(rows[i].lid);
		buf.hdr.gid[15] = rows[i].gid;
		assert_int_equal(buffer_write(fa, &buf), rows[i].err);
	}
	run_to(1002);
	assert_int_equal(a.sent, 6);
}

static void umad_file_write__judges_its_buffer(void **state)
{
	u32 client = agent_on(fa, 0);
	struct buffer buf = buffer_of(&a, client, CLASS, IB_MGMT_METHOD_GET, 5);

	assert_int_equal(umad_file_write(fa, &buf, sizeof(buf.hdr) + 35), -EINVAL);
	assert_int_equal(umad_file_write(fa, &buf, 0), -EINVAL);
	assert_int_equal(umad_file_write(fa, &buf, sizeof(buf.hdr) + 257), -EINVAL);
	buf.hdr.id = client + 1;
	assert_int_equal(buffer_write(fa, &buf), -EINVAL);
	buf.hdr.id = UINT32_MAX;
	assert_int_equal(buffer_write(fa, &buf), -EINVAL);
	assert_int_equal(a.sent, 0);
	/* shorter than a MAD: the rest is zeroes */
	buf.hdr.id = client;
	assert_int_equal(umad_file_write(fa, &buf, sizeof(buf.hdr) + 36), 0);
	run_to(1001);
	assert_int_equal(a.sent, 1);
}

/* ---- RMPP ------------------------------------------------------------------------------------ */

static void fill_data(struct buffer *buf, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		buf->bytes[i] = (u8)(i * 7);
}

static void rmpp__is_one_message(void **state)
{
	u32 client = sa_agent_on(fa, 0), server = sa_agent_on(fb, IB_MGMT_METHOD_GET);
	struct buffer buf = buffer_of(&a, client, IB_MGMT_CLASS_SUBN_ADM, IB_MGMT_METHOD_GET, 9);
	struct buffer got;

	assert_int_equal(buffer_write(fa, &buf), 0);
	run_to(1001);
	buf = buffer_read(fb);
	assert_int_equal(buf.hdr.id, server);
	buf.mad.mad_hdr.method = IB_MGMT_METHOD_GET_RESP;
	ib_set_rmpp_flags(&buf.mad.rmpp_hdr, IB_MGMT_RMPP_FLAG_ACTIVE);
	fill_data(&buf, IB_MGMT_RMPP_HDR, SA_HDR + LONG);
	buf.hdr.timeout_ms = 0;
	assert_int_equal(umad_file_write(fb, &buf, sizeof(buf.hdr) + SA_HDR + LONG), 0);
	run_to(1050);
	assert_true(is_readable(fa));
	/* too little room: it stays, and says what it needs */
	memset(&got, 0, sizeof(got));
	assert_int_equal(umad_file_read(fa, &got, sizeof(got.hdr) + 256), -ENOSPC);
	assert_int_equal(got.hdr.length, sizeof(got.hdr) + SA_HDR + LONG);
	assert_memory_equal(got.bytes + 60, buf.bytes + 60, 196);
	assert_int_equal(got.bytes[256], 0);
	assert_int_equal(umad_file_read(fa, &got, sizeof(got.hdr) + SA_HDR + LONG),
			 sizeof(got.hdr) + SA_HDR + LONG);
	assert_int_equal(got.hdr.id, client);
	assert_memory_equal(got.bytes + 36, buf.bytes + 36, SA_HDR + LONG - 36);
	assert_false(is_readable(fa));
}

static void rmpp__of_the_program_goes_packet_by_packet(void **state)
{
	struct umad_agent_attr attr = attr_for(IB_MGMT_CLASS_SUBN_ADM, VERSION, IB_MGMT_METHOD_GET);
	struct buffer buf;
	u32 id;

	attr.rmpp_version = 1;
	attr.user_rmpp = true;
	assert_int_equal(umad_file_register(fb, &attr), 0);
	id = sa_agent_on(fa, 0);
	umad_file_unregister(fa, id);
	attr.method_mask[0] = 0;
	id = (u32)umad_file_register(fa, &attr);
	buf = buffer_of(&a, id, IB_MGMT_CLASS_SUBN_ADM, IB_MGMT_METHOD_GET, 9);
	buf.mad.rmpp_hdr.rmpp_version = 1;
	buf.mad.rmpp_hdr.rmpp_type = IB_MGMT_RMPP_TYPE_DATA;
	ib_set_rmpp_flags(&buf.mad.rmpp_hdr, IB_MGMT_RMPP_FLAG_ACTIVE | IB_MGMT_RMPP_FLAG_FIRST);
	buf.mad.rmpp_hdr.seg_num = htonl(1);
	buf.hdr.timeout_ms = 0;
	/* the second packet has the first one's transaction ID, and may overtake its end */
	assert_int_equal(buffer_write(fa, &buf), 0);
	buf.mad.rmpp_hdr.seg_num = htonl(2);
	assert_int_equal(buffer_write(fa, &buf), 0);
	run_to(1001);
	buf = buffer_read(fb);
	assert_int_equal(ntohl(buf.mad.rmpp_hdr.seg_num), 1);
	buf = buffer_read(fb);
	assert_int_equal(ntohl(buf.mad.rmpp_hdr.seg_num), 2);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void umad_file_read__keeps_what_does_not_fit(void **state)
{
	u32 client = agent_on(fa, 0);
	struct buffer buf = buffer_of(&a, client, CLASS, IB_MGMT_METHOD_GET, 5), got;

	agent_on(fb, IB_MGMT_METHOD_GET);
	assert_int_equal(buffer_write(fa, &buf), 0);
	run_to(1001);
	assert_int_equal(umad_file_read(fb, &got, 63), -EINVAL);
	assert_int_equal(umad_file_read(fb, &got, 64), -ENOSPC);
	assert_int_equal(got.hdr.length, 320);
	assert_int_equal(umad_file_read(fb, &got, 319), -ENOSPC);
	(void)buffer_read(fb);
}

static void *read_later(void *arg)
{
	usleep(20000);
	run_to(1001);
	return NULL;
}

static void umad_file_wait__is_woken(void **state)
{
	struct buffer buf = buffer_of(&a, agent_on(fa, 0), CLASS, IB_MGMT_METHOD_GET, 5);
	pthread_t thread;

	agent_on(fb, IB_MGMT_METHOD_GET);
	assert_int_equal(buffer_write(fa, &buf), 0);
	assert_int_equal(pthread_create(&thread, NULL, read_later, NULL), 0);
	assert_int_equal(umad_file_wait(fb, -1), 0);
	pthread_join(thread, NULL);
	(void)buffer_read(fb);
}

static void waiting_set(struct umad_file *f, u32 mads)
{
	lock_acquire(&f->lock);
	f->waiting_mads = mads;
	lock_release(&f->lock);
}

/* The file has had so many MADs already that there is room for one, or for one message. */
static void umad_file_read__makes_room(void **state)
{
	enum { SEGMENTS = (LONG + IB_MGMT_SA_DATA - 1) / IB_MGMT_SA_DATA };
	u32 client = sa_agent_on(fa, 0), server = sa_agent_on(fb, IB_MGMT_METHOD_GET);
	struct buffer buf = { .bytes = { 0 } };

	waiting_set(fa, UMAD_WAITING - SEGMENTS);
	waiting_set(fb, UMAD_WAITING - 1);
	for (u64 tid = 1; tid < 7; tid += 2) {
		for (u32 i = 0; i < 2; i++) { /* the second is lost */
			buf = buffer_of(&a, client, IB_MGMT_CLASS_SUBN_ADM, IB_MGMT_METHOD_GET,
					tid + i);
			assert_int_equal(buffer_write(fa, &buf), 0);
		}
		run_to(1000 + tid * 10);
		buf = buffer_read(fb);
		assert_false(is_readable(fb));
		assert_int_equal(buf.hdr.id, server);
		buf.mad.mad_hdr.method = IB_MGMT_METHOD_GET_RESP;
		ib_set_rmpp_flags(&buf.mad.rmpp_hdr, IB_MGMT_RMPP_FLAG_ACTIVE);
		buf.hdr.timeout_ms = 0;
		assert_int_equal(umad_file_write(fb, &buf, sizeof(buf.hdr) + SA_HDR + LONG), 0);
		run_to(1009 + tid * 10);
		assert_int_equal(umad_file_read(fa, &buf, sizeof(buf)),
				 sizeof(buf.hdr) + SA_HDR + LONG);
	}
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void umad_file_unregister__ends_what_it_sent(void **state)
{
	u32 client = agent_on(fa, 0);
	struct buffer buf = buffer_of(&a, client, CLASS, IB_MGMT_METHOD_GET, 5);

	assert_int_equal(buffer_write(fa, &buf), 0);
	assert_int_equal(umad_file_unregister(fa, client), 0);
	assert_int_equal(buffer_write(fa, &buf), -EINVAL);
	run_to(2000);
	assert_false(is_readable(fa));
}

/* The clock of the others is virtual. */
static u64 real_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (u64)t.tv_sec * 1000 + (u64)t.tv_nsec / 1000000;
}

static void removal__is_eio(void **state)
{
	u32 client = agent_on(fa, 0);
	u64 began;
	struct buffer buf = buffer_of(&a, client, CLASS, IB_MGMT_METHOD_GET, 5);
	struct umad_agent_attr attr = attr_for(0, 0, 0);
	struct umad_file *second = NULL;

	assert_int_equal(umad_file_open(a.fake->ib.name, 1, &second), 0);
	assert_int_equal(buffer_write(fa, &buf), 0);
	ib_unregister_device(&a.fake->ib);
	assert_true(is_readable(second));
	assert_int_equal(umad_file_read(second, &buf, sizeof(buf)), -EIO);
	umad_file_close(second);
	assert_true(is_readable(fa));
	assert_int_equal(umad_file_wait(fa, -1), 0);
	assert_int_equal(umad_file_read(fa, &buf, sizeof(buf)), -EIO);
	umad_file_rest(fa);
	began = real_ms();
	umad_file_rest(fa); /* the second time it takes a while */
	assert_true(real_ms() >= began + 90);
	assert_int_equal(buffer_write(fa, &buf), -EIO);
	assert_int_equal(umad_file_register(fa, &attr), -EIO);
	assert_int_equal(a.fake->objects, 0);
	umad_file_close(fa);
	assert_int_equal(umad_file_open(a.fake->ib.name, 1, &fa), -ENODEV);
	fa = NULL;
}

static int child_checks(struct buffer *buf)
{
	alarm(10);
	if (umad_file_read(fb, buf, sizeof(*buf)) != -EIO || buffer_write(fa, buf) != -EIO ||
	    !is_readable(fb))
		return 1;
	umad_file_close(fa);
	umad_file_close(fb);
	/* its own devices, ports, files and agents */
	files_setup(NULL);
	umad_file_write__is_answered(NULL);
	return 0;
}

static void fork__lets_the_child_begin_anew(void **state)
{
	struct buffer buf = buffer_of(&a, agent_on(fa, 0), CLASS, IB_MGMT_METHOD_GET, 5);
	int status = -1;
	pid_t pid;

	agent_on(fb, IB_MGMT_METHOD_GET);
	assert_int_equal(buffer_write(fa, &buf), 0);
	run_to(1001);
	pid = fork();
	if (pid == 0)
		_exit(child_checks(&buf));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	(void)buffer_read(fb);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, files_setup, files_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(umad_file_open__knows_devices_and_ports),
		TEST(umad_file_register__gives_numbers_from_0),
		TEST(umad_file_register__refuses_as_the_midlayer),
		TEST(umad_address_fill__has_each_field),
		TEST(umad_address_same__looks_at_each_field),
		TEST(umad_file_write__is_answered),
		TEST(umad_file_write__comes_back_after_its_timeouts),
		TEST(umad_file_write__negative_timeout_waits_for_ever),
		TEST(umad_file_write__refuses_a_double),
		TEST(umad_file_write__answers_each_peer),
		TEST(umad_file_write__judges_its_buffer),
		TEST(rmpp__is_one_message),
		TEST(rmpp__of_the_program_goes_packet_by_packet),
		TEST(umad_file_read__keeps_what_does_not_fit),
		TEST(umad_file_read__makes_room),
		TEST(umad_file_wait__is_woken),
		TEST(umad_file_unregister__ends_what_it_sent),
		TEST(removal__is_eio),
		TEST(fork__lets_the_child_begin_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
