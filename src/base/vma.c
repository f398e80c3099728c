/* vma.c: what the kernel says of this process' maps.
 *
 * In: the open list of maps, an address    Out: maps
 * Runs: any thread    Locks: none
 *
 * One map is asked for by its address (Linux 6.11). The list in /proc/self/maps says the same, but
 * each of its lines takes 0.5 us to write and read.
 */
#include "base/vma.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#include "base/lines.h"

int vma_open(void)
{
	return open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
}

static bool vma_hex(const char **at, char end, u64 *value)
{
	const char *s = *at;
	u64 v = 0;

	for (; *s != end; s++) {
		if (*s >= '0' && *s <= '9')
			v = v << 4 | (u64)(*s - '0');
		else if (*s >= 'a' && *s <= 'f')
			v = v << 4 | (u64)(*s - 'a' + 10);
		else
			return false;
	}
	*value = v;
	*at = s + 1;
	return true;
}

/* start-end rwxp offset major:minor inode name */
bool vma_parse(const char *line, struct vma *m)
{
	const char *perms;
	char *rest;
	u64 major, minor;

	if (!vma_hex(&line, '-', &m->start) || !vma_hex(&line, ' ', &m->end))
		return false;
	perms = line;
	if (strnlen(perms, 5) < 5)
		return false;
	m->prot = (perms[0] == 'r' ? PROT_READ : 0) | (perms[1] == 'w' ? PROT_WRITE : 0) |
		  (perms[2] == 'x' ? PROT_EXEC : 0);
	m->shared = perms[3] == 's';
	line += 5;
	if (!vma_hex(&line, ' ', &m->offset) || !vma_hex(&line, ':', &major) ||
	    !vma_hex(&line, ' ', &minor))
		return false;
	m->device = makedev((u32)major, (u32)minor);
	m->inode = strtoull(line, &rest, 10);
	m->name = rest + strspn(rest, " ");
	return true;
}

struct vma_each_arg {
	void (*fn)(const struct vma *m, void *arg);
	void *arg;
} FIXED;

static bool vma_line(const char *line, void *arg)
{
	const struct vma_each_arg *each = arg;
	struct vma m;

	if (!vma_parse(line, &m))
		return false;
	each->fn(&m, each->arg);
	return true;
}

bool vma_each(int fd, void (*fn)(const struct vma *m, void *arg), void *arg)
{
	struct vma_each_arg each = { fn, arg };

	return lines_each(fd, vma_line, &each);
}

/* The kernel's, of linux/fs.h; older headers do not have it. */
struct vma_query {
	u64 size, flags, address;
	u64 start, end, map_flags, page_size, offset, inode;
	u32 major, minor;
	u32 name_size, build_id_size;
	u64 name, build_id;
} OWNED_BY(the caller);
#define VMA_QUERY _IOWR('f', 17, struct vma_query)

enum {
	VMA_QUERY_PROTECTION = 7,
	VMA_QUERY_SHARED = 8,
	VMA_QUERY_OR_NEXT = 16,
	VMA_QUERY_FILE = 32
};

static int vma_ask(int fd, u64 at, u64 flags, struct vma *m, struct vma_name *name)
{
	struct vma_query q = { .size = sizeof(q),
			   .flags = flags,
			   .address = at,
			   .name = name == NULL ? 0 : (u64)(uintptr_t)name->text,
			   .name_size = name == NULL ? 0 : sizeof(name->text) };

	if (name != NULL)
		name->text[0] = '\0';
	if (ioctl(fd, VMA_QUERY, &q) != 0)
		return errno == ENOENT ? 0 : -errno;
	/* bits 0 to 2 are those of PROT_* */
	*m = (struct vma){ .start = q.start,
				.end = q.end,
				.offset = q.offset,
				.device = makedev(q.major, q.minor),
				.inode = q.inode,
				.prot = (int)(q.map_flags & VMA_QUERY_PROTECTION),
				.shared = (q.map_flags & VMA_QUERY_SHARED) != 0,
				.name = name == NULL ? "" : name->text };
	return 1;
}

int vma_at(int fd, u64 at, struct vma *m, struct vma_name *name)
{
	return vma_ask(fd, at, 0, m, name);
}

int vma_at_shared_file(int fd, u64 from, struct vma *m)
{
	return vma_ask(fd, from, VMA_QUERY_OR_NEXT | VMA_QUERY_SHARED | VMA_QUERY_FILE, m, NULL);
}
