/* dm.c: device memory: bytes that applications reach by copies and by the keys of regions only.
 * In: lengths, copies    Out: regions    Runs: any thread    Locks: none
 *
 * A software adapter has no memory of its own: these are pages of this process whose address no
 * application learns. Peers reach them as any registered memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver/soft/soft.h"

enum { DM_UNIT = 4, DM_ALIGN_MAX = 12 };

struct soft_dm {
	struct ib_dm ib GUARDS_ITSELF;
	u8 *bytes FIXED;
	u64 mapped FIXED; /* bytes */
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

struct ib_dm *soft_uverbs_alloc_dm(struct ib_device *ib, u64 length, u32 align)
{
	struct soft_dm *dm;
	void *bytes;
	int err = soft_check(ib);

	if (err != 0)
		return ERR_PTR(err);
	if (align > DM_ALIGN_MAX)
		return ERR_PTR(-EINVAL);
	if (length > SOFT_DM_BYTES || !dm_reserve(length))
		return ERR_PTR(-ENOMEM);
	dm = calloc(1, sizeof(*dm));
	bytes = mmap(NULL, dm_round(length), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		     -1, 0);
	if (dm == NULL || bytes == MAP_FAILED) {
		if (bytes != MAP_FAILED)
			munmap(bytes, dm_round(length));
		free(dm);
		__atomic_sub_fetch(&dm_in_use, length, __ATOMIC_RELAXED);
		return ERR_PTR(-ENOMEM);
	}
	dm->bytes = bytes;
	dm->mapped = dm_round(length);
	return &dm->ib;
}

int soft_uverbs_free_dm(struct ib_dm *ib)
{
	struct soft_dm *dm = SOFT_OF(dm, ib);

	/* pairs with soft_dm_put: the region has ended before its memory goes */
	if (__atomic_load_n(&dm->regions, __ATOMIC_ACQUIRE) != 0)
		return -EBUSY;
	munmap(dm->bytes, dm->mapped);
	__atomic_sub_fetch(&dm_in_use, ib->length, __ATOMIC_RELAXED);
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
