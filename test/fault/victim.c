/* victim.c: a process whose peer is hostile, and that looks after its memory and its other traffic.
 *
 * Four queue pairs (RC, RC, UC, UD) are connected to the hostile process and set up again whenever
 * they break. One more talks to a friend, in whose messages every byte is checked. Memory that no
 * key gives away holds one byte value throughout; it must stay so, and never travel.
 *
 * victim                       "victim QPN*4 KEY*6 ADDR*6 GID"
 * connect QPN*4 GID            to the hostile process            "connected"
 * friend QPN GID               to the friend                     "befriended QPN"
 * go SEED                                                        "going"
 * check                        "fine SENT SETUPS COMPLETIONS" or "broken WHAT"
 * rest                         ends the traffic                  "resting"
 * with the argument `friend`:  "friend QPN GID", then connect QPN, check, as above
 * In: lines    Out: lines, traffic    Runs: main reads lines, one thread the rest    Locks: none
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../pairs/pairs.h"
#include "hostile.h"

enum {
	MEMORY = 64 * 4096,
	RECEIVES = 16,
	MESSAGE = 6000,
	FRIEND_SLOTS = 32,
	CHECK_EVERY = 256,
	SETUP_EVERY = 2000,
};

/* What lies where in the memory; all else is nobody's. */
struct region {
	uint32_t offset, length;
	int access;
	bool other_pd, may_change, may_travel;
};

static const struct region regions[HOSTILE_KEYS] = {
	{ 8296, 10000,
	  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		  IBV_ACCESS_REMOTE_ATOMIC,
	  false, true, true },
	{ 32872, 5000, IBV_ACCESS_LOCAL_WRITE, false, false, false },
	{ 53352, 5000, IBV_ACCESS_REMOTE_READ, false, false, true },
	{ 73832, 5000,
	  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		  IBV_ACCESS_REMOTE_ATOMIC,
	  true, false, false },
	{ 98408, 7000, IBV_ACCESS_LOCAL_WRITE, false, true, true },  /* receives */
	{ 131176, 3000, IBV_ACCESS_LOCAL_WRITE, false, true, true }, /* what we READ */
};
enum { R_OPEN, R_LOCAL, R_READ, R_OTHER, R_RECEIVE, R_FETCH };
/* Inside the receive region, between the two elements of every receive request. */
enum { GAP_AT = 3000, GAP = 1000 };

static struct victim {
	struct ibv_context *context;
	struct ibv_pd *pd, *other_pd;
	uint8_t *memory;
	struct ibv_mr *mr[HOSTILE_KEYS];
	struct ibv_cq *cq, *friend_cq;
	struct ibv_qp *qp[HOSTILE_QPS];
	uint32_t enemy[HOSTILE_QPS];
	union ibv_gid enemy_gid, gid;
	struct ibv_ah *enemy_ah;
	struct ibv_qp *friend_qp;
	uint8_t *friend_memory;
	struct ibv_mr *friend_mr;
	uint64_t friend_next;
	uint64_t random;
	volatile uint64_t sent, setups, completions;
	volatile bool stop;
	pthread_t thread;
	bool running;
	char broken[128];
} v;

