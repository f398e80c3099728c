/* env_fuzz.c: what the user may set ANYVERBS_* variables to.
 *
 * The first byte says which kind of variable, the rest is its value. What is taken and what is
 * refused is told here once more, in another way; a value that is refused must be answered by one
 * line that names the variable, one that is taken by none.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/env.h"
#include "base/log.h"
#include "input.h"
#include "daemon/daemon_priv.h"

enum { MOST = 32, ELSE = 7, VALUE = 512 };

static const char *const words[] = { "shm", "udp", NULL };
static const char *name;
static u32 said;

void __wrap_log_print(enum log_level level, const char *room, const char *fmt, ...)
	PRINTF_LIKE(3, 4);

void __wrap_log_print(enum log_level level, const char *room, const char *fmt, ...)
{
	char line[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	fuzz_need(strncmp(line, name, strlen(name)) == 0 && strstr(line, " it takes ") != NULL,
		  "a message that does not say what is wrong");
	said++;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	setenv("ANYVERBS_LOG", "error", 1);
	return 0;
}

static void fuzz_is_on(const char *value)
{
	bool zero = strcmp(value, "0") == 0, one = strcmp(value, "1") == 0;

	name = "ANYVERBS_DIRECT";
	setenv(name, value, 1);
	fuzz_need(env_is_on(name, false) == one, "off by default");
	fuzz_need(env_is_on(name, true) == !zero, "on by default");
	fuzz_need(said == (value[0] == '\0' || zero || one ? 0 : 2), "said, or not");
}

static void fuzz_number(const char *value)
{
	bool digits = value[0] != '\0' && value[strspn(value, "0123456789")] == '\0';
	bool good = digits && strtoull(value, NULL, 10) <= MOST;

	name = "ANYVERBS_CONNECTED_SOCKETS";
	setenv(name, value, 1);
	fuzz_need(env_number(name, MOST, ELSE) == (good ? strtoull(value, NULL, 10) : ELSE),
		  "another number");
	fuzz_need(said == (value[0] == '\0' || good ? 0 : 1), "said, or not");
}

static void fuzz_words(const char *value)
{
	char copy[VALUE], *save = NULL;
	u32 found = 0;
	bool good = true;

	snprintf(copy, sizeof(copy), "%s", value);
	for (char *w = strtok_r(copy, ", ", &save); w != NULL; w = strtok_r(NULL, ", ", &save)) {
		found |= strcmp(w, "shm") == 0 ? 1 : strcmp(w, "udp") == 0 ? 2 : 0;
		good &= strcmp(w, "shm") == 0 || strcmp(w, "udp") == 0;
	}
	good &= found != 0;
	name = "ANYVERBS_PATHS";
	setenv(name, value, 1);
	fuzz_need(env_words(name, words, ELSE) == (good ? found : ELSE), "other words");
	fuzz_need(said == (value[0] == '\0' || good ? 0 : 1), "said, or not");
}

static void fuzz_node(const char *value)
{
	struct daemon_options o;

	name = "ANYVERBS_IDLE_S";
	setenv(name, value, 1);
	fuzz_need(daemon_options_init(&o) == 0 && said <= 1, "a node of its own name");
	unsetenv(name);
	said = 0;
	name = "ANYVERBS_NODE";
	setenv(name, value, 1);
	fuzz_need((daemon_options_init(&o) != 0) == (said != 0), "said, or not");
	unsetenv(name);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	static void (*const kinds[])(const char *) = { fuzz_is_on, fuzz_number, fuzz_words,
						       fuzz_node };
	struct input in = { data, size };
	u8 kind = input_u8(&in);
	char value[VALUE];

	input_bytes(&in, value, sizeof(value));
	value[VALUE - 1] = '\0';
	said = 0;
	kinds[kind % ARRAY_LEN(kinds)](value);
	return 0;
}
