/* schedule_test.c: the tag list under random schedules, with the software above it that MPI has:
 * messages arrive, completions wait to be polled, receives are posted and cancelled meanwhile.
 * Both models judge: the SRQ's sees each step of the list, MPI's what software sees in the end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "match.h"
#include "tag/tag.h"

enum { SEEDS = 200, STEPS = 3000, CAPACITY = 24, MOST = STEPS + 1, QUEUE = 64 };

/* A completion that waits to be polled: an unexpected message, or one that an entry took. */
struct done {
	u64 message, tag, recv;
	bool matched;
};

/* A receive as software knows it; ids count from 1. */
struct receive {
	u64 tag, mask;
	u32 handle;
	bool waits;
};

static struct run {
	u64 random;
	struct tag_list list;
	struct tmq tmq;
	struct mpi_match mpi;
	struct tag_entry *taken[QUEUE]; /* matched, and not released yet */
	u32 taken_count;
	struct done queue[MOST];
	u32 head, tail;
	/* software */
	struct receive recv[MOST];
	u64 recvs, messages, oldest; /* oldest: no receive before it waits */
	u32 handled;
	u32 lag; /* percent: how lazily software polls */
} r;

static u32 run_below(u32 n)
{
	r.random = r.random * 6364136223846793005ull + 1442695040888963407ull;
	return (u32)((r.random >> 33) % n);
}

static u64 run_mask(void)
{
	static const u64 masks[] = { 0xf, 0xf, 0xf, 0xf, 0xc, 0x3, 0x0, 0x7 };

	return masks[run_below(ARRAY_LEN(masks))];
}

/* ---- the adapter ---- */

static void adapter_sync(void)
{
	tag_list_sync(&r.list, r.handled);
	tmq_sync(&r.tmq, r.handled);
}

static void adapter_release(void)
{
	u32 i;

	if (r.taken_count == 0)
		return;
	i = run_below(r.taken_count);
	tag_list_release(&r.list, r.taken[i]);
	r.taken[i] = r.taken[--r.taken_count];
}

static void adapter_receive(void)
{
	u64 tag = run_below(16), want = 0, message = ++r.messages;
	struct tag_entry *entry;
	bool taken;

	while (r.taken_count == QUEUE)
		adapter_release();
	entry = tag_list_match(&r.list, tag);
	taken = tmq_arrive(&r.tmq, tag, &want);
	assert_int_equal(entry != NULL, taken);
	assert_true(entry == NULL || entry->recv_wr_id == want);
	if (entry == NULL)
		tag_list_count_unexpected(&r.list);
	else
		r.taken[r.taken_count++] = entry;
	r.queue[r.tail++] = (struct done){ message, tag, want, taken };
}

static bool adapter_delete(u64 id)
{
	bool deleted = tag_list_delete(&r.list, r.recv[id].handle) == 0;

	assert_int_equal(tmq_delete(&r.tmq, id), deleted);
	return deleted;
}

/* ---- software ---- */

/* The first receive in the order of posting that takes the message; 0: none. */
static u64 software_find(u64 tag)
{
	while (r.oldest < r.recvs && !r.recv[r.oldest].waits)
		r.oldest++;
	for (u64 id = r.oldest; id <= r.recvs; id++)
		if (r.recv[id].waits && (tag & r.recv[id].mask) == r.recv[id].tag)
			return id;
	return 0;
}

/* An unexpected message that a receive waits for: its entry has matched nothing meanwhile. */
static void software_unexpected(const struct done *d)
{
	u64 id = software_find(d->tag), want = 0;

	assert_int_equal(mpi_arrive(&r.mpi, d->message, d->tag, &want), id != 0);
	assert_int_equal(id, want);
	r.handled++;
	if (id == 0)
		return;
	assert_true(adapter_delete(id));
	r.recv[id].waits = false;
}

static void software_poll(void)
{
	const struct done *d = &r.queue[r.head];
	u64 want = 0;

	if (r.head == r.tail)
		return;
	r.head++;
	if (!d->matched) {
		software_unexpected(d);
		return;
	}
	assert_true(mpi_arrive(&r.mpi, d->message, d->tag, &want));
	assert_int_equal(want, d->recv);
	r.recv[d->recv].waits = false;
}

