/* preload_test.c: the shim over a tree of its own, in this process. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

static char tree[64];

static void tree_folder(const char *path)
{
	char full[256], *slash;

	snprintf(full, sizeof(full), "%s/%s/", tree, path);
	for (slash = strchr(full + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(full, 0700);
		*slash = '/';
	}
}

static void tree_file(const char *path, const char *text)
{
	char full[256];
	FILE *f;

	snprintf(full, sizeof(full), "%s/%s", tree, path);
	f = fopen(full, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void tree_link(const char *path, const char *to)
{
	char full[256];

	snprintf(full, sizeof(full), "%s/%s", tree, path);
	assert_int_equal(symlink(to, full), 0);
}

static int tree_setup(void **state)
{
	(void)state;
	strcpy(tree, "/tmp/preload-test-XXXXXX");
	assert_non_null(mkdtemp(tree));
	tree_folder("class/infiniband/roce0/ports/1/gid_attrs/types");
	tree_folder("class/infiniband_verbs/uverbs0");
	tree_folder("class/infiniband_verbs/uverbs12");
	tree_folder("dev/infiniband");
	tree_file("dev/infiniband/uverbs0", "");
	tree_file("dev/infiniband/uverbs12", "");
	tree_file("class/infiniband/roce0/node_type", "1: CA\n");
	tree_folder("devices/anyverbs/roce0");
	tree_file("devices/anyverbs/roce0/numa_node", "-1\n");
	tree_link("class/infiniband/roce0/device", "../../../devices/anyverbs/roce0");
	tree_file("class/infiniband/roce0/ports/1/gid_attrs/types/0", "RoCE v2\n");
	tree_file("class/infiniband/roce0/ports/1/gid_attrs/types/1", "");
	return setenv("ANYVERBS_SYSFS", tree, 1);
}

static int tree_teardown(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", tree);
	unsetenv("ANYVERBS_SYSFS");
	return system(command);
}

static void device_check(const struct stat *st, unsigned minor_number)
{
	assert_true(S_ISCHR(st->st_mode));
	assert_int_equal(st->st_mode & 07777, 0666);
	assert_int_equal(major(st->st_rdev), 231);
	assert_int_equal(minor(st->st_rdev), minor_number);
}

static void stat__device_is_a_character_device(void **state)
{
	struct statx sx;
	struct stat st;

	(void)state;
	assert_int_equal(stat("/dev/infiniband/uverbs0", &st), 0);
	device_check(&st, 192);
	assert_int_equal(lstat("/dev/infiniband/uverbs12", &st), 0);
	device_check(&st, 204);
	assert_int_equal(fstatat(AT_FDCWD, "/dev/infiniband//uverbs0", &st, 0), 0);
	device_check(&st, 192);
	assert_int_equal(statx(AT_FDCWD, "/dev/infiniband/uverbs0", 0, STATX_ALL, &sx), 0);
	assert_true(S_ISCHR(sx.stx_mode));
	assert_int_equal(sx.stx_rdev_minor, 192);
}

static void read__of_a_gid_that_is_not_there(void **state)
{
	static const char path[] = "/sys/class/infiniband/roce0/ports/1/gid_attrs/types/1";
	char text[64];
	struct stat st;
	FILE *f;
	int fd;

	(void)state;
	assert_int_equal(stat(path, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	fd = open(path, O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(read(fd, text, sizeof(text)), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(fcntl(fd, F_GETFD), 0);
	close(fd);
	fd = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
	f = fopen(path, "r");
	assert_non_null(f);
	errno = 0;
	assert_null(fgets(text, sizeof(text), f));
	assert_int_equal(errno, EINVAL);
	fclose(f);
	f = fopen("/sys/class/infiniband/roce0/ports/1/gid_attrs/types/0", "r");
	assert_non_null(f);
	assert_string_equal(fgets(text, sizeof(text), f), "RoCE v2\n");
	fclose(f);
}

static void stat__absent_device_is_absent(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(stat("/dev/infiniband/uverbs1", &st), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(stat("/dev/infiniband/uverbs0x", &st), -1);
	assert_int_equal(stat("/dev/infiniband/uverbs", &st), -1);
	assert_int_equal(access("/dev/infiniband/umad0", F_OK), -1);
	assert_int_equal(stat("/sys/class/infiniband/mlx5_0", &st), -1);
	assert_int_equal(errno, ENOENT);
}

static void stat__folders_are_folders(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(stat("/dev/infiniband", &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	assert_int_equal(stat("/sys/class/infiniband/", &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	assert_int_equal(stat("/sys/class/infiniband_verbs/uverbs0", &st), 0);
	assert_true(S_ISDIR(st.st_mode));
}

static void access__device_is_readable_and_writable(void **state)
{
	(void)state;
	assert_int_equal(access("/dev/infiniband/uverbs0", R_OK | W_OK), 0);
	assert_int_equal(faccessat(AT_FDCWD, "/dev/infiniband/uverbs0", R_OK | W_OK, AT_EACCESS),
			 0);
	assert_int_equal(access("/dev/infiniband/uverbs0", X_OK), -1);
	assert_int_equal(errno, EACCES);
}

static void open__device_is_refused(void **state)
{
	(void)state;
	assert_int_equal(open("/dev/infiniband/uverbs0", O_RDWR), -1);
	assert_int_equal(errno, ENXIO);
	assert_int_equal(open("/dev/infiniband/uverbs7", O_RDWR), -1);
	assert_int_equal(errno, ENOENT);
	assert_null(fopen("/dev/infiniband/uverbs0", "r"));
	assert_int_equal(errno, ENXIO);
}

static void open__refuses_to_write(void **state)
{
	static const char old[] = "/sys/class/infiniband/roce0/node_type";
	static const char new[] = "/sys/class/infiniband/roce0/new";
	static const int writes[] = { O_WRONLY, O_RDWR, O_RDONLY | O_TRUNC,
				      O_WRONLY | O_CREAT | O_TRUNC, O_WRONLY | O_APPEND };
	static const char *const modes[] = { "w", "a", "r+", "w+e", "rb+" };
	FILE *f;
	int fd;

	(void)state;
	for (size_t i = 0; i < sizeof(writes) / sizeof(writes[0]); i++) {
		assert_int_equal(open(old, writes[i], 0600), -1);
		assert_int_equal(errno, EACCES);
		assert_int_equal(openat(AT_FDCWD, old, writes[i], 0600), -1);
		assert_int_equal(errno, EACCES);
	}
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		assert_null(fopen(old, modes[i]));
		assert_int_equal(errno, EACCES);
	}
	assert_int_equal(open(new, O_WRONLY | O_CREAT, 0600), -1);
	assert_int_equal(errno, EACCES);
	assert_null(fopen(new, "w"));
	assert_int_equal(errno, EACCES);
	assert_int_equal(open(new, O_WRONLY), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(open(old, O_WRONLY | O_CREAT | O_EXCL, 0600), -1);
	assert_int_equal(errno, EEXIST);
	fd = open(old, O_RDONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	close(fd);
	f = fopen("/dev/infiniband/../null", "w");
	assert_non_null(f);
	fclose(f);
}

static void open__reads_the_tree(void **state)
{
	char text[16] = "";
	int fd = open("/sys/class/infiniband/roce0/node_type", O_RDONLY);
	FILE *f = fopen("/sys/class/infiniband/roce0/node_type", "r");

	(void)state;
	assert_true(fd >= 0);
	assert_non_null(f);
	assert_int_equal(read(fd, text, sizeof(text)), 6);
	assert_non_null(fgets(text, sizeof(text), f));
	assert_string_equal(text, "1: CA\n");
	close(fd);
	fclose(f);
}

static bool folder_has(DIR *dir, const char *name)
{
	struct dirent *e;

	for (e = readdir(dir); e != NULL; e = readdir(dir))
		if (strcmp(e->d_name, name) == 0)
			return true;
	return false;
}

static void opendir__lists_the_tree(void **state)
{
	DIR *dir = opendir("/dev/infiniband");
	struct dirent **list;
	int n;

	(void)state;
	assert_non_null(dir);
	assert_true(folder_has(dir, "uverbs0"));
	closedir(dir);
	dir = opendir("/sys/class/infiniband");
	assert_non_null(dir);
	assert_true(folder_has(dir, "roce0"));
	closedir(dir);
	n = scandir("/sys/class/infiniband_verbs", &list, NULL, alphasort);
	assert_int_equal(n, 4); /* with . and .. */
	while (n > 0)
		free(list[--n]);
	free(list);
	assert_null(opendir("/dev/infiniband/uverbs0"));
	assert_int_equal(errno, ENOTDIR);
}

