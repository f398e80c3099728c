/* cpumask.h: how many processors there are. */
#ifndef ANYVERBS_LINUX_CPUMASK_H
#define ANYVERBS_LINUX_CPUMASK_H

#include <unistd.h>

#define num_online_cpus() ((unsigned int)sysconf(_SC_NPROCESSORS_ONLN))
#define num_possible_cpus() ((unsigned int)sysconf(_SC_NPROCESSORS_CONF))
#define num_present_cpus() num_possible_cpus()
#define nr_cpu_ids num_possible_cpus()

#endif
