/* table.c: ids by a key of two numbers, in a hash table that grows.
 * In: keys    Out: ids    Runs: under the instance's lock    Locks: none of its own
 */
#include <errno.h>
#include <stdlib.h>

#include "cm/ib/cm_priv.h"

enum { CM_BUCKETS_FIRST = 64 };

static struct cm_key **cm_table_bucket(const struct cm_table *t, u64 high, u64 low)
{
	u64 h = (high ^ low * 0x9e3779b97f4a7c15) * 0xd6e8feb86659fd93;

	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93;
	return &t->buckets[(h >> 32) & t->mask];
}

int cm_table_init(struct cm_table *t)
{
	*t = (struct cm_table){ .mask = CM_BUCKETS_FIRST - 1 };
	t->buckets = calloc(CM_BUCKETS_FIRST, sizeof(struct cm_key *));
	return t->buckets != NULL ? 0 : -ENOMEM;
}

void cm_table_destroy(struct cm_table *t)
{
	free(t->buckets);
	*t = (struct cm_table){ 0 };
}

/* At the end of its chain: ids of one key keep their order. */
static void cm_table_append(struct cm_table *t, struct cm_key *key)
{
	struct cm_key **at = cm_table_bucket(t, key->high, key->low);

	while (*at != NULL)
		at = &(*at)->next;
	key->next = NULL;
	*at = key;
}

static void cm_table_grow(struct cm_table *t)
{
	struct cm_table old = *t;
	struct cm_key **buckets = calloc((size_t)2 * (t->mask + 1), sizeof(struct cm_key *));

	if (buckets == NULL)
		return;
	t->buckets = buckets;
	t->mask = 2 * old.mask + 1;
	for (u32 i = 0; i <= old.mask; i++) {
		while (old.buckets[i] != NULL) {
			struct cm_key *key = old.buckets[i];

			old.buckets[i] = key->next;
			cm_table_append(t, key);
		}
	}
	free(old.buckets);
}

void cm_table_insert(struct cm_table *t, struct cm_key *key, u64 high, u64 low)
{
	if (t->count > t->mask)
		cm_table_grow(t);
	key->high = high;
	key->low = low;
	key->linked = true;
	cm_table_append(t, key);
	t->count++;
}

void cm_table_remove(struct cm_table *t, struct cm_key *key)
{
	struct cm_key **at;

	if (!key->linked)
		return;
	at = cm_table_bucket(t, key->high, key->low);
	while (*at != key)
		at = &(*at)->next;
	*at = key->next;
	key->next = NULL;
	key->linked = false;
	t->count--;
}

static struct cm_key *cm_table_search(struct cm_key *key, u64 high, u64 low)
{
	while (key != NULL && (key->high != high || key->low != low))
		key = key->next;
	return key;
}

struct cm_key *cm_table_find(const struct cm_table *t, u64 high, u64 low)
{
	return cm_table_search(*cm_table_bucket(t, high, low), high, low);
}

struct cm_key *cm_table_next(const struct cm_key *key)
{
	return cm_table_search(key->next, key->high, key->low);
}
