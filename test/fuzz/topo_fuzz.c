/* topo_fuzz.c: topologies as text: net files of ibsim, what ibnetdiscover writes, and the words of
 * generators. Each is a topology whose arrays agree, of which a fabric can be made, or a mistake
 * with a place in the text and a message.
 *
 * Input: a byte, even: the rest is a file; odd: it is a generator's words.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fabric/fabric.h"
#include "input.h"

enum { SPEC_MAX = 100, FABRIC_MAX = 64 /* nodes of a fabric that is made */ };

static void deliver(void *arg, u32 port, const struct fabric_mad *m)
{
	(void)arg;
	(void)port;
	(void)m;
}

static void changed(void *arg, u32 port, u32 what)
{
	(void)arg;
	(void)port;
	(void)what;
}

static u64 now_ns(void *arg)
{
	(void)arg;
	return 0;
}

static const struct fabric_ops ops = { .deliver = deliver, .changed = changed, .now_ns = now_ns };

/* ---- judgements ------------------------------------------------------------------------------ */

static void judge_mistake(int err, const struct topo *t, const struct topo_error *e,
			  const struct input *text)
{
	const u8 *line = text->at, *end = text->at + text->left;

	fuzz_need(t->nodes == NULL && t->ports == NULL && t->links == NULL, "something is left");
	fuzz_need(err == -EINVAL || err == -E2BIG, "another error");
	if (err != -EINVAL)
		return;
	fuzz_need(e->message[0] != '\0' && strnlen(e->message, sizeof(e->message)) <
						   sizeof(e->message), "no message");
	if (e->line == 0) /* no place in particular */
		return;
	for (u32 i = 1; i < e->line; i++) {
		const u8 *next = memchr(line, '\n', (size_t)(end - line));

		fuzz_need(next != NULL, "a line behind the text");
		line = next + 1;
	}
	fuzz_need(e->column >= 1 && e->column <= (size_t)(end - line) + 1,
		  "a column behind the text");
}

static void judge_end(const struct topo *t, u32 link, u32 node, u8 port)
{
	fuzz_need(node < t->node_count && port >= 1 && port <= t->nodes[node].ports,
		  "a cable without a port");
	fuzz_need(topo_port(t, node, port)->link == link, "a port that has another cable");
}

static void judge_topology(const struct topo *t)
{
	u32 ports = 0;

	fuzz_need(t->node_count > 0 && t->node_count <= TOPO_NODES_MAX, "the nodes");
	for (u32 i = 0; i < t->node_count; i++) {
		const struct topo_node *n = &t->nodes[i];

		fuzz_need(n->first_port == ports && n->ports >= 1 && n->ports <= TOPO_PORTS_MAX,
			  "the ports of a node");
		fuzz_need(memchr(n->id, 0, sizeof(n->id)) != NULL && n->id[0] != '\0' &&
				  memchr(n->desc, 0, sizeof(n->desc)) != NULL, "a name");
		ports += n->ports + 1u;
	}
	fuzz_need(ports == t->port_count && ports <= TOPO_ALL_PORTS_MAX, "the ports");
	for (u32 i = 0; i < t->link_count; i++) {
		const struct topo_link *l = &t->links[i];

		judge_end(t, i, l->node_a, l->port_a);
		judge_end(t, i, l->node_b, l->port_b);
		fuzz_need(topo_width_lanes(l->width) != 0 && l->speed < TOPO_SPEEDS, "a rate");
	}
}

/* Whatever has been read, a fabric of it goes up, and its owner takes it again. */
static void make_fabric(const struct topo *t)
{
	int map = memfd_create("map", MFD_CLOEXEC), counters = memfd_create("c", MFD_CLOEXEC);
	int err = 0;
	struct fabric *f = fabric_create(map, counters, t, &ops, NULL, &err);

	fuzz_need(f != NULL, "no fabric");
	fabric_close(f);
	f = fabric_open(map, counters, &ops, NULL, &err);
	fuzz_need(f != NULL, "no fabric again");
	fabric_close(f);
	close(map);
	close(counters);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct input in = { data, size };
	char spec[SPEC_MAX + 1] = "";
	struct topo_error e;
	struct topo t;
	int err;

	if ((input_u8(&in) & 1) == 0) {
		err = topo_parse((const char *)in.at, in.left, &t, &e);
	} else {
		in.left = MIN(in.left, (size_t)SPEC_MAX);
		memcpy(spec, in.at, in.left);
		in = (struct input){ (const u8 *)spec, strlen(spec) };
		err = topo_generate(spec, &t, &e);
	}
	if (err != 0) {
		judge_mistake(err, &t, &e, &in);
		return 0;
	}
	judge_topology(&t);
	if (t.node_count <= FABRIC_MAX)
		make_fabric(&t);
	topo_free(&t);
	return 0;
}
