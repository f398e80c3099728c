/* sm_fuzz.c: MADs of any content to a subnet manager and its SA, from the hosts and switches of a
 * fabric, while cables are pulled and time passes: nothing crashes, the SM sends a bounded number
 * of MADs, and in the end it brings the fabric to rest.
 *
 * Input: records of a length each: a MAD with its addresses, or a command.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fabric/fabric.h"
#include "input.h"
#include "sm/sm.h"

struct world {
	struct fabric *f;
	struct topo topo;
	struct sm *sm;
	u32 sm_port;
	int map_fd, counters_fd;
	u64 now_ns;
	u32 sent;
	const uint8_t *answers; /* bytes that are written over the SM's answers */
	size_t answers_left;
};

/* Some answers to the SM are not what they were. */
static void spoil(struct world *w, struct fabric_mad *m)
{
	while (w->answers_left >= 3) {
		const uint8_t *d = w->answers;

		w->answers += 3;
		w->answers_left -= 3;
		if (d[0] == 0)
			break;
		m->mad[d[1]] = d[2];
	}
}

static void deliver(void *arg, u32 port, const struct fabric_mad *m)
{
	struct world *w = arg;
	struct fabric_mad copy = *m;

	if (port != w->sm_port)
		return;
	if ((m->mad[3] & 0x80) != 0)
		spoil(w, &copy);
	(void)sm_receive(w->sm, &copy);
}

static void changed(void *arg, u32 port, u32 what)
{
	(void)arg;
	(void)port;
	(void)what;
}

static u64 now_ns(void *arg)
{
	return ((struct world *)arg)->now_ns;
}

static void send_mad(void *arg, const struct fabric_mad *m)
{
	struct world *w = arg;

	w->sent++;
	fabric_send(w->f, w->sm_port, m);
}

static const struct fabric_ops ops = { .deliver = deliver, .changed = changed, .now_ns = now_ns };
static const struct sm_ops sm_ops = { .send = send_mad, .now_ns = now_ns };

static void pass(struct world *w, u64 ns)
{
	u64 end = w->now_ns + ns;

	for (u32 steps = 0; steps < 100000; steps++) {
		u64 due = MIN(fabric_due_ns(w->f), sm_due_ns(w->sm));

		if (due > end)
			break;
		w->now_ns = MAX(w->now_ns, due);
		fabric_tick(w->f);
		sm_run(w->sm);
	}
	w->now_ns = end;
}

static void world_begin(struct world *w)
{
	struct sm_config c = { .seed = 1 };
	struct topo_error e;
	int err = 0;

	memset(w, 0, sizeof(*w));
	fuzz_need(topo_generate("mesh:2,hosts=2,radix=8", &w->topo, &e) == 0, "sm");
	w->map_fd = memfd_create("map", MFD_CLOEXEC);
	w->counters_fd = memfd_create("counters", MFD_CLOEXEC);
	w->f = fabric_create(w->map_fd, w->counters_fd, &w->topo, &ops, w, &err);
	fuzz_need(w->f != NULL, "sm");
	for (u32 i = 0; i < w->topo.node_count; i++)
		if (w->topo.nodes[i].type == FABRIC_SWITCH)
			w->sm_port = w->topo.nodes[i].first_port;
	w->sm = sm_create(&sm_ops, w, &c);
	fuzz_need(w->sm != NULL, "sm");
	fabric_set_issm(w->f, w->sm_port, true);
}

static void world_end(struct world *w)
{
	struct sm_report report;

	w->answers_left = 0;
	w->sent = 0;
	sm_wake(w->sm);
	pass(w, 15000000000ull);
	sm_read_report(w->sm, &report);
	fuzz_need(w->sent < 20000, "sm");
	sm_destroy(w->sm);
	fabric_close(w->f);
	close(w->map_fd);
	close(w->counters_fd);
	topo_free(&w->topo);
}

/* At least 8 bytes. */
static void one_mad(struct world *w, const uint8_t *d, size_t n)
{
	struct fabric_mad m = { .pkey = 0xffff, .qkey = 0x80010000, .src_qp = 1 };
	u32 port = d[0] % w->topo.port_count;

	m.dst_qp = d[1] & 1;
	m.slid = (u16)(d[2] & 15);
	m.dlid = (u16)(d[3] & 15);
	m.mad[0] = 1;
	m.mad[1] = m.dst_qp == 1 ? 3 : 1;
	m.mad[2] = m.dst_qp == 1 ? 2 : 1;
	m.mad[3] = d[4];
	memcpy(m.mad + 4, d + 5, MIN(n - 5, sizeof(m.mad) - 4));
	if ((d[1] & 2) != 0)
		(void)sm_receive(w->sm, &m);
	else
		fabric_send(w->f, port, &m);
}

static void one_command(struct world *w, const uint8_t *d, size_t n)
{
	u32 port = d[1] % w->topo.port_count, node = d[1] % w->topo.node_count;

	switch (d[0] % 5) {
	case 0:
		fabric_link_set(w->f, port, d[2] & 1);
		break;
	case 1:
		fabric_node_reboot(w->f, node);
		break;
	case 2:
		fabric_set_issm(w->f, port, port == w->sm_port || (d[2] & 1) != 0);
		break;
	case 3:
		w->answers = d + 1;
		w->answers_left = n - 1;
		sm_wake(w->sm);
		pass(w, 10000000);
		w->answers_left = 0;
		break;
	default:
		pass(w, d[2] * 100000000ull);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world w;

	world_begin(&w);
	if (size > 0 && (data[0] & 1) == 0)
		pass(&w, 100000000);
	while (size > 10) {
		size_t n = MIN((size_t)data[0] + 10, size);

		if (data[1] & 1)
			one_mad(&w, data + 2, n - 2);
		else
			one_command(&w, data + 2, n - 2);
		data += n;
		size -= n;
	}
	world_end(&w);
	return 0;
}