static void victim_say(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

static void victim_need(bool fine, const char *what)
{
	if (fine)
		return;
	victim_say("broken %s: %s", what, strerror(errno));
	_exit(3);
}

static void victim_break(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	if (v.broken[0] == 0)
		vsnprintf(v.broken, sizeof(v.broken), format, ap);
	va_end(ap);
}

/* ---- memory ---- */

static const struct region *victim_region_of(uint32_t at)
{
	for (int i = 0; i < HOSTILE_KEYS; i++)
		if (at >= regions[i].offset && at < regions[i].offset + regions[i].length)
			return &regions[i];
	return NULL;
}

static bool victim_may_change(uint32_t at)
{
	const struct region *r = victim_region_of(at);

	if (r == &regions[R_RECEIVE])
		return at - r->offset < GAP_AT || at - r->offset >= GAP_AT + GAP;
	return r != NULL && r->may_change;
}

static uint8_t victim_byte(uint32_t at)
{
	const struct region *r = victim_region_of(at);

	return r != NULL && r->may_travel && (r != &regions[R_RECEIVE] || victim_may_change(at))
		       ? HOSTILE_OPEN
		       : HOSTILE_SECRET;
}

static void victim_check_memory(void)
{
	for (uint32_t at = 0; at < MEMORY; at++)
		if (v.memory[at] != victim_byte(at) && !victim_may_change(at)) {
			victim_break("byte %u holds %02x", at, v.memory[at]);
			return;
		}
}

/* ---- queue pairs ---- */

static void victim_zero(int err, const char *what)
{
	if (err != 0)
		victim_break("%s: %s", what, strerror(err));
}

/* False: the enemy has broken it between two states, as it may. */
static bool victim_connect(struct ibv_qp *qp, uint32_t qpn, const union ibv_gid *gid)
{
	struct ibv_qp_attr attr = conn_attr(qpn, gid, 0);

	attr.qkey = HOSTILE_QKEY;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (qp->qp_type == IBV_QPT_RC)
		attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	attr.path_mtu = IBV_MTU_4096;
	attr.rq_psn = attr.sq_psn = HOSTILE_PSN;
	attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
	attr.min_rnr_timer = 1;
	attr.timeout = 12;
	attr.retry_cnt = 2;
	victim_zero(conn_to(qp, &attr, IBV_QPS_INIT), "to INIT");
	victim_zero(conn_to(qp, &attr, IBV_QPS_RTR), "to RTR");
	return conn_to(qp, &attr, IBV_QPS_RTS) == 0;
}

static void victim_post_receive(struct ibv_qp *qp)
{
	uintptr_t at = (uintptr_t)v.memory + regions[R_RECEIVE].offset;
	struct ibv_sge sge[2] = { { at, GAP_AT, v.mr[R_RECEIVE]->lkey },
				  { at + GAP_AT + GAP, GAP_AT, v.mr[R_RECEIVE]->lkey } };
	struct ibv_recv_wr wr = { .sg_list = sge, .num_sge = 2 }, *bad;

	ibv_post_recv(qp, &wr, &bad); /* a full queue is fine */
}

static void victim_set_up(int i)
{
	struct ibv_qp_attr attr = { 0 };

	int tries = 0;

	do
		victim_zero(conn_to(v.qp[i], &attr, IBV_QPS_RESET), "to RESET");
	while (!victim_connect(v.qp[i], v.enemy[i], &v.enemy_gid) && ++tries < 100);
	if (tries == 100)
		victim_break("to RTS: never");
	for (int k = 0; k < RECEIVES; k++)
		victim_post_receive(v.qp[i]);
	v.setups++;
}

static struct ibv_qp *victim_make_qp(enum ibv_qp_type type, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .qp_type = type,
					 .cap = { 32, RECEIVES + FRIEND_SLOTS, 2, 2, 0 },
					 .sq_sig_all = 1 };
	struct ibv_qp *qp = ibv_create_qp(v.pd, &init);

	victim_need(qp != NULL, "create_qp");
	return qp;
}

static void victim_open(void)
{
	v.context = device_open(NULL);
	victim_need(v.context != NULL, "open");
	v.pd = ibv_alloc_pd(v.context);
	v.other_pd = ibv_alloc_pd(v.context);
	v.cq = ibv_create_cq(v.context, 8192, NULL, NULL, 0);
	v.friend_cq = ibv_create_cq(v.context, 256, NULL, NULL, 0);
	victim_need(v.pd && v.other_pd && v.cq && v.friend_cq, "objects");
	victim_need(ibv_query_gid(v.context, 1, 0, &v.gid) == 0, "gid");
	v.friend_memory = calloc(FRIEND_SLOTS, MESSAGE);
	v.friend_mr = ibv_reg_mr(v.pd, v.friend_memory, FRIEND_SLOTS * MESSAGE,
				 IBV_ACCESS_LOCAL_WRITE);
	victim_need(v.friend_mr != NULL, "mr");
	v.friend_qp = victim_make_qp(IBV_QPT_RC, v.friend_cq);
}

static void victim_lay_out(void)
{
	static const enum ibv_qp_type types[HOSTILE_QPS] = { IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC,
							     IBV_QPT_UD };

	v.memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (uint32_t at = 0; at < MEMORY; at++)
		v.memory[at] = victim_byte(at);
	for (int i = 0; i < HOSTILE_KEYS; i++) {
		v.mr[i] = ibv_reg_mr(regions[i].other_pd ? v.other_pd : v.pd,
				     v.memory + regions[i].offset, regions[i].length,
				     regions[i].access);
		victim_need(v.mr[i] != NULL, "mr");
	}
	for (int i = 0; i < HOSTILE_QPS; i++)
		v.qp[i] = victim_make_qp(types[i], v.cq);
}

