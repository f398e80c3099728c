/* dm.c: device memory: bytes that applications reach by copies and by the keys of regions only.
 * In: lengths, copies    Out: regions    Runs: any thread    Locks: none
 *
 * A software adapter has no memory of its own: these are pages of this process whose address no
 * application learns. Peers reach them as any registered memory.
 *
 * The pages lie in a file, which importers map: in a pool of the process' memory file, which peers
 * map, too; where that cannot be had, in a file of their own. No such file can shrink, so that
 * nobody's map ends in SIGBUS. Pages of the pool serve nothing but device memory, ever: what an
 * importer does to memory that has been freed here reaches no other kind. A forked child shares
 * the memory that its parent had.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/memfile.h"
#include "driver/soft/soft.h"

enum { DM_UNIT = 4, DM_ALIGN_MAX = 12, DM_PAGE = 4096, DM_PAGES = SOFT_DM_BYTES / DM_PAGE };

struct dm_pool {
	struct fork_mark owner FIXED; /* a forked child makes a pool of its own */
	u8 *base FIXED;
	u8 used[DM_PAGES] ATOMIC_ONLY;
};

struct soft_dm {
	struct ib_dm ib GUARDS_ITSELF;
	u8 *bytes FIXED;
	u64 mapped FIXED; /* bytes */
	u64 reserved FIXED; /* bytes of dm_in_use; 0: it is another process' memory */
	struct dm_pool *pool FIXED; /* NULL: a map of its own */
	int fd FIXED; /* a file of its own; -1: none, or another process' */
	u32 regions ATOMIC_ONLY;
};

/* Of this process, all devices together. */
static u64 dm_in_use; /* atomic */

static u64 dm_round(u64 length)
{
	u64 page = (u64)sysconf(_SC_PAGESIZE);

	return (length + page - 1) & ~(page - 1);
}

static bool dm_reserve(u64 length)
{
	if (__atomic_add_fetch(&dm_in_use, length, __ATOMIC_RELAXED) <= SOFT_DM_BYTES)
		return true;
	__atomic_sub_fetch(&dm_in_use, length, __ATOMIC_RELAXED);
	return false;
}

/* ---- the pool -------------------------------------------------------------------------------- */

static struct dm_pool *dm_pool; /* atomic */

static bool dm_pool_is_ours(const struct dm_pool *pool)
{
	return pool != NULL && fork_is_marked_here(&pool->owner);
}

static struct dm_pool *dm_pool_make(void)
{
	struct dm_pool *pool = calloc(1, sizeof(*pool));
	void *base = pool == NULL ? NULL : own_alloc(SOFT_DM_BYTES);

	if (base == NULL || madvise(base, SOFT_DM_BYTES, MADV_DOFORK) != 0) {
		if (base != NULL)
			own_free(base);
		free(pool);
		return NULL;
	}
	pool->owner = fork_mark_here();
	pool->base = base;
	return pool;
}

/* NULL: this process can have none. */
static struct dm_pool *dm_pool_get(void)
{
	struct dm_pool *known = __atomic_load_n(&dm_pool, __ATOMIC_ACQUIRE), *made;

