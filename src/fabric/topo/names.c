/* names.c: finds nodes by id while a text is read.
 * In:    the nodes of a topology        Out: their indices
 * Runs:  its caller                     Locks: none
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/topo/names.h"

static u32 names_hash(const char *id)
{
	u32 h = 2166136261u; /* FNV-1a */

	for (; *id != '\0'; id++)
		h = (h ^ (u8)*id) * 16777619u;
	return h;
}

/* The place of an id: its own, or the empty one where it would stand. */
static u32 *names_place(const struct names *n, const struct topo *t, const char *id)
{
	u32 i = names_hash(id) & n->mask;

	while (n->place[i] != TOPO_NONE && strcmp(t->nodes[n->place[i]].id, id) != 0)
		i = (i + 1) & n->mask;
	return &n->place[i];
}

static int names_double(struct names *n, const struct topo *t)
{
	u32 size = n->place == NULL ? 64 : (n->mask + 1) * 2;
	u32 *place = malloc(size * sizeof(*place));

	if (place == NULL)
		return -ENOMEM;
	free(n->place);
	n->place = place;
	n->mask = size - 1;
	memset(place, 0xff, size * sizeof(*place));
	for (u32 i = 0; i < n->count; i++)
		*names_place(n, t, t->nodes[i].id) = i;
	return 0;
}

int names_add(struct names *n, const struct topo *t, u32 node)
{
	u32 *place;
	int err;

	if (n->place == NULL || n->count * 2 > n->mask) {
		err = names_double(n, t);
		if (err != 0)
			return err;
	}
	place = names_place(n, t, t->nodes[node].id);
	if (*place != TOPO_NONE)
		return -EEXIST;
	*place = node;
	n->count++;
	return 0;
}

u32 names_find(const struct names *n, const struct topo *t, const char *id)
{
	return n->place == NULL ? TOPO_NONE : *names_place(n, t, id);
}

void names_free(struct names *n)
{
	free(n->place);
	*n = (struct names){ 0 };
}
