/* addr_test.c: requests in virtual time, over a host that is told what it has: routes, interfaces,
 * neighbours and news of them. And the calls over this host's own loopback. */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if_arp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "addr/addr.h"
#include "base/clock.h"

enum { ETH = 7, LO = 1, NOARP = 9, IPOIB = 11, VLAN = 12, WATCH = 1000, NEWS = 8 };

static const u8 eth_mac[6] = { 2, 0, 0, 0, 0, 7 }, peer_mac[6] = { 2, 0, 0, 0, 0, 0x99 };

static const u8 port_gid[16] = { 0xfe, 0x80, [8] = 2, [15] = 0x77 };

/* The host. */
static struct host_fake {
	int route_err, neighbour_err, watch_err, probe_err;
	struct host_route route;
	struct host_neighbour neighbour; /* the only one; ifindex 0: none */
	u32 asked, probed;
	struct host_change news[NEWS];
	u32 news_count;
	bool watch_stolen;
	u8 route_from[16];
	u32 route_if;
} host;

static u64 now_ns;
static struct work_queue queue;
static struct addr_instance a;

static u64 test_clock(void)
{
	return now_ns;
}

static int fake_route(const u8 to[16], const u8 *from, u32 ifindex, struct host_route *out)
{
	static const u8 none[16];

	memcpy(host.route_from, from != NULL ? from : none, 16);
	host.route_if = ifindex;
	if (host.route_err != 0)
		return host.route_err;
	*out = host.route;
	if (memcmp(out->next, none, 16) == 0)
		memcpy(out->next, to, 16);
	return 0;
}

static int fake_link(u32 ifindex, struct host_link *out)
{
	memset(out, 0, sizeof(*out));
	out->ifindex = ifindex;
	out->type = ARPHRD_ETHER;
	out->vlan_id = ifindex == VLAN ? 33 : HOST_NO_VLAN;
	out->no_arp = ifindex == NOARP;
	memcpy(out->address, eth_mac, 6);
	out->address[5] = (u8)ifindex;
	memset(out->broadcast, 0xff, 6);
	if (ifindex == IPOIB) {
		out->type = ARPHRD_INFINIBAND;
		memset(out->address, 0, sizeof(out->address));
		memcpy(out->address + 4, port_gid, sizeof(port_gid));
	}
	return ifindex > VLAN ? -ENODEV : 0;
}

static int fake_address(const u8 gid[16], u32 scope, u32 *ifindex)
{
	if (gid[15] != 1)
		return -EADDRNOTAVAIL;
	*ifindex = scope != 0 ? scope : ETH;
	return 0;
}

static int fake_neighbour(u32 ifindex, const u8 gid[16], struct host_neighbour *out)
{
	host.asked++;
	if (host.neighbour_err != 0)
		return host.neighbour_err;
	if (host.neighbour.ifindex != ifindex || memcmp(host.neighbour.gid, gid, 16) != 0)
		return -ENOENT;
	*out = host.neighbour;
	return 0;
}

static int fake_probe(u32 ifindex, const u8 gid[16])
{
	(void)ifindex;
	(void)gid;
	host.probed++;
	return host.probe_err;
}

static int fake_watch_open(struct host_watch *w)
{
	if (host.watch_err == 0)
		w->fd = WATCH;
	return host.watch_err;
}

static void fake_watch_close(struct host_watch *w)
{
	assert_int_equal(w->fd, WATCH);
	w->fd = -1;
}

static bool fake_watch_read(struct host_watch *w,
			    void (*take)(const struct host_change *c, void *context), void *context)
{
	assert_int_equal(w->fd, WATCH);
	if (host.watch_stolen) {
		host.watch_stolen = false;
		w->fd = -1;
		return false;
	}
	for (u32 i = 0; i < host.news_count; i++)
		take(&host.news[i], context);
	host.news_count = 0;
	return true;
}

static const struct addr_ops fake_ops = {
	.route = fake_route,
	.link = fake_link,
	.address = fake_address,
	.neighbour = fake_neighbour,
	.probe = fake_probe,
	.watch_open = fake_watch_open,
	.watch_close = fake_watch_close,
	.watch_read = fake_watch_read,
};

/* ---- the consumer ---------------------------------------------------------------------------- */

