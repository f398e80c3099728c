/* cables.h: the cables of a text, until all nodes are known. */
#ifndef FABRIC_TOPO_CABLES_H
#define FABRIC_TOPO_CABLES_H

#include "fabric/topo/names.h"
#include "fabric/topo/topo_priv.h"

/* One end of a cable as its line tells it. */
struct cable {
	u32 node;
	u8 port, far_port;
	u8 width; /* 0: the line does not say */
	u8 speed; /* TOPO_SPEEDS: the line does not say */
	char far_id[TOPO_ID_BYTES];
	struct topo_lexer lex; /* at the other end's id */
} OWNED_BY(the caller);

/* Begins as zeros. */
struct cables {
	struct cable *all;
	u32 count, room;
} OWNED_BY(the caller);

/* Values of `w=`, `s=`, `width=` and `speed=`. A width is a number of lanes (1, 4, 12), or
 * ibsim's mask of LinkWidthEnabled, whose widest counts; a speed LinkSpeedEnabled. */
int cable_width(const struct topo_lexer *l, const char *at, u64 value, u8 *width);
int cable_speed(const struct topo_lexer *l, const char *at, u64 value, u8 *speed);
/* What follows the other end's port: options, and in the comment the link's "4xEDR". */
int cable_options(struct cable *c, struct topo_lexer *l);
int cables_add(struct cables *cs, const struct cable *c);
/* Connects all; a cable that neither end describes further gets the default width and speed. */
int cables_connect(struct cables *cs, struct topo *t, const struct names *names);
void cables_free(struct cables *cs);

#endif
