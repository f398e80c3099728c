/* number_test.c: small words that need no thread: integers at any address, arithmetic that tells
 * what does not fit, options, addresses, lists without a lock. */
#include <asm/unaligned.h>
#include <linux/cpumask.h>
#include <linux/ctype.h>
#include <linux/if_arp.h>
#include <linux/interrupt.h>
#include <linux/kernel.h>
#include <linux/llist.h>
#include <linux/mm.h>
#include <linux/numa.h>
#include <linux/overflow.h>
#include <linux/ratelimit.h>
#include <linux/slab.h>
#include <linux/signal.h>
#include <linux/smp.h>
#include <linux/uio.h>
#include <linux/vmalloc.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* ---- integers -------------------------------------------------------------------------------- */

static void unaligned__in_either_byte_order(void **state)
{
	static const u8 bytes[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8 };
	u8 to[9] = { 0 };
	const u32 *at = (const u32 *)(const void *)(bytes + 1);

	assert_int_equal(get_unaligned_be16(bytes + 1), 0x102);
	assert_int_equal(get_unaligned_be24(bytes + 1), 0x10203);
	assert_int_equal(get_unaligned_be32(bytes + 1), 0x1020304);
	assert_true(get_unaligned_be64(bytes + 1) == 0x102030405060708ULL);
	assert_int_equal(get_unaligned_le16(bytes + 1), 0x201);
	assert_int_equal(get_unaligned_le24(bytes + 1), 0x30201);
	assert_int_equal(get_unaligned_le32(bytes + 1), 0x4030201);
	assert_true(get_unaligned_le64(bytes + 1) == 0x807060504030201ULL);
	assert_int_equal(get_unaligned(at), be32_to_cpu(0x1020304));
	put_unaligned_be64(0x102030405060708ULL, to + 1);
	assert_memory_equal(to, bytes, sizeof(bytes));
	put_unaligned_le64(0x807060504030201ULL, to + 1);
	assert_memory_equal(to, bytes, sizeof(bytes));
	put_unaligned_be24(0x112233, to + 1);
	put_unaligned_le24(0x112233, to + 4);
	assert_memory_equal(to + 1, ((u8[]){ 0x11, 0x22, 0x33, 0x33, 0x22, 0x11 }), 6);
	put_unaligned(cpu_to_be32(0x1020304), (u32 *)(void *)(to + 1));
	assert_memory_equal(to + 1, bytes + 1, 4);
	put_unaligned_be16(0x102, to + 3);
	put_unaligned_le32(0x4030201, to + 5);
	assert_memory_equal(to + 1, ((u8[]){ 1, 2, 1, 2, 1, 2, 3, 4 }), 8);
}

struct counted {
	int count;
	u32 item[];
};

static void overflow__tells_what_does_not_fit(void **state)
{
	struct counted *c = NULL;
	u32 sum;
	u8 small;

	assert_false(check_add_overflow(1u, 2u, &sum));
	assert_int_equal(sum, 3);
	assert_true(check_add_overflow(U32_MAX, 1u, &sum));
	assert_true(check_sub_overflow(1u, 2u, &sum));
	assert_true(check_mul_overflow(16, 16, &small));
	assert_int_equal(struct_size(c, item, 3), sizeof(int) + 12);
	assert_true(struct_size(c, item, SIZE_MAX / 4) == SIZE_MAX);
	assert_true(array_size(SIZE_MAX, 2) == SIZE_MAX);
	assert_int_equal(array3_size(2, 3, 4), 24);
}

static void do_div__leaves_the_quotient(void **state)
{
	u64 n = 10000000001ULL;

	assert_int_equal(do_div(n, 10), 1);
	assert_true(n == 1000000000ULL);
}

#define CONFIG_HERE 1
#define CONFIG_ZERO 0

static void is_enabled__if_the_macro_is_1(void **state)
{
	assert_int_equal(IS_ENABLED(CONFIG_HERE), 1);
	assert_int_equal(IS_BUILTIN(CONFIG_HERE), 1);
	assert_int_equal(IS_ENABLED(CONFIG_ZERO), 0);
	assert_int_equal(IS_ENABLED(CONFIG_NOWHERE), 0);
	assert_int_equal(IS_REACHABLE(CONFIG_NOWHERE), 0);
#if IS_ENABLED(CONFIG_NOWHERE) || !IS_ENABLED(CONFIG_HERE)
	fail();
#endif
}

static void processors__at_least_one(void **state)
{
	assert_true(num_online_cpus() >= 1 && nr_cpu_ids >= num_online_cpus());
	assert_true(raw_smp_processor_id() >= 0);
	assert_int_equal(NUMA_NO_NODE, -1);
	cpu_relax();
}

