/* service_test.c: which rsockets a pass of the service looks at, while others leave its list. What
 * it calls of the streams stands here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "base/cond.h"
#include "rsocket/stream.h"

enum { STREAMS = 4, ALL = (1 << STREAMS) - 1, NOBODY = STREAMS };

static struct stream streams[STREAMS];

/* Of one pass; the service's thread's. */
static u32 seen; /* bits of streams */
static bool has_left;

static u32 judged;	 /* what a pass has seen in which one has left; 0: none yet */
static u32 whole;	 /* passes that have seen all */
static u32 at = NOBODY;	 /* the pass is at this one when another thread takes... */
static u32 leaver = NOBODY; /* ...this one off the list */

struct rsocket *table_get_leaving(int fd)
{
	return &streams[fd].rs;
}

void table_put(struct rsocket *rs)
{
}

void stream_take_events(struct stream *s)
{
}

void accept_look(struct stream *s, u64 now_ns, u64 *next_ns)
{
}

void stream_judge_left(struct stream *s, u64 now_ns, u64 *next_ns)
{
}

void stream_keepalive(struct stream *s, u64 now_ns, u64 *next_ns)
{
	seen |= 1u << s->rs.fd;
	if (__atomic_load_n(&at, __ATOMIC_ACQUIRE) != (u32)s->rs.fd)
		return;
	__atomic_store_n(&at, NOBODY, __ATOMIC_RELAXED);
	assert_int_equal(service_keepalive(&streams[leaver], false), 0);
	has_left = true;
}

/* The end of a pass. */
void linger_run(u64 now_ns, u64 *next_ns)
{
	if (has_left) {
		__atomic_store_n(&judged, seen, __ATOMIC_RELEASE);
		futex_wake(&judged, 1);
	} else if (seen == ALL) {
		__atomic_add_fetch(&whole, 1, __ATOMIC_RELEASE);
		futex_wake(&whole, 1);
	}
	seen = 0;
	has_left = false;
}

static u32 test_wait(u32 *word, u32 before)
{
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == before)
		futex_sleep(word, before);
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* All on the list, and seen by a pass. */
static void test_list_all(void)
{
	u32 before = __atomic_load_n(&whole, __ATOMIC_ACQUIRE);

	for (u32 i = 0; i < STREAMS; i++)
		assert_int_equal(service_keepalive(&streams[i], true), 0);
	test_wait(&whole, before);
}

/* Each place of the list, seen from each. */
static void service_keepalive__a_pass_sees_whoever_stays(void **state)
{
	for (u32 i = 0; i < STREAMS * STREAMS; i++) {
		test_list_all();
		judged = 0;
		leaver = i % STREAMS;
		__atomic_store_n(&at, i / STREAMS, __ATOMIC_RELEASE);
		assert_int_equal(service_keepalive(&streams[i / STREAMS], true), 0);
		assert_int_equal(test_wait(&judged, 0) | 1u << leaver, ALL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(service_keepalive__a_pass_sees_whoever_stays),
	};

	for (int i = 0; i < STREAMS; i++) {
		streams[i].rs.fd = i;
		streams[i].rs.type = SOCK_STREAM;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
