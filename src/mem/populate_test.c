/* populate_test.c: mapped or not, writable or not, present afterwards; both ways of asking. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "mem/mem.h"
#include "mem/populate.h"

enum { PAGES = 8 };

static u64 page_size;

static u8 *map_pages(int prot)
{
	u8 *p = mmap(NULL, PAGES * page_size, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static int by_touch(u64 addr, u64 length, bool write)
{
	u64 first = addr & ~(page_size - 1);

	return mem_populate_by_touch(first, (addr + length + page_size - 1) & ~(page_size - 1),
				     page_size, write);
}

typedef int populate_fn(u64 addr, u64 length, bool write);
static populate_fn *const ways[] = { mem_populate, by_touch };

static int present(u8 *p)
{
	unsigned char resident[PAGES] = { 0 };
	int count = 0;

	assert_int_equal(mincore(p, PAGES * page_size, resident), 0);
	for (int i = 0; i < PAGES; i++)
		count += resident[i] & 1;
	return count;
}

static void mem_populate__faults_in_and_keeps_the_content(void **state)
{
	for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
		u8 *p = map_pages(PROT_READ | PROT_WRITE);
		u64 at = (uintptr_t)p;

		p[page_size] = 77;
		assert_int_equal(ways[w](at + page_size - 1, page_size + 2, true), 0);
		assert_int_equal(present(p), 3);
		assert_int_equal(ways[w](at, PAGES * page_size, true), 0);
		assert_int_equal(present(p), PAGES);
		assert_int_equal(p[page_size], 77);
		assert_int_equal(p[0], 0);
		munmap(p, PAGES * page_size);
	}
}

static void mem_populate__read_only_memory(void **state)
{
	for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
		u8 *p = map_pages(PROT_READ);
		u64 at = (uintptr_t)p;

		assert_int_equal(ways[w](at, 100, false), 0);
		assert_int_equal(ways[w](at, 100, true), -EFAULT);
		munmap(p, PAGES * page_size);
	}
}

static void mem_populate__holes_and_no_access(void **state)
{
	for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
		u8 *p = map_pages(PROT_READ | PROT_WRITE);
		u64 at = (uintptr_t)p;

		mprotect(p + 6 * page_size, page_size, PROT_NONE);
		munmap(p + 3 * page_size, page_size);
		for (int write = 0; write < 2; write++) {
			assert_int_equal(ways[w](at, 3 * page_size, write), 0);
			assert_int_equal(ways[w](at, 3 * page_size + 1, write), -EFAULT);
			assert_int_equal(ways[w](at + 3 * page_size, 1, write), -EFAULT);
			assert_int_equal(ways[w](at + 4 * page_size, 2 * page_size, write), 0);
			assert_int_equal(ways[w](at + 5 * page_size, 2 * page_size, write),
					 -EFAULT);
			assert_int_equal(ways[w](at + 7 * page_size, 1, write), 0);
		}
		munmap(p, PAGES * page_size);
	}
}

static void mem_populate__beyond_the_end_of_a_file(void **state)
{
	int fd = memfd_create("populate", MFD_CLOEXEC);
	u8 *p;

	assert_int_equal(ftruncate(fd, (off_t)page_size), 0);
	p = mmap(NULL, 2 * page_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
		assert_int_equal(ways[w]((uintptr_t)p, page_size, true), 0);
		assert_int_equal(ways[w]((uintptr_t)p, 2 * page_size, true), -EFAULT);
		assert_int_equal(ways[w]((uintptr_t)p, 2 * page_size, false), -EFAULT);
	}
	munmap(p, 2 * page_size);
	close(fd);
}

static void mem_populate__nonsense(void **state)
{
	assert_int_equal(mem_populate(0, 0, true), 0);
	assert_int_equal(mem_populate(0, 1, false), -EFAULT);
	assert_int_equal(mem_populate(UINT64_MAX, 1, true), -EFAULT);
	assert_int_equal(mem_populate(UINT64_MAX, 2, true), -EFAULT);
	assert_int_equal(mem_populate(1, UINT64_MAX, false), -EFAULT);
	assert_int_equal(mem_populate(0x8000000000000000ull, 4096, true), -EFAULT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mem_populate__faults_in_and_keeps_the_content),
		cmocka_unit_test(mem_populate__read_only_memory),
		cmocka_unit_test(mem_populate__holes_and_no_access),
		cmocka_unit_test(mem_populate__beyond_the_end_of_a_file),
		cmocka_unit_test(mem_populate__nonsense),
	};

	page_size = (u64)sysconf(_SC_PAGESIZE);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
