/* env.c: reads ANYVERBS_* variables.
 * In: the environment    Out: values, or a message and a default    Runs: any thread    Locks: none
 */
#include "base/env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { ENV_WHAT = 128 };

const char *env_text(const char *name)
{
	const char *value = getenv(name);

	return value == NULL || value[0] == '\0' ? NULL : value;
}

void env_refuse(const char *name, const char *value, const char *what)
{
	log_error("base", "%s=%.64s is invalid: it takes %s", name, value, what);
}

bool env_means_switch(const char *value, bool *out)
{
	if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
		return false;
	*out = value[0] == '1';
	return true;
}

bool env_is_on(const char *name, bool otherwise)
{
	const char *value = env_text(name);
	bool on = otherwise;

	if (value != NULL && !env_means_switch(value, &on))
		env_refuse(name, value, "0 or 1");
	return on;
}

bool env_means_number(const char *value, u32 most, u32 *out)
{
	u64 n = 0;

	if (value[0] == '\0')
		return false;
	for (const char *p = value; *p != '\0'; p++) {
		if (*p < '0' || *p > '9')
			return false;
		n = n * 10 + (u64)(*p - '0');
		if (n > most)
			return false;
	}
	*out = (u32)n;
	return true;
}

u32 env_number(const char *name, u32 most, u32 otherwise)
{
	const char *value = env_text(name);
	char what[ENV_WHAT];
	u32 n = otherwise;

	if (value != NULL && !env_means_number(value, most, &n)) {
		snprintf(what, sizeof(what), "a number from 0 to %u", most);
		env_refuse(name, value, what);
	}
	return n;
}

/* The bit of the word of this length; 0: it is none of them. */
static u32 env_word_bit(const char *at, size_t length, const char *const *words)
{
	for (u32 i = 0; words[i] != NULL; i++)
		if (strlen(words[i]) == length && strncmp(words[i], at, length) == 0)
			return 1u << i;
	return 0;
}

bool env_means_words(const char *value, const char *const *words, u32 *out)
{
	u32 found = 0;

	for (const char *at = value; *at != '\0';) {
		size_t length = strcspn(at, ", ");
		u32 bit = env_word_bit(at, length, words);

		if (length != 0 && bit == 0)
			return false;
		found |= bit;
		at += length + (at[length] != '\0');
	}
	if (found != 0)
		*out = found;
	return found != 0;
}

bool env_means_ports(const char *value, u16 port, bool *named)
{
	bool all = strcmp(value, "all") == 0, any = all, found = all;

	for (const char *at = value; !all && *at != '\0';) {
		size_t length = strcspn(at, ", ");
		unsigned long n = strtoul(at, NULL, 10);

		if (strspn(at, "0123456789") != length || (length != 0 && n - 1 >= UINT16_MAX))
			return false;
		any |= length != 0;
		found |= n == port;
		at += length + (at[length] != '\0');
	}
	if (any)
		*named = found;
	return any;
}

static void env_list_words(char what[ENV_WHAT], const char *const *words)
{
	int n = snprintf(what, ENV_WHAT, "one or more of");

	for (; *words != NULL && n < ENV_WHAT; words++)
		n += snprintf(what + n, ENV_WHAT - (size_t)n, " %s", *words);
}

u32 env_words(const char *name, const char *const *words, u32 otherwise)
{
	const char *value = env_text(name);
	char what[ENV_WHAT];
	u32 found = otherwise;

	if (value != NULL && !env_means_words(value, words, &found)) {
		env_list_words(what, words);
		env_refuse(name, value, what);
	}
	return found;
}

bool env_means_seconds(const char *value, u64 *out_ns)
{
	bool never = strcmp(value, "never") == 0;
	char *end = NULL;
	double s = never ? 0 : strtod(value, &end);

	if (!never && (end == value || *end != '\0' || !(s >= 0)))
		return false;
	*out_ns = never || s > 1e9 ? UINT64_MAX : (u64)(s * 1e9);
	return true;
}

u64 env_seconds(const char *name, u64 otherwise_ns)
{
	const char *value = env_text(name);
	u64 ns = otherwise_ns;

	if (value != NULL && !env_means_seconds(value, &ns))
		env_refuse(name, value, "a number of seconds, or never");
	return ns;
}
