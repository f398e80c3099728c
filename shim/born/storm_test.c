/* storm_test.c: many threads do at random what programs do to memory, for a while: every byte is
 * where it was put, and in the end everything has gone back.
 * The model of a thread is its table of pieces: where each lies, how long it is, and the seed of
 * the bytes that it wrote there.
 */
#include <errno.h>
#include <pthread.h>

#include "born_kit.h"

enum { THREADS = 8, PIECES = 24, ROUNDS = 700, FORKS = 10, LARGEST = 3 << 20 };

enum kind { NOTHING, BLOCK, MAP };

struct piece {
	enum kind kind;
	unsigned char *at;
	size_t length;
	unsigned int seed;
};

struct storm {
	unsigned int seed;
	struct piece pieces[PIECES];
	const char *wrong;
};

static unsigned int storm_random(struct storm *s, unsigned int below)
{
	return (unsigned int)rand_r(&s->seed) % below;
}

/* Some bytes of each page, so that it is quick; the seed is in all of them. */
static void piece_write(const struct piece *p)
{
	for (size_t at = 0; at < p->length; at += PAGE / 2 - 7)
		p->at[at] = (unsigned char)(p->seed + at / 64);
	p->at[p->length - 1] = (unsigned char)p->seed;
}

static bool piece_is_right(const struct piece *p, size_t length)
{
	for (size_t at = 0; at < length; at += PAGE / 2 - 7)
		if (at != p->length - 1 && p->at[at] != (unsigned char)(p->seed + at / 64))
			return false;
	return length != p->length || p->at[length - 1] == (unsigned char)p->seed;
}

static size_t storm_length(struct storm *s)
{
	return 1 + storm_random(s, storm_random(s, 3) == 0 ? LARGEST : 200000);
}

static size_t pages_of(size_t length)
{
	return (length + PAGE - 1) / PAGE * PAGE;
}

static void piece_begin(struct storm *s, struct piece *p)
{
	p->length = storm_length(s);
	p->seed = storm_random(s, 251);
	p->kind = storm_random(s, 2) == 0 ? BLOCK : MAP;
	if (p->kind == MAP) {
		p->at = mmap(NULL, p->length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			     -1, 0);
	} else {
		bool zeroed = storm_random(s, 2) == 0;

		p->at = zeroed ? calloc(1, p->length) : malloc(p->length);
		if (zeroed && !is_all((char *)p->at, p->length, 0))
			s->wrong = "calloc's bytes are not 0";
	}
	if (p->kind == MAP && !is_all((char *)p->at, p->length, 0))
		s->wrong = "a map's bytes are not 0";
	piece_write(p);
}

static void piece_end(struct piece *p)
{
	if (p->kind == BLOCK)
		free(p->at);
	else
		munmap(p->at, p->length);
	p->kind = NOTHING;
}

static void piece_resize(struct storm *s, struct piece *p)
{
	size_t length = storm_length(s), kept = length < p->length ? length : p->length;
	void *at = p->kind == BLOCK ? realloc(p->at, length) :
				      mremap(p->at, p->length, length, MREMAP_MAYMOVE);

	if (at == MAP_FAILED && errno == EFAULT && !is_born(p->at))
		return; /* ordinary memory in two maps, since a part of it was mapped anew */
	if (at == NULL || at == MAP_FAILED) {
		s->wrong = "no memory";
		return;
	}
	p->at = at;
	if (kept < p->length ? !piece_is_right(p, kept - 1) : !piece_is_right(p, kept))
		s->wrong = "what was resized has other bytes";
	p->length = length;
	piece_write(p);
}

/* The front, the end or the middle of a map goes, or becomes zeroes. */
static void piece_cut(struct storm *s, struct piece *p)
{
	size_t pages = pages_of(p->length) / PAGE, first = storm_random(s, (unsigned int)pages);
	size_t n = PAGE * (1 + storm_random(s, (unsigned int)(pages - first)));
	unsigned char *at = p->at + first * PAGE;

	if (p->kind != MAP)
		return;
	switch (storm_random(s, 3)) {
	case 0:
		madvise(at, n, MADV_DONTNEED);
		break;
	case 1:
		if (mmap(at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
			 0) != at)
			s->wrong = "no map over a map";
		break;
	default:
		munmap(at, n);
		if (mmap(at, n, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != at) {
			/* another thread was there first: the rest goes, too */
			munmap(p->at, first * PAGE);
			munmap(at + n, pages_of(p->length) - first * PAGE - n);
			p->kind = NOTHING;
			return;
		}
	}
	if (!is_all((char *)at, n, 0))
		s->wrong = "what was given up is not 0";
	piece_write(p);
}

static void storm_step(struct storm *s)
{
	struct piece *p = &s->pieces[storm_random(s, PIECES)];

	if (p->kind == NOTHING) {
		piece_begin(s, p);
		return;
	}
	if (!piece_is_right(p, p->length))
		s->wrong = "a piece has other bytes than were written";
	switch (storm_random(s, 4)) {
	case 0:
		piece_resize(s, p);
		break;
	case 1:
		piece_cut(s, p);
		break;
	default:
		piece_end(p);
	}
}

static void *storm_run(void *arg)
{
	struct storm *s = arg;

	for (int i = 0; i < ROUNDS && s->wrong == NULL; i++)
		storm_step(s);
	for (int i = 0; i < PIECES; i++)
		if (s->pieces[i].kind != NOTHING)
			piece_end(&s->pieces[i]);
	return NULL;
}

static struct storm storms[THREADS];

static void storm_begin(pthread_t *threads, unsigned int seed)
{
	for (unsigned int i = 0; i < THREADS; i++) {
		storms[i] = (struct storm){ .seed = seed + i };
		assert_int_equal(pthread_create(&threads[i], NULL, storm_run, &storms[i]), 0);
	}
}

static void storm_end(pthread_t *threads)
{
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		if (storms[i].wrong != NULL)
			fail_msg("thread %d: %s", i, storms[i].wrong);
	}
}

