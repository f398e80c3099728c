/* connected_test.c: short messages in turn leave by a connected socket, with the ICRC of the
 * numbers that the kernel gives them. */
#include "path/udp/test_support/world.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "path/udp/kernel_test.h"
#include "wire/source.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

enum { CONNECTED_PORT = 0xc123, CONNECTED_WARM = 48 /* more than open a connected socket */ };

/* ---- in the kernel's place ---- */

static int connected_fate; /* 0: datagrams go, else the next one meets this errno */
static u32 connected_calls; /* by a connected socket */
static int connected_fd; /* by which the last one was */
static int shared_fd; /* by which the last call was that states where it goes */
static u32 plain_calls; /* that received without asking for more than the sender */

static bool kernel_answers(long number, const long a[6], long *result)
{
	if (number == SYS_sendto && a[4] == 0) {
		connected_calls++;
		connected_fd = (int)a[0];
		if (connected_fate != 0) {
			errno = connected_fate;
			connected_fate = 0;
			*result = -1;
			return true;
		}
	}
	if (number == SYS_sendmsg)
		shared_fd = (int)a[0];
	plain_calls += number == SYS_recvfrom && a[4] != 0;
	return false;
}

static int connected_setup(void **state)
{
	connected_fate = 0;
	connected_calls = plain_calls = 0;
	return setup(state);
}

/* As a connected queue pair has it. */
static struct path_dest *connected_dest(u32 slot, u16 sport)
{
	struct path_av av = { .hop_limit = 64,
			      .sport = sport,
			      .traffic_class = PATH_ECN_CAPABLE };

	memcpy(av.sgid, side[0].gid, 16);
	memcpy(av.dgid, side[1].gid, 16);
	return side[0].path->ops->dest_get(side[0].path, &av, side_qpn_of(slot, 17));
}

/* One message in turn, of `packets` packets: the last one is shorter, as an acknowledgement is. */
static void connected_turn(struct path_dest *d, u32 psn, u32 packets)
{
	for (u32 i = 0; i < packets; i++)
		assert_int_equal(send_one(&side[0], d, psn + i, i + 1 == packets ? 8 : 12), 0);
	side[0].path->ops->flush(d);
	udp_background(side[0].udp);
}

static void connected_turns(struct path_dest *d, u32 count, u32 packets)
{
	for (u32 i = 0; i < count; i++) {
		side[1].count = 0;
		connected_turn(d, i * packets, packets);
		receive(&side[1], packets);
		for (u32 k = 0; k < packets; k++)
			check_packet(&side[1], k, i * packets + k, k + 1 == packets ? 8 : 12);
	}
	assert_int_equal(side[1].counters[COUNT_RX_ICRC], 0);
}

static void connected__messages_in_turn(void **state)
{
	struct path_dest *d = connected_dest(SLOT_B, CONNECTED_PORT);

	connected_turns(d, 200, 1);
	assert_in_range(connected_calls, 100, 199);
	side[0].path->ops->dest_put(d);
}

static void connected__messages_with_acknowledgements(void **state)
{
	struct path_dest *d = connected_dest(SLOT_B, CONNECTED_PORT);

	connected_turns(d, 200, 2);
	assert_in_range(connected_calls, 100, 199);
	/* one that is longer than what the socket cuts is not cut */
	connected_turns(d, 20, 1);
	side[1].count = 0;
	assert_int_equal(send_one(&side[0], d, 7, 1000), 0);
	side[0].path->ops->flush(d);
	receive(&side[1], 1);
	check_packet(&side[1], 0, 7, 1000);
	connected_turns(d, 20, 2);
	side[0].path->ops->dest_put(d);
}

/* More than one, and each with numbers of its own: the receiver confuses none. */
static void connected__several_at_once(void **state)
{
	struct path_dest *d[6];

	for (u32 i = 0; i < ARRAY_LEN(d); i++)
		d[i] = connected_dest(SLOT_B + i, (u16)(CONNECTED_PORT + i));
	for (u32 n = 0; n < 3 * CONNECTED_WARM; n++)
		for (u32 i = 0; i < ARRAY_LEN(d); i++) {
			side[1].count = 0;
			connected_turn(d[i], n, 1);
			receive(&side[1], 1);
		}
	assert_int_equal(side[1].counters[COUNT_RX_ICRC], 0);
	assert_true(connected_calls > ARRAY_LEN(d) * CONNECTED_WARM);
	for (u32 i = 0; i < ARRAY_LEN(d); i++)
		side[0].path->ops->dest_put(d[i]);
}

