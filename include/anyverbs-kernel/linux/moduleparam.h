/* moduleparam.h: parameters of modules. The program sets them before it begins its modules
 * (anyverbs_module_param of anyverbs/module.h); `permissions` have no meaning.
 *
 * Types: bool, byte, short, ushort, int, uint, long, ulong, ullong, charp. The compiler refuses a
 * variable of another type.
 */
#ifndef ANYVERBS_LINUX_MODULEPARAM_H
#define ANYVERBS_LINUX_MODULEPARAM_H

#include <linux/init.h>
#include <linux/stat.h>

enum anyverbs_param_type {
	ANYVERBS_PARAM_bool,
	ANYVERBS_PARAM_byte,
	ANYVERBS_PARAM_short,
	ANYVERBS_PARAM_ushort,
	ANYVERBS_PARAM_int,
	ANYVERBS_PARAM_uint,
	ANYVERBS_PARAM_long,
	ANYVERBS_PARAM_ulong,
	ANYVERBS_PARAM_ullong,
	ANYVERBS_PARAM_charp,
};

struct anyverbs_param {
	const char *name;
	void *variable;
	enum anyverbs_param_type type;
	struct anyverbs_param *next;
};

void anyverbs_param_add(struct anyverbs_param *param);

#define ANYVERBS_PARAM_IS(variable)                                                                \
	_Generic(&(variable), bool *                                                               \
		 : ANYVERBS_PARAM_bool, unsigned char *                                            \
		 : ANYVERBS_PARAM_byte, short *                                                    \
		 : ANYVERBS_PARAM_short, unsigned short *                                          \
		 : ANYVERBS_PARAM_ushort, int *                                                    \
		 : ANYVERBS_PARAM_int, unsigned int *                                              \
		 : ANYVERBS_PARAM_uint, long *                                                     \
		 : ANYVERBS_PARAM_long, unsigned long *                                            \
		 : ANYVERBS_PARAM_ulong, unsigned long long *                                      \
		 : ANYVERBS_PARAM_ullong, char **                                                  \
		 : ANYVERBS_PARAM_charp)

/* `of` is pasted before it is passed on: bool is a macro. */
#define anyverbs_module_param_record(name, variable, of)                                           \
	_Static_assert(ANYVERBS_PARAM_IS(variable) == (of), "the variable has another type");      \
	static __attribute__((__constructor__)) void anyverbs_param_of_##name(void)                \
	{                                                                                          \
		static struct anyverbs_param param = { #name, &(variable), of, (void *)0 };        \
		anyverbs_param_add(&param);                                                        \
	}                                                                                          \
	_Static_assert(1, "")
#define module_param_named(name, variable, type, permissions)                                      \
	anyverbs_module_param_record(name, variable, ANYVERBS_PARAM_##type)
#define module_param(name, type, permissions)                                                      \
	anyverbs_module_param_record(name, name, ANYVERBS_PARAM_##type)
#define MODULE_PARM_DESC(name, text) _Static_assert(1, "")

#endif
