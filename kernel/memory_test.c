/* memory_test.c: allocators, pages, scatter lists, DMA addresses. */
#include <linux/dma-mapping.h>
#include <linux/mm.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/vmalloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

static void kmalloc__aligns_powers_of_two(void **state)
{
	for (size_t size = 8; size <= 65536; size *= 2) {
		char *memory = kmalloc(size, GFP_ATOMIC);

		assert_non_null(memory);
		assert_int_equal((unsigned long)memory % min(size, PAGE_SIZE), 0);
		memset(memory, 1, size);
		kfree(memory);
	}
	kfree(NULL);
}

static void kzalloc__is_zero(void **state)
{
	char *memory = kzalloc(100, GFP_KERNEL), *more;
	int *numbers = kcalloc(10, sizeof(int), GFP_KERNEL);

	for (int i = 0; i < 100; i++)
		assert_int_equal(memory[i], 0);
	for (int i = 0; i < 10; i++)
		assert_int_equal(numbers[i], 0);
	assert_null(kmalloc_array(SIZE_MAX / 2, 4, GFP_KERNEL));
	assert_null(kcalloc(SIZE_MAX / 2, 4, GFP_KERNEL));
	memory[99] = 7;
	more = krealloc(memory, 1000, GFP_KERNEL);
	assert_int_equal(more[99], 7);
	kfree_sensitive(more);
	kfree_sensitive(NULL);
	kfree(numbers);
	memory = kzalloc_node(64, GFP_KERNEL, 1);
	assert_int_equal(memory[63], 0);
	kvfree(memory);
}

static void kmemdup__copies(void **state)
{
	char *text = kstrdup("text", GFP_KERNEL), *part = kstrndup("text", 2, GFP_KERNEL);
	char *copy = kmemdup("abc", 4, GFP_KERNEL), *made = kasprintf(GFP_KERNEL, "%d", 12);

	assert_string_equal(text, "text");
	assert_string_equal(part, "te");
	assert_string_equal(copy, "abc");
	assert_string_equal(made, "12");
	assert_null(kstrdup(NULL, GFP_KERNEL));
	kfree(text);
	kfree(part);
	kfree(copy);
	kfree(made);
}

struct thing {
	int number;
	int zero;
};

static void thing_make(void *object)
{
	((struct thing *)object)->number = 5;
}

static void kmem_cache__makes_objects(void **state)
{
	struct kmem_cache *cache = kmem_cache_create("things", sizeof(struct thing), 0,
						     SLAB_HWCACHE_ALIGN, thing_make);
	struct kmem_cache *plain = KMEM_CACHE(thing, 0);
	struct thing *one = kmem_cache_zalloc(cache, GFP_KERNEL);
	struct thing *other = kmem_cache_alloc(plain, GFP_KERNEL);

	assert_true(one->number == 5 && one->zero == 0);
	assert_int_equal((unsigned long)one % 64, 0);
	kmem_cache_free(cache, one);
	kmem_cache_free(plain, other);
	kmem_cache_destroy(cache);
	kmem_cache_destroy(plain);
	kmem_cache_destroy(NULL);
}

static void pages__are_their_addresses(void **state)
{
	struct page *page = alloc_pages(GFP_KERNEL | __GFP_ZERO, 1);
	char *memory = page_address(page), *one = (char *)get_zeroed_page(GFP_KERNEL);

	assert_int_equal(offset_in_page(memory), 0);
	assert_int_equal(offset_in_page(memory + 5), 5);
	assert_int_equal(memory[2 * PAGE_SIZE - 1], 0);
	assert_ptr_equal(virt_to_page(memory + 5), page);
	assert_int_equal(page_to_phys(page), (phys_addr_t)memory);
	assert_ptr_equal(kmap(page), memory);
	kunmap(page);
	assert_true(PAGE_ALIGNED(one) && PAGE_ALIGN(4097) == 8192);
	assert_int_equal(PFN_UP(4097) + PFN_DOWN(4097), 3);
	free_page((unsigned long)one);
	__free_pages(page, 1);
	memory = vzalloc(3 * PAGE_SIZE - 8); /* three pages: malloc aligns powers of two */
	assert_true(memory[3 * PAGE_SIZE - 9] == 0 && !is_vmalloc_addr(memory));
	assert_ptr_equal(page_address(vmalloc_to_page(memory + PAGE_SIZE)), memory + PAGE_SIZE);
	one = vmalloc(5 * PAGE_SIZE);
	assert_true(PAGE_ALIGNED(memory) && PAGE_ALIGNED(one));
	vfree(memory);
	vfree(one);
}

static void sg__pieces(void **state)
{
	struct scatterlist list[3], *sg;
	struct page *page = alloc_page(GFP_KERNEL);
	char a[8], *memory = page_address(page);
	int i, sum = 0;

	sg_init_table(list, 3);
	sg_set_page(&list[0], page, 100, 8);
	sg_set_buf(&list[1], a, sizeof(a));
	sg_dma_address(&list[2]) = (u64)memory;
	sg_dma_len(&list[2]) = 1;
	for_each_sg(list, sg, 3, i)
		sum += (int)sg->length;
	assert_int_equal(sum, 109);
	assert_ptr_equal(sg_virt(&list[0]), memory + 8);
	assert_ptr_equal(sg_page(&list[0]), page);
	assert_int_equal(sg_phys(&list[1]), (u64)a);
	assert_ptr_equal(sg_last(list, 3), &list[2]);
	assert_int_equal(sg_nents(list), 3);
	assert_true(sg_is_last(&list[2]) && !sg_is_last(&list[1]));
	sg_mark_end(&list[1]);
	assert_int_equal(sg_nents(list), 2);
	__free_page(page);
}

