/* path_test.c: paths of neighbours: when the SA is asked, and what an answer changes.
 *
 * The neighbours and the SA are played by this file.
 */
#include <errno.h>
#include <string.h>

#include "ulp/ipoib/test_support/bed.h"

static struct ipoib *ip;
static struct ipoib_neigh neigh;
static u32 asked, pushed;

/* The question that is under way. */
static struct {
	void (*found)(int status, struct ib_sa_path_rec *path, void *context);
	void *context;
} question;

/* ---- the rooms beside ------------------------------------------------------------------------ */

struct ipoib_neigh *ipoib_neigh_find(struct ipoib *i, const u8 addr[16])
{
	(void)i;
	return memcmp(neigh.ip, addr, 16) == 0 ? &neigh : NULL;
}

void ipoib_neigh_push(struct ipoib *i, struct ipoib_neigh *n)
{
	(void)i;
	(void)n;
	pushed++;
}

int ib_sa_path_rec_get(struct ib_sa_client *client, struct ib_device *device, u8 port_num,
		       struct ib_sa_path_rec *rec, ib_sa_comp_mask comp_mask, int timeout_ms,
		       unsigned int gfp_mask,
		       void (*callback)(int status, struct ib_sa_path_rec *resp, void *context),
		       void *context, struct ib_sa_query **query)
{
	(void)client;
	(void)device;
	(void)port_num;
	(void)gfp_mask;
	(void)query;
	assert_true((comp_mask & IB_SA_PATH_REC_DGID) != 0);
	assert_memory_equal(rec->dgid.raw, ipoib_hw_gid(&neigh.hw), 16);
	assert_true(timeout_ms > 0);
	question.found = callback;
	question.context = context;
	return (int)++asked;
}

void ib_sa_cancel_query(int id, struct ib_sa_query *query)
{
	(void)id;
	(void)query;
}

/* ---- the bed --------------------------------------------------------------------------------- */

static int bed_open(void **state) NO_THREAD_SAFETY
{
	(void)state;
	ip = bed_create();
	ip->open = ip->active = true;
	neigh = (struct ipoib_neigh){ .known = true, .hw = { { [3] = 9, [19] = 7 } } };
	neigh.ip[15] = 1;
	asked = pushed = 0;
	return 0;
}

static int bed_close(void **state) NO_THREAD_SAFETY
{
	(void)state;
	assert_true(list_empty(&ip->queries));
	if (neigh.ah != NULL)
		(void)ib_destroy_ah(neigh.ah);
	bed_free(ip);
	return 0;
}

static void test_ask(void)
{
	lock_acquire(&ip->lock);
	ipoib_path_ask(ip, &neigh);
	lock_release(&ip->lock);
}

/* The path leads to the port whose GID ends in this byte. */
static void test_answer(int status, u8 gid)
{
	struct ib_sa_path_rec path = { .dgid.raw = { [15] = gid } };

	question.found(status, status == 0 ? &path : NULL, question.context);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* A path that is not found is asked for again, a second later, as often as it takes. */
static void path__is_asked_for_until_it_is_found(void **state)
{
	(void)state;
	for (u32 i = 1; i <= 3; i++) {
		test_ask();
		assert_int_equal(asked, i);
		bed_now_ns += 10 * IPOIB_AGAIN_NS;
		test_ask(); /* one question at a time */
		assert_int_equal(asked, i);
		test_answer(-ETIMEDOUT, 0);
		assert_null(neigh.ah);
	}
	test_ask();
	test_answer(0, 7);
	assert_non_null(neigh.ah);
	assert_int_equal(pushed, 1);
	test_ask(); /* too soon */
	assert_int_equal(asked, 4);
	bed_now_ns += IPOIB_AGAIN_NS;
	/* the old path stays in use until there is another */
	test_ask();
	test_answer(-ETIMEDOUT, 0);
	assert_non_null(neigh.ah);
	assert_int_equal(asked, 5);
	assert_int_equal(bed_handles, 1);
}

/* A neighbour that has moved meanwhile does not get the path to where it was. */
static void path__to_where_the_neighbour_was(void **state)
{
	(void)state;
	test_ask();
	test_answer(0, 8);
	assert_null(neigh.ah);
	assert_int_equal(bed_handles, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(path__is_asked_for_until_it_is_found, bed_open,
						bed_close),
		cmocka_unit_test_setup_teardown(path__to_where_the_neighbour_was, bed_open,
						bed_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
