/* fabric_fuzz.c: MADs of any content from the software of a fabric's ports, commands, and maps
 * that anybody may have written: nothing crashes, no MAD runs for ever, and the owner's state
 * stays one that fabric_open takes.
 *
 * Input: a byte of the kind, then records of a length each: a MAD with its addresses, a command,
 * or an offset and a value for a copy of the map.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fabric/fabric.h"
#include "input.h"

struct world {
	struct fabric *f;
	struct topo topo;
	int map_fd, counters_fd;
	u64 now_ns;
};

static void deliver(void *arg, u32 port, const struct fabric_mad *m)
{
	struct world *w = arg;

	/* software that answers: bounded by the fabric's queue and this */
	if (m->dst_qp <= 1 && (m->mad[3] & 0x80) == 0 && w->now_ns < 1000) {
		struct fabric_mad back = *m;

		w->now_ns++;
		back.mad[3] |= 0x80;
		back.dlid = m->slid;
		fabric_send(w->f, port, &back);
	}
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

static const struct fabric_ops ops = { .deliver = deliver, .changed = changed, .now_ns = now_ns };

static void world_begin(struct world *w)
{
	struct topo_error e;
	int err = 0;

	memset(w, 0, sizeof(*w));
	fuzz_need(topo_generate("star:3", &w->topo, &e) == 0, "fabric");
	w->map_fd = memfd_create("map", MFD_CLOEXEC);
	w->counters_fd = memfd_create("counters", MFD_CLOEXEC);
	w->f = fabric_create(w->map_fd, w->counters_fd, &w->topo, &ops, w, &err);
	fuzz_need(w->f != NULL, "fabric");
}

static void world_end(struct world *w)
{
	int err = 0;

	/* What has come of it is a fabric still. */
	fabric_close(w->f);
	w->f = fabric_open(w->map_fd, w->counters_fd, &ops, w, &err);
	fuzz_need(w->f != NULL, "fabric");
	fabric_close(w->f);
	close(w->map_fd);
	close(w->counters_fd);
	topo_free(&w->topo);
}

/* One record of at most 40 bytes before the MAD's own. */
static void one_mad(struct world *w, const uint8_t *d, size_t n)
{
	struct fabric_mad m = { .pkey = 0xffff, .qkey = 0x80010000 };
	u32 port = d[0] % w->topo.port_count;

	m.dst_qp = d[1] & 1;
	m.sl = d[1] >> 4;
	m.slid = (u16)(d[2] << 8 | d[3]);
	m.dlid = (u16)(d[4] << 8 | d[5]);
	m.mad[0] = m.mad[2] = 1;
	memcpy(m.mad, d + 6, MIN(n - 6, sizeof(m.mad)));
	fabric_send(w->f, port, &m);
}

static void one_command(struct world *w, const uint8_t *d)
{
	u32 port = d[1] % (w->topo.port_count + 1), node = d[1] % (w->topo.node_count + 1);

	switch (d[0] % 5) {
	case 0:
		fabric_link_set(w->f, port, d[2] & 1);
		break;
	case 1:
		fabric_node_reboot(w->f, node);
		break;
	case 2:
		fabric_port_error(w->f, port, d[2] % (FABRIC_ERRORS + 1), d[3]);
		break;
	case 3:
		fabric_set_issm(w->f, MIN(port, w->topo.port_count - 1), d[2] & 1);
		break;
	default:
		w->now_ns += d[2] * 100000000ull;
		fabric_tick(w->f);
		break;
	}
}

static void drive(const uint8_t *data, size_t size)
{
	struct world w;

	world_begin(&w);
	while (size > 8) {
		size_t n = MIN((size_t)data[0] + 8, size);

		if (data[1] & 1)
			one_mad(&w, data + 2, n - 2);
		else
			one_command(&w, data + 2);
		data += n;
		size -= n;
	}
	world_end(&w);
}

/* A reader's map, with bytes written over it. */
static void read_hostile(const uint8_t *data, size_t size)
{
	struct world w;
	struct fabric_view v;
	size_t bytes;
	u8 *map;

	world_begin(&w);
	bytes = (size_t)lseek(w.map_fd, 0, SEEK_END);
	map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, w.map_fd, 0);
	fuzz_need(map != MAP_FAILED, "fabric");
	for (; size >= 4; data += 4, size -= 4)
		map[(size_t)(data[0] << 16 | data[1] << 8 | data[2]) % bytes] = data[3];
	if (fabric_view_open(&v, map, bytes) == 0)
		for (u32 i = 0; i < MIN(v.ports, 64); i++) {
			struct fabric_flow flow = { .dlid = (u16)i, .pkey = 0xffff };
			struct fabric_port_attr a;
			struct fabric_node_attr n;
			struct fabric_path path;
			u32 to[4];

			(void)fabric_port_read(&v, i, &a);
			(void)fabric_node_read(&v, i, &n);
			(void)fabric_route(&v, i, &flow, &path);
			(void)fabric_mcast_route(&v, i, (u16)(0xc000 + i), &flow, to, 4);
			(void)fabric_find_host(&v, "h1", to, 4);
		}
	munmap(map, bytes);
	world_end(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	if (data[0] & 1)
		drive(data + 1, size - 1);
	else
		read_hostile(data + 1, size - 1);
	return 0;
}