static void sg_copy__crosses_pieces(void **state)
{
	char a[3], b[5], text[9] = "";
	struct scatterlist list[2];

	sg_init_table(list, 2);
	sg_set_buf(&list[0], a, 3);
	sg_set_buf(&list[1], b, 5);
	assert_int_equal(sg_copy_from_buffer(list, 2, "abcdefghij", 10), 8);
	assert_memory_equal(b, "defgh", 5);
	assert_int_equal(sg_pcopy_from_buffer(list, 2, "XY", 2, 2), 2);
	assert_int_equal(sg_copy_to_buffer(list, 2, text, 8), 8);
	assert_string_equal(text, "abXYefgh");
	assert_int_equal(sg_pcopy_to_buffer(list, 2, text, 8, 4), 4);
	assert_memory_equal(text, "efgh", 4);
}

static void sg_table__and_lists_of_pages(void **state)
{
	struct sg_table table;
	struct scatterlist *list, *sg;
	unsigned int count, i, sum = 0;

	assert_int_equal(sg_alloc_table(&table, 0, GFP_KERNEL), -EINVAL);
	assert_int_equal(sg_alloc_table(&table, 3, GFP_KERNEL), 0);
	assert_int_equal(sg_nents(table.sgl), 3);
	for_each_sgtable_sg(&table, sg, i)
		sum++;
	assert_int_equal(sum, 3);
	sg_free_table(&table);
	list = sgl_alloc(5000, GFP_KERNEL, &count);
	assert_int_equal(count, 2);
	assert_int_equal(list[1].length, 5000 - PAGE_SIZE);
	assert_int_equal(offset_in_page(sg_virt(&list[0])), 0);
	sgl_free(list);
	assert_null(sgl_alloc(0, GFP_KERNEL, &count));
}

static void dma__addresses_are_the_process_own(void **state)
{
	struct {
		DEFINE_DMA_UNMAP_ADDR(kept);
		DECLARE_PCI_UNMAP_ADDR(older)
	} unmap;
	struct scatterlist sg[1];
	dma_addr_t address = 0;
	char *memory = dma_alloc_coherent(NULL, 5000, &address, GFP_KERNEL);

	assert_int_equal(address, (u64)memory);
	assert_int_equal(memory[8191], 0);
	assert_int_equal(dma_map_single(NULL, memory, 10, DMA_TO_DEVICE), address);
	assert_int_equal(dma_map_page(NULL, virt_to_page(memory), 5, 1, DMA_TO_DEVICE),
			 address + 5);
	assert_int_equal(dma_mapping_error(NULL, address), 0);
	dma_unmap_addr_set(&unmap, kept, address);
	pci_unmap_addr_set(&unmap, older, address);
	assert_int_equal(dma_unmap_addr(&unmap, kept), pci_unmap_addr(&unmap, older));
	dma_sync_single_for_cpu(NULL, address, 10, DMA_FROM_DEVICE);
	dma_sync_single_for_device(NULL, address, 10, DMA_FROM_DEVICE);
	dma_unmap_single(NULL, address, 10, DMA_TO_DEVICE);
	sg_init_one(sg, memory, 10);
	assert_int_equal(dma_map_sg(NULL, sg, 1, DMA_TO_DEVICE), 1);
	dma_unmap_sg(NULL, sg, 1, DMA_TO_DEVICE);
	dma_free_coherent(NULL, 5000, memory, address);
	assert_true(DMA_BIT_MASK(32) == 0xffffffff && DMA_BIT_MASK(64) == UINT64_MAX);
}

static void device__has_a_name(void **state)
{
	struct device device = { .init_name = "mine" };
	int here = 0, pipes[2], real = dup(STDERR_FILENO);
	char said[64] = "";

	assert_string_equal(dev_name(NULL), "device");
	dev_set_drvdata(&device, &here);
	assert_ptr_equal(dev_get_drvdata(&device), &here);
	assert_int_equal(pipe(pipes), 0);
	dup2(pipes[1], STDERR_FILENO);
	dev_dbg(&device, "no\n");
	dev_err(&device, "error %d\n", 3);
	dup2(real, STDERR_FILENO);
	assert_true(read(pipes[0], said, sizeof(said) - 1) > 0);
	assert_string_equal(said, "mine: error 3\n");
	close(pipes[0]);
	close(pipes[1]);
	close(real);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kmalloc__aligns_powers_of_two),
		cmocka_unit_test(kzalloc__is_zero),
		cmocka_unit_test(kmemdup__copies),
		cmocka_unit_test(kmem_cache__makes_objects),
		cmocka_unit_test(pages__are_their_addresses),
		cmocka_unit_test(sg__pieces),
		cmocka_unit_test(sg_copy__crosses_pieces),
		cmocka_unit_test(sg_table__and_lists_of_pages),
		cmocka_unit_test(dma__addresses_are_the_process_own),
		cmocka_unit_test(device__has_a_name),
	};

	return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
