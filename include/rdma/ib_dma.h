/* ib_dma.h: DMA addresses. In a process they are its own addresses, so that mapping changes
 * nothing. Reached through ib_verbs.h. None of this blocks, but for the two of coherent memory.
 */
#ifndef IB_DMA_H
#define IB_DMA_H

#include <anyverbs/kernel.h>
#include <stdlib.h>

struct ib_device;

/* The parameters are Linux's. A device that sees the process' own addresses needs few of them. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"

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

/* ---- scatter lists --------------------------------------------------------------------------- */

/* An element of an array of pieces of memory. */
struct scatterlist {
	u64 dma_address;
	unsigned int length;
	bool is_last;
};

static inline u64 sg_dma_address(const struct scatterlist *sg)
{
	return sg->dma_address;
}

static inline unsigned int sg_dma_len(const struct scatterlist *sg)
{
	return sg->length;
}

/* What ib_dma_map_sg has made of an element: its address for the device ... */
static inline u64 ib_sg_dma_address(struct ib_device *dev, struct scatterlist *sg)
{
	return sg_dma_address(sg);
}

/* ... and its bytes. */
static inline unsigned int ib_sg_dma_len(struct ib_device *dev, struct scatterlist *sg)
{
	return sg_dma_len(sg);
}

/* An empty list of `count` elements, the last of which ends it. */
static inline void sg_init_table(struct scatterlist *sg, unsigned int count)
{
	__builtin_memset(sg, 0, count * sizeof(*sg));
	if (count)
		sg[count - 1].is_last = true;
}

static inline void sg_set_buf(struct scatterlist *sg, const void *buf, unsigned int length)
{
	sg->dma_address = (u64)(uintptr_t)buf;
	sg->length = length;
}

static inline void sg_init_one(struct scatterlist *sg, const void *buf, unsigned int length)
{
	sg_init_table(sg, 1);
	sg_set_buf(sg, buf, length);
}

/* The element behind `sg`; NULL: that was the last. */
static inline struct scatterlist *sg_next(struct scatterlist *sg)
{
	return sg->is_last ? NULL : sg + 1;
}

/* Returns how many elements the device sees: all. */
static inline int ib_dma_map_sg(struct ib_device *dev, struct scatterlist *sg, int count,
				enum dma_data_direction direction)
{
	return count;
}

static inline void ib_dma_unmap_sg(struct ib_device *dev, struct scatterlist *sg, int count,
				   enum dma_data_direction direction)
{
}

/* ---- coherent memory ------------------------------------------------------------------------- */

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

#pragma GCC diagnostic pop

#endif