/* Small messages that come alone are taken without asking how they are joined. What comes then,
 * joined or not, large or small, is taken apart all the same. */
static void connected__surprises_after_messages_in_turn(void **state)
{
	static const struct {
		u32 packets, length, last;
	} surprise[] = { { 2, 8, 4 },	   { 2, 8, 8 },	     { 3, 100, 0 },   { 60, 12, 12 },
			 { 5, 1000, 40 },  { 15, 4096, 8 },  { 1, 4096, 4096 }, { 2, 4096, 4096 },
			 { 30, 300, 300 }, { 14, 1024, 64 } };
	struct path_dest *d = connected_dest(SLOT_B, CONNECTED_PORT);

	for (u32 i = 0; i < 3 * ARRAY_LEN(surprise); i++) {
		u32 k = i % ARRAY_LEN(surprise), n = surprise[k].packets, before = plain_calls;

		connected_turns(d, 2 * CONNECTED_WARM, 1 + i / ARRAY_LEN(surprise) % 2);
		assert_true(plain_calls > before);
		side[1].count = 0;
		for (u32 j = 0; j < n; j++)
			assert_int_equal(send_one(&side[0], d, j,
						  j + 1 == n ? surprise[k].last
							     : surprise[k].length),
					 0);
		side[0].path->ops->flush(d);
		receive(&side[1], n);
		for (u32 j = 0; j < n; j++)
			check_packet(&side[1], j, j,
				     j + 1 == n ? surprise[k].last : surprise[k].length);
	}
	assert_int_equal(side[1].counters[COUNT_RX_ICRC], 0);
	side[0].path->ops->dest_put(d);
}

/* Where somebody sees the header fields they are asked for. */
static void connected__datagrams_have_header_fields(void **state)
{
	struct path_dest *d = connected_dest(SLOT_B, CONNECTED_PORT);

	side[1].path->datagrams = 1;
	for (u32 i = 0; i < 2 * CONNECTED_WARM; i++) {
		connected_turns(d, 1, 1);
		assert_int_equal(side[1].got[0].hop_limit, 64);
		assert_int_equal(side[1].got[0].traffic_class, PATH_ECN_CAPABLE);
	}
	assert_int_equal(plain_calls, 0);
	side[0].path->ops->dest_put(d);
}

/* After `turns` turns it has a connected socket, or still has. */
static u32 connected_has_carried(struct path_dest *d, u32 turns)
{
	u32 before = connected_calls;

	connected_turns(d, turns, 1);
	assert_true(connected_calls > before);
	return connected_calls;
}

/* A peer that is only slow closes no connected socket; silence again and again does, and the
 * next one comes later. */
static void connected__silence_closes_it(void **state)
{
	struct path_dest *d = connected_dest(SLOT_B, CONNECTED_PORT);
	u32 before;

	connected_has_carried(d, CONNECTED_WARM);
	side[0].path->ops->peer_silent(d);
	connected_has_carried(d, 1);
	side[0].path->ops->peer_silent(d);
	before = connected_has_carried(d, 1);
	side[0].path->ops->peer_silent(d);
	connected_turns(d, 2 * CONNECTED_WARM, 1);
	assert_int_equal(connected_calls, before);
	connected_has_carried(d, 4 * CONNECTED_WARM);
	side[0].path->ops->dest_put(d);
}

/* On a busy host silence comes now and then, for as long as a connected socket lives. */
static void connected__silences_are_forgotten(void **state)
{
	struct path_dest *d = connected_dest(SLOT_B, CONNECTED_PORT);

	connected_has_carried(d, CONNECTED_WARM);
	for (u32 i = 0; i < 32; i++) {
		side[0].path->ops->peer_silent(d);
		connected_has_carried(d, 1);
		connected_turns(d, CONNECTED_WARM, 1 + i % 2);
	}
	side[0].path->ops->dest_put(d);
}