	if (dm_pool_is_ours(known))
		return known;
	made = dm_pool_make();
	/* release pairs with the acquire above */
	if (made == NULL || __atomic_compare_exchange_n(&dm_pool, &known, made, false,
							__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return made;
	own_free(made->base); /* another thread was faster */
	free(made);
	return known;
}

static void dm_pages_put(struct dm_pool *pool, u32 first, u32 count)
{
	for (u32 i = first; i < first + count; i++)
		__atomic_store_n(&pool->used[i], 0, __ATOMIC_RELEASE);
}

static bool dm_pages_get(struct dm_pool *pool, u32 first, u32 count)
{
	for (u32 i = 0; i < count; i++)
		if (__atomic_exchange_n(&pool->used[first + i], 1, __ATOMIC_ACQUIRE) != 0) {
			dm_pages_put(pool, first, i);
			return false;
		}
	return true;
}

/* NULL: no room. */
static struct soft_dm *dm_take(u64 length)
{
	u32 count = (u32)((length + DM_PAGE - 1) / DM_PAGE), first = 0;
	struct dm_pool *pool = dm_pool_get();
	struct soft_dm *dm = pool == NULL ? NULL : calloc(1, sizeof(*dm));

	if (dm == NULL)
		return NULL;
	while (first + count <= DM_PAGES && !dm_pages_get(pool, first, count))
		first++;
	if (first + count > DM_PAGES) {
		free(dm);
		return NULL;
	}
	dm->pool = pool;
	dm->fd = -1;
	dm->bytes = pool->base + (u64)first * DM_PAGE;
	dm->mapped = (u64)count * DM_PAGE;
	memset(dm->bytes, 0, dm->mapped);
	return dm;
}

static void dm_give(struct soft_dm *dm)
{
	if (dm_pool_is_ours(dm->pool))
		dm_pages_put(dm->pool, (u32)((u64)(dm->bytes - dm->pool->base) / DM_PAGE),
			     (u32)(dm->mapped / DM_PAGE));
}

/* ---- maps ------------------------------------------------------------------------------------ */

/* -1: none, and the memory is this process' alone. */
static int dm_create_file(u64 length)
{
	int fd = memfile_create("anyverbs-dm", dm_round(length));

	if (fd < 0)
		return -1;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		return fd;
	close(fd);
	return -1;
}

/* Takes neither the descriptor nor a reservation. `offset`: in the file. NULL: no memory. */
static struct soft_dm *dm_map(int fd, u64 offset, u64 length)
{
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	struct soft_dm *dm = calloc(1, sizeof(*dm));
	void *bytes;

	if (dm == NULL)
		return NULL;
	dm->fd = -1;
	dm->mapped = dm_round(length);
	bytes = mmap(NULL, dm->mapped, PROT_READ | PROT_WRITE, flags, fd, (off_t)offset);
	if (bytes == MAP_FAILED) {
		free(dm);
		return NULL;
	}
	dm->bytes = bytes;
	return dm;
}

static struct soft_dm *dm_make(u64 length)
{
	int fd = dm_create_file(length);
	struct soft_dm *dm = dm_map(fd, 0, length);

	if (dm != NULL)
		dm->fd = fd;
	else if (fd >= 0)
		close(fd);
	return dm;
}

/* ---- methods --------------------------------------------------------------------------------- */

struct ib_dm *soft_uverbs_alloc_dm(struct ib_device *ib, u64 length, u32 align)
{
	struct soft_dm *dm;
	int err = soft_check(ib);

	if (err != 0)
		return ERR_PTR(err);
	if (align > DM_ALIGN_MAX)
		return ERR_PTR(-EINVAL);
	if (length > SOFT_DM_BYTES || !dm_reserve(length))
		return ERR_PTR(-ENOMEM);
	dm = dm_take(length);
	if (dm == NULL)
		dm = dm_make(length);
	if (dm == NULL) {
		__atomic_sub_fetch(&dm_in_use, length, __ATOMIC_RELAXED);
		return ERR_PTR(-ENOMEM);
	}
	dm->reserved = length;
	return &dm->ib;
}

int soft_uverbs_dm_file(struct ib_dm *ib, u64 *offset)
{
	struct soft_dm *dm = SOFT_OF(dm, ib);
	u64 inode;
	int fd;

	*offset = 0;
	if (dm->pool == NULL)
		return dm->fd;
	*offset = own_offset((u64)(uintptr_t)dm->bytes, ib->length);
	return *offset != 0 && adopt_file(&fd, &inode) ? fd : -1;
}

/* The file of a hostile process is as large as it says for ever, or is not mapped. */
struct ib_dm *soft_uverbs_map_dm(struct ib_device *ib, int fd, u64 offset, u64 length)
{
	struct soft_dm *dm;
	struct stat st;
	int seals, err = soft_check(ib);

	if (err != 0)
		return ERR_PTR(err);
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &st) != 0 || length == 0 ||
	    length > SOFT_DM_BYTES || offset % DM_PAGE != 0 || offset > (u64)st.st_size ||
	    length > (u64)st.st_size - offset)
		return ERR_PTR(-EINVAL);
	dm = dm_map(fd, offset, length);
	return dm == NULL ? ERR_PTR(-ENOMEM) : &dm->ib;
}

int soft_uverbs_free_dm(struct ib_dm *ib)
{
	struct soft_dm *dm = SOFT_OF(dm, ib);

	/* pairs with soft_dm_put: the region has ended before its memory goes */
	if (__atomic_load_n(&dm->regions, __ATOMIC_ACQUIRE) != 0)
		return -EBUSY;
	if (dm->pool != NULL)
		dm_give(dm);
	else
		munmap(dm->bytes, dm->mapped);
	if (dm->fd >= 0)
		close(dm->fd);
	__atomic_sub_fetch(&dm_in_use, dm->reserved, __ATOMIC_RELAXED);
	free(dm);
	return 0;
}

void soft_dm_put(struct soft_dm *dm)
{
	__atomic_sub_fetch(&dm->regions, 1, __ATOMIC_RELEASE);
}

static struct ib_mr *dm_register(struct ib_pd *pd, u64 start, u64 length, int access)
{
	struct mem_region empty = { .addr = start,
				    .access = (u32)access,
				    .pd = soft_pd_number(pd),
				    .flags = MEM_CONTIGUOUS };

	return length == 0 ? soft_mr_register(pd, &empty) :
			     soft_uverbs_reg_user_mr(pd, start, length, 0, access);
}

struct ib_mr *soft_uverbs_reg_dm_mr(struct ib_pd *pd, struct ib_dm *ib, u64 offset, u64 length,
				    int access)
{
	struct soft_dm *dm = SOFT_OF(dm, ib);
	struct ib_mr *mr;

	if ((access & IBV_ACCESS_ZERO_BASED) == 0 || access & IBV_ACCESS_ON_DEMAND)
		return ERR_PTR(-EINVAL);
	__atomic_add_fetch(&dm->regions, 1, __ATOMIC_RELAXED);
	mr = dm_register(pd, (uintptr_t)dm->bytes + offset, length, access);
	if (IS_ERR(mr))
		soft_dm_put(dm);
	else
		SOFT_OF(mr, mr)->dm = dm;
	return mr;
}

int soft_uverbs_copy_dm(struct ib_dm *ib, u64 offset, void *host, u64 length, bool out)
{
	struct soft_dm *dm = SOFT_OF(dm, ib);

	if (offset % DM_UNIT != 0 || length % DM_UNIT != 0)
		return -EINVAL;
	if (out)
		memcpy(host, dm->bytes + offset, length);
	else
		memcpy(dm->bytes + offset, host, length);
	return 0;
}