static void sizes__and_large_memory(void **state)
{
	char *page = kmap_atomic(virt_to_page(state));
	char *large[] = { kvmalloc_array(2, SZ_4K, GFP_KERNEL | __GFP_NOMEMALLOC),
			  vzalloc_node(SZ_64K, NUMA_NO_NODE), kvzalloc_node(SZ_1K, GFP_KERNEL, 0) };
	struct kvec part = { .iov_len = SZ_4K };

	assert_int_equal(SZ_1M, 1 << 20);
	assert_int_equal(large[1][SZ_64K - 1], 0);
	assert_int_equal(large[2][SZ_1K - 1], 0);
	part.iov_base = large[0];
	assert_ptr_equal(part.iov_base, large[0]);
	assert_int_equal(SIGINT, 2);
	kvfree(large[0]);
	vfree(large[1]);
	kvfree(large[2]);
	kunmap_atomic(page);
	assert_true(isdigit('7'));
	pr_info_ratelimited("seldom\n");
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void net__there_is_one(void **state)
{
	possible_net_t field;

	write_pnet(&field, get_net(&init_net));
	assert_true(net_eq(read_pnet(&field), &init_net));
	put_net(read_pnet(&field));
	assert_int_equal(ARPHRD_INFINIBAND, 32);
}

static void ipv6__kinds_of_addresses(void **state)
{
	struct in6_addr mapped, any = IN6ADDR_ANY_INIT, loopback = IN6ADDR_LOOPBACK_INIT;

	ipv6_addr_set_v4mapped(htonl(0xc0000201), &mapped);
	assert_true(ipv6_addr_v4mapped(&mapped));
	assert_int_equal(mapped.s6_addr[12], 192);
	assert_int_equal(mapped.s6_addr[15], 1);
	assert_true(ipv6_addr_any(&any) && !ipv6_addr_any(&mapped));
	assert_true(ipv6_addr_loopback(&loopback) && !ipv6_addr_equal(&loopback, &any));
	assert_false(ipv6_addr_is_multicast(&any));
	assert_true(ipv4_is_loopback(htonl(INADDR_LOOPBACK)));
	assert_true(ipv4_is_multicast(htonl(0xe0000001)) && ipv4_is_zeronet(0));
}

/* ---- lists ----------------------------------------------------------------------------------- */

struct entry {
	int number;
	struct llist_node node;
};

static void llist__last_in_first_out(void **state)
{
	struct entry e[3] = { { .number = 0 }, { .number = 1 }, { .number = 2 } }, *entry, *ahead;
	struct llist_node *node, *next;
	int walked = 0;
	LLIST_HEAD(list);

	assert_true(llist_empty(&list));
	assert_null(llist_del_first(&list));
	assert_true(llist_add(&e[0].node, &list));
	assert_false(llist_add(&e[1].node, &list));
	e[2].node.next = NULL;
	assert_false(llist_add_batch(&e[2].node, &e[2].node, &list));
	llist_for_each_entry(entry, list.first, node) walked = walked * 10 + entry->number;
	assert_int_equal(walked, 210);
	assert_ptr_equal(llist_del_first(&list), &e[2].node);
	node = llist_reverse_order(llist_del_all(&list));
	assert_true(llist_empty(&list));
	assert_ptr_equal(llist_entry(node, struct entry, node), &e[0]);
	assert_ptr_equal(llist_next(node), &e[1].node);
	walked = 0;
	llist_for_each_entry_safe(entry, ahead, node, node)
	{
		entry->node.next = NULL;
		walked++;
	}
	llist_for_each(node, &e[0].node) walked++;
	llist_for_each_safe(node, next, &e[1].node) walked++;
	assert_int_equal(walked, 4);
	init_llist_head(&list);
	assert_true(llist_empty(&list));
}

/* ---- tasklets -------------------------------------------------------------------------------- */

struct counter {
	struct tasklet_struct tasklet;
	atomic_t ran;
};

static void counter_count(unsigned long data)
{
	atomic_inc((atomic_t *)data);
}

static void counter_count_self(struct tasklet_struct *tasklet)
{
	struct counter *counter = from_tasklet(counter, tasklet, tasklet);

	atomic_inc(&counter->ran);
}

static void tasklet__has_run_when_it_is_killed(void **state)
{
	struct counter counter = { .ran = ATOMIC_INIT(0) };

	tasklet_init(&counter.tasklet, counter_count, (unsigned long)&counter.ran);
	tasklet_schedule(&counter.tasklet);
	tasklet_kill(&counter.tasklet);
	assert_int_equal(atomic_read(&counter.ran), 1);
	tasklet_setup(&counter.tasklet, counter_count_self);
	tasklet_hi_schedule(&counter.tasklet);
	tasklet_kill(&counter.tasklet);
	tasklet_kill(&counter.tasklet);
	assert_int_equal(atomic_read(&counter.ran), 2);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(unaligned__in_either_byte_order),
		cmocka_unit_test(overflow__tells_what_does_not_fit),
		cmocka_unit_test(do_div__leaves_the_quotient),
		cmocka_unit_test(is_enabled__if_the_macro_is_1),
		cmocka_unit_test(processors__at_least_one),
		cmocka_unit_test(sizes__and_large_memory),
		cmocka_unit_test(net__there_is_one),
		cmocka_unit_test(ipv6__kinds_of_addresses),
		cmocka_unit_test(llist__last_in_first_out),
		cmocka_unit_test(tasklet__has_run_when_it_is_killed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
