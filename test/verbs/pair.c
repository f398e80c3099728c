/* pair.c: the ends of a test, their children and their node.
 * In:    calls of tests    Out: the same calls carried out here or by a child, checked
 * Runs:  the test's thread
 * Locks: none
 */
#include "pair.h"
#include "../late.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct pair pair;

static const char *pair_env(const char *name)
{
	const char *value = getenv(name);

	return value != NULL ? value : "";
}

bool pair_is_direct(void)
{
	return strcmp(pair_env("ANYVERBS_DIRECT"), "0") != 0;
}

bool pair_is_one_process(void)
{
	return strcmp(pair_env("VERBS_PEER"), "self") == 0;
}

/* ---- children ---- */

/* The child sleeps in read() between calls: whatever moves meanwhile moves without it. */
static void pair_serve(int fd)
{
	struct side *s = side_create();
	struct side_reply r;
	struct side_call c;

	while (other_hear(fd, &c, sizeof(c)) == sizeof(c)) {
		side_serve(s, &c, &r);
		if (!other_tell(fd, &r, sizeof(r)))
			break;
	}
	side_destroy(s);
	_exit(0);
}

static int end_start(struct end *e, bool child)
{
	int fd;

	*e = (struct end){ .fd = -1 };
	if (!child) {
		e->local = side_create();
		return e->local == NULL ? -1 : 0;
	}
	e->pid = other_fork(&fd);
	if (e->pid < 0)
		return -1;
	if (e->pid == 0) {
		if (e == &pair.b && getenv("VERBS_PEER_PATHS") != NULL)
			setenv("ANYVERBS_PATHS", getenv("VERBS_PEER_PATHS"), 1);
		if (pair.b.fd > 0)
			close(pair.b.fd); /* else an elder child would never see the end */
		pair_serve(fd);
	}
	e->fd = fd;
	return 0;
}

static void end_stop(struct end *e)
{
	if (e->local != NULL)
		side_destroy(e->local);
	if (e->fd >= 0)
		close(e->fd);
	if (e->pid > 0)
		waitpid(e->pid, NULL, 0);
}

/* The node may only be stopped when nobody is attached: a parent sees to it. Returns in the
 * child. */
/* Memory is born shared from the start of a program, and not in a forked child: begins anew. */
static void pair_exec_if_born(void)
{
	const char *preload = getenv("LD_PRELOAD");

	if (preload == NULL || strstr(preload, "anyverbs-born") == NULL)
		return;
	setenv("VERBS_SUPERVISED", "1", 1);
	execl("/proc/self/exe", "verbs", (char *)NULL);
	_exit(127);
}

void pair_supervise(void)
{
	char name[64];
	int status, pid;

	if (getenv("VERBS_SUPERVISED") != NULL)
		return;
	snprintf(name, sizeof(name), "verbs-%d", (int)getpid());
	setenv("ANYVERBS_NODE", name, 1);
	setenv("ANYVERBS_ADDR", "own", 1);
	if (side_on_wire()) {
		/* a host of its own: others may run the same */
		unsigned id = (unsigned)getpid();

		snprintf(name, sizeof(name), "127.%u.%u.%u", 64 + (id >> 14 & 63), id >> 7 & 127,
			 1 + (id & 127));
		setenv("ANYVERBS_ADDR", name, 1);
	}
	setenv("ANYVERBS_IDLE_S", "30", 1);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pair_exec_if_born();
		return;
	}
	waitpid(pid, &status, 0);
	if (fork() == 0) {
		execl(VERBS_COMMAND, VERBS_COMMAND, "stop", "--force", (char *)NULL);
		_exit(127);
	}
	wait(NULL);
	exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

int pair_group_setup(void **state)
{
	/* Children first: they open the device by themselves. */
	if (end_start(&pair.b, !pair_is_one_process()) != 0 ||
	    end_start(&pair.c, !pair_is_one_process()) != 0)
		return -1;
	return end_start(&pair.a, false);
}

int pair_group_teardown(void **state)
{
	end_stop(&pair.a);
	end_stop(&pair.b);
	end_stop(&pair.c);
	return 0;
}

static void end_call(struct end *e, const struct side_call *c, struct side_reply *r)
{
	if (e->local != NULL) {
		side_serve(e->local, c, r);
		return;
	}
	if (!other_tell(e->fd, c, sizeof(*c)) || other_hear(e->fd, r, sizeof(*r)) != sizeof(*r))
		fail_msg("the child %d has gone", e->pid);
}