static struct answer {
	u32 calls;
	int status;
	struct sockaddr_storage src;
	void *context;
	bool cancels; /* itself */
	u64 at_ns;
} answer;
static struct rdma_addr_client client;
static struct rdma_dev_addr dev;

static void on_answer(int status, struct sockaddr *src, struct rdma_dev_addr *addr, void *context)
{
	assert_ptr_equal(addr, &dev);
	answer.calls++;
	answer.status = status;
	memcpy(&answer.src, src, (size_t)rdma_addr_size(src));
	answer.context = context;
	answer.at_ns = now_ns;
	if (answer.cancels)
		addr_cancel(&a, addr);
}

static struct sockaddr_storage test_ip(const char *text)
{
	struct sockaddr_in6 sin6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in sin = { .sin_family = AF_INET };
	struct sockaddr_storage s = { 0 };

	if (inet_pton(AF_INET, text, &sin.sin_addr) == 1) {
		memcpy(&s, &sin, sizeof(sin));
	} else {
		assert_int_equal(inet_pton(AF_INET6, text, &sin6.sin6_addr), 1);
		memcpy(&s, &sin6, sizeof(sin6));
	}
	return s;
}

static void test_gid(const char *text, u8 out[16])
{
	struct sockaddr_storage s = test_ip(text);
	union ib_gid gid = { .raw = { 0 } };

	assert_int_equal(rdma_ip2gid((void *)&s, &gid), 0);
	memcpy(out, gid.raw, 16);
}

static void test_run(u64 ms)
{
	u64 end = now_ns + ms * NS_PER_MS, next;

	work_queue_run(&queue, now_ns);
	while ((next = work_queue_next_ns(&queue)) <= end) {
		now_ns = MAX(now_ns, next);
		work_queue_run(&queue, now_ns);
	}
	now_ns = end;
}

static int test_ask(const char *src, const char *dst, int timeout_ms)
{
	struct sockaddr_storage from = { 0 }, to = test_ip(dst);

	if (src != NULL)
		from = test_ip(src);
	return addr_resolve(&a, &client, src != NULL ? (void *)&from : NULL, (void *)&to, &dev,
			    timeout_ms, on_answer, &answer);
}

static void test_neighbour_is(const char *text)
{
	host.neighbour = (struct host_neighbour){ .ifindex = ETH, .valid = true };
	memcpy(host.neighbour.address, peer_mac, 6);
	test_gid(text, host.neighbour.gid);
}

static int setup(void **state)
{
	(void)state;
	memset(&host, 0, sizeof(host));
	memset(&answer, 0, sizeof(answer));
	memset(&dev, 0, sizeof(dev));
	host.route.ifindex = ETH;
	test_gid("10.0.0.1", host.route.source);
	now_ns = NS_PER_S;
	clock_set_source(test_clock);
	work_queue_init(&queue, "addr", true);
	addr_init(&a, &fake_ops, &queue);
	rdma_addr_register_client(&client);
	return 0;
}

static int teardown(void **state) NO_THREAD_SAFETY /* nobody else is left */
{
	(void)state;
	assert_int_equal(client.requests, 0);
	assert_true(a.request_count == 0);
	addr_close(&a);
	timer_set_destroy(&queue.timers);
	clock_set_source(NULL);
	return 0;
}

/* ---- the way --------------------------------------------------------------------------------- */

static void resolve__a_known_neighbour(void **state)
{
	struct sockaddr_in src;

	(void)state;
	test_neighbour_is("10.0.0.2");
	host.route.hop_limit = 44;
	assert_int_equal(test_ask(NULL, "10.0.0.2", 1000), 0);
	assert_int_equal(answer.calls, 0); /* never inside the call */
	test_run(0);
	assert_int_equal(answer.calls, 1);
	assert_int_equal(answer.status, 0);
	assert_ptr_equal(answer.context, &answer);
	memcpy(&src, &answer.src, sizeof(src));
	assert_int_equal(src.sin_addr.s_addr, inet_addr("10.0.0.1"));
	assert_memory_equal(dev.src_dev_addr, eth_mac, 6);
	assert_memory_equal(dev.dst_dev_addr, peer_mac, 6);
	assert_int_equal(dev.broadcast[0], 0xff);
	assert_int_equal(dev.dev_type, ARPHRD_ETHER);
	assert_int_equal(dev.bound_dev_if, ETH);
	assert_int_equal(dev.hoplimit, 44);
	assert_int_equal(host.probed, 0);
}

