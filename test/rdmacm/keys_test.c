/* keys_test.c: a process has two stream rsockets, whose peers speak the protocol by verbs. One peer
 * knows what the other one was told: addresses and keys. They are of no use to it: its write is
 * refused and its connection ends, and the other stream is what its own peer makes it.
 * In:    -    Out: cmocka's report    Runs: the test's thread
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>

#include "pair.h"
#include "stream_wire.h"

enum { DATA = 0, ENTRIES = 2, PLACES = 1, QUEUE = 64, WORD = 6 };

/* An end of a connection by verbs, and the rsocket that is the other end. */
struct peer {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct hello ours, theirs;
	int stream;
	struct {
		struct sge table[ENTRIES];
		struct {
			uint64_t offset;
			struct sge place;
		} mapped[PLACES];
		char word[WORD], buffer[4096];
	} memory;
};

static struct sge host_order(const struct sge *s)
{
	return (struct sge){ be64toh(s->addr), ntohl(s->key), ntohl(s->length) };
}

static struct sge network_order(const void *at, uint32_t key, uint32_t length)
{
	return (struct sge){ htobe64((uintptr_t)at), htonl(key), htonl(length) };
}

/* Queue pair, memory, receives and the hello. */
static void peer_prepare(struct peer *p, struct rdma_conn_param *param)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .sq_sig_all = 1,
					 .cap = { QUEUE, QUEUE, 1, 1, 0 } };
	struct ibv_recv_wr *bad, wr = { .num_sge = 0 };

	assert_int_equal(rdma_create_qp(p->id, NULL, &init), 0);
	p->mr = ibv_reg_mr(p->id->pd, &p->memory, sizeof(p->memory),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	assert_non_null(p->mr);
	for (int i = 0; i < QUEUE; i++)
		assert_int_equal(ibv_post_recv(p->id->qp, &wr, &bad), 0);
	p->ours = (struct hello){ 1, 2, htons(QUEUE / 2), { 0 }, PLACES,
				  network_order(p->memory.table, p->mr->rkey, ENTRIES),
				  network_order(p->memory.buffer, p->mr->rkey,
						sizeof(p->memory.buffer)) };
	*param = (struct rdma_conn_param){ .private_data = &p->ours,
					   .private_data_len = sizeof(p->ours),
					   .retry_count = 7,
					   .rnr_retry_count = 7 };
}

