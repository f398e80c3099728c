/* fd.h: numbers of descriptors that no program is told of.
 *
 * A program takes the lowest free numbers to be its own: it closes one twice, copies a file to a
 * number of its choice (a shell's `exec 5<file`), or has a table for the first 16. So the
 * descriptors that the library opens for itself have high numbers. */
#ifndef BASE_FD_H
#define BASE_FD_H

#include "base/compiler.h"

enum { FD_OWN_FIRST = 512 }; /* as many are left to the program below the usual limit of 1024 */

/* Gives a descriptor that has just been opened a number from FD_OWN_FIRST on, and close-on-exec.
 * Returns the new number. Returns `fd` itself, open as it was, where the process may have no such
 * number, and for a negative one. Keeps errno. Before `fd` joins an epoll set: the set would keep
 * the old number. */
AV_EXPORT int fd_own(int fd);
/* The same for a copy: `fd` stays open. -1: errno. */
int fd_own_copy(int fd);
/* For a number that the program is told: as it is, after fd_show_from() one from there on, if the
 * process may have such a number, or after fd_hide() as fd_own(). */
AV_EXPORT int fd_shown(int fd);
/* From now on this thread's fd_shown() gives numbers from `first` on; 0: as they are. */
AV_EXPORT void fd_show_from(int first);
/* From now on the program is told of no number: a layer in between hides them. */
AV_EXPORT void fd_hide(void);

#endif
