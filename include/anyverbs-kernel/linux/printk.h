/* printk.h: messages, on standard error. May be called in any context.
 *
 * A message whose level is below console_loglevel is written: all but KERN_DEBUG, at first. The
 * format is the C library's: extensions of %p (%pI4, %pISp) print the pointer. The compiler does
 * not check it against the arguments, since a u64 is an unsigned long here.
 */
#ifndef ANYVERBS_LINUX_PRINTK_H
#define ANYVERBS_LINUX_PRINTK_H

#include <linux/types.h>
#include <stdarg.h>
#include <stdio.h>

#define KERN_SOH "\001"
#define KERN_EMERG KERN_SOH "0"
#define KERN_ALERT KERN_SOH "1"
#define KERN_CRIT KERN_SOH "2"
#define KERN_ERR KERN_SOH "3"
#define KERN_WARNING KERN_SOH "4"
#define KERN_NOTICE KERN_SOH "5"
#define KERN_INFO KERN_SOH "6"
#define KERN_DEBUG KERN_SOH "7"
#define KERN_DEFAULT ""
#define KERN_CONT KERN_SOH "c"

/* The program's to set, before its threads run. */
extern int console_loglevel;

/* Returns how many bytes were written. Without a level a message is a KERN_WARNING; a KERN_CONT has
 * the level of the thread's last message. */
int printk(const char *format, ...);
int vprintk(const char *format, va_list arguments);

#ifndef pr_fmt
#define pr_fmt(format) format
#endif

#define pr_emerg(format, ...) printk(KERN_EMERG pr_fmt(format), ##__VA_ARGS__)
#define pr_alert(format, ...) printk(KERN_ALERT pr_fmt(format), ##__VA_ARGS__)
#define pr_crit(format, ...) printk(KERN_CRIT pr_fmt(format), ##__VA_ARGS__)
#define pr_err(format, ...) printk(KERN_ERR pr_fmt(format), ##__VA_ARGS__)
#define pr_warn(format, ...) printk(KERN_WARNING pr_fmt(format), ##__VA_ARGS__)
#define pr_warning pr_warn
#define pr_notice(format, ...) printk(KERN_NOTICE pr_fmt(format), ##__VA_ARGS__)
#define pr_info(format, ...) printk(KERN_INFO pr_fmt(format), ##__VA_ARGS__)
#define pr_cont(format, ...) printk(KERN_CONT format, ##__VA_ARGS__)
/* Written if console_loglevel is 8. */
#define pr_debug(format, ...) printk(KERN_DEBUG pr_fmt(format), ##__VA_ARGS__)
#define pr_devel pr_debug

/* True at the first evaluation of this place, in whichever thread. */
#define anyverbs_first_time()                                                                      \
	({                                                                                         \
		static bool anyverbs_done;                                                         \
		!__atomic_exchange_n(&anyverbs_done, true, __ATOMIC_RELAXED);                      \
	})

#define printk_once(format, ...)                                                                   \
	((void)(anyverbs_first_time() && printk(format, ##__VA_ARGS__)))
#define pr_err_once(format, ...) printk_once(KERN_ERR pr_fmt(format), ##__VA_ARGS__)
#define pr_warn_once(format, ...) printk_once(KERN_WARNING pr_fmt(format), ##__VA_ARGS__)
#define pr_info_once(format, ...) printk_once(KERN_INFO pr_fmt(format), ##__VA_ARGS__)

/* At most ten messages in five seconds, of all places together. */
bool printk_ratelimit(void);
#define printk_ratelimited(format, ...)                                                            \
	((void)(printk_ratelimit() && printk(format, ##__VA_ARGS__)))
#define pr_err_ratelimited(format, ...) printk_ratelimited(KERN_ERR pr_fmt(format), ##__VA_ARGS__)
#define pr_warn_ratelimited(format, ...)                                                           \
	printk_ratelimited(KERN_WARNING pr_fmt(format), ##__VA_ARGS__)
#define pr_info_ratelimited(format, ...)                                                           \
	printk_ratelimited(KERN_INFO pr_fmt(format), ##__VA_ARGS__)

#endif
