/* ib_dma.h: DMA addresses. In a process they are its own addresses, so that mapping changes
 * nothing. Reached through ib_verbs.h. None of this blocks, but for the two of coherent memory.
 */
#ifndef IB_DMA_H
#define IB_DMA_H

#include <anyverbs/kernel.h>
#include <stdlib.h>

struct ib_device;

enum dma_data_direction {
	DMA_BIDIRECTIONAL = 0,
	DMA_TO_DEVICE = 1,
	DMA_FROM_DEVICE = 2,
	DMA_NONE = 3
};

static inline int ib_dma_mapping_error(struct ib_device *dev, u64 dma_addr)
{
	return 0;
}

static inline u64 ib_dma_map_single(struct ib_device *dev, void *cpu_addr, size_t size,
				    enum dma_data_direction direction)
{
	return (u64)(uintptr_t)cpu_addr;
}

static inline void ib_dma_unmap_single(struct ib_device *dev, u64 addr, size_t size,
				       enum dma_data_direction direction)
{
}

/* A page is known by its address here. */
static inline u64 ib_dma_map_page(struct ib_device *dev, void *page, unsigned long offset,
				  size_t size, enum dma_data_direction direction)
{
	return (u64)(uintptr_t)page + offset;
}

static inline void ib_dma_unmap_page(struct ib_device *dev, u64 addr, size_t size,
				     enum dma_data_direction direction)
{
}

static inline void ib_dma_sync_single_for_cpu(struct ib_device *dev, u64 addr, size_t size,
					      enum dma_data_direction dir)
{
}

static inline void ib_dma_sync_single_for_device(struct ib_device *dev, u64 addr, size_t size,
						 enum dma_data_direction dir)
{
}

/* Whole zeroed pages; NULL: no memory. `flag` (gfp_t in a kernel) has no meaning. */
static inline void *ib_dma_alloc_coherent(struct ib_device *dev, size_t size, u64 *dma_handle,
					  unsigned int flag)
{
	size_t whole = (size + 4095) & ~(size_t)4095;
	char *memory = whole ? (char *)aligned_alloc(4096, whole) : NULL;

	if (!memory)
		return NULL;
	__builtin_memset(memory, 0, whole);
	*dma_handle = (u64)(uintptr_t)memory;
	return memory;
}

static inline void ib_dma_free_coherent(struct ib_device *dev, size_t size, void *cpu_addr,
					u64 dma_handle)
{
	free(cpu_addr);
}

#endif
