/* atomic.h: as asm/atomic.h. */
#include <asm/atomic.h>
