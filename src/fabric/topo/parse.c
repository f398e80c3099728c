/* parse.c: reads a net file of ibsim, and what ibnetdiscover writes: records of a node's line and a
 * line for each of its cables.
 *
 *	caguid=0x2c90000000002
 *	Ca	2 "H-0002c90000000002"	# "h17 ib0"
 *	[1](2c90000000003)	"S-005442ba00003080"[13]	# lid 3 lmc 0 "leaf 4" lid 6 4xEDR
 *
 * A cable may stand at both of its ends. Both formats share one grammar; ibsim adds defaults
 * (`width=`, `speed=`, `module=`) and options of cables (`w=`, `s=`).
 *
 * In:    a text of any content        Out: struct topo, or an error with line and column
 * Runs:  its caller                   Locks: none
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/topo/cables.h"
#include "fabric/topo/names.h"
#include "fabric/topo/topo_priv.h"

/* Node types count from 1. */
enum { NODE_TYPES = FABRIC_ROUTER + 1 };

struct parser {
	struct topo_lexer lex;
	struct topo *out;
	struct names names;
	struct cables cables;
	u64 base[NODE_TYPES], guid[NODE_TYPES]; /* of the next node without a GUID of its own */
	u64 sys_guid;				/* of the next node; 0: its own GUID */
	u32 vendor_id;
	u16 device_id;
	u8 width, speed; /* of cables that say nothing; 0 and TOPO_SPEEDS: no line says */
	char module[TOPO_ID_BYTES];
	u32 node; /* whose cables may follow, or TOPO_NONE */
} OWNED_BY(the caller);

/* "# "description" base port 0 lid 6 lmc 0", behind a node; old writers leave the quotes out. */
static int parse_description(struct parser *p, struct topo_node *n)
{
	static const char *const ends[] = { " enhanced port ", " base port ", " lid ", " lmc " };
	struct topo_lexer *l = &p->lex;
	const char *begin, *stop;

	memcpy(n->desc, n->id, sizeof(n->id));
	if (!topo_take(l, "#") || topo_at_end(l))
		return 0;
	if (*l->at == '"')
		return topo_take_quoted(l, "a description", n->desc, sizeof(n->desc));
	begin = l->at;
	for (stop = begin; stop < l->end && *stop != '\n' && *stop != '\r'; stop++)
		;
	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		const char *found = memmem(begin, (size_t)(stop - begin), ends[i], strlen(ends[i]));

		stop = found != NULL ? found : stop;
	}
	if ((size_t)(stop - begin) >= sizeof(n->desc))
		return topo_fail(l, begin, "a description has more than 64 characters");
	memset(n->desc, 0, sizeof(n->desc));
	memcpy(n->desc, begin, (size_t)(stop - begin));
	l->at = stop;
	return 0;
}

/* An id, with the module that is in force in front. */
static int parse_id(struct parser *p, char id[TOPO_ID_BYTES])
{
	size_t n = strlen(p->module);
	const char *at;
	int err;

	topo_skip(&p->lex);
	at = p->lex.at;
	memcpy(id, p->module, n);
	err = topo_take_quoted(&p->lex, "a node's id", id + n, TOPO_ID_BYTES - n);
	if (err == 0 && id[n] == '\0')
		return topo_fail(&p->lex, at, "a node's id is empty");
	if (err == 0 && strchr(id, '@') != NULL)
		return topo_fail(&p->lex, at, "aliases of ibsim (@) are not known here");
	return err;
}

static void parse_take_guid(struct parser *p, struct topo_node *n)
{
	n->guid = p->guid[n->type];
	n->sys_guid = p->sys_guid != 0 ? p->sys_guid : n->guid;
	p->guid[n->type] += n->type == FABRIC_SWITCH ? 1 : n->ports + 1u;
	p->sys_guid = 0;
}

/* `Switch 8 "id" # "description"` behind its first word. */
static int parse_node(struct parser *p, enum fabric_node_type type)
{
	struct topo_lexer *l = &p->lex;
	struct topo_node n = {
		.type = type, .device_id = p->device_id, .vendor_id = p->vendor_id
	};
	const char *begin, *at;
	u64 ports;
	int err;

	topo_skip(l);
	begin = l->at;
	err = topo_take_number(l, "the number of ports", TOPO_PORTS_MAX, &ports);
	if (err == 0 && ports == 0)
		err = topo_fail(l, begin, "a node has one port at least");
	topo_skip(l);
	at = l->at;
	if (err == 0)
		err = parse_id(p, n.id);
	if (err == 0)
		err = parse_description(p, &n);
	if (err != 0)
		return err;
	n.ports = (u8)ports;
	n.enhanced = topo_take(l, "enhanced port 0");
	parse_take_guid(p, &n);
	err = topo_add(p->out, &n, &p->node);
	if (err == 0)
		err = names_add(&p->names, p->out, p->node);
	if (err == -EEXIST)
		return topo_fail(l, at, "another node has the id \"%s\"", n.id);
	return err;
}

