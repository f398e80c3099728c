/* ucontext_test.c: descriptors that name a ucontext, and its table of handles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/ucontext.h"

enum { OBJECTS = 300 };

static int fd, released;
static struct ib_ucontext *u;

static void release(void *owner)
{
	assert_ptr_equal(owner, &fd);
	released++;
}

static int setup(void **state)
{
	released = 0;
	fd = memfd_create("ucontext", MFD_CLOEXEC);
	u = ib_ucontext_create(fd, &fd, release);
	return u ? 0 : -1;
}

static int teardown(void **state)
{
	ib_ucontext_put(u);
	assert_int_equal(released, 1);
	return close(fd);
}

static void find__by_any_copy_of_the_descriptor(void **state)
{
	int copy = dup(fd), stranger = memfd_create("stranger", MFD_CLOEXEC);

	assert_ptr_equal(ib_ucontext_owner(u), &fd);
	assert_ptr_equal(ib_ucontext_find(copy), u);
	assert_null(ib_ucontext_find(stranger));
	assert_null(ib_ucontext_find(-1));
	assert_null(ib_ucontext_create(-1, NULL, release));
	ib_ucontext_put(u); /* of find */
	assert_int_equal(released, 0);
	close(copy);
	close(stranger);
}

static void find__tells_two_apart(void **state)
{
	int other = memfd_create("other", MFD_CLOEXEC);
	struct ib_ucontext *v = ib_ucontext_create(other, &fd, release);

	assert_ptr_equal(ib_ucontext_find(other), v);
	assert_ptr_equal(ib_ucontext_find(fd), u);
	ib_ucontext_put(u);
	ib_ucontext_put(v);
	assert_int_equal(released, 0);
	ib_ucontext_put(v);
	assert_int_equal(released, 1);
	assert_null(ib_ucontext_find(other));
	released = 0;
	close(other);
}

/* Its inode may be another file's by then. */
static void find__knows_no_closed_context(void **state)
{
	ib_ucontext_unname(u);
	assert_null(ib_ucontext_find(fd));
	assert_int_equal(released, 0);
}

static void list__has_the_objects_of_one_kind(void **state)
{
	struct ib_uobject objects[OBJECTS];
	int targets[OBJECTS];
	u32 count;
	void **list = ib_uobject_list(u, IB_UOBJECT_QP, &count);

	assert_int_equal(count, 0);
	free(list);
	for (int i = 0; i < OBJECTS; i++)
		ib_uobject_add(u, &objects[i], i % 3 ? IB_UOBJECT_QP : IB_UOBJECT_CQ, &targets[i]);
	list = ib_uobject_list(u, IB_UOBJECT_QP, &count);
	assert_int_equal(count, OBJECTS / 3 * 2);
	for (u32 i = 0; i < count; i++)
		assert_int_not_equal(((int *)list[i] - targets) % 3, 0);
	free(list);
	for (int i = 0; i < OBJECTS; i++)
		ib_uobject_remove(u, &objects[i], true);
}

/* The first, the last, and each between; of every kind. */
static void share__finds_each_by_kind_and_handle(void **state)
{
	struct ib_uobject objects[OBJECTS], copy;
	int targets[OBJECTS];

	for (int i = 0; i < OBJECTS; i++) {
		ib_uobject_add(u, &objects[i], (enum ib_uobject_kind)(i % (IB_UOBJECT_QP + 1)),
			       &targets[i]);
		for (int k = 0; k < i; k++)
			assert_int_not_equal(objects[k].handle, objects[i].handle);
	}
	for (int i = 0; i < OBJECTS; i++) {
		struct ib_uobject *o = &objects[i];
		enum ib_uobject_kind wrong =
			(enum ib_uobject_kind)((o->kind + 1) % (IB_UOBJECT_QP + 1));

		assert_null(ib_uobject_share(u, wrong, o->handle, false, &copy));
		assert_ptr_equal(ib_uobject_share(u, o->kind, o->handle, false, &copy),
				 &targets[i]);
		assert_int_equal(copy.handle, o->handle);
		ib_uobject_remove(u, &copy, false);
		assert_false(o->gone);
	}
	assert_null(ib_uobject_share(u, IB_UOBJECT_PD, 0, false, &copy));
	assert_null(ib_uobject_share(u, IB_UOBJECT_PD, 1u << 30, false, &copy));
	for (int i = 0; i < OBJECTS; i++)
		ib_uobject_remove(u, &objects[i], true);
}

