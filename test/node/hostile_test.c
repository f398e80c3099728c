/* hostile_test.c: what the node makes of senders that do not keep to the protocol: it ends their
 * connections, and nothing else.
 * In:    a node of its own per test, seeded random bytes      Out: verdicts
 * Runs:  one thread                                           Locks: none
 */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum { HOSTILE_ROUNDS = 3000 };

/* A process that behaves, and must not notice anything. */
static struct harness hostile_witness;
static int hostile_daemon;

static int hostile_setup(void **state)
{
	int err = harness_setup(state);

	harness_attach(&hostile_witness);
	hostile_daemon = harness_daemon();
	srandom(4711);
	return err;
}

static int hostile_teardown(void **state)
{
	harness_detach(&hostile_witness);
	return harness_teardown(state);
}

static void hostile_assert_unharmed(void)
{
	struct node_event ev;
	u32 slot;

	assert_int_equal(node_slot_take(hostile_witness.node, &slot), 0);
	assert_int_equal(harness_daemon(), hostile_daemon);
	while (node_event_next(hostile_witness.node, &ev)) {
		assert_int_not_equal(ev.type, NODE_EVENT_LOST);
		if (ev.type == NODE_EVENT_PEER_NEW)
			harness_close_peer(&ev.peer);
	}
}

static void hostile_fill(void *data, size_t size)
{
	for (size_t i = 0; i < size; i++)
		((u8 *)data)[i] = (u8)random();
}

static void hostile_head(struct proto_head *head, int type)
{
	*head = (struct proto_head){ .magic = PROTO_MAGIC,
				     .version = PROTO_VERSION,
				     .type = (u16)type };
}

/* The connection's next answer: its status; -ECONNRESET if the node has hung up. */
static int hostile_answer(int fd)
{
	union proto_reply reply;
	struct message m;
	int err = message_wait(fd, clock_now_ns() + HARNESS_PATIENCE_NS);

	if (err == 0)
		err = message_receive(fd, &reply, sizeof(reply), &m);
	if (err < 0)
		return err == -EPIPE ? -ECONNRESET : err;
	message_close(&m);
	return reply.head.status;
}

static int hostile_fds(int fds[3])
{
	for (int i = 0; i < 3; i++)
		fds[i] = memfd_create("hostile", MFD_CLOEXEC);
	return 3;
}

static void hostile_close(const int *fds, int count)
{
	for (int i = 0; i < count; i++)
		close(fds[i]);
}

/* A connection that has said HELLO, and does not read its events. */
static int hostile_attach(void)
{
	struct proto_hello hello;
	int fds[3], fd = harness_connect();

	assert_true(fd >= 0);
	memset(&hello, 0, sizeof(hello));
	hostile_head(&hello.head, PROTO_HELLO);
	assert_int_equal(message_send(fd, &hello, sizeof(hello), fds, hostile_fds(fds)), 0);
	hostile_close(fds, 3);
	return fd;
}

static void node__random_bytes(void **state)
{
	u8 data[sizeof(union proto_request) + 64];

	for (int i = 0; i < HOSTILE_ROUNDS; i++) {
		int fd = i % 2 ? hostile_attach() : harness_connect();
		size_t size = 1 + (size_t)random() % sizeof(data);

		hostile_fill(data, size);
		assert_int_equal(message_send(fd, data, size, NULL, 0), 0);
		if (i % 2)
			assert_int_equal(hostile_answer(fd), 0);
		assert_int_equal(hostile_answer(fd), -ECONNRESET);
		close(fd);
		if (i % 500 == 0)
			hostile_assert_unharmed();
	}
	hostile_assert_unharmed();
}

/* Every kind of request with random contents, from every kind of connection: right sizes mostly,
 * so that they come far. */
