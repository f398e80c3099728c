/* numa.h: nodes of memory, of which a program has none of its own. */
#ifndef ANYVERBS_LINUX_NUMA_H
#define ANYVERBS_LINUX_NUMA_H

#define NUMA_NO_NODE (-1)
#define first_online_node 0
#define numa_node_id() 0
#define numa_mem_id() 0

#endif
