/* words_test.c: words that need no thread: kernel.h and what it includes, lists, texts, numbers,
 * messages. */
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/parser.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct thing {
	int number;
	struct list_head list;
	struct hlist_node hash;
};

/* ---- kernel.h -------------------------------------------------------------------------------- */

static void container_of__finds_the_structure(void **state)
{
	struct thing thing = { .number = 7 };

	assert_ptr_equal(container_of(&thing.list, struct thing, list), &thing);
	assert_int_equal(sizeof_field(struct thing, number), sizeof(int));
	assert_int_equal(offsetofend(struct thing, number), sizeof(int));
}

static void min__evaluates_each_once(void **state)
{
	int a = 1, b = 2;

	assert_int_equal(min(a++, b++), 1);
	assert_int_equal(a + b, 5);
	assert_int_equal(max(a, b), 3);
	assert_int_equal(min_t(u8, 257, 2), 1);
	assert_int_equal(max_t(unsigned int, -1, 2) == UINT32_MAX, 1);
	assert_int_equal(min3(3, 1, 2), 1);
	assert_int_equal(max3(3, 1, 2), 3);
	assert_int_equal(min_not_zero(0, 4), 4);
	assert_int_equal(min_not_zero(5, 0), 5);
	assert_int_equal(min_not_zero(5, 4), 4);
	assert_int_equal(clamp(9, 1, 5), 5);
	assert_int_equal(clamp_t(long, -9, 1, 5), 1);
	swap(a, b);
	assert_true(a == 3 && b == 2);
}

static void round_up__to_powers_and_others(void **state)
{
	static const int five[5];
	char *p = (char *)17;

	assert_int_equal(ARRAY_SIZE(five), 5);
	assert_int_equal(DIV_ROUND_UP(10, 4), 3);
	assert_int_equal(roundup(10, 6), 12);
	assert_int_equal(rounddown(10, 6), 6);
	assert_int_equal(round_up(4097, 4096), 8192);
	assert_int_equal(round_down(4097, 4096), 4096);
	assert_int_equal(ALIGN(16, 16), 16);
	assert_int_equal(ALIGN_DOWN(31, 16), 16);
	assert_true(IS_ALIGNED(32, 16) && !IS_ALIGNED(33, 16));
	assert_ptr_equal(PTR_ALIGN(p, 16), (char *)32);
	assert_int_equal(upper_32_bits(0x123456789ULL), 1);
	assert_int_equal(lower_32_bits(0x123456789ULL), 0x23456789);
}

static void log2__of_edges(void **state)
{
	assert_true(is_power_of_2(64) && !is_power_of_2(0) && !is_power_of_2(65));
	assert_int_equal(ilog2(1), 0);
	assert_int_equal(ilog2(4095), 11);
	assert_int_equal(roundup_pow_of_two(65), 128);
	assert_int_equal(roundup_pow_of_two(1), 1);
	assert_int_equal(rounddown_pow_of_two(65), 64);
	assert_int_equal(get_order(1), 0);
	assert_int_equal(get_order(4097), 1);
	assert_int_equal(get_order(3 * 4096), 2);
	assert_int_equal(GENMASK(7, 4), 0xf0);
	assert_int_equal(BIT(3) | BIT_ULL(4), 0x18);
	assert_int_equal(hweight32(0xf1) + hweight64(0xf), 9);
}

static void byteorder__is_that_of_the_wire(void **state)
{
	__be32 be = cpu_to_be32(0x01020304);
	__be64 wide = cpu_to_be64(1);
	__be16 narrow = cpu_to_be16(0x0102);

	assert_int_equal(*(u8 *)&be, 1);
	assert_int_equal(be32_to_cpu(be), 0x01020304);
	assert_int_equal(be32_to_cpup(&be), 0x01020304);
	assert_int_equal(((u8 *)&wide)[7], 1);
	assert_int_equal(be64_to_cpup(&wide), 1);
	assert_int_equal(be16_to_cpup(&narrow), 0x0102);
	assert_int_equal(le32_to_cpu(cpu_to_le32(5)) + le16_to_cpu(cpu_to_le16(5)), 10);
	assert_int_equal(htons(0x0102), narrow);
}

static void err__rides_in_pointers(void **state)
{
	void *bad = ERR_PTR(-EINVAL);

	assert_true(IS_ERR(bad) && IS_ERR_OR_NULL(NULL) && !IS_ERR_OR_NULL(state));
	assert_int_equal(PTR_ERR_OR_ZERO(bad), -EINVAL);
	assert_int_equal(PTR_ERR_OR_ZERO(state), 0);
	assert_int_equal(PTR_ERR(ERR_CAST(bad)), -EINVAL);
	assert_true(IS_ERR_VALUE(-5L) && !IS_ERR_VALUE(5L));
	assert_int_equal(ERESTARTSYS, 512);
}

