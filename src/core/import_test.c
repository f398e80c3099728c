/* import_test.c: the file behind a context's descriptor, as its owner writes it and others read
 * it, and the search for the owner's memory in another process.
 * In: objects, maps, files that are no context's    Out: verdicts
 * Runs: cmocka; importers are forked children       Locks: none
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/import.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { PAGE = 4096, PAGES = 8, BYTES = PAGE * PAGES };

static struct ib_export *export;
static int fd;

static int setup(void **state)
{
	fd = ib_export_open(&export);
	if (fd < 0 || !export)
		return -1;
	ib_export_begin(export, "/sys/here", 77);
	return 0;
}

static int teardown(void **state)
{
	ib_export_close(export);
	return close(fd);
}

/* ---- entries --------------------------------------------------------------------------------- */

static u32 add(u32 handle, enum ib_uobject_kind kind)
{
	return ib_export_add(export,
			     &(struct export_entry){ .handle = handle, .kind = (u8)kind });
}

static int find(enum ib_uobject_kind kind, u32 handle)
{
	struct export_entry entry;

	return ib_import_find(fd, kind, handle, &entry);
}

static void find__by_kind_and_handle(void **state)
{
	u32 pd = add(1, IB_UOBJECT_PD), mr = add(2, IB_UOBJECT_MR);
	struct export_entry entry = { .handle = 2, .kind = IB_UOBJECT_MR, .length = 9 };
	struct export_head head;

	assert_int_equal(ib_import_device(fd, &head), 0);
	assert_string_equal(head.place, "/sys/here");
	assert_int_equal(head.guid, 77);
	assert_int_equal(find(IB_UOBJECT_PD, 1), 0);
	assert_int_equal(find(IB_UOBJECT_PD, 2), -ENOENT);
	assert_int_equal(find(IB_UOBJECT_PD, 0), -ENOENT);
	assert_int_equal(find(IB_UOBJECT_MR, 3), -ENOENT);
	assert_int_equal(ib_export_find(export, 2), mr);
	assert_int_equal(ib_export_find(export, 3), 0);
	ib_export_change(export, mr, &entry);
	assert_true(ib_export_get(export, mr, &entry));
	assert_int_equal(ib_import_find(fd, IB_UOBJECT_MR, 2, &entry), 0);
	assert_int_equal(entry.length, 9);
	ib_export_remove(export, pd);
	assert_int_equal(find(IB_UOBJECT_PD, 1), -ENOENT);
	assert_int_equal(add(4, IB_UOBJECT_PD), pd); /* its room is used again */
	assert_int_equal(find(IB_UOBJECT_PD, 4), 0);
}

/* What finds no room is declined as such, and room comes back. */
static void find__one_more_than_has_room(void **state)
{
	for (u32 i = 1; i <= EXPORT_ENTRIES; i++)
		assert_int_not_equal(add(i, IB_UOBJECT_MR), 0);
	assert_int_equal(find(IB_UOBJECT_MR, EXPORT_ENTRIES), 0);
	assert_int_equal(find(IB_UOBJECT_MR, EXPORT_ENTRIES + 1), -ENOENT);
	assert_int_equal(add(EXPORT_ENTRIES + 1, IB_UOBJECT_MR), 0);
	assert_int_equal(find(IB_UOBJECT_MR, EXPORT_ENTRIES + 1), -EOPNOTSUPP);
	ib_export_remove(export, ib_export_find(export, 5));
	assert_int_not_equal(add(EXPORT_ENTRIES + 2, IB_UOBJECT_MR), 0);
	assert_int_equal(find(IB_UOBJECT_MR, EXPORT_ENTRIES + 2), 0);
}

static void find__nothing_after_the_end(void **state)
{
	struct export_head head;

	add(1, IB_UOBJECT_PD);
	ib_export_end(export);
	assert_int_equal(ib_import_device(fd, &head), -ENODEV);
	assert_int_equal(find(IB_UOBJECT_PD, 1), -ENODEV);
}

