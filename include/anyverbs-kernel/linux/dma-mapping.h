/* dma-mapping.h: DMA addresses of devices. They are the process' own addresses, so that mapping
 * changes nothing; `device` has no meaning and may be an ib_device's dma_device. None of this
 * blocks, but for the coherent memory's calls. */
#ifndef ANYVERBS_LINUX_DMA_MAPPING_H
#define ANYVERBS_LINUX_DMA_MAPPING_H

#include <linux/scatterlist.h>

static inline dma_addr_t dma_map_single(void *device, void *memory, size_t size,
					enum dma_data_direction direction)
{
	(void)device, (void)size, (void)direction;
	return (dma_addr_t)memory;
}

static inline dma_addr_t dma_map_page(void *device, struct page *page, size_t offset, size_t size,
				      enum dma_data_direction direction)
{
	(void)device, (void)size, (void)direction;
	return page_to_phys(page) + offset;
}

static inline void anyverbs_dma_ignore(const void *device, dma_addr_t address, size_t size,
				       enum dma_data_direction direction)
{
	(void)device, (void)address, (void)size, (void)direction;
}

#define dma_unmap_single(device, address, size, direction)                                         \
	anyverbs_dma_ignore(device, address, size, direction)
#define dma_unmap_page(device, address, size, direction)                                           \
	anyverbs_dma_ignore(device, address, size, direction)
#define dma_sync_single_for_cpu(device, address, size, direction)                                  \
	anyverbs_dma_ignore(device, address, size, direction)
#define dma_sync_single_for_device(device, address, size, direction)                               \
	anyverbs_dma_ignore(device, address, size, direction)

static inline int dma_mapping_error(void *device, dma_addr_t address)
{
	(void)device, (void)address;
	return 0;
}

/* Returns how many elements the device sees: all. */
static inline int dma_map_sg(void *device, struct scatterlist *list, int count,
			     enum dma_data_direction direction)
{
	(void)device, (void)list, (void)direction;
	return count;
}

static inline void dma_unmap_sg(void *device, struct scatterlist *list, int count,
				enum dma_data_direction direction)
{
	(void)device, (void)list, (void)count, (void)direction;
}

/* Whole zeroed pages; NULL: no memory. */
static inline void *dma_alloc_coherent(void *device, size_t size, dma_addr_t *address, gfp_t flags)
{
	void *memory = (void *)__get_free_pages(flags | __GFP_ZERO, (unsigned int)get_order(size));

	(void)device;
	if (memory)
		*address = (dma_addr_t)memory;
	return memory;
}

static inline void dma_free_coherent(void *device, size_t size, void *memory, dma_addr_t address)
{
	(void)device, (void)address;
	free_pages((unsigned long)memory, (unsigned int)get_order(size));
}

#define DMA_BIT_MASK(n) ((n) == 64 ? ~0ULL : (1ULL << (n)) - 1)

/* Fields that keep the address for the unmap. */
#define DEFINE_DMA_UNMAP_ADDR(name) dma_addr_t name
#define DEFINE_DMA_UNMAP_LEN(name) u32 name
#define dma_unmap_addr(pointer, name) ((pointer)->name)
#define dma_unmap_addr_set(pointer, name, value) ((pointer)->name = (value))
#define dma_unmap_len(pointer, name) ((pointer)->name)
#define dma_unmap_len_set(pointer, name, value) ((pointer)->name = (value))

#endif