static void remove__voids_the_other_holds(void **state)
{
	struct ib_uobject first, second, third, fourth;
	int target;

	ib_uobject_add(u, &first, IB_UOBJECT_MR, &target);
	assert_non_null(ib_uobject_share(u, IB_UOBJECT_MR, first.handle, false, &second));
	assert_non_null(ib_uobject_share(u, IB_UOBJECT_MR, first.handle, false, &third));
	ib_uobject_remove(u, &second, true);
	assert_true(first.gone && third.gone);
	assert_null(ib_uobject_share(u, IB_UOBJECT_MR, first.handle, false, &fourth));
	ib_uobject_remove(u, &first, false);
	ib_uobject_remove(u, &third, false);
}

/* The creator goes first: the import keeps the handle known. */
static void remove__leaves_what_is_not_destroyed(void **state)
{
	struct ib_uobject first, second, third;
	int target;

	ib_uobject_add(u, &first, IB_UOBJECT_PD, &target);
	assert_non_null(ib_uobject_share(u, IB_UOBJECT_PD, first.handle, false, &second));
	ib_uobject_remove(u, &first, false);
	assert_false(second.gone);
	assert_ptr_equal(ib_uobject_share(u, IB_UOBJECT_PD, second.handle, false, &third), &target);
	ib_uobject_remove(u, &third, false);
	ib_uobject_remove(u, &second, true);
}

static void is_blocked__while_another_hold_says_so(void **state)
{
	struct ib_uobject first, plain, blocking;
	int target;

	ib_uobject_add(u, &first, IB_UOBJECT_PD, &target);
	assert_false(ib_uobject_is_blocked(u, &first));
	ib_uobject_share(u, IB_UOBJECT_PD, first.handle, false, &plain);
	assert_false(ib_uobject_is_blocked(u, &first));
	ib_uobject_share(u, IB_UOBJECT_PD, first.handle, true, &blocking);
	assert_true(ib_uobject_is_blocked(u, &first));
	assert_true(ib_uobject_is_blocked(u, &plain));
	assert_false(ib_uobject_is_blocked(u, &blocking)); /* not by itself */
	ib_uobject_remove(u, &blocking, false);
	assert_false(ib_uobject_is_blocked(u, &first));
	ib_uobject_remove(u, &plain, false);
	ib_uobject_remove(u, &first, true);
}

static void new_handle__is_nobody_elses(void **state)
{
	u32 bare = ib_ucontext_new_handle(u);
	struct ib_uobject o, copy;

	ib_uobject_add(u, &o, IB_UOBJECT_CQ, &fd);
	assert_int_not_equal(o.handle, bare);
	assert_int_not_equal(ib_ucontext_new_handle(u), o.handle);
	assert_null(ib_uobject_share(u, IB_UOBJECT_CQ, bare, false, &copy));
	ib_uobject_remove(u, &o, true);
}

static void fork__child_finds_what_its_parent_had(void **state)
{
	int status, pid = fork();

	if (pid == 0) {
		struct ib_uobject o;

		ib_uobject_add(u, &o, IB_UOBJECT_QP, &fd);
		ib_uobject_remove(u, &o, true);
		_exit(ib_ucontext_find(fd) != u);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(find__by_any_copy_of_the_descriptor),
		TEST(find__tells_two_apart),
		TEST(find__knows_no_closed_context),
		TEST(list__has_the_objects_of_one_kind),
		TEST(share__finds_each_by_kind_and_handle),
		TEST(remove__voids_the_other_holds),
		TEST(remove__leaves_what_is_not_destroyed),
		TEST(is_blocked__while_another_hold_says_so),
		TEST(new_handle__is_nobody_elses),
		TEST(fork__child_finds_what_its_parent_had),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
