/* cache_test.c: the tables are there before the clients, and fresh before the handlers of an
 * event; and the way back to a datagram's sender, which needs them.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/ib_cache.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "core/core_priv.h"
#include "core/test_support/fake_device.h"

static struct fake_device *fake;

static int setup(void **state)
{
	fake = fake_create("fake%d");
	fake->lmc = 3;
	fake->gids[FAKE_GIDS - 1] = (union ib_gid){ .raw = { 0 } }; /* an empty entry */
	return ib_register_device(&fake->ib);
}

static int teardown(void **state)
{
	ib_unregister_device(&fake->ib);
	fake_destroy(fake);
	return 0;
}

static void ib_get_cached__tables(void **state)
{
	int calls = fake->calls;
	union ib_gid gid;
	u16 pkey, index;
	u8 port, lmc;

	assert_int_equal(ib_get_cached_gid(&fake->ib, 1, 1, &gid), 0);
	assert_int_equal(gid.raw[15], 2);
	assert_int_equal(ib_find_cached_gid(&fake->ib, &gid, &port, &index), 0);
	assert_int_equal(port, 1);
	assert_int_equal(index, 1);
	assert_int_equal(ib_find_cached_gid(&fake->ib, &gid, NULL, NULL), 0);
	assert_int_equal(ib_get_cached_pkey(&fake->ib, 1, 2, &pkey), 0);
	assert_int_equal(pkey, 0x8003);
	assert_int_equal(ib_find_cached_pkey(&fake->ib, 1, 0x0003, &index), 0);
	assert_int_equal(index, 2);
	index = 77;
	assert_int_equal(ib_find_cached_gid_by_port(&fake->ib, &gid, 1, &index), 0);
	assert_int_equal(index, 1);
	assert_int_equal(ib_get_cached_lmc(&fake->ib, 1, &lmc), 0);
	assert_int_equal(lmc, 3);
	assert_int_equal(fake->calls, calls); /* the driver is not asked */
}

static void ib_get_cached__bad_arguments(void **state)
{
	struct fake_device *absent = fake_create("absent");
	union ib_gid gid = { .raw = { 9 } }, none = { .raw = { 0 } };
	enum ib_port_state port_state = IB_PORT_NOP;
	u16 pkey, index = 77;
	u8 port = 77, lmc;

	assert_int_equal(ib_get_cached_gid(&fake->ib, 0, 0, &gid), -EINVAL);
	assert_int_equal(ib_get_cached_gid(&fake->ib, 2, 0, &gid), -EINVAL);
	assert_int_equal(ib_get_cached_gid(&fake->ib, 1, -1, &gid), -EINVAL);
	assert_int_equal(ib_get_cached_gid(&fake->ib, 1, FAKE_GIDS, &gid), -EINVAL);
	assert_int_equal(ib_find_cached_gid(&fake->ib, &gid, &port, &index), -ENOENT);
	assert_int_equal(ib_find_cached_gid(&fake->ib, &none, &port, &index), -ENOENT);
	assert_int_equal(ib_find_cached_gid_by_port(&fake->ib, &none, 1, &index), -ENOENT);
	assert_int_equal(ib_get_cached_pkey(&fake->ib, 1, FAKE_PKEYS, &pkey), -EINVAL);
	assert_int_equal(ib_find_cached_pkey(&fake->ib, 1, 0x7777, &index), -ENOENT);
	assert_int_equal(ib_find_cached_pkey(&fake->ib, 0, 0x0001, &index), -EINVAL);
	assert_int_equal(ib_find_cached_gid_by_port(&fake->ib, &gid, 1, &index), -ENOENT);
	assert_int_equal(ib_find_cached_gid_by_port(&fake->ib, &gid, 2, &index), -EINVAL);
	assert_int_equal(ib_get_cached_port_state(&fake->ib, 2, &port_state), -EINVAL);
	assert_int_equal(ib_get_cached_lmc(&fake->ib, 9, &lmc), -EINVAL);
	assert_int_equal(port, 77);
	assert_int_equal(index, 77);
	assert_int_equal(ib_get_cached_lmc(&absent->ib, 1, &lmc), -EINVAL);
	assert_int_equal(ib_get_cached_gid(&absent->ib, 1, 0, &gid), -EINVAL);
	fake_destroy(absent);
}

