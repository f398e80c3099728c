/* spec.c: the words of a generator, "fat-tree:8x16,radix=36,speed=HDR", and what all generators do:
 * naming, numbering, cabling.
 * In:    a text of any content        Out: struct topo, or an error with its column
 * Runs:  its caller                   Locks: none
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "fabric/topo/topo_priv.h"

/* EUI-64 identifiers with the bit of locally administered ones. A host has 256 in a row. */
#define SPEC_CA_GUID 0x02a0000000000000ull
#define SPEC_SWITCH_GUID 0x02b0000000000001ull
enum {
	SPEC_RADIX = 36,
	SPEC_DIM_MAX = 100000,
	SPEC_WORD_MAX = 32, /* of a wrong word in a message */
	SPEC_CA_DEVICE = 0x1017,
	SPEC_SWITCH_DEVICE = 0xcb20
};

static const struct generator {
	const char *name;
	u32 least, most; /* dimensions */
	const char *dims;
	const char *option; /* its own, besides radix= and speed=, which all have; "": none */
	int (*make)(struct topo_spec *s);
} FIXED generators[] = {
	{ "star", 1, 1, "HOSTS", "", topo_make_star },
	{ "fat-tree", 2, 3, "[PODSx]LEAVESxHOSTS", "", topo_make_fat_tree },
	{ "torus", 1, 4, "SIZE[xSIZE...]", "hosts=", topo_make_torus },
	{ "mesh", 1, 4, "SIZE[xSIZE...]", "hosts=", topo_make_mesh },
	{ "dragonfly", 3, 4, "ROUTERSxHOSTSxGLOBAL[xGROUPS]", "", topo_make_dragonfly },
	{ "random", 2, 2, "SWITCHESxHOSTS", "seed=", topo_make_random },
};

int topo_spec_fail(struct topo_spec *s, const char *fmt, ...)
{
	char text[TOPO_MESSAGE_BYTES];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	return topo_fail(&s->lex, s->lex.line_begin, "%s", text);
}

int topo_spec_switch(struct topo_spec *s, u32 ports, u32 *node, const char *fmt, ...)
{
	struct topo_node n = {
		.type = FABRIC_SWITCH,
		.device_id = SPEC_SWITCH_DEVICE,
		.vendor_id = 0x2c9,
		.guid = SPEC_SWITCH_GUID + s->next_switch,
	};
	va_list args;

	ports = ports != 0 ? ports : s->radix;
	if (ports > TOPO_PORTS_MAX)
		return topo_spec_fail(s, "a switch would need %u ports and has at most %u", ports,
				      TOPO_PORTS_MAX);
	s->next_switch++;
	n.ports = (u8)ports;
	n.sys_guid = n.guid;
	(void)snprintf(n.id, sizeof(n.id), "S-%016llx", (unsigned long long)n.guid);
	va_start(args, fmt);
	(void)vsnprintf(n.desc, sizeof(n.desc), fmt, args);
	va_end(args);
	return topo_add(s->out, &n, node);
}

int topo_spec_cable(struct topo_spec *s, u32 a, u32 port_a, u32 b, u32 port_b)
{
	struct topo_link l = { a, b, (u8)port_a, (u8)port_b, TOPO_DEFAULT_WIDTH, s->speed };

	if (port_a > TOPO_PORTS_MAX || port_b > TOPO_PORTS_MAX)
		return -EINVAL;
	return topo_connect(s->out, &l);
}

int topo_spec_host(struct topo_spec *s, u32 node, u32 port)
{
	struct topo_node n = {
		.type = FABRIC_CA,
		.ports = 1,
		.device_id = SPEC_CA_DEVICE,
		.vendor_id = 0x2c9,
		.guid = SPEC_CA_GUID + ((u64)++s->next_host << 8),
	};
	u32 host;
	int err;

	n.sys_guid = n.guid;
	(void)snprintf(n.id, sizeof(n.id), "H-%016llx", (unsigned long long)n.guid);
	(void)snprintf(n.desc, sizeof(n.desc), "h%u ib0", s->next_host);
	err = topo_add(s->out, &n, &host);
	return err != 0 ? err : topo_spec_cable(s, node, port, host, 1);
}

/* "8x16x2" */
static int spec_dims(struct topo_spec *s, const struct generator *g)
{
	struct topo_lexer *l = &s->lex;

	do {
		const char *at = l->at;
		u64 n;
		int err;

		if (s->dims == g->most)
			return topo_fail(l, at, "%s has at most %u numbers: %s", g->name, g->most,
					 g->dims);
		err = topo_take_number(l, "a number", SPEC_DIM_MAX, &n);
		if (err == 0 && n == 0)
			err = topo_fail(l, at, "a number is 1 at least");
		if (err != 0)
			return err;
		s->dim[s->dims++] = (u32)n;
	} while (topo_take(l, "x"));
	if (s->dims < g->least)
		return topo_fail(l, l->at, "%s has at least %u numbers: %s", g->name, g->least,
				 g->dims);
	return 0;
}

