/* list.h: operations on the intrusive circular list. No locking of its own: the owner's lock
 * covers it. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include "base/compiler.h"

#define LIST_HEAD_INIT(name) { &(name), &(name) }

static inline void list_init(struct list_head *head)
{
	head->next = head->prev = head;
}

static inline bool list_empty(const struct list_head *head)
{
	return head->next == head;
}

static inline void list_insert(struct list_head *node, struct list_head *prev,
			       struct list_head *next)
{
	next->prev = node;
	node->next = next;
	node->prev = prev;
	prev->next = node;
}

static inline void list_push_front(struct list_head *head, struct list_head *node)
{
	list_insert(node, head, head->next);
}

static inline void list_push_back(struct list_head *head, struct list_head *node)
{
	list_insert(node, head->prev, head);
}

/* Leaves the node pointing at itself, so that removing it twice is harmless and list_empty(node)
 * means "on no list". */
static inline void list_remove(struct list_head *node)
{
	node->next->prev = node->prev;
	node->prev->next = node->next;
	list_init(node);
}

static inline struct list_head *list_pop_front(struct list_head *head)
{
	struct list_head *node = head->next;

	if (node == head)
		return NULL;
	list_remove(node);
	return node;
}

/* Moves everything from `from` to the end of `to`; `from` is empty afterwards. */
static inline void list_splice(struct list_head *from, struct list_head *to)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

/* In a forked child whose parent's other thread may have been inserting or removing: makes the list
 * that of the forward links. */
static inline void list_mend(struct list_head *head)
{
	for (struct list_head *at = head; ; at = at->next) {
		at->next->prev = at;
		if (at->next == head)
			return;
	}
}

#define list_entry(ptr, type, member) container_of(ptr, type, member)
#define list_first(head, type, member) list_entry((head)->next, type, member)
/* At the end `pos` is no element: what it points at lies around the head, and may not be aligned as
 * elements are. So its link is found by arithmetic. */
#define list_link(pos, type, member)                                                               \
	((struct list_head *)(void *)((char *)(pos) + offsetof(type, member)))
#define list_for_each(pos, head, type, member)                                                     \
	for (type *pos = list_entry((head)->next, type, member);                                   \
	     list_link(pos, type, member) != (head);                                               \
	     pos = list_entry(pos->member.next, type, member))
/* As above, while the body may remove `pos`. */
#define list_for_each_safe(pos, head, type, member)                                                \
	for (type *pos = list_entry((head)->next, type, member),                                   \
		  *pos##_next = list_entry(list_link(pos, type, member)->next, type, member);      \
	     list_link(pos, type, member) != (head); pos = pos##_next,                             \
		  pos##_next = list_entry(list_link(pos##_next, type, member)->next, type, member))

#endif