/* The port's and the neighbour's GIDs stand in the hardware addresses, behind flags and QPN. */
static void resolve__an_ipoib_neighbour(void **state)
{
	static const u8 peer_gid[16] = { 0xfe, 0x80, [8] = 2, [15] = 0x99 };
	u8 ip[16], gid[16];

	(void)state;
	test_neighbour_is("10.0.0.2");
	host.route.ifindex = host.neighbour.ifindex = IPOIB;
	memcpy(host.neighbour.address + 4, peer_gid, 16);
	assert_int_equal(test_ask(NULL, "10.0.0.2", 1000), 0);
	test_run(0);
	assert_int_equal(answer.status, 0);
	assert_int_equal(dev.dev_type, ARPHRD_INFINIBAND);
	assert_memory_equal(addr_ipoib_of(dev.src_dev_addr), port_gid, 16);
	assert_memory_equal(addr_ipoib_of(dev.dst_dev_addr), peer_gid, 16);
	test_gid("10.0.0.1", ip);
	assert_int_equal(addr_ipoib_gid(&a, ip, IPOIB, gid), 0);
	assert_memory_equal(gid, port_gid, 16);
	assert_int_equal(addr_ipoib_gid(&a, ip, ETH, gid), -ENODEV);
	test_gid("10.0.0.9", ip);
	assert_int_equal(addr_ipoib_gid(&a, ip, 0, gid), -EADDRNOTAVAIL);
}

static void resolve__the_gateway_is_the_neighbour(void **state)
{
	(void)state;
	test_neighbour_is("10.0.0.254");
	memcpy(host.route.next, host.neighbour.gid, 16);
	assert_int_equal(test_ask(NULL, "192.168.3.4", 1000), 0);
	test_run(0);
	assert_int_equal(answer.status, 0);
	assert_memory_equal(dev.dst_dev_addr, peer_mac, 6);
}

static void resolve__waits_for_the_neighbour(void **state)
{
	(void)state;
	assert_int_equal(test_ask(NULL, "10.0.0.2", 1000), 0);
	test_run(10);
	assert_int_equal(answer.calls, 0);
	assert_true(host.probed > 0);
	test_neighbour_is("10.0.0.2");
	test_run(20); /* it looks again before the waiting so far has doubled */
	assert_int_equal(answer.calls, 1);
	assert_int_equal(answer.status, 0);
}

static void resolve__times_out(void **state)
{
	(void)state;
	assert_int_equal(test_ask(NULL, "10.0.0.2", 500), 0);
	test_run(499);
	assert_int_equal(answer.calls, 0);
	test_run(2);
	assert_int_equal(answer.calls, 1);
	assert_int_equal(answer.status, -ETIMEDOUT);
	assert_true(answer.at_ns == NS_PER_S + 500 * NS_PER_MS);
	assert_in_range(host.asked, 8, 20); /* 1, 2, 4 ... 64, 100 ms, not each millisecond */
	test_run(10000);
	assert_int_equal(answer.calls, 1);
}

/* ---- in the caller's thread ---- */

static u64 sleeps, known_after;

static void test_sleep(u64 ns)
{
	now_ns += ns;
	if (++sleeps == known_after)
		test_neighbour_is("10.0.0.2");
}

static int test_wait(int timeout_ms, u64 known)
{
	struct addr_way way;
	u8 to[16];
	int err;

	sleeps = 0;
	known_after = known;
	clock_set_sleep(test_sleep);
	test_gid("10.0.0.2", to);
	err = addr_route(&a, to, NULL, 0, &way);
	if (err == 0)
		err = addr_link_wait(&a, &way, timeout_ms, &dev);
	clock_set_sleep(NULL);
	return err;
}

static void wait__a_known_neighbour_is_no_wait(void **state)
{
	(void)state;
	test_neighbour_is("10.0.0.2");
	assert_int_equal(test_wait(1000, 0), 0);
	assert_int_equal(sleeps, 0);
	assert_memory_equal(dev.dst_dev_addr, peer_mac, 6);
}

static void wait__until_the_neighbour_answers(void **state)
{
	(void)state;
	assert_int_equal(test_wait(1000, 4), 0);
	assert_int_equal(sleeps, 4);
	assert_true(now_ns == NS_PER_S + (1 + 2 + 4 + 8) * NS_PER_MS);
	assert_memory_equal(dev.dst_dev_addr, peer_mac, 6);
}

