/* llist.h: lists that are pushed to, and emptied, without a lock. Never blocks, any context.
 *
 * llist_add and llist_del_all may be called by any thread at any time; of llist_del_first one call
 * at a time, and none beside llist_del_all. What is done before a node is added is visible to the
 * thread that takes it off.
 */
#ifndef ANYVERBS_LINUX_LLIST_H
#define ANYVERBS_LINUX_LLIST_H

#include <linux/container_of.h>
#include <linux/types.h>

struct llist_node {
	struct llist_node *next;
};

struct llist_head {
	struct llist_node *first;
};

#define LLIST_HEAD_INIT(name)                                                                      \
	{                                                                                          \
		(void *)0                                                                          \
	}
#define LLIST_HEAD(name) struct llist_head name = LLIST_HEAD_INIT(name)

static inline void init_llist_head(struct llist_head *list)
{
	list->first = (void *)0;
}

static inline bool llist_empty(const struct llist_head *head)
{
	return !__atomic_load_n(&head->first, __ATOMIC_RELAXED);
}

/* Adds the nodes from `first` to `last`. Whether the list was empty. */
static inline bool llist_add_batch(struct llist_node *first, struct llist_node *last,
				   struct llist_head *head)
{
	struct llist_node *old = __atomic_load_n(&head->first, __ATOMIC_RELAXED);

	do
		__atomic_store_n(&last->next, old, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&head->first, &old, first, true, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED));
	return !old;
}

static inline bool llist_add(struct llist_node *node, struct llist_head *head)
{
	return llist_add_batch(node, node, head);
}

/* All of the list, the last that was added first; NULL: it is empty. */
static inline struct llist_node *llist_del_all(struct llist_head *head)
{
	return __atomic_exchange_n(&head->first, (void *)0, __ATOMIC_ACQUIRE);
}

/* The node that was added last; NULL: the list is empty. */
static inline struct llist_node *llist_del_first(struct llist_head *head)
{
	struct llist_node *node = __atomic_load_n(&head->first, __ATOMIC_ACQUIRE), *next;

	do {
		if (!node)
			return node;
		next = __atomic_load_n(&node->next, __ATOMIC_RELAXED);
	} while (!__atomic_compare_exchange_n(&head->first, &node, next, true, __ATOMIC_ACQUIRE,
					      __ATOMIC_ACQUIRE));
	return node;
}

/* Turns a list that was taken off around. */
static inline struct llist_node *llist_reverse_order(struct llist_node *head)
{
	struct llist_node *turned = (void *)0, *next;

	for (; head; head = next) {
		next = head->next;
		head->next = turned;
		turned = head;
	}
	return turned;
}

#define llist_next(node) ((node)->next)
#define llist_entry(pointer, type, member) container_of(pointer, type, member)
#define llist_for_each(node, first) for ((node) = (first); (node); (node) = (node)->next)
#define llist_for_each_safe(node, ahead, first)                                                    \
	for ((node) = (first); (node) && ((ahead) = (node)->next, true); (node) = (ahead))

/* The entry at a node, or NULL at the end. */
#define anyverbs_llist_entry(node, type, member)                                                   \
	({                                                                                         \
		struct llist_node *anyverbs_node = (node);                                         \
		anyverbs_node ? llist_entry(anyverbs_node, type, member) : (type *)0;              \
	})
#define llist_for_each_entry(entry, node, member)                                                  \
	for ((entry) = anyverbs_llist_entry(node, __typeof__(*(entry)), member); (entry);          \
	     (entry) = anyverbs_llist_entry((entry)->member.next, __typeof__(*(entry)), member))
/* The entry may be freed in the walk. */
#define llist_for_each_entry_safe(entry, ahead, node, member)                                      \
	for ((entry) = anyverbs_llist_entry(node, __typeof__(*(entry)), member);                   \
	     (entry) &&                                                                            \
	     ((ahead) = anyverbs_llist_entry((entry)->member.next, __typeof__(*(entry)), member),  \
	     true);                                                                                \
	     (entry) = (ahead))

#endif
