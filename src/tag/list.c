/* list.c: the tag list: entries by handle, groups of entries by (mask, tag), and phases.
 * In: list operations and tags of messages    Out: the entry that takes a message
 * Runs: the poster of operations, the receiver of messages    Locks: the SRQ's, held by the caller
 *
 * Enabled entries with the same mask and tag are a group: a ring in the order of posting. The hash
 * table's chains hold the first entry of each group. A message is looked up once per distinct
 * mask; of the groups found, the one whose first entry is oldest takes it.
 */
#include <errno.h>
#include <stdlib.h>

#include "tag/tag.h"

enum { NONE = UINT32_MAX };

static struct tag_entry *tag_list_entry_of(struct list_head *link)
{
	return container_of(link, struct tag_entry, link);
}

int tag_list_init(struct tag_list *list, u32 capacity, u32 max_sge)
{
	u32 buckets = 16;

	while (buckets < capacity)
		buckets *= 2;
	*list = (struct tag_list){ .capacity = capacity,
				   .max_sge = max_sge,
				   .bucket_mask = buckets - 1 };
	while (1u << list->index_bits < capacity)
		list->index_bits++;
	list->entries = calloc(capacity, sizeof(*list->entries));
	list->sges = calloc((size_t)capacity * max_sge, sizeof(*list->sges));
	list->buckets = malloc(buckets * sizeof(*list->buckets));
	list->masks = calloc(capacity, sizeof(*list->masks));
	if (list->entries == NULL || list->sges == NULL || list->buckets == NULL ||
	    list->masks == NULL) {
		tag_list_destroy(list);
		return -ENOMEM;
	}
	for (u32 i = 0; i < buckets; i++)
		list->buckets[i] = NONE;
	list_init(&list->free);
	list_init(&list->deferred);
	return 0;
}

void tag_list_destroy(struct tag_list *list)
{
	free(list->masks);
	free(list->buckets);
	free(list->sges);
	free(list->entries);
	*list = (struct tag_list){ 0 };
}

/* ---- groups ---- */

static u32 *tag_group_bucket(struct tag_list *list, u64 mask, u64 tag)
{
	u64 h = (tag ^ mask * 0x9e3779b97f4a7c15) * 0xd6e8feb86659fd93;

	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93;
	return &list->buckets[(h >> 32) & list->bucket_mask];
}

/* Where the index of the group's first entry stands; the index there is NONE if there is none. */
static u32 *tag_group_find(struct tag_list *list, u64 mask, u64 tag)
{
	u32 *at = tag_group_bucket(list, mask, tag);

	while (*at != NONE) {
		struct tag_entry *first = &list->entries[*at];

		if (first->tag == tag && first->mask == mask)
			break;
		at = &first->next_group;
	}
	return at;
}

static void mask_get(struct tag_list *list, u64 mask)
{
	u32 i = 0;

	while (i < list->mask_count && list->masks[i].mask != mask)
		i++;
	if (i == list->mask_count)
		list->masks[list->mask_count++] = (struct tag_mask){ .mask = mask };
	list->masks[i].count++;
}

static void mask_put(struct tag_list *list, u64 mask)
{
	u32 i = 0;

	while (list->masks[i].mask != mask)
		i++;
	if (--list->masks[i].count == 0)
		list->masks[i] = list->masks[--list->mask_count];
}

/* Entries are enabled in the order of posting, so the end of the ring is the right place. */
static void tag_group_join(struct tag_list *list, struct tag_entry *entry)
{
	u32 *at = tag_group_find(list, entry->mask, entry->tag);

	entry->state = TAG_ENABLED;
	mask_get(list, entry->mask);
	if (*at != NONE) {
		list_push_back(&list->entries[*at].link, &entry->link);
		return;
	}
	list_init(&entry->link);
	entry->next_group = NONE;
	*at = tag_list_index(list, entry);
}

/* `at`: where tag_group_find finds the entry's group. */
static void tag_group_leave(struct tag_list *list, struct tag_entry *entry, u32 *at)
{
	mask_put(list, entry->mask);
	if (*at == tag_list_index(list, entry)) {
		u32 next_group = entry->next_group;

		if (list_empty(&entry->link)) {
			*at = next_group;
			return;
		}
		struct tag_entry *second = tag_list_entry_of(entry->link.next);

		second->next_group = next_group;
		*at = tag_list_index(list, second);
	}
	list_remove(&entry->link);
}

