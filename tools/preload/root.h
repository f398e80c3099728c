/* root.h: where the tree lies that stands for /sys. */
#ifndef PRELOAD_ROOT_H
#define PRELOAD_ROOT_H

#include <stdbool.h>
#include <stddef.h>

/* Writes the tree's folder (the counterpart of "/sys") into `out`. False: there is none, and the
 * machine's own paths are to be shown. Asks, in this order: the stack in this process,
 * ANYVERBS_SYSFS, the places where a node keeps its folder. */
bool root_find(char *out, size_t size);

#endif