/* A number that nobody knows of: the ICRC of all that follows is another one's. */
static void connected__silence_closes_wrong_numbers(void **state)
{
	struct path_dest *d = connected_dest(SLOT_B, CONNECTED_PORT);
	struct sockaddr_in nobody = { .sin_family = AF_INET, .sin_port = htons(9) };
	u32 before;

	before = connected_has_carried(d, CONNECTED_WARM);
	memcpy(&nobody.sin_addr, side[0].gid + 12, 4);
	assert_int_equal(sendto(connected_fd, "", 1, 0, (struct sockaddr *)&nobody, sizeof(nobody)),
			 1);
	side[0].path->ops->peer_silent(d);
	connected_turns(d, CONNECTED_WARM, 1);
	assert_int_equal(connected_calls, before);
	side[0].path->ops->dest_put(d);
}

static void connected__a_refusal_loses_nothing(void **state)
{
	static const int fates[] = { EAGAIN, ENOBUFS, EPERM, ECONNREFUSED };
	struct path_dest *d = connected_dest(SLOT_B, CONNECTED_PORT);

	for (u32 i = 0; i < ARRAY_LEN(fates); i++) {
		u32 before = connected_calls;

		/* each connected socket is followed by a longer pause */
		connected_turns(d, CONNECTED_WARM << 2 * i, 1 + i % 2);
		assert_true(connected_calls > before);
		connected_fate = fates[i];
		connected_turns(d, 16, 1 + i % 2);
		assert_int_equal(connected_fate, 0);
		assert_int_equal(side[0].counters[COUNT_TX_FAILED], 0);
	}
	side[0].path->ops->dest_put(d);
}

/* ---- descriptors ---- */

static bool opened;

static void *connected_opener(void *arg)
{
	udp_background(side[0].udp);
	__atomic_store_n(&opened, true, __ATOMIC_RELAXED); /* orders nothing */
	return NULL;
}

/* Another thread gets what the opener has closed: under ThreadSanitizer the two may not seem to
 * race. */
static void connected__leaves_its_numbers_to_others(void **state)
{
	struct path_dest *d = connected_dest(SLOT_B, CONNECTED_PORT);
	struct stat st;
	pthread_t t;
	int fd[4];

	for (u32 i = 0; i < CONNECTED_WARM; i++) {
		assert_int_equal(send_one(&side[0], d, i, 8), 0);
		side[0].path->ops->flush(d);
	}
	opened = false;
	assert_int_equal(pthread_create(&t, NULL, connected_opener, NULL), 0);
	while (!__atomic_load_n(&opened, __ATOMIC_RELAXED))
		sched_yield();
	for (u32 i = 0; i < ARRAY_LEN(fd); i++) {
		fd[i] = memfd_create("connected_test", MFD_CLOEXEC);
		assert_int_equal(fstat(fd[i], &st), 0);
	}
	pthread_join(t, NULL);
	for (u32 i = 0; i < ARRAY_LEN(fd); i++)
		close(fd[i]);
	side[0].path->ops->dest_put(d);
}

/* ---- content that looks like packets ---- */

/* One packet of `length` bytes, from the shared port. */
static void content_send(struct path_dest *d, u32 psn, const u8 *content, u32 length)
{
	struct iovec iov = { (void *)(uintptr_t)content, length };
	struct pkt p = packet(side_qpn_of(SLOT_B, 17), psn, length);

	assert_int_equal(side[0].path->ops->send(d, &p, &iov, 1), 0);
	side[0].path->ops->flush(d);
}

static void content_turns(struct path_dest *d, u32 count)
{
	u8 data[32] = { 0 };

	for (u32 i = 0; i < count; i++) {
		side[1].count = 0;
		content_send(d, i, data, sizeof(data));
		receive(&side[1], 1);
	}
}

/* A packet as the shared port sends it in this place of a run, its headers excluded if `inner`.
 * Returns its length. */
