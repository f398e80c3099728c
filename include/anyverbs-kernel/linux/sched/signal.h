/* signal.h: signals of tasks are in linux/sched.h. */
#include <linux/sched.h>
