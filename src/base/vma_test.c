/* vma_test.c: what the kernel says of maps, asked one by one and as a list; files read by lines. */
#include "base/vma.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/lines.h"

#define PAGE 4096ul

struct seen {
	u64 at;
	struct vma m;
	u32 found;
};

static void see(const struct vma *m, void *arg)
{
	struct seen *s = arg;

	if (m->start <= s->at && s->at < m->end) {
		s->m = *m;
		s->found++;
	}
}

static void vma_each__and_vma_at_say_the_same(void **state)
{
	static struct vma_name name;
	u8 *p = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct seen s = { .at = (uintptr_t)p + PAGE };
	struct vma m;
	int fd = vma_open(), asked;

	assert_ptr_not_equal(p, MAP_FAILED);
	assert_true(fd >= 0);
	assert_int_equal(mprotect(p + PAGE, PAGE, PROT_READ), 0);
	assert_true(vma_each(fd, see, &s));
	assert_int_equal(s.found, 1);
	assert_int_equal(s.m.start, (uintptr_t)p + PAGE);
	assert_int_equal(s.m.end, (uintptr_t)p + 2 * PAGE);
	assert_int_equal(s.m.prot, PROT_READ);
	assert_int_equal(s.m.offset, PAGE);
	assert_true(s.m.shared);
	asked = vma_at(fd, s.at, &m, &name);
	if (asked >= 0) { /* Linux 6.11 */
		assert_int_equal(asked, 1);
		assert_int_equal(m.start, s.m.start);
		assert_int_equal(m.end, s.m.end);
		assert_int_equal(m.prot, s.m.prot);
		assert_int_equal(m.offset, s.m.offset);
		assert_int_equal(m.inode, s.m.inode);
		assert_int_equal(m.device, s.m.device);
		assert_true(m.shared);
		munmap(p + PAGE, PAGE);
		assert_int_equal(vma_at(fd, s.at, &m, NULL), 0);
		assert_int_equal(vma_at_shared_file(fd, s.at, &m), 1);
		assert_int_equal(m.start, (uintptr_t)p + 2 * PAGE);
	}
	munmap(p, 3 * PAGE);
	close(fd);
}

static void vma_parse__refuses_other_lines(void **state)
{
	struct vma m;

	assert_true(vma_parse("1000-3000 r-xp 00002000 fe:00 77   /a b", &m));
	assert_int_equal(m.start, 0x1000);
	assert_int_equal(m.end, 0x3000);
	assert_int_equal(m.offset, 0x2000);
	assert_int_equal(m.inode, 77);
	assert_int_equal(m.prot, PROT_READ | PROT_EXEC);
	assert_false(m.shared);
	assert_string_equal(m.name, "/a b");
	assert_false(vma_parse("VmFlags: rd wr", &m));
	assert_false(vma_parse("1000-", &m));
	assert_false(vma_parse("1000-3000 rw", &m));
}

static int file_of(const char *text, size_t n)
{
	int fd = memfd_create("lines", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, n), n);
	return fd;
}

static bool count_line(const char *line, void *arg)
{
	u32 *lines = arg;

	(*lines)++;
	return strcmp(line, "stop") != 0;
}

static void lines_each__whole_lines_only(void **state)
{
	static const struct {
		const char *text;
		u32 lines;
		bool all;
	} cases[] = { { "", 0, true },
		      { "a\n\nb\n", 3, true },
		      { "a\nb", 1, false },
		      { "a\nstop\nb\n", 2, false } };
	static char longest[20 * LINES_LONGEST];
	u32 lines;

	for (u32 i = 0; i < ARRAY_LEN(cases); i++) {
		int fd = file_of(cases[i].text, strlen(cases[i].text));

		lines = 0;
		assert_int_equal(lines_each(fd, count_line, &lines), cases[i].all);
		assert_int_equal(lines, cases[i].lines);
		close(fd);
	}
	memset(longest, 'x', sizeof(longest));
	longest[sizeof(longest) - 1] = '\n';
	lines = 0;
	assert_false(lines_each(file_of(longest, sizeof(longest)), count_line, &lines));
	assert_int_equal(lines, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vma_each__and_vma_at_say_the_same),
		cmocka_unit_test(vma_parse__refuses_other_lines),
		cmocka_unit_test(lines_each__whole_lines_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
