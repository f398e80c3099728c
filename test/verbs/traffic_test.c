/* traffic_test.c: counters/ of a RoCE port in /sys counts what its queue pairs have sent and
 * received, by shared memory and by UDP, and keeps it when queue pairs and processes end.
 *
 * All ends are of one device: what it sends it receives as well. By shared memory bytes are exact,
 * and packets as many as messages, or as their bytes fill. By UDP connections count what is on the
 * wire, acknowledgements too.
 *
 * In: the sysfs tree    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../late.h"
#include "pair.h"

const char *ibv_get_sysfs_path(void);

enum {
	MTU = 1024,   /* conn_attr's */
	HEADERS = 16, /* BTH and ICRC */
	DETH = 8,
	BYTES = 1 << 20,
	INLINE = 64,
	LOOK_US = 10000,
	SILENT_LOOK_US = 1200000,
	COUNT_MS = 30000,
	REPEAT = 3,
};

struct counts {
	uint64_t xmit_packets, xmit_data, rcv_packets, rcv_data, rcv_errors, xmit_discards;
};

/* What one end has sent, as it is tallied, and the READs that it has asked for. */
struct told {
	uint64_t messages, bytes, reads, read_bytes;
};
static struct told told[2];
/* What must have been counted before that, sent and received: bytes, not words. */
struct due {
	uint64_t packets, bytes;
};
static struct due before[2];
enum { XMIT, RCV };

static uint64_t packets_of(uint64_t messages, uint64_t bytes)
{
	uint64_t full = (bytes + MTU - 1) / MTU;

	return messages > full ? messages : full;
}

static struct due due_now(int way)
{
	struct due d = before[way];

	for (int i = 0; i < 2; i++) {
		uint64_t n = packets_of(told[i].messages, told[i].bytes) + told[i].reads +
			     packets_of(told[i].reads, told[i].read_bytes);

		d.packets += n;
		d.bytes += n * HEADERS + told[i].bytes + told[i].read_bytes;
	}
	return d;
}

static int traffic_open(const char *name)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/class/infiniband/roce0/ports/1/counters/%s",
		 ibv_get_sysfs_path(), name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static uint64_t traffic_read(const char *name)
{
	char text[32] = "";
	int fd = traffic_open(name);
	ssize_t n;

	if (fd < 0)
		fail_msg("%s: %s", name, strerror(errno));
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	assert_true(n > 1 && text[n - 1] == '\n');
	return strtoull(text, NULL, 10);
}

static struct counts traffic_now(void)
{
	return (struct counts){
		traffic_read("port_xmit_packets"), traffic_read("port_xmit_data"),
		traffic_read("port_rcv_packets"),  traffic_read("port_rcv_data"),
		traffic_read("port_rcv_errors"),   traffic_read("port_xmit_discards")
	};
}

static bool traffic_is_there(const struct counts *c)
{
	struct due xmit = due_now(XMIT), rcv = due_now(RCV);

	return c->xmit_packets >= xmit.packets && c->rcv_packets >= rcv.packets &&
	       c->xmit_data >= xmit.bytes / 4 && c->rcv_data >= rcv.bytes / 4;
}

static void traffic_expect_no_more(const struct counts *c)
{
	struct due xmit = due_now(XMIT), rcv = due_now(RCV);

	assert_int_equal(c->xmit_packets, xmit.packets);
	assert_int_equal(c->rcv_packets, rcv.packets);
	assert_int_equal(c->xmit_data, xmit.bytes / 4);
	assert_int_equal(c->rcv_data, rcv.bytes / 4);
}

/* Waits until everything is counted. By shared memory nothing else is. */
static void traffic_expect(void)
{
	uint64_t limit = now_ms() + COUNT_MS;
	struct counts c = traffic_now();

	while (!traffic_is_there(&c) && now_ms() < limit) {
		usleep(LOOK_US);
		c = traffic_now();
	}
	if (!traffic_is_there(&c)) {
		print_message("%llu packets sent, %llu received, %llu due\n",
			      (unsigned long long)c.xmit_packets, (unsigned long long)c.rcv_packets,
			      (unsigned long long)due_now(XMIT).packets);
		late("counted traffic", COUNT_MS);
	}
	assert_int_equal(c.rcv_errors, 0);
	assert_int_equal(c.xmit_discards, 0);
	if (!side_on_wire())
		traffic_expect_no_more(&c);
}

/* A case is over. What was on the wire beside what is due, as acknowledgements are, is due from
 * now on. */
static void traffic_settle(void)
{
	struct counts c = traffic_now();

	before[XMIT] = due_now(XMIT);
	before[RCV] = due_now(RCV);
	memset(told, 0, sizeof(told));
	if (!side_on_wire())
		return;
	before[XMIT] = (struct due){ c.xmit_packets, 4 * c.xmit_data };
	before[RCV] = (struct due){ c.rcv_packets, 4 * c.rcv_data };
}

static void tell(const struct end *from, enum ibv_wr_opcode op, uint32_t messages, uint32_t bytes)
{
	struct told *t = &told[from == &pair.b];

	if (op == IBV_WR_RDMA_READ) {
		t->reads += messages;
		t->read_bytes += (uint64_t)messages * bytes;
	} else {
		t->messages += messages;
		t->bytes += (uint64_t)messages * bytes;
	}
}

/* ---- one message ---- */

