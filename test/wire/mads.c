/* mads.c: every message of the IB CM, once, with a value of its own in each field that a consumer
 * can set. mads_test.py records them and compares.
 *
 *   mads serve            listens, says "ready", and answers until its standard input ends
 *   mads ask INDEX DGID   makes the exchanges from the GID of that index, and ends
 *
 * No queue pair is connected: the CM does not touch any.
 * In: MADs    Out: MADs; "EXCHANGE CLIENT'S-ID SERVER'S-ID" in hex    Runs: main and the CM's queue
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>

#define SERVICE 0x1122334455660000ull
/* The last byte of a service ID says what the server does. */
enum { CONNECT = 1, REFUSE, SILENT, SIDR_ACCEPT, SIDR_REFUSE, SERVICES, NOBODY = 0x99 };
enum { WAIT_S = 10, EVENTS = IB_CM_SIDR_REP_RECEIVED + 1, CLIENT_QPN = 0x123456 };

#define TEXT(text) (text), sizeof(text) - 1

static struct ib_device *device;

static void device_added(struct ib_device *d)
{
	if (device == NULL)
		device = d;
}

static struct ib_client client = { .name = "mads", .add = device_added };

/* Ends the program unless the call has succeeded. */
static void check(int err, const char *what)
{
	if (err == 0)
		return;
	fprintf(stderr, "mads: %s: error %d\n", what, -err);
	exit(1);
}

/* ---- the server ------------------------------------------------------------------------------ */

static void serve_connect(struct ib_cm_id *id)
{
	static u32 qp_num = 0xabcdef; /* each its own: the one before is in timewait */
	struct ib_cm_rep_param rep = {
		.qp_num = qp_num++,
		.starting_psn = 0x111213,
		.private_data = "come in",
		.private_data_len = 7,
		.responder_resources = 4,
		.initiator_depth = 3,
		.failover_accepted = 2,
		.flow_control = 1,
		.rnr_retry_count = 6,
		.srq = 1,
		.ece = { .vendor_id = 0x414243, .attr_mod = 0x51525354 },
	};

	check(ib_send_cm_mra(id, 21, TEXT("a moment")), "MRA of a REQ");
	check(ib_send_cm_rep(id, &rep), "REP");
}

static void serve_lap(struct ib_cm_id *id)
{
	char info[] = "information";

	check(ib_send_cm_mra(id, 17, TEXT("looking")), "MRA of a LAP");
	check(ib_send_cm_apr(id, IB_CM_APR_REJECT, info, sizeof(info) - 1, TEXT("rather not")),
	      "APR");
}

static void serve_sidr(struct ib_cm_id *id, bool accept)
{
	char info[] = "more";
	struct ib_cm_sidr_rep_param rep = { .qp_num = 0x313233,
					    .qkey = 0x41424344,
					    .status = accept ? IB_SIDR_SUCCESS : IB_SIDR_NO_QP,
					    .info = info,
					    .info_length = sizeof(info) - 1,
					    .private_data = "that one",
					    .private_data_len = 8 };

	check(ib_send_cm_sidr_rep(id, &rep), "SIDR_REP");
}

static void serve_req(struct ib_cm_id *id)
{
	char ari[] = "why";

	switch (be64toh(id->service_id) & 0xff) {
	case CONNECT:
		serve_connect(id);
		break;
	case REFUSE:
		check(ib_send_cm_rej(id, IB_CM_REJ_INVALID_TRAFFIC_CLASS, ari, sizeof(ari) - 1,
				     TEXT("not with me")),
		      "REJ");
		break;
	default:
		break;
	}
}

static int serve_event(struct ib_cm_id *id, struct ib_cm_event *event)
{
	switch (event->event) {
	case IB_CM_REQ_RECEIVED:
		serve_req(id);
		break;
	case IB_CM_LAP_RECEIVED:
		serve_lap(id);
		break;
	case IB_CM_SIDR_REQ_RECEIVED:
		serve_sidr(id, (be64toh(id->service_id) & 0xff) == SIDR_ACCEPT);
		break;
	case IB_CM_DREQ_RECEIVED:
		check(ib_send_cm_drep(id, TEXT("farewell")), "DREP");
		break;
	case IB_CM_REJ_RECEIVED: /* of the REQ that nobody has answered */
		printf("withdrawn %d\n", event->param.rej_rcvd.reason);
		fflush(stdout);
		break;
	default:
		break;
	}
	return 0;
}

