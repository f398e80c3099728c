/* lines.h: reads a text file of the kernel's (/proc, /sys) line by line, without allocating
 * memory. */
#ifndef BASE_LINES_H
#define BASE_LINES_H

#include "base/compiler.h"

enum { LINES_LONGEST = 4352 }; /* bytes of a line, its end included; more is an error */

/* Calls `fn` for each line of the file, from the file's first byte on, with `arg` as it is. `line`
 * ends with 0 instead of the newline, and lives until `fn` returns. The file's offset does not
 * move. Returns true if all lines were read. Returns false at once where `fn` answered false,
 * the file cannot be read, a line is too long, or the last one has no end. Blocks as the file
 * does. Uses 5 KiB of stack, and is safe in handlers of fork. */
bool lines_each(int fd, bool (*fn)(const char *line, void *arg), void *arg);

#endif
