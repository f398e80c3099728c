/* rig.c: a fabric with subnet managers in virtual time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "fabric/format.h"
#include "fabric/fabric_priv.h"
#include "sm/test_support/rig.h"

/* ---- MADs ------------------------------------------------------------------------------------ */

static void rig_lie(struct rig *r, u32 port, const struct fabric_mad *m)
{
	struct fabric_mad out = *m;

	out.slid = m->dlid;
	out.dlid = m->slid;
	out.mad[MAD_METHOD] = METHOD_GET_RESP;
	wire_put16(out.mad + MAD_STATUS,
		   m->mad[MAD_CLASS] == CLASS_SMP_DIRECTED ? STATUS_DIRECTION : 0);
	memset(out.mad + MAD_DATA, 0, MAD_SMP_DATA);
	wire_put64(out.mad + MAD_DATA, r->liar_guid);
	out.mad[MAD_DATA + 20] = 0xf0 | r->liar_state;
	fabric_send(r->bed.f, port, &out);
}

static void rig_deliver(struct bed *b, u32 port, const struct fabric_mad *m)
{
	struct rig *r = container_of(b, struct rig, bed);

	if (r->mute_guid != 0 && wire_get16(m->mad + MAD_ATTRIBUTE) == ATTR_NODE_INFO &&
	    wire_get64(m->mad + MAD_DATA + 20) == r->mute_guid)
		return;
	for (u32 i = 0; i < r->sm_count; i++)
		if (r->sms[i].sm != NULL && r->sms[i].port == port && !r->sms[i].deaf &&
		    sm_receive(r->sms[i].sm, m))
			return;
	if (port == r->liar && m->dst_qp == 0 && (m->mad[MAD_METHOD] & METHOD_RESPONSE) == 0) {
		rig_lie(r, port, m);
		return;
	}
	if (r->heard != NULL)
		r->heard(r, port, m);
	if (r->answers < RIG_ANSWERS) {
		r->answer[r->answers] = *m;
		r->answer_port[r->answers++] = port;
	}
}

static void rig_send(void *arg, const struct fabric_mad *m)
{
	struct rig *r = *(struct rig **)arg;

	for (u32 i = 0; i < RIG_SMS; i++)
		if (arg == &r->sms[i].rig && !r->sms[i].deaf) {
			r->sms[i].sent++;
			fabric_send(r->bed.f, r->sms[i].port, m);
		}
}

static u64 rig_now(void *arg)
{
	return (*(struct rig **)arg)->bed.now_ns;
}

static const struct sm_ops rig_ops = { .send = rig_send, .now_ns = rig_now };

/* As the host of an SM does. What an SM itself does to its port is no news to it. */
static void rig_change(struct bed *b, u32 port)
{
	struct rig *r = container_of(b, struct rig, bed);

	if ((b->changed_what & FABRIC_CHANGED_STATE) == 0 ||
	    b->f->port[port].state > FABRIC_INIT)
		return;
	for (u32 i = 0; i < r->sm_count; i++)
		if (r->sms[i].sm != NULL && r->sms[i].port == port)
			sm_wake(r->sms[i].sm);
}

/* ---- life ------------------------------------------------------------------------------------ */

void rig_take(struct rig *r)
{
	r->sm_count = r->answers = r->liar = 0;
	r->mute_guid = 0;
	r->sms_began = 0;
	r->heard = NULL;
	r->tid = 1;
	r->bed.deliver = rig_deliver;
	r->bed.change = rig_change;
}

void rig_begin(struct rig *r, const char *spec)
{
	struct topo_error e;

	memset(r->sms, 0, sizeof(r->sms));
	bed_begin(&r->bed);
	assert_int_equal(topo_generate(spec, &r->bed.topo, &e), 0);
	bed_up(&r->bed);
	rig_take(r);
}

void rig_end(struct rig *r)
{
	for (u32 i = 0; i < r->sm_count; i++)
		sm_destroy(r->sms[i].sm);
	bed_end(&r->bed);
}

struct sm *rig_return(struct rig *r, u32 index)
{
	struct sm_config c = { .seed = 100 + r->sms_began++ };

	r->sms[index].sm = sm_create(&rig_ops, &r->sms[index].rig, &c);
	assert_non_null(r->sms[index].sm);
	fabric_set_issm(r->bed.f, r->sms[index].port, true);
	return r->sms[index].sm;
}

struct sm *rig_add(struct rig *r, u32 port)
{
	u32 i = r->sm_count++;

	r->sms[i].port = port;
	r->sms[i].rig = r;
	r->sms[i].deaf = false;
	r->sms[i].sent = 0;
	return rig_return(r, i);
}

