/* log.h: messages for a person, on standard error, only if ANYVERBS_LOG asks (error, warn, info,
 * debug; default: none). The libraries are guests in somebody's process: they print nothing
 * unasked, except that the system refuses a thread (thread.h), or a resource that a device or a
 * peer needs (limit.h). The function that first knows a cause logs it, once.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/compiler.h"

enum log_level { LOG_NONE, LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* The level of this name, in either case; false: none has it, *level is as before. */
AV_EXPORT bool log_level_parse(const char *text, enum log_level *level);
/* The level that ANYVERBS_LOG asks for, read once. */
AV_EXPORT enum log_level log_level_get(void);
AV_EXPORT void log_print(enum log_level level, const char *room, const char *fmt, ...)
	PRINTF_LIKE(3, 4);

#define log_at(level, room, ...)                                                                   \
	do {                                                                                       \
		if (unlikely(log_level_get() >= (level)))                                          \
			log_print(level, room, __VA_ARGS__);                                       \
	} while (0)
#define log_error(room, ...) log_at(LOG_ERROR, room, __VA_ARGS__)
#define log_warn(room, ...) log_at(LOG_WARN, room, __VA_ARGS__)
#define log_info(room, ...) log_at(LOG_INFO, room, __VA_ARGS__)
#define log_debug(room, ...) log_at(LOG_DEBUG, room, __VA_ARGS__)

#endif
