/* stranger_test.c: messages of a host that have nothing to do with the connection that they name.
 * Virtual time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cm/ib/test_support/net.h"

enum { SERVICE = 0x1061234, CLIENT_QPN = 0x1111, SERVER_QPN = 0x2222, STRANGER_QPN = 0x3333 };
enum { CLIENT_HOST, SERVER_HOST, STRANGER };

/* A client on host 0, a listener on host 1 and the end of its last request. */
static struct net_trio trio;

static int stranger_open(void **state)
{
	(void)state;
	net_trio_open(&trio, 5, SERVICE);
	return 0;
}

static int stranger_close(void **state)
{
	(void)state;
	net_trio_close(&trio);
	return 0;
}

/* The client's REQ, which is on its way. */
static struct cm_msg stranger_req(void)
{
	struct ib_sa_path_rec path = net_path(CLIENT_HOST, SERVER_HOST);
	struct ib_cm_req_param req = net_req(&path, SERVICE);
	struct cm_msg msg;

	req.qp_num = CLIENT_QPN;
	assert_int_equal(ib_send_cm_req(trio.client.id, &req), 0);
	assert_true(msg_unpack(&msg, net.last, CM_MAD_BYTES));
	return msg;
}

static void stranger_inject(u32 to, u32 from, const struct cm_msg *msg)
{
	u8 mad[CM_MAD_BYTES];

	msg_pack(msg, mad);
	net_inject(to, from, mad, sizeof(mad));
	net_run_for(NS_PER_MS);
}

/* ---- REQ ------------------------------------------------------------------------------------- */

static void req__came_another_way_than_its_path(void **state)
{
	static const u8 nobody[16] = { 0xfe, [15] = 99 };
	struct cm_msg msg;

	(void)state;
	net.cut = true;
	msg = stranger_req();
	net.cut = false;
	stranger_inject(SERVER_HOST, STRANGER, &msg); /* its path begins at the client */
	assert_int_equal(trio.server.seen[IB_CM_REQ_RECEIVED], 0);
	memcpy(msg.req.primary.remote_gid, nobody, 16);
	stranger_inject(SERVER_HOST, CLIENT_HOST, &msg);
	assert_int_equal(trio.server.seen[IB_CM_REQ_RECEIVED], 0);
	assert_int_equal(cm_count(net.hosts[SERVER_HOST].cm, CM_DROP_SOURCE), 2);
}

int main(void)
{
#define STRANGER_TEST(test) cmocka_unit_test_setup_teardown(test, stranger_open, stranger_close)
	const struct CMUnitTest tests[] = {
		STRANGER_TEST(req__came_another_way_than_its_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