static void wait__times_out(void **state)
{
	(void)state;
	assert_int_equal(test_wait(1000, 0), -ETIMEDOUT);
	assert_true(now_ns == 2 * NS_PER_S);
	assert_in_range(host.asked, 8, 20);
	assert_int_equal(test_wait(0, 0), -ETIMEDOUT);
	assert_int_equal(sleeps, 0);
}

static void wait__errors_are_told_at_once(void **state)
{
	(void)state;
	host.neighbour_err = -EAGAIN;
	assert_int_equal(test_wait(1000, 0), -EAGAIN);
	host.neighbour_err = 0;
	host.probe_err = -EPERM; /* the kernel does not look for it: nobody can tell */
	assert_int_equal(test_wait(1000, 0), 0);
	host.route_err = -ENETUNREACH;
	assert_int_equal(test_wait(1000, 0), -ENETUNREACH);
	assert_true(now_ns == NS_PER_S);
}

static void resolve__no_time_is_one_look(void **state)
{
	(void)state;
	assert_int_equal(test_ask(NULL, "10.0.0.2", 0), 0);
	test_run(0);
	assert_int_equal(answer.calls, 1);
	assert_int_equal(answer.status, -ETIMEDOUT);
	assert_int_equal(host.asked, 1);
}

static void resolve__no_route_is_told_at_once(void **state)
{
	static const int errs[] = { -ENETUNREACH, -EHOSTUNREACH, -EMFILE };

	(void)state;
	for (u32 i = 0; i < ARRAY_LEN(errs); i++) {
		host.route_err = errs[i];
		assert_int_equal(test_ask(NULL, "10.0.0.2", 500), errs[i]);
	}
	test_run(1000);
	assert_int_equal(answer.calls, 0);
}

static void resolve__families_must_agree(void **state)
{
	struct sockaddr_storage unknown = { .ss_family = AF_UNIX }, to = test_ip("10.0.0.2");

	(void)state;
	assert_int_equal(test_ask("fe80::1", "10.0.0.2", 500), -EINVAL);
	assert_int_equal(addr_resolve(&a, &client, NULL, (void *)&unknown, &dev, 1, on_answer,
				      NULL), -EINVAL);
	assert_int_equal(addr_resolve(&a, &client, (void *)&unknown, (void *)&to, &dev, 1,
				      on_answer, NULL), -EINVAL);
}

static void resolve__the_source_may_be_fixed(void **state)
{
	u8 gid[16], none[16] = { 0 };

	(void)state;
	host.route.local = true;
	assert_int_equal(test_ask("10.0.0.7", "10.0.0.1", 500), 0);
	test_gid("10.0.0.7", gid);
	assert_memory_equal(host.route_from, gid, 16);
	test_run(0);
	assert_memory_equal((char *)&answer.src + 4, gid + 12, 4);
	assert_int_equal(test_ask("0.0.0.0", "10.0.0.1", 500), 0);
	assert_memory_equal(host.route_from, none, 16);
	test_run(0);
	assert_int_equal(test_ask("::", "2001:db8::1", 500), 0);
	assert_memory_equal(host.route_from, none, 16);
	test_run(0);
	assert_int_equal(answer.calls, 3);
}

static void resolve__a_scope_names_the_interface(void **state)
{
	struct sockaddr_in6 to, from;
	struct sockaddr_storage s = test_ip("fe80::2"), t = test_ip("fe80::1");

	(void)state;
	host.route.local = true;
	memcpy(&to, &s, sizeof(to));
	memcpy(&from, &t, sizeof(from));
	from.sin6_scope_id = NOARP;
	assert_int_equal(addr_resolve(&a, &client, (void *)&from, (void *)&to, &dev, 1, on_answer,
				      NULL), 0);
	assert_int_equal(host.route_if, NOARP);
	test_run(0);
	to.sin6_scope_id = VLAN;
	dev.bound_dev_if = 0;
	assert_int_equal(addr_resolve(&a, &client, (void *)&from, (void *)&to, &dev, 1, on_answer,
				      NULL), 0);
	assert_int_equal(host.route_if, VLAN);
	test_run(0);
	/* so does a link-local group's, and no other address' */
	s = test_ip("ff02::5");
	memcpy(&to, &s, sizeof(to));
	to.sin6_scope_id = ETH;
	assert_int_equal(addr_scope((void *)&to), ETH);
	s = test_ip("2001:db8::2");
	memcpy(&to, &s, sizeof(to));
	to.sin6_scope_id = ETH;
	assert_int_equal(addr_scope((void *)&to), 0);
}

