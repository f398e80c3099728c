/* wills_test.c: wills of a dead process: which are sent, to whom, how often, and for how long.
 * In:    will files of any content, a host on another loopback address    Out: verdicts
 * Runs:  one thread, in virtual time                                      Locks: none
 */
#include "daemon/other_host_test.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/memfile.h"

enum { PROCESS = 77, SLOT = 9, PEER = 78, PEER_SLOT = 10, THEIR_ID = 7 << 22 | 5 };
enum { MANY = 5000 };

static u64 now;
static struct proc dead, peer;
static int peer_end; /* of its events socket */
static struct will_file *file;

static u64 wills_clock(void)
{
	return now;
}

static void make_proc(struct proc *p, u64 process, u32 slot)
{
	*p = (struct proc){ .daemon = d, .process = process, .kind = PROC_ATTACHED };
	p->events.fd = p->will_fd = -1;
	list_init(&p->waiting);
	list_push_back(&d->procs, &p->node);
	d->slots.owner[slot] = process;
}

static int wills_setup(void **state)
{
	int ends[2], err = other_host_setup(state);

	if (err != 0)
		return err;
	now = NS_PER_S;
	clock_set_source(wills_clock);
	make_proc(&dead, PROCESS, SLOT);
	make_proc(&peer, PEER, PEER_SLOT);
	dead.will_fd = memfile_create("wills", sizeof(*file));
	file = mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, dead.will_fd, 0);
	file->magic = WILL_MAGIC;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends) < 0)
		return -1;
	peer.events.fd = ends[0];
	peer_end = ends[1];
	return 0;
}

static int wills_teardown(void **state)
{
	clock_set_source(NULL);
	munmap(file, sizeof(*file));
	close(dead.will_fd);
	close(peer.events.fd);
	close(peer_end);
	return other_host_teardown(state);
}

/* ---- wills ----------------------------------------------------------------------------------- */

static u32 own_id(u32 i)
{
	return SLOT << 22 | (i + 1);
}

static struct node_will make_will(const struct cm_msg *msg, const u8 to[16])
{
	struct node_will w = { .pkey = 0xffff, .hop_limit = 64 };
	u8 mad[CM_MAD_BYTES];

	memcpy(w.sgid, ours, 16);
	memcpy(w.dgid, to, 16);
	msg_pack(msg, mad);
	memcpy(w.mad, mad, sizeof(w.mad));
	return w;
}

static struct node_will dreq_will(u32 i, u32 remote_id, const u8 to[16])
{
	struct cm_msg msg = { .attr = CM_DREQ, .tid = i };

	msg.dreq = (struct cm_dreq_msg){ .local_id = own_id(i), .remote_id = remote_id };
	return make_will(&msg, to);
}

static void leave(u32 i, const struct node_will *w)
{
	file->slots[i].half[1] = *w;
	file->slots[i].word = 2;
	file->used = i + 1;
}

static void leave_dreq(u32 i, u32 remote_id, const u8 to[16])
{
	struct node_will w = dreq_will(i, remote_id, to);

	leave(i, &w);
}

/* The process has died; whose slot it was nobody asks later. */
static void die(void)
{
	wills_open(&dead);
	list_remove(&dead.node);
	d->slots.owner[SLOT] = 0;
}

/* Lets time pass to the next thing that is due; false: nothing is. */
static bool step(void)
{
	u64 next = wills_next_ns(d);

	if (next == UINT64_MAX)
		return false;
	now = MAX(now, next);
	wills_run(d, now);
	return true;
}

static void answer(const struct cm_msg *dreq)
{
	struct cm_msg drep = { .attr = CM_DREP, .tid = dreq->tid };
	struct node_mad m;

	drep.drep = (struct cm_pair_msg){ .local_id = dreq->dreq.remote_id,
					  .remote_id = dreq->dreq.local_id };
	m = make_datagram(&drep);
	assert_int_equal(node_udp_socket_send(host, &m, 1), 0);
	loop_turn(&d->loop, 10000);
}

