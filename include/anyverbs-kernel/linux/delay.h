/* delay.h: waits. Those that sleep are not shortened by signals, but for msleep_interruptible,
 * which returns the milliseconds that were left. The delays spin, in any context. */
#ifndef ANYVERBS_LINUX_DELAY_H
#define ANYVERBS_LINUX_DELAY_H

#include <linux/sched.h>

void msleep(unsigned int ms);
unsigned long msleep_interruptible(unsigned int ms);
void usleep_range(unsigned long least_us, unsigned long most_us);
#define ssleep(seconds) msleep((seconds)*1000)

void ndelay(unsigned long ns);
#define udelay(us) ndelay((us)*1000UL)
#define mdelay(ms) ndelay((ms)*1000000UL)

#endif
