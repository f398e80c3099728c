/* topo_priv.h: what the parser and the generators share. */
#ifndef FABRIC_TOPO_PRIV_H
#define FABRIC_TOPO_PRIV_H

#include "fabric/topo/topo.h"

enum { TOPO_DEFAULT_WIDTH = TOPO_4X, TOPO_DEFAULT_SPEED = TOPO_EDR };

#define TOPO_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* Where the lexer stands in a text. */
struct topo_lexer {
	const char *at, *end;
	const char *line_begin;
	u32 line; /* from 1 */
	struct topo_error *e;
} OWNED_BY(the caller);

/* Says what is wrong at `at`, which lies in the lexer's line, and returns -EINVAL. */
int topo_fail(const struct topo_lexer *l, const char *at, const char *fmt, ...) TOPO_PRINTF(3, 4);

/* Skips blanks, but no end of line. */
void topo_skip(struct topo_lexer *l);
/* At the end of the line, after blanks. */
bool topo_at_end(struct topo_lexer *l);
void topo_next_line(struct topo_lexer *l);
/* Takes this text, after blanks, if it is next. */
bool topo_take(struct topo_lexer *l, const char *text);
/* Takes a word of letters, digits and '-', after blanks; its length, 0: there is none. */
size_t topo_take_word(struct topo_lexer *l, const char **word);
/* A number from 0 to max, in decimal or behind 0x; `what` names it to the reader. */
int topo_take_number(struct topo_lexer *l, const char *what, u64 max, u64 *out);
/* A GUID: hexadecimal digits, with or without 0x. */
int topo_take_guid(struct topo_lexer *l, u64 *out);
/* "text", without the quotes; the rest of an over-long one is an error. */
int topo_take_quoted(struct topo_lexer *l, const char *what, char *out, size_t room);

/* -EINVAL: two ports, or a node and another node's port, have one GUID; *e says which. */
int topo_check_guids(const struct topo *t, struct topo_error *e);

/* The arguments of a generator: "8x16" and "speed=HDR". */
enum { TOPO_DIMS_MAX = 4 };
struct topo_spec {
	u32 dim[TOPO_DIMS_MAX];
	u32 dims;
	u32 radix, hosts, seed;
	u8 speed;
	u32 next_host, next_switch; /* how many there are */
	struct topo_lexer lex;
	struct topo *out;
} OWNED_BY(the caller);

int topo_spec_fail(struct topo_spec *s, const char *fmt, ...) TOPO_PRINTF(2, 3);
/* A switch of s->radix ports (or of `ports`, if not 0) with a description. */
int topo_spec_switch(struct topo_spec *s, u32 ports, u32 *node, const char *fmt, ...)
	TOPO_PRINTF(4, 5);
/* The next host, cabled to this port of a switch. */
int topo_spec_host(struct topo_spec *s, u32 node, u32 port);
int topo_spec_cable(struct topo_spec *s, u32 a, u32 port_a, u32 b, u32 port_b);

int topo_make_star(struct topo_spec *s);
int topo_make_fat_tree(struct topo_spec *s);
int topo_make_torus(struct topo_spec *s);
int topo_make_mesh(struct topo_spec *s);
int topo_make_dragonfly(struct topo_spec *s);
int topo_make_random(struct topo_spec *s);

#endif
