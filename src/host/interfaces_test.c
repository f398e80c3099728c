/* interfaces_test.c: what rtnetlink says, well-formed and not.
 * In:    made-up messages, and the kernel's          Out: verdicts
 * Runs:  one thread                                  Locks: none
 */
#include "host/interfaces.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

/* A message that is being written. */
struct note {
	union {
		char space[1024];
		struct nlmsghdr head;
	};
};

static void *note_begin(struct note *n, u16 type, size_t size)
{
	memset(n, 0, sizeof(*n));
	n->head.nlmsg_type = type;
	n->head.nlmsg_len = (u32)NLMSG_LENGTH(size);
	return NLMSG_DATA(&n->head);
}

static struct rtattr *note_add(struct note *n, u16 type, const void *data, size_t size)
{
	struct rtattr *a = (void *)(n->space + NLMSG_ALIGN(n->head.nlmsg_len));

	a->rta_type = type;
	a->rta_len = (u16)RTA_LENGTH(size);
	if (size > 0)
		memcpy(RTA_DATA(a), data, size);
	n->head.nlmsg_len = (u32)(NLMSG_ALIGN(n->head.nlmsg_len) + RTA_ALIGN(a->rta_len));
	return a;
}

static void note_link(struct note *n, int ifindex, unsigned flags, u32 mtu)
{
	struct ifinfomsg *info = note_begin(n, RTM_NEWLINK, sizeof(*info));

	info->ifi_index = ifindex;
	info->ifi_flags = flags;
	note_add(n, IFLA_IFNAME, "eth0", 5);
	note_add(n, IFLA_MTU, &mtu, 4);
	note_add(n, IFLA_ADDRESS, "\2\0\0\0\0\7", 6);
}

static struct ifaddrmsg *note_address(struct note *n, u8 family, u32 ifindex)
{
	struct ifaddrmsg *info = note_begin(n, RTM_NEWADDR, sizeof(*info));

	info->ifa_family = family;
	info->ifa_index = ifindex;
	return info;
}

static void host_take__a_link(void **state)
{
	static const struct {
		unsigned flags;
		bool loopback, up, running;
	} cases[] = {
		{ 0, false, false, false },
		{ IFF_UP, false, true, false },
		{ IFF_UP | IFF_RUNNING, false, true, true },
		{ IFF_RUNNING, false, false, false },
		{ IFF_UP | IFF_RUNNING | IFF_LOOPBACK, true, true, true },
	};
	struct host h = { .link_count = 0 };
	struct note n;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const struct host_interface *l;

		note_link(&n, (int)i + 1, cases[i].flags, 1500);
		host_take(&h, &n.head);
		l = host_interface_of(&h, (u32)i + 1);
		assert_non_null(l);
		assert_int_equal(l->mtu, 1500);
		assert_string_equal(l->name, "eth0");
		assert_int_equal(l->mac[5], 7);
		assert_int_equal(l->loopback, cases[i].loopback);
		assert_int_equal(l->up, cases[i].up);
		assert_int_equal(l->running, cases[i].running);
		assert_false(l->bridge);
	}
}

static void host_take__a_bridge(void **state)
{
	struct host h = { .link_count = 0 };
	struct note n;
	char nested[RTA_LENGTH(8)];
	struct rtattr *kind = (void *)nested;

	kind->rta_type = IFLA_INFO_KIND;
	for (int i = 0; i < 2; i++) {
		memcpy(RTA_DATA(kind), i == 0 ? "bridge" : "veth\0\0", 7);
		kind->rta_len = RTA_LENGTH(7);
		note_link(&n, 1 + i, IFF_UP, 1500);
		note_add(&n, IFLA_LINKINFO, nested, kind->rta_len);
		host_take(&h, &n.head);
		assert_int_equal(host_interface_of(&h, 1 + (u32)i)->bridge, i == 0);
	}
}

