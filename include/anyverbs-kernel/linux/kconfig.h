/* kconfig.h: options of the kernel. An option is enabled if the compiler is told so
 * (-DCONFIG_FOO=1). */
#ifndef ANYVERBS_LINUX_KCONFIG_H
#define ANYVERBS_LINUX_KCONFIG_H

/* 1 if the macro `option` is 1, else 0: only then does the pasted name stand for two arguments. */
#define ANYVERBS_OPTION_1 unused, 1
#define ANYVERBS_OPTION_SECOND(first, second, ...) second
#define ANYVERBS_OPTION_CHOOSE(...) ANYVERBS_OPTION_SECOND(__VA_ARGS__, 0, 0)
#define ANYVERBS_OPTION_PASTE(value) ANYVERBS_OPTION_CHOOSE(ANYVERBS_OPTION_##value)
#define ANYVERBS_OPTION_VALUE(option) ANYVERBS_OPTION_PASTE(option)

#define IS_BUILTIN(option) ANYVERBS_OPTION_VALUE(option)
#define IS_ENABLED(option) ANYVERBS_OPTION_VALUE(option)
#define IS_REACHABLE(option) ANYVERBS_OPTION_VALUE(option)

#endif