static void resolve__a_local_address_has_its_own_interface(void **state)
{
	(void)state;
	host.route.local = true;
	host.route.ifindex = LO;
	assert_int_equal(test_ask(NULL, "10.0.0.1", 500), 0);
	test_run(0);
	assert_int_equal(answer.status, 0);
	assert_int_equal(dev.bound_dev_if, ETH);
	assert_memory_equal(dev.dst_dev_addr, eth_mac, 6);
	assert_int_equal(host.asked, 0);
}

static void resolve__no_neighbour_is_asked_where_there_is_none(void **state)
{
	static const u8 group4[6] = { 1, 0, 0x5e, 0x01, 2, 3 };
	static const u8 group6[6] = { 0x33, 0x33, 0, 0, 0, 7 };

	(void)state;
	assert_int_equal(test_ask(NULL, "239.129.2.3", 500), 0);
	test_run(0);
	assert_memory_equal(dev.dst_dev_addr, group4, 6);
	assert_int_equal(test_ask(NULL, "ff12::7", 500), 0);
	test_run(0);
	assert_memory_equal(dev.dst_dev_addr, group6, 6);
	host.route.ifindex = NOARP;
	dev.bound_dev_if = 0;
	assert_int_equal(test_ask(NULL, "10.0.0.2", 500), 0);
	test_run(0);
	assert_int_equal(answer.calls, 3);
	assert_int_equal(answer.status, 0);
	assert_int_equal(host.asked, 0);
}

static void resolve__a_kernel_that_does_not_tell(void **state)
{
	(void)state;
	host.neighbour_err = -EOPNOTSUPP;
	assert_int_equal(test_ask(NULL, "10.0.0.2", 500), 0);
	test_run(0);
	assert_int_equal(answer.calls, 1);
	assert_int_equal(answer.status, 0);
}

static void resolve__an_interface_that_has_gone(void **state)
{
	(void)state;
	host.route.ifindex = VLAN + 1;
	assert_int_equal(test_ask(NULL, "10.0.0.2", 500), 0);
	test_run(0);
	assert_int_equal(answer.status, -ENODEV);
}

/* ---- cancelling ------------------------------------------------------------------------------ */

static void cancel__no_callback_afterwards(void **state)
{
	(void)state;
	assert_int_equal(test_ask(NULL, "10.0.0.2", 500), 0);
	test_run(5);
	rdma_addr_cancel(&dev); /* of another instance: none */
	assert_int_equal(client.requests, 1);
	addr_cancel(&a, &dev);
	assert_int_equal(client.requests, 0);
	test_run(1000);
	assert_int_equal(answer.calls, 0);
	addr_cancel(&a, &dev); /* there is none */
}

static void cancel__before_the_first_look(void **state)
{
	(void)state;
	test_neighbour_is("10.0.0.2");
	assert_int_equal(test_ask(NULL, "10.0.0.2", 500), 0);
	addr_cancel(&a, &dev);
	test_run(1000);
	assert_int_equal(answer.calls, 0);
}

static void cancel__by_its_own_callback(void **state)
{
	(void)state;
	test_neighbour_is("10.0.0.2");
	answer.cancels = true;
	assert_int_equal(test_ask(NULL, "10.0.0.2", 500), 0);
	test_run(0);
	assert_int_equal(answer.calls, 1);
}

/* ---- the cache ------------------------------------------------------------------------------- */

static int test_look(const char *text, u8 out[HOST_LINK_ADDRESS])
{
	u8 gid[16];

	test_gid(text, gid);
	return addr_neighbour(&a, ETH, gid, out);
}

static void neighbours__are_asked_for_once(void **state)
{
	u8 mac[HOST_LINK_ADDRESS];

	(void)state;
	test_neighbour_is("10.0.0.2");
	for (u32 i = 0; i < 3; i++) {
		memset(mac, 0, sizeof(mac));
		assert_int_equal(test_look("10.0.0.2", mac), 0);
		assert_memory_equal(mac, peer_mac, 6);
	}
	assert_int_equal(host.asked, 1);
}

