/* root.h: finds the tree that stands for /sys. */
#ifndef PRELOAD_ROOT_H
#define PRELOAD_ROOT_H

#include <stdbool.h>
#include <stddef.h>

/* Writes the tree's folder (the counterpart of "/sys") into `out`. False: there is none, and the
 * machine's own paths are used. Asks, in this order: the stack in this process, ANYVERBS_SYSFS, the
 * places of a node's folder. */
bool root_find(char *out, size_t size);

#endif
