/* rates.h: the tables of `anyverbs top`: what happens per second between two surveys. */
#ifndef ANYVERBS_RATES_H
#define ANYVERBS_RATES_H

#include "survey.h"
#include "table.h"

enum rates_view { VIEW_PROCESSES, VIEW_QPS, VIEW_DEVICES, VIEW_DROPS, RATES_VIEWS };

/* Sums over all processes; sent and received per second. */
struct rates_sum {
	u32 processes, qps, qps_err;
	double sent, received, sent_bytes, received_bytes, direct;
	u64 errors, drops;
} OWNED_BY(the only thread);

/* The name of a view as options have it, the column that it is sorted by first. */
extern const char *const rates_view_names[RATES_VIEWS];
extern const char *const rates_view_sorts[RATES_VIEWS];

/* Fills an initialized table. Texts stay those of `now`. `before` is NULL, or of `seconds` ago:
 * then processes and queue pairs that were there have rates, and all others 0. False: no memory. */
bool rates_fill(struct table *t, enum rates_view view, const struct survey *now,
		const struct survey *before, double seconds);
void rates_table(struct table *t, enum rates_view view);
/* The view's columns that lines have: the host of a fabric only where a process is on one. `now`
 * may be NULL. */
u32 rates_drawn(enum rates_view view, const struct survey *now);
void rates_add_up(const struct survey *now, const struct survey *before, double seconds,
		  struct rates_sum *out);

#endif