static void realpath__stays_or_leads_into_the_tree(void **state)
{
	char out[PATH_MAX], wanted[128], link[64];

	(void)state;
	assert_string_equal(realpath("/dev/infiniband/uverbs0", out), "/dev/infiniband/uverbs0");
	snprintf(wanted, sizeof(wanted), "%s/class/infiniband/roce0", tree);
	assert_string_equal(realpath("/sys/class/infiniband/roce0", out), wanted);
	assert_int_equal(readlink("/sys/class/infiniband/roce0", link, sizeof(link)), -1);
	assert_int_equal(errno, EINVAL);
	assert_null(realpath("/dev/infiniband/uverbs5", out));
}

static void link__is_shown_and_followed(void **state)
{
	static const char path[] = "/sys/class/infiniband/roce0/device";
	char out[PATH_MAX], wanted[128], link[64] = "";
	struct stat st;

	(void)state;
	assert_int_equal(lstat(path, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(stat(path, &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	assert_true(readlink(path, link, sizeof(link) - 1) > 0);
	assert_string_equal(link, "../../../devices/anyverbs/roce0");
	snprintf(wanted, sizeof(wanted), "%s/devices/anyverbs/roce0", tree);
	assert_string_equal(realpath(path, out), wanted);
	assert_int_equal(access("/sys/class/infiniband/roce0/device/numa_node", R_OK), 0);
	/* by the link's text */
	assert_int_equal(access("/sys/devices/anyverbs/roce0/numa_node", R_OK), 0);
	assert_int_equal(open("/sys/devices/anyverbs/roce0/numa_node", O_RDWR), -1);
	assert_int_equal(errno, EACCES);
	assert_int_equal(access("/sys/devices/anyverbsx", F_OK), -1);
	assert_int_equal(lgetxattr(path, "user.none", link, sizeof(link)), -1);
	assert_int_not_equal(errno, ENOENT);
	assert_int_equal(llistxattr(path, NULL, 0), 0);
}

static void others__pass_through(void **state)
{
	static const char *const paths[] = { "/dev/infinibandx",
					     "/dev/null",
					     "/sys/class/infinibandx",
					     "/sys/class/net",
					     "relative",
					     "",
					     "/",
					     "/s",
					     "/d" };
	struct stat st;
	int fd = open("/dev/null", O_RDWR);

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	for (unsigned i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		if (stat(paths[i], &st) == 0)
			assert_false(S_ISCHR(st.st_mode) && major(st.st_rdev) == 231);
	assert_int_equal(stat("/dev/null", &st), 0);
	assert_int_equal(major(st.st_rdev), 1);
}

/* ---- syscall(2) ---- */

static void syscall__looks_at_the_tree(void **state)
{
	static const char device[] = "/dev/infiniband/uverbs0";
	static const char folder[] = "/sys/class/infiniband/roce0";
	static const char type[] = "/sys/class/infiniband/roce0/node_type";
	static const char link[] = "/sys/class/infiniband/roce0/device";
	char text[64] = "";
	struct statx sx;
	struct stat st;
	int fd;

	(void)state;
	assert_int_equal(syscall(SYS_statx, AT_FDCWD, device, 0, STATX_ALL, &sx), 0);
	assert_true(S_ISCHR(sx.stx_mode));
	assert_int_equal(sx.stx_rdev_minor, 192);
	assert_int_equal(syscall(SYS_statx, -1, folder, 0, STATX_ALL, &sx), 0);
	assert_true(S_ISDIR(sx.stx_mode));
	assert_int_equal(syscall(SYS_newfstatat, AT_FDCWD, device, &st, 0), 0);
	device_check(&st, 192);
	assert_int_equal(syscall(SYS_newfstatat, AT_FDCWD, link, &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_true(S_ISLNK(st.st_mode));
	fd = (int)syscall(SYS_openat, AT_FDCWD, type, O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(read(fd, text, sizeof(text)), 6);
	close(fd);
	assert_int_equal(syscall(SYS_openat, AT_FDCWD, type, O_RDWR), -1);
	assert_int_equal(errno, EACCES);
	assert_int_equal(syscall(SYS_openat, AT_FDCWD, device, O_RDWR), -1);
	assert_int_equal(errno, ENXIO);
	assert_int_equal(syscall(SYS_readlinkat, AT_FDCWD, link, text, sizeof(text)), 31);
	assert_memory_equal(text, "../../../devices/anyverbs/roce0", 31);
	assert_int_equal(syscall(SYS_faccessat, AT_FDCWD, device, R_OK | W_OK), 0);
	assert_int_equal(syscall(SYS_faccessat, AT_FDCWD, device, X_OK), -1);
	assert_int_equal(errno, EACCES);
	assert_int_equal(syscall(SYS_statx, -1, "/dev/infiniband/uverbs1", 0, STATX_ALL, &sx), -1);
	assert_int_equal(errno, ENOENT);
#ifdef SYS_faccessat2
	assert_int_equal(syscall(SYS_faccessat2, AT_FDCWD, type, R_OK, AT_EACCESS), 0);
#endif
#ifdef SYS_open
	fd = (int)syscall(SYS_open, type, O_RDONLY);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(syscall(SYS_stat, device, &st), 0);
	device_check(&st, 192);
	assert_int_equal(syscall(SYS_lstat, link, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(syscall(SYS_readlink, link, text, 4), 4);
	assert_int_equal(syscall(SYS_access, device, R_OK), 0);
#endif
}

/* All six arguments, the result and errno are the kernel's. */
static void syscall__passes_others_on(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char path[128], *map, *none;
	struct statx sx;
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "%s/six", tree);
	fd = open(path, O_CREAT | O_EXCL | O_RDWR, 0600);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "sixth", 5, (off_t)page), 5);
	map = (char *)syscall(SYS_mmap, NULL, page, PROT_READ, MAP_SHARED, fd, page);
	assert_true(map != MAP_FAILED);
	assert_string_equal(map, "sixth");
	assert_int_equal(syscall(SYS_munmap, map, page), 0);
	close(fd);
	assert_int_equal(syscall(SYS_unlinkat, AT_FDCWD, path, 0), 0);
	assert_int_equal(syscall(SYS_statx, AT_FDCWD, path, 0, STATX_ALL, &sx), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(syscall(SYS_statx, AT_FDCWD, "/dev/null", 0, STATX_ALL, &sx), 0);
	assert_int_equal(sx.stx_rdev_major, 1);
	assert_int_equal(syscall(-1), -1);
	assert_int_equal(errno, ENOSYS);
	errno = 42;
	assert_int_equal(syscall(SYS_getpid), getpid());
	assert_int_equal(syscall(SYS_faccessat, AT_FDCWD, "/dev/null", R_OK), 0);
	assert_int_equal(errno, 42);
	none = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(syscall(SYS_faccessat, AT_FDCWD, none, R_OK), -1);
	assert_int_equal(errno, EFAULT);
	for (uintptr_t bad = 0; bad < 20; bad++) {
		assert_int_equal(syscall(SYS_faccessat, AT_FDCWD, bad, R_OK), -1);
		assert_int_equal(errno, EFAULT);
	}
	munmap(none, page);
}

/* What an allocator that begins may do. */
static struct {
	long pid, refused;
	int refusal;
	char *map;
} early;

static void early_calls(void)
{
	early.pid = syscall(SYS_getpid);
	early.refused = syscall(SYS_openat, AT_FDCWD, "/dev/no-such-file", O_RDONLY);
	early.refusal = errno;
	early.map = (char *)syscall(SYS_mmap, NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS,
				    -1, 0);
}

__attribute__((section(".preinit_array"), used)) static void (*const early_at)(void) = early_calls;

static void syscall__works_before_the_constructors(void **state)
{
	(void)state;
	assert_int_equal(early.pid, getpid());
	assert_int_equal(early.refused, -1);
	assert_int_equal(early.refusal, ENOENT);
	assert_true(early.map != NULL && early.map != MAP_FAILED);
	assert_int_equal(*early.map, 0);
}

/* The system calls answer EFAULT for a NULL path: so must we, and not crash. */
static void others__null_path_is_efault(void **state)
{
	const char *volatile none = NULL;
	struct stat st;

	(void)state;
	assert_int_equal(open(none, O_RDONLY), -1);
	assert_int_equal(errno, EFAULT);
	assert_int_equal(stat(none, &st), -1);
	assert_int_equal(access(none, F_OK), -1);
}

static void open__created_files_keep_their_mode(void **state)
{
	char path[128];
	struct stat st;
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "%s/made", tree);
	fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0640);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0640);
	close(fd);
	unlink(path);
}

/* ---- signals ---- */

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

void anyverbs_preload_faults(int (*action)(int, const struct sigaction *, struct sigaction *));

/* Are SIGSEGV and SIGBUS blocked in earnest? */
static bool signals_are_blocked(void)
{
	uint64_t real = 0;

	syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &real, sizeof(real));
	return (real & (1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1))) != 0;
}

static bool signals_show(int number)
{
	sigset_t now;

	assert_int_equal(sigprocmask(SIG_BLOCK, NULL, &now), 0);
	return sigismember(&now, number) == 1;
}

static void signal__faults_are_only_shown_as_blocked(void **state)
{
	sigset_t all, old;

	(void)state;
	sigfillset(&all);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &all, &old), 0);
	assert_false(signals_are_blocked());
	assert_true(signals_show(SIGSEGV) && signals_show(SIGBUS) && signals_show(SIGUSR1));
	assert_int_equal(sigprocmask(SIG_UNBLOCK, &all, NULL), 0);
	assert_false(signals_show(SIGSEGV) || signals_show(SIGBUS) || signals_show(SIGUSR1));
	assert_int_equal(sighold(SIGBUS), 0);
	assert_true(signals_show(SIGBUS) && !signals_show(SIGSEGV) && !signals_are_blocked());
	assert_int_equal(pthread_sigmask(-1, &all, NULL), EINVAL);
	assert_true(signals_show(SIGBUS) && !signals_show(SIGSEGV));
	assert_int_equal(sigprocmask(SIG_SETMASK, &old, NULL), 0);
	assert_false(signals_show(SIGBUS));
}

static void signal_nothing(int number) {}

static void signal__handlers_do_not_block_faults(void **state)
{
	struct sigaction act = { .sa_handler = signal_nothing }, old;

	(void)state;
	sigfillset(&act.sa_mask);
	assert_int_equal(sigaction(SIGUSR1, &act, NULL), 0);
	assert_int_equal(sigaction(SIGUSR1, NULL, &old), 0);
	assert_int_equal(sigismember(&old.sa_mask, SIGBUS), 1);
	signal(SIGUSR1, SIG_DFL);
	assert_int_equal(sigaction(SIGUSR1, NULL, &old), 0);
	assert_int_equal(sigismember(&old.sa_mask, SIGBUS), 0);
	assert_int_equal(sigaction(SIGKILL, &act, NULL), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(sigaction(-1, &act, NULL), -1);
}

static struct sigaction kept;

static int signal_keep(int number, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction before = kept;

	assert_int_equal(number, SIGBUS);
	if (act != NULL)
		kept = *act;
	if (old != NULL)
		*old = before;
	return 0;
}

static void signal__keeper_has_the_dispositions(void **state)
{
	struct sigaction act = { .sa_handler = signal_nothing, .sa_flags = SA_NODEFER }, old;

	(void)state;
	anyverbs_preload_faults(signal_keep);
	assert_int_equal(sigaction(SIGBUS, &act, NULL), 0);
	assert_int_equal(sigaction(SIGBUS, NULL, &old), 0);
	assert_true(old.sa_handler == signal_nothing && old.sa_flags == SA_NODEFER);
	assert_true(signal(SIGBUS, SIG_IGN) == signal_nothing);
	assert_true(kept.sa_flags == SA_RESTART && sigismember(&kept.sa_mask, SIGBUS) == 1);
	assert_true(sysv_signal(SIGBUS, signal_nothing) == SIG_IGN);
	assert_true(kept.sa_flags == (int)(SA_RESETHAND | SA_NODEFER));
	assert_true(signal(SIGBUS, SIG_ERR) == SIG_ERR);
	assert_true(sigset(SIGBUS, SIG_HOLD) == signal_nothing && signals_show(SIGBUS));
	assert_true(sigset(SIGBUS, SIG_DFL) == SIG_HOLD && !signals_show(SIGBUS));
	assert_true(kept.sa_handler == SIG_DFL);
	assert_int_equal(sigignore(SIGBUS), 0);
	assert_true(kept.sa_handler == SIG_IGN);
	anyverbs_preload_faults(NULL);
}

static void root__of_the_kernel_is_none(void **state)
{
	static const char path[] = "/sys/class/infiniband/roce0/no-such-file";

	(void)state;
	assert_int_equal(setenv("ANYVERBS_SYSFS", "/sys", 1), 0);
	assert_int_equal(access(path, R_OK), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(syscall(SYS_faccessat, AT_FDCWD, path, R_OK), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(open(path, O_RDWR), -1);
	assert_int_equal(setenv("ANYVERBS_SYSFS", tree, 1), 0);
}

static void root__without_a_tree_nothing_changes(void **state)
{
	struct stat st;

	(void)state;
	unsetenv("ANYVERBS_SYSFS");
	setenv("ANYVERBS_NODE", "preload-test-no-such-node", 1);
	assert_int_equal(stat("/dev/infiniband/uverbs12", &st), -1);
	assert_int_equal(errno, ENOENT);
	setenv("ANYVERBS_SYSFS", tree, 1);
	unsetenv("ANYVERBS_NODE");
}

static void errno__is_kept_on_success(void **state)
{
	struct stat st;

	(void)state;
	errno = 42;
	assert_int_equal(stat("/dev/infiniband/uverbs0", &st), 0);
	assert_int_equal(access("/dev/infiniband/uverbs0", R_OK), 0);
	assert_int_equal(errno, 42);
}

static volatile sig_atomic_t handler_fd = -2;

static void handler(int signal)
{
	(void)signal;
	handler_fd = open("/dev/null", O_RDONLY);
}

static void open__from_a_signal_handler_and_a_child(void **state)
{
	struct stat st;
	int status;
	pid_t child;

	(void)state;
	signal(SIGUSR1, handler);
	raise(SIGUSR1);
	assert_true(handler_fd >= 0);
	close(handler_fd);
	child = fork();
	if (child == 0)
		_exit(stat("/dev/infiniband/uverbs0", &st) == 0 && S_ISCHR(st.st_mode) ? 0 : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void *thread_main(void *arg)
{
	struct stat st;

	for (int i = 0; i < 1000; i++)
		if (stat("/dev/infiniband/uverbs0", &st) != 0 || stat("/tmp", &st) != 0)
			return arg;
	return NULL;
}

static void stat__from_many_threads(void **state)
{
	pthread_t threads[4];
	void *failed;

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, thread_main, tree), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stat__device_is_a_character_device),
		cmocka_unit_test(read__of_a_gid_that_is_not_there),
		cmocka_unit_test(stat__absent_device_is_absent),
		cmocka_unit_test(stat__folders_are_folders),
		cmocka_unit_test(access__device_is_readable_and_writable),
		cmocka_unit_test(open__device_is_refused),
		cmocka_unit_test(open__refuses_to_write),
		cmocka_unit_test(open__reads_the_tree),
		cmocka_unit_test(opendir__lists_the_tree),
		cmocka_unit_test(realpath__stays_or_leads_into_the_tree),
		cmocka_unit_test(link__is_shown_and_followed),
		cmocka_unit_test(others__pass_through),
		cmocka_unit_test(syscall__looks_at_the_tree),
		cmocka_unit_test(syscall__passes_others_on),
		cmocka_unit_test(syscall__works_before_the_constructors),
		cmocka_unit_test(others__null_path_is_efault),
		cmocka_unit_test(open__created_files_keep_their_mode),
		cmocka_unit_test(root__of_the_kernel_is_none),
		cmocka_unit_test(root__without_a_tree_nothing_changes),
		cmocka_unit_test(signal__faults_are_only_shown_as_blocked),
		cmocka_unit_test(signal__handlers_do_not_block_faults),
		cmocka_unit_test(signal__keeper_has_the_dispositions),
		cmocka_unit_test(errno__is_kept_on_success),
		cmocka_unit_test(open__from_a_signal_handler_and_a_child),
		cmocka_unit_test(stat__from_many_threads),
	};

	return cmocka_run_group_tests(tests, tree_setup, tree_teardown);
}
