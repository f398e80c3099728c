/* stddef.h: NULL, offsetof, sizeof_field. */
#ifndef ANYVERBS_LINUX_STDDEF_H
#define ANYVERBS_LINUX_STDDEF_H

#include_next <linux/stddef.h>

#include <stdbool.h>
#include <stddef.h>

#define sizeof_field(type, member) sizeof(((type *)0)->member)
#define offsetofend(type, member) (offsetof(type, member) + sizeof_field(type, member))

#endif
