/* list.h: doubly linked lists inside structures. The lists' own owner locks them. None of this
 * blocks. struct list_head is <anyverbs/kernel.h>'s. */
#ifndef ANYVERBS_LINUX_LIST_H
#define ANYVERBS_LINUX_LIST_H

#include <linux/compiler.h>
#include <linux/container_of.h>
#include <linux/types.h>

#define LIST_HEAD_INIT(name) { &(name), &(name) }
#define LIST_HEAD(name) struct list_head name = LIST_HEAD_INIT(name)

/* What a removed element points to: a use after the removal faults. */
#define LIST_POISON1 ((void *)0x100)
#define LIST_POISON2 ((void *)0x122)

static inline void INIT_LIST_HEAD(struct list_head *list)
{
	WRITE_ONCE(list->next, list);
	WRITE_ONCE(list->prev, list);
}

static inline void anyverbs_list_join(struct list_head *prev, struct list_head *next)
{
	next->prev = prev;
	WRITE_ONCE(prev->next, next);
}

static inline void anyverbs_list_put(struct list_head *node, struct list_head *prev,
				     struct list_head *next)
{
	anyverbs_list_join(node, next);
	anyverbs_list_join(prev, node);
}

/* Right behind `head`: a stack. */
static inline void list_add(struct list_head *node, struct list_head *head)
{
	anyverbs_list_put(node, head, head->next);
}

/* Right before `head`: a queue. */
static inline void list_add_tail(struct list_head *node, struct list_head *head)
{
	anyverbs_list_put(node, head->prev, head);
}

static inline void list_del(struct list_head *node)
{
	anyverbs_list_join(node->prev, node->next);
	node->next = (struct list_head *)LIST_POISON1;
	node->prev = (struct list_head *)LIST_POISON2;
}

/* As list_del, and `node` is an empty list. */
static inline void list_del_init(struct list_head *node)
{
	anyverbs_list_join(node->prev, node->next);
	INIT_LIST_HEAD(node);
}

static inline void list_replace(struct list_head *old, struct list_head *node)
{
	anyverbs_list_join(node, old->next);
	anyverbs_list_join(old->prev, node);
}

static inline void list_move(struct list_head *node, struct list_head *head)
{
	anyverbs_list_join(node->prev, node->next);
	list_add(node, head);
}

static inline void list_move_tail(struct list_head *node, struct list_head *head)
{
	anyverbs_list_join(node->prev, node->next);
	list_add_tail(node, head);
}

/* May be asked without the list's lock; the answer may be old then. */
static inline bool list_empty(const struct list_head *head)
{
	return READ_ONCE(head->next) == head;
}

#define list_empty_careful(head) list_empty(head)

static inline bool list_is_last(const struct list_head *node, const struct list_head *head)
{
	return node->next == head;
}

static inline bool list_is_singular(const struct list_head *head)
{
	return !list_empty(head) && head->next == head->prev;
}

/* All of `list` goes right behind `head`; `list` itself is unusable then. */
static inline void list_splice(const struct list_head *list, struct list_head *head)
{
	if (list_empty(list))
		return;
	anyverbs_list_join(list->prev, head->next);
	anyverbs_list_join(head, list->next);
}

static inline void list_splice_init(struct list_head *list, struct list_head *head)
{
	list_splice(list, head);
	INIT_LIST_HEAD(list);
}

/* Right before `head`. */
static inline void list_splice_tail(struct list_head *list, struct list_head *head)
{
	list_splice(list, head->prev);
}

static inline void list_splice_tail_init(struct list_head *list, struct list_head *head)
{
	list_splice(list, head->prev);
	INIT_LIST_HEAD(list);
}

#define list_entry(pointer, type, member) container_of(pointer, type, member)
#define list_first_entry(head, type, member) list_entry((head)->next, type, member)
#define list_last_entry(head, type, member) list_entry((head)->prev, type, member)
#define list_first_entry_or_null(head, type, member)                                               \
	(list_empty(head) ? NULL : list_first_entry(head, type, member))
