/* top.h: the parts of `anyverbs top`: what it shows, its two surveys, its frame. */
#ifndef ANYVERBS_TOP_H
#define ANYVERBS_TOP_H

#include "rates.h"

enum { TOP_FILTER = 32, TOP_LINE = 512, TOP_INTERVAL_MIN_MS = 100, TOP_INTERVAL_MAX_MS = 3600000 };

/* A survey and its moment. */
struct top_sample {
	struct survey survey;
	int err; /* of survey_take */
	u64 at_ns;
} OWNED_BY(the reader until it hands it over: then the only other thread);

struct top {
	enum rates_view view;
	u32 sort[RATES_VIEWS]; /* a column */
	bool descending[RATES_VIEWS];
	char filter[TOP_FILTER];
	bool editing;	 /* keys go to the filter */
	bool help;
	u32 first;	 /* row of the table at the top */
	u32 page;	 /* rows that fit */
	u32 shown;	 /* rows of the table */
	u32 interval_ms;
	bool once, json;
	struct top_sample *now, *before; /* NULL: none yet */
	bool asked;	 /* the reader is at it */
	u64 asked_ns;
} OWNED_BY(the only thread);

/* ---- top_reader.c: takes surveys in a thread of its own, so that keys work while the node does
 * not answer ---- */

/* Starts it. The descriptor of its answers; a negative errno. */
int top_reader_start(void);
/* Asks for a survey. */
void top_reader_ask(void);
/* Takes the answer: one is there when the descriptor is readable. */
struct top_sample *top_reader_take(void);
/* Takes a survey in the caller's thread; NULL: no memory. */
struct top_sample *top_sample_take(void);
void top_sample_free(struct top_sample *s);

/* ---- top_frame.c ---- */

/* The table of the chosen view, arranged. False: no memory. */
bool top_arrange(const struct top *t, enum rates_view view, struct table *table);
/* What is shown; NULL: nothing yet, or no node is up. */
const struct survey *top_now(const struct top *t);
/* Seconds between the two surveys; 0: there is one only. */
double top_seconds(const struct top *t);
/* The lines above the table; there are TOP_HEAD. */
enum { TOP_HEAD = 3 };
void top_head(const struct top *t, u32 i, char out[TOP_LINE]);
/* Draws the screen. False: the terminal is gone. */
bool top_draw(struct top *t);

/* ---- top_keys.c ---- */

/* Does what a key asks for. False: end the program. */
bool top_key(struct top *t, int key);
/* Is a column sorted from its greatest number down, and not from A or the first queue pair up? */
bool top_is_number(enum rates_view view, u32 column);
/* The columns that views are sorted by first. */
void top_sort_first(struct top *t);

#endif