/* ---- the friend ---- */

static uint8_t friend_byte(uint64_t number, uint32_t at)
{
	return (uint8_t)(number * 31 + at * 7);
}

static void friend_receive(uint32_t slot)
{
	struct ibv_sge sge = { (uintptr_t)v.friend_memory + slot * MESSAGE, MESSAGE,
			       v.friend_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	victim_need(ibv_post_recv(v.friend_qp, &wr, &bad) == 0, "post_recv");
}

static void friend_check(const struct ibv_wc *wc)
{
	const uint8_t *message = v.friend_memory + wc->wr_id * MESSAGE;

	if (wc->status != IBV_WC_SUCCESS || wc->byte_len != MESSAGE)
		victim_break("the friend's completion: status %d, %u bytes", wc->status,
			     wc->byte_len);
	for (uint32_t at = 0; at < MESSAGE; at++)
		if (message[at] != friend_byte(v.friend_next, at)) {
			victim_break("message %lu of the friend's differs at %u",
				     (unsigned long)v.friend_next, at);
			break;
		}
	v.friend_next++;
}

static void *friend_main(void *arg)
{
	struct ibv_wc wc;

	while (!v.stop) {
		if (ibv_poll_cq(v.friend_cq, 1, &wc) != 1)
			continue;
		friend_check(&wc);
		v.completions++;
		if (v.broken[0] == 0)
			friend_receive((uint32_t)wc.wr_id);
	}
	return NULL;
}

static void victim_write_to_friend(void)
{
	static uint32_t outstanding;
	struct ibv_sge sge = { (uintptr_t)v.friend_memory, MESSAGE, v.friend_mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_wc wc;

	while (ibv_poll_cq(v.friend_cq, 1, &wc) == 1) {
		outstanding--;
		if (wc.status != IBV_WC_SUCCESS)
			victim_break("a message to the friend ended with status %d", wc.status);
	}
	if (outstanding != 0 || v.broken[0] != 0)
		return;
	for (uint32_t at = 0; at < MESSAGE; at++)
		v.friend_memory[at] = friend_byte(v.sent, at);
	victim_need(ibv_post_send(v.friend_qp, &wr, &bad) == 0, "post_send");
	outstanding++;
	v.sent++;
}

/* ---- the enemy ---- */

static uint32_t victim_random(uint32_t below)
{
	v.random ^= v.random << 13;
	v.random ^= v.random >> 7;
	v.random ^= v.random << 17;
	return (uint32_t)(v.random >> 32) % below;
}

/* Asks something of the hostile process, so that its answers count. */
static void victim_send_to_enemy(int i)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						      IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };
	bool rc = v.qp[i]->qp_type == IBV_QPT_RC;
	struct ibv_send_wr wr = { .num_sge = 1, .opcode = opcodes[rc ? victim_random(4) : 0] },
			   *bad;
	struct ibv_sge sge = { .length = 3000 };
	bool fetch = wr.opcode == IBV_WR_RDMA_READ || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;

	wr.sg_list = &sge;
	sge.lkey = v.mr[fetch ? R_FETCH : R_OPEN]->lkey;
	sge.addr = (uintptr_t)v.memory + regions[fetch ? R_FETCH : R_OPEN].offset;
	if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		sge.length = 8;
		wr.wr.atomic.remote_addr = 4096;
	}
	if (v.qp[i]->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = v.enemy_ah;
		wr.wr.ud.remote_qpn = v.enemy[i];
		wr.wr.ud.remote_qkey = HOSTILE_QKEY;
	}
	ibv_post_send(v.qp[i], &wr, &bad);
}

static void victim_take_completions(void)
{
	struct ibv_wc wc[64];
	int n = ibv_poll_cq(v.cq, 64, wc);

	if (n < 0)
		victim_break("poll_cq: %d", n);
	for (int i = 0; i < n; i++) {
		v.completions++;
		for (int k = 0; k < HOSTILE_QPS; k++)
			if (v.qp[k]->qp_num == wc[i].qp_num && wc[i].status != IBV_WC_WR_FLUSH_ERR)
				victim_post_receive(v.qp[k]);
		if (wc[i].status == IBV_WC_SUCCESS && wc[i].opcode == IBV_WC_RECV &&
		    wc[i].byte_len > 2 * GAP_AT)
			victim_break("%u bytes were received", wc[i].byte_len);
	}
}

