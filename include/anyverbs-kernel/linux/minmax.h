/* minmax.h: smaller and larger. Arguments are evaluated once; the compiler warns where the types of
 * both differ, as in the kernel. */
#ifndef ANYVERBS_LINUX_MINMAX_H
#define ANYVERBS_LINUX_MINMAX_H

#define anyverbs_pick_named(a, b, operator, x, y)                                                  \
	({                                                                                         \
		__typeof__(a) x = (a);                                                             \
		__typeof__(b) y = (b);                                                             \
		(void)(&x == &y);                                                                  \
		x operator y ? x : y;                                                              \
	})
#define anyverbs_name2(word, number) anyverbs_##word##number
#define anyverbs_name(word, number) anyverbs_name2(word, number)
/* Names of their own, so that none hides another where they are nested. */
#define anyverbs_pick(a, b, operator, n)                                                           \
	anyverbs_pick_named(a, b, operator, anyverbs_name(one, n), anyverbs_name(two, n))

#define min(a, b) anyverbs_pick(a, b, <, __COUNTER__)
#define max(a, b) anyverbs_pick(a, b, >, __COUNTER__)
#define min_t(type, a, b) min((type)(a), (type)(b))
#define max_t(type, a, b) max((type)(a), (type)(b))
#define min3(a, b, c)                                                                              \
	({                                                                                         \
		__typeof__(a) anyverbs_lesser = min(a, b);                                         \
		min(anyverbs_lesser, c);                                                           \
	})
#define max3(a, b, c)                                                                              \
	({                                                                                         \
		__typeof__(a) anyverbs_greater = max(a, b);                                        \
		max(anyverbs_greater, c);                                                          \
	})
#define min_not_zero(a, b)                                                                         \
	({                                                                                         \
		__typeof__(a) anyverbs_one = (a);                                                  \
		__typeof__(b) anyverbs_other = (b);                                                \
		!anyverbs_one	? anyverbs_other                                                   \
		: !anyverbs_other ? anyverbs_one                                                   \
				  : min(anyverbs_one, anyverbs_other);                             \
	})
#define clamp(value, low, high)                                                                    \
	({                                                                                         \
		__typeof__(value) anyverbs_raised = max(value, low);                               \
		min(anyverbs_raised, high);                                                        \
	})
#define clamp_t(type, value, low, high) min_t(type, max_t(type, value, low), high)
#define swap(a, b)                                                                                 \
	do {                                                                                       \
		__typeof__(a) anyverbs_kept = (a);                                                 \
		(a) = (b);                                                                         \
		(b) = anyverbs_kept;                                                               \
	} while (0)

#endif
