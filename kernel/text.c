/* text.c: texts, and numbers in them.
 * Runs:  the caller's thread         Locks: none
 */
#include <ctype.h>
#include <linux/kernel.h>
#include <linux/parser.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <stdlib.h>

int scnprintf(char *buffer, size_t size, const char *format, ...)
{
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(buffer, size, format, arguments);
	va_end(arguments);
	return size == 0 ? 0 : min(length, (int)size - 1);
}

ssize_t strscpy(char *to, const char *from, size_t size)
{
	size_t length = strnlen(from, size);

	if (size == 0)
		return -E2BIG;
	memcpy(to, from, min(length, size - 1));
	to[min(length, size - 1)] = '\0';
	return length < size ? (ssize_t)length : -E2BIG;
}

size_t anyverbs_strlcpy(char *to, const char *from, size_t size)
{
	strscpy(to, from, size);
	return strlen(from);
}

char *strim(char *text)
{
	size_t length;

	while (isspace((unsigned char)*text))
		text++;
	length = strlen(text);
	while (length > 0 && isspace((unsigned char)text[length - 1]))
		text[--length] = '\0';
	return text;
}

static size_t text_length(const char *text)
{
	size_t length = strlen(text);

	return length > 0 && text[length - 1] == '\n' ? length - 1 : length;
}

bool sysfs_streq(const char *one, const char *other)
{
	size_t length = text_length(one);

	return length == text_length(other) && memcmp(one, other, length) == 0;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* The digits of a number that is not negative, perhaps behind a +. */
static int number_unsigned(const char *text, unsigned int base, unsigned long long *result)
{
	unsigned long long n;
	char *end;

	text += *text == '+';
	if (!isalnum((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	n = strtoull(text, &end, (int)base);
	if (end == text || (*end == '\n' ? end[1] : *end))
		return -EINVAL;
	if (errno == ERANGE)
		return -ERANGE;
	*result = n;
	return 0;
}

int kstrtoull(const char *text, unsigned int base, unsigned long long *result)
{
	return number_unsigned(text, base, result);
}

int kstrtoll(const char *text, unsigned int base, long long *result)
{
	bool is_negative = *text == '-';
	unsigned long long n;
	int err = number_unsigned(text + is_negative, base, &n);

	if (err)
		return err;
	if (n > (unsigned long long)INT64_MAX + is_negative)
		return -ERANGE;
	*result = is_negative ? (long long)(0 - n) : (long long)n;
	return 0;
}

#define NUMBER(name, type, wide, wider)                                                            \
	int name(const char *text, unsigned int base, type *result)                                \
	{                                                                                          \
		wide n;                                                                            \
		int err = wider(text, base, &n);                                                   \
		if (err)                                                                           \
			return err;                                                                \
		if ((wide)(type)n != n)                                                            \
			return -ERANGE;                                                            \
		*result = (type)n;                                                                 \
		return 0;                                                                          \
	}

NUMBER(kstrtoul, unsigned long, unsigned long long, kstrtoull)
NUMBER(kstrtol, long, long long, kstrtoll)
NUMBER(kstrtouint, unsigned int, unsigned long long, kstrtoull)
NUMBER(kstrtoint, int, long long, kstrtoll)
NUMBER(kstrtou16, u16, unsigned long long, kstrtoull)
NUMBER(kstrtou8, u8, unsigned long long, kstrtoull)

/* Longer than any number that fits. */
enum { NUMBER_DIGITS = 32 };

#define NUMBER_FROM_USER(name, type)                                                               \
	int name##_from_user(const char __user *text, size_t size, unsigned int base,              \
			     type *result)                                                         \
	{                                                                                          \
		char digits[NUMBER_DIGITS + 1] = "";                                               \
		if (copy_from_user(digits, text, min_t(size_t, size, NUMBER_DIGITS)))              \
			return -EFAULT;                                                            \
		return name(digits, base, result);                                                 \
	}

NUMBER_FROM_USER(kstrtoint, int)
NUMBER_FROM_USER(kstrtouint, unsigned int)

int kstrtobool(const char *text, bool *result)
{
	char first = (char)tolower((unsigned char)text[0]);
	char second = (char)(first == 'o' ? tolower((unsigned char)text[1]) : 0);

	if (first == '1' || first == 'y' || first == 't' || second == 'n')
		*result = true;
	else if (first == '0' || first == 'n' || first == 'f' || second == 'f')
		*result = false;
	else
		return -EINVAL;
	return 0;
}

/* ---- options --------------------------------------------------------------------------------- */

/* Whether the text is the pattern's, and what its % stands for. */
static bool option_is(char *text, const char *pattern, substring_t *argument)
{
	const char *percent = strchr(pattern, '%');
	size_t length = percent ? (size_t)(percent - pattern) : strlen(pattern) + 1;
	int base;

	if (strncmp(text, pattern, length) != 0)
		return false;
	if (!percent)
		return true;
	argument->from = text + length;
	argument->to = argument->from + strlen(argument->from);
	if (percent[1] == 's')
		return true;
	base = percent[1] == 'x' ? 16 : 0;
	strtoul(argument->from, &argument->to, base);
	return argument->to != argument->from && *argument->to == '\0';
}

int match_token(char *text, const match_table_t table, substring_t arguments[])
{
	while (table->pattern && !option_is(text, table->pattern, arguments))
		table++;
	return table->token;
}

int match_int(substring_t *argument, int *result)
{
	return kstrtoint(argument->from, 0, result);
}

char *match_strdup(const substring_t *argument)
{
	return kstrndup(argument->from, (size_t)(argument->to - argument->from), GFP_KERNEL);
}