int pair_teardown(void **state)
{
	end_close(&pair.a);
	end_close(&pair.b);
	end_close(&pair.c);
	return 0;
}

/* ---- opening and connecting ---- */

void end_open(struct end *e, const struct side_options *o)
{
	struct side_call c = { .op = SIDE_OPEN, .open = *o };
	struct side_reply r;

	e->open = true;
	end_call(e, &c, &r);
	assert_int_equal(r.err, 0);
	e->at = r.address;
}

void end_close(struct end *e)
{
	struct side_call c = { .op = SIDE_CLOSE };
	struct side_reply r;

	if (!e->open)
		return;
	e->open = false;
	end_call(e, &c, &r);
}

void end_connect(struct end *e, uint32_t qp, const struct side_link *l)
{
	struct side_call c = { .op = SIDE_CONNECT, .qp = qp, .connect = *l };
	struct side_reply r;

	end_call(e, &c, &r);
	assert_int_equal(r.err, 0);
}

/* On a path that may lose packets the timeout also runs while a busy machine does not let the
 * peer answer: eight tries last for 8.6 s there, and 0.5 s where only an absent peer starts it. */
static uint8_t pair_default_timeout(void)
{
	return side_on_wire() ? 18 : 14;
}

struct side_link pair_default_link(const struct end *to, uint32_t qp)
{
	return (struct side_link){ .dest_qpn = to->at.qpn[qp],
				   .gid = to->at.gid,
				   .psn = SIDE_PSN,
				   .timeout = pair_default_timeout(),
				   .retry_cnt = 7,
				   .rnr_retry = 7,
				   .min_rnr_timer = 1,
				   .rd_atomic = 16,
				   .dest_rd_atomic = 16 };
}

void pair_connect(uint32_t qps, const struct side_link *a, const struct side_link *b)
{
	for (uint32_t i = 0; i < qps; i++) {
		struct side_link la = a != NULL ? *a : pair_default_link(&pair.b, i);
		struct side_link lb = b != NULL ? *b : pair_default_link(&pair.a, i);

		la.dest_qpn = pair.b.at.qpn[i];
		lb.dest_qpn = pair.a.at.qpn[i];
		end_connect(&pair.b, i, &lb);
		end_connect(&pair.a, i, &la);
	}
}

void pair_open_two(const struct side_options *a, const struct side_options *b)
{
	end_open(&pair.a, a);
	end_open(&pair.b, b);
	pair_connect(a->qps != 0 ? a->qps : 1, NULL, NULL);
	if (a->type == IBV_QPT_UD) {
		end_ah(&pair.a, &pair.b.at.gid);
		end_ah(&pair.b, &pair.a.at.gid);
	}
}

void pair_open(const struct side_options *o)
{
	pair_open_two(o, o);
}

/* ---- states ---- */

int end_try_modify(struct end *e, uint32_t qp, const struct ibv_qp_attr *attr, int mask)
{
	struct side_call c = { .op = SIDE_MODIFY, .qp = qp };
	struct side_reply r;

	c.modify.attr = *attr;
	c.modify.mask = mask;
	end_call(e, &c, &r);
	return r.err;
}

void end_state(struct end *e, uint32_t qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	assert_int_equal(end_try_modify(e, qp, &attr, IBV_QP_STATE), 0);
}

struct side_reply end_query(struct end *e, uint32_t qp)
{
	struct side_call c = { .op = SIDE_QUERY, .qp = qp };
	struct side_reply r;

	end_call(e, &c, &r);
	assert_int_equal(r.err, 0);
	return r;
}

void end_expect_state(struct end *e, uint32_t qp, enum ibv_qp_state state)
{
	assert_int_equal(end_query(e, qp).query.attr.qp_state, state);
}

void end_await_state(struct end *e, uint32_t qp, enum ibv_qp_state state)
{
	uint64_t limit = now_ms() + PAIR_WAIT_MS;

	while (end_query(e, qp).query.attr.qp_state != state && now_ms() < limit)
		usleep(1000);
	if (now_ms() >= limit)
		late("new state", PAIR_WAIT_MS);
	end_expect_state(e, qp, state);
}

void end_destroy_qp(struct end *e, uint32_t qp)
{
	struct side_call c = { .op = SIDE_DESTROY_QP, .qp = qp };
	struct side_reply r;

	end_call(e, &c, &r);
	assert_int_equal(r.err, 0);
}

void end_create_qp(struct end *e, uint32_t qp)
{
	struct side_call c = { .op = SIDE_CREATE_QP, .qp = qp };
	struct side_reply r;

	end_call(e, &c, &r);
	assert_int_equal(r.err, 0);
	e->at = r.address;
}

