/* lexer.c: words, numbers and quoted names of a topology's text, each with its place.
 * In:    a text of any content        Out: words, and errors with line and column
 * Runs:  its caller                   Locks: none
 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "fabric/topo/topo_priv.h"

int topo_fail(const struct topo_lexer *l, const char *at, const char *fmt, ...)
{
	va_list args;

	l->e->line = l->line;
	l->e->column = (u32)(at - l->line_begin) + 1;
	va_start(args, fmt);
	(void)vsnprintf(l->e->message, sizeof(l->e->message), fmt, args);
	va_end(args);
	for (char *c = l->e->message; *c != '\0'; c++)
		if (!isprint((unsigned char)*c))
			*c = '?';
	return -EINVAL;
}

void topo_skip(struct topo_lexer *l)
{
	while (l->at < l->end && (*l->at == ' ' || *l->at == '\t' || *l->at == '\r'))
		l->at++;
}

bool topo_at_end(struct topo_lexer *l)
{
	topo_skip(l);
	return l->at == l->end || *l->at == '\n';
}

void topo_next_line(struct topo_lexer *l)
{
	while (l->at < l->end && *l->at != '\n')
		l->at++;
	if (l->at == l->end) /* the last line has no end of its own */
		return;
	l->line_begin = ++l->at;
	l->line++;
}

bool topo_take(struct topo_lexer *l, const char *text)
{
	size_t n = strlen(text);

	topo_skip(l);
	if ((size_t)(l->end - l->at) < n || memcmp(l->at, text, n) != 0)
		return false;
	l->at += n;
	return true;
}

size_t topo_take_word(struct topo_lexer *l, const char **word)
{
	topo_skip(l);
	*word = l->at;
	while (l->at < l->end && (isalnum((unsigned char)*l->at) || *l->at == '-'))
		l->at++;
	return (size_t)(l->at - *word);
}

static int digit_of(char c, unsigned base)
{
	int d = -1;

	if (c >= '0' && c <= '9')
		d = c - '0';
	else if (c >= 'a' && c <= 'f')
		d = c - 'a' + 10;
	else if (c >= 'A' && c <= 'F')
		d = c - 'A' + 10;
	return d >= (int)base ? -1 : d;
}

/* Digits of a base; -EINVAL: none, -ERANGE: more than max. */
static int topo_take_digits(struct topo_lexer *l, unsigned base, u64 max, u64 *out)
{
	const char *begin = l->at;
	u64 value = 0;

	for (; l->at < l->end; l->at++) {
		int d = digit_of(*l->at, base);

		if (d < 0)
			break;
		if (value > (max - (u64)d) / base || (u64)d > max)
			return -ERANGE;
		value = value * base + (u64)d;
	}
	if (l->at == begin)
		return -EINVAL;
	*out = value;
	return 0;
}

int topo_take_number(struct topo_lexer *l, const char *what, u64 max, u64 *out)
{
	const char *begin;
	int err;

	topo_skip(l);
	begin = l->at;
	err = topo_take_digits(l, topo_take(l, "0x") ? 16 : 10, max, out);
	if (err == -ERANGE)
		return topo_fail(l, begin, "%s is more than %llu", what, (unsigned long long)max);
	if (err != 0)
		return topo_fail(l, begin, "%s must be a number", what);
	return 0;
}

int topo_take_guid(struct topo_lexer *l, u64 *out)
{
	const char *begin;

	topo_skip(l);
	begin = l->at;
	(void)topo_take(l, "0x");
	if (topo_take_digits(l, 16, UINT64_MAX, out) != 0)
		return topo_fail(l, begin, "a GUID must be at most 16 hexadecimal digits");
	return 0;
}

int topo_take_quoted(struct topo_lexer *l, const char *what, char *out, size_t room)
{
	const char *begin, *close;
	size_t n;

	topo_skip(l);
	begin = l->at;
	if (!topo_take(l, "\""))
		return topo_fail(l, begin, "%s in quotes must stand here", what);
	for (close = l->at; close < l->end && *close != '"' && *close != '\n'; close++)
		if (!isprint((unsigned char)*close))
			return topo_fail(l, close, "%s has a character that is not printable",
					 what);
	if (close == l->end || *close == '\n')
		return topo_fail(l, begin, "%s has no closing quote", what);
	n = (size_t)(close - l->at);
	if (n >= room)
		return topo_fail(l, begin, "%s has more than %zu characters", what, room - 1);
	memcpy(out, l->at, n);
	out[n] = '\0';
	l->at = close + 1;
	return 0;
}