static void *victim_main(void *arg)
{
	for (uint64_t turn = 0; !v.stop; turn++) {
		struct ibv_qp_attr attr;
		struct ibv_qp_init_attr init;
		int i = (int)(turn % HOSTILE_QPS);

		victim_take_completions();
		victim_write_to_friend();
		if (victim_random(8) == 0)
			victim_send_to_enemy(i);
		if (turn % 16 == 0 && ibv_query_qp(v.qp[i], &attr, IBV_QP_STATE, &init) == 0 &&
		    (attr.qp_state == IBV_QPS_ERR || attr.qp_state == IBV_QPS_SQE))
			victim_set_up(i);
		if (victim_random(SETUP_EVERY) == 0)
			victim_set_up(i);
		if (turn % CHECK_EVERY == 0)
			victim_check_memory();
	}
	return NULL;
}

/* ---- lines ---- */

static void victim_gid(char hex[33])
{
	for (int i = 0; i < 16; i++)
		snprintf(hex + 2 * i, 3, "%02x", v.gid.raw[i]);
}

static void victim_introduce(bool friendly)
{
	char hex[33];

	victim_gid(hex);
	if (friendly) {
		victim_say("friend %u %s", v.friend_qp->qp_num, hex);
		return;
	}
	printf("victim");
	for (int i = 0; i < HOSTILE_QPS; i++)
		printf(" %u", v.qp[i]->qp_num);
	for (int i = 0; i < HOSTILE_KEYS; i++)
		printf(" %u", v.mr[i]->rkey);
	for (int i = 0; i < HOSTILE_KEYS; i++)
		printf(" %lu", (unsigned long)(uintptr_t)v.memory + regions[i].offset);
	victim_say(" %s", hex);
}

static void victim_do_connect(const char *line)
{
	struct ibv_ah_attr ah = { .is_global = 1, .port_num = 1 };

	victim_need(sscanf(line, "connect %u %u %u %u", &v.enemy[0], &v.enemy[1], &v.enemy[2],
			   &v.enemy[3]) == HOSTILE_QPS,
		    "connect");
	v.enemy_gid = v.gid; /* one node, one address */
	ah.grh.dgid = v.gid;
	v.enemy_ah = ibv_create_ah(v.pd, &ah);
	victim_need(v.enemy_ah != NULL, "ah");
	for (int i = 0; i < HOSTILE_QPS; i++)
		victim_set_up(i);
	victim_say("connected");
}

static void victim_befriend(const char *line, bool friendly)
{
	uint32_t qpn;

	victim_need(sscanf(line, "friend %u", &qpn) == 1, "friend");
	victim_need(victim_connect(v.friend_qp, qpn, &v.gid), "friend to RTS");
	for (uint32_t i = 0; friendly && i < FRIEND_SLOTS; i++)
		friend_receive(i);
	victim_say("befriended %u", v.friend_qp->qp_num);
}

static void victim_go(const char *line, bool friendly)
{
	unsigned long seed = 1;

	sscanf(line, "go %lu", &seed);
	v.random = seed * 2 + 1;
	victim_need(pthread_create(&v.thread, NULL, friendly ? friend_main : victim_main, NULL) ==
			    0,
		    "thread");
	v.running = true;
	victim_say("going");
}

static void victim_rest(void)
{
	v.stop = true;
	if (v.running)
		pthread_join(v.thread, NULL);
	v.running = false;
	victim_say("resting");
}

static void victim_report(void)
{
	if (v.broken[0] != 0)
		victim_say("broken %s", v.broken);
	else
		victim_say("fine %lu %lu %lu", (unsigned long)v.sent, (unsigned long)v.setups,
			   (unsigned long)v.completions);
}

int main(int argc, char **argv)
{
	bool friendly = argc > 1 && strcmp(argv[1], "friend") == 0;
	char line[256];

	victim_open();
	if (!friendly)
		victim_lay_out();
	victim_introduce(friendly);
	while (fgets(line, sizeof(line), stdin) != NULL && strcmp(line, "quit\n") != 0) {
		if (strncmp(line, "connect", 7) == 0)
			victim_do_connect(line);
		else if (strncmp(line, "friend", 6) == 0)
			victim_befriend(line, friendly);
		else if (strncmp(line, "go", 2) == 0)
			victim_go(line, friendly);
		else if (strncmp(line, "rest", 4) == 0)
			victim_rest();
		else
			victim_report();
	}
	return v.broken[0] != 0;
}
