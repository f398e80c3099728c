/* adopt_cgroup_test.c: limits of control groups, of folders that stand in for /proc/self and
 * /sys/fs/cgroup; and of a real group, where one can be made.
 */
#include <ftw.h>
#include <sys/stat.h>

#include "shared/adopt_kit.h"

static char base[] = "/tmp/adopt-cgroup-XXXXXX";
static char proc[64];

static int drop(const char *path, const struct stat *st, int type, struct FTW *at)
{
	return remove(path);
}

static int setup(void **state)
{
	strcpy(base + sizeof(base) - 7, "XXXXXX");
	if (mkdtemp(base) == NULL)
		return -1;
	snprintf(proc, sizeof(proc), "%s/proc", base);
	return 0;
}

static int teardown(void **state)
{
	return nftw(base, drop, 8, FTW_DEPTH | FTW_PHYS);
}

/* Writes base/path, with the folders that it lies in; @ in the text is base. */
static void put(const char *path, const char *text)
{
	char name[256];
	FILE *f;

	snprintf(name, sizeof(name), "%s/%s", base, path);
	for (char *at = name + strlen(base) + 1; (at = strchr(at, '/')) != NULL; *at++ = '/') {
		*at = '\0';
		mkdir(name, 0700);
	}
	f = fopen(name, "w");
	assert_non_null(f);
	for (; *text != '\0'; text++)
		if (*text == '@')
			fputs(base, f);
		else
			fputc(*text, f);
	fclose(f);
}

static void is(u64 limit, u64 left, u64 need)
{
	static struct cgroup_ask ask;
	struct cgroup_room room = cgroup_ask(proc, need, &ask);

	assert_int_equal(room.limit, limit);
	assert_int_equal(room.left, left);
}

static void put_v2(const char *root, const char *group)
{
	char text[512];

	snprintf(text, sizeof(text), "0::%s\n", group);
	put("proc/cgroup", text);
	snprintf(text, sizeof(text),
		 "20 1 0:5 / /proc rw shared:1 - proc proc rw\n"
		 "30 20 0:26 %s @/fs rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
		 root);
	put("proc/mountinfo", text);
}

static void cgroup_ask__nothing_is_no_limit(void **state)
{
	is(CGROUP_NO_LIMIT, CGROUP_NO_LIMIT, 0);
	put_v2("/", "/");
	is(CGROUP_NO_LIMIT, CGROUP_NO_LIMIT, 0);
	put("fs/memory.max", "max\n");
	put("fs/memory.high", "max\n");
	put("fs/memory.current", "1000\n");
	is(CGROUP_NO_LIMIT, CGROUP_NO_LIMIT, 1 << 20);
}

/* The tightest limit may be above, and the least room elsewhere. */
static void cgroup_ask__of_all_groups_above(void **state)
{
	put_v2("/", "/a/b/c");
	put("fs/a/b/c/memory.max", "900\n");
	put("fs/a/b/c/memory.high", "800\n");
	put("fs/a/b/c/memory.current", "100\n");
	is(800, 700, 0);
	put("fs/a/b/memory.max", "1000\n");
	put("fs/a/b/memory.current", "990\n");
	is(800, 10, 0);
	put("fs/a/memory.high", "500\n");
	is(500, 10, 0);
	put("fs/memory.max", "400\n"); /* the mount itself, in a namespace */
	put("fs/memory.current", "600\n");
	is(400, 0, 0);
	put("memory.max", "1\n"); /* not above the mount */
	is(400, 0, 0);
}

static void cgroup_ask__counts_what_can_be_given_up(void **state)
{
	put_v2("/", "/a");
	put("fs/a/memory.max", "1000\n");
	put("fs/a/memory.current", "950\n");
	put("fs/a/memory.stat", "anon 1\nactive_file 7\ninactive_file 300\nslab 9\n");
	is(1000, 50, 50);
	is(1000, 350, 51);
	put("fs/a/memory.stat", "inactive_file 5000\n");
	is(1000, 1000, 51);
}

/* A container without a namespace of groups: the mount shows a part, by its whole path. */
static void cgroup_ask__a_mount_of_a_part(void **state)
{
	put_v2("/docker/x", "/docker/x/job");
	put("fs/job/memory.max", "300\n");
	put("fs/memory.max", "200\n");
	is(200, 200, 0);
	put_v2("/docker/x", "/docker/xy"); /* not below it */
	put("fs/memory.max", "250\n");
	is(250, 250, 0);
	put_v2("/", "/../other");
	is(250, 250, 0);
}

