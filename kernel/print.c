/* print.c: messages on standard error, each by one write.
 * Runs:  the caller's thread         Locks: none
 */
#include <linux/jiffies.h>
#include <linux/printk.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 1024, BURST = 10, BURST_TIME = 5 * HZ };

int console_loglevel = 7;

static __thread int print_level = 4; /* of the thread's last message */

/* The level that the text begins with; what follows it is the message. */
static const char *print_skip_level(const char *text)
{
	if (text[0] != KERN_SOH[0] || !text[1]) {
		print_level = 4;
		return text;
	}
	if (text[1] >= '0' && text[1] <= '7')
		print_level = text[1] - '0';
	return text + 2;
}

int vprintk(const char *format, va_list arguments)
{
	const char *message;
	char line[LINE];
	size_t length;

	vsnprintf(line, sizeof(line), format, arguments);
	message = print_skip_level(line);
	if (print_level >= console_loglevel)
		return 0;
	length = strlen(message);
	return write(STDERR_FILENO, message, length) == (ssize_t)length ? (int)length : 0;
}

int printk(const char *format, ...)
{
	va_list arguments;
	int written;

	va_start(arguments, format);
	written = vprintk(format, arguments);
	va_end(arguments);
	return written;
}

bool printk_ratelimit(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static unsigned long begin;
	static int count;
	bool may;

	pthread_mutex_lock(&lock);
	if (count == 0 || time_after(jiffies, begin + BURST_TIME)) {
		begin = jiffies;
		count = 0;
	}
	may = count < BURST;
	count += may;
	pthread_mutex_unlock(&lock);
	return may;
}