#define list_next_entry(entry, member)                                                             \
	list_entry((entry)->member.next, __typeof__(*(entry)), member)
#define list_prev_entry(entry, member)                                                             \
	list_entry((entry)->member.prev, __typeof__(*(entry)), member)

/* Those named _safe allow that the current element is removed. */
#define list_for_each(node, head)                                                                  \
	for ((node) = (head)->next; (node) != (head); (node) = (node)->next)
#define list_for_each_safe(node, ahead, head)                                                      \
	for ((node) = (head)->next, (ahead) = (node)->next; (node) != (head);                      \
	     (node) = (ahead), (ahead) = (node)->next)
#define list_entry_is_head(entry, head, member) (&(entry)->member == (head))
#define list_for_each_entry(entry, head, member)                                                   \
	for ((entry) = list_first_entry(head, __typeof__(*(entry)), member);                       \
	     !list_entry_is_head(entry, head, member); (entry) = list_next_entry(entry, member))
#define list_for_each_entry_reverse(entry, head, member)                                           \
	for ((entry) = list_last_entry(head, __typeof__(*(entry)), member);                        \
	     !list_entry_is_head(entry, head, member); (entry) = list_prev_entry(entry, member))
#define list_for_each_entry_safe(entry, ahead, head, member)                                       \
	for ((entry) = list_first_entry(head, __typeof__(*(entry)), member),                       \
	    (ahead) = list_next_entry(entry, member);                                              \
	     !list_entry_is_head(entry, head, member);                                             \
	     (entry) = (ahead), (ahead) = list_next_entry(ahead, member))
#define list_for_each_entry_continue(entry, head, member)                                          \
	for ((entry) = list_next_entry(entry, member);                                             \
	     !list_entry_is_head(entry, head, member); (entry) = list_next_entry(entry, member))

/* ---- lists with heads of one pointer --------------------------------------------------------- */

#define HLIST_HEAD_INIT { NULL }
#define HLIST_HEAD(name) struct hlist_head name = HLIST_HEAD_INIT
#define INIT_HLIST_HEAD(head) ((head)->first = NULL)

static inline void INIT_HLIST_NODE(struct hlist_node *node)
{
	node->next = NULL;
	node->pprev = NULL;
}

static inline bool hlist_unhashed(const struct hlist_node *node)
{
	return !node->pprev;
}

static inline bool hlist_empty(const struct hlist_head *head)
{
	return !READ_ONCE(head->first);
}

static inline void hlist_add_head(struct hlist_node *node, struct hlist_head *head)
{
	node->next = head->first;
	if (node->next)
		node->next->pprev = &node->next;
	WRITE_ONCE(head->first, node);
	node->pprev = &head->first;
}

static inline void hlist_del_init(struct hlist_node *node)
{
	if (hlist_unhashed(node))
		return;
	*node->pprev = node->next;
	if (node->next)
		node->next->pprev = node->pprev;
	INIT_HLIST_NODE(node);
}

#define hlist_del(node) hlist_del_init(node)
#define hlist_entry(pointer, type, member) container_of(pointer, type, member)
#define hlist_entry_safe(pointer, type, member)                                                    \
	({                                                                                         \
		struct hlist_node *anyverbs_node = (pointer);                                      \
		anyverbs_node ? hlist_entry(anyverbs_node, type, member) : NULL;                   \
	})
#define hlist_for_each_entry(entry, head, member)                                                  \
	for ((entry) = hlist_entry_safe((head)->first, __typeof__(*(entry)), member); (entry);     \
	     (entry) = hlist_entry_safe((entry)->member.next, __typeof__(*(entry)), member))
/* `ahead` is a struct hlist_node *. */
#define hlist_for_each_entry_safe(entry, ahead, head, member)                                      \
	for ((entry) = hlist_entry_safe((head)->first, __typeof__(*(entry)), member);              \
	     (entry) && ((ahead) = (entry)->member.next, true);                                    \
	     (entry) = hlist_entry_safe(ahead, __typeof__(*(entry)), member))

#endif