static void node__random_requests(void **state)
{
	static const struct {
		int type;
		size_t size;
	} requests[] = {
		{ PROTO_HELLO, sizeof(struct proto_hello) },
		{ PROTO_RESUME, sizeof(struct proto_resume) },
		{ PROTO_TOOL, sizeof(struct proto_plain) },
		{ PROTO_SLOT_CLAIM, sizeof(struct proto_slot_claim) },
		{ PROTO_SOCKETS_CLAIM, sizeof(struct proto_plain) },
		{ PROTO_PAIR_CLAIM, sizeof(struct proto_pair_claim) },
		{ PROTO_SLOT_TAKE, sizeof(struct proto_plain) },
		{ PROTO_CONNECT, sizeof(struct proto_connect) },
		{ PROTO_PAIR_DROP, sizeof(struct proto_pair_end) },
		{ PROTO_MCAST_JOIN, sizeof(struct proto_mcast) },
		{ PROTO_MCAST_LEAVE, sizeof(struct proto_mcast) },
		{ PROTO_UDP_SOCKETS, sizeof(struct proto_udp_sockets) },
		{ PROTO_STATUS, sizeof(struct proto_plain) },
		{ PROTO_ADDRESSES, sizeof(struct proto_plain) },
		{ PROTO_PROCESSES, sizeof(struct proto_processes) },
		{ PROTO_BOARD, sizeof(struct proto_processes) },
		{ PROTO_CONNECTIONS, sizeof(struct proto_connections) },
	};
	union proto_request q;
	int fds[PROTO_FDS], fd = -1;

	for (int i = 0; i < 2 * HOSTILE_ROUNDS; i++) {
		u32 which = (u32)random() % ARRAY_LEN(requests);
		int type = requests[which].type, count = (int)(random() % 6);

		if (fd < 0)
			fd = i % 3 ? hostile_attach() : harness_connect();
		hostile_fill(&q, sizeof(q));
		hostile_head(&q.head, type);
		q.head.serial = (u32)i;
		if (type == PROTO_PAIR_CLAIM && random() % 2)
			q.pair_claim.count %= PROTO_PAIRS;
		if (type == PROTO_CONNECT)
			q.connect.slot %= 16;
		for (int k = 0; k < count; k++)
			fds[k] = random() % 2 ? memfd_create("h", MFD_CLOEXEC)
					      : open("/dev/null", O_RDONLY);
		if (message_send(fd, &q, requests[which].size, fds, count) < 0 ||
		    (i % 4 == 0 && hostile_answer(fd) == -ECONNRESET)) {
			close(fd);
			fd = -1;
		}
		hostile_close(fds, count);
		if (i % 500 == 0)
			hostile_assert_unharmed();
	}
	close(fd);
	hostile_assert_unharmed();
	for (int i = 0; i < 500 && harness_status().attached > 1; i++)
		usleep(1000);
	assert_int_equal(harness_status().attached, 1);
	assert_int_equal(harness_status().pairs, 0);
	assert_int_equal(harness_status().members, 0);
}

/* Asks and asks and never reads: ended as soon as a reply finds no room. */
static void node__flood_without_reading(void **state)
{
	struct proto_plain q;
	int fd = hostile_attach(), err = 0, sent;

	hostile_head(&q.head, PROTO_SLOT_TAKE);
	for (sent = 0; sent < 200000 && (err == 0 || err == -EAGAIN); sent++) {
		err = message_send(fd, &q, sizeof(q), NULL, 0);
		if (err == -EAGAIN)
			usleep(1000);
	}
	assert_true(err == -EPIPE || err == -ECONNRESET);
	close(fd);
	assert_int_equal(harness_status().attached, 1);
	hostile_assert_unharmed();
}

/* Many that never say what they are: there is room for others all the same, and some day they
 * are ended. */
static void node__silent_connections(void **state)
{
	u64 begin = clock_now_ns();
	int fds[300], last;

	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		fds[i] = harness_connect();
		assert_true(fds[i] >= 0);
	}
	hostile_assert_unharmed();
	last = hostile_attach();
	assert_int_equal(hostile_answer(last), 0);
	assert_true(harness_readable(fds[0], HARNESS_PATIENCE_MS));
	assert_true(clock_now_ns() - begin > 4 * NS_PER_S);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		assert_true(harness_readable(fds[i], HARNESS_PATIENCE_MS));
		assert_int_equal(hostile_answer(fds[i]), -ECONNRESET);
	}
	hostile_close(fds, ARRAY_LEN(fds));
	close(last);
	hostile_assert_unharmed();
}

/* The node does not run while they speak: their time passes, and their words wait. */
static void node__words_that_waited_are_heard(void **state)
{
	struct proto_plain q;
	int fds[3];

	hostile_head(&q.head, PROTO_TOOL);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		fds[i] = harness_connect();
	hostile_assert_unharmed(); /* and so all are accepted */
	kill(hostile_daemon, SIGSTOP);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		assert_int_equal(message_send(fds[i], &q, sizeof(q), NULL, 0), 0);
	sleep(6);
	kill(hostile_daemon, SIGCONT);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		assert_int_equal(hostile_answer(fds[i]), 0);
	hostile_close(fds, ARRAY_LEN(fds));
	hostile_assert_unharmed();
}

static void node__another_version_is_told(void **state)
{
	struct proto_hello hello;
	struct proto_plain reply;
	struct message m;
	int fd = harness_connect();

	memset(&hello, 0, sizeof(hello));
	hostile_head(&hello.head, PROTO_HELLO);
	hello.head.version = PROTO_VERSION + 1;
	assert_int_equal(message_send(fd, &hello, sizeof(hello), NULL, 0), 0);
	assert_int_equal(message_wait(fd, clock_now_ns() + HARNESS_PATIENCE_NS), 0);
	assert_int_equal(message_receive(fd, &reply, sizeof(reply), &m), 0);
	assert_int_equal(reply.head.status, -EPROTO);
	assert_int_equal(reply.head.version, PROTO_VERSION);
	assert_int_equal(hostile_answer(fd), -ECONNRESET);
	close(fd);
}

/* Asks and takes the reply: its status. Its descriptors are closed, but those of an attachment: the
 * end of the events socket would be the end of the process. */
static int hostile_ask(int fd, int type, void *request, size_t size, const int *fds, int count,
		       union proto_reply *reply)
{
	static struct message attachment;
	struct message m;