/* Nobody can write to the file but its owner; programs that try get EPERM, as ever. */
static void file__is_written_by_its_owner_only(void **state)
{
	assert_int_equal(write(fd, "x", 1), -1);
	assert_int_equal(errno, EPERM);
	assert_ptr_equal(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	assert_int_equal(ftruncate(fd, 0), -1);
}

static void expect_child(int (*run)(void))
{
	int status, child = fork();

	if (child == 0)
		_exit(run());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static int child_writes_nothing(void)
{
	if (add(9, IB_UOBJECT_PD) || ib_export_find(export, 1) || find(IB_UOBJECT_PD, 1))
		return 1;
	ib_export_remove(export, 1);
	ib_export_close(export);
	return find(IB_UOBJECT_PD, 1) ? 2 : 0;
}

static void child__reads_and_writes_nothing(void **state)
{
	add(1, IB_UOBJECT_PD);
	expect_child(child_writes_nothing);
	assert_int_equal(find(IB_UOBJECT_PD, 1), 0);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static struct {
	int file;
	u8 *at;	     /* the owner's, BYTES */
	int answer;  /* of the child */
	u64 from, length;
	int prot;    /* of the child's map */
	int first;   /* of its first page; 0: the same */
	off_t skew;  /* of the child's map, in the file */
	bool pieces; /* the child maps page by page */
} m;

static u8 *map_file(void *at, u64 length, int prot, off_t offset)
{
	return mmap(at, length, prot, MAP_SHARED | (at ? MAP_FIXED : 0), m.file, offset);
}

/* Elsewhere than the owner has it. */
static u8 *child_map(void)
{
	u8 *here = map_file(NULL, BYTES, m.prot, m.skew);

	for (u64 i = 0; m.pieces && i < BYTES; i += PAGE)
		map_file(here + i, PAGE, m.prot, m.skew + (off_t)i);
	if (m.first)
		mprotect(here, PAGE, m.first);
	munmap(m.at, BYTES);
	return here;
}

static int child_finds(void)
{
	struct export_entry entry;
	u8 *here = child_map();
	bool writable;
	u64 found;
	int error = ib_import_find(fd, IB_UOBJECT_MR, 1, &entry);

	if (error || here == MAP_FAILED)
		return 1;
	error = ib_import_memory(fd, &entry, &found, &writable);
	if (error != m.answer)
		return 2;
	if (error)
		return 0;
	if (found != (uintptr_t)here + m.from - (u64)m.skew)
		return 3;
	return writable == (m.first == 0 && (m.prot & PROT_WRITE) != 0) ? 0 : 4;
}

static void owner_map(void)
{
	m.file = memfd_create("test", MFD_CLOEXEC);
	assert_int_equal(ftruncate(m.file, 2 * BYTES), 0);
	m.at = map_file(NULL, BYTES, PROT_READ | PROT_WRITE, 0);
	assert_ptr_not_equal(m.at, MAP_FAILED);
	m.answer = 0;
	m.from = 0;
	m.length = BYTES;
	m.prot = PROT_READ | PROT_WRITE;
	m.first = 0;
	m.skew = 0;
	m.pieces = false;
}

static void expect_found(void)
{
	u32 number = ib_export_add(export, &(struct export_entry){
							   .handle = 1,
							   .kind = IB_UOBJECT_MR,
							   .plain = 1,
							   .addr = (uintptr_t)m.at + m.from,
							   .length = m.length });

	expect_child(child_finds);
	ib_export_remove(export, number);
	munmap(m.at, BYTES);
	close(m.file);
}

static void memory__of_one_file(void **state)
{
	static const struct {
		const char *what;
		u64 from, length;
		int prot, answer;
		off_t skew;
		bool pieces;
		int first;
	} rows[] = {
		{ "all of it", 0, BYTES, PROT_READ | PROT_WRITE, 0, 0, false, 0 },
		{ "some bytes", 100, 5, PROT_READ | PROT_WRITE, 0, 0, false, 0 },
		{ "over pages", 100, 3 * PAGE, PROT_READ | PROT_WRITE, 0, 0, false, 0 },
		{ "its last byte", BYTES - 1, 1, PROT_READ | PROT_WRITE, 0, 0, false, 0 },
		{ "read only", 0, BYTES, PROT_READ, 0, 0, false, 0 },
		{ "first read only", 0, BYTES, PROT_READ | PROT_WRITE, 0, 0, false, PROT_READ },
		{ "not readable", 0, BYTES, PROT_NONE, -EOPNOTSUPP, 0, false, 0 },
		{ "from its second page", PAGE, PAGE, PROT_READ | PROT_WRITE, 0, PAGE, false, 0 },
		{ "begins before", 0, BYTES, PROT_READ | PROT_WRITE, -EOPNOTSUPP, PAGE, false, 0 },
		{ "elsewhere", 0, PAGE, PROT_READ | PROT_WRITE, -EOPNOTSUPP, BYTES, false, 0 },
		{ "page by page", 7, BYTES - 7, PROT_READ | PROT_WRITE, 0, 0, true, 0 },
		{ "one byte too many", 0, BYTES + 1, PROT_READ, -EOPNOTSUPP, 0, false, 0 },
		{ "no bytes", 0, 0, PROT_READ, -EOPNOTSUPP, 0, false, 0 },
		{ "all addresses", 0, UINT64_MAX, PROT_READ, -EOPNOTSUPP, 0, false, 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		print_message("%s\n", rows[i].what);
		owner_map();
		m.from = rows[i].from;
		m.length = rows[i].length;
		m.prot = rows[i].prot;
		m.answer = rows[i].answer;
		m.skew = rows[i].skew;
		m.pieces = rows[i].pieces;
		m.first = rows[i].first;
		expect_found();
	}
}

/* Two pages of the owner's in the other order than here, where another page is behind the first. */
static void memory__in_another_order(void **state)
{
	for (u64 pages = 2; pages <= BYTES / PAGE; pages += BYTES / PAGE - 2) {
		owner_map();
		map_file(m.at, PAGE, PROT_READ | PROT_WRITE, PAGE);
		map_file(m.at + PAGE, PAGE, PROT_READ | PROT_WRITE, 0);
		m.length = pages * PAGE;
		m.answer = -EOPNOTSUPP;
		expect_found();
	}
}

static void memory__of_the_owner_alone(void **state)
{
	const int flags[] = { MAP_PRIVATE | MAP_ANONYMOUS, MAP_PRIVATE };

	for (int i = 0; i < 2; i++) {
		owner_map();
		mmap(m.at + PAGE, PAGE, PROT_READ | PROT_WRITE, flags[i] | MAP_FIXED,
		     flags[i] & MAP_ANONYMOUS ? -1 : m.file, flags[i] & MAP_ANONYMOUS ? 0 : PAGE);
		m.answer = -EOPNOTSUPP;
		expect_found();
	}
	owner_map();
	munmap(m.at + PAGE, PAGE);
	m.answer = -EOPNOTSUPP;
	expect_found();
}

static int child_attaches(void)
{
	struct export_entry entry;
	void *here = shmat(m.file, NULL, 0);
	bool writable;
	u64 found;

	shmdt(m.at);
	if (ib_import_find(fd, IB_UOBJECT_MR, 1, &entry) ||
	    ib_import_memory(fd, &entry, &found, &writable))
		return 1;
	return found == (uintptr_t)here ? 0 : 2;
}

/* A segment of System V. */
static void memory__of_a_segment(void **state)
{
	m.file = shmget(IPC_PRIVATE, BYTES, 0600);
	assert_true(m.file >= 0);
	m.at = shmat(m.file, NULL, 0);
	shmctl(m.file, IPC_RMID, NULL);
	ib_export_add(export, &(struct export_entry){ .handle = 1,
						      .kind = IB_UOBJECT_MR,
						      .plain = 1,
						      .addr = (uintptr_t)m.at,
						      .length = BYTES });
	expect_child(child_attaches);
	shmdt(m.at);
}

/* ---- files of others ------------------------------------------------------------------------- */

static void device__of_what_is_no_context(void **state)
{
	int ends[2], plain = memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct export_head head;

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(ib_import_device(-1, &head), -EBADF);
	assert_int_equal(ib_import_device(ends[0], &head), -EOPNOTSUPP);
	assert_int_equal(ib_import_device(null, &head), -EOPNOTSUPP);
	assert_int_equal(ib_import_device(plain, &head), -EOPNOTSUPP);
	fcntl(plain, F_ADD_SEALS,
	      F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
	assert_int_equal(ib_import_device(plain, &head), -EOPNOTSUPP); /* empty */
	assert_true(ib_import_is_context(fd));
	assert_false(ib_import_is_context(null));
	assert_false(ib_import_is_context(-1));
	close(plain);
	close(null);
	close(ends[0]);
	close(ends[1]);
}

/* A file as an owner writes it that wants to do harm. */
struct forged {
	struct export_head head;
	u8 rest[EXPORT_HEAD - sizeof(struct export_head)];
	struct export_entry at[EXPORT_ENTRIES];
};

static struct forged *forge(int *file)
{
	struct forged *f;

	*file = memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(*file, sizeof(*f)), 0);
	f = mmap(NULL, sizeof(*f), PROT_READ | PROT_WRITE, MAP_SHARED, *file, 0);
	assert_ptr_not_equal(f, MAP_FAILED);
	fcntl(*file, F_ADD_SEALS,
	      F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
	f->head.magic = EXPORT_MAGIC;
	f->head.pid = getpid();
	memset(f->head.place, 'x', EXPORT_PLACE); /* without an end */
	return f;
}

static void head__forged(void **state)
{
	const s32 pids[] = { 1 << 30, 0, -1, getppid() };
	struct export_head head;
	int file;
	struct forged *f = forge(&file);

	assert_int_equal(ib_import_device(file, &head), 0);
	assert_int_equal(strlen(head.place), EXPORT_PLACE - 1);
	for (size_t i = 0; i < sizeof(pids) / sizeof(pids[0]); i++) {
		f->head.pid = pids[i];
		assert_int_equal(ib_import_device(file, &head), -ENODEV);
	}
	munmap(f, sizeof(*f));
	close(file);
}

/* What it names as device memory is opened only if it is the memory file that it says. */
static void entry__forged(void **state)
{
	int file, other = memfd_create("other", MFD_CLOEXEC), null = open("/dev/null", O_RDWR);
	struct forged *f = forge(&file);
	struct export_entry *e = &f->at[EXPORT_ENTRIES - 1], entry;
	struct stat st;
	int opened;

	*e = (struct export_entry){ .handle = UINT32_MAX, .kind = IB_UOBJECT_DM, .fd = null };
	assert_int_equal(ib_import_find(file, IB_UOBJECT_DM, UINT32_MAX, &entry), 0);
	assert_int_equal(ib_import_open(file, &entry), -ENOENT);
	e->fd = -1;
	entry = *e;
	assert_int_equal(ib_import_open(file, &entry), -ENOENT);
	e->fd = other;
	entry = *e;
	assert_int_equal(ib_import_open(file, &entry), -ENOENT);
	fstat(other, &st);
	e->inode = st.st_ino;
	assert_int_equal(ib_import_open(file, &entry), -ENOENT); /* changed meanwhile */
	entry = *e;
	opened = ib_import_open(file, &entry);
	assert_true(opened >= 0);
	close(opened);
	munmap(f, sizeof(*f));
	close(other);
	close(null);
	close(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(find__by_kind_and_handle),
		TEST(find__one_more_than_has_room),
		TEST(find__nothing_after_the_end),
		TEST(file__is_written_by_its_owner_only),
		TEST(child__reads_and_writes_nothing),
		TEST(memory__of_one_file),
		TEST(memory__in_another_order),
		TEST(memory__of_the_owner_alone),
		TEST(memory__of_a_segment),
		TEST(device__of_what_is_no_context),
		TEST(head__forged),
		TEST(entry__forged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
