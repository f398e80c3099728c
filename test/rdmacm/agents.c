/* agents.c: an agent of the MAD layer that is told what to do, over messages of many MADs.
 *
 *   agents serve METHOD...            registers for these methods: "ready", or "refused ERRNO".
 *                                     Answers each message by its own bytes until its input ends
 *   agents ask ADDRESS METHOD BYTES   sends one message to QP1 of the address: "answered BYTES",
 *                                     "status STATUS" of the MAD, or "failed STATUS" of the send
 *
 * In: MADs    Out: MADs    Runs: main; the handlers on the MAD layer's queue    Locks: none
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/ib_cache.h>
#include <rdma/ib_mad.h>

enum { CLASS = 0x36, VERSION = 1, WAIT_MS = 3000, RETRIES = 9 };
#define OUI 0x00, 0x14, 0x05

static struct ib_device *device;
static struct ib_pd *pd;
static union ib_gid own;
static u16 own_index;
static sem_t ended;

static void fail(const char *what, long err)
{
	fprintf(stderr, "agents: %s: error %ld\n", what, err);
	exit(1);
}

static void on_device(struct ib_device *d)
{
	if (device == NULL)
		device = d;
}

static struct ib_client client = { .name = "agents", .add = on_device };

static u8 byte_of(u32 at)
{
	return (u8)(at * 13 + at / 251);
}

static void post(struct ib_mad_agent *agent, struct ib_ah *ah, u8 method, __be64 tid, u32 bytes,
		 int timeout_ms)
{
	struct ib_mad_send_buf *buf =
		ib_create_send_mad(agent, 1, 0, 1, IB_MGMT_VENDOR_HDR, (int)bytes, 0);
	struct ib_vendor_mad *mad;

	if (IS_ERR(buf))
		fail("a message", -PTR_ERR(buf));
	mad = buf->mad;
	mad->mad_hdr = (struct ib_mad_hdr){ .base_version = IB_MGMT_BASE_VERSION,
					    .mgmt_class = CLASS,
					    .class_version = VERSION,
					    .method = method,
					    .tid = tid };
	mad->rmpp_hdr.rmpp_type = IB_MGMT_RMPP_TYPE_DATA;
	memcpy(mad->oui, (u8[]){ OUI }, 3);
	for (u32 i = 0; i < bytes; i++) {
		u8 *segment = ib_get_rmpp_segment(buf, (int)(i / IB_MGMT_VENDOR_DATA) + 1);

		segment[i % IB_MGMT_VENDOR_DATA] = byte_of(i);
	}
	buf->ah = ah;
	buf->timeout_ms = timeout_ms;
	buf->retries = timeout_ms > 0 ? RETRIES : 0;
	if (ib_post_send_mad(buf, NULL) != 0)
		fail("posting", 0);
}

/* The bytes of a message; all of them are right, or the program fails. */
static u32 judge(const struct ib_mad_recv_wc *recv)
{
	u32 at = 0, bytes = (u32)recv->mad_len - IB_MGMT_VENDOR_HDR;

	for (struct list_head *node = recv->rmpp_list.next; node != &recv->rmpp_list;
	     node = node->next) {
		const struct ib_vendor_mad *mad =
			(const void *)((struct ib_mad_recv_buf *)node)->mad;

		for (u32 i = 0; i < IB_MGMT_VENDOR_DATA && at < bytes; i++, at++)
			if (mad->data[i] != byte_of(at))
				fail("a wrong byte", at);
	}
	return at;
}

static void on_sent(struct ib_mad_agent *agent, struct ib_mad_send_wc *wc)
{
	struct ib_ah *ah = wc->send_buf->ah;

	(void)agent;
	if (wc->status != IB_WC_SUCCESS) {
		printf("failed %d\n", wc->status);
		fflush(stdout);
	}
	ib_free_send_mad(wc->send_buf);
	ib_destroy_ah(ah);
	sem_post(&ended);
}

