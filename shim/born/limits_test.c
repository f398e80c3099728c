/* limits_test.c: born memory where something is limited, counted, forbidden or dumped. Each case is
 * a program of its own, this one, begun anew: the arena is made before main.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "born_kit.h"

enum { CASE_SKIPPED = 77 };
static const char strict_variable[] = "BORN_TEST_STRICT";

/* In front of the C library's: what the kernel says of its accounting is ours to say. */
__attribute__((visibility("default"))) int open(const char *path, int flags, ...)
{
	if (strcmp(path, "/proc/sys/vm/overcommit_memory") == 0 &&
	    getenv(strict_variable) != NULL) {
		int fd = memfd_create("strict", 0);

		if (write(fd, "2\n", 2) != 2 || lseek(fd, 0, SEEK_SET) != 0)
			abort();
		return fd;
	}
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0600);
}

static bool limit(__rlimit_resource_t resource, rlim_t now)
{
	struct rlimit r;

	if (getrlimit(resource, &r) != 0)
		return false;
	r.rlim_cur = now;
	return setrlimit(resource, &r) == 0;
}

/* New memory works, and is or is not born. */
static bool memory_works(bool born)
{
	char *block = malloc(LONG), *map = mmap(NULL, LONG, PROT_READ | PROT_WRITE,
						MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool ok = block != NULL && map != MAP_FAILED && is_born(block) == born &&
		  is_born(map) == born;

	if (!ok)
		return false;
	memset(block, 1, LONG);
	memset(map, 2, LONG);
	block = realloc(block, 3 * LONG);
	ok = block != NULL && is_all(block, LONG, 1);
	free(block);
	return munmap(map, LONG) == 0 && ok;
}

/* Does memory from before go on to work, and end as it should? */
static bool memory_goes_on(char *before)
{
	bool ok = is_all(before, LONG, 3);

	before[PAGE] = 4;
	ok &= madvise(before, PAGE, MADV_DONTNEED) == 0 && before[0] == 0 && before[PAGE] == 4;
	return munmap(before, LONG) == 0 && !map_of(before).ours && ok;
}

static char *memory_before(void)
{
	char *p = mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED || !is_born(p))
		exit(2);
	memset(p, 3, LONG);
	return p;
}

/* ---- the cases ---- */

static int case_ordinary(void)
{
	return memory_works(false) ? 0 : 1;
}

static int case_born(void)
{
	return memory_works(true) ? 0 : 1;
}

/* A number of /proc/self/status, in KiB; -1: it does not say. */
static long status_kb(const char *name)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	long kb = -1;

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (strncmp(line, name, strlen(name)) == 0)
			kb = atol(line + strlen(name) + 1);
	if (f != NULL)
		fclose(f);
	return kb;
}

/* What is reserved does not count: with 1 GiB of addresses more than are used, there is 1 GiB. */
static int case_address_space_since(void)
{
	char *before = memory_before(), *p;

	if (!limit(RLIMIT_AS, 3ul << 30))
		return 1;
	if (status_kb("VmSize") < 0 || status_kb("VmSize") > 1 << 20)
		return 2;
	p = malloc(1 << 30);
	if (p == NULL || is_born(p))
		return 3;
	free(p);
	if (malloc(4ul << 30) != NULL)
		return 4;
	return memory_works(false) && memory_goes_on(before) ? 0 : 5;
}