/* A port may be a limited and a full member of a partition. The full member reaches all others. */
static void ib_find_cached_pkey__membership(void **state)
{
	struct fake_device *both = fake_create("both%d");
	u16 index;

	both->pkeys[1] = 0x7fff;
	both->pkeys[2] = 0xffff;
	assert_int_equal(ib_register_device(&both->ib), 0);
	for (u32 i = 0; i < 2; i++) {
		u16 pkey = i == 0 ? 0xffff : 0x7fff;

		assert_int_equal(ib_find_cached_pkey(&both->ib, 1, pkey, &index), 0);
		assert_int_equal(index, 2);
		assert_int_equal(ib_find_pkey(&both->ib, 1, pkey, &index), 0);
		assert_int_equal(index, 2);
	}
	assert_int_equal(ib_find_exact_cached_pkey(&both->ib, 1, 0xffff, &index), 0);
	assert_int_equal(index, 2);
	assert_int_equal(ib_find_exact_cached_pkey(&both->ib, 1, 0x7fff, &index), 0);
	assert_int_equal(index, 1);
	assert_int_equal(ib_find_exact_cached_pkey(&both->ib, 1, 0x0001, &index), -ENOENT);
	fake_set_pkeys(both, (const u16[]){ 0x7fff, 0x0001, 0x7fff }); /* limited ones: the first */
	assert_int_equal(ib_find_cached_pkey(&both->ib, 1, 0xffff, &index), 0);
	assert_int_equal(index, 0);
	assert_int_equal(ib_find_pkey(&both->ib, 1, 0xffff, &index), 0);
	assert_int_equal(index, 0);
	ib_unregister_device(&both->ib);
	fake_destroy(both);
}

static int seen;
static u8 seen_gid;

static void on_event(struct ib_event_handler *handler, struct ib_event *event)
{
	union ib_gid gid = { .raw = { 0 } };

	ib_get_cached_gid(event->device, 1, 0, &gid);
	seen_gid = gid.raw[15];
	fake_bump(&seen);
}

static void ib_get_cached_gid__fresh_in_handlers(void **state)
{
	struct ib_event event = { .device = &fake->ib, .event = IB_EVENT_GID_CHANGE };
	struct ib_event_handler handler;
	union ib_gid gid;

	event.element.port_num = 1;
	INIT_IB_EVENT_HANDLER(&handler, &fake->ib, on_event);
	assert_int_equal(ib_register_event_handler(&handler), 0);
	fake->gids[0].raw[15] = 42;
	assert_int_equal(ib_get_cached_gid(&fake->ib, 1, 0, &gid), 0);
	assert_int_equal(gid.raw[15], 1);
	ib_dispatch_event(&event);
	assert_true(fake_await(&seen, 1));
	assert_int_equal(ib_unregister_event_handler(&handler), 0);
	assert_int_equal(seen_gid, 42);
	assert_int_equal(ib_get_cached_gid(&fake->ib, 1, 0, &gid), 0);
	assert_int_equal(gid.raw[15], 42);
}

static int (*moving_query)(struct ib_device *device, u8 port, int index, union ib_gid *gid);

/* As the driver tells its first entry, the second one takes its place. */
static int query_gid_that_moves(struct ib_device *device, u8 port, int index, union ib_gid *gid)
{
	int err = moving_query(device, port, index, gid);

	if (index == 0 && fake->gids[1].raw[15] == 2) {
		fake->gids[0] = fake->gids[1];
		memset(&fake->gids[1], 0, sizeof(fake->gids[1]));
	}
	return err;
}

static void cache_event__finds_an_entry_that_moves(void **state)
{
	struct ib_event event = { .device = &fake->ib,
				  .event = IB_EVENT_GID_CHANGE,
				  .element.port_num = 1 };
	union ib_gid moved = fake->gids[1];
	u16 index = 77;

	moving_query = fake->ib.query_gid;
	fake->ib.query_gid = query_gid_that_moves;
	cache_event(fake->ib.core, &event);
	assert_int_equal(ib_find_cached_gid(&fake->ib, &moved, NULL, &index), 0);
	assert_int_equal(index, 0);
}

static enum ib_port_state seen_state;

