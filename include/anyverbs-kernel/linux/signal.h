/* signal.h: signals of tasks are in linux/sched.h; the numbers are the C library's. */
#ifndef ANYVERBS_LINUX_SIGNAL_H
#define ANYVERBS_LINUX_SIGNAL_H

#include <linux/sched.h>
#include <signal.h>

#endif
