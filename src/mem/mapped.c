/* mapped.c: is a long range mapped as it must be, without a look at each of its pages?
 *
 * In: an address range    Out: yes, or a no that means "ask otherwise"
 * Runs: any thread      Locks: none
 *
 * Touching pages costs about a microsecond for each, even if they are there. The kernel knows maps,
 * too: one by its address (Linux 6.11), or all in /proc/self/maps. Anonymous memory gets its pages
 * whenever somebody copies; of any other kind pages may be missing for good (behind a file's end),
 * so that is a no.
 */
#include <fcntl.h>
#include <linux/ioctl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mem/adopt_priv.h"
#include "mem/mem_priv.h"

/* The kernel's, of linux/fs.h; older headers do not have it. */
struct mapped_query {
	u64 size, flags, address;
	u64 start, end, vma_flags, page_size, offset, inode;
	u32 major, minor;
	u32 name_size, build_id_size;
	u64 name, build_id;
};
#define MAPPED_QUERY _IOWR('f', 17, struct mapped_query)

struct mapped {
	u64 at, end; /* what is not yet known to be mapped */
	int prot;
};

static void mapped_take(const struct look_map *m, void *arg)
{
	struct mapped *p = arg;

	if (m->start <= p->at && p->at < m->end && m->inode == 0 && !m->shared &&
	    (m->prot & p->prot) == p->prot && (m->name[0] != '[' || m->name[1] != 'v'))
		p->at = m->end;
}

/* False: this kernel cannot be asked so. */
static bool mapped_by_query(int fd, struct mapped *p)
{
	while (p->at < p->end) {
		char name[32] = "";
		struct mapped_query q = { .size = sizeof(q),
					  .address = p->at,
					  .name = (u64)(uintptr_t)name,
					  .name_size = sizeof(name) };
		struct look_map m = { .name = name };

		if (ioctl(fd, MAPPED_QUERY, &q) != 0)
			return false;
		m.start = q.start;
		m.end = q.end;
		m.inode = q.inode;
		m.prot = (int)q.vma_flags & (PROT_READ | PROT_WRITE);
		m.shared = (q.vma_flags & 8) != 0;
		mapped_take(&m, p);
		if (p->at < m.end)
			break;
	}
	return true;
}

bool mem_is_mapped(u64 start, u64 end, bool write)
{
	struct mapped p = { .at = start,
			    .end = end,
			    .prot = write ? PROT_READ | PROT_WRITE : PROT_READ };
	int fd = look_open();
	bool known;

	if (fd < 0)
		return false;
	known = mapped_by_query(fd, &p) || look_maps(fd, mapped_take, &p);
	close(fd);
	return known && p.at >= p.end;
}