static void on_port_event(struct ib_event_handler *handler, struct ib_event *event)
{
	(void)handler;
	ib_get_cached_port_state(event->device, 1, &seen_state);
	fake_bump(&seen);
}

static void ib_get_cached_port_state__fresh_in_handlers(void **state)
{
	struct ib_event event = { .device = &fake->ib, .event = IB_EVENT_PORT_ERR };
	struct ib_event_handler handler;
	enum ib_port_state port_state;

	seen = 0;
	event.element.port_num = 1;
	INIT_IB_EVENT_HANDLER(&handler, &fake->ib, on_port_event);
	assert_int_equal(ib_register_event_handler(&handler), 0);
	fake->port_state = IB_PORT_DOWN;
	assert_int_equal(ib_get_cached_port_state(&fake->ib, 1, &port_state), 0);
	assert_int_equal(port_state, IB_PORT_ACTIVE);
	ib_dispatch_event(&event);
	assert_true(fake_await(&seen, 1));
	assert_int_equal(ib_unregister_event_handler(&handler), 0);
	assert_int_equal(seen_state, IB_PORT_DOWN);
	seen = 0;
}

/* The last port is as good as the first: its tables, whose GID is whose, its events. */
static void ib_get_cached__of_the_last_port(void **state)
{
	struct fake_device *two = fake_create("two%d");
	struct ib_event event = { .device = &two->ib, .event = IB_EVENT_GID_CHANGE };
	struct ib_event_handler handler;
	union ib_gid gid, first;
	u16 index;
	u8 port;

	seen = 0;
	two->ib.phys_port_cnt = 2;
	assert_int_equal(ib_register_device(&two->ib), 0);
	assert_int_equal(ib_get_cached_gid(&two->ib, 2, 1, &gid), 0);
	assert_int_equal(ib_find_cached_gid(&two->ib, &gid, &port, &index), 0);
	assert_int_equal(port, 2);
	assert_int_equal(index, 1);
	assert_int_equal(ib_get_cached_gid(&two->ib, 3, 1, &gid), -EINVAL);
	event.element.port_num = 2;
	INIT_IB_EVENT_HANDLER(&handler, &two->ib, on_event);
	assert_int_equal(ib_register_event_handler(&handler), 0);
	two->gids[0].raw[15] = 42;
	ib_dispatch_event(&event);
	assert_true(fake_await(&seen, 1));
	assert_int_equal(ib_unregister_event_handler(&handler), 0);
	assert_int_equal(ib_get_cached_gid(&two->ib, 2, 0, &gid), 0);
	assert_int_equal(gid.raw[15], 42);
	assert_int_equal(ib_get_cached_gid(&two->ib, 1, 0, &first), 0);
	assert_int_equal(first.raw[15], 1); /* no event of that one has come */
	ib_unregister_device(&two->ib);
	fake_destroy(two);
}

static int reading;

static void *read_thread(void *arg)
{
	union ib_gid gid;
	u16 index;

	while (fake_count(&reading)) {
		if (ib_get_cached_gid(&fake->ib, 1, 1, &gid) || gid.raw[15] != 2)
			return arg;
		if (ib_find_cached_pkey(&fake->ib, 1, 0x8002, &index) || index != 1)
			return arg;
	}
	return NULL;
}

static void ib_get_cached__while_refreshed(void **state)
{
	struct ib_event event = { .device = &fake->ib, .event = IB_EVENT_PKEY_CHANGE };
	struct ib_event_handler handler;
	pthread_t reader;
	void *failed;

	event.element.port_num = 1;
	reading = 1;
	seen = 0;
	INIT_IB_EVENT_HANDLER(&handler, &fake->ib, on_event);
	assert_int_equal(ib_register_event_handler(&handler), 0);
	pthread_create(&reader, NULL, read_thread, fake);
	for (int i = 0; i < 200; i++)
		ib_dispatch_event(&event);
	assert_true(fake_await(&seen, 200));
	__atomic_store_n(&reading, 0, __ATOMIC_RELEASE);
	pthread_join(reader, &failed);
	assert_null(failed);
	assert_int_equal(ib_unregister_event_handler(&handler), 0);
}

/* ---- the way back to a datagram's sender ----------------------------------------------------- */