static void neighbours__news_change_them(void **state)
{
	u8 mac[HOST_LINK_ADDRESS];

	(void)state;
	test_neighbour_is("10.0.0.2");
	assert_int_equal(test_look("10.0.0.2", mac), 0);
	host.neighbour.address[5] = 0x55;
	host.news[0] = (struct host_change){ HOST_CHANGE_NEIGHBOUR, host.neighbour };
	host.news_count = 1;
	assert_int_equal(test_look("10.0.0.2", mac), 0);
	assert_int_equal(mac[5], 0x55);
	assert_int_equal(host.asked, 1);
	host.news[0].neighbour.valid = false;
	host.news_count = 1;
	host.neighbour.ifindex = 0;
	assert_int_equal(test_look("10.0.0.2", mac), -ENODATA);
	assert_int_equal(host.asked, 2);
}

static void neighbours__all_are_forgotten_when_news_are_lost(void **state)
{
	u8 mac[HOST_LINK_ADDRESS];

	(void)state;
	test_neighbour_is("10.0.0.2");
	assert_int_equal(test_look("10.0.0.2", mac), 0);
	host.news[0] = (struct host_change){ .kind = HOST_CHANGE_ALL };
	host.news_count = 1;
	assert_int_equal(test_look("10.0.0.2", mac), 0);
	assert_int_equal(host.asked, 2);
}

static void neighbours__none_is_kept_without_a_watch(void **state)
{
	u8 mac[HOST_LINK_ADDRESS];

	(void)state;
	host.watch_err = -EMFILE;
	test_neighbour_is("10.0.0.2");
	assert_int_equal(test_look("10.0.0.2", mac), 0);
	assert_int_equal(test_look("10.0.0.2", mac), 0);
	assert_int_equal(host.asked, 2);
}

/* The application has closed the watch's descriptor: news are missing, and a new watch begins. */
static void neighbours__a_watch_that_is_lost(void **state)
{
	u8 mac[HOST_LINK_ADDRESS];

	(void)state;
	test_neighbour_is("10.0.0.2");
	assert_int_equal(test_look("10.0.0.2", mac), 0);
	host.watch_stolen = true;
	for (u32 i = 0; i < 4; i++)
		assert_int_equal(test_look("10.0.0.2", mac), 0);
	assert_int_equal(host.asked, 3); /* it is kept once there is a watch again */
}

/* Far more neighbours than the table holds: each answer is right all the same. */
static void neighbours__more_than_the_table_holds(void **state)
{
	u8 mac[HOST_LINK_ADDRESS];
	char text[32];

	(void)state;
	for (u32 round = 0; round < 2; round++) {
		for (u32 i = 0; i < 4 * ADDR_NEIGHBOURS; i++) {
			snprintf(text, sizeof(text), "10.1.%u.%u", i / 256, i % 256);
			test_neighbour_is(text);
			memcpy(host.neighbour.address, &i, sizeof(i));
			assert_int_equal(test_look(text, mac), 0);
			assert_memory_equal(mac, &i, sizeof(i));
		}
	}
}

/* An address is another neighbour at each interface. There are more of them than places in the
 * table, so that some share one. */
static void neighbours__of_each_interface(void **state)
{
	u8 mac[HOST_LINK_ADDRESS];

	(void)state;
	test_neighbour_is("10.0.0.2");
	for (u32 i = 1; i <= 4 * ADDR_NEIGHBOURS; i++) {
		host.neighbour.ifindex = i;
		memcpy(host.neighbour.address, &i, sizeof(i));
		assert_int_equal(addr_neighbour(&a, i, host.neighbour.gid, mac), 0);
		assert_memory_equal(mac, &i, sizeof(i));
	}
}

/* ---- translating ----------------------------------------------------------------------------- */