/* ---- what is judged -------------------------------------------------------------------------- */

static struct will_slot slot_of(const struct node_will *w)
{
	return (struct will_slot){ .word = 1, .half = { *w } };
}

static bool judged(const struct node_will *w)
{
	struct will_slot s = slot_of(w);
	struct dead_will out;

	return wills_judge(d, PROCESS, &s, &out);
}

static struct node_will will_of(enum cm_attr attr, u32 local_id)
{
	struct cm_msg msg = { .attr = attr };

	/* the IDs lie alike in all of them */
	msg.dreq = (struct cm_dreq_msg){ .local_id = local_id, .remote_id = THEIR_ID };
	if (attr == CM_SIDR_REP)
		msg.sidr_rep = (struct cm_sidr_rep_msg){ .request_id = THEIR_ID, .status = 2 };
	return make_will(&msg, theirs);
}

static void wills_judge__takes_ends_in_the_own_name_only(void **state)
{
	static const bool good[CM_ATTR_END] = {
		[CM_REJ] = true, [CM_DREQ] = true, [CM_DREP] = true, [CM_SIDR_REP] = true
	};
	struct node_will w;

	(void)state;
	for (u32 attr = CM_REQ; attr < CM_ATTR_END; attr++) {
		w = will_of((enum cm_attr)attr, own_id(0));
		assert_int_equal(judged(&w), good[attr]);
	}
	/* in another's name */
	w = will_of(CM_DREQ, PEER_SLOT << 22 | 1);
	assert_false(judged(&w));
	w = will_of(CM_DREQ, 11 << 22 | 1);
	assert_false(judged(&w));
	w = will_of(CM_DREQ, 0);
	assert_false(judged(&w));
	w = will_of(CM_REJ, 0); /* of a REQ that was never answered */
	assert_true(judged(&w));
	/* from an address of another host, or to a group */
	w = will_of(CM_DREQ, own_id(0));
	memcpy(w.sgid, theirs, 16);
	assert_false(judged(&w));
	w = will_of(CM_DREQ, own_id(0));
	memset(w.sgid, 0, 16); /* as an empty entry of the table */
	assert_false(judged(&w));
	w = will_of(CM_DREQ, own_id(0));
	w.dgid[12] = 224;
	assert_false(judged(&w));
	w = will_of(CM_DREQ, own_id(0));
	w.pkey = 0x1234; /* which no port has */
	assert_false(judged(&w));
	/* no message of the CM */
	w = will_of(CM_DREQ, own_id(0));
	w.mad[1] = 3;
	assert_false(judged(&w));
}

static void wills_judge__looks_at_the_half_in_force(void **state)
{
	struct node_will good = will_of(CM_DREQ, own_id(0)), bad = good;
	struct will_slot s = slot_of(&good);
	struct dead_will out;

	(void)state;
	bad.mad[0] = 77;
	s.half[1] = bad;
	assert_true(wills_judge(d, PROCESS, &s, &out));
	assert_int_equal(out.local_id, own_id(0));
	s.word = 2;
	assert_false(wills_judge(d, PROCESS, &s, &out));
	s.word = 0;
	assert_false(wills_judge(d, PROCESS, &s, &out));
	s.word = 3;
	assert_false(wills_judge(d, PROCESS, &s, &out));
}

static void wills_open__believes_no_number_of_the_file(void **state)
{
	(void)state;
	leave_dreq(0, THEIR_ID, theirs);
	file->used = UINT32_MAX;
	wills_open(&dead);
	assert_int_equal(d->wills_count, 1);
	wills_clear(d);
	assert_int_equal(d->wills_count, 0);
	file->magic ^= 1;
	wills_open(&dead);
	assert_true(list_empty(&d->wills));
	file->magic ^= 1;
	file->used = 0;
	wills_open(&dead);
	assert_true(list_empty(&d->wills));
}

