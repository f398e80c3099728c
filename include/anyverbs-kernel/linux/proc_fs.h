/* proc_fs.h: a module's files below /proc. No other process sees them: the program that hosts the
 * module writes and reads them by anyverbs_proc_write and anyverbs_proc_read (anyverbs/module.h),
 * which call the module's functions on the calling thread. May sleep. */
#ifndef ANYVERBS_LINUX_PROC_FS_H
#define ANYVERBS_LINUX_PROC_FS_H

#include <linux/fs.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

struct proc_ops {
	unsigned int proc_flags;
	int (*proc_open)(struct inode *inode, struct file *file);
	ssize_t (*proc_read)(struct file *file, char __user *buffer, size_t size, loff_t *pos);
	ssize_t (*proc_write)(struct file *file, const char __user *buffer, size_t size,
			      loff_t *pos);
	loff_t (*proc_lseek)(struct file *file, loff_t offset, int whence);
	int (*proc_release)(struct inode *inode, struct file *file);
};

struct proc_dir_entry *anyverbs_proc_create(const char *name, struct proc_dir_entry *parent,
					    const struct file_operations *ops,
					    const struct proc_ops *newer, void *data);

/* `ops` is a struct proc_ops * or, as before 5.6, a struct file_operations *, which the caller
 * keeps. NULL: no memory, or the name is taken. */
#define proc_create_data(name, mode, parent, ops, data)                                            \
	((void)(mode), anyverbs_proc_create(                                                       \
			       name, parent,                                                       \
			       _Generic((ops), struct file_operations *: (ops),                    \
					const struct file_operations *: (ops), default: NULL),     \
			       _Generic((ops), struct proc_ops *: (ops),                           \
					const struct proc_ops *: (ops), default: NULL),            \
			       data))
#define proc_create(name, mode, parent, ops) proc_create_data(name, mode, parent, ops, NULL)

/* A file that `show` writes. */
struct proc_dir_entry *proc_create_single_data(const char *name, umode_t mode,
					       struct proc_dir_entry *parent,
					       int (*show)(struct seq_file *seq, void *data),
					       void *data);
#define proc_create_single(name, mode, parent, show)                                               \
	proc_create_single_data(name, mode, parent, show, NULL)

struct proc_dir_entry *proc_mkdir(const char *name, struct proc_dir_entry *parent);

/* Wait until no function of the file runs; with a directory goes all that is in it. */
void proc_remove(struct proc_dir_entry *entry);
void remove_proc_entry(const char *name, struct proc_dir_entry *parent);
#define remove_proc_subtree(name, parent) remove_proc_entry(name, parent)

#define pde_data(inode) ((inode)->i_private)
#define PDE_DATA(inode) ((inode)->i_private)

#endif
