/* bug.h: assertions. BUG ends the program by SIGABRT; WARN prints the place and goes on. May be
 * called in any context. */
#ifndef ANYVERBS_LINUX_BUG_H
#define ANYVERBS_LINUX_BUG_H

#include <linux/build_bug.h>
#include <linux/compiler.h>
#include <linux/printk.h>
#include <stdlib.h>

#define BUG()                                                                                      \
	(printk(KERN_EMERG "BUG at %s:%d in %s()\n", __FILE__, __LINE__, __func__), abort())
#define BUG_ON(condition)                                                                          \
	do {                                                                                       \
		if (unlikely(condition))                                                           \
			BUG();                                                                     \
	} while (0)

#define anyverbs_warn(...)                                                                         \
	(printk(KERN_WARNING "WARNING at %s:%d in %s()\n", __FILE__, __LINE__, __func__),          \
	 printk("" __VA_ARGS__))

/* Each is worth its condition. */
#define WARN(condition, ...)                                                                       \
	({                                                                                         \
		bool anyverbs_bad = !!(condition);                                                 \
		if (unlikely(anyverbs_bad))                                                        \
			anyverbs_warn(__VA_ARGS__);                                                \
		unlikely(anyverbs_bad);                                                            \
	})
#define WARN_ONCE(condition, ...)                                                                  \
	({                                                                                         \
		bool anyverbs_bad = !!(condition);                                                 \
		if (unlikely(anyverbs_bad) && anyverbs_first_time())                               \
			anyverbs_warn(__VA_ARGS__);                                                \
		unlikely(anyverbs_bad);                                                            \
	})
#define WARN_ON(condition) WARN(condition, KERN_CONT "%s\n", #condition)
#define WARN_ON_ONCE(condition) WARN_ONCE(condition, KERN_CONT "%s\n", #condition)

#endif
