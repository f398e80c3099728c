/* highmem.h: all memory is mapped: linux/mm.h. */
#include <linux/mm.h>