/* The kernel gives the arena's addresses to others then: what lies there is theirs. */
static int case_addresses_of_others(void)
{
	char *before = memory_before(), *p = before + LONG;

	if (!limit(RLIMIT_AS, 3ul << 30))
		return 1;
	if (mmap(p, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
		 -1, 0) != p)
		return 2;
	memset(p, 5, LONG);
	if (madvise(p, PAGE, MADV_DONTNEED) != 0 || p[0] != 0 || p[PAGE] != 5)
		return 3;
	if (mmap(p, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
	    p)
		return 4;
	if (mremap(p, LONG, LONG / 2, 0) != p || map_of(p + LONG / 2).there)
		return 5;
	if (munmap(p, LONG / 2) != 0 || map_of(p).there)
		return 6;
	return memory_goes_on(before) ? 0 : 7;
}

static int case_data_since(void)
{
	char *before = memory_before(), *p;

	if (!limit(RLIMIT_DATA, 512 << 20))
		return 1;
	p = malloc(1 << 30);
	if (p != NULL)
		return 2;
	return memory_works(false) && memory_goes_on(before) ? 0 : 3;
}

/* What a limit's pointer may be instead leads to what the kernel says of it. */
static bool limit_answers(__rlimit_resource_t of, void *new, int error)
{
	int answers[4], errors[4];

	errno = 0;
	answers[0] = setrlimit(of, new);
	errors[0] = errno;
	errno = 0;
	answers[1] = setrlimit64(of, new);
	errors[1] = errno;
	errno = 0;
	answers[2] = prlimit(0, of, new, NULL);
	errors[2] = errno;
	errno = 0;
	answers[3] = prlimit64(getpid(), of, new, NULL);
	errors[3] = errno;
	for (int i = 0; i < 4; i++)
		if (answers[i] != -(error != 0) || errors[i] != error)
			return false;
	return true;
}

static int case_bad_limits(void)
{
	void *volatile none = NULL;
	void *hole = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct rlimit less = { .rlim_cur = 2, .rlim_max = 1 };

	if (!limit_answers(RLIMIT_NOFILE, none, 0) || !limit_answers(RLIMIT_NOFILE, hole, EFAULT))
		return 1;
	if (!limit_answers(RLIMIT_AS, none, 0) || !limit_answers(RLIMIT_AS, hole, EFAULT))
		return 2;
	if (!limit_answers(99, none, EINVAL) || !limit_answers(99, hole, EFAULT))
		return 3;
	if (!memory_works(true))
		return 4;
	errno = 0;
	if (!limit(RLIMIT_AS, RLIM_INFINITY) || errno != 0 || !memory_works(true))
		return 5;
	return limit_answers(RLIMIT_AS, &less, EINVAL) ? 0 : 6;
}

static int case_file_size_since(void)
{
	char *before = memory_before();

	if (!limit(RLIMIT_FSIZE, PAGE))
		return 1;
	return memory_works(true) && memory_goes_on(before) ? 0 : 2;
}

/* What is reserved is neither locked nor counted, also where locking is refused. */
static int case_locked(void)
{
	char *before = memory_before();
	bool locked = mlockall(MCL_CURRENT | MCL_FUTURE) == 0;

	if (status_kb("VmSize") < 0 || status_kb("VmSize") > 1 << 20)
		return 1;
	if (locked != (status_kb("VmLck") >= LONG >> 10))
		return 2;
	if (locked && madvise(before, PAGE, MADV_DONTNEED) == 0)
		return 3;
	munlockall();
	return memory_works(false) && memory_goes_on(before) ? 0 : 4;
}

/* ---- calls that are forbidden ---- */

static bool forbid(long call)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = sizeof(code) / sizeof(code[0]), .filter = code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static const long calls[] = { SYS_fallocate, SYS_madvise, SYS_fstat, SYS_newfstatat, SYS_pread64,
			      SYS_lseek,     SYS_prlimit64, SYS_ioctl, SYS_mremap, SYS_munmap };

/* Zeroes stay zeroes and bytes bytes, whatever is refused; what is refused says so. */
static bool memory_is_sane(char *before)
{
	char *p = malloc(LONG), *q;

	if (p == NULL || !is_all(before, LONG, 3))
		return false;
	memset(p, 7, LONG);
	q = realloc(p, 5 * LONG);
	if (q == NULL || !is_all(q, LONG, 7))
		return false;
	free(q);
	p = calloc(5, LONG);
	if (p == NULL || !is_all(p, 5 * LONG, 0))
		return false;
	free(p);
	if (madvise(before, PAGE, MADV_DONTNEED) == 0 && !is_all(before, PAGE, 0))
		return false;
	q = mremap(before, LONG, 3 * LONG, MREMAP_MAYMOVE);
	if (q == MAP_FAILED)
		return is_all(before + PAGE, LONG - PAGE, 3);
	return is_all(q + PAGE, LONG - PAGE, 3) && is_all(q + LONG, 2 * LONG, 0);
}

static char *sane_memory;

static int child_reads_it(void)
{
	return is_all(sane_memory, LONG, 3) ? 0 : 1;
}

static int case_forbidden(long call)
{
	char *before = memory_before();

	sane_memory = before;
	if (!forbid(call))
		return 1;
	if (in_child(child_reads_it) != 0)
		return 2;
	return memory_is_sane(before) ? 0 : 3;
}

/* ---- core dumps ---- */

static void core_mark(char *p, char what)
{
	memset(p, what, PAGE);
	memcpy(p, "a mark in memory that is born, ", 31);
	p[31] = what;
}

static int case_dump(void)
{
	char *block = malloc(LONG), *map = map_long(LONG), *hidden = map_long(LONG);

	core_mark(block + PAGE, 'b');
	core_mark(map + LONG - PAGE, 'm');
	core_mark(hidden + PAGE, 'h');
	madvise(hidden, LONG, MADV_DONTDUMP);
	core_mark(block + 5 * PAGE, 'f');
	madvise(block + 5 * PAGE, PAGE, MADV_DONTNEED);
	limit(RLIMIT_CORE, RLIM_INFINITY);
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	abort();
}

/* Which of the marks are in the file; a letter each. */
static void core_find(const char *path, char *found)
{
	char mark[] = "a mark in memory that is born, ";
	FILE *f = fopen(path, "r");
	static char page[PAGE];

	assert_non_null(f);
	while (fread(page, 1, PAGE, f) == PAGE)
		if (memcmp(page, mark, 31) == 0 && is_all(page + 32, PAGE - 32, page[31]))
			*found++ = page[31];
	fclose(f);
	*found = '\0';
}

/* ---- forks ---- */

static long faults_so_far(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

static const size_t much = 256 << 20;

/* What does not outlive the call to exec copies nothing, and shares nothing. */
static int case_spawn(void)
{
	char *argv[] = { (char *)"true", NULL }, *p = malloc(much);
	long before;
	pid_t pid;
	FILE *f;
	int status;

	memset(p, 1, much);
	before = faults_so_far();
	if (system("true") != 0)
		return 1;
	f = popen("true", "r");
	if (f == NULL || pclose(f) != 0)
		return 2;
	if (posix_spawnp(&pid, "true", NULL, NULL, argv, NULL) != 0 ||
	    waitpid(pid, &status, 0) != pid || status != 0)
		return 3;
	pid = vfork();
	if (pid == 0) {
		execvp("true", argv);
		_exit(1);
	}
	if (waitpid(pid, &status, 0) != pid || status != 0)
		return 4;
	return faults_so_far() - before < (long)(much / PAGE / 100) && is_all(p, much, 1) ? 0 : 5;
}

static char *sparse;
static const size_t sparse_bytes = 8ul << 30;

static int child_has_sparse(void)
{
	return sparse[0] == 1 && sparse[sparse_bytes / 2] == 2 && sparse[sparse_bytes - 1] == 3 &&
			       sparse[PAGE] == 0 ?
		       0 :
		       1;
}

/* A fork costs what is there, not what was asked for. */
static int case_sparse(void)
{
	long before;

	if ((size_t)sysconf(_SC_PHYS_PAGES) * PAGE < sparse_bytes)
		return CASE_SKIPPED;
	sparse = malloc(sparse_bytes);
	sparse[0] = 1;
	sparse[sparse_bytes / 2] = 2;
	sparse[sparse_bytes - 1] = 3;
	if (!is_born(sparse))
		return 1;
	before = faults_so_far();
	if (in_child(child_has_sparse) != 0)
		return 2;
	return faults_so_far() - before < 5000 && file_bytes() < 64 << 20 ? 0 : 3;
}

/* ---- */

static const struct {
	const char *name;
	int (*fn)(void);
} cases[] = {
	{ "ordinary", case_ordinary },
	{ "born", case_born },
	{ "address_space", case_address_space_since },
	{ "others", case_addresses_of_others },
	{ "data", case_data_since },
	{ "bad", case_bad_limits },
	{ "file_size", case_file_size_since },
	{ "locked", case_locked },
	{ "dump", case_dump },
	{ "spawn", case_spawn },
	{ "sparse", case_sparse },
};

static int case_run(const char *name)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (strcmp(cases[i].name, name) == 0)
			return cases[i].fn();
	return case_forbidden(atol(name));
}

/* Its verdict; `resource` is limited to `most` from its beginning on, unless most is 0. */
static int run_limited(const char *name, __rlimit_resource_t resource, rlim_t most)
{
	pid_t child = fork();

	if (child == 0) {
		if (most != 0 && !limit(resource, most))
			_exit(99);
		execl("/proc/self/exe", "limits_test", name, NULL);
		_exit(98);
	}
	return child_verdict(child);
}

static void run(const char *name)
{
	int verdict = run_limited(name, RLIMIT_AS, 0);

	if (verdict == CASE_SKIPPED)
		skip();
	if (verdict != 0)
		fail_msg("case %s: %d", name, verdict);
}

static void limits__address_space_from_the_start(void **state)
{
	(void)state;
	assert_int_equal(run_limited("ordinary", RLIMIT_AS, 200ul << 30), 0);
	assert_int_equal(run_limited("ordinary", RLIMIT_AS, 1ul << 30), 0);
}

static void limits__address_space_since(void **state)
{
	(void)state;
	run("address_space");
}

static void limits__addresses_given_back_are_others(void **state)
{
	(void)state;
	run("others");
}

static void limits__data(void **state)
{
	(void)state;
	assert_int_equal(run_limited("ordinary", RLIMIT_DATA, 1ul << 30), 0);
	run("data");
}

static void limits__that_are_none(void **state)
{
	(void)state;
	run("bad");
}

static void limits__file_size(void **state)
{
	(void)state;
	assert_int_equal(run_limited("ordinary", RLIMIT_FSIZE, 1ul << 30), 0);
	run("file_size");
}

static void limits__strict_accounting(void **state)
{
	(void)state;
	run("born");
	setenv(strict_variable, "1", 1);
	run("ordinary");
	unsetenv(strict_variable);
}

static void limits__locked_memory(void **state)
{
	(void)state;
	run("locked");
}

static void limits__calls_that_are_forbidden(void **state)
{
	char name[32];

	(void)state;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		snprintf(name, sizeof(name), "%ld", calls[i]);
		run(name);
	}
}

