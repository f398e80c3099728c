/* build_bug.h: assertions for the compiler. */
#ifndef ANYVERBS_LINUX_BUILD_BUG_H
#define ANYVERBS_LINUX_BUILD_BUG_H

#define BUILD_BUG_ON(condition) _Static_assert(!(condition), #condition)
#define BUILD_BUG_ON_MSG(condition, message) _Static_assert(!(condition), message)
#ifndef static_assert
#define static_assert _Static_assert
#endif

#endif