static void host_take__addresses(void **state)
{
	static const u8 v4[16] = { [10] = 0xff, [11] = 0xff, 10, 0, 0, 1 };
	static const u8 v6[16] = { 0xfd, [15] = 1 };
	struct host h = { .link_count = 0 };
	u32 flags = IFA_F_TENTATIVE;
	struct note n;

	/* a point-to-point interface: the other end's stands in IFA_ADDRESS */
	note_address(&n, AF_INET, 3);
	note_add(&n, IFA_ADDRESS, "\12\0\0\2", 4);
	note_add(&n, IFA_LOCAL, "\12\0\0\1", 4);
	host_take(&h, &n.head);
	note_address(&n, AF_INET6, 4);
	note_add(&n, IFA_ADDRESS, v6, 16);
	host_take(&h, &n.head);
	/* not yet usable, as the old field and the new attribute say it; duplicate on the link */
	note_address(&n, AF_INET6, 5)->ifa_flags = IFA_F_TENTATIVE;
	note_add(&n, IFA_ADDRESS, v6, 16);
	host_take(&h, &n.head);
	note_address(&n, AF_INET6, 5);
	note_add(&n, IFA_ADDRESS, v6, 16);
	note_add(&n, IFA_FLAGS, &flags, 4);
	host_take(&h, &n.head);
	note_address(&n, AF_INET6, 5)->ifa_flags = IFA_F_DADFAILED;
	note_add(&n, IFA_ADDRESS, v6, 16);
	host_take(&h, &n.head);
	assert_int_equal(h.address_count, 2);
	assert_int_equal(host_address_of(&h, v4)->ifindex, 3);
	assert_int_equal(host_address_of(&h, v6)->ifindex, 4);
}

static void host_take__passes_over_what_makes_no_sense(void **state)
{
	struct host h = { .link_count = 0 };
	struct note n;
	struct rtattr *a;

	note_address(&n, AF_INET6, 1); /* of the wrong length */
	note_add(&n, IFA_ADDRESS, "\12\0\0\1", 4);
	host_take(&h, &n.head);
	note_address(&n, AF_INET, 1); /* none */
	host_take(&h, &n.head);
	note_address(&n, AF_UNIX, 1);
	note_add(&n, IFA_ADDRESS, &n, 16);
	host_take(&h, &n.head);
	note_address(&n, AF_INET, 1); /* an attribute that runs beyond the message */
	a = note_add(&n, IFA_LOCAL, "\12\0\0\1", 4);
	a->rta_len = 200;
	host_take(&h, &n.head);
	note_begin(&n, RTM_NEWADDR, 2);
	host_take(&h, &n.head);
	note_begin(&n, RTM_NEWLINK, 2);
	host_take(&h, &n.head);
	note_begin(&n, RTM_NEWROUTE, 64);
	host_take(&h, &n.head);
	assert_int_equal(h.address_count, 0);
	assert_int_equal(h.link_count, 0);
}

static void host_take__random_attributes(void **state)
{
	static struct host h;
	struct note n;

	srandom(4791);
	for (int i = 0; i < 100000; i++) {
		u16 type = i % 2 ? RTM_NEWLINK : RTM_NEWADDR;
		size_t size = (size_t)random() % 200;
		u8 *body = note_begin(&n, type, size);

		for (size_t k = 0; k < size; k++)
			body[k] = (u8)(random() % (k % 2 ? 3 : 64));
		if (type == RTM_NEWADDR)
			body[0] = i % 4 < 2 ? AF_INET : AF_INET6;
		host_take(&h, &n.head);
		assert_true(h.link_count <= HOST_INTERFACES && h.address_count <= HOST_ADDRESSES);
	}
	assert_int_equal(h.link_count, HOST_INTERFACES);
	for (u32 i = 0; i < h.link_count; i++)
		assert_int_equal(h.links[i].name[sizeof(h.links[i].name) - 1], 0);
}

static void host_read__finds_the_loopback(void **state)
{
	static struct host h;
	const struct host_interface *lo;

	assert_int_equal(host_read(&h), 0);
	lo = host_interface_of(&h, if_nametoindex("lo"));
	assert_non_null(lo);
	assert_true(lo->loopback);
	assert_string_equal(lo->name, "lo");
	assert_true(lo->mtu >= 1280);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(host_take__a_link),
		cmocka_unit_test(host_take__a_bridge),
		cmocka_unit_test(host_take__addresses),
		cmocka_unit_test(host_take__passes_over_what_makes_no_sense),
		cmocka_unit_test(host_take__random_attributes),
		cmocka_unit_test(host_read__finds_the_loopback),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