static bool takes_receive(enum ibv_wr_opcode op)
{
	return op == IBV_WR_SEND || op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static void transfer(struct end *from, struct end *to, enum ibv_wr_opcode op, uint32_t bytes,
		     int flags)
{
	struct side_wr w = end_op(from, op, 0, bytes, to, 0), room = end_wr(to, 0, BYTES);

	w.flags |= flags;
	if (takes_receive(op))
		end_recv(to, 0, &room, 1);
	end_send(from, 0, &w);
	end_expect(from, SENDS, IBV_WC_SUCCESS);
	if (takes_receive(op))
		end_expect(to, RECVS, IBV_WC_SUCCESS);
	tell(from, op, 1, bytes);
}

static void open_ends(int type)
{
	pair_open(&(struct side_options){ .type = type,
					  .bytes = BYTES + 4096,
					  .mr_access = -1,
					  .qp_access = -1,
					  .inline_bytes = INLINE });
}

/* ---- cases ---- */

/* Nothing but datagrams so far: exact on the wire, too. */
static void traffic__of_datagrams(void **state)
{
	static const uint32_t sizes[] = { 0, 1, 32, 33, 1000 };
	struct side_wr room;
	struct counts c;

	open_ends(IBV_QPT_UD);
	room = end_wr(&pair.b, 0, 4096);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct side_wr w = end_op(&pair.a, IBV_WR_SEND, 0, sizes[i], &pair.b, 0);

		end_recv(&pair.b, 0, &room, 1);
		end_send(&pair.a, 0, &w);
		end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
		end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
		for (int way = XMIT; way <= RCV; way++) {
			before[way].packets++;
			before[way].bytes += sizes[i] + DETH + HEADERS;
		}
	}
	traffic_expect();
	c = traffic_now();
	traffic_expect_no_more(&c);
	end_close(&pair.a);
	end_close(&pair.b);
	traffic_expect();
}

static void traffic_of_connections(int type, const enum ibv_wr_opcode *ops, size_t count)
{
	static const uint32_t sizes[] = {
		1, 32, 33, 256, 257, 1024, 1025, 4097, 20000, 70000, BYTES
	};

	open_ends(type);
	for (size_t k = 0; k < count; k++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			for (int n = 0; n < REPEAT; n++)
				transfer(&pair.a, &pair.b, ops[k], sizes[i], 0);
	traffic_expect();
	for (size_t k = 0; k < count; k++)
		if (ops[k] != IBV_WR_RDMA_READ)
			transfer(&pair.b, &pair.a, ops[k], INLINE, IBV_SEND_INLINE);
	traffic_expect();
	end_close(&pair.a);
	end_close(&pair.b);
	traffic_expect();
	traffic_settle();
}

static void traffic__of_reliable_connections(void **state)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						  IBV_WR_RDMA_WRITE_WITH_IMM };

	traffic_of_connections(IBV_QPT_RC, ops, sizeof(ops) / sizeof(ops[0]));
}

/* SENDs only: what they lose on a wire would show. */
static void traffic__of_unreliable_connections(void **state)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE };

	if (side_on_wire())
		skip();
	traffic_of_connections(IBV_QPT_UC, ops, sizeof(ops) / sizeof(ops[0]));
}

/* Several WRITEs in one call. */
static void traffic__of_a_list(void **state)
{
	enum { COUNT = 20, LENGTH = 3000 };
	struct side_wr w;
	struct ibv_wc wc;

	open_ends(IBV_QPT_RC);
	w = end_op(&pair.a, IBV_WR_RDMA_WRITE, 0, LENGTH, &pair.b, 0);
	end_send_many(&pair.a, 0, &w, COUNT, COUNT);
	assert_int_equal(end_poll(&pair.a, SENDS, 1, PAIR_WAIT_MS, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	tell(&pair.a, IBV_WR_RDMA_WRITE, COUNT, LENGTH);
	traffic_expect();
	traffic_settle();
}

/* A queue pair that is connected anew goes on where it was. */
static void traffic__of_a_queue_pair_that_is_reset(void **state)
{
	open_ends(IBV_QPT_RC);
	transfer(&pair.a, &pair.b, IBV_WR_SEND, 5000, 0);
	end_state(&pair.a, 0, IBV_QPS_RESET);
	end_state(&pair.b, 0, IBV_QPS_RESET);
	pair_connect(1, NULL, NULL);
	transfer(&pair.a, &pair.b, IBV_WR_SEND, 5000, 0);
	traffic_expect();
	traffic_settle();
}

/* The last case: b is gone behind it. It was the initiator, and had counted for both. */
static void traffic__of_a_process_that_is_killed(void **state)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						  IBV_WR_RDMA_READ };
	int status;

	if (pair_is_one_process())
		skip();
	open_ends(IBV_QPT_RC);
	for (size_t k = 0; k < sizeof(ops) / sizeof(ops[0]); k++)
		transfer(&pair.b, &pair.a, ops[k], 70000, 0);
	assert_int_equal(kill(pair.b.pid, SIGKILL), 0);
	assert_int_equal(waitpid(pair.b.pid, &status, 0), pair.b.pid);
	pair.b.open = false;
	pair.b.pid = 0;
	traffic_expect();
	end_close(&pair.a);
	usleep(SILENT_LOOK_US); /* anything more would show now */
	traffic_expect();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(traffic__of_datagrams, pair_teardown),
		cmocka_unit_test_teardown(traffic__of_reliable_connections, pair_teardown),
		cmocka_unit_test_teardown(traffic__of_unreliable_connections, pair_teardown),
		cmocka_unit_test_teardown(traffic__of_a_list, pair_teardown),
		cmocka_unit_test_teardown(traffic__of_a_queue_pair_that_is_reset, pair_teardown),
		cmocka_unit_test_teardown(traffic__of_a_process_that_is_killed, pair_teardown),
	};

	pair_supervise();
	return cmocka_run_group_tests(tests, pair_group_setup, pair_group_teardown);
}