static int spec_speed(struct topo_spec *s)
{
	const char *word;
	size_t n = topo_take_word(&s->lex, &word);

	for (u8 i = 0; i < TOPO_SPEEDS; i++)
		if (strlen(topo_speed_name(i)) == n && memcmp(topo_speed_name(i), word, n) == 0) {
			s->speed = i;
			return 0;
		}
	return topo_fail(&s->lex, word, "a speed is SDR, DDR, QDR, FDR10, FDR, EDR, HDR or NDR");
}

/* The option that stands at `at` is none of this generator's. */
static int spec_no_option(struct topo_spec *s, const struct generator *g, const char *at)
{
	const char *word;
	size_t n;

	s->lex.at = at;
	n = topo_take_word(&s->lex, &word);
	return topo_fail(&s->lex, word, "%s has no option \"%.*s\"; it has radix=%s%s and speed=",
			 g->name, (int)MIN(n, (size_t)SPEC_WORD_MAX), word,
			 g->option[0] != '\0' ? ", " : "", g->option);
}

/* ",radix=36" and its like. */
static int spec_option(struct topo_spec *s, const struct generator *g)
{
	static const struct {
		const char *name;
		size_t offset;
		u32 least, most;
	} FIXED numbers[] = {
		{ "radix=", offsetof(struct topo_spec, radix), 2, TOPO_PORTS_MAX },
		{ "hosts=", offsetof(struct topo_spec, hosts), 0, TOPO_PORTS_MAX },
		{ "seed=", offsetof(struct topo_spec, seed), 0, UINT32_MAX },
	};
	struct topo_lexer *l = &s->lex;
	const char *begin = l->at;

	if (topo_take(l, "speed="))
		return spec_speed(s);
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
		const char *at;
		u64 n;
		int err;

		if (!topo_take(l, numbers[i].name))
			continue;
		if (i != 0 && strcmp(numbers[i].name, g->option) != 0)
			break;
		at = l->at;
		err = topo_take_number(l, "the value", numbers[i].most, &n);
		if (err == 0 && n < numbers[i].least)
			err = topo_fail(l, at, "the value is %u at least", numbers[i].least);
		if (err == 0)
			*(u32 *)((char *)s + numbers[i].offset) = (u32)n;
		return err;
	}
	return spec_no_option(s, g, begin);
}

static const struct generator *spec_generator(struct topo_lexer *l)
{
	const char *word;
	size_t n = topo_take_word(l, &word);

	for (size_t i = 0; i < ARRAY_LEN(generators); i++)
		if (strlen(generators[i].name) == n && memcmp(generators[i].name, word, n) == 0)
			return &generators[i];
	return NULL;
}

static int spec_read(struct topo_spec *s, const struct generator **g)
{
	struct topo_lexer *l = &s->lex;
	int err = 0;

	*g = spec_generator(l);
	if (*g == NULL)
		return topo_spec_fail(s, "a generator is star, fat-tree, torus, mesh, dragonfly or "
					 "random");
	if (!topo_take(l, ":"))
		return topo_fail(l, l->at, "%s:%s: a colon must stand here", (*g)->name,
				 (*g)->dims);
	err = spec_dims(s, *g);
	while (err == 0 && topo_take(l, ","))
		err = spec_option(s, *g);
	if (err == 0 && !topo_at_end(l))
		err = topo_fail(l, l->at, "a comma and an option, or nothing, must stand here");
	return err;
}

int topo_generate(const char *spec, struct topo *out, struct topo_error *e)
{
	struct topo_spec s = {
		.lex = { spec, spec + strlen(spec), spec, 1, e },
		.radix = SPEC_RADIX,
		.hosts = 1,
		.seed = 1,
		.speed = TOPO_DEFAULT_SPEED,
		.out = out,
	};
	const struct generator *g;
	int err;

	*out = (struct topo){ 0 };
	*e = (struct topo_error){ 0 };
	err = spec_read(&s, &g);
	if (err == 0)
		err = g->make(&s);
	if (err == -E2BIG)
		(void)topo_spec_fail(&s, "that is more than %d nodes or %d ports",
				     TOPO_NODES_MAX, TOPO_ALL_PORTS_MAX);
	if (err != 0)
		topo_free(out);
	return err;
}
