/* limit.h: what the system refuses for want of a resource, said with the limits of the process that
 * may be behind it.
 */
#ifndef BASE_LIMIT_H
#define BASE_LIMIT_H

#include <sys/types.h>

#include "base/compiler.h"

enum { LIMIT_TEXT = 128 };

/* Names the limits of this process that may be behind a refusal with the errno `err`, as
 * "RLIMIT_AS is 67108864, RLIMIT_DATA is 8388608"; "": none that is set. Returns `text`. */
const char *limit_behind(int err, char text[LIMIT_TEXT]);
/* Tells whether a negative errno says that the system refuses a resource other than a thread. */
AV_EXPORT bool limit_refuses(int err);
/* Says on standard error that `what` is refused with the negative errno `err`, and which limits may
 * be behind it: unasked if *said is not this process, which it is then, else only if ANYVERBS_LOG
 * asks for errors. Some programs say no more than that there is no device, or nothing. Any
 * thread. */
AV_EXPORT void limit_say(pid_t *said, const char *room, const char *what, int err);

#endif
