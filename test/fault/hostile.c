/* hostile.c: attaches like everybody, then scribbles over all that it may write: the rings of its
 * pair with the victim, in both directions, its own board, the victim's doorbells.
 *
 * hostile SEED                           "hostile QPN*4"
 * attack SECONDS QPN*4 KEY*6 ADDR*6      "done SLOTS LEAKS COUNTER=N ..." (the victim's counters)
 * In: lines, the victim's answers    Out: garbage of every degree of plausibility
 * Runs: main, and a thread that changes slots while the victim reads them    Locks: none
 */
#include "hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "node/node.h"
#include "path/shm/board.h"
#include "path/shm/ring.h"

enum { RUN = 16 /* this many secrets in a row are no accident */, BATCH = 64 };

static const u8 types[HOSTILE_QPS] = { IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };

static struct hostile {
	struct node *node;
	struct board *board;
	const struct board *victim;
	int bell[2];
	struct ring_shared *out, *in;
	u32 slot, tail;
	u32 qpn[HOSTILE_QPS], key[HOSTILE_KEYS];
	u64 addr[HOSTILE_KEYS];
	u32 psn[HOSTILE_QPS];
	u64 random, slots, leaks;
	volatile bool stop;
} h;

static u64 hostile_draw(u64 *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state * 0x2545f4914f6cdd1dull;
}

static u32 pick(u32 below)
{
	return (u32)(hostile_draw(&h.random) >> 33) % below;
}

static bool chance(u32 percent)
{
	return pick(100) < percent;
}

static u32 hostile_own_qpn(int i)
{
	return h.slot << NODE_INDEX_BITS | (u32)(i + 2);
}

/* ---- attaching ---- */

static void hostile_need(bool fine, const char *what)
{
	if (fine)
		return;
	fprintf(stderr, "hostile: %s: %s\n", what, strerror(errno));
	exit(3);
}

static void hostile_show_qps(void)
{
	h.board->slots[0] = h.slot;
	h.board->slot_count = 1;
	for (int i = 0; i < HOSTILE_QPS; i++) {
		struct board_qp *q = &h.board->qps[hostile_own_qpn(i) % BOARD_QPS_PER_SLOT];

		q->qpn = hostile_own_qpn(i);
		q->peer_qpn = h.qpn[i];
		q->word = board_qp_word(IBV_QPS_RTS, types[i], 0xf);
	}
}

/* Full, and blocking for who trusts it: whoever rings it would wait for ever. */
static int hostile_bell(void)
{
	static char full[4096];
	int p[2];

	hostile_need(pipe2(p, O_CLOEXEC | O_NONBLOCK) == 0, "pipe");
	while (write(p[1], full, sizeof(full)) > 0)
		;
	hostile_need(fcntl(p[1], F_SETFL, 0) == 0, "fcntl");
	return p[1]; /* the other end stays, and is never read */
}

static void hostile_attach(void)
{
	struct node_self self = { .board_fd = -1 };
	int err, fd;

	h.board = board_create(&fd, &err);
	hostile_need(h.board != NULL, "board");
	self.board_fd = fd;
	for (int i = 0; i < 2; i++)
		self.bell_fd[i] = hostile_bell();
	hostile_need(node_attach(&self, &h.node) == 0, "attach");
	hostile_need(node_slot_take(h.node, &h.slot) == 0, "slot");
	hostile_show_qps();
	printf("hostile");
	for (int i = 0; i < HOSTILE_QPS; i++)
		printf(" %u", hostile_own_qpn(i));
	printf("\n");
	fflush(stdout);
}

/* Makes the pair, or takes the one that the victim has just made. */
static struct node_peer hostile_meet(void)
{
	int ring = ring_pair_create();
	struct node_event ev = { .type = NODE_EVENT_NONE };
	struct node_peer peer;
	int err = node_connect(h.node, h.qpn[0] >> NODE_INDEX_BITS, ring, &peer);

	close(ring);
	if (err == 0)
		return peer;
	errno = -err;
	hostile_need(err == -EALREADY, "pair");
	for (int i = 0; i < 2000 && ev.type != NODE_EVENT_PEER_NEW; i++) {
		usleep(1000);
		node_event_next(h.node, &ev);
	}
	hostile_need(ev.type == NODE_EVENT_PEER_NEW, "the victim's pair");
	return ev.peer;
}

