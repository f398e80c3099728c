/* mapped.c: tells whether a long range is mapped, without a look at each page.
 *
 * In: an address range    Out: true, or false: use another way
 * Runs: any thread      Locks: none
 *
 * Touching costs about a microsecond per page, even if it is present. The kernel reports maps, too:
 * one by its address (Linux 6.11), or all in /proc/self/maps. Anonymous memory gets its pages at
 * the copy. In other maps pages may be missing for good (behind a file's end): there the result is
 * false.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/vma.h"
#include "mem/mapped.h"

struct mapped {
	u64 at, end; /* the rest that is not yet known to be mapped */
	int prot;
} OWNED_BY(the caller);

static void mapped_take(const struct vma *m, void *arg)
{
	struct mapped *p = arg;

	if (m->start <= p->at && p->at < m->end && m->inode == 0 && !m->shared &&
	    (m->prot & p->prot) == p->prot && (m->name[0] != '[' || m->name[1] != 'v'))
		p->at = m->end;
}

/* False: this kernel has no such query. */
static bool mapped_by_query(int fd, struct mapped *p)
{
	struct vma_name name;
	struct vma m;
	int found = 1;

	while (p->at < p->end && found == 1) {
		found = vma_at(fd, p->at, &m, &name);
		if (found == 1)
			mapped_take(&m, p);
		if (found == 1 && p->at < m.end)
			break;
	}
	return found >= 0;
}

bool mem_is_mapped(u64 start, u64 end, bool write)
{
	struct mapped p = { .at = start,
			    .end = end,
			    .prot = write ? PROT_READ | PROT_WRITE : PROT_READ };
	int fd = vma_open();
	bool known;

	if (fd < 0)
		return false;
	known = mapped_by_query(fd, &p) || vma_each(fd, mapped_take, &p);
	close(fd);
	return known && p.at >= p.end;
}
