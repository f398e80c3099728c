/* tag.h: the tag list of a tag-matching SRQ: which posted buffer takes a message with a tag.
 *
 * An entry is a buffer with a tag and a mask. It matches a message if message.tag & mask == tag.
 * The first entry in the order of posting that matches takes the message. The list counts the
 * messages that no entry took (unexpected messages) and keeps entries from matching while their
 * poster may not know of one of them (phases: ibv_post_srq_ops(3)).
 *
 * Cost: an entry is found by hash, once for each distinct mask in use. Neither adding nor matching
 * depends on the number of entries. Nothing here blocks, and only init allocates.
 * Locks: none of its own. Every call is made under the SRQ's lock.
 */
#ifndef TAG_TAG_H
#define TAG_TAG_H

#include <infiniband/verbs.h>

#include "base/compiler.h"
#include "base/list.h"

enum {
	TAG_MAX_ENTRIES = 1 << 20,
	TAG_ROTATION = 256, /* entries that take turns, if the list has as many */
	TAG_LAG_MAX = 0x3fff,	   /* unexpected messages not told of before SYNC_REQ is asked */
};

enum tag_state {
	TAG_FREE,     /* on the free list */
	TAG_DEFERRED, /* in the list; matches nothing before the counts agree */
	TAG_ENABLED,  /* in the list and in the hash table */
	TAG_TAKEN,    /* a message has it; its owner calls tag_list_release */
};

/* One posted buffer. Its owner reads it; only tag.c writes it. */
struct tag_entry {
	u64 tag, mask;
	u64 recv_wr_id;
	u64 order;	     /* of posting; unique in the list */
	struct ibv_sge *sge; /* max_sge of them, the list's memory */
	u32 sge_count;
	u32 generation; /* of the handle; counts the uses of this entry */
	u32 next_group; /* enabled and first of its group: the next group's first; or NONE */
	enum tag_state state;
	/* Deferred or free: that list. Enabled: the ring of its group. Taken: its owner's */
	struct list_head link;
} OWNED_BY(ibt_srq.lock; while it is taken its owner reads it without);

/* A distinct mask and how many enabled entries have it. */
struct tag_mask {
	u64 mask;
	u32 count;
} OWNED_BY(ibt_srq.lock);

struct tag_list {
	struct tag_entry *entries;
	struct ibv_sge *sges;
	u32 *buckets; /* heads of chains of groups: index of an entry, or NONE */
	struct tag_mask *masks;
	u32 capacity, max_sge, bucket_mask;
	u32 mask_count;
	u32 used;	/* entries that are not free: never above capacity */
	u32 touched;	/* the first so many have been used */
	u32 index_bits; /* of a handle: the lowest; those above are the entry's generation */
	u64 next_order;
	u16 unexpected; /* messages that no entry took; wraps */
	u16 told;	/* what the consumer last said of it */
	struct list_head free, deferred;
} OWNED_BY(ibt_srq.lock);

/* An IBV_WR_TAG_ADD. */
struct tag_add {
	u64 tag, mask, recv_wr_id;
	const struct ibv_sge *sge; /* copied */
	u32 sge_count;		   /* at most max_sge */
} OWNED_BY(the caller);

/* Makes *list empty, for `capacity` entries (1 to TAG_MAX_ENTRIES) of `max_sge` elements each.
 * 0 or -ENOMEM. tag_list_destroy frees it; entries in it are forgotten. */
int tag_list_init(struct tag_list *list, u32 capacity, u32 max_sge);
void tag_list_destroy(struct tag_list *list);

/* Notes that the consumer has handled `count` unexpected messages (modulo 2^16). If that is all of
 * them, deferred entries match from now on, in the order of posting. */
void tag_list_sync(struct tag_list *list, u32 count);

/* True if the consumer has said that it knows all unexpected messages. Otherwise the completion of
 * a list operation carries IBV_WC_TM_SYNC_REQ. */
static inline bool tag_list_in_phase(const struct tag_list *list)
{
	return list->told == list->unexpected;
}

/* Is there no room for another entry? */
static inline bool tag_list_is_full(const struct tag_list *list)
{
	return list->used == list->capacity;
}

/* An entry's place among `entries`, below the list's capacity. */
static inline u32 tag_list_index(const struct tag_list *list, const struct tag_entry *entry)
{
	return (u32)(entry - list->entries);
}

/* Appends an entry. It matches at once if the counts agree, else after the tag_list_sync that
 * makes them agree. *handle names it in tag_list_delete. 0, or -ENOMEM if the list is full. */
int tag_list_add(struct tag_list *list, const struct tag_add *add, u32 *handle);

/* Removes an entry that no message has taken. 0; -ENOENT: a message has taken it, or it was
 * removed before; -EINVAL: no tag_list_add returned this handle. */
int tag_list_delete(struct tag_list *list, u32 handle);

/* The entry that takes a message with `tag`, or NULL. The caller owns the entry until
 * tag_list_release. */
struct tag_entry *tag_list_match(struct tag_list *list, u64 tag);

/* Gives an entry of tag_list_match back, once its buffer and elements are no longer read. */
void tag_list_release(struct tag_list *list, struct tag_entry *entry);

/* Counts an unexpected message. True: the consumer lags so far behind that the message's
 * completion asks for a TAG_SYNC. */
bool tag_list_count_unexpected(struct tag_list *list);
/* A message that was counted has broken off, so its consumer will not count it. If the counts agree
 * now, deferred entries match from now on. */
void tag_list_uncount_unexpected(struct tag_list *list);

#endif
