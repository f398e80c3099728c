/* events.c: a server that sleeps until something happens: completions and connections by one epoll
 * loop, among whatever else a program waits for. Here also a timer that ends it.
 *
 *   cc events.c -libverbs -lrdmacm -o events
 *   anyverbs run ./events &                   the server: echoes, ends 2 s after the last message
 *   anyverbs run ./events 127.0.0.1           the client: sends 5 messages, one each 50 ms
 *
 * The rule for sleeping, which lost_wakeup.c shows broken:
 *   1. ibv_req_notify_cq: asks for ONE event, for the next completion that is added.
 *   2. ibv_poll_cq until it is empty: what was added before step 1 raises no event.
 *   3. only then sleep.
 * An event says "look", not "one completion": one event may stand for many, or for none any more.
 * Each event that ibv_get_cq_event returns must be acknowledged, else ibv_destroy_cq blocks for
 * ever. Acknowledging takes a lock, so busy programs do it once for many.
 */
#include <errno.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { TEXT = 64, BUFFERS = 8, MESSAGES = 5, IDLE_MS = 2000 };
#define SERVICE "18518"

static struct ibv_mr *mr;
static char buffers[BUFFERS][TEXT], answer[TEXT];
static int echoed, connected;

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static struct rdma_cm_id *endpoint(const char *host)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { BUFFERS, BUFFERS, 1, 1, TEXT } };
	struct rdma_cm_id *id;

	hints.ai_flags = host == NULL ? RAI_PASSIVE : 0;
	must(rdma_getaddrinfo(host, SERVICE, &hints, &found) == 0, "rdma_getaddrinfo");
	must(rdma_create_ep(&id, found, NULL, &init) == 0, "rdma_create_ep");
	rdma_freeaddrinfo(found);
	return id;
}

/* ---- the server ---- */

static void watch(int epoll, int fd)
{
	struct epoll_event e = { .events = EPOLLIN, .data.fd = fd };

	/* else a second reader, or an event that was taken already, blocks the loop */
	must(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0, "O_NONBLOCK");
	must(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) == 0, "epoll_ctl");
}

static void received(struct rdma_cm_id *id, const struct ibv_wc *wc)
{
	char *buffer = buffers[wc->wr_id];
	struct ibv_wc sent;

	if (wc->status != IBV_WC_SUCCESS)
		return; /* rdma_disconnect brings posted buffers back, "flushed" */
	snprintf(answer, TEXT, "echo: %.50s", buffer);
	must(rdma_post_recv(id, (void *)(uintptr_t)wc->wr_id, buffer, TEXT, mr) == 0,
	     "rdma_post_recv");
	/* Inline: the bytes are copied into the request, so `answer` needs no key and is free at
	 * once. Taking the completion frees the request's place in the send queue. */
	must(rdma_post_send(id, NULL, answer, TEXT, NULL, IBV_SEND_INLINE | IBV_SEND_SIGNALED) == 0,
	     "rdma_post_send");
	must(rdma_get_send_comp(id, &sent) == 1 && sent.status == IBV_WC_SUCCESS, "the answer");
	echoed++;
}

/* Steps 1 and 2 of the rule. The caller sleeps. */
static void drain(struct rdma_cm_id *id)
{
	struct ibv_wc wc[BUFFERS];
	int n;

	must(ibv_req_notify_cq(id->recv_cq, 0) == 0, "ibv_req_notify_cq");
	while ((n = ibv_poll_cq(id->recv_cq, BUFFERS, wc)) > 0)
		for (int i = 0; i < n; i++)
			received(id, &wc[i]);
	must(n == 0, "ibv_poll_cq");
}

static void completion_event(struct rdma_cm_id *id)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(id->recv_cq_channel, &cq, &context) != 0) {
		must(errno == EAGAIN, "ibv_get_cq_event");
		return;
	}
	ibv_ack_cq_events(cq, 1);
	drain(id);
}

static void connection_event(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *e;

	if (rdma_get_cm_event(channel, &e) != 0) {
		must(errno == EAGAIN, "rdma_get_cm_event");
		return;
	}
	printf("server: %s\n", rdma_event_str(e->event));
	if (e->event == RDMA_CM_EVENT_DISCONNECTED)
		connected = 0;
	rdma_ack_cm_event(e);
}

/* Accepts one client: its buffers are posted before, its CQ is armed. */
static struct rdma_cm_id *accept_one(struct rdma_cm_id *listener)
{
	struct rdma_cm_id *id;

	must(rdma_get_request(listener, &id) == 0, "rdma_get_request");
	mr = rdma_reg_msgs(id, buffers, sizeof(buffers));
	must(mr != NULL, "rdma_reg_msgs");
	for (uintptr_t i = 0; i < BUFFERS; i++)
		must(rdma_post_recv(id, (void *)i, buffers[i], TEXT, mr) == 0, "rdma_post_recv");
	must(rdma_accept(id, NULL) == 0, "rdma_accept");
	connected = 1;
	return id;
}

static void serve(void)
{
	struct rdma_cm_id *listener = endpoint(NULL), *id;
	int epoll = epoll_create1(0);
	struct epoll_event e;

	must(rdma_listen(listener, 1) == 0, "rdma_listen");
	id = accept_one(listener);
	watch(epoll, id->recv_cq_channel->fd);
	watch(epoll, id->channel->fd);
	drain(id);
	while (connected && epoll_wait(epoll, &e, 1, IDLE_MS) == 1) {
		if (e.data.fd == id->recv_cq_channel->fd)
			completion_event(id);
		else
			connection_event(id->channel);
	}
	printf("server: %d messages, and asleep between them\n", echoed);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
	close(epoll);
}

/* ---- the client ---- */

static void call(const char *host)
{
	static char text[2][TEXT];
	struct rdma_cm_id *id = endpoint(host);
	struct ibv_wc wc;

	mr = rdma_reg_msgs(id, text, sizeof(text));
	must(mr != NULL, "rdma_reg_msgs");
	must(rdma_post_recv(id, NULL, text[1], TEXT, mr) == 0, "rdma_post_recv");
	must(rdma_connect(id, NULL) == 0, "rdma_connect");
	for (int i = 1; i <= MESSAGES; i++) {
		snprintf(text[0], TEXT, "message %d", i);
		must(rdma_post_send(id, NULL, text[0], TEXT, mr, IBV_SEND_SIGNALED) == 0,
		     "rdma_post_send");
		/* These two sleep by the same rule, inside librdmacm. */
		must(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "the send");
		must(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "the answer");
		printf("client: %s\n", text[1]);
		must(rdma_post_recv(id, NULL, text[1], TEXT, mr) == 0, "rdma_post_recv");
		usleep(50000);
	}
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1)
		call(argv[1]);
	else
		serve();
	return 0;
}
