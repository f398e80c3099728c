/* pairs.c: a hash table of pairs, and one of how many each process has.
 * In:    process numbers               Out: the processes to be told
 * Runs:  the daemon's only thread      Locks: none
 */
#include "daemon/pairs.h"

#include <stdlib.h>

static struct pair **pairs_bucket(struct pairs *p, u64 a, u64 b)
{
	u64 h = (a * 0x9e3779b97f4a7c15ull) ^ (b * 0xc2b2ae3d27d4eb4full);

	return &p->bucket[(h >> 40) % PAIRS_BUCKETS];
}

/* Returns the link to the pair, or to the end of its list. */
static struct pair **pairs_place(struct pairs *p, u64 low, u64 high)
{
	struct pair **place = pairs_bucket(p, low, high);

	while (*place != NULL && ((*place)->process[0] != low || (*place)->process[1] != high))
		place = &(*place)->next;
	return place;
}

struct pair *pairs_find(struct pairs *p, u64 a, u64 b)
{
	return *pairs_place(p, MIN(a, b), MAX(a, b));
}

static struct pairs_tally **pairs_tally_place(struct pairs *p, u64 process)
{
	struct pairs_tally **place = &p->tally[process % PAIRS_BUCKETS];

	while (*place != NULL && (*place)->process != process)
		place = &(*place)->next;
	return place;
}

/* False: no memory. */
static bool pairs_tally_up(struct pairs *p, u64 process)
{
	struct pairs_tally **place = pairs_tally_place(p, process);

	if (*place == NULL) {
		*place = calloc(1, sizeof(**place));
		if (*place == NULL)
			return false;
		(*place)->process = process;
	}
	(*place)->count++;
	return true;
}

static void pairs_tally_down(struct pairs *p, u64 process)
{
	struct pairs_tally **place = pairs_tally_place(p, process), *t = *place;

	if (--t->count != 0)
		return;
	*place = t->next;
	free(t);
}

struct pair *pairs_make(struct pairs *p, u64 a, u64 b)
{
	struct pair **place = pairs_place(p, MIN(a, b), MAX(a, b));

	if (*place != NULL)
		return *place;
	if (!pairs_tally_up(p, a))
		return NULL;
	if (!pairs_tally_up(p, b)) {
		pairs_tally_down(p, a);
		return NULL;
	}
	*place = calloc(1, sizeof(**place));
	if (*place == NULL) {
		pairs_tally_down(p, a);
		pairs_tally_down(p, b);
		return NULL;
	}
	(*place)->process[0] = MIN(a, b);
	(*place)->process[1] = MAX(a, b);
	p->count++;
	return *place;
}

void pairs_remove(struct pairs *p, u64 a, u64 b)
{
	struct pair **place = pairs_place(p, MIN(a, b), MAX(a, b)), *gone = *place;

	if (gone == NULL)
		return;
	*place = gone->next;
	free(gone);
	pairs_tally_down(p, a);
	pairs_tally_down(p, b);
	p->count--;
}

int pairs_end(const struct pair *pair, u64 process)
{
	return pair->process[1] == process;
}

void pairs_each(struct pairs *p, u64 process, void (*fn)(struct pair *pair, u64 other, void *arg),
		void *arg)
{
	for (u32 i = 0; i < PAIRS_BUCKETS; i++) {
		struct pair *next;

		for (struct pair *pair = p->bucket[i]; pair != NULL; pair = next) {
			next = pair->next;
			if (pair->process[0] == process || pair->process[1] == process)
				fn(pair, pair->process[!pairs_end(pair, process)], arg);
		}
	}
}

u32 pairs_count(struct pairs *p, u64 process)
{
	const struct pairs_tally *t = *pairs_tally_place(p, process);

	return t == NULL ? 0 : t->count;
}

void pairs_clear(struct pairs *p)
{
	for (u32 i = 0; i < PAIRS_BUCKETS; i++) {
		while (p->bucket[i] != NULL) {
			struct pair *gone = p->bucket[i];

			p->bucket[i] = gone->next;
			free(gone);
		}
		while (p->tally[i] != NULL) {
			struct pairs_tally *gone = p->tally[i];

			p->tally[i] = gone->next;
			free(gone);
		}
	}
	p->count = 0;
}
