/* log.c: one line per message on standard error, in one write, so that lines of several threads
 * do not mix. */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const char *const log_names[] = { "none", "error", "warn", "info", "debug" };
static int log_level_cached = -1;

bool log_level_parse(const char *text, enum log_level *level)
{
	for (int i = LOG_NONE; i <= LOG_DEBUG; i++)
		if (strcasecmp(text, log_names[i]) == 0) {
			*level = (enum log_level)i;
			return true;
		}
	return false;
}

enum log_level log_level_get(void)
{
	int level = __atomic_load_n(&log_level_cached, __ATOMIC_RELAXED);

	if (unlikely(level < 0)) {
		const char *text = getenv("ANYVERBS_LOG");
		enum log_level asked = LOG_NONE;

		if (text != NULL)
			(void)log_level_parse(text, &asked);
		level = (int)asked;
		__atomic_store_n(&log_level_cached, level, __ATOMIC_RELAXED);
	}
	return (enum log_level)level;
}

void log_print(enum log_level level, const char *room, const char *fmt, ...)
{
	int saved = errno;
	char line[512];
	va_list args;
	int n = snprintf(line, sizeof(line), "anyverbs[%d] %s: %s: ", (int)getpid(),
			 log_names[level], room);

	va_start(args, fmt);
	n += vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, args);
	va_end(args);
	n = MIN(n, (int)sizeof(line) - 2);
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		errno = saved; /* a closed standard error is the user's wish */
	errno = saved;
}
