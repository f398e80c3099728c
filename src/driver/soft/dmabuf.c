/* dmabuf.c: regions of DMA buffers, the descriptors by which drivers of the kernel share memory.
 * In: a descriptor, a range    Out: keys    Runs: any thread    Locks: none
 *
 * The adapter's processor is this process', so it reaches the buffer by a mapping of its own, which
 * ends with the region. The pages are the exporter's: they are not made present, since a mapping of
 * them may have no pages that the kernel knows of (VM_PFNMAP), and for the same reason peers send
 * packets (MEM_ON_DEMAND) instead of having the kernel copy from this process' address space.
 */
#include <errno.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "driver/soft/soft.h"

/* *size (out): of the buffer. -EBADF; -EINVAL: another kind of descriptor. */
static int dmabuf_size(int fd, u64 *size)
{
	struct statfs fs;
	off_t end;

	if (fstatfs(fd, &fs) != 0)
		return errno == EBADF ? -EBADF : -EINVAL;
	end = fs.f_type == DMA_BUF_MAGIC ? lseek(fd, 0, SEEK_END) : -1;
	if (end < 0)
		return -EINVAL;
	*size = (u64)end;
	return 0;
}

/* Maps the buffer from its beginning: graphics drivers of Linux (drm_gem_shmem_fault) put its first
 * page first wherever a mapping begins. An exporter whose buffers have no mapping answers EINVAL,
 * ENODEV or what else it likes. */
static int dmabuf_map(int fd, u64 bytes, bool write, void **mapping)
{
	void *at = mmap(NULL, bytes, write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		return errno == EACCES || errno == ENOMEM ? -errno : -EOPNOTSUPP;
	*mapping = at;
	return 0;
}

struct ib_mr *soft_uverbs_reg_dmabuf_mr(struct ib_pd *pd, u64 offset, u64 length, u64 iova, int fd,
					int access)
{
	u64 page = (u64)sysconf(_SC_PAGESIZE), size, bytes;
	struct mem_region region = { .length = length,
				     .iova = iova,
				     .access = (u32)access,
				     .pd = soft_pd_number(pd),
				     .flags = MEM_CONTIGUOUS | MEM_ON_DEMAND };
	int err = soft_check(pd->device);
	struct ib_mr *mr;
	void *mapping;

	if (err == 0)
		err = dmabuf_size(fd, &size);
	if (err == 0 && (offset > size || length > size - offset))
		err = -EINVAL;
	if (err != 0)
		return ERR_PTR(err);
	bytes = (offset + length + page - 1) & ~(page - 1);
	err = dmabuf_map(fd, bytes, access & IB_ACCESS_LOCAL_WRITE, &mapping);
	if (err != 0)
		return ERR_PTR(err);
	region.addr = (uintptr_t)mapping + offset;
	mr = soft_mr_register(pd, &region);
	if (IS_ERR(mr)) {
		munmap(mapping, bytes);
		return mr;
	}
	SOFT_OF(mr, mr)->mapping = mapping;
	SOFT_OF(mr, mr)->mapped = bytes;
	return mr;
}
