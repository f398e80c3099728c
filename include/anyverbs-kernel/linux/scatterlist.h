/* scatterlist.h: arrays of pieces of memory; struct scatterlist and the rest of its words are
 * rdma/ib_dma.h's. None of this blocks, but for what allocates with GFP_KERNEL.
 *
 * A piece is an address and a length. So there is no field `offset`: sg_page and sg_virt tell where
 * a piece lies. Lists are not chained. sg_dma_address and sg_dma_len may be assigned to, as in
 * Linux.
 */
#ifndef ANYVERBS_LINUX_SCATTERLIST_H
#define ANYVERBS_LINUX_SCATTERLIST_H

#include <linux/mm.h>
#include <linux/slab.h>
#include <rdma/ib_dma.h>

#define sg_dma_address(sg) ((sg)->dma_address)
#define sg_dma_len(sg) ((sg)->length)

/* Elements behind which another list goes on are none of this library's. */
#define for_each_sg(list, sg, count, i)                                                            \
	for ((i) = 0, (sg) = (list); (i) < (count); (i)++, (sg) = sg_next(sg))

static inline void sg_set_page(struct scatterlist *sg, struct page *page, unsigned int length,
			       unsigned int offset)
{
	sg_set_buf(sg, (char *)page_address(page) + offset, length);
}

static inline void sg_mark_end(struct scatterlist *sg)
{
	sg->is_last = true;
}

static inline void sg_unmark_end(struct scatterlist *sg)
{
	sg->is_last = false;
}

static inline bool sg_is_last(const struct scatterlist *sg)
{
	return sg->is_last;
}

static inline void *sg_virt(const struct scatterlist *sg)
{
	return (void *)sg->dma_address;
}

#define sg_phys(sg) ((dma_addr_t)(sg)->dma_address)

/* The page in which the piece begins. */
static inline struct page *sg_page(const struct scatterlist *sg)
{
	return virt_to_page(sg_virt(sg));
}

static inline int sg_nents(struct scatterlist *sg)
{
	int count = 0;

	for (; sg; sg = sg_next(sg))
		count++;
	return count;
}

static inline struct scatterlist *sg_last(struct scatterlist *list, unsigned int count)
{
	return &list[count - 1];
}

/* Between a buffer and the list's pieces from the byte `skip` on; returns how many bytes went. */
size_t sg_pcopy_from_buffer(struct scatterlist *list, unsigned int count, const void *buffer,
			    size_t length, off_t skip);
size_t sg_pcopy_to_buffer(struct scatterlist *list, unsigned int count, void *buffer, size_t length,
			  off_t skip);
#define sg_copy_from_buffer(list, count, buffer, length)                                           \
	sg_pcopy_from_buffer(list, count, buffer, length, 0)
#define sg_copy_to_buffer(list, count, buffer, length)                                             \
	sg_pcopy_to_buffer(list, count, buffer, length, 0)

/* ---- tables ---------------------------------------------------------------------------------- */

struct sg_table {
	struct scatterlist *sgl;
	unsigned int nents; /* that are mapped */
	unsigned int orig_nents;
};

#define for_each_sgtable_sg(table, sg, i) for_each_sg((table)->sgl, sg, (table)->orig_nents, i)

/* 0, -ENOMEM, or -EINVAL for no elements. */
int sg_alloc_table(struct sg_table *table, unsigned int count, gfp_t flags);
void sg_free_table(struct sg_table *table);

/* A list of whole pages, the last of which may be used in part; NULL: no memory. sgl_free frees the
 * pages, too. */
struct scatterlist *sgl_alloc(unsigned long long length, gfp_t flags, unsigned int *count);
void sgl_free(struct scatterlist *list);

#endif