static void translate__interface_mac_and_vlan(void **state)
{
	struct sockaddr_storage own = test_ip("10.0.0.1"), other = test_ip("10.0.0.2");
	u16 vlan = 0;

	(void)state;
	assert_int_equal(addr_translate(&a, (void *)&own, &dev, &vlan), 0);
	assert_int_equal(dev.bound_dev_if, ETH);
	assert_memory_equal(dev.src_dev_addr, eth_mac, 6);
	assert_int_equal(vlan, IB_ADDR_NO_VLAN);
	dev.bound_dev_if = VLAN;
	assert_int_equal(addr_translate(&a, (void *)&other, &dev, &vlan), 0);
	assert_int_equal(vlan, 33);
	dev.bound_dev_if = 0;
	assert_int_equal(addr_translate(&a, (void *)&other, &dev, NULL), -EADDRNOTAVAIL);
	dev.bound_dev_if = VLAN + 1;
	assert_int_equal(addr_translate(&a, (void *)&own, &dev, NULL), -ENODEV);
}

/* Each field is the interface's, but the other end's address, which only the caller knows. */
static void copy__interface_and_the_other_end(void **state)
{
	static const unsigned char there[IB_ADDR_LEN] = { [4] = 0xfe, 0x80, [IB_ADDR_LEN - 1] = 9 };
	struct rdma_dev_addr before, d = { .hoplimit = 5 };
	union ib_gid gid;

	(void)state;
	assert_int_equal(addr_copy(&a, &d, IPOIB, there, NULL), 0);
	assert_int_equal(d.dev_type, ARPHRD_INFINIBAND);
	assert_int_equal(d.bound_dev_if, IPOIB);
	assert_int_equal(d.hoplimit, 5);
	ib_addr_get_sgid(&d, &gid);
	assert_memory_equal(gid.raw, port_gid, 16);
	assert_memory_equal(d.dst_dev_addr, there, IB_ADDR_LEN);
	assert_int_equal(addr_copy(&a, &d, ETH, NULL, NULL), 0);
	assert_memory_equal(d.src_dev_addr, eth_mac, 6);
	assert_int_equal(d.broadcast[5], 0xff);
	assert_memory_equal(d.dst_dev_addr, there, IB_ADDR_LEN);
	before = d;
	assert_int_equal(addr_copy(&a, &d, VLAN + 1, there, NULL), -ENODEV);
	assert_memory_equal(&before, &d, sizeof(d));
}

/* IPoIB's addresses as RFC 4391 has them: what is set is read, and nothing beside it changes. */
static void ib_addr__parts_of_ipoib_addresses(void **state)
{
	union ib_gid out, group = { .raw = { 0xff, 0x12, 0x40, 0x1b, 0x80, 0x01, [15] = 1 } };
	union ib_gid one = { .raw = { 0xfe, 0x80, [15] = 1 } }, two = { .raw = { [15] = 2 } };
	struct rdma_dev_addr d = { .dst_dev_addr = { 0 } };

	(void)state;
	memcpy(d.broadcast + 4, group.raw, 16);
	d.broadcast[20] = d.src_dev_addr[3] = d.src_dev_addr[20] = d.dst_dev_addr[3] = 0x55;
	assert_int_equal(ib_addr_get_pkey(&d), 0x8001);
	ib_addr_set_pkey(&d, 0xbeef);
	assert_int_equal(ib_addr_get_pkey(&d), 0xbeef);
	ib_addr_get_mgid(&d, &out);
	group.raw[4] = 0xbe;
	group.raw[5] = 0xef;
	assert_memory_equal(out.raw, group.raw, 16);
	ib_addr_set_sgid(&d, &one);
	ib_addr_set_dgid(&d, &two);
	ib_addr_get_sgid(&d, &out);
	assert_memory_equal(out.raw, one.raw, 16);
	ib_addr_get_dgid(&d, &out);
	assert_memory_equal(out.raw, two.raw, 16);
	assert_int_equal(d.broadcast[20], 0x55);
	assert_int_equal(d.src_dev_addr[3] + d.src_dev_addr[20] + d.dst_dev_addr[3], 3 * 0x55);
	iw_addr_get_sgid(&d, &out);
	assert_memory_equal(out.raw, d.src_dev_addr, 16);
	iw_addr_get_dgid(&d, &out);
	assert_memory_equal(out.raw, d.dst_dev_addr, 16);
}