/* A port number in brackets. */
static int parse_port(struct parser *p, const char *what, u64 *port)
{
	struct topo_lexer *l = &p->lex;
	int err;

	if (!topo_take(l, "["))
		return topo_fail(l, l->at, "%s in brackets must stand here", what);
	err = topo_take_number(l, what, TOPO_PORTS_MAX, port);
	if (err == 0 && !topo_take(l, "]"))
		return topo_fail(l, l->at, "a closing bracket must stand here");
	return err;
}

/* "(2c90000000003)" of a CA's port, and "[ext 3]" of a switch's, which says nothing here. */
static int parse_port_guid(struct parser *p, u64 *guid)
{
	struct topo_lexer *l = &p->lex;
	u64 number;
	int err = 0;

	if (topo_take(l, "(")) {
		err = topo_take_guid(l, guid);
		if (err == 0 && !topo_take(l, ")"))
			return topo_fail(l, l->at, "a closing parenthesis must stand here");
	}
	if (err == 0 && topo_take(l, "[ext")) {
		err = topo_take_number(l, "an external port", UINT32_MAX, &number);
		if (err == 0 && !topo_take(l, "]"))
			return topo_fail(l, l->at, "a closing bracket must stand here");
	}
	return err;
}

/* A line of a node's record: `[1](guid) "remote"[2](guid) w=4 # "description" lid 3 4xEDR`. */
static int parse_cable(struct parser *p)
{
	struct topo_lexer *l = &p->lex;
	struct cable c = { .node = p->node };
	u64 port, far = 1, guid = 0, unused;
	int err;

	if (p->node == TOPO_NONE)
		return topo_fail(l, l->at,
				 "this cable belongs to no node: a node's line comes first");
	c.lex = *l;
	err = parse_port(p, "a port number", &port);
	if (err == 0 && (port == 0 || port > p->out->nodes[p->node].ports))
		return topo_fail(l, c.lex.at, "\"%s\" has ports 1 to %u", p->out->nodes[p->node].id,
				 p->out->nodes[p->node].ports);
	if (err == 0)
		err = parse_port_guid(p, &guid);
	topo_skip(l);
	c.lex.at = l->at;
	if (err == 0)
		err = parse_id(p, c.far_id);
	if (err == 0 && l->at < l->end && *l->at == '[')
		err = parse_port(p, "the other end's port number", &far);
	if (err == 0)
		err = parse_port_guid(p, &unused);
	if (err == 0)
		err = cable_options(&c, l);
	if (err != 0)
		return err;
	if (guid != 0 && p->out->nodes[p->node].type != FABRIC_SWITCH)
		p->out->ports[p->out->nodes[p->node].first_port + port].guid = guid;
	if (c.width == 0)
		c.width = p->width;
	if (c.speed == TOPO_SPEEDS)
		c.speed = p->speed;
	c.port = (u8)port;
	c.far_port = (u8)far;
	return cables_add(&p->cables, &c);
}

/* "caguid=0x2c9..." of the nodes that follow, "hcaguids+0x100" from the last base on;
 * "switchguid=0x2c9...(2c9...)" names port 0, too, which has the node's. */
static int parse_guid_base(struct parser *p, enum fabric_node_type type)
{
	struct topo_lexer *l = &p->lex;
	bool more = topo_take(l, "+");
	u64 guid, port0;
	int err;

	if (!more && !topo_take(l, "="))
		return topo_fail(l, l->at, "'=' must stand here");
	err = topo_take_guid(l, &guid);
	if (err != 0)
		return err;
	if (!more)
		p->base[type] = guid;
	p->guid[type] = more ? p->base[type] + guid : guid;
	return parse_port_guid(p, &port0);
}

static int parse_assign(struct parser *p, u64 max, u64 *out)
{
	if (!topo_take(&p->lex, "="))
		return topo_fail(&p->lex, p->lex.at, "'=' must stand here");
	return topo_take_number(&p->lex, "the value", max, out);
}