static void hostile_pair(void)
{
	struct node_peer peer = hostile_meet();
	struct ring_pair *pair;
	int lower;

	pair = ring_pair_map(peer.ring_fd);
	h.victim = board_map(peer.board_fd);
	hostile_need(pair != NULL && h.victim != NULL, "maps");
	lower = node_process(h.node) < peer.process;
	h.out = &pair->ring[lower ? 0 : 1];
	h.in = &pair->ring[lower ? 1 : 0];
	h.bell[0] = peer.bell_fd[0];
	h.bell[1] = peer.bell_fd[1];
}

static void hostile_ring(void)
{
	u64 one = chance(95) ? 1 : UINT64_MAX - 1;

	if (write(h.bell[pick(2)], &one, sizeof(one)) < 0 && errno != EAGAIN)
		hostile_need(false, "bell");
}

/* ---- slots ---- */

static u32 hostile_length(void)
{
	static const u32 plausible[] = {
		0,    1,    8,	  31,	    32,		  33,	     64,	1000,
		3000, 3001, 4096, RING_MTU, RING_MTU + 1, RING_DATA, UINT32_MAX
	};

	return chance(90) ? plausible[pick(ARRAY_LEN(plausible))] : (u32)hostile_draw(&h.random);
}

static u32 hostile_data(u32 length)
{
	switch (pick(8)) {
	case 0:
		return RING_DATA - length;
	case 1:
		return RING_DATA - length + 1;
	case 2:
		return RING_DATA - 1;
	case 3:
		return UINT32_MAX - pick(64);
	default:
		return pick(RING_DATA) & ~63u;
	}
}

static u64 hostile_addr(int key, u32 length)
{
	static const u32 sizes[HOSTILE_KEYS] = { 10000, 5000, 5000, 5000, 7000, 3000 };

	switch (pick(10)) {
	case 0:
		return h.addr[key] - 1;
	case 1:
		return h.addr[key] + sizes[key] - length + 1;
	case 2:
		return h.addr[key] + sizes[key];
	case 3:
		return hostile_draw(&h.random);
	case 4:
		return UINT64_MAX - pick(64);
	case 5:
		return h.addr[key] + sizes[key] - length;
	default:
		return h.addr[key] + pick(sizes[key] / 8) * 8;
	}
}

static u64 hostile_message(u32 length)
{
	static const u64 odd[] = { 0,	       1,	  4096, 10000, 1ull << 31, (1ull << 31) + 1,
				   1ull << 32, UINT64_MAX };

	return chance(60) ? length : odd[pick(ARRAY_LEN(odd))];
}

/* Where the victim's queue pair may be. */
static u32 hostile_psn(int qp)
{
	u32 psn = h.psn[qp];

	if (chance(10))
		psn = HOSTILE_PSN;
	h.psn[qp] = (psn + 1) & 0xffffff;
	if (chance(85))
		return psn;
	return chance(70) ? (psn + pick(16) - 8) & 0xffffff : pick(1 << 24);
}

static void hostile_fill_operands(struct ring_slot *s)
{
	int key = chance(50) ? 0 : (int)pick(HOSTILE_KEYS);
	u32 rkey = h.key[key] + (chance(5) ? 1u << pick(32) : 0);
	u64 va = hostile_addr(key, MIN(s->length, 10000u));

	if (s->opcode == PKT_COMPARE_SWAP || s->opcode == PKT_FETCH_ADD ||
	    s->opcode == PKT_ATOMIC_ACK) {
		s->atomic.va = va;
		s->atomic.rkey = rkey;
		s->atomic.unused = hostile_data(s->length);
		s->atomic.compare = hostile_draw(&h.random);
		s->atomic.swap = hostile_draw(&h.random);
	} else {
		s->reth.va = va;
		s->reth.rkey = rkey;
		s->reth.data = hostile_data(s->length);
		s->reth.dma_length = hostile_message(s->length);
	}
}

/* A slot that looks right in most fields. */
static void hostile_fill(struct ring_slot *s)
{
	int qp = (int)pick(HOSTILE_QPS);

	s->opcode = (u8)(chance(95) ? pick(PKT_OPCODES) : pick(256));
	s->flags = (u8)(chance(50) ? 0 : pick(256));
	if (types[qp] == IBV_QPT_UD && chance(80)) {
		s->opcode = PKT_SEND_ONLY;
		s->flags |= PKT_HAS_GRH;
	}
	s->qp_type = chance(92) ? types[qp] : (u8)pick(256);
	s->syndrome = (u8)pick(256);
	s->dqpn = chance(95) ? h.qpn[qp] : (u32)hostile_draw(&h.random);
	if (chance(3))
		s->dqpn = h.qpn[0] + pick(16); /* the friend's, too */
	s->sqpn = chance(95) ? hostile_own_qpn(qp) : (u32)hostile_draw(&h.random);
	s->psn = hostile_psn(qp);
	s->ack_psn = types[qp] == IBV_QPT_UD && chance(90) ? HOSTILE_QKEY : pick(1 << 24);
	s->imm = chance(50) ? h.key[pick(HOSTILE_KEYS)] : (u32)hostile_draw(&h.random);
	s->length = hostile_length();
	hostile_fill_operands(s);
}

