/* ratelimit.h: messages that come seldom (linux/printk.h). */
#include <linux/printk.h>