/* Nothing of it is left in the file, and what is free is in one piece. */
static void all_has_gone_back(uint64_t before)
{
	size_t most = (size_t)sysconf(_SC_PHYS_PAGES) * PAGE / 2;
	char *p;

	assert_int_equal(file_bytes(), before);
	p = map_long(most);
	p[0] = p[most - 1] = 1;
	assert_int_equal(munmap(p, most), 0);
	assert_int_equal(file_bytes(), before);
}

static void storm__keeps_every_byte_and_gives_all_back(void **state)
{
	uint64_t before = file_bytes();
	pthread_t threads[THREADS];

	(void)state;
	for (unsigned int seed = 1; seed < 300; seed += 100) {
		storm_begin(threads, seed);
		storm_end(threads);
		all_has_gone_back(before);
	}
}

/* The child has what the thread had that forked, and can go on with it. */
static int child_goes_on(void *own)
{
	struct storm *s = own;

	for (int i = 0; i < PIECES; i++)
		if (s->pieces[i].kind != NOTHING &&
		    !piece_is_right(&s->pieces[i], s->pieces[i].length))
			return 1;
	for (int i = 0; i < 200 && s->wrong == NULL; i++)
		storm_step(s);
	return s->wrong == NULL ? 0 : 2;
}

static void storm__beside_forks(void **state)
{
	struct storm own = { .seed = 9999 };
	uint64_t before = file_bytes();
	pthread_t threads[THREADS];

	(void)state;
	storm_begin(threads, 5000);
	for (int i = 0; i < FORKS; i++) {
		pid_t child;

		for (int k = 0; k < 50; k++)
			storm_step(&own);
		assert_null(own.wrong);
		child = fork();
		if (child == 0)
			_exit(child_goes_on(&own));
		assert_int_equal(child_verdict(child), 0);
	}
	storm_end(threads);
	for (int i = 0; i < PIECES; i++)
		if (own.pieces[i].kind != NOTHING)
			piece_end(&own.pieces[i]);
	assert_int_equal(file_bytes(), before);
}

/* Two threads fork at once: each child has all of it. */
static void *fork_often(void *arg)
{
	const char *p = arg;

	for (int i = 0; i < FORKS * 4; i++) {
		int status = 0;
		pid_t child = fork();

		if (child == 0)
			_exit(is_all(p, LONG, 42) && !map_of(p).shared ? 0 : 1);
		if (waitpid(child, &status, 0) != child || status != 0)
			return arg;
	}
	return NULL;
}

static void storm__forks_beside_forks(void **state)
{
	char *p = map_long(LONG);
	pthread_t threads[4];

	(void)state;
	memset(p, 42, LONG);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, fork_often, p), 0);
	for (int i = 0; i < 4; i++) {
		void *failed;

		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
	}
	assert_int_equal(munmap(p, LONG), 0);
}

/* The kernel counts maps: tens of thousands of gaps shall not use them up. */
static int maps_count(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	int lines = 0;

	for (int c = fgetc(f); c != EOF; c = fgetc(f))
		lines += c == '\n';
	fclose(f);
	return lines;
}

static void storm__gaps_are_not_maps_without_end(void **state)
{
	enum { BLOCKS = 30000 };
	char **blocks = malloc(BLOCKS * sizeof(*blocks));
	uint64_t before;

	(void)state;
	for (int i = 0; i < BLOCKS; i++)
		blocks[i] = malloc(65536);
	before = file_bytes();
	for (int i = 0; i < BLOCKS; i += 2) {
		memset(blocks[i], 1, 2 * PAGE);
		free(blocks[i]);
	}
	assert_int_equal(file_bytes(), before);
	assert_in_range(maps_count(), 1000, 20000);
	for (int i = 0; i < BLOCKS; i += 2) {
		blocks[i] = malloc(65536);
		assert_true(is_all(blocks[i], 2 * PAGE, 0));
	}
	for (int i = 0; i < BLOCKS; i++)
		free(blocks[i]);
	free(blocks);
	assert_true(maps_count() < 20000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(storm__keeps_every_byte_and_gives_all_back),
		cmocka_unit_test(storm__gaps_are_not_maps_without_end),
		/* from here on no memory is born */
		cmocka_unit_test(storm__forks_beside_forks),
		cmocka_unit_test(storm__beside_forks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