static void on_received(struct ib_mad_agent *agent, struct ib_mad_recv_wc *recv)
{
	const struct ib_mad_hdr *hdr = &recv->recv_buf.mad->mad_hdr;

	if (hdr->method & IB_MGMT_METHOD_RESP) {
		if (hdr->status != 0)
			printf("status %#x\n", ntohs(hdr->status));
		else
			printf("answered %u\n", judge(recv));
		fflush(stdout);
	} else {
		struct ib_ah *ah = ib_create_ah_from_wc(pd, recv->wc, recv->recv_buf.grh, 1);

		if (IS_ERR(ah))
			fail("the way back", -PTR_ERR(ah));
		post(agent, ah, hdr->method | IB_MGMT_METHOD_RESP, hdr->tid, judge(recv), 0);
	}
	ib_free_recv_mad(recv);
}

static struct ib_mad_agent *open_agent(int count, char **methods)
{
	struct ib_mad_reg_req request = { .mgmt_class = CLASS,
					  .mgmt_class_version = VERSION,
					  .oui = { OUI } };
	const u32 bits = 8 * sizeof(request.method_mask[0]);

	for (int i = 0; i < count; i++) {
		u32 method = (u32)strtoul(methods[i], NULL, 0) % IB_MGMT_MAX_METHODS;

		request.method_mask[method / bits] |= 1ul << method % bits;
	}
	return ib_register_mad_agent(device, 1, IB_QPT_GSI, count > 0 ? &request : NULL, 1, on_sent,
				     on_received, NULL);
}

static int serve(int count, char **methods)
{
	struct ib_mad_agent *agent = open_agent(count, methods);
	char byte;

	if (IS_ERR(agent)) {
		printf("refused %ld\n", -PTR_ERR(agent));
		return 0;
	}
	printf("ready\n");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	ib_unregister_mad_agent(agent);
	return 0;
}

static int ask(const char *address, const char *method, const char *bytes)
{
	struct ib_mad_agent *agent = open_agent(0, NULL);
	struct ib_ah_attr attr = { .ah_flags = IB_AH_GRH, .port_num = 1 };
	struct ib_ah *ah;

	attr.grh.sgid_index = (u8)own_index;
	attr.grh.hop_limit = 64;
	memcpy(attr.grh.dgid.raw, own.raw, 12);
	if (inet_pton(AF_INET, address, attr.grh.dgid.raw + 12) != 1)
		fail("the address", EINVAL);
	if (IS_ERR(agent))
		fail("an agent", -PTR_ERR(agent));
	ah = ib_create_ah(pd, &attr);
	if (IS_ERR(ah))
		fail("the way there", -PTR_ERR(ah));
	post(agent, ah, (u8)strtoul(method, NULL, 0), htobe64((u64)agent->hi_tid << 32 | 1),
	     (u32)strtoul(bytes, NULL, 0), WAIT_MS);
	while (sem_wait(&ended) != 0)
		;
	ib_unregister_mad_agent(agent);
	return 0;
}

/* The first IPv4 address of the device. */
static void find_own(void)
{
	static const u8 ipv4[12] = { [10] = 0xff, [11] = 0xff };

	for (own_index = 0; own_index < 64; own_index++)
		if (ib_get_cached_gid(device, 1, own_index, &own) == 0 &&
		    memcmp(own.raw, ipv4, sizeof(ipv4)) == 0)
			return;
	fail("no address", 0);
}

int main(int argc, char **argv)
{
	sem_init(&ended, 0, 0);
	if (ib_register_client(&client) != 0 || device == NULL)
		fail("no device", 0);
	pd = ib_alloc_pd(device);
	if (IS_ERR(pd))
		fail("a PD", -PTR_ERR(pd));
	find_own();
	if (argc > 2 && strcmp(argv[1], "serve") == 0)
		return serve(argc - 2, argv + 2);
	if (argc == 5 && strcmp(argv[1], "ask") == 0)
		return ask(argv[2], argv[3], argv[4]);
	fprintf(stderr, "usage: agents serve METHOD... | agents ask ADDRESS METHOD BYTES\n");
	return 2;
}
