/* cables.c: the cables of a text: their options, and the ends that must agree.
 * In:    lines of cables        Out: the links of a topology, or the place of a contradiction
 * Runs:  its caller             Locks: none
 */
#include "fabric/topo/cables.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int cable_width(const struct topo_lexer *l, const char *at, u64 value, u8 *width)
{
	if (value == 0 || value > 15)
		return topo_fail(l, at, "a width is 1, 4 or 12, or a mask from 1 to 15");
	if (value >= 8)
		*width = TOPO_12X;
	else if (value >= 5)
		*width = TOPO_8X;
	else
		*width = value == 1 ? TOPO_1X : TOPO_4X;
	return 0;
}

int cable_speed(const struct topo_lexer *l, const char *at, u64 value, u8 *speed)
{
	if (value == 0 || value > 7)
		return topo_fail(l, at, "a speed is a mask from 1 to 7: 1 SDR, 2 DDR, 4 QDR");
	*speed = value >= 4 ? TOPO_QDR : value >= 2 ? TOPO_DDR : TOPO_SDR;
	return 0;
}

/* "4xEDR": false if the text is none. */
static bool cable_rate(const char *text, size_t n, struct cable *c)
{
	static const struct {
		const char *lanes;
		enum topo_width width;
	} FIXED widths[] = { { "12x", TOPO_12X }, { "1x", TOPO_1X }, { "2x", TOPO_2X },
		       { "4x", TOPO_4X },   { "8x", TOPO_8X } };

	for (size_t i = 0; i < ARRAY_LEN(widths); i++) {
		size_t lanes = strlen(widths[i].lanes);

		if (n <= lanes || memcmp(text, widths[i].lanes, lanes) != 0)
			continue;
		for (u8 s = 0; s < TOPO_SPEEDS; s++) {
			const char *name = topo_speed_name(s);

			if (n - lanes == strlen(name) &&
			    memcmp(text + lanes, name, n - lanes) == 0) {
				c->width = (u8)widths[i].width;
				c->speed = s;
				return true;
			}
		}
	}
	return false;
}

/* The last word of the line. */
static void cable_comment(struct cable *c, struct topo_lexer *l)
{
	const char *stop = l->at, *begin;

	while (stop < l->end && *stop != '\n')
		stop++;
	while (stop > l->at && isspace((unsigned char)stop[-1]))
		stop--;
	for (begin = stop; begin > l->at && !isspace((unsigned char)begin[-1]); begin--)
		;
	(void)cable_rate(begin, (size_t)(stop - begin), c);
	l->at = stop;
}

int cable_options(struct cable *c, struct topo_lexer *l)
{
	c->width = 0;
	c->speed = TOPO_SPEEDS;
	while (!topo_at_end(l)) {
		const char *at = l->at;
		bool is_width;
		u64 value;
		int err;

		if (*at == '#') {
			cable_comment(c, l);
			return 0;
		}
		is_width = topo_take(l, "w=");
		if (!is_width && !topo_take(l, "s="))
			return topo_fail(l, at, "an option of a cable is w= or s=");
		err = topo_take_number(l, "the value", 15, &value);
		if (err == 0)
			err = is_width ? cable_width(l, at, value, &c->width) :
					 cable_speed(l, at, value, &c->speed);
		if (err != 0)
			return err;
	}
	return 0;
}

int cables_add(struct cables *cs, const struct cable *c)
{
	if (cs->count == cs->room) {
		u32 room = cs->room == 0 ? 256 : cs->room * 2;
		struct cable *all = realloc(cs->all, room * sizeof(*all));

		if (all == NULL)
			return -ENOMEM;
		cs->all = all;
		cs->room = room;
	}
	cs->all[cs->count++] = *c;
	return 0;
}

/* What one end says of a link that exists lowers what the other one said. */
static void cable_agree(struct topo_link *l, const struct cable *c)
{
	if (c->width != 0 && (l->width == 0 || topo_width_lanes(c->width) <
						       topo_width_lanes(l->width)))
		l->width = c->width;
	l->speed = MIN(l->speed, c->speed);
}

/* A port that this cable needs has another one. */
static int cable_refuse(const struct cable *c, const struct topo *t, u32 node, u8 port)
{
	u32 peer = node;
	u8 peer_port = port;

	(void)topo_peer(t, node, port, &peer, &peer_port);
	return topo_fail(&c->lex, c->lex.at, "\"%s\"[%u] has a cable to \"%s\"[%u] already",
			 t->nodes[node].id, port, t->nodes[peer].id, peer_port);
}

static int cable_connect(struct cable *c, struct topo *t, const struct names *names)
{
	u32 far = names_find(names, t, c->far_id), peer;
	struct topo_link link = { c->node, far, c->port, c->far_port, c->width, c->speed };
	u8 peer_port;
	int err;

	if (far == TOPO_NONE)
		return topo_fail(&c->lex, c->lex.at, "there is no node \"%s\"", c->far_id);
	if (c->far_port == 0 || c->far_port > t->nodes[far].ports)
		return topo_fail(&c->lex, c->lex.at, "\"%s\" has ports 1 to %u", c->far_id,
				 t->nodes[far].ports);
	if (topo_peer(t, c->node, c->port, &peer, &peer_port)) {
		if (peer != far || peer_port != c->far_port)
			return cable_refuse(c, t, c->node, c->port);
		cable_agree(&t->links[topo_port(t, far, c->far_port)->link], c);
		return 0;
	}
	err = topo_connect(t, &link);
	if (err == -EBUSY)
		return cable_refuse(c, t, far, c->far_port);
	if (err == -EINVAL)
		return topo_fail(&c->lex, c->lex.at, "the cable begins and ends at one port");
	return err;
}

int cables_connect(struct cables *cs, struct topo *t, const struct names *names)
{
	int err = 0;

	for (u32 i = 0; err == 0 && i < cs->count; i++)
		err = cable_connect(&cs->all[i], t, names);
	for (u32 i = 0; i < t->link_count; i++) {
		if (t->links[i].width == 0)
			t->links[i].width = TOPO_DEFAULT_WIDTH;
		if (t->links[i].speed >= TOPO_SPEEDS)
			t->links[i].speed = TOPO_DEFAULT_SPEED;
	}
	return err;
}

void cables_free(struct cables *cs)
{
	free(cs->all);
	*cs = (struct cables){ 0 };
}
