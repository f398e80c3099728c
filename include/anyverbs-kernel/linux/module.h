/* module.h: modules. A module is a source file with module_init and, if it can end, module_exit in
 * it, linked into a program.
 *
 * The program begins its modules by anyverbs_modules_init, in the order in which they were linked,
 * and ends them by anyverbs_modules_exit, in the opposite order (anyverbs/module.h). A program
 * that has no main of its own gets one that does so (the same header says how it is used).
 */
#ifndef ANYVERBS_LINUX_MODULE_H
#define ANYVERBS_LINUX_MODULE_H

#include <linux/export.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/moduleparam.h>

/* Code is never unloaded, so nothing counts its users. */
struct module;
#define THIS_MODULE ((struct module *)0)
#define try_module_get(module) ((void)(module), true)
#define module_put(module) ((void)(module))
#define __module_get(module) ((void)(module))
#define module_name(module) ((void)(module), "module")

#define MODULE_LICENSE(text) _Static_assert(1, "")
#define MODULE_AUTHOR(text) _Static_assert(1, "")
#define MODULE_DESCRIPTION(text) _Static_assert(1, "")
#define MODULE_VERSION(text) _Static_assert(1, "")
#define MODULE_ALIAS(text) _Static_assert(1, "")
#define MODULE_SOFTDEP(text) _Static_assert(1, "")
#define MODULE_DEVICE_TABLE(type, table) _Static_assert(1, "")

#ifndef KBUILD_MODNAME
#define KBUILD_MODNAME "module"
#endif

#endif
