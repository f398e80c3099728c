/* module_test.c: modules, their parameters and files; addresses, interfaces, random numbers. */
#include <anyverbs/module.h>
#include <linux/inet.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/proc_fs.h>
#include <linux/random.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/wait.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static int depth = 3;
static bool loud;
static char no_greeting[] = "none";
static char *greeting = no_greeting;
static u8 small;
static short shorter;
static unsigned short port;
static unsigned int count;
static long far_away;
static unsigned long bytes;
static unsigned long long more;
module_param(depth, int, 0644);
module_param(loud, bool, 0);
module_param(greeting, charp, S_IRUGO);
module_param(small, byte, 0);
module_param(shorter, short, 0);
module_param(port, ushort, 0);
module_param(count, uint, 0);
module_param_named(distance, far_away, long, 0);
module_param(bytes, ulong, 0);
module_param(more, ullong, 0);
MODULE_PARM_DESC(depth, "how deep");
MODULE_LICENSE("MIT");
MODULE_AUTHOR("nobody");
MODULE_DESCRIPTION("a test");
MODULE_VERSION("1");

static int test_begun, test_init_result;

static int __init test_init(void)
{
	test_begun++;
	return test_init_result;
}

static void __exit test_exit(void)
{
	test_begun--;
}

module_init(test_init);
module_exit(test_exit);
EXPORT_SYMBOL_GPL(test_begun);

/* ---- modules --------------------------------------------------------------------------------- */

static void modules__begin_and_end(void **state)
{
	assert_int_equal(anyverbs_modules_init(), 0);
	assert_int_equal(anyverbs_modules_init(), 0); /* begun already */
	assert_int_equal(test_begun, 1);
	anyverbs_modules_exit();
	anyverbs_modules_exit();
	assert_int_equal(test_begun, 0);
	test_init_result = -ENODEV;
	assert_int_equal(anyverbs_modules_init(), -ENODEV);
	anyverbs_modules_exit(); /* nothing */
	assert_int_equal(test_begun, 1);
	test_begun = test_init_result = 0;
	assert_true(try_module_get(THIS_MODULE));
	__module_get(THIS_MODULE);
	module_put(THIS_MODULE);
	assert_string_equal(KBUILD_MODNAME, "module");
}

/* Another module, which begins behind the first and refuses. */
static struct anyverbs_module test_other;
static int test_other_result;

static int test_other_init(void)
{
	test_begun += test_other_result ? 0 : 10;
	return test_other_result;
}

static void test_other_exit(void)
{
	assert_int_equal(test_begun, 11); /* the first has not ended yet */
	test_begun -= 10;
}

static void modules__end_in_the_opposite_order(void **state)
{
	anyverbs_module_add_exit(&test_other, test_other_exit);
	anyverbs_module_add_init(&test_other, test_other_init);
	test_other_result = -ENOMEM;
	assert_int_equal(anyverbs_modules_init(), -ENOMEM);
	assert_int_equal(test_begun, 0);
	test_other_result = 0;
	assert_int_equal(anyverbs_modules_init(), 0);
	assert_int_equal(test_begun, 11);
	anyverbs_modules_exit();
	assert_int_equal(test_begun, 0);
}

static void module_param__sets_its_variable(void **state)
{
	assert_int_equal(anyverbs_module_param("depth", "-7"), 0);
	assert_int_equal(anyverbs_module_param("depth", "x"), -EINVAL);
	assert_int_equal(anyverbs_module_param("depth", "2147483648"), -ERANGE);
	assert_int_equal(anyverbs_module_param("depths", "1"), -ENOENT);
	assert_int_equal(anyverbs_module_param("loud", "y"), 0);
	assert_int_equal(anyverbs_module_param("greeting", "hello"), 0);
	assert_int_equal(anyverbs_module_param("small", "256"), -ERANGE);
	assert_int_equal(anyverbs_module_param("shorter", "-5"), 0);
	assert_int_equal(anyverbs_module_param("port", "0x1f"), 0);
	assert_int_equal(anyverbs_module_param("count", "12"), 0);
	assert_int_equal(anyverbs_module_param("distance", "-9"), 0);
	assert_int_equal(anyverbs_module_param("bytes", "5"), 0);
	assert_int_equal(anyverbs_module_param("more", "18446744073709551615"), 0);
	assert_true(depth == -7 && loud && small == 0 && shorter == -5 && port == 31);
	assert_true(count == 12 && far_away == -9 && bytes == 5 && more == UINT64_MAX);
	assert_string_equal(greeting, "hello");
	kfree(greeting);
}

/* ---- files ----------------------------------------------------------------------------------- */

