/* proc.c: modules' files below /proc, and texts that are made when they are read.
 * In:    the program's reads and writes    Out: calls of the modules' functions
 * Runs:  the caller's thread               Locks: proc_lock, never while such a function runs
 */
#include <anyverbs/module.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/proc_fs.h>
#include <linux/slab.h>
#include <pthread.h>
#include <string.h>

struct proc_dir_entry {
	struct list_head entry; /* of proc_entries */
	char *path;		/* below /proc */
	struct proc_ops ops;	/* a directory has none */
	struct inode inode;
	int (*show)(struct seq_file *seq, void *data);
	int users; /* that run its functions */
};

static pthread_mutex_t proc_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t proc_unused = PTHREAD_COND_INITIALIZER;
static LIST_HEAD(proc_entries); /* under proc_lock, with all `users` */

/* ---- entries --------------------------------------------------------------------------------- */

static struct proc_dir_entry *proc_find(const char *path)
{
	struct proc_dir_entry *entry;

	list_for_each_entry(entry, &proc_entries, entry)
		if (strcmp(entry->path, path) == 0)
			return entry;
	return NULL;
}

static char *proc_path(const char *name, const struct proc_dir_entry *parent)
{
	return parent ? kasprintf(GFP_KERNEL, "%s/%s", parent->path, name) :
			kstrdup(name, GFP_KERNEL);
}

static struct proc_dir_entry *proc_add(const char *name, struct proc_dir_entry *parent, void *data)
{
	struct proc_dir_entry *entry = kzalloc(sizeof(*entry), GFP_KERNEL);
	char *path = proc_path(name, parent);

	pthread_mutex_lock(&proc_lock);
	if (!entry || !path || proc_find(path)) {
		pthread_mutex_unlock(&proc_lock);
		kfree(entry);
		kfree(path);
		return NULL;
	}
	entry->path = path;
	entry->inode = (struct inode){ data, entry };
	entry->users = 1; /* until it is complete */
	list_add_tail(&entry->entry, &proc_entries);
	pthread_mutex_unlock(&proc_lock);
	return entry;
}

static void proc_put(struct proc_dir_entry *entry)
{
	pthread_mutex_lock(&proc_lock);
	entry->users--;
	pthread_cond_broadcast(&proc_unused);
	pthread_mutex_unlock(&proc_lock);
}

/* Who finds it incomplete waits. */
static struct proc_dir_entry *proc_get(const char *path)
{
	struct proc_dir_entry *entry;

	pthread_mutex_lock(&proc_lock);
	entry = proc_find(path);
	if (entry && entry->ops.proc_open)
		entry->users++;
	else
		entry = NULL;
	pthread_mutex_unlock(&proc_lock);
	return entry;
}

static int proc_open_nothing(struct inode *inode, struct file *file)
{
	(void)inode, (void)file;
	return 0;
}

static void proc_complete(struct proc_dir_entry *entry, const struct proc_ops *ops)
{
	pthread_mutex_lock(&proc_lock);
	entry->ops = *ops;
	if (!entry->ops.proc_open)
		entry->ops.proc_open = proc_open_nothing;
	pthread_mutex_unlock(&proc_lock);
	proc_put(entry);
}

struct proc_dir_entry *anyverbs_proc_create(const char *name, struct proc_dir_entry *parent,
					    const struct file_operations *ops,
					    const struct proc_ops *newer, void *data)
{
	struct proc_ops all = { 0 };
	struct proc_dir_entry *entry = proc_add(name, parent, data);

	if (!entry)
		return NULL;
	if (newer)
		all = *newer;
	else if (ops)
		all = (struct proc_ops){ .proc_open = ops->open,
					 .proc_read = ops->read,
					 .proc_write = ops->write,
					 .proc_lseek = ops->llseek,
					 .proc_release = ops->release };
	proc_complete(entry, &all);
	return entry;
}

static int proc_open_single(struct inode *inode, struct file *file)
{
	return single_open(file, inode->i_entry->show, inode->i_private);
}

struct proc_dir_entry *proc_create_single_data(const char *name, umode_t mode,
					       struct proc_dir_entry *parent,
					       int (*show)(struct seq_file *seq, void *data),
					       void *data)
{
	static const struct proc_ops ops = { .proc_open = proc_open_single,
					     .proc_read = seq_read,
					     .proc_release = single_release };
	struct proc_dir_entry *entry = proc_add(name, parent, data);

	(void)mode;
	if (!entry)
		return NULL;
	entry->show = show;
	proc_complete(entry, &ops);
	return entry;
}

struct proc_dir_entry *proc_mkdir(const char *name, struct proc_dir_entry *parent)
{
	struct proc_dir_entry *entry = proc_add(name, parent, NULL);

	if (entry)
		proc_put(entry);
	return entry;
}

static bool proc_is_in(const struct proc_dir_entry *entry, const char *path)
{
	size_t length = strlen(path);

	return strncmp(entry->path, path, length) == 0 &&
	       (entry->path[length] == '\0' || entry->path[length] == '/');
}

