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
#include <sys/mman.h>
#include <unistd.h>

#include "base/vma.h"
#include "mem/mem_priv.h"

struct mapped {
	u64 at, end; /* what is not yet known to be mapped */
	int prot;
};

static void mapped_take(const struct vma *m, void *arg)
{
	struct mapped *p = arg;

	if (m->start <= p->at && p->at < m->end && m->inode == 0 && !m->shared &&
	    (m->prot & p->prot) == p->prot && (m->name[0] != '[' || m->name[1] != 'v'))
		p->at = m->end;
}

/* False: this kernel cannot be asked so. */
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
