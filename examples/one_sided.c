/* one_sided.c: RDMA WRITE and RDMA READ: the client changes and reads the server's memory, and the
 * server's program does nothing meanwhile.
 *
 *   cc one_sided.c -libverbs -lrdmacm -o one_sided
 *   anyverbs run ./one_sided &                the server
 *   anyverbs run ./one_sided 127.0.0.1        the client
 *
 * Whoever offers memory registers it with IBV_ACCESS_REMOTE_*, and tells the peer its address and
 * key (rkey): here in the private data of the connection. The key is the permission: a wrong key or
 * a byte outside fails at the peer's adapter, with IBV_WC_REM_ACCESS_ERR here, and the connection
 * is in the error state afterwards. The client shows that last.
 *
 * librdmacm's short forms (rdma_create_ep, rdma_post_write, ...) stand for what cm_hello.c does
 * step by step.
 */
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BOARD = 64 };
#define SERVICE "18517"

/* Where the server's memory is. */
struct offer {
	uint64_t address;
	uint32_t rkey, length;
};

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

/* An id with a QP, connected to `host`'s, or listening if it is NULL. */
static struct rdma_cm_id *endpoint(const char *host)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	struct rdma_cm_id *id;

	hints.ai_flags = host == NULL ? RAI_PASSIVE : 0;
	must(rdma_getaddrinfo(host, SERVICE, &hints, &found) == 0, "rdma_getaddrinfo");
	must(rdma_create_ep(&id, found, NULL, &init) == 0, "rdma_create_ep");
	rdma_freeaddrinfo(found);
	return id;
}

/* ---- the server ---- */

static void serve(void)
{
	/* volatile: the adapter changes it, and the compiler does not see that */
	static volatile char board[BOARD] = "nobody has written here";
	struct rdma_cm_id *listener = endpoint(NULL), *id;
	struct rdma_conn_param param = { .responder_resources = 1 }; /* READs at a time */
	struct rdma_cm_event *event;
	struct offer offer;
	struct ibv_mr *mr;

	must(rdma_listen(listener, 1) == 0, "rdma_listen");
	must(rdma_get_request(listener, &id) == 0, "rdma_get_request");
	mr = ibv_reg_mr(id->pd, (void *)board, sizeof(board),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	must(mr != NULL, "ibv_reg_mr");
	offer = (struct offer){ (uintptr_t)board, mr->rkey, BOARD };
	param.private_data = &offer;
	param.private_data_len = sizeof(offer);
	must(rdma_accept(id, &param) == 0, "rdma_accept");
	/* From here on this program only waits for the end: no call of ours moves the bytes. */
	while (rdma_get_cm_event(id->channel, &event) == 0) {
		int end = event->event == RDMA_CM_EVENT_DISCONNECTED;

		rdma_ack_cm_event(event);
		if (end)
			break;
	}
	printf("server: my memory says: %s\n", (const char *)board);
	ibv_dereg_mr(mr);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

/* ---- the client ---- */

static enum ibv_wc_status completed(struct rdma_cm_id *id)
{
	struct ibv_wc wc;

	must(rdma_get_send_comp(id, &wc) == 1, "rdma_get_send_comp");
	return wc.status;
}

static struct offer connect_for_offer(struct rdma_cm_id *id)
{
	struct rdma_conn_param param = { .initiator_depth = 1, .retry_count = 7 };
	struct offer offer;

	must(rdma_connect(id, &param) == 0, "rdma_connect");
	must(id->event->param.conn.private_data_len >= sizeof(offer), "no offer came");
	memcpy(&offer, id->event->param.conn.private_data, sizeof(offer));
	return offer;
}

static void read_board(struct rdma_cm_id *id, const struct offer *o, char *text, struct ibv_mr *mr)
{
	must(rdma_post_read(id, NULL, text, BOARD, mr, IBV_SEND_SIGNALED, o->address, o->rkey) == 0,
	     "rdma_post_read");
	must(completed(id) == IBV_WC_SUCCESS, "the READ");
	printf("client: read: %.*s\n", BOARD, text);
}

static void call(const char *host)
{
	static char text[BOARD];
	struct rdma_cm_id *id = endpoint(host);
	struct ibv_mr *mr = rdma_reg_msgs(id, text, sizeof(text));
	struct offer offer = connect_for_offer(id);
	enum ibv_wc_status status;

	must(mr != NULL, "rdma_reg_msgs");
	read_board(id, &offer, text, mr);
	snprintf(text, sizeof(text), "the client was here");
	must(rdma_post_write(id, NULL, text, BOARD, mr, IBV_SEND_SIGNALED, offer.address,
			     offer.rkey) == 0, "rdma_post_write");
	must(completed(id) == IBV_WC_SUCCESS, "the WRITE"); /* it is in the server's memory now */
	memset(text, 0, sizeof(text));
	read_board(id, &offer, text, mr);

	/* One byte too many: the server's adapter refuses all of it. */
	must(rdma_post_write(id, NULL, text, BOARD, mr, IBV_SEND_SIGNALED, offer.address + 1,
			     offer.rkey) == 0, "rdma_post_write");
	status = completed(id);
	printf("client: a WRITE beyond the end: %s\n", ibv_wc_status_str(status));
	must(status == IBV_WC_REM_ACCESS_ERR, "the refusal");
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		call(argv[1]);
	else
		serve();
	return 0;
}