void rig_kill(struct rig *r, u32 index)
{
	sm_destroy(r->sms[index].sm);
	r->sms[index].sm = NULL;
	fabric_set_issm(r->bed.f, r->sms[index].port, false);
}

u32 rig_place(const struct rig *r)
{
	for (u32 i = 0; i < r->bed.topo.node_count; i++)
		if (r->bed.topo.nodes[i].type == FABRIC_SWITCH)
			return bed_port(&r->bed, i, 0);
	return bed_port(&r->bed, 0, 1);
}

u32 rig_host(const struct rig *r, u32 n)
{
	u32 i = 0;

	for (;; i++) {
		assert_true(i < r->bed.topo.node_count);
		if (r->bed.topo.nodes[i].type == FABRIC_CA && n-- == 0)
			return bed_port(&r->bed, i, 1);
	}
}

/* ---- time ------------------------------------------------------------------------------------ */

static u64 rig_due(const struct rig *r)
{
	u64 due = fabric_due_ns(r->bed.f);

	for (u32 i = 0; i < r->sm_count; i++)
		if (r->sms[i].sm != NULL)
			due = MIN(due, sm_due_ns(r->sms[i].sm));
	return due;
}

/* One step; false: nothing happens until `end`. */
static bool rig_step(struct rig *r, u64 end)
{
	u64 due = rig_due(r);

	if (due > end) {
		r->bed.now_ns = end;
		return false;
	}
	r->bed.now_ns = MAX(r->bed.now_ns, due);
	fabric_tick(r->bed.f);
	for (u32 i = 0; i < r->sm_count; i++)
		if (r->sms[i].sm != NULL && sm_due_ns(r->sms[i].sm) <= r->bed.now_ns)
			sm_run(r->sms[i].sm);
	return true;
}

void rig_run(struct rig *r, u64 ms)
{
	u64 end = r->bed.now_ns + ms * 1000000;
	u32 steps = 0;

	while (rig_step(r, end))
		assert_true(++steps < 10000000);
}

struct sm_report rig_report(const struct sm *sm)
{
	struct sm_report report;

	sm_read_report(sm, &report);
	return report;
}

void rig_settle(struct rig *r, const struct sm *sm, u64 ms)
{
	u64 end = r->bed.now_ns + ms * 1000000;

	while (rig_report(sm).busy)
		assert_true(rig_step(r, end));
}

/* ---- judging --------------------------------------------------------------------------------- */

static u32 rig_find_root(u32 *of, u32 port)
{
	while (of[port] != port)
		port = of[port] = of[of[port]];
	return port;
}

/* Which ports links that are up and switches connect. */
static u32 *rig_islands(struct rig *r)
{
	const struct topo *t = &r->bed.topo;
	u32 *of = malloc(t->port_count * sizeof(*of));

	assert_non_null(of);
	for (u32 i = 0; i < t->port_count; i++)
		of[i] = i;
	for (u32 n = 0; n < t->node_count; n++)
		for (u32 k = 0; k <= t->nodes[n].ports; k++) {
			u32 port = bed_port(&r->bed, n, (u8)k);
			const struct fabric_port_rec *p = &r->bed.f->port[port];

			if (p->state >= FABRIC_INIT && p->peer != FABRIC_NONE)
				of[rig_find_root(of, port)] = rig_find_root(of, p->peer);
			if (t->nodes[n].type == FABRIC_SWITCH)
				of[rig_find_root(of, port)] =
					rig_find_root(of, t->nodes[n].first_port);
		}
	return of;
}

static void rig_check_pair(struct rig *r, u32 from, u32 to)
{
	struct fabric_flow w = { .pkey = 0xffff, .dlid = rig_lid(r, to) };
	struct fabric_path path;

	assert_int_not_equal(w.dlid, 0);
	assert_int_equal(fabric_route(r->bed.v, from, &w, &path), 0);
	assert_int_equal(path.to, to);
}

/* Is it a CA's port in an island with an SM, which can see it? */
static bool rig_counts(struct rig *r, u32 *of, u32 port)
{
	const struct fabric_port_rec *p = &r->bed.f->port[port];

	if (r->bed.topo.nodes[p->node].type != FABRIC_CA || p->number == 0 ||
	    p->state < FABRIC_INIT || (r->mute_guid != 0 && rig_guid(r, port) == r->mute_guid))
		return false;
	for (u32 i = 0; i < r->sm_count; i++)
		if (r->sms[i].sm != NULL &&
		    rig_find_root(of, r->sms[i].port) == rig_find_root(of, port))
			return true;
	return false;
}

u32 rig_check_pairs(struct rig *r)
{
	u32 *of = rig_islands(r), pairs = 0, count = r->bed.topo.port_count;

	for (u32 a = 0; a < count; a++)
		for (u32 b = 0; b < count && rig_counts(r, of, a); b++) {
			if (a == b || !rig_counts(r, of, b) ||
			    rig_find_root(of, a) != rig_find_root(of, b))
				continue;
			rig_check_pair(r, a, b);
			pairs++;
		}
	free(of);
	return pairs;
}

