/* seq_file.h: texts that are made when they are read. The text is made whole at the first read,
 * with as much memory as it needs. May sleep. */
#ifndef ANYVERBS_LINUX_SEQ_FILE_H
#define ANYVERBS_LINUX_SEQ_FILE_H

#include <linux/fs.h>
#include <linux/kernel.h>
#include <stdio.h>

struct seq_file {
	void *private; /* what was given to single_open */
	/* The rest is this library's. */
	int (*show)(struct seq_file *seq, void *data);
	FILE *out; /* while `show` runs */
	char *text;
	size_t length;
	bool is_shown;
};

/* For `open`: the file's text is what `show` prints. 0, or -ENOMEM. */
int single_open(struct file *file, int (*show)(struct seq_file *seq, void *data), void *data);
/* For `release`, `read` and `llseek`. */
int single_release(struct inode *inode, struct file *file);
ssize_t seq_read(struct file *file, char __user *buffer, size_t size, loff_t *pos);
loff_t seq_lseek(struct file *file, loff_t offset, int whence);

/* In `show`. */
#define seq_printf(seq, ...) ((void)fprintf((seq)->out, __VA_ARGS__))
#define seq_puts(seq, text) ((void)fputs(text, (seq)->out))
#define seq_putc(seq, c) ((void)fputc(c, (seq)->out))

#define DEFINE_SHOW_ATTRIBUTE(name)                                                                \
	static int name##_open(struct inode *inode, struct file *file)                             \
	{                                                                                          \
		return single_open(file, name##_show, inode->i_private);                           \
	}                                                                                          \
	static const struct file_operations name##_fops = {                                        \
		.open = name##_open,                                                               \
		.read = seq_read,                                                                  \
		.llseek = seq_lseek,                                                               \
		.release = single_release,                                                         \
	}

#endif