/* ---- entries ---- */

/* A few entries take turns even if one would do: a handle that is used too late shall not meet the
 * same number again soon. Not all of them: they would fill the caches. */
static struct tag_entry *entry_get(struct tag_list *list)
{
	struct tag_entry *entry;

	if (tag_list_is_full(list))
		return NULL;
	if (list->touched < list->capacity &&
	    (list->used == list->touched || list->touched < TAG_ROTATION)) {
		entry = &list->entries[list->touched];
		entry->sge = &list->sges[(size_t)list->touched * list->max_sge];
		list->touched++;
	} else {
		entry = tag_list_entry_of(list_pop_front(&list->free));
	}
	list->used++;
	return entry;
}

static void entry_put(struct tag_list *list, struct tag_entry *entry)
{
	entry->state = TAG_FREE;
	entry->generation++;
	/* At the end: a handle that is used too late names a freed entry as long as possible. */
	list_push_back(&list->free, &entry->link);
	list->used--;
}

static u32 entry_handle(const struct tag_list *list, const struct tag_entry *entry)
{
	return entry->generation << list->index_bits | tag_list_index(list, entry);
}

int tag_list_add(struct tag_list *list, const struct tag_add *add, u32 *handle)
{
	struct tag_entry *entry = entry_get(list);

	if (entry == NULL)
		return -ENOMEM;
	entry->tag = add->tag;
	entry->mask = add->mask;
	entry->recv_wr_id = add->recv_wr_id;
	entry->order = list->next_order++;
	entry->sge_count = add->sge_count;
	for (u32 i = 0; i < add->sge_count; i++)
		entry->sge[i] = add->sge[i];
	*handle = entry_handle(list, entry);
	if (tag_list_in_phase(list)) {
		tag_group_join(list, entry);
	} else {
		entry->state = TAG_DEFERRED;
		list_push_back(&list->deferred, &entry->link);
	}
	return 0;
}

int tag_list_delete(struct tag_list *list, u32 handle)
{
	u32 index = handle & ((1u << list->index_bits) - 1);
	struct tag_entry *entry = &list->entries[index];

	if (index >= list->touched ||
	    handle >> list->index_bits > (entry->generation & UINT32_MAX >> list->index_bits))
		return -EINVAL;
	if (entry_handle(list, entry) != handle)
		return -ENOENT;
	switch (entry->state) {
	case TAG_ENABLED:
		tag_group_leave(list, entry, tag_group_find(list, entry->mask, entry->tag));
		break;
	case TAG_DEFERRED:
		list_remove(&entry->link);
		break;
	case TAG_FREE:
	case TAG_TAKEN:
		return -ENOENT;
	}
	entry_put(list, entry);
	return 0;
}

struct tag_entry *tag_list_match(struct tag_list *list, u64 tag)
{
	struct tag_entry *oldest = NULL;
	u32 *oldest_at = NULL;

	for (u32 i = 0; i < list->mask_count; i++) {
		u64 mask = list->masks[i].mask;
		u32 *at = tag_group_find(list, mask, tag & mask);

		if (*at != NONE &&
		    (oldest == NULL || list->entries[*at].order < oldest->order)) {
			oldest = &list->entries[*at];
			oldest_at = at;
		}
	}
	if (oldest != NULL) {
		tag_group_leave(list, oldest, oldest_at);
		oldest->state = TAG_TAKEN;
	}
	return oldest;
}

void tag_list_release(struct tag_list *list, struct tag_entry *entry)
{
	entry_put(list, entry);
}

/* ---- phases ---- */

/* The entries that have waited for the counts to agree match from now on, if they do. */
static void tag_list_enable(struct tag_list *list)
{
	struct list_head *link;

	if (!tag_list_in_phase(list))
		return;
	while ((link = list_pop_front(&list->deferred)) != NULL)
		tag_group_join(list, tag_list_entry_of(link));
}

void tag_list_sync(struct tag_list *list, u32 count)
{
	list->told = (u16)count;
	tag_list_enable(list);
}

bool tag_list_count_unexpected(struct tag_list *list)
{
	list->unexpected++;
	return (u16)(list->unexpected - list->told) > TAG_LAG_MAX;
}

void tag_list_uncount_unexpected(struct tag_list *list)
{
	list->unexpected--;
	tag_list_enable(list);
}