/* ---- what is sent ---------------------------------------------------------------------------- */

/* Thousands leave in bursts; each is sent until it is answered. */
static void wills__many_to_another_host(void **state)
{
	static bool seen[MANY];
	struct cm_msg msg;
	u32 count = 0, i;

	(void)state;
	memset(seen, 0, sizeof(seen));
	for (i = 0; i < MANY; i++)
		leave_dreq(i, THEIR_ID + i, theirs);
	die();
	assert_int_equal(d->wills_count, MANY);
	while (step()) {
		for (i = 0; other_host_receive(&msg, 0); i++) {
			u32 which = (msg.dreq.local_id & 0x3fffff) - 1;

			assert_int_equal(msg.attr, CM_DREQ);
			assert_true(which < MANY);
			assert_int_equal(msg.dreq.remote_id, THEIR_ID + which);
			assert_false(seen[which]); /* those that were answered are silent */
			seen[which] = true;
			count++;
			answer(&msg);
		}
		assert_true(i <= WILLS_BURST);
	}
	assert_int_equal(count, MANY);
	assert_int_equal(d->wills_count, 0);
	assert_true(now < 2 * NS_PER_S);
}

/* Without an answer a DREQ is repeated for seconds, a REJ a few times. */
static void wills__without_an_answer(void **state)
{
	struct node_will rej = will_of(CM_REJ, own_id(1));
	u32 dreqs = 0, rejs = 0;
	struct cm_msg msg;

	(void)state;
	leave_dreq(0, THEIR_ID, theirs);
	leave(1, &rej);
	die();
	while (step()) {
		while (other_host_receive(&msg, 0)) {
			dreqs += msg.attr == CM_DREQ;
			rejs += msg.attr == CM_REJ;
		}
	}
	assert_int_equal(dreqs, 7);
	assert_int_equal(rejs, 3);
	assert_in_range(now, 4 * NS_PER_S, 15 * NS_PER_S);
	assert_true(list_empty(&d->wills));
}

/* An answer of another host, or to another ID, counts for nothing. */
static void wills__takes_the_peers_answer_only(void **state)
{
	struct cm_msg dreq = { .attr = CM_DREQ }, msg;

	(void)state;
	leave_dreq(0, THEIR_ID, theirs);
	die();
	dreq.dreq = (struct cm_dreq_msg){ .local_id = own_id(3), .remote_id = THEIR_ID };
	answer(&dreq);
	assert_true(step());
	assert_true(other_host_receive(&msg, 0));
	assert_true(step());
	assert_true(other_host_receive(&msg, 0));
	answer(&msg);
	while (step())
		assert_false(other_host_receive(&msg, 0));
}

/* Of two dead processes, which leave a will each, the later one's is answered. */
static void wills__each_process_has_its_answers(void **state)
{
	struct cm_msg dreq = { .attr = CM_DREQ }, msg;
	struct node_will w;
	u32 sent[2] = { 0, 0 };

	(void)state;
	leave_dreq(0, THEIR_ID, theirs);
	die();
	dreq.dreq = (struct cm_dreq_msg){ .local_id = PEER_SLOT << 22 | 1, .remote_id = THEIR_ID };
	w = make_will(&dreq, theirs);
	leave(0, &w);
	peer.will_fd = dead.will_fd;
	wills_open(&peer);
	list_remove(&peer.node);
	d->slots.owner[PEER_SLOT] = 0;
	while (step()) {
		while (other_host_receive(&msg, 0)) {
			bool later = msg.dreq.local_id == dreq.dreq.local_id;

			sent[later]++;
			if (later)
				answer(&msg);
		}
	}
	assert_int_equal(sent[0], 7);
	assert_int_equal(sent[1], 1);
}