static u32 content_pack(u16 place, u8 value, bool inner, u8 *out)
{
	struct pkt p = packet(side_qpn_of(SLOT_B, 17), place, 32);
	struct roce_flow f = { .df = true, .id = place };
	struct sockaddr_in at;
	socklen_t length = sizeof(at);
	u8 all[128];
	u32 icrc;

	assert_int_equal(getsockname(shared_fd, (struct sockaddr *)&at, &length), 0);
	f.sport = ntohs(at.sin_port);
	memcpy(f.sgid, side[0].gid, 16);
	memcpy(f.dgid, side[1].gid, 16);
	assert_int_equal(roce_pack(&p, all), ROCE_BTH);
	memset(all + ROCE_BTH, value, 32);
	icrc = roce_icrc_begin(&f, ROCE_BTH + 32 + ROCE_ICRC, all, ROCE_BTH);
	roce_icrc_end(roce_icrc_add(icrc, all + ROCE_BTH, 32), 0, all + ROCE_BTH + 32);
	length = inner ? 32 + ROCE_ICRC : ROCE_BTH + 32 + ROCE_ICRC;
	memcpy(out, all + ROCE_BTH + 32 + ROCE_ICRC - length, length);
	return length;
}

/* The content of one honest message is the end of a shorter one and a whole packet, and the last
 * datagram of its length was cut so. */
static void receive__packets_in_a_message(void **state)
{
	struct path_dest *d = connected_dest(SLOT_B, CONNECTED_PORT);
	u32 bytes, before = plain_calls;
	u8 content[176];

	content_turns(d, 20);
	memset(content, 'B', sizeof(content));
	bytes = content_pack(0, 'A', true, content);
	content_pack(1, 'F', false, content + bytes);
	/* some calls ask the kernel anyway */
	for (u32 i = 0; i < 20; i++) {
		side[1].count = 0;
		for (u32 k = 0; k < 4; k++)
			assert_int_equal(send_one(&side[0], d, k, 32), 0);
		side[0].path->ops->flush(d);
		receive(&side[1], 4);
		content_turns(d, 70 + i);
		side[1].count = 0;
		content_send(d, 0, content, sizeof(content));
		receive(&side[1], 1);
		assert_int_equal(side[1].got[0].length, sizeof(content));
		assert_memory_equal(side[1].data[0], content, sizeof(content));
	}
	assert_true(plain_calls > before);
	side[0].path->ops->dest_put(d);
}

/* ---- exact numbers ---- */

/* A receiver of the test's own, in the place of side[1]. */
static int plain_socket(struct roce_flow *f)
{
	int fd;

	close(node_fd[1]);
	udp_destroy(side[1].udp);
	fd = node_udp_socket_open(side[1].gid);
	assert_true(fd >= 0);
	assert_int_equal(node_udp_socket_bind(fd, side[1].gid, 0), 0);
	memcpy(f->sgid, side[0].gid, 16);
	memcpy(f->dgid, side[1].gid, 16);
	return fd;
}

/* In the place of teardown. */
static void plain_end(int fd)
{
	udp_destroy(side[0].udp);
	close(node_fd[0]);
	close(fd);
	node_fd[0] = node_fd[1] = -1;
}

/* Only datagrams with this identification come; 0: all. */
static void plain_filter(int fd, u16 id)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, (u32)SKF_NET_OFF + 4),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, id, id == 0, 1),
		BPF_STMT(BPF_RET | BPF_K, 0xffff),
		BPF_STMT(BPF_RET | BPF_K, id == 0 ? 0xffff : 0),
	};
	struct sock_fprog program = { .len = ARRAY_LEN(code), .filter = code };

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)),
			 0);
}

/* The length of the next datagram, and the identification that its ICRC has. 0: none has come. */
static u32 plain_receive(int fd, struct roce_flow *f, u16 *id)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct roce_source source = { .tracks = 0 };
	struct sockaddr_in from;
	socklen_t length = sizeof(from);
	u8 data[ROCE_UDP_MAX];
	ssize_t n;

	if (poll(&p, 1, 1000) <= 0)
		return 0;
	n = recvfrom(fd, data, sizeof(data), 0, (struct sockaddr *)&from, &length);
	assert_true(n > 0);
	f->sport = ntohs(from.sin_port);
	assert_true(roce_icrc_matches(&source, f, data, (u32)n, 1));
	*id = source.track[0];
	return (u32)n;
}