/* ---- posting ---- */

static int end_post(struct end *e, enum side_op op, uint32_t qp, const struct side_wr *w,
		    uint32_t count, uint32_t signal, uint32_t *posted)
{
	struct side_call c = { .op = op, .qp = qp };
	struct side_reply r;

	c.post.wr = *w;
	c.post.count = count;
	c.post.signal = signal;
	end_call(e, &c, &r);
	if (posted != NULL)
		*posted = r.post.posted;
	return r.err;
}

int end_try_send(struct end *e, uint32_t qp, const struct side_wr *w, uint32_t count,
		 uint32_t signal, uint32_t *posted)
{
	return end_post(e, SIDE_SEND, qp, w, count, signal, posted);
}

void end_send(struct end *e, uint32_t qp, const struct side_wr *w)
{
	assert_int_equal(end_try_send(e, qp, w, 1, 0, NULL), 0);
}

void end_send_many(struct end *e, uint32_t qp, const struct side_wr *w, uint32_t count,
		   uint32_t signal)
{
	assert_int_equal(end_try_send(e, qp, w, count, signal, NULL), 0);
}

int end_try_recv(struct end *e, uint32_t qp, const struct side_wr *w, uint32_t count,
		 uint32_t *posted)
{
	return end_post(e, SIDE_RECV, qp, w, count, 0, posted);
}

void end_recv(struct end *e, uint32_t qp, const struct side_wr *w, uint32_t count)
{
	assert_int_equal(end_try_recv(e, qp, w, count, NULL), 0);
}

/* ---- completions ---- */

uint32_t end_poll(struct end *e, int which, uint32_t want, int timeout_ms, struct ibv_wc *wc)
{
	uint64_t limit = now_ms() + (uint64_t)timeout_ms;
	struct side_reply r;
	uint32_t n = 0;

	do {
		uint32_t part = want - n < SIDE_WCS ? want - n : SIDE_WCS;
		uint64_t now = now_ms();
		struct side_call c = { .op = SIDE_POLL };

		c.poll.recv = which == RECVS;
		c.poll.want = part;
		c.poll.timeout_ms = limit > now ? (int)(limit - now) : 0;
		end_call(e, &c, &r);
		assert_int_equal(r.err, 0);
		memcpy(wc + n, r.poll.wc, r.poll.count * sizeof(*wc));
		n += r.poll.count;
	} while (n < want && now_ms() < limit);
	if (n < want)
		late("completion", timeout_ms);
	return n;
}

struct ibv_wc end_expect(struct end *e, int which, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	if (end_poll(e, which, 1, PAIR_WAIT_MS, &wc) != 1)
		fail_msg("no %s completion", which == RECVS ? "receive" : "send");
	if (wc.status != status)
		fail_msg("status %s instead of %s (wr_id %llu)", ibv_wc_status_str(wc.status),
			 ibv_wc_status_str(status), (unsigned long long)wc.wr_id);
	return wc;
}

void end_expect_in_order(struct end *e, int which, uint32_t count, uint64_t first,
			 enum ibv_wc_status status)
{
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(end_expect(e, which, status).wr_id, first + i);
}

void end_expect_none(struct end *e, int which)
{
	struct ibv_wc wc;

	if (end_poll(e, which, 1, PAIR_QUIET_MS, &wc) != 0)
		fail_msg("a %s completion that nobody expects: %s, wr_id %llu",
			 which == RECVS ? "receive" : "send", ibv_wc_status_str(wc.status),
			 (unsigned long long)wc.wr_id);
}

/* ---- memory ---- */

static struct side_reply end_bytes(struct end *e, enum side_op op, uint64_t offset,
				   uint64_t length, uint64_t seed, uint64_t or_seed)
{
	struct side_call c = { .op = op };
	struct side_reply r;

	c.bytes.offset = offset;
	c.bytes.length = length;
	c.bytes.seed = seed;
	c.bytes.or_seed = or_seed;
	end_call(e, &c, &r);
	return r;
}

void end_fill(struct end *e, uint64_t offset, uint64_t length, uint64_t seed)
{
	end_bytes(e, SIDE_FILL, offset, length, seed, seed);
}

void end_check_either(struct end *e, uint64_t offset, uint64_t length, uint64_t seed,
		      uint64_t or_seed)
{
	int64_t wrong = end_bytes(e, SIDE_CHECK, offset, length, seed, or_seed).check.wrong;

	if (wrong >= 0)
		fail_msg("byte %lld of %llu is wrong", (long long)wrong,
			 (unsigned long long)length);
}