bool rig_connected(struct rig *r, u32 a, u32 b)
{
	u32 *of = rig_islands(r);
	bool same = rig_find_root(of, a) == rig_find_root(of, b);

	free(of);
	return same;
}

void rig_check_active(struct rig *r)
{
	for (u32 i = 0; i < r->bed.topo.port_count; i++)
		if (r->bed.f->port[i].peer != FABRIC_NONE &&
		    (r->bed.f->port[i].flags & FABRIC_PORT_CUT) == 0)
			assert_int_equal(r->bed.f->port[i].state, FABRIC_ACTIVE);
}

u16 rig_lid(const struct rig *r, u32 port)
{
	return r->bed.f->port[port].lid;
}

u64 rig_guid(const struct rig *r, u32 port)
{
	return r->bed.f->port[port].guid[0];
}

/* ---- the SA ---------------------------------------------------------------------------------- */

static u64 rig_request(struct rig *r, u32 port, u8 method, u16 attribute, u64 mask,
		       const u8 *record)
{
	struct fabric_mad m = { .src_qp = 1, .dst_qp = 1, .qkey = 0x80010000, .pkey = 0xffff };

	m.dlid = r->bed.f->port[port].sm_lid;
	m.mad[MAD_BASE_VERSION] = 1;
	m.mad[MAD_CLASS] = 3;
	m.mad[MAD_CLASS_VERSION] = 2;
	m.mad[MAD_METHOD] = method;
	wire_put64(m.mad + MAD_TID, ++r->tid);
	wire_put16(m.mad + MAD_ATTRIBUTE, attribute);
	wire_put32(m.mad + MAD_MODIFIER, r->modifier);
	wire_put64(m.mad + 36, 1); /* SM_Key */
	wire_put64(m.mad + 48, mask);
	if (record != NULL)
		memcpy(m.mad + 56, record, 200);
	r->answers = 0;
	fabric_send(r->bed.f, port, &m);
	return r->tid;
}

const struct fabric_mad *rig_ask(struct rig *r, u32 port, u8 method, u16 attribute, u64 mask,
				 const u8 *record)
{
	u64 tid = rig_request(r, port, method, attribute, mask, record);

	rig_run(r, 20);
	for (u32 i = 0; i < r->answers; i++)
		if (r->answer_port[i] == port && wire_get64(r->answer[i].mad + MAD_TID) == tid)
			return &r->answer[i];
	return NULL;
}

void rig_ack(struct rig *r, u32 port, const struct fabric_mad *m, u32 segment)
{
	struct fabric_mad ack = *m;

	ack.slid = m->dlid;
	ack.dlid = m->slid;
	ack.qkey = 0x80010000;
	ack.mad[MAD_METHOD] ^= METHOD_RESPONSE;
	ack.mad[25] = 2;
	ack.mad[26] = 1;
	wire_put32(ack.mad + 28, segment);
	wire_put32(ack.mad + 32, segment + 8);
	fabric_send(r->bed.f, port, &ack);
}

u32 rig_table(struct rig *r, u32 port, u16 attribute, u64 mask, const u8 *record, u8 *out,
	      u32 size, u32 max)
{
	u64 tid = rig_request(r, port, 0x12, attribute, mask, record);
	u32 next = 1, bytes = 0, total = 0, stride = 0;
	static u8 data[4 << 20];
	bool last = false;

	for (u32 i = 0; !last; i++) {
		const struct fabric_mad *m = &r->answer[i];

		if (i == r->answers)
			rig_run(r, 20);
		assert_true(i < r->answers);
		if (wire_get64(m->mad + MAD_TID) != tid || wire_get32(m->mad + 28) != next)
			continue;
		assert_int_equal(m->mad[MAD_METHOD], 0x92);
		assert_int_equal(rig_status(m), 0);
		stride = wire_get16(m->mad + 44) * 8u;
		if (next == 1)
			total = wire_get32(m->mad + 32);
		memcpy(data + bytes, m->mad + 56, 200);
		bytes += 200;
		last = (m->mad[26] & 4) != 0;
		rig_ack(r, port, m, next++);
	}
	total -= (next - 1) * 20;
	assert_true(total <= bytes);
	for (u32 i = 0; stride != 0 && i < total / stride && i < max; i++)
		memcpy(out + i * size, data + i * stride, size);
	return stride == 0 ? 0 : total / stride;
}

u16 rig_status(const struct fabric_mad *m)
{
	assert_non_null(m);
	return wire_get16(m->mad + MAD_STATUS) & 0x7fff;
}
