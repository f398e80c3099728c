/* map.c: a table from GUIDs to numbers: open addressing, entries are never taken out.
 * In:    keys    Out: numbers
 * Runs:  the host's thread    Locks: none
 */
#include <stdlib.h>

#include "sm/sm_priv.h"

static u32 sm_map_place(const struct sm_map *m, u64 key)
{
	u32 i = (u32)((key * 0x9e3779b97f4a7c15ull) >> 32) & (m->room - 1);

	while (m->key[i] != 0 && m->key[i] != key)
		i = (i + 1) & (m->room - 1);
	return i;
}

u32 sm_map_get(const struct sm_map *m, u64 key)
{
	u32 i;

	if (m->room == 0 || key == 0)
		return SM_NONE;
	i = sm_map_place(m, key);
	return m->key[i] == key ? m->value[i] : SM_NONE;
}

static bool sm_map_grow(struct sm_map *m)
{
	struct sm_map wide = { .room = m->room == 0 ? 64 : m->room * 2, .count = m->count };

	wide.key = calloc(wide.room, sizeof(*wide.key));
	wide.value = calloc(wide.room, sizeof(*wide.value));
	if (wide.key == NULL || wide.value == NULL) {
		sm_map_free(&wide);
		return false;
	}
	for (u32 i = 0; i < m->room; i++) {
		u32 to;

		if (m->key[i] == 0)
			continue;
		to = sm_map_place(&wide, m->key[i]);
		wide.key[to] = m->key[i];
		wide.value[to] = m->value[i];
	}
	sm_map_free(m);
	*m = wide;
	return true;
}

bool sm_map_put(struct sm_map *m, u64 key, u32 value)
{
	u32 i;

	if (key == 0 || (m->count * 2 >= m->room && !sm_map_grow(m)))
		return false;
	i = sm_map_place(m, key);
	m->count += m->key[i] == 0;
	m->key[i] = key;
	m->value[i] = value;
	return true;
}

void sm_map_free(struct sm_map *m)
{
	free(m->key);
	free(m->value);
	*m = (struct sm_map){ .room = 0 };
}
