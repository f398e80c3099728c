/* container_of.h: from a member to its structure. */
#ifndef ANYVERBS_LINUX_CONTAINER_OF_H
#define ANYVERBS_LINUX_CONTAINER_OF_H

#include <stddef.h>

/* The compiler refuses a pointer to anything but `type.member` (or void). */
#define container_of(pointer, type, member)                                                        \
	({                                                                                         \
		const __typeof__(((type *)0)->member) *anyverbs_member = (pointer);                \
		(type *)((char *)anyverbs_member - offsetof(type, member));                        \
	})

#endif