/* The identification of the next datagram; 0: none has come. */
static u16 plain_number(int fd, struct roce_flow *f)
{
	u16 id = 0;

	plain_receive(fd, f, &id);
	return id;
}

/* What a filter that sees the IP header lets through, and what the ICRC covers, take turns. */
static void connected__numbers_are_those_of_the_wire(void **state)
{
	struct path_dest *d = connected_dest(SLOT_B, CONNECTED_PORT);
	struct roce_flow f = { .df = true };
	int fd = plain_socket(&f);
	u16 id = 0, next;

	for (u32 i = 0; i < CONNECTED_WARM; i++) {
		connected_turn(d, i, 1);
		id = plain_number(fd, &f);
	}
	assert_int_not_equal(f.sport, CONNECTED_PORT);
	for (u32 i = 0; i < 20; i++) {
		plain_filter(fd, i % 2 == 0 ? (u16)(id + 1) : 0);
		connected_turn(d, i, 1);
		next = plain_number(fd, &f);
		assert_int_equal(next, (u16)(id + 1));
		id = next;
	}
	side[0].path->ops->dest_put(d);
	plain_end(fd);
}

/* ---- two packets that look like one ---- */

/* As the shared port numbers it in this place. Returns its length. */
static u32 pair_pack(const struct roce_flow *flow, u16 id, u32 length, u8 *out)
{
	struct pkt p = packet(side_qpn_of(SLOT_B, 17), 0, length);
	struct roce_flow f = *flow;
	u32 headers = (u32)roce_pack(&p, out), all = headers + length + ROCE_ICRC, icrc;

	f.id = id;
	memset(out + headers, 0, length);
	icrc = roce_icrc_begin(&f, all, out, headers);
	roce_icrc_end(roce_icrc_add(icrc, out + headers, length), 0, out + headers + length);
	return all;
}

/* Looks for the payloads of two packets which, joined, could be one. Of 2^15 pairs one is such. */
static bool pair_find(const struct roce_flow *f, u32 length[2])
{
	struct roce_trial trial = { .same = 0 };
	u8 data[2 * ROCE_UDP_MAX];

	for (length[0] = 0; length[0] <= ROCE_MTU_MAX; length[0] += 4)
		for (length[1] = 0; length[1] <= length[0]; length[1] += 4) {
			u32 first = pair_pack(f, 0, length[0], data);
			u32 all = first + pair_pack(f, 1, length[1], data + first);

			if (all > ROCE_UDP_MAX)
				break;
			if (roce_icrc_is_possible(&trial, f, data, all))
				return true;
		}
	return false;
}

/* They are not joined, since no receiver could tell. */
static void send__two_packets_that_look_like_one(void **state)
{
	struct roce_flow f = { .df = true };
	int fd = plain_socket(&f);
	u32 length[2], lane = 0;
	struct path_dest *d;
	u16 id = 1;

	do { /* one without such lengths is rare */
		assert_true(lane < UDP_LANES);
		d = connected_dest(SLOT_B, (u16)(CONNECTED_PORT + lane++));
		connected_turn(d, 0, 1);
		assert_int_not_equal(plain_receive(fd, &f, &id), 0);
		side[0].path->ops->dest_put(d);
	} while (!pair_find(&f, length));
	d = connected_dest(SLOT_B, (u16)(CONNECTED_PORT + lane - 1));
	for (u32 i = 0; i < 2; i++)
		assert_int_equal(send_one(&side[0], d, i, length[i]), 0);
	side[0].path->ops->flush(d);
	for (u32 i = 0; i < 2; i++) {
		assert_int_equal(plain_receive(fd, &f, &id), ROCE_BTH + length[i] + ROCE_ICRC);
		assert_int_equal(id, 0);
	}
	side[0].path->ops->dest_put(d);
	plain_end(fd);
}

