/* command_fuzz.c: the `anyverbs` command: its arguments, a node's answers to `status`, and what the
 * processes show of themselves on their boards.
 *
 * The input: arguments, then answers as the node would send them, each with a length's worth of
 * bytes, and changes to a board that is otherwise right. Commands that would start or write
 * something (run, capture, stop) only count their arguments.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../tools/anyverbs/command.h"
#include "input.h"
#include "path/shm/board.h"

enum { ARGUMENTS = 4, ARGUMENT_BYTES = 32, CHANGES = 8, SLOTS = 2, MOST_ASKED = 64 };

int command_main(int argc, char **argv); /* tools/anyverbs/main.c's */

static struct fuzz {
	struct input in;
	int board;
	u32 asked;
	off_t changed[CHANGES];
	u32 changes;
} f;

static void fuzz_show(off_t at, const void *bytes, size_t size)
{
	fuzz_need(pwrite(f.board, bytes, size, at) == (ssize_t)size, "the board is not written");
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const u64 magic = BOARD_MAGIC;
	const u32 version = BOARD_VERSION, size = (u32)sizeof(struct board), slots = SLOTS;

	fuzz_need(freopen("/dev/null", "w", stdout) != NULL, "no /dev/null");
	f.board = memfd_create("board", MFD_CLOEXEC);
	fuzz_need(f.board >= 0 && ftruncate(f.board, sizeof(struct board)) == 0, "no board");
	fuzz_show(offsetof(struct board, magic), &magic, sizeof(magic));
	fuzz_show(offsetof(struct board, version), &version, sizeof(version));
	fuzz_show(offsetof(struct board, size_check), &size, sizeof(size));
	fuzz_show(offsetof(struct board, slot_count), &slots, sizeof(slots));
	return 0;
}

/* ---- the node ---- */

/* Eight bytes in one of the arrays, the counters or the memory. */
static void fuzz_change(void)
{
	static const size_t parts[] = { offsetof(struct board, qps),
					offsetof(struct board, tallies),
					offsetof(struct board, counters),
					offsetof(struct board, memory) };
	u8 part = input_u8(&f.in), where = input_u8(&f.in);
	off_t at = (off_t)(parts[part % ARRAY_LEN(parts)] + 8 * (size_t)where);
	u64 word;

	input_bytes(&f.in, &word, sizeof(word));
	if (f.changes == CHANGES)
		return;
	f.changed[f.changes++] = at;
	fuzz_show(at, &word, sizeof(word));
}

int link_open(bool start)
{
	int fd = input_u8(&f.in) % 8 == 0 ? -ECONNREFUSED : dup(f.board);

	fuzz_need(fd != -1, "no descriptor");
	return fd;
}

int link_open_at(enum place_scope scope, bool start)
{
	return link_open(start);
}

int link_ask(int fd, u16 type, void *request, size_t size, void *reply,
	     size_t reply_size, struct message *m)
{
	u8 how = input_u8(&f.in);

	/* a node may go on for ever: then the command does, and that is Ctrl-C's */
	if (how % 16 == 15 || ++f.asked > MOST_ASKED)
		return how & 16 ? -EPROTO : -ECONNRESET;
	input_bytes(&f.in, reply, MIN(reply_size, (size_t)how * 16));
	if (m == NULL)
		return 0;
	*m = (struct message){ .size = reply_size };
	while (input_u8(&f.in) & 1)
		fuzz_change();
	m->fds[0] = dup(f.board);
	m->fd_count = 1;
	return 0;
}

int link_ask_with(int fd, u16 type, void *request, size_t size, int given, void *reply,
		  size_t reply_size)
{
	return link_ask(fd, type, request, size, reply, reply_size, NULL);
}

/* The node may end once in between. */
int link_do(bool start, int (*ask)(int fd, void *arg), void *arg)
{
	int err = -ECONNRESET;

	for (int tries = 0; tries < 2 && link_has_ended(err); tries++) {
		int fd = link_open(start);

		if (fd < 0)
			return fd;
		err = ask(fd, arg);
		close(fd);
	}
	return err;
}

int link_give(int fd, u16 type, int given)
{
	return -ECONNRESET;
}

/* `top --once` looks twice, and waits between. */
int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask);

int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask)
{
	return 0;
}

/* ---- what is not run ---- */

static int fuzz_count(int argc, char **argv)
{
	for (int i = 0; i < argc; i++)
		fuzz_need(argv[i] != NULL, "an argument is missing");
	fuzz_need(argv[argc] == NULL, "the arguments have no end");
	return EXIT_OK;
}

int command_run(int argc, char **argv)
{
	return fuzz_count(argc, argv);
}

int command_ipoib(int argc, char **argv)
{
	return fuzz_count(argc, argv);
}

int command_capture(int argc, char **argv)
{
	return fuzz_count(argc, argv);
}

int command_stop(int argc, char **argv)
{
	return fuzz_count(argc, argv);
}

/* ---- the fuzzer ---- */

static char *fuzz_argument(char *text)
{
	static const char *const words[] = {
		"status", "port", "--json",   "up",	     "down",  "roce0",	"help",
		"--help", "-h",	  "version",  "run",	     "stop",  "--",	"capture",
		"device", "add",  "remove",   "list",	     "roce1", "fabric", "show",
		"hosts",  "link", "fail",     "reboot",	     "error", "h1",	"--topology",
		"star:2", "top",  "--once",   "--view",	     "qps",   "drops",	"devices",
		"--sort", "pid",  "--filter", "--prometheus", "qp"
	};
	u8 which = input_u8(&f.in);

	memset(text, 0, ARGUMENT_BYTES + 1);
	if (which < ARRAY_LEN(words))
		memcpy(text, words[which], strlen(words[which]));
	else
		input_bytes(&f.in, text, which % ARGUMENT_BYTES);
	return text;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	static char text[ARGUMENTS][ARGUMENT_BYTES + 1], name[] = "anyverbs";
	char *argv[ARGUMENTS + 2] = { name };
	int lowest = dup(f.board), argc = 1, code;
	const u64 nothing = 0;

	close(lowest);
	f.in = (struct input){ data, size };
	f.asked = f.changes = 0;
	for (u32 i = 0, n = input_u8(&f.in) % (ARGUMENTS + 1); i < n; i++)
		argv[argc++] = fuzz_argument(text[i]);
	code = command_main(argc, argv);
	fuzz_need(code >= EXIT_OK && code <= EXIT_USAGE, "an unknown exit code");
	while (f.changes > 0)
		fuzz_show(f.changed[--f.changes], &nothing, sizeof(nothing));
	fuzz_need(dup(f.board) == lowest, "a descriptor is left open");
	close(lowest);
	return 0;
}