static char test_kept[32];

static ssize_t kept_write(struct file *file, const char __user *buffer, size_t size, loff_t *pos)
{
	size_t n = min(size, sizeof(test_kept) - 1);

	assert_ptr_equal(pde_data(file_inode(file)), &test_kept);
	if (copy_from_user(test_kept, buffer, n))
		return -EFAULT;
	test_kept[n] = '\0';
	return n < size ? -E2BIG : (ssize_t)n;
}

static int kept_show(struct seq_file *seq, void *unused)
{
	if (!strcmp(test_kept, "fail"))
		return -EIO;
	seq_printf(seq, "%s", test_kept);
	seq_puts(seq, "++");
	seq_putc(seq, '\n');
	for (int i = 0; i < 1000; i++)
		seq_printf(seq, "%03d\n", i);
	return 0;
}

DEFINE_SHOW_ATTRIBUTE(kept);

static int kept_single(struct inode *inode, struct file *file)
{
	return single_open(file, kept_show, PDE_DATA(inode));
}

static void proc__written_and_read(void **state)
{
	static const struct proc_ops ops = { .proc_open = kept_single,
					     .proc_read = seq_read,
					     .proc_lseek = seq_lseek,
					     .proc_write = kept_write,
					     .proc_release = single_release };
	struct proc_dir_entry *directory = proc_mkdir("test", NULL);
	struct proc_dir_entry *entry = proc_create_data("kept", 0644, directory, &ops, &test_kept);
	char *text = NULL;

	assert_non_null(entry);
	assert_null(proc_create_data("kept", 0644, directory, &ops, &test_kept));
	assert_int_equal(anyverbs_proc_write("test/kept", "hello", 5), 5);
	assert_string_equal(test_kept, "hello");
	assert_int_equal(anyverbs_proc_read("test/kept", &text), 4008);
	assert_memory_equal(text, "hello++\n000\n", 12);
	assert_string_equal(text + 4004, "999\n");
	free(text);
	assert_int_equal(anyverbs_proc_write("test/kept", test_kept, 100), -E2BIG);
	anyverbs_proc_write("test/kept", "fail", 4);
	assert_int_equal(anyverbs_proc_read("test/kept", &text), -EIO);
	assert_int_equal(anyverbs_proc_read("test", &text), -ENOENT);
	proc_remove(directory);
	assert_int_equal(anyverbs_proc_write("test/kept", "x", 1), -ENOENT);
}

static void proc__of_file_operations(void **state)
{
	char *text;

	assert_non_null(proc_create("old", 0, NULL, &kept_fops));
	assert_non_null(proc_create_single("single", 0, NULL, kept_show));
	assert_int_equal(anyverbs_proc_write("old", "x", 1), -EIO);
	strscpy(test_kept, "y", sizeof(test_kept));
	assert_int_equal(anyverbs_proc_read("old", &text), 4004);
	free(text);
	assert_int_equal(anyverbs_proc_read("single", &text), 4004);
	free(text);
	remove_proc_entry("old", NULL);
	remove_proc_subtree("single", NULL);
	assert_int_equal(anyverbs_proc_read("old", &text), -ENOENT);
	proc_remove(NULL);
}

static void seq_read__in_parts_and_anew(void **state)
{
	struct file file = { 0 };
	char part[4];

	strscpy(test_kept, "abcdef", sizeof(test_kept));
	assert_int_equal(single_open(&file, kept_show, NULL), 0);
	assert_int_equal(seq_read(&file, part, 4, &file.f_pos), 4);
	assert_memory_equal(part, "abcd", 4);
	assert_int_equal(seq_lseek(&file, 1, SEEK_SET), 1);
	assert_int_equal(seq_lseek(&file, 1, SEEK_CUR), 2);
	assert_int_equal(seq_lseek(&file, 0, SEEK_END), -EINVAL);
	assert_int_equal(seq_read(&file, part, 4, &file.f_pos), 4);
	assert_memory_equal(part, "cdef", 4);
	file.f_pos = 5000;
	assert_int_equal(seq_read(&file, part, 4, &file.f_pos), 0);
	single_release(NULL, &file);
}

static DECLARE_WAIT_QUEUE_HEAD(test_queue);
static atomic_t test_waits;
static struct task_struct *test_writer;

static ssize_t wait_write(struct file *file, const char __user *buffer, size_t size, loff_t *pos)
{
	WRITE_ONCE(test_writer, current);
	atomic_set_release(&test_waits, 1);
	return wait_event_interruptible(test_queue, false);
}