static void hostile_put(const struct ring_slot *s, u32 at)
{
	struct ring_slot *to = &h.out->slots[at % RING_SLOTS];

	memcpy((u8 *)to + sizeof(to->seq), (const u8 *)s + sizeof(s->seq),
	       sizeof(*s) - sizeof(s->seq));
	/* Pairs with the acquire in ring_peek. */
	__atomic_store_n(&to->seq, at + 1, __ATOMIC_RELEASE);
	h.slots++;
}

/* The next position that the victim looks at, as far as it says. */
static u32 hostile_head(void)
{
	return __atomic_load_n(&h.out->consumed, __ATOMIC_ACQUIRE);
}

static void hostile_batch(void)
{
	u32 at = hostile_head(), n = 1 + pick(BATCH);
	struct ring_slot s;

	/* It may have gone on since it last said so, and what it said be scribbled over. */
	if (chance(10))
		at += pick(RING_SLOTS);
	for (u32 i = 0; i < n; i++) {
		hostile_fill(&s);
		hostile_put(&s, at + i);
	}
	for (u32 i = 0; i < 64; i++)
		h.out->data[pick(RING_DATA)] = (u8)pick(0x50);
	hostile_ring();
}

/* ---- answers ---- */

static void hostile_look_for_secrets(const u8 *data, size_t n)
{
	size_t run = 0;

	for (size_t i = 0; i < n; i++) {
		run = data[i] == HOSTILE_SECRET ? run + 1 : 0;
		if (run == RUN)
			h.leaks++;
	}
}

static u8 hostile_answer_to(u8 opcode)
{
	static const u8 any[] = { PKT_ACK,	 PKT_ATOMIC_ACK, PKT_READ_FIRST, PKT_READ_MIDDLE,
				  PKT_READ_LAST, PKT_READ_ONLY,	 PKT_ABSENT };

	if (chance(30))
		return any[pick(ARRAY_LEN(any))];
	if (opcode == PKT_READ_REQUEST)
		return PKT_READ_ONLY;
	return opcode == PKT_FETCH_ADD ? PKT_ATOMIC_ACK : PKT_ACK;
}

/* Answers a request of the victim's with something. */
static void hostile_answer(const struct ring_slot *q)
{
	struct ring_slot s;

	hostile_fill(&s);
	s.opcode = hostile_answer_to(q->opcode);
	s.qp_type = IBV_QPT_RC;
	s.flags = 0;
	s.dqpn = q->sqpn;
	s.sqpn = q->dqpn;
	s.psn = (q->psn + (chance(80) ? 0 : pick(8))) & 0xffffff;
	if (chance(60))
		s.syndrome = 0x1f;
	if (chance(50))
		s.length = 3000;
	if (s.length > RING_INLINE)
		s.reth.data = hostile_data(s.length);
	hostile_put(&s, hostile_head());
}

static void hostile_hear(const struct ring_slot *q)
{
	if (q->opcode == PKT_ACK && (q->syndrome & 0xe0) == AETH_NAK)
		for (int i = 0; i < HOSTILE_QPS; i++)
			if (q->sqpn == h.qpn[i])
				h.psn[i] = q->psn;
	if (q->opcode != PKT_ACK && q->opcode != PKT_ABSENT && chance(60))
		hostile_answer(q);
}

/* Has the victim said something at that position, and nobody scribbled over its number? */
static bool hostile_has(u32 at)
{
	return __atomic_load_n(&h.in->slots[at % RING_SLOTS].seq, __ATOMIC_ACQUIRE) == at + 1;
}

/* The next position that the victim has filled; what was scribbled over is passed by, else the
 * victim would wait for room for ever, and the attack be over. */
static bool hostile_next(void)
{
	for (u32 i = 0; i < RING_SLOTS; i++)
		if (hostile_has(h.tail + i)) {
			h.tail += i;
			return true;
		}
	return false;
}

static void hostile_listen(void)
{
	while (hostile_next()) {
		struct ring_slot q = h.in->slots[h.tail % RING_SLOTS];

		h.tail++;
		hostile_hear(&q);
	}
	hostile_look_for_secrets(h.in->data, RING_DATA);
	__atomic_store_n(&h.in->consumed, h.tail, __ATOMIC_RELEASE);
	if (h.in->waiting != 0)
		hostile_ring();
}