void end_check(struct end *e, uint64_t offset, uint64_t length, uint64_t seed)
{
	end_check_either(e, offset, length, seed, seed);
}

uint64_t end_word(struct end *e, uint64_t offset)
{
	struct side_call c = { .op = SIDE_WORD };
	struct side_reply r;

	c.word.offset = offset;
	end_call(e, &c, &r);
	return r.word;
}

struct side_reply end_register(struct end *e, uint64_t offset, uint64_t length, int access,
			       bool other_pd)
{
	struct side_call c = { .op = SIDE_REGISTER };
	struct side_reply r;

	c.reg.offset = offset;
	c.reg.length = length;
	c.reg.access = access;
	c.reg.other_pd = other_pd;
	end_call(e, &c, &r);
	assert_int_equal(r.err, 0);
	return r;
}

void end_deregister(struct end *e, uint32_t mr)
{
	struct side_call c = { .op = SIDE_DEREGISTER };
	struct side_reply r;

	c.dereg.mr = mr;
	end_call(e, &c, &r);
	assert_int_equal(r.err, 0);
}

/* ---- events ---- */

struct side_reply end_event(struct end *e, int timeout_ms)
{
	struct side_call c = { .op = SIDE_EVENT };
	struct side_reply r;

	c.event.timeout_ms = timeout_ms;
	end_call(e, &c, &r);
	return r;
}

void end_expect_event(struct end *e, int type, uint32_t qpn)
{
	struct side_reply r = end_event(e, PAIR_WAIT_MS);

	if (r.event.type != type)
		fail_msg("event %s instead of %s",
			 r.event.type < 0 ?
				 "none" :
				 ibv_event_type_str((enum ibv_event_type)r.event.type),
			 ibv_event_type_str((enum ibv_event_type)type));
	assert_int_equal(r.event.element, qpn);
}

bool end_cq_event(struct end *e, int timeout_ms, bool *recv)
{
	struct side_call c = { .op = SIDE_CQ_EVENT };
	struct side_reply r;

	c.event.timeout_ms = timeout_ms;
	end_call(e, &c, &r);
	*recv = r.event.recv;
	return r.event.type >= 0;
}

void end_arm(struct end *e, bool solicited_only)
{
	struct side_call c = { .op = SIDE_ARM };
	struct side_reply r;

	c.arm.solicited_only = solicited_only;
	end_call(e, &c, &r);
	assert_int_equal(r.err, 0);
}

void end_srq_limit(struct end *e, uint32_t limit)
{
	struct side_call c = { .op = SIDE_SRQ_LIMIT };
	struct side_reply r;

	c.srq.limit = limit;
	end_call(e, &c, &r);
	assert_int_equal(r.err, 0);
}

int end_try_mcast(struct end *e, uint32_t qp, const union ibv_gid *gid, bool leave)
{
	struct side_call c = { .op = SIDE_MCAST, .qp = qp };
	struct side_reply r;

	c.mcast.gid = *gid;
	c.mcast.leave = leave;
	end_call(e, &c, &r);
	return r.err;
}

static void end_make_ah(struct end *e, const union ibv_gid *gid, bool from_wc, uint64_t grh)
{
	struct side_call c = { .op = SIDE_AH };
	struct side_reply r;

	if (gid != NULL)
		c.ah.gid = *gid;
	c.ah.from_wc = from_wc;
	c.ah.grh = grh;
	end_call(e, &c, &r);
	assert_int_equal(r.err, 0);
}

void end_ah(struct end *e, const union ibv_gid *gid)
{
	end_make_ah(e, gid, false, 0);
}

void end_ah_from_wc(struct end *e, uint64_t grh)
{
	end_make_ah(e, NULL, true, grh);
}

/* ---- requests ---- */

struct side_wr end_wr(const struct end *e, uint64_t offset, uint32_t length)
{
	return (struct side_wr){ .wr_id = 1,
				 .num_sge = 1,
				 .sge = { { e->at.addr + offset, length, e->at.lkey } } };
}

struct side_wr end_op(const struct end *e, enum ibv_wr_opcode op, uint64_t offset, uint32_t length,
		      const struct end *peer, uint64_t remote_offset)
{
	struct side_wr w = end_wr(e, offset, length);

	w.opcode = op;
	w.flags = IBV_SEND_SIGNALED;
	w.remote_addr = peer->at.addr + remote_offset;
	w.rkey = peer->at.rkey;
	w.remote_qpn = peer->at.qpn[0];
	w.qkey = SIDE_QKEY;
	return w;
}
