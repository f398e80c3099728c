/* export.h: every symbol of a program is visible to its modules. */
#ifndef ANYVERBS_LINUX_EXPORT_H
#define ANYVERBS_LINUX_EXPORT_H

#define EXPORT_SYMBOL(name) _Static_assert(1, "")
#define EXPORT_SYMBOL_GPL(name) _Static_assert(1, "")

#endif
