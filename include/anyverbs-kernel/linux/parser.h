/* parser.h: options of the form name=value, by a table of patterns. Does not block.
 *
 * A pattern has at most one of %s (to the end), %d, %u, %x (numbers), behind the text that comes
 * first. */
#ifndef ANYVERBS_LINUX_PARSER_H
#define ANYVERBS_LINUX_PARSER_H

#include <linux/types.h>

enum { MAX_OPT_ARGS = 3 };

struct match_token {
	int token;
	const char *pattern; /* NULL ends the table: its token is that of what matches none */
};

typedef struct match_token match_table_t[];

typedef struct {
	char *from, *to;
} substring_t;

/* The token of the first pattern that is the whole of `text`, and what its % stands for. */
int match_token(char *text, const match_table_t table, substring_t arguments[]);
/* 0, or -EINVAL, -ERANGE. */
int match_int(substring_t *argument, int *result);
/* A copy, for kfree; NULL: no memory. */
char *match_strdup(const substring_t *argument);

#endif
