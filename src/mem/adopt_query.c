/* adopt_query.c: asks the kernel for one map of this process at a time (Linux 6.11). The list in
 * /proc/self/maps says the same, but every line of it has to be written and read: 0.5 us each.
 *
 * In: the open list of maps, an address    Out: a map
 * Runs: any thread    Locks: none
 */
#include <errno.h>
#include <linux/ioctl.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

#include "mem/adopt_priv.h"

/* The kernel's, of linux/fs.h; older headers do not have it. */
struct query {
	u64 size, flags, address;
	u64 start, end, map_flags, page_size, offset, inode;
	u32 major, minor;
	u32 name_size, build_id_size;
	u64 name, build_id;
};
#define QUERY_MAP _IOWR('f', 17, struct query)

enum { QUERY_PROTECTION = 7, QUERY_SHARED = 8, QUERY_OR_NEXT = 16, QUERY_FILE = 32 };

static int query_map(int fd, u64 at, u64 flags, struct look_map *m, struct look_name *name)
{
	struct query q = { .size = sizeof(q),
			   .flags = flags,
			   .address = at,
			   .name = name == NULL ? 0 : (u64)(uintptr_t)name->text,
			   .name_size = name == NULL ? 0 : sizeof(name->text) };

	if (name != NULL)
		name->text[0] = '\0';
	if (ioctl(fd, QUERY_MAP, &q) != 0)
		return errno == ENOENT ? 0 : -errno;
	/* bits 0 to 2 are those of PROT_* */
	*m = (struct look_map){ .start = q.start,
				.end = q.end,
				.offset = q.offset,
				.device = makedev(q.major, q.minor),
				.inode = q.inode,
				.prot = (int)(q.map_flags & QUERY_PROTECTION),
				.shared = (q.map_flags & QUERY_SHARED) != 0,
				.name = name == NULL ? "" : name->text };
	return 1;
}

int look_query(int fd, u64 at, struct look_map *m, struct look_name *name)
{
	return query_map(fd, at, 0, m, name);
}

int look_query_shared_file(int fd, u64 from, struct look_map *m)
{
	return query_map(fd, from, QUERY_OR_NEXT | QUERY_SHARED | QUERY_FILE, m, NULL);
}
