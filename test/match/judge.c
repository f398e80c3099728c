/* judge.c: holds traces of examples/tag_mpi.c to MPI's matching rules.
 *
 * usage: match_judge MESSAGES TRACE...
 * Each trace is of one rank, in the order in which it saw things:
 *   post RECV TAG MASK          a receive is posted
 *   match RECV MESSAGE TAG      the adapter gave the message to it
 *   unexpected MESSAGE TAG      the message came to an ordinary buffer
 *   take RECV MESSAGE           the program gave it to the receive
 *   cancel RECV                 a receive that nothing matched has been cancelled
 * MESSAGE is its source << 32 and its number there. Of each source the numbers must rise, and all
 * traces together must have MESSAGES messages, each in one receive.
 * In: traces    Out: "ok" and status 0, or what breaks which rule and status 1
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "match.h"

enum { MAX_RANKS = 64 };

typedef unsigned long long ull;

static struct {
	const char *name;
	u32 line;
	struct mpi_match mpi;
	u64 next[MAX_RANKS]; /* the least number of a source that may come */
	/* what the model has given to a receive, and the trace has not confirmed yet */
	u64 due_recv, due_message;
	bool due;
	u32 messages, received;
} j;

#define judge(ok, ...) ((ok) ? (void)0 : judge_fail(__VA_ARGS__))

static void judge_fail(const char *what, u64 recv, u64 message)
{
	printf("%s:%u: %s (receive %llu, message %llu of source %llu)\n", j.name, j.line, what,
	       (ull)recv, (ull)(message & UINT32_MAX), (ull)(message >> 32));
	exit(1);
}

static void judge_arrival(u64 message)
{
	u64 source = message >> 32, number = message & UINT32_MAX;

	judge(source < MAX_RANKS && number >= j.next[source], "a message overtakes another", 0,
	      message);
	j.next[source] = number + 1;
	j.messages++;
}

static void judge_post(u64 recv, u64 tag, u64 mask)
{
	j.due = mpi_post(&j.mpi, recv, tag, mask, &j.due_message);
	j.due_recv = recv;
}

static void judge_match(u64 recv, u64 message, u64 tag)
{
	u64 right = 0;

	judge_arrival(message);
	judge(mpi_arrive(&j.mpi, message, tag, &right) && right == recv,
	      "the adapter chose another receive", right, message);
	j.received++;
}

static void judge_unexpected(u64 message, u64 tag)
{
	judge_arrival(message);
	j.due = mpi_arrive(&j.mpi, message, tag, &j.due_recv);
	j.due_message = message;
}

static void judge_take(u64 recv, u64 message)
{
	judge(j.due && j.due_recv == recv && j.due_message == message, "this is not the match",
	      recv, message);
	j.due = false;
	j.received++;
}

static void judge_line(const char *line)
{
	ull a = 0, b = 0, c = 0;
	bool takes = sscanf(line, "take %llu %llu", &a, &b) == 2;

	judge(takes == j.due, "a match was missed", j.due_recv, j.due_message);
	if (takes)
		judge_take(a, b);
	else if (sscanf(line, "post %llu %llu %llu", &a, &b, &c) == 3)
		judge_post(a, b, c);
	else if (sscanf(line, "match %llu %llu %llu", &a, &b, &c) == 3)
		judge_match(a, b, c);
	else if (sscanf(line, "unexpected %llu %llu", &a, &b) == 2)
		judge_unexpected(a, b);
	else if (sscanf(line, "cancel %llu", &a) == 1)
		judge(mpi_cancel(&j.mpi, a), "no such receive waits", a, 0);
	else
		judge_fail("this line means nothing", 0, 0);
}

static void judge_file(const char *name)
{
	FILE *f = fopen(name, "r");
	char line[256];

	j.name = name;
	j.line = 0;
	judge(f != NULL, "there is no such file", 0, 0);
	memset(j.next, 0, sizeof(j.next));
	while (fgets(line, sizeof(line), f) != NULL) {
		j.line++;
		judge_line(line);
	}
	fclose(f);
	judge(!j.due && j.mpi.posted.count == 0 && j.mpi.unexpected.count == 0,
	      "something waits at the end", 0, 0);
	mpi_close(&j.mpi);
}

int main(int argc, char **argv)
{
	u32 want;

	if (argc < 3) {
		fprintf(stderr, "usage: match_judge MESSAGES TRACE...\n");
		return 2;
	}
	want = (u32)strtoul(argv[1], NULL, 10);
	for (int i = 2; i < argc; i++)
		judge_file(argv[i]);
	judge(j.messages == want && j.received == want, "messages are missing, or too many", 0, 0);
	printf("ok: %u messages matched as MPI does\n", want);
	return 0;
}