static void software_post(void)
{
	u64 mask = run_mask(), tag = run_below(16) & mask, id = r.recvs + 1, message;
	struct tag_add add = { .tag = tag, .mask = mask, .recv_wr_id = id };

	if (r.list.used == CAPACITY)
		return;
	r.recvs++;
	if (mpi_post(&r.mpi, id, tag, mask, &message))
		return; /* one that had come unexpected */
	adapter_sync();
	assert_int_equal(tag_list_add(&r.list, &add, &r.recv[id].handle), 0);
	tmq_add(&r.tmq, id, tag, mask);
	r.recv[id].tag = tag;
	r.recv[id].mask = mask;
	r.recv[id].waits = true;
}

/* A receive that is consumed meanwhile stays: its completion comes. */
static void software_cancel(void)
{
	u64 id = r.recvs == 0 ? 0 : 1 + run_below((u32)r.recvs);

	if (id == 0 || !r.recv[id].waits || !adapter_delete(id))
		return;
	r.recv[id].waits = false;
	assert_true(mpi_cancel(&r.mpi, id));
}

/* ---- runs ---- */

static void run_step(void)
{
	u32 lot = run_below(100);

	if (lot < 30)
		adapter_receive();
	else if (lot < 40)
		adapter_release();
	else if (lot < 70)
		software_post();
	else if (lot < 74)
		software_cancel();
	else if (lot < 78)
		adapter_sync();
	else if (run_below(100) >= r.lag)
		software_poll();
}

static void tag_list__matches_as_mpi_does(void **state)
{
	for (u64 seed = 1; seed <= SEEDS; seed++) {
		r = (struct run){ .random = seed * 0x9e3779b97f4a7c15ull };
		r.lag = run_below(100);
		assert_int_equal(tag_list_init(&r.list, CAPACITY, 1), 0);
		for (u32 i = 0; i < STEPS; i++)
			run_step();
		while (r.head != r.tail)
			software_poll();
		while (r.taken_count != 0)
			adapter_release();
		adapter_sync();
		assert_int_equal(r.list.used, r.mpi.posted.count);
		tag_list_destroy(&r.list);
		tmq_close(&r.tmq);
		mpi_close(&r.mpi);
	}
}

/* What the models say by themselves. */
static void mpi__oldest_takes(void **state)
{
	struct mpi_match m = { 0 };
	u64 id = 0;

	assert_false(mpi_post(&m, 1, 4, 0xf, &id));
	assert_false(mpi_post(&m, 2, 0, 0, &id));
	assert_true(mpi_arrive(&m, 10, 5, &id));
	assert_int_equal(id, 2);
	assert_false(mpi_arrive(&m, 11, 5, &id));
	assert_false(mpi_arrive(&m, 12, 6, &id));
	assert_true(mpi_post(&m, 3, 0, 0, &id));
	assert_int_equal(id, 11);
	assert_true(mpi_cancel(&m, 1));
	assert_false(mpi_cancel(&m, 1));
	assert_false(mpi_arrive(&m, 13, 4, &id));
	mpi_close(&m);
}

static void tmq__entry_of_the_uninformed_waits(void **state)
{
	struct tmq q = { 0 };
	u64 id = 0;

	assert_false(tmq_arrive(&q, 1, &id));
	tmq_add(&q, 1, 1, 0xf);
	assert_false(tmq_arrive(&q, 1, &id));
	tmq_sync(&q, 1);
	assert_null(tmq_would_take(&q, 1));
	tmq_sync(&q, 2);
	assert_true(tmq_arrive(&q, 1, &id));
	assert_int_equal(id, 1);
	assert_false(tmq_delete(&q, 1));
	tmq_close(&q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mpi__oldest_takes),
		cmocka_unit_test(tmq__entry_of_the_uninformed_waits),
		cmocka_unit_test(tag_list__matches_as_mpi_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