/* The path and all below it. First they are made unreachable. */
static void proc_remove_path(const char *path)
{
	struct proc_dir_entry *entry, *ahead;
	LIST_HEAD(removed);

	pthread_mutex_lock(&proc_lock);
	list_for_each_entry_safe(entry, ahead, &proc_entries, entry)
		if (proc_is_in(entry, path))
			list_move(&entry->entry, &removed);
	list_for_each_entry(entry, &removed, entry)
		while (entry->users > 0)
			pthread_cond_wait(&proc_unused, &proc_lock);
	pthread_mutex_unlock(&proc_lock);
	list_for_each_entry_safe(entry, ahead, &removed, entry) {
		kfree(entry->path);
		kfree(entry);
	}
}

void proc_remove(struct proc_dir_entry *entry)
{
	char *path = entry ? kstrdup(entry->path, GFP_KERNEL) : NULL;

	if (path)
		proc_remove_path(path);
	kfree(path);
}

void remove_proc_entry(const char *name, struct proc_dir_entry *parent)
{
	char *path = proc_path(name, parent);

	if (path)
		proc_remove_path(path);
	kfree(path);
}

/* ---- texts ----------------------------------------------------------------------------------- */

int single_open(struct file *file, int (*show)(struct seq_file *seq, void *data), void *data)
{
	struct seq_file *seq = kzalloc(sizeof(*seq), GFP_KERNEL);

	if (!seq)
		return -ENOMEM;
	seq->private = data;
	seq->show = show;
	file->private_data = seq;
	return 0;
}

int single_release(struct inode *inode, struct file *file)
{
	struct seq_file *seq = file->private_data;

	(void)inode;
	kfree(seq->text);
	kfree(seq);
	return 0;
}

static int seq_show(struct seq_file *seq)
{
	int err;

	seq->out = open_memstream(&seq->text, &seq->length);
	if (!seq->out)
		return -ENOMEM;
	err = seq->show(seq, NULL);
	if (fclose(seq->out) != 0)
		return -ENOMEM;
	seq->is_shown = err == 0;
	if (err) {
		kfree(seq->text);
		seq->text = NULL;
	}
	return err;
}

ssize_t seq_read(struct file *file, char __user *buffer, size_t size, loff_t *pos)
{
	struct seq_file *seq = file->private_data;
	int err = seq->is_shown ? 0 : seq_show(seq);

	if (err)
		return err;
	if (*pos < 0 || (size_t)*pos >= seq->length)
		return 0;
	size = min(size, seq->length - (size_t)*pos);
	memcpy(buffer, seq->text + *pos, size);
	*pos += (loff_t)size;
	return (ssize_t)size;
}

loff_t seq_lseek(struct file *file, loff_t offset, int whence)
{
	if (whence == SEEK_CUR)
		offset += file->f_pos;
	if (whence == SEEK_END || offset < 0)
		return -EINVAL;
	return file->f_pos = offset;
}

/* ---- the program's side ---------------------------------------------------------------------- */

/* `use` between open and release of the file. */
static ssize_t proc_use(const char *path, ssize_t (*use)(struct file *file, void *data), void *data)
{
	struct proc_dir_entry *entry = proc_get(path);
	ssize_t result;
	struct file file = { 0 };

	if (!entry)
		return -ENOENT;
	file.f_inode = &entry->inode;
	result = entry->ops.proc_open(&entry->inode, &file);
	if (result == 0) {
		result = use(&file, data);
		if (entry->ops.proc_release)
			entry->ops.proc_release(&entry->inode, &file);
	}
	proc_put(entry);
	return result;
}

struct proc_bytes {
	const char *bytes;
	size_t size;
	char **text;
};

static ssize_t proc_write_bytes(struct file *file, void *data)
{
	struct proc_dir_entry *entry = file->f_inode->i_entry;
	struct proc_bytes *b = data;

	if (!entry->ops.proc_write)
		return -EIO;
	return entry->ops.proc_write(file, b->bytes, b->size, &file->f_pos);
}

ssize_t anyverbs_proc_write(const char *name, const void *bytes, size_t size)
{
	struct proc_bytes b = { bytes, size, NULL };

	return proc_use(name, proc_write_bytes, &b);
}

static ssize_t proc_read_bytes(struct file *file, void *data)
{
	struct proc_dir_entry *entry = file->f_inode->i_entry;
	struct proc_bytes *b = data;
	ssize_t n;
	FILE *out;

	if (!entry->ops.proc_read)
		return -EIO;
	out = open_memstream(b->text, &b->size);
	if (!out)
		return -ENOMEM;
	do {
		char part[512];

		n = entry->ops.proc_read(file, part, sizeof(part), &file->f_pos);
		if (n > 0)
			fwrite(part, 1, (size_t)n, out);
	} while (n > 0);
	if (fclose(out) != 0)
		n = -ENOMEM;
	if (n == 0)
		return (ssize_t)b->size;
	free(*b->text);
	return n;
}

ssize_t anyverbs_proc_read(const char *name, char **text)
{
	char *got = NULL;
	struct proc_bytes b = { NULL, 0, &got };
	ssize_t n = proc_use(name, proc_read_bytes, &b);

	if (n >= 0)
		*text = got;
	return n;
}
