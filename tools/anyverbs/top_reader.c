/* top_reader.c: takes surveys for `anyverbs top`.
 * In:    a byte per survey on one pipe      Out: a pointer to each on another
 * Runs:  a thread of its own                Locks: none: the pipes hand samples over
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "top.h"

static int top_ask_fd[2], top_answer_fd[2];

struct top_sample *top_sample_take(void)
{
	struct top_sample *s = calloc(1, sizeof(*s));

	if (s == NULL)
		return NULL;
	s->err = survey_take(&s->survey);
	s->at_ns = clock_now_ns();
	return s;
}

void top_sample_free(struct top_sample *s)
{
	if (s == NULL)
		return;
	survey_free(&s->survey);
	free(s);
}

static void *top_reader(void *arg)
{
	char byte;

	while (read(top_ask_fd[0], &byte, 1) == 1) {
		struct top_sample *s = top_sample_take();

		if (write(top_answer_fd[1], &s, sizeof(s)) != (ssize_t)sizeof(s))
			break;
	}
	return arg;
}

int top_reader_start(void)
{
	int err;

	if (pipe2(top_ask_fd, O_CLOEXEC) != 0 || pipe2(top_answer_fd, O_CLOEXEC) != 0)
		return -errno;
	err = thread_start("top", 0, NULL, top_reader, NULL); /* signals are the terminal's */
	return err != 0 ? err : top_answer_fd[0];
}

void top_reader_ask(void)
{
	if (write(top_ask_fd[1], "", 1) != 1)
		abort(); /* a pipe with at most one byte in it */
}

struct top_sample *top_reader_take(void)
{
	struct top_sample *s;

	return read(top_answer_fd[0], &s, sizeof(s)) == (ssize_t)sizeof(s) ? s : NULL;
}
