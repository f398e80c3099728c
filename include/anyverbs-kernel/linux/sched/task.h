/* task.h: tasks are in linux/sched.h. */
#include <linux/kthread.h>
#include <linux/sched.h>