static void core__has_what_an_ordinary_one_has(void **state)
{
	char folder[] = "/tmp/born-core-XXXXXX", pattern[256] = "", found[16];
	FILE *f = fopen("/proc/sys/kernel/core_pattern", "r");

	(void)state;
	/* elsewhere it would go to another program, or a folder of the machine's */
	if (f == NULL || fscanf(f, "%255s", pattern) != 1 || strcmp(pattern, "core") != 0)
		skip();
	fclose(f);
	assert_non_null(mkdtemp(folder));
	assert_int_equal(chdir(folder), 0);
	assert_int_equal(run_limited("dump", RLIMIT_AS, 0), 1000 + SIGABRT);
	if (access("core", F_OK) == 0)
		core_find("core", found);
	else
		snprintf(pattern, sizeof(pattern), "core.*");
	unlink("core");
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(rmdir(folder), 0);
	assert_string_equal(pattern, "core");
	assert_true(strcmp(found, "bm") == 0 || strcmp(found, "mb") == 0);
}

static void spawn__copies_nothing(void **state)
{
	(void)state;
	run("spawn");
}

static void fork__skips_holes(void **state)
{
	(void)state;
	run("sparse");
}

static void *thread_sleep(void *arg)
{
	pause();
	return arg;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limits__address_space_from_the_start),
		cmocka_unit_test(limits__address_space_since),
		cmocka_unit_test(limits__addresses_given_back_are_others),
		cmocka_unit_test(limits__data),
		cmocka_unit_test(limits__that_are_none),
		cmocka_unit_test(limits__file_size),
		cmocka_unit_test(limits__strict_accounting),
		cmocka_unit_test(limits__locked_memory),
		cmocka_unit_test(limits__calls_that_are_forbidden),
		cmocka_unit_test(core__has_what_an_ordinary_one_has),
		cmocka_unit_test(spawn__copies_nothing),
		cmocka_unit_test(fork__skips_holes),
	};
	pthread_t thread;

	if (argc == 1)
		return cmocka_run_group_tests(tests, NULL, NULL);
	pthread_create(&thread, NULL, thread_sleep, NULL);
	return case_run(argv[1]);
}