/* ---- vandalism ---- */

static void hostile_scribble(void *memory, size_t size, u32 n)
{
	u8 *bytes = memory;

	for (u32 i = 0; i < n; i++) {
		size_t at = hostile_draw(&h.random) % (size - 8) & ~(size_t)3;
		u32 word = chance(50) ? (u32)hostile_draw(&h.random) : pick(8);

		memcpy(bytes + at, &word, sizeof(word));
	}
}

static void hostile_scribble_rings(void)
{
	u32 head = hostile_head();

	hostile_scribble(h.out, sizeof(*h.out), 200);
	h.out->consumed = head;
	if (chance(30))
		hostile_scribble(h.in, sizeof(*h.in), 50);
	if (chance(30))
		h.in->consumed = (u32)hostile_draw(&h.random);
	h.in->waiting = pick(2);
	h.out->waiting = (u32)hostile_draw(&h.random);
}

static void hostile_scribble_board(void)
{
	struct board_hazard *z = &h.board->hazards[pick(BOARD_HAZARDS)];

	hostile_scribble(h.board, offsetof(struct board, qps), 200);
	hostile_scribble(h.board->qps, sizeof(h.board->qps[0]) * 64, 50);
	hostile_scribble(h.board->keys, 1 << 16, 50);
	h.board->hazard_high = (u32)hostile_draw(&h.random);
	z->word = hostile_draw(&h.random);
	h.board->slot_count = (u32)hostile_draw(&h.random);
	h.board->bell = (u32)hostile_draw(&h.random);
	if (chance(50))
		hostile_show_qps();
}

/* Changes what the victim may be reading just now. */
static void *hostile_flip(void *arg)
{
	u64 random = h.random * 3 + 1;

	while (!h.stop) {
		u32 at = hostile_head() + (u32)(hostile_draw(&random) % 8);
		u32 *words = (u32 *)&h.out->slots[at % RING_SLOTS];

		/* everything but the sequence number */
		words[1 + hostile_draw(&random) % 15] ^= 1u << hostile_draw(&random) % 32;
		if (hostile_draw(&random) % 64 == 0)
			usleep(20); /* the victim needs a core to be attacked on */
	}
	return NULL;
}

static void hostile_turn(void)
{
	u32 what = pick(100);

	if (what < 80)
		hostile_batch();
	else if (what < 90)
		hostile_scribble_rings();
	else if (what < 95)
		hostile_scribble_board();
	if (chance(70))
		hostile_listen();
	if (chance(50))
		usleep(pick(300));
}

static void hostile_attack(u32 seconds)
{
	u64 end = clock_now_ns() + seconds * NS_PER_S;
	pthread_t flipper;

	hostile_pair();
	hostile_need(pthread_create(&flipper, NULL, hostile_flip, NULL) == 0, "thread");
	while (clock_now_ns() < end)
		hostile_turn();
	h.stop = true;
	pthread_join(flipper, NULL);
	printf("done %llu %llu", (unsigned long long)h.slots, (unsigned long long)h.leaks);
	for (int i = 0; i < PATH_COUNTERS; i++)
		printf(" %s=%llu", path_counter_names[i],
		       (unsigned long long)h.victim->counters[i]);
	printf("\n");
	fflush(stdout);
}

static u32 hostile_read_targets(char *line)
{
	char *word = strtok_r(line, " ", &line);
	u32 seconds = (u32)atoi(strtok_r(NULL, " ", &line));

	for (int i = 0; i < HOSTILE_QPS && (word = strtok_r(NULL, " ", &line)) != NULL; i++)
		h.qpn[i] = (u32)strtoul(word, NULL, 10);
	for (int i = 0; i < HOSTILE_KEYS && (word = strtok_r(NULL, " ", &line)) != NULL; i++)
		h.key[i] = (u32)strtoul(word, NULL, 10);
	for (int i = 0; i < HOSTILE_KEYS && (word = strtok_r(NULL, " ", &line)) != NULL; i++)
		h.addr[i] = strtoull(word, NULL, 10);
	hostile_need(word != NULL, "targets");
	return seconds;
}

int main(int argc, char **argv)
{
	char line[1024];

	h.random = (argc > 1 ? strtoull(argv[1], NULL, 10) : 1) * 2 + 1;
	for (int i = 0; i < HOSTILE_QPS; i++)
		h.psn[i] = HOSTILE_PSN;
	hostile_attach();
	while (fgets(line, sizeof(line), stdin) != NULL && strncmp(line, "attack", 6) == 0)
		hostile_attack(hostile_read_targets(line));
	return 0;
}
