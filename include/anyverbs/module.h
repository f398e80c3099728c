/* module.h: how a program hosts modules, that is kernel code over include/anyverbs-kernel/. The
 * functions are libanyverbs-kernel's; pkg-config's name for both is anyverbs-kernel.
 *
 * A program without a main of its own gets this one:
 *
 *   PROGRAM [PARAMETER=VALUE...]
 *
 * It sets the parameters, begins the modules and reads lines from standard input. "NAME TEXT"
 * writes TEXT and a newline to the module's /proc/NAME, "NAME" prints what is read there. At the
 * end of the input, and by SIGINT or SIGTERM, which interrupt what a write waits for, it ends the
 * modules. Its exit status is 0, or 1 if something of this failed.
 */
#ifndef ANYVERBS_MODULE_H
#define ANYVERBS_MODULE_H

#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sets a parameter, before the modules begin. 0; -ENOENT: no module has it; -EINVAL, -ERANGE: the
 * value is none of its type. */
int anyverbs_module_param(const char *name, const char *value);

/* Begins all modules, in the order of their linking. 0, or the error of one, whose predecessors
 * have been ended again. May sleep. */
int anyverbs_modules_init(void);
/* Ends them, in the opposite order. A module without a module_exit stays. */
void anyverbs_modules_exit(void);

/* Opens /proc/`name` of a module, writes `size` bytes at once, and releases it. The result of the
 * module's write; -ENOENT: there is no such file. May sleep. */
ssize_t anyverbs_proc_write(const char *name, const void *bytes, size_t size);
/* The whole of it, with a 0 behind it, in memory that the caller frees; its length, or an error. */
ssize_t anyverbs_proc_read(const char *name, char **text);

struct task_struct;

/* The calling thread's, never NULL; valid until the thread ends. */
struct task_struct *anyverbs_current(void);
/* Gives a thread a signal in the sense of linux/sched.h: its interruptible waits end with
 * -ERESTARTSYS until it calls anyverbs_uninterrupt. By any thread, not in a handler of signals. */
void anyverbs_interrupt(struct task_struct *task);
void anyverbs_uninterrupt(void);

#ifdef __cplusplus
}
#endif

#endif
