/* uaccess.h: the program that hosts a module has its own memory: copies never fail. They return how
 * many bytes were not copied, 0. */
#ifndef ANYVERBS_LINUX_UACCESS_H
#define ANYVERBS_LINUX_UACCESS_H

#include <linux/compiler.h>
#include <linux/types.h>

static inline unsigned long copy_from_user(void *to, const void __user *from, unsigned long n)
{
	__builtin_memcpy(to, from, n);
	return 0;
}

static inline unsigned long copy_to_user(void __user *to, const void *from, unsigned long n)
{
	__builtin_memcpy(to, from, n);
	return 0;
}

#define get_user(x, pointer) ((x) = *(pointer), 0)
#define put_user(x, pointer) (*(pointer) = (x), 0)
#define access_ok(pointer, size) ((void)(pointer), (void)(size), 1)

#endif
