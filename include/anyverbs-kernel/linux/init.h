/* init.h: how a module begins and ends: linux/module.h. */
#ifndef ANYVERBS_LINUX_INIT_H
#define ANYVERBS_LINUX_INIT_H

#include <linux/compiler.h>
#include <linux/types.h>

/* One per module_init; lives as long as the program. */
struct anyverbs_module {
	int (*init)(void);
	void (*exit)(void);
	struct anyverbs_module *next;
	bool is_running;
};

void anyverbs_module_add_init(struct anyverbs_module *module, int (*init)(void));
void anyverbs_module_add_exit(struct anyverbs_module *module, void (*exit)(void));

/* A constructor notes the function; anyverbs_modules_init of the program calls it. The first
 * declaration makes the record of this source file, whichever of both comes first. */
static struct anyverbs_module anyverbs_this_module __attribute__((__unused__));

#define module_init(function)                                                                      \
	static __attribute__((__constructor__)) void anyverbs_module_init_##function(void)         \
	{                                                                                          \
		anyverbs_module_add_init(&anyverbs_this_module, function);                         \
	}                                                                                          \
	_Static_assert(1, "")
#define module_exit(function)                                                                      \
	static __attribute__((__constructor__)) void anyverbs_module_exit_##function(void)         \
	{                                                                                          \
		anyverbs_module_add_exit(&anyverbs_this_module, function);                         \
	}                                                                                          \
	_Static_assert(1, "")
#define late_initcall(function) module_init(function)
#define subsys_initcall(function) module_init(function)

#endif