static int serve(void)
{
	char byte;

	for (u64 i = CONNECT; i < SERVICES; i++) {
		struct ib_cm_id *id = ib_create_cm_id(device, serve_event, NULL);

		check(IS_ERR(id) ? (int)PTR_ERR(id) : 0, "a listening id");
		check(ib_cm_listen(id, htobe64(SERVICE | i), 0, NULL), "listening");
	}
	printf("ready\n");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		continue;
	return 0;
}

/* ---- the client ------------------------------------------------------------------------------ */

static pthread_mutex_t asked_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t asked_told = PTHREAD_COND_INITIALIZER;
static int asked_seen[EVENTS]; /* since the last wait for that event */
static union ib_gid sgid, dgid;

static int ask_event(struct ib_cm_id *id, struct ib_cm_event *event)
{
	if (event->event == IB_CM_DREQ_RECEIVED)
		check(ib_send_cm_drep(id, NULL, 0), "DREP");
	pthread_mutex_lock(&asked_lock);
	asked_seen[event->event]++;
	pthread_cond_broadcast(&asked_told);
	pthread_mutex_unlock(&asked_lock);
	return 0;
}

static void await(enum ib_cm_event_type event, const char *what)
{
	struct timespec end;
	int err = 0;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += WAIT_S;
	pthread_mutex_lock(&asked_lock);
	while (asked_seen[event] == 0 && err == 0)
		err = pthread_cond_timedwait(&asked_told, &asked_lock, &end);
	asked_seen[event] = 0;
	pthread_mutex_unlock(&asked_lock);
	check(-err, what);
}

static struct ib_cm_id *ask_id(void)
{
	struct ib_cm_id *id = ib_create_cm_id(device, ask_event, NULL);

	check(IS_ERR(id) ? (int)PTR_ERR(id) : 0, "an id");
	return id;
}

static void say(const char *exchange, const struct ib_cm_id *id)
{
	printf("%s %08x %08x\n", exchange, be32toh(id->local_id), be32toh(id->remote_id));
	fflush(stdout);
}

static struct ib_sa_path_rec path(bool alternate)
{
	return (struct ib_sa_path_rec){
		.dgid = dgid,
		.sgid = sgid,
		.flow_label = htobe32(alternate ? 0x54321 : 0x12345),
		.hop_limit = alternate ? 62 : 63,
		.traffic_class = alternate ? 0x28 : 0x68,
		.reversible = 1,
		.pkey = htobe16(0xffff),
		.sl = alternate ? 2 : 5,
		.mtu = IB_MTU_1024,
		.rate = alternate ? IB_RATE_40_GBPS : IB_RATE_100_GBPS,
		.packet_life_time = alternate ? 13 : 15,
	};
}

static void send_req(struct ib_cm_id *id, u8 service, u32 qp_num, enum ib_qp_type type)
{
	struct ib_sa_path_rec primary = path(false), alternate = path(true);
	struct ib_cm_req_param req = {
		.primary_path = &primary,
		.alternate_path = &alternate,
		.service_id = htobe64(SERVICE | service),
		.qp_num = qp_num,
		.qp_type = type,
		.starting_psn = 0x654321,
		.private_data = "may I",
		.private_data_len = 5,
		.responder_resources = 5,
		.initiator_depth = 6,
		.remote_cm_response_timeout = 19,
		.flow_control = 1,
		.local_cm_response_timeout = 18,
		.retry_count = 5,
		.rnr_retry_count = 3,
		.max_cm_retries = 9,
		.srq = 1,
		.ece = { .vendor_id = 0x616263, .attr_mod = 0x71727374 },
	};

	check(ib_send_cm_req(id, &req), "REQ");
}

/* To an established connection. */
static struct ib_cm_id *ask_connection(u32 qp_num)
{
	struct ib_cm_id *id = ask_id();