	hostile_head(request, type);
	assert_int_equal(message_send(fd, request, size, fds, count), 0);
	assert_int_equal(message_wait(fd, clock_now_ns() + HARNESS_PATIENCE_NS), 0);
	assert_int_equal(message_receive(fd, reply, sizeof(*reply), &m), 0);
	if (m.fd_count == 4) {
		message_close(&attachment);
		attachment = m;
	} else {
		message_close(&m);
	}
	return reply->head.status;
}

/* A process may not take over another's number, nor claim its slots; nor claim twice, nor without
 * a RESUME. */
static void node__resume_as_somebody_else(void **state)
{
	struct proto_hello hello;
	struct proto_resume q;
	struct proto_slot_claim slots;
	static struct proto_pair_claim pairs;
	struct proto_plain plain;
	union proto_reply reply;
	int fds[5], fd = harness_connect();
	u32 slot;

	assert_int_equal(node_slot_take(hostile_witness.node, &slot), 0);
	memset(&q, 0, sizeof(q));
	hostile_fds(fds);
	q.process = node_process(hostile_witness.node);
	assert_int_equal(hostile_ask(fd, PROTO_RESUME, &q, sizeof(q), fds, 3, &reply), -EAGAIN);
	close(fd);

	fd = harness_connect();
	q.process++;
	assert_int_equal(hostile_ask(fd, PROTO_RESUME, &q, sizeof(q), fds, 3, &reply), 0);
	memset(&slots, 0xff, sizeof(slots));
	assert_int_equal(hostile_ask(fd, PROTO_SLOT_CLAIM, &slots, sizeof(slots), fds, 1, &reply),
			 0);
	assert_int_equal(reply.slot_claim.slots[slot / 8] >> (slot % 8) & 1, 0);
	assert_int_equal(reply.slot_claim.slots[0] & 1, 0);
	assert_int_equal(hostile_ask(fd, PROTO_SOCKETS_CLAIM, &plain, sizeof(plain), fds, 1,
				     &reply),
			 0);
	memset(&pairs, 0, sizeof(pairs));
	pairs.count = PROTO_PAIRS + 1;
	assert_int_equal(hostile_ask(fd, PROTO_PAIR_CLAIM, &pairs, sizeof(pairs), NULL, 0, &reply),
			 -EINVAL);
	pairs.count = 1;
	pairs.pairs[0] = node_process(hostile_witness.node);
	assert_int_equal(hostile_ask(fd, PROTO_PAIR_CLAIM, &pairs, sizeof(pairs), NULL, 0, &reply),
			 0);
	assert_int_equal(harness_status().pairs, 0);
	assert_int_equal(hostile_ask(fd, PROTO_SLOT_CLAIM, &slots, sizeof(slots), fds, 1, &reply),
			 -EINVAL);
	assert_int_equal(hostile_ask(fd, PROTO_PAIR_CLAIM, &pairs, sizeof(pairs), NULL, 0, &reply),
			 -EINVAL);
	close(fd);

	memset(&hello, 0, sizeof(hello));
	fd = harness_connect();
	assert_int_equal(hostile_ask(fd, PROTO_HELLO, &hello, sizeof(hello), fds, 3, &reply), 0);
	assert_int_equal(hostile_ask(fd, PROTO_SOCKETS_CLAIM, &plain, sizeof(plain), fds, 1,
				     &reply),
			 -EINVAL);
	close(fd);
	hostile_close(fds, 3);
	hostile_assert_unharmed();
}

/* A peer that never reads its events does not hold up the others. */
static void node__events_unread(void **state)
{
	enum { MANY = 150 };
	static struct harness many[MANY];
	struct node_peer peer;
	struct node_event ev;
	int rings = memfd_create("rings", MFD_CLOEXEC), seen = 0;
	u32 slot;

	assert_int_equal(node_slot_take(hostile_witness.node, &slot), 0);
	for (int i = 0; i < MANY; i++) {
		harness_attach(&many[i]);
		assert_int_equal(node_connect(many[i].node, slot, rings, &peer), 0);
		harness_close_peer(&peer);
		for (int k = 0; k < 4; k++) {
			u8 gid[16] = { 0xff, 0x0e, (u8)i };

			assert_int_equal(node_mcast_join(many[i].node, gid, (u32)k), 0);
		}
	}
	/* all come when it reads at last */
	while (harness_readable(node_event_fd(hostile_witness.node), 200)) {
		if (!node_event_next(hostile_witness.node, &ev) || ev.type != NODE_EVENT_PEER_NEW)
			continue;
		assert_int_equal(ev.peer.process, node_process(many[seen].node));
		harness_close_peer(&ev.peer);
		seen++;
	}
	assert_int_equal(seen, MANY);
	for (int i = 0; i < MANY; i++)
		harness_detach(&many[i]);
	close(rings);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, hostile_setup, hostile_teardown)
	const struct CMUnitTest tests[] = {
		CASE(node__random_bytes),
		CASE(node__random_requests),
		CASE(node__flood_without_reading),
		CASE(node__silent_connections),
		CASE(node__words_that_waited_are_heard),
		CASE(node__another_version_is_told),
		CASE(node__resume_as_somebody_else),
		CASE(node__events_unread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
