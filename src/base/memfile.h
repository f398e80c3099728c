/* memfile.h: memory files of a fixed size, for maps that several processes share.
 */
#ifndef BASE_MEMFILE_H
#define BASE_MEMFILE_H

#include "base/compiler.h"

/* Makes a memory file of `size` zero bytes, close-on-exec, which may be sealed. `name` shows in
 * /proc only. Returns its descriptor, which the caller owns, or a negative errno: -EFBIG if
 * RLIMIT_FSIZE is smaller, as the kernel would say after a SIGXFSZ. */
int memfile_create(const char *name, u64 size);

#endif