/* The stream is one that raccept gives. */
static void peer_connect(struct peer *p, int listener)
{
	struct rdma_conn_param param;
	struct sockaddr_in name;
	socklen_t len = sizeof(name);

	memset(p, 0, sizeof(*p));
	assert_int_equal(rgetsockname(listener, (struct sockaddr *)&name, &len), 0);
	assert_int_equal(rdma_create_id(NULL, &p->id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(p->id, NULL, local(ntohs(name.sin_port)), 2000), 0);
	assert_int_equal(rdma_resolve_route(p->id, 2000), 0);
	peer_prepare(p, &param);
	assert_int_equal(rdma_connect(p->id, &param), 0);
	assert_true(p->id->event->param.conn.private_data_len >= sizeof(p->theirs));
	memcpy(&p->theirs, p->id->event->param.conn.private_data, sizeof(p->theirs));
	p->stream = raccept(listener, NULL, NULL);
	assert_true(p->stream >= 0);
}

/* The stream is one that connects. */
static void peer_accept(struct peer *p, struct rdma_cm_id *listener)
{
	struct rdma_conn_param param;
	struct pollfd connected = { .events = POLLOUT };

	memset(p, 0, sizeof(*p));
	p->stream = connected.fd = rsocket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(rfcntl(p->stream, F_SETFL, O_NONBLOCK), 0);
	fails(rconnect(p->stream, local(ntohs(rdma_get_src_port(listener))),
		       sizeof(struct sockaddr_in)),
	      EINPROGRESS);
	assert_int_equal(rdma_get_request(listener, &p->id), 0);
	memcpy(&p->theirs, p->id->event->param.conn.private_data, sizeof(p->theirs));
	peer_prepare(p, &param);
	assert_int_equal(rdma_accept(p->id, &param), 0);
	assert_int_equal(rpoll(&connected, 1, WAIT_MS), 1);
	assert_int_equal(connected.revents, POLLOUT);
	assert_int_equal(rfcntl(p->stream, F_SETFL, 0), 0);
}

static void peer_end(struct peer *p)
{
	assert_int_equal(rdma_disconnect(p->id), 0);
	assert_int_equal(rclose(p->stream), 0);
	rdma_destroy_qp(p->id);
	assert_int_equal(ibv_dereg_mr(p->mr), 0);
	rdma_destroy_id(p->id);
}

/* How a write of the first bytes of memory.word ends. */
static enum ibv_wc_status peer_write(struct peer *p, enum ibv_wr_opcode opcode, uint32_t message,
				     struct sge to, uint32_t bytes)
{
	struct ibv_sge sge = { (uintptr_t)p->memory.word, bytes, p->mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge,
					.num_sge = bytes > 0,
					.opcode = opcode,
					.imm_data = htonl(message) };
	struct ibv_wc wc;
	int got;

	wr.wr.rdma.remote_addr = to.addr;
	wr.wr.rdma.rkey = to.key;
	assert_int_equal(ibv_post_send(p->id->qp, &wr, &bad), 0);
	while ((got = ibv_poll_cq(p->id->send_cq, 1, &wc)) == 0)
		;
	assert_int_equal(got, 1);
	return wc.status;
}

static void peer_is_refused(struct peer *thief, struct sge to)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	char byte;

	memcpy(thief->memory.word, "stolen", WORD);
	assert_int_equal(peer_write(thief, IBV_WR_RDMA_WRITE, 0, to, WORD), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_query_qp(thief->id->qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_ERR);
	fails((int)rrecv(thief->stream, &byte, 1, 0), ECONNRESET);
}

/* ---- two streams of one process -------------------------------------------------------------- */

/* One end that listens; the others come one by one. */
struct door {
	int streams;		  /* rlisten; -1: peers do */
	struct rdma_cm_id *peers; /* rdma_listen */
};

static void door_open(struct door *d, bool streams)
{
	*d = (struct door){ .streams = -1 };
	if (streams) {
		d->streams = rsocket(AF_INET, SOCK_STREAM, 0);
		assert_int_equal(rbind(d->streams, local(0), sizeof(struct sockaddr_in)), 0);
		assert_int_equal(rlisten(d->streams, 4), 0);
		return;
	}
	assert_int_equal(rdma_create_id(NULL, &d->peers, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(d->peers, local(0)), 0);
	assert_int_equal(rdma_listen(d->peers, 4), 0);
}

static void door_join(struct door *d, struct peer *p)
{
	if (d->peers != NULL)
		peer_accept(p, d->peers);
	else
		peer_connect(p, d->streams);
}

static void door_close(struct door *d)
{
	if (d->peers != NULL)
		rdma_destroy_id(d->peers);
	else
		assert_int_equal(rclose(d->streams), 0);
}

/* Each attempt is a connection's last. */
static void door_try(struct door *d, struct sge to)
{
	static struct peer thief;

	door_join(d, &thief);
	peer_is_refused(&thief, to);
	peer_end(&thief);
}

static void the_peer_of_another_stream_is_refused(bool streams)
{
	static struct peer honest;
	char memory[WORD] = "mapped", word[WORD];
	struct sge buffer;
	struct door d;

	door_open(&d, streams);
	door_join(&d, &honest);
	/* tells the peer the memory, by a message that it must see */
	assert_int_equal(riomap(honest.stream, memory, sizeof(memory), PROT_WRITE, 0, 0), 0);
	assert_int_equal(rsend(honest.stream, "!", 1, 0), 1);
	while (*(volatile char *)honest.memory.buffer != '!')
		(void)ibv_poll_cq(honest.id->recv_cq, 1, &(struct ibv_wc){ 0 });
	assert_int_equal(honest.memory.mapped[0].place.length, sizeof(memory));

	buffer = host_order(&honest.theirs.buffer);
	memcpy(honest.memory.word, "honest", WORD);
	assert_int_equal(peer_write(&honest, IBV_WR_RDMA_WRITE, 0, buffer, WORD), IBV_WC_SUCCESS);
	door_try(&d, buffer);
	door_try(&d, host_order(&honest.theirs.table));
	door_try(&d, honest.memory.mapped[0].place);

	assert_memory_equal(memory, "mapped", WORD);
	assert_int_equal(peer_write(&honest, IBV_WR_RDMA_WRITE_WITH_IMM,
				    (uint32_t)DATA << 29 | WORD, buffer, 0),
			 IBV_WC_SUCCESS);
	assert_int_equal(rrecv(honest.stream, word, WORD, MSG_WAITALL), WORD);
	assert_memory_equal(word, "honest", WORD);
	peer_end(&honest);
	door_close(&d);
}

static void accepted_streams__are_closed_to_each_others_peers(void **state)
{
	the_peer_of_another_stream_is_refused(true);
}

static void connecting_streams__are_closed_to_each_others_peers(void **state)
{
	the_peer_of_another_stream_is_refused(false);
}

/* ---- no domain left -------------------------------------------------------------------------- */

enum { DOMAINS_MAX = 1 << 20 };

static struct ibv_pd *domains[DOMAINS_MAX];
static int domain_count;

/* All that the devices have left. */
static void domains_take(void)
{
	struct ibv_context **devices = rdma_get_devices(NULL);

	assert_non_null(devices);
	for (int i = 0; devices[i] != NULL; i++) {
		while (domain_count < DOMAINS_MAX &&
		       (domains[domain_count] = ibv_alloc_pd(devices[i])) != NULL)
			domain_count++;
		assert_int_equal(errno, ENOMEM);
	}
	rdma_free_devices(devices);
}

static void domains_give(int keep)
{
	while (domain_count > keep)
		assert_int_equal(ibv_dealloc_pd(domains[--domain_count]), 0);
}

static void a_stream__needs_a_domain(void **state)
{
	struct pair p;

	listen_at(&p, "127.0.0.1");
	assert_int_equal(rlisten(p.listener, 4), 0);
	domains_take();
	p.client = rsocket(AF_INET, SOCK_STREAM, 0);
	fails(rconnect(p.client, (struct sockaddr *)&p.addr, sizeof(struct sockaddr_in)), ENOMEM);

	/* one for the client, none for the server */
	domains_give(domain_count - 1);
	fails(rconnect(p.client, (struct sockaddr *)&p.addr, sizeof(struct sockaddr_in)),
	      ECONNREFUSED);
	fails(raccept(p.listener, NULL, NULL), ENOMEM);

	/* The client has its domain again for each attempt. */
	domains_give(domain_count - 1);
	assert_int_equal(rconnect(p.client, (struct sockaddr *)&p.addr,
				  sizeof(struct sockaddr_in)),
			 0);
	p.server = raccept(p.listener, NULL, NULL);
	assert_true(p.server >= 0);
	end_pair(&p);
	domains_give(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(accepted_streams__are_closed_to_each_others_peers),
		cmocka_unit_test(connecting_streams__are_closed_to_each_others_peers),
		cmocka_unit_test(a_stream__needs_a_domain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
