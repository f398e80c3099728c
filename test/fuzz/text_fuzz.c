/* text_fuzz.c: what a process of ours reads as text: its list of maps, its status and its control
 * groups, which decide whether memory is adopted, the node's file about its devices, the paths that
 * the preloaded library is asked for.
 *
 * The input's first byte says which. Files are read from __wrap_open and __wrap_openat: one in
 * memory with what is left of the input. Of maps the target has a second opinion.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: adopt.lock
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../shim/devices/redirect.h"
#include "base/vma.h"
#include "input.h"
#include "node/address.h"
#include "daemon/device_file.h"
#include "shared/adopt_priv.h"

enum { TEXT_MAX = 64 << 10, TREE_NAME = 300 };

static const char tree[] = "/nowhere/tree";
static struct input status, text; /* what the files hold */

int __wrap_open(const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...);

static int fuzz_file(struct input content)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	fuzz_need(fd >= 0 && write(fd, content.at, content.left) == (ssize_t)content.left,
		  "no memory file");
	lseek(fd, 0, SEEK_SET);
	return fd;
}

int __wrap_open(const char *path, int flags, ...)
{
	static const u8 many[] = "65530\n";

	if (strncmp(path, "/proc/sys/", 10) == 0) /* asked once, and kept */
		return fuzz_file((struct input){ many, sizeof(many) - 1 });
	return fuzz_file(strcmp(path, "/proc/self/maps") == 0 ||
					 strcmp(path, "/proc/self/mountinfo") == 0 ||
					 strcmp(path, "/proc/self/smaps") == 0 ?
				 text :
				 status);
}

int __wrap_openat(int folder, const char *path, int flags, ...)
{
	return fuzz_file(text);
}

/* ---- the list of maps ------------------------------------------------------------------------ */

struct seen {
	u64 at, end; /* up to `at` plain maps in a row have been seen */
	size_t lines;
	bool requests;
};

static void fuzz_see(const struct vma *m, void *arg)
{
	struct seen *s = arg;
	bool named = m->name[0] != '\0' && strcmp(m->name, "[heap]") != 0 &&
		     strncmp(m->name, "[anon:", 6) != 0;

	s->lines++;
	s->requests |= strstr(m->name, "/[aio]") == m->name || strstr(m->name, "[io_uring]");
	if (m->start > s->at || s->at >= m->end)
		return;
	if (!named && !m->shared && m->inode == 0 && m->prot == (PROT_READ | PROT_WRITE))
		s->at = m->end;
}

static size_t fuzz_lines(const struct input *in)
{
	size_t n = 0;

	for (size_t i = 0; i < in->left; i++)
		n += in->at[i] == '\n';
	return n;
}

static void fuzz_maps(u64 start, u64 end) NO_THREAD_SAFETY
{
	struct seen s = { .at = start, .end = end };
	bool plain, whole, held;
	int fd = fuzz_file(text);

	whole = vma_each(fd, fuzz_see, &s);
	close(fd);
	fuzz_need(!whole || s.lines == fuzz_lines(&text), "a line was left out");
	fuzz_need(!whole || text.left == 0 || text.at[text.left - 1] == '\n', "half a line");
	held = look_is_held();
	fuzz_need(held || memmem(status.at, status.left, "\nVmPin:", 7) != NULL,
		  "nobody said that nothing is pinned");
	lock_acquire(&adopt.lock);
	adopt.looks = adopt.maps = 0;
	plain = look_is_plain(start, end);
	lock_release(&adopt.lock);
	fuzz_need(!plain || (whole && !held && !s.requests && s.at >= end),
		  "memory is taken for plain that is not");
}

/* ---- the devices' file, and paths ------------------------------------------------------------ */

static void fuzz_devices(void)
{
	struct device_file p = { .next_id = 7 };
	struct folder f = { .fd = 0 };
	bool read = device_file_read(&f, &p);

	fuzz_need(read || (p.next_id == 7 && !p.first), "an empty file says something");
	for (u32 i = 0; read && i < NODE_DEVICES; i++) {
		const struct device_left *l = &p.devices[i];

		fuzz_need(l->will == PORT_AUTO || l->will == PORT_DOWN || l->will == PORT_UP,
			  "an unknown will");
		fuzz_need(l->id == 0 || (l->id < p.next_id && address_device_valid(l->name)),
			  "a device that there cannot be");
	}
}

/* ---- control groups -------------------------------------------------------------------------- */

static void fuzz_advice(u64 start, u64 end, bool withheld, void *arg)
{
}

static void fuzz_groups(u64 need)
{
	static struct cgroup_ask ask;
	struct cgroup_room room = cgroup_ask("/proc/self", need, &ask);

	fuzz_need(room.limit <= CGROUP_NO_LIMIT && room.left <= room.limit,
		  "more room than there is");
}

static void fuzz_path(void)
{
	char path[TREE_NAME];
	struct redirect out;
	struct input in = text;

	input_bytes(&in, path, sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	if (!redirect_is_ours(path) || !redirect_find(path, &out))
		return;
	fuzz_need(memchr(out.path, '\0', sizeof(out.path)) != NULL, "a path without end");
	fuzz_need(strncmp(out.path, tree, strlen(tree)) == 0 || strncmp(out.path, "/dev", 4) == 0,
		  "a path elsewhere");
	fuzz_need(out.kind != REDIRECT_NODE || out.major == 231 || out.major == 10,
		  "another device");
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	setenv("ANYVERBS_SYSFS", tree, 1);
	return 0;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct input in = { data, MIN(size, (size_t)TEXT_MAX) };
	u8 which = input_u8(&in), length;
	u32 page, pages;

	switch (which % 4) {
	case 0:
		page = input_u8(&in);
		pages = 1 + input_u8(&in) % 16;
		length = input_u8(&in);
		length = (u8)MIN((size_t)length, in.left);
		status = (struct input){ in.at, length };
		text = (struct input){ in.at + length, in.left - length };
		fuzz_maps(page * 4096ull, (page + pages) * 4096ull);
		break;
	case 1:
		text = in;
		fuzz_devices();
		break;
	case 3: /* every file of a group says what /proc/self/cgroup says */
		length = input_u8(&in);
		length = (u8)MIN((size_t)length, in.left);
		status = (struct input){ in.at, length };
		text = (struct input){ in.at + length, in.left - length };
		fuzz_groups(length);
		look_advice(fuzz_advice, NULL);
		break;
	default:
		text = in;
		fuzz_path();
	}
	return 0;
}
