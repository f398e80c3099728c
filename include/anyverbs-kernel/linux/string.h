/* string.h: the C library's, and Linux's own. Those that allocate are in linux/slab.h. */
#ifndef ANYVERBS_LINUX_STRING_H
#define ANYVERBS_LINUX_STRING_H

#include <linux/slab.h>
#include <linux/types.h>
#include <string.h>
#include <strings.h>

/* Copies what fits, always with a 0 behind it. strscpy returns how many bytes went, or -E2BIG. */
ssize_t strscpy(char *to, const char *from, size_t size);
/* As it is, but returns the length of `from`. Absent where the C library has one of its own. */
size_t anyverbs_strlcpy(char *to, const char *from, size_t size);
#define strlcpy(to, from, size) anyverbs_strlcpy(to, from, size)

/* Cuts white space off both ends, in place. */
char *strim(char *text);
#define strstrip(text) strim(text)

/* Equal, but for a newline at the end of either. */
bool sysfs_streq(const char *one, const char *other);

#endif