/* Another sender joins them nevertheless. From a socket of the test's own; returns it. */
static int pair_socket(struct roce_flow *f, u32 length[2])
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	int fd, probe = IP_PMTUDISC_PROBE;

	for (;;) {
		socklen_t bytes = sizeof(at);

		fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		assert_true(fd >= 0);
		assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof(probe)),
				 0);
		memcpy(&at.sin_addr, side[0].gid + 12, 4);
		at.sin_port = 0;
		assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
		assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
		f->sport = ntohs(at.sin_port);
		memcpy(f->sgid, side[0].gid, 16);
		memcpy(f->dgid, side[1].gid, 16);
		if (pair_find(f, length))
			return fd;
		close(fd);
	}
}

static void pair_send(int fd, const struct roce_flow *f, const u32 length[2])
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(ROCE_PORT) };
	u8 data[2 * ROCE_UDP_MAX];
	int first = (int)pair_pack(f, 0, length[0], data);
	u32 all = (u32)first + pair_pack(f, 1, length[1], data + first);

	memcpy(&to.sin_addr, side[1].gid + 12, 4);
	assert_int_equal(setsockopt(fd, SOL_UDP, UDP_SEGMENT, &first, sizeof(first)), 0);
	assert_int_equal(sendto(fd, data, all, 0, (struct sockaddr *)&to, sizeof(to)), all);
}

/* A receiver that has not asked for their length drops them, and asks from then on. */
static void receive__two_packets_that_look_like_one(void **state)
{
	struct path_dest *d = connected_dest(SLOT_B, CONNECTED_PORT);
	struct roce_flow f = { .df = true };
	u32 length[2], before, tries = 0;
	int fd = pair_socket(&f, length);

	/* some calls ask anyway */
	while (side[1].counters[COUNT_RX_MALFORMED] == 0) {
		struct pollfd p = { .fd = udp_wait_fd(side[1].udp), .events = POLLIN };

		assert_true(tries++ < 64);
		content_turns(d, 8 + tries % 7);
		side[1].count = 0;
		pair_send(fd, &f, length);
		while (side[1].count == 0 && side[1].counters[COUNT_RX_MALFORMED] == 0 &&
		       poll(&p, 1, 1000) > 0) {
			udp_look(side[1].udp);
			side[1].path->ops->poll(side[1].path, 1000, false);
		}
	}
	assert_int_equal(side[1].count, 0);
	before = plain_calls;
	for (u32 i = 0; i < 100; i++) {
		content_turns(d, 8);
		side[1].count = 0;
		pair_send(fd, &f, length);
		receive(&side[1], 2);
	}
	assert_int_equal(plain_calls, before);
	side[0].path->ops->dest_put(d);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(connected__messages_in_turn, connected_setup,
						teardown),
		cmocka_unit_test_setup_teardown(connected__messages_with_acknowledgements,
						connected_setup, teardown),
		cmocka_unit_test_setup_teardown(connected__several_at_once, connected_setup,
						teardown),
		cmocka_unit_test_setup_teardown(connected__surprises_after_messages_in_turn,
						connected_setup, teardown),
		cmocka_unit_test_setup_teardown(connected__datagrams_have_header_fields,
						connected_setup, teardown),
		cmocka_unit_test_setup_teardown(connected__silence_closes_it, connected_setup,
						teardown),
		cmocka_unit_test_setup_teardown(connected__silences_are_forgotten, connected_setup,
						teardown),
		cmocka_unit_test_setup_teardown(connected__silence_closes_wrong_numbers,
						connected_setup, teardown),
		cmocka_unit_test_setup_teardown(connected__a_refusal_loses_nothing, connected_setup,
						teardown),
		cmocka_unit_test_setup_teardown(connected__leaves_its_numbers_to_others,
						connected_setup, teardown),
		cmocka_unit_test_setup_teardown(receive__packets_in_a_message, connected_setup,
						teardown),
		cmocka_unit_test_setup(connected__numbers_are_those_of_the_wire, connected_setup),
		cmocka_unit_test_setup_teardown(receive__two_packets_that_look_like_one,
						connected_setup, teardown),
		cmocka_unit_test_setup(send__two_packets_that_look_like_one, connected_setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
