/* import_fuzz.c: the file behind a context's descriptor, as a hostile exporter writes it, and what
 * an importer makes of it.
 *
 * The input is the head of the file and some entries. Bits of the first byte make things right that
 * no fuzzer guesses: the mark, the exporter's number, and of each entry an address of memory that
 * this process has mapped, or the descriptor of a memory file. Afterwards the memory of a region
 * that was found is read, and no descriptor is left.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/import.h"
#include "input.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { ENTRIES = 8, MEMORY = 4 << 12, KINDS = 8 };

/* Bits of the first byte, and of an entry's. */
enum { RIGHT_MARK = 1, RIGHT_PID = 2, AT_MEMORY = 1, RIGHT_FILE = 2, ANY_HANDLE = 4 };

static struct {
	u8 *memory; /* shared, twice: there is more than one place to find it at */
	int fd;
	u64 inode;
} f;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct stat st;

	f.fd = memfd_create("fuzz-memory", MFD_CLOEXEC);
	fuzz_need(f.fd >= 0 && ftruncate(f.fd, MEMORY) == 0 && fstat(f.fd, &st) == 0, "no file");
	f.inode = st.st_ino;
	for (int i = 0; i < 2; i++)
		f.memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED, f.fd, 0);
	fuzz_need(f.memory != MAP_FAILED, "no memory");
	return 0;
}

/* The same before and after, if nothing has been left open between. */
static int fuzz_lowest(void)
{
	int fd = dup(f.fd);

	close(fd);
	return fd;
}

static void fuzz_head(struct input *in, u8 *file)
{
	u8 right = input_u8(in);
	struct export_head head;

	input_bytes(in, &head, sizeof(head));
	if (right & RIGHT_MARK)
		head.magic = EXPORT_MAGIC;
	if (right & RIGHT_PID)
		head.pid = getpid();
	memcpy(file, &head, sizeof(head));
}

static struct export_entry fuzz_entry(struct input *in, u32 number)
{
	u8 right = input_u8(in);
	struct export_entry e;

	input_bytes(in, &e, sizeof(e));
	e.kind %= KINDS;
	if (!(right & ANY_HANDLE))
		e.handle = number + 1;
	if (right & AT_MEMORY) {
		e.addr = (uintptr_t)f.memory + e.addr % (2 * MEMORY);
		e.length %= 2 * MEMORY;
	}
	if (right & RIGHT_FILE) {
		e.fd = f.fd;
		e.inode = f.inode;
	}
	return e;
}

static void fuzz_region(int fd, const struct export_entry *e)
{
	const volatile u8 *at;
	bool writable;
	u64 here;

	if (ib_import_memory(fd, e, &here, &writable))
		return;
	at = (const u8 *)(uintptr_t)here;
	fuzz_need(e->length != 0 && e->plain, "a region of nothing");
	for (u64 i = 0; i < e->length && i < MEMORY; i += 64)
		(void)at[i];
	(void)at[e->length - 1];
}

static void fuzz_import(int fd, const struct export_entry *want, u32 count)
{
	struct export_head head;
	struct export_entry e;

	if (ib_import_device(fd, &head) == 0)
		fuzz_need(strnlen(head.place, sizeof(head.place)) < sizeof(head.place), "no end");
	for (u32 i = 0; i < count; i++) {
		int opened;

		if (ib_import_find(fd, (enum ib_uobject_kind)want[i].kind, want[i].handle, &e))
			continue;
		fuzz_need(e.handle == want[i].handle && e.kind == want[i].kind, "another entry");
		fuzz_region(fd, &e);
		opened = ib_import_open(fd, &e);
		if (opened >= 0)
			close(opened);
	}
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	const size_t bytes = EXPORT_HEAD + EXPORT_ENTRIES * sizeof(struct export_entry);
	int before = fuzz_lowest(), fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct input in = { data, size };
	struct export_entry e[ENTRIES];
	u32 count = 0;
	u8 *file;

	fuzz_need(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0, "no file");
	file = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	fuzz_need(file != MAP_FAILED, "no map");
	fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
	fuzz_head(&in, file);
	for (; count < ENTRIES && in.left; count++)
		e[count] = fuzz_entry(&in, count);
	memcpy(file + EXPORT_HEAD, e, count * sizeof(e[0]));
	fuzz_import(fd, e, count);
	munmap(file, bytes);
	close(fd);
	fuzz_need(fuzz_lowest() == before, "a descriptor is left");
	return 0;
}