/* Takes what waits on the peer's events socket; returns how many DREQs. */
static u32 peer_reads(u32 most)
{
	struct proto_mad event;
	struct cm_msg msg;
	u32 count = 0, qpn;

	while (count < most && recv(peer_end, &event, sizeof(event), 0) == sizeof(event)) {
		assert_int_equal(event.head.type, PROTO_EV_MAD);
		assert_true(qp1_judge(&event.mad, &qpn));
		assert_true(msg_unpack(&msg, event.mad.payload + QP1_MAD, CM_MAD_BYTES));
		assert_int_equal(msg.attr, CM_DREQ);
		count++;
	}
	return count;
}

/* More than the events socket holds: they wait for the reader. */
static void wills__many_to_a_process_of_this_node(void **state)
{
	u32 count = 0;

	(void)state;
	for (u32 i = 0; i < MANY; i++)
		leave_dreq(i, PEER_SLOT << 22 | i, ours);
	die();
	while (step() && now < 60 * NS_PER_S)
		count += peer_reads(30);
	assert_int_equal(count + peer_reads(UINT32_MAX), 3 * MANY);
	assert_true(list_empty(&d->wills));
}

/* A stopped process, with a full socket, holds up nobody for long. */
static void wills__a_peer_that_does_not_read(void **state)
{
	struct cm_msg msg;
	u32 others = 0;

	(void)state;
	for (u32 i = 0; i < 2000; i++)
		leave_dreq(i, PEER_SLOT << 22 | i, ours);
	leave_dreq(2000, THEIR_ID, theirs);
	die();
	while (step())
		while (other_host_receive(&msg, 0))
			others++;
	assert_int_equal(others, 7);
	assert_in_range(now, 0, 90 * NS_PER_S);
	assert_true(list_empty(&d->wills));
}

static void wills__peers_that_are_gone_too(void **state)
{
	(void)state;
	leave_dreq(0, 11 << 22 | 5, ours);
	die();
	assert_true(step());
	assert_true(list_empty(&d->wills));
}

/* A client that dies before it knew its server's ID. */
static void wills__of_a_request_without_an_answer(void **state)
{
	struct cm_msg msg = { .attr = CM_REJ };
	struct proto_mad event;
	struct node_will w;

	(void)state;
	msg.rej = (struct cm_rej_msg){ .local_id = own_id(0), .reason = 4 };
	w = make_will(&msg, ours);
	leave(0, &w);
	peer.will_fd = dead.will_fd; /* it has had peers */
	die();
	assert_true(step());
	assert_int_equal(recv(peer_end, &event, sizeof(event), 0), sizeof(event));
	assert_true(msg_unpack(&msg, event.mad.payload + QP1_MAD, CM_MAD_BYTES));
	assert_int_equal(msg.rej.local_id, own_id(0));
	while (step())
		;
	assert_int_equal(recv(peer_end, &event, sizeof(event), 0), -1);
}

static void wills_discard__of_a_process_that_lives(void **state)
{
	struct cm_msg msg;

	(void)state;
	leave_dreq(0, THEIR_ID, theirs);
	die();
	wills_discard(d, PROCESS + 1);
	assert_int_equal(d->wills_count, 1);
	wills_discard(d, PROCESS);
	assert_false(step());
	assert_false(other_host_receive(&msg, 0));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, wills_setup, wills_teardown)
	static const struct CMUnitTest tests[] = {
		CASE(wills_judge__takes_ends_in_the_own_name_only),
		CASE(wills_judge__looks_at_the_half_in_force),
		CASE(wills_open__believes_no_number_of_the_file),
		CASE(wills__many_to_another_host),
		CASE(wills__without_an_answer),
		CASE(wills__takes_the_peers_answer_only),
		CASE(wills__each_process_has_its_answers),
		CASE(wills__many_to_a_process_of_this_node),
		CASE(wills__a_peer_that_does_not_read),
		CASE(wills__peers_that_are_gone_too),
		CASE(wills__of_a_request_without_an_answer),
		CASE(wills_discard__of_a_process_that_lives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