static void ib_init_ah_from_wc__ib_header(void **state)
{
	struct ib_wc wc = { .wc_flags = IB_WC_GRH, .slid = 5, .sl = 2, .dlid_path_bits = 1 };
	struct ib_grh grh = { .version_tclass_flow = htonl(0x6ab12345), .hop_limit = 3 };
	struct ib_ah_attr attr;

	grh.sgid.raw[0] = 0xfe;
	grh.sgid.raw[12] = 0x45; /* where an IPv4 header would begin */
	grh.dgid = fake->gids[2];
	assert_int_equal(ib_init_ah_from_wc(&fake->ib, 1, &wc, &grh, &attr), 0);
	assert_int_equal(attr.ah_flags, IB_AH_GRH);
	assert_int_equal(attr.grh.sgid_index, 2);
	assert_memory_equal(&attr.grh.dgid, &grh.sgid, sizeof(grh.sgid));
	assert_int_equal(attr.grh.traffic_class, 0xab);
	assert_int_equal(attr.grh.flow_label, 0x12345);
	assert_int_equal(attr.dlid, 5);
	assert_int_equal(attr.sl, 2);
	assert_int_equal(attr.src_path_bits, 1);
	assert_int_equal(attr.port_num, 1);
	grh.dgid.raw[0] = 0xff; /* to a group: no GID of ours */
	assert_int_equal(ib_init_ah_from_wc(&fake->ib, 1, &wc, &grh, &attr), -ENOENT);
	wc.wc_flags = 0;
	assert_int_equal(ib_init_ah_from_wc(&fake->ib, 1, &wc, NULL, &attr), 0);
	assert_int_equal(attr.ah_flags, 0);
}

static void ib_init_ah_from_wc__ipv4_header(void **state)
{
	static const u8 ipv4[20] = { 0x45, 0x18, 0,  0, 0, 0, 0,  0, 64, 17,
				     0,	   0,	 10, 0, 0, 1, 10, 0, 0,	 2 };
	static const u8 mapped_1[16] = { [10] = 0xff, 0xff, 10, 0, 0, 1 };
	static const u8 mapped_2[16] = { [10] = 0xff, 0xff, 10, 0, 0, 2 };
	struct ib_event event = { .device = &fake->ib, .event = IB_EVENT_GID_CHANGE };
	struct ib_wc wc = { .wc_flags = IB_WC_GRH };
	struct ib_ah_attr attr;
	struct ib_grh grh;
	u16 index;

	memset(&grh, 0, sizeof(grh));
	memcpy((u8 *)&grh + 20, ipv4, sizeof(ipv4));
	memcpy(fake->gids[1].raw, mapped_2, 16);
	event.element.port_num = 1;
	ib_dispatch_event(&event);
	while (ib_find_cached_gid(&fake->ib, &fake->gids[1], NULL, &index))
		sched_yield();
	assert_int_equal(ib_init_ah_from_wc(&fake->ib, 1, &wc, &grh, &attr), 0);
	assert_int_equal(attr.grh.sgid_index, 1);
	assert_memory_equal(attr.grh.dgid.raw, mapped_1, 16);
	assert_int_equal(attr.grh.traffic_class, 0x18);
	struct ib_pd *pd = ib_alloc_pd(&fake->ib);
	struct ib_ah *ah = ib_create_ah_from_wc(pd, &wc, &grh, 1);

	assert_false(IS_ERR(ah));
	assert_memory_equal(container_of(ah, struct fake_ah, ib)->attr.grh.dgid.raw,
			    mapped_1, 16);
	assert_int_equal(ib_query_ah(ah, &attr), -ENOSYS);
	assert_int_equal(ib_modify_ah(ah, &attr), -ENOSYS);
	assert_int_equal(ib_destroy_ah(ah), 0);
	assert_int_equal(ib_dealloc_pd(pd), 0);
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(ib_get_cached__tables),
		WITH(ib_get_cached__bad_arguments),
		WITH(ib_find_cached_pkey__membership),
		WITH(ib_get_cached_port_state__fresh_in_handlers),
		WITH(ib_get_cached_gid__fresh_in_handlers),
		WITH(cache_event__finds_an_entry_that_moves),
		WITH(ib_get_cached__of_the_last_port),
		WITH(ib_get_cached__while_refreshed),
		WITH(ib_init_ah_from_wc__ib_header),
		WITH(ib_init_ah_from_wc__ipv4_header),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