	send_req(id, CONNECT, qp_num, IB_QPT_RC);
	await(IB_CM_MRA_RECEIVED, "the MRA of the REQ");
	await(IB_CM_REP_RECEIVED, "the REP");
	check(ib_send_cm_mra(id, 22, TEXT("soon")), "MRA of a REP");
	check(ib_send_cm_rtu(id, TEXT("done")), "RTU");
	return id;
}

/* Answered: so the RTU has arrived, too. */
static void ask_for_a_path(struct ib_cm_id *id)
{
	struct ib_sa_path_rec alternate = path(true);

	check(ib_send_cm_lap(id, &alternate, TEXT("this way")), "LAP");
	await(IB_CM_MRA_RECEIVED, "the MRA of the LAP");
	await(IB_CM_APR_RECEIVED, "the APR");
}

static void ask_all_of_a_connection(void)
{
	struct ib_cm_id *id = ask_connection(CLIENT_QPN);

	say("connect", id);
	ask_for_a_path(id);
	check(ib_send_cm_dreq(id, TEXT("leaving")), "DREQ");
	await(IB_CM_DREP_RECEIVED, "the DREP");
	ib_destroy_cm_id(id);
}

static void ask_rejections(void)
{
	struct ib_cm_id *id = ask_id();

	say("refuse", id);
	send_req(id, REFUSE, CLIENT_QPN + 1, IB_QPT_UC);
	await(IB_CM_REJ_RECEIVED, "the REJ");
	say("nobody", id);
	send_req(id, NOBODY, CLIENT_QPN + 2, IB_QPT_RC);
	await(IB_CM_REJ_RECEIVED, "the REJ of nobody");
	ib_destroy_cm_id(id);
	id = ask_id();
	say("timeout", id);
	send_req(id, SILENT, CLIENT_QPN + 3, IB_QPT_RC);
	ib_destroy_cm_id(id);
}

/* Another REQ of a queue pair that is connected: the peer refuses it, and leaves. */
static void ask_stale(void)
{
	struct ib_cm_id *first = ask_connection(CLIENT_QPN + 4), *again = ask_id();

	ask_for_a_path(first);
	say("stale", again);
	send_req(again, CONNECT, CLIENT_QPN + 4, IB_QPT_RC);
	await(IB_CM_REJ_RECEIVED, "the REJ of a stale connection");
	await(IB_CM_DREQ_RECEIVED, "the DREQ of the peer");
	ib_destroy_cm_id(again);
	ib_destroy_cm_id(first);
}

static void ask_sidr(u8 service, const char *exchange)
{
	struct ib_sa_path_rec way = path(false);
	struct ib_cm_sidr_req_param req = { .path = &way,
					    .service_id = htobe64(SERVICE | service),
					    .timeout_ms = 500,
					    .private_data = "which one",
					    .private_data_len = 9,
					    .max_cm_retries = 7 };
	struct ib_cm_id *id = ask_id();

	say(exchange, id);
	check(ib_send_cm_sidr_req(id, &req), "SIDR_REQ");
	await(IB_CM_SIDR_REP_RECEIVED, "the SIDR_REP");
	ib_destroy_cm_id(id);
}

static int ask(int index, const char *to)
{
	if (inet_pton(AF_INET6, to, dgid.raw) != 1)
		return 2;
	check(ib_query_gid(device, 1, index, &sgid), "the GID");
	ask_all_of_a_connection();
	ask_rejections();
	ask_stale();
	ask_sidr(SIDR_ACCEPT, "sidr");
	ask_sidr(SIDR_REFUSE, "sidr-refuse");
	ask_sidr(NOBODY, "sidr-nobody");
	return 0;
}

int main(int argc, char **argv)
{
	check(ib_register_client(&client), "the midlayer");
	check(device != NULL ? 0 : -ENODEV, "a device");
	if (argc == 2 && strcmp(argv[1], "serve") == 0)
		return serve();
	if (argc == 4 && strcmp(argv[1], "ask") == 0)
		return ask(atoi(argv[2]), argv[3]);
	fprintf(stderr, "usage: mads serve | mads ask INDEX DGID\n");
	return 2;
}