static int write_and_wait(void *result)
{
	*(ssize_t *)result = anyverbs_proc_write("wait", "x", 1);
	anyverbs_uninterrupt();
	return signal_pending(current);
}

static void proc_remove__waits_for_writers(void **state)
{
	static const struct file_operations ops = { .owner = THIS_MODULE, .write = wait_write };
	struct task_struct *task;
	ssize_t result = 0;

	assert_non_null(proc_create("wait", 0, NULL, &ops));
	task = kthread_create(write_and_wait, &result, "writer");
	get_task_struct(task);
	wake_up_process(task);
	while (!atomic_read_acquire(&test_waits))
		cond_resched();
	anyverbs_interrupt(READ_ONCE(test_writer));
	remove_proc_entry("wait", NULL);
	assert_int_equal(kthread_stop(task), 0);
	put_task_struct(task);
	assert_int_equal(result, -ERESTARTSYS);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void in_pton__takes_whole_addresses(void **state)
{
	const u8 want[4] = { 10, 0, 0, 7 };
	const char *end;
	u8 to[16];

	assert_int_equal(in4_pton("10.0.0.7", -1, to, -1, NULL), 1);
	assert_memory_equal(to, want, 4);
	assert_int_equal(in4_pton("10.0.0.7,port", -1, to, ',', &end), 1);
	assert_string_equal(end, ",port");
	assert_int_equal(in4_pton("10.0.0.77", 8, to, -1, &end), 1);
	assert_string_equal(end, "7");
	assert_int_equal(in4_pton("10.0.0", -1, to, -1, NULL), 0);
	assert_int_equal(in6_pton("fe80::1", -1, to, -1, NULL), 1);
	assert_true(to[0] == 0xfe && to[15] == 1);
	assert_int_equal(in6_pton("::g", -1, to, -1, NULL), 0);
	assert_int_equal(in_aton("10.0.0.7"), htonl(0x0a000007));
}

static void inet_pton_with_scope__takes_either(void **state)
{
	struct sockaddr_storage to;
	struct sockaddr_in *in4 = (struct sockaddr_in *)&to;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&to;

	assert_int_equal(inet_pton_with_scope(&init_net, AF_UNSPEC, "1.2.3.4", "80", &to), 0);
	assert_true(in4->sin_family == AF_INET && in4->sin_port == htons(80));
	assert_int_equal(inet_pton_with_scope(&init_net, AF_UNSPEC, "fe80::1%lo", NULL, &to), 0);
	assert_true(in6->sin6_family == AF_INET6 && in6->sin6_scope_id == 1);
	assert_int_equal(inet_pton_with_scope(&init_net, AF_INET, "fe80::1", NULL, &to), -EINVAL);
	assert_int_equal(inet_pton_with_scope(&init_net, AF_INET6, "1.2.3.4", NULL, &to), -EINVAL);
	assert_int_equal(inet_pton_with_scope(&init_net, AF_INET, "1.2.3.4", "x", &to), -EINVAL);
}

static void dev_get_by_name__finds_interfaces(void **state)
{
	struct net_device *lo = dev_get_by_name(&init_net, "lo");

	assert_true(lo->ifindex == 1 && strcmp(lo->name, "lo") == 0);
	assert_ptr_equal(__dev_get_by_name(&init_net, "lo"), lo);
	assert_null(dev_get_by_name(&init_net, "none0"));
	dev_hold(lo);
	dev_put(lo);
}

static void random__differs(void **state)
{
	u64 one[4] = { 0 }, other[4] = { 0 };

	get_random_bytes(one, sizeof(one));
	prandom_bytes(other, sizeof(other));
	assert_memory_not_equal(one, other, sizeof(one));
	assert_true(get_random_u64() != get_random_u64());
	assert_true(get_random_u32() != get_random_u32() || prandom_u32() != get_random_int());
	for (int i = 0; i < 20; i++)
		assert_in_range(prandom_u32_max(3), 0, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(modules__begin_and_end),
		cmocka_unit_test(modules__end_in_the_opposite_order),
		cmocka_unit_test(module_param__sets_its_variable),
		cmocka_unit_test(proc__written_and_read),
		cmocka_unit_test(proc__of_file_operations),
		cmocka_unit_test(seq_read__in_parts_and_anew),
		cmocka_unit_test(proc_remove__waits_for_writers),
		cmocka_unit_test(in_pton__takes_whole_addresses),
		cmocka_unit_test(inet_pton_with_scope__takes_either),
		cmocka_unit_test(dev_get_by_name__finds_interfaces),
		cmocka_unit_test(random__differs),
	};

	return cmocka_run_group_tests_name("module", tests, NULL, NULL);
}