static void gids__there_and_back(void **state)
{
	static const char *const texts[] = { "10.1.2.3", "2001:db8::7", "fe80::1" };
	struct sockaddr_storage there, back;
	union ib_gid gid;

	(void)state;
	for (u32 i = 0; i < ARRAY_LEN(texts); i++) {
		there = test_ip(texts[i]);
		memset(&back, 0, sizeof(back));
		assert_int_equal(rdma_ip2gid((void *)&there, &gid), 0);
		rdma_gid2ip((void *)&back, &gid);
		assert_memory_equal(&there, &back, sizeof(back));
		assert_int_equal(rdma_addr_size((void *)&there),
				 i == 0 ? sizeof(struct sockaddr_in)
					: sizeof(struct sockaddr_in6));
		assert_int_equal(ip_addr_size((void *)&there), rdma_addr_size((void *)&there));
	}
	there.ss_family = AF_UNIX;
	assert_int_equal(rdma_ip2gid((void *)&there, &gid), -EINVAL);
	assert_int_equal(rdma_addr_size((void *)&there), 0);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

static u32 real_calls; /* atomic */

static void on_real(int status, struct sockaddr *src, struct rdma_dev_addr *addr, void *context)
{
	(void)src;
	(void)context;
	assert_int_equal(status, 0);
	assert_int_equal(addr->bound_dev_if, 1);
	__atomic_add_fetch(&real_calls, 1, __ATOMIC_RELEASE);
}

static void kernel__its_loopback(void **state)
{
	struct sockaddr_storage lo = test_ip("127.0.0.1");
	struct rdma_dev_addr own = { .dev_type = 0 }, copy = { .dev_type = 0 };
	struct rdma_addr_client c;

	(void)state;
	clock_set_source(NULL);
	rdma_addr_register_client(&c);
	assert_int_equal(rdma_translate_ip((void *)&lo, &own, NULL), 0);
	assert_int_equal(own.bound_dev_if, 1);
	assert_int_equal(own.dev_type, ARPHRD_LOOPBACK);
	assert_int_equal(rdma_copy_addr(&copy, 1, NULL), 0);
	own.hoplimit = copy.hoplimit;
	assert_memory_equal(&copy, &own, sizeof(own));
	assert_int_equal(rdma_copy_addr(&copy, 0, NULL), -ENODEV);
	assert_int_equal(rdma_copy_addr(&copy, -1, NULL), -ENODEV);
	copy.bound_dev_if = -1;
	assert_int_equal(rdma_translate_ip((void *)&lo, &copy, NULL), -ENODEV);
	own.bound_dev_if = 0;
	assert_int_equal(rdma_resolve_ip(&c, NULL, (void *)&lo, &own, 1000, on_real, NULL), 0);
	rdma_addr_unregister_client(&c);
	assert_int_equal(__atomic_load_n(&real_calls, __ATOMIC_ACQUIRE), 1);
	rdma_addr_cancel(&own);
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(resolve__a_known_neighbour),
		WITH(resolve__an_ipoib_neighbour),
		WITH(resolve__the_gateway_is_the_neighbour),
		WITH(resolve__waits_for_the_neighbour),
		WITH(resolve__times_out),
		WITH(resolve__no_time_is_one_look),
		WITH(wait__a_known_neighbour_is_no_wait),
		WITH(wait__until_the_neighbour_answers),
		WITH(wait__times_out),
		WITH(wait__errors_are_told_at_once),
		WITH(resolve__no_route_is_told_at_once),
		WITH(resolve__families_must_agree),
		WITH(resolve__the_source_may_be_fixed),
		WITH(resolve__a_scope_names_the_interface),
		WITH(resolve__a_local_address_has_its_own_interface),
		WITH(resolve__no_neighbour_is_asked_where_there_is_none),
		WITH(resolve__a_kernel_that_does_not_tell),
		WITH(resolve__an_interface_that_has_gone),
		WITH(cancel__no_callback_afterwards),
		WITH(cancel__before_the_first_look),
		WITH(cancel__by_its_own_callback),
		WITH(neighbours__are_asked_for_once),
		WITH(neighbours__news_change_them),
		WITH(neighbours__all_are_forgotten_when_news_are_lost),
		WITH(neighbours__none_is_kept_without_a_watch),
		WITH(neighbours__a_watch_that_is_lost),
		WITH(neighbours__more_than_the_table_holds),
		WITH(neighbours__of_each_interface),
		WITH(translate__interface_mac_and_vlan),
		WITH(copy__interface_and_the_other_end),
		WITH(ib_addr__parts_of_ipoib_addresses),
		WITH(gids__there_and_back),
		WITH(kernel__its_loopback),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
