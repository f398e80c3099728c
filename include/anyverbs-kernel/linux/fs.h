/* fs.h: files of a module, as far as proc_fs.h needs them. */
#ifndef ANYVERBS_LINUX_FS_H
#define ANYVERBS_LINUX_FS_H

#include_next <linux/fs.h>

#include <linux/compiler.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/stat.h>
#include <linux/types.h>
#include <linux/wait.h>

struct module;
struct proc_dir_entry;

struct inode {
	void *i_private; /* what was given to proc_create_data */
	struct proc_dir_entry *i_entry;
};

/* One from open to release. */
struct file {
	struct inode *f_inode;
	void *private_data; /* the module's */
	loff_t f_pos;
	unsigned int f_flags;
};

#define file_inode(file) ((file)->f_inode)

struct file_operations {
	struct module *owner;
	loff_t (*llseek)(struct file *file, loff_t offset, int whence);
	ssize_t (*read)(struct file *file, char __user *buffer, size_t size, loff_t *pos);
	ssize_t (*write)(struct file *file, const char __user *buffer, size_t size, loff_t *pos);
	int (*open)(struct inode *inode, struct file *file);
	int (*release)(struct inode *inode, struct file *file);
	long (*unlocked_ioctl)(struct file *file, unsigned int command, unsigned long argument);
};

#endif