static int parse_module(struct parser *p)
{
	struct topo_lexer *l = &p->lex;
	size_t n;
	int err;

	if (!topo_take(l, "="))
		return topo_fail(l, l->at, "'=' must stand here");
	err = topo_take_quoted(l, "a module's name", p->module, TOPO_ID_BYTES - 2);
	n = err == 0 ? strlen(p->module) : 0;
	if (n != 0)
		memcpy(p->module + n, "#", 2);
	return err;
}

/* Words that begin a line and set something. */
static int parse_setting(struct parser *p, const char *at, const char *word, size_t n)
{
	u64 value = 0;
	int err;

#define IS(text) (n == sizeof(text) - 1 && memcmp(word, text, n) == 0)
	if (IS("switchguid") || IS("switchguids"))
		return parse_guid_base(p, FABRIC_SWITCH);
	if (IS("caguid") || IS("hcaguids") || IS("hcaguid"))
		return parse_guid_base(p, FABRIC_CA);
	if (IS("rtguid"))
		return parse_guid_base(p, FABRIC_ROUTER);
	if (IS("module"))
		return parse_module(p);
	if (IS("do") || IS("include"))
		return topo_fail(&p->lex, at, "ibsim's \"%.*s\" is not known here", (int)n, word);
	if (IS("Chassis") || IS("Non-Chassis") || IS("pdebug"))
		return 0; /* ibnetdiscover's groups, and ibsim's own logging */
	if (IS("width") || IS("speed")) {
		err = parse_assign(p, 15, &value);
		if (err == 0 && IS("width"))
			return cable_width(&p->lex, at, value, &p->width);
		return err != 0 ? err : cable_speed(&p->lex, at, value, &p->speed);
	}
	if (!IS("vendid") && !IS("devid") && !IS("sysimgguid"))
		return topo_fail(&p->lex, at, "\"%.*s\" is no word of a topology", (int)MIN(n, 40u),
				 word);
	if (IS("sysimgguid"))
		return topo_take(&p->lex, "=")
			       ? topo_take_guid(&p->lex, &p->sys_guid)
			       : topo_fail(&p->lex, p->lex.at, "'=' must stand here");
	err = parse_assign(p, IS("devid") ? UINT16_MAX : 0xffffff, &value);
	if (err == 0 && IS("devid"))
		p->device_id = (u16)value;
	else if (err == 0)
		p->vendor_id = (u32)value;
	return err;
}

static int parse_line(struct parser *p)
{
	struct topo_lexer *l = &p->lex;
	const char *at, *word;
	size_t n;

	if (topo_at_end(l)) {
		p->node = TOPO_NONE;
		return 0;
	}
	at = l->at;
	if (*at == '#')
		return 0;
	if (*at == '[')
		return parse_cable(p);
	if (*at == '@')
		return topo_fail(l, at, "aliases of ibsim (@) are not known here");
	n = topo_take_word(l, &word);
	if (n == 0)
		return topo_fail(l, at, "a node, a cable or a setting must stand here");
	p->node = TOPO_NONE;
	if (IS("Switch"))
		return parse_node(p, FABRIC_SWITCH);
	if (IS("Ca") || IS("Hca"))
		return parse_node(p, FABRIC_CA);
	if (IS("Rt"))
		return parse_node(p, FABRIC_ROUTER);
	return parse_setting(p, at, word, n);
#undef IS
}

static int parse_lines(struct parser *p)
{
	int err = 0;

	for (; err == 0 && p->lex.at < p->lex.end; topo_next_line(&p->lex))
		err = parse_line(p);
	if (err == 0 && p->out->node_count == 0)
		return topo_fail(&p->lex, p->lex.at, "the text has no node");
	return err;
}

int topo_parse(const char *text, size_t bytes, struct topo *out, struct topo_error *e)
{
	struct parser p = {
		.lex = { text, text + bytes, text, 1, e },
		.out = out,
		.base = { 0, 0x100000, 0x200000, 0x300000 },
		.guid = { 0, 0x100000, 0x200000, 0x300000 }, /* where ibsim begins */
		.device_id = 0x1003,
		.vendor_id = 0x2c9,
		.speed = TOPO_SPEEDS,
		.node = TOPO_NONE,
	};
	int err;

	*out = (struct topo){ 0 };
	*e = (struct topo_error){ 0 };
	if (bytes > TOPO_TEXT_MAX)
		return -E2BIG;
	err = parse_lines(&p);
	if (err == 0)
		err = cables_connect(&p.cables, out, &p.names);
	if (err == 0)
		err = topo_check_guids(out, e);
	names_free(&p.names);
	cables_free(&p.cables);
	if (err != 0)
		topo_free(out);
	return err;
}
