/* ctype.h: kinds of characters, the C library's. */
#include <ctype.h>
