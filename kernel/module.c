/* module.c: the modules that are linked into the program, and their parameters.
 * In:    constructors' records       Out: calls of the modules' functions
 * Runs:  the program's threads       Locks: none; constructors run before there are threads
 */
#include <anyverbs/module.h>
#include <linux/err.h>
#include <linux/init.h>
#include <linux/kstrtox.h>
#include <linux/moduleparam.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <string.h>

/* In the order of linking. */
static struct anyverbs_module *modules;
static struct anyverbs_param *params;

static struct anyverbs_module **module_find(const struct anyverbs_module *module)
{
	struct anyverbs_module **at = &modules;

	while (*at && *at != module)
		at = &(*at)->next;
	return at;
}

void anyverbs_module_add_init(struct anyverbs_module *module, int (*init)(void))
{
	module->init = init;
	*module_find(module) = module;
}

void anyverbs_module_add_exit(struct anyverbs_module *module, void (*exit)(void))
{
	module->exit = exit;
	*module_find(module) = module;
}

/* Those in front of `end` that run, the last one first. */
static void modules_exit_before(const struct anyverbs_module *end)
{
	struct anyverbs_module *last;

	do {
		last = NULL;
		for (struct anyverbs_module *m = modules; m != end; m = m->next)
			if (m->is_running && m->exit)
				last = m;
		if (last) {
			last->exit();
			last->is_running = false;
		}
	} while (last);
}

int anyverbs_modules_init(void)
{
	int err;

	for (struct anyverbs_module *m = modules; m; m = m->next) {
		if (m->is_running)
			continue;
		err = m->init ? m->init() : 0;
		if (err) {
			modules_exit_before(m);
			return err;
		}
		m->is_running = true;
	}
	return 0;
}

void anyverbs_modules_exit(void)
{
	modules_exit_before(NULL);
}

/* ---- parameters ------------------------------------------------------------------------------ */

void anyverbs_param_add(struct anyverbs_param *param)
{
	param->next = params;
	params = param;
}

#define PARAM_NUMBER(type, wide, parse)                                                            \
	{                                                                                          \
		wide n;                                                                            \
		int err = parse(value, 0, &n);                                                     \
		if (err == 0 && (wide)(type)n != n)                                                \
			err = -ERANGE;                                                             \
		if (err == 0)                                                                      \
			*(type *)param->variable = (type)n;                                        \
		return err;                                                                        \
	}

static int param_set(const struct anyverbs_param *param, const char *value)
{
	char *copy;

	switch (param->type) {
	case ANYVERBS_PARAM_bool:
		return kstrtobool(value, param->variable);
	case ANYVERBS_PARAM_byte:
		PARAM_NUMBER(unsigned char, unsigned long long, kstrtoull)
	case ANYVERBS_PARAM_short:
		PARAM_NUMBER(short, long long, kstrtoll)
	case ANYVERBS_PARAM_ushort:
		PARAM_NUMBER(unsigned short, unsigned long long, kstrtoull)
	case ANYVERBS_PARAM_int:
		PARAM_NUMBER(int, long long, kstrtoll)
	case ANYVERBS_PARAM_uint:
		PARAM_NUMBER(unsigned int, unsigned long long, kstrtoull)
	case ANYVERBS_PARAM_long:
		PARAM_NUMBER(long, long long, kstrtoll)
	case ANYVERBS_PARAM_ulong:
		PARAM_NUMBER(unsigned long, unsigned long long, kstrtoull)
	case ANYVERBS_PARAM_ullong:
		PARAM_NUMBER(unsigned long long, unsigned long long, kstrtoull)
	case ANYVERBS_PARAM_charp:
		copy = kstrdup(value, GFP_KERNEL); /* for the life of the program */
		if (!copy)
			return -ENOMEM;
		*(char **)param->variable = copy;
		return 0;
	}
	return -EINVAL;
}

int anyverbs_module_param(const char *name, const char *value)
{
	for (struct anyverbs_param *param = params; param; param = param->next)
		if (strcmp(param->name, name) == 0)
			return param_set(param, value);
	return -ENOENT;
}

/* ---- signals --------------------------------------------------------------------------------- */

void anyverbs_interrupt(struct task_struct *task)
{
	send_sig(0, task, 1);
}

void anyverbs_uninterrupt(void)
{
	flush_signals(current);
}