static void cgroup_ask__version_1(void **state)
{
	put("proc/cgroup", "9:name=systemd:/\n5:hugetlb:/h\n4:cpu,memory,pids:/m/n\n0::/u\n");
	put("proc/mountinfo",
	    "31 20 0:27 / @/cpu rw - cgroup cgroup rw,cpu\n"
	    "32 20 0:28 / @/mem rw shared:9 master:1 - cgroup cgroup rw,memory\n"
	    "33 20 0:29 / @/uni rw - cgroup2 cgroup2 rw\n");
	put("cpu/m/n/memory.limit_in_bytes", "1\n");
	put("mem/m/n/memory.limit_in_bytes", "9223372036854771712\n");
	is(CGROUP_NO_LIMIT, CGROUP_NO_LIMIT, 0);
	put("mem/m/memory.limit_in_bytes", "700\n");
	put("mem/m/memory.usage_in_bytes", "650\n");
	put("mem/m/memory.stat", "inactive_file 1\ntotal_inactive_file 20\n");
	is(700, 50, 0);
	is(700, 70, 60);
	put("uni/u/memory.max", "600\n"); /* both count */
	is(600, 70, 60);
}

static void cgroup_ask__nonsense(void **state)
{
	put("proc/cgroup", "\n:\n::\n4:memory\n4:memory:\n0::\n");
	put("proc/mountinfo", " - cgroup2\n - cgroup2 \n1 2 3 / @/fs - cgroup2 \n- - - -\n\n");
	is(CGROUP_NO_LIMIT, CGROUP_NO_LIMIT, 0);
	put_v2("/", "/a");
	put("fs/a/memory.max", "many\n");
	put("fs/a/memory.high", "");
	is(CGROUP_NO_LIMIT, CGROUP_NO_LIMIT, 0);
	put("fs/a/memory.max", "18446744073709551616000\n");
	put("fs/a/memory.high", "0\n");
	is(0, 0, 0);
}

/* ---- a real one ---- */

enum { REAL_LIMIT = 64 << 20, REAL_SKIP = 70 };

static char real[400]; /* its folder */

static bool real_write(const char *name, const char *text)
{
	char path[600];
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path), "%s/%s", real, name);
	f = fopen(path, "w");
	if (f == NULL)
		return false;
	ok = fputs(text, f) >= 0;
	return fclose(f) == 0 && ok;
}

/* Below the group that this process is in, of version 1 or 2, where mounts usually are. */
static bool real_make(void)
{
	const char *mounts[] = { "/sys/fs/cgroup/memory", "/sys/fs/cgroup" };
	char line[256], group[2][256] = { "", "" }, *list;
	FILE *f = fopen("/proc/self/cgroup", "r");

	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		if ((list = strstr(line, ":memory:")) != NULL)
			snprintf(group[0], sizeof(group[0]), "%s", list + 8);
		else if (strncmp(line, "0::", 3) == 0)
			snprintf(group[1], sizeof(group[1]), "%s", line + 3);
	}
	if (f != NULL)
		fclose(f);
	for (int i = 0; i < 2; i++) {
		snprintf(real, sizeof(real), "%s%.300s/adopt-%d", mounts[i], group[i],
			 (int)getpid());
		if (group[i][0] == '\0' || mkdir(real, 0700) != 0)
			continue;
		if (real_write(i == 0 ? "memory.limit_in_bytes" : "memory.max", "67108864"))
			return true;
		rmdir(real);
	}
	return false;
}

/* An eighth of the limit is adopted, and no more. */
static int real_child(void) NO_THREAD_SAFETY
{
	u64 n = REAL_LIMIT / 8;
	u8 *p = map_private(n), *q = map_private(PAGE);

	fill(p, n);
	q[0] = 1;
	new_credit();
	if (!real_write("cgroup.procs", "0"))
		return REAL_SKIP;
	if (enter(p, n) == 0)
		return 1;
	if (enter(q, PAGE) != 0)
		return 2;
	leave(q, PAGE);
	leave(p, n);
	for (u64 i = 0; i < n; i++)
		if (p[i] != pattern(i))
			return 3;
	new_credit();
	return enter(q, PAGE) != 0 ? 0 : 4;
}

static void adopt_enter__within_a_control_group(void **state)
{
	int verdict = REAL_SKIP;

	if (real_make()) {
		verdict = in_child(real_child);
		for (int i = 0; i < 1000 && rmdir(real) != 0; i++)
			usleep(1000);
	}
	if (verdict == REAL_SKIP) {
		print_message("no control group with a limit can be made or joined here\n");
		skip();
	}
	assert_int_equal(verdict, 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(cgroup_ask__nothing_is_no_limit),
		T(cgroup_ask__of_all_groups_above),
		T(cgroup_ask__counts_what_can_be_given_up),
		T(cgroup_ask__a_mount_of_a_part),
		T(cgroup_ask__version_1),
		T(cgroup_ask__nonsense),
	};
	const struct CMUnitTest adopts[] = {
		cmocka_unit_test(adopt_enter__within_a_control_group),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	setenv("ANYVERBS_ADOPT", "1", 1);
	if (!adopt_is_on()) /* another allocator, or a sanitizer */
		return failed;
	return failed + cmocka_run_group_tests(adopts, NULL, NULL);
}
