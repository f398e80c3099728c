/* echo_module.c: a module for main_test.py: /proc/echo keeps what was written last; "wait" waits
 * for a signal. */
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

static int refuse;
static char no_prefix[] = "";
static char *prefix = no_prefix;
module_param(refuse, int, 0);
module_param(prefix, charp, 0);

static char echo_text[64];
static DECLARE_WAIT_QUEUE_HEAD(echo_queue);

static ssize_t echo_write(struct file *file, const char __user *buffer, size_t size, loff_t *pos)
{
	char text[sizeof(echo_text)];

	if (size >= sizeof(text))
		return -E2BIG;
	if (copy_from_user(text, buffer, size))
		return -EFAULT;
	text[size] = '\0';
	if (sysfs_streq(text, "wait")) {
		pr_info("waits\n");
		return wait_event_interruptible(echo_queue, false);
	}
	memcpy(echo_text, text, size + 1);
	return (ssize_t)size;
}

static int echo_show(struct seq_file *seq, void *unused)
{
	seq_printf(seq, "%s%s", prefix, echo_text);
	return 0;
}

static int echo_open(struct inode *inode, struct file *file)
{
	return single_open(file, echo_show, NULL);
}

static const struct proc_ops echo_ops = {
	.proc_open = echo_open,
	.proc_read = seq_read,
	.proc_write = echo_write,
	.proc_release = single_release,
};

static int __init echo_init(void)
{
	if (refuse)
		return -ENODEV;
	return proc_create("echo", 0666, NULL, &echo_ops) ? 0 : -ENOMEM;
}

static void __exit echo_exit(void)
{
	remove_proc_entry("echo", NULL);
	pr_info("ended\n");
}

module_init(echo_init);
module_exit(echo_exit);
MODULE_LICENSE("MIT");