static void compiler__words(void **state)
{
	struct {
		u8 a;
		u32 b;
	} __packed packed;
	int __aligned(64) aligned = 1;
	int __maybe_unused unused;

	assert_int_equal(sizeof(packed), 5);
	assert_int_equal((unsigned long)&aligned % 64, 0);
	WRITE_ONCE(aligned, 3);
	assert_int_equal(READ_ONCE(aligned), 3);
	assert_true(likely(aligned == 3) && !unlikely(aligned == 4));
	switch (aligned) {
	case 3:
		aligned++;
		fallthrough;
	default:
		barrier();
	}
	BUILD_BUG_ON(sizeof(u64) != 8);
	BUILD_BUG_ON_MSG(sizeof(u8) != 1, "a byte");
	assert_true(LINUX_VERSION_CODE >= KERNEL_VERSION(2, 6, 22));
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* Numbers from `first` on. */
static void test_number(struct thing *t, int count, int first)
{
	for (int i = 0; i < count; i++)
		t[i] = (struct thing){ .number = first + i };
}

static int test_digits(struct list_head *head)
{
	struct thing *t;
	int digits = 0;

	list_for_each_entry(t, head, list)
		digits = digits * 10 + t->number;
	return digits;
}

static void list__adds_moves_and_removes(void **state)
{
	struct thing t[5];
	LIST_HEAD(head);

	test_number(t, 5, 0);
	assert_true(list_empty(&head));
	list_add(&t[2].list, &head);
	assert_true(list_is_singular(&head));
	list_add(&t[1].list, &head);
	list_add_tail(&t[3].list, &head);
	assert_int_equal(test_digits(&head), 123);
	assert_true(list_is_last(&t[3].list, &head) && !list_is_last(&t[1].list, &head));
	list_move(&t[3].list, &head);
	assert_int_equal(test_digits(&head), 312);
	list_move_tail(&t[3].list, &head);
	list_replace(&t[2].list, &t[4].list);
	assert_int_equal(test_digits(&head), 143);
	list_del(&t[4].list);
	assert_ptr_equal(t[4].list.next, LIST_POISON1);
	list_del_init(&t[1].list);
	assert_true(list_empty(&t[1].list) && list_empty_careful(&t[1].list));
	assert_int_equal(test_digits(&head), 3);
}

static void list__splices(void **state)
{
	struct thing t[4];
	LIST_HEAD(one);
	LIST_HEAD(other);

	test_number(t, 4, 1);
	INIT_LIST_HEAD(&other);
	list_add_tail(&t[0].list, &one);
	list_add_tail(&t[1].list, &other);
	list_add_tail(&t[2].list, &other);
	list_splice_init(&other, &one);
	assert_int_equal(test_digits(&one), 231);
	list_add(&t[3].list, &other);
	list_splice_tail_init(&other, &one);
	assert_int_equal(test_digits(&one), 2314);
	assert_true(list_empty(&other));
	list_splice(&other, &one); /* nothing */
	list_splice_tail(&other, &one);
	assert_int_equal(test_digits(&one), 2314);
}

static void list__walks(void **state)
{
	struct thing t[3], *entry, *ahead;
	struct list_head *node, *next;
	int sum = 0;
	LIST_HEAD(head);

	test_number(t, 3, 1);
	assert_null(list_first_entry_or_null(&head, struct thing, list));
	for (int i = 0; i < 3; i++)
		list_add_tail(&t[i].list, &head);
	list_for_each(node, &head)
		sum += list_entry(node, struct thing, list)->number;
	list_for_each_entry_reverse(entry, &head, list)
		sum = sum * 10 + entry->number;
	assert_int_equal(sum, 6321);
	assert_int_equal(list_first_entry(&head, struct thing, list)->number, 1);
	assert_int_equal(list_last_entry(&head, struct thing, list)->number, 3);
	assert_ptr_equal(list_next_entry(&t[0], list), &t[1]);
	assert_ptr_equal(list_prev_entry(&t[1], list), &t[0]);
	entry = &t[0];
	list_for_each_entry_continue(entry, &head, list)
		sum++;
	assert_int_equal(sum, 6323);
	list_for_each_entry_safe(entry, ahead, &head, list)
		if (entry->number == 2)
			list_del(&entry->list);
	assert_int_equal(test_digits(&head), 13);
	list_for_each_safe(node, next, &head)
		list_del(node);
	assert_true(list_empty(&head));
}

static void hlist__adds_walks_and_removes(void **state)
{
	struct thing t[3], *entry;
	struct hlist_node *ahead;
	int digits = 0;
	HLIST_HEAD(head);

	test_number(t, 3, 1);
	assert_true(hlist_empty(&head));
	for (int i = 0; i < 3; i++) {
		INIT_HLIST_NODE(&t[i].hash);
		assert_true(hlist_unhashed(&t[i].hash));
		hlist_add_head(&t[i].hash, &head);
	}
	hlist_for_each_entry(entry, &head, hash)
		digits = digits * 10 + entry->number;
	assert_int_equal(digits, 321);
	hlist_del(&t[1].hash);
	hlist_del_init(&t[1].hash);
	hlist_for_each_entry_safe(entry, ahead, &head, hash) {
		digits += entry->number;
		hlist_del_init(&entry->hash);
	}
	assert_int_equal(digits, 325);
	assert_true(hlist_empty(&head));
	INIT_HLIST_HEAD(&head);
}

/* ---- texts and numbers ----------------------------------------------------------------------- */

static void string__cuts_and_always_ends(void **state)
{
	char text[4], spaced[] = " \t a b\n";

	assert_int_equal(strscpy(text, "abc", sizeof(text)), 3);
	assert_int_equal(strscpy(text, "abcd", sizeof(text)), -E2BIG);
	assert_string_equal(text, "abc");
	assert_int_equal(strscpy(text, "a", 0), -E2BIG);
	assert_int_equal(strlcpy(text, "wxyz", sizeof(text)), 4);
	assert_string_equal(text, "wxy");
	assert_int_equal(scnprintf(text, sizeof(text), "%d", 12345), 3);
	assert_string_equal(text, "123");
	assert_string_equal(strim(spaced), "a b");
	assert_true(sysfs_streq("on\n", "on") && !sysfs_streq("on", "off"));
}

static void kstrto__takes_one_number(void **state)
{
	unsigned long long ull = 9;
	unsigned int u = 9;
	long l = 9;
	int i = 9;
	u16 u16_ = 9;
	u8 u8_ = 9;
	bool b = false;
	char *end;

	assert_int_equal(kstrtoint("-12\n", 10, &i), 0);
	assert_int_equal(i, -12);
	assert_int_equal(kstrtoint("2147483648", 10, &i), -ERANGE);
	assert_int_equal(kstrtoint("12x", 10, &i), -EINVAL);
	assert_int_equal(kstrtoint("", 10, &i), -EINVAL);
	assert_int_equal(kstrtouint("-1", 10, &u), -EINVAL);
	assert_int_equal(kstrtouint_from_user("77\n8", 3, 10, &u), 0); /* no 0 at its end */
	assert_int_equal(kstrtoint_from_user("12x", 3, 10, &i), -EINVAL);
	assert_true(u == 77 && i == -12);
	assert_int_equal(kstrtouint("+0x10", 0, &u), 0);
	assert_int_equal(u, 16);
	assert_int_equal(kstrtoull("18446744073709551616", 10, &ull), -ERANGE);
	assert_int_equal(kstrtol("-9223372036854775808", 10, &l), 0);
	assert_true(l == INT64_MIN && ull == 9 && i == -12);
	assert_int_equal(kstrtou16("65536", 10, &u16_), -ERANGE);
	assert_int_equal(kstrtou8("255", 10, &u8_), 0);
	assert_int_equal(kstrtobool("on", &b), 0);
	assert_true(b && u16_ == 9 && u8_ == 255);
	assert_int_equal(kstrtobool("N", &b), 0);
	assert_int_equal(kstrtobool("maybe", &b), -EINVAL);
	assert_false(b);
	assert_int_equal(simple_strtoul("12,", &end, 0), 12);
	assert_string_equal(end, ",");
}

static void match_token__finds_the_pattern(void **state)
{
	enum { PORT, NAME, FLAG, NONE };
	static const match_table_t table = {
		{ PORT, "port=%d" }, { NAME, "name=%s" }, { FLAG, "flag" }, { NONE, NULL }
	};
	char port[] = "port=12", bad[] = "port=12x", name[] = "name=me", flag[] = "flag";
	substring_t arguments[MAX_OPT_ARGS];
	char *copy;
	int n;

	assert_int_equal(match_token(port, table, arguments), PORT);
	assert_int_equal(match_int(&arguments[0], &n), 0);
	assert_int_equal(n, 12);
	assert_int_equal(match_token(bad, table, arguments), NONE);
	assert_int_equal(match_token(name, table, arguments), NAME);
	copy = match_strdup(&arguments[0]);
	assert_string_equal(copy, "me");
	kfree(copy);
	assert_int_equal(match_token(flag, table, arguments), FLAG);
}

static void copy_from_user__copies_all(void **state)
{
	int from = 5, to = 0;

	assert_int_equal(copy_from_user(&to, &from, sizeof(to)), 0);
	assert_int_equal(to, 5);
	assert_int_equal(get_user(from, &to) + put_user(6, &to), 0);
	assert_int_equal(copy_to_user(&from, &to, sizeof(to)), 0);
	assert_int_equal(from, 6);
	assert_true(access_ok(&from, 4));
}

/* ---- messages -------------------------------------------------------------------------------- */

static int test_stderr; /* the real one */
static FILE *test_said;

static void test_listen(void)
{
	test_said = tmpfile();
	test_stderr = dup(STDERR_FILENO);
	dup2(fileno(test_said), STDERR_FILENO);
}

/* What has been said since test_listen. */
static const char *test_heard(void)
{
	static char text[4096];

	dup2(test_stderr, STDERR_FILENO);
	close(test_stderr);
	rewind(test_said);
	text[fread(text, 1, sizeof(text) - 1, test_said)] = '\0';
	fclose(test_said);
	return text;
}

static void printk__has_levels(void **state)
{
	test_listen();
	printk(KERN_ERR "an error %d\n", 1);
	pr_debug("a detail\n");
	pr_cont("of it\n");
	printk("none ");
	pr_cont("named\n");
	console_loglevel = 8;
	pr_debug("now\n");
	console_loglevel = 4;
	pr_warn("hidden\n");
	pr_emerg("seen\n");
	console_loglevel = 7;
	assert_string_equal(test_heard(), "an error 1\nnone named\nnow\nseen\n");
}

static void printk__once_and_seldom(void **state)
{
	int lines = 0;
	const char *said;

	test_listen();
	for (int i = 0; i < 30; i++) {
		pr_info_once("o");
		pr_err_ratelimited("r");
	}
	said = test_heard();
	for (const char *c = said; *c; c++)
		lines += *c == 'r';
	assert_int_equal(said[0], 'o');
	assert_in_range(lines, 10, 20); /* twice ten if five seconds end in between */
}

static void warn__is_worth_its_condition(void **state)
{
	const char *said;
	int n = 0, seen = 0;

	test_listen();
	assert_false(WARN_ON(n++ == 1));
	assert_true(WARN(n++ == 1, "n is %d\n", n));
	for (int i = 0; i < 3; i++)
		seen += WARN_ON_ONCE(i > 0) + WARN_ONCE(i > 1, "late\n");
	said = test_heard();
	assert_non_null(strstr(said, "words_test.c:"));
	assert_non_null(strstr(said, "n is 2\n"));
	assert_non_null(strstr(said, "i > 0\n"));
	assert_null(strstr(strstr(said, "i > 0\n") + 1, "i > 0\n"));
	assert_int_equal(seen, 3);
	assert_int_equal(n, 2);
}

static void bug__ends_the_program(void **state)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		close(STDERR_FILENO);
		signal(SIGABRT, SIG_DFL);
		BUG_ON(pid == 0);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(container_of__finds_the_structure),
		cmocka_unit_test(min__evaluates_each_once),
		cmocka_unit_test(round_up__to_powers_and_others),
		cmocka_unit_test(log2__of_edges),
		cmocka_unit_test(byteorder__is_that_of_the_wire),
		cmocka_unit_test(err__rides_in_pointers),
		cmocka_unit_test(compiler__words),
		cmocka_unit_test(list__adds_moves_and_removes),
		cmocka_unit_test(list__splices),
		cmocka_unit_test(list__walks),
		cmocka_unit_test(hlist__adds_walks_and_removes),
		cmocka_unit_test(string__cuts_and_always_ends),
		cmocka_unit_test(kstrto__takes_one_number),
		cmocka_unit_test(match_token__finds_the_pattern),
		cmocka_unit_test(copy_from_user__copies_all),
		cmocka_unit_test(printk__has_levels),
		cmocka_unit_test(printk__once_and_seldom),
		cmocka_unit_test(warn__is_worth_its_condition),
		cmocka_unit_test(bug__ends_the_program),
	};

	return cmocka_run_group_tests_name("words", tests, NULL, NULL);
}
