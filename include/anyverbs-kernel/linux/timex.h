/* timex.h: as asm/timex.h. */
#include <asm/timex.h>
