/* kstrtox.h: numbers in texts. The simple_ family stops where the number ends and tells where; the
 * kstrto family takes nothing but one number, perhaps with a newline behind it. `base` 0: as
 * the text says (0x, 0). None of this blocks. */
#ifndef ANYVERBS_LINUX_KSTRTOX_H
#define ANYVERBS_LINUX_KSTRTOX_H

#include <linux/compiler.h>
#include <linux/types.h>
#include <stdlib.h>

#define simple_strtoul(text, end, base) strtoul(text, end, base)
#define simple_strtol(text, end, base) strtol(text, end, base)
#define simple_strtoull(text, end, base) strtoull(text, end, base)

/* 0; -EINVAL: no number, -ERANGE: it does not fit. *result stays untouched then. */
int kstrtoull(const char *text, unsigned int base, unsigned long long *result);
int kstrtoll(const char *text, unsigned int base, long long *result);
int kstrtoul(const char *text, unsigned int base, unsigned long *result);
int kstrtol(const char *text, unsigned int base, long *result);
int kstrtouint(const char *text, unsigned int base, unsigned int *result);
int kstrtoint(const char *text, unsigned int base, int *result);
int kstrtou16(const char *text, unsigned int base, u16 *result);
int kstrtou8(const char *text, unsigned int base, u8 *result);
/* The same of `size` bytes that a program has written to a file of the module; -EFAULT does not
 * happen here. */
int kstrtoint_from_user(const char __user *text, size_t size, unsigned int base, int *result);
int kstrtouint_from_user(const char __user *text, size_t size, unsigned int base,
			 unsigned int *result);

/* Takes y, Y, t, T, 1, on and n, N, f, F, 0, of. */
int kstrtobool(const char *text, bool *result);

#endif
