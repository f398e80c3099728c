/* smp.h: processors. A thread may go on elsewhere at any time, so a number is only a hint, as
 * raw_smp_processor_id's is in the kernel. */
#ifndef ANYVERBS_LINUX_SMP_H
#define ANYVERBS_LINUX_SMP_H

#include <linux/cpumask.h>
#include <linux/sched.h>

#define raw_smp_processor_id() sched_getcpu()

#endif
