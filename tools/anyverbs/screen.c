/* screen.c: the terminal of `anyverbs top`, by termios and the control sequences of ECMA-48 that
 * every terminal since the VT100 has.
 * In:    keys, SIGWINCH and the signals that end a program      Out: frames
 * Runs:  the only thread that uses the terminal                 Locks: none
 *
 * Signals are blocked but in ppoll, so each finds the program between two frames.
 */
#include "screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* The alternate screen, without a cursor; and back. */
#define SCREEN_ENTER "\033[?1049h\033[?25l\033[H\033[2J"
#define SCREEN_LEAVE "\033[0m\033[?25h\033[?1049l"
enum { SCREEN_FRAME = 1 << 16, SCREEN_ROWS = 24, SCREEN_COLUMNS = 80, SCREEN_ESCAPE_MS = 50 };

static struct {
	struct termios before; /* as it was */
	bool open;
	char frame[SCREEN_FRAME];
	size_t used;
	u32 rows, columns; /* of the frame */
	u32 row;
	unsigned char keys[64]; /* read and not yet taken */
	u32 key_count, key_at;
	sigset_t waiting; /* the mask while it waits */
} OWNED_BY(the only thread) screen;

static volatile sig_atomic_t screen_resized, screen_ending, screen_stopping;

/* ---- signals --------------------------------------------------------------------------------- */

static void screen_on_signal(int number)
{
	if (number == SIGWINCH)
		screen_resized = 1;
	else if (number == SIGTSTP)
		screen_stopping = 1;
	else
		screen_ending = number;
}

/* A fault of this program: the terminal first, then the fault's own end. */
static void screen_on_fault(int number)
{
	screen_close();
	raise(number); /* SA_RESETHAND */
}

static void screen_catch(int number, void (*fn)(int), int flags)
{
	struct sigaction a = { .sa_handler = fn, .sa_flags = flags };

	sigaction(number, &a, NULL);
}

static void screen_catch_all(void)
{
	static const int asked[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH };
	static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT };
	sigset_t block;

	sigemptyset(&block);
	for (size_t i = 0; i < ARRAY_LEN(asked); i++) {
		sigaddset(&block, asked[i]);
		screen_catch(asked[i], screen_on_signal, 0);
	}
	for (size_t i = 0; i < ARRAY_LEN(faults); i++)
		screen_catch(faults[i], screen_on_fault, (int)SA_RESETHAND);
	signal(SIGPIPE, SIG_IGN);
	sigprocmask(SIG_BLOCK, &block, &screen.waiting);
	for (size_t i = 0; i < ARRAY_LEN(asked); i++)
		sigdelset(&screen.waiting, asked[i]);
}

int screen_signal(void)
{
	return screen_ending;
}

/* ---- the terminal ---------------------------------------------------------------------------- */

static bool screen_write(const char *text, size_t n)
{
	while (n > 0) {
		ssize_t done = write(STDOUT_FILENO, text, n);

		if (done < 0 && errno != EINTR)
			return false;
		if (done > 0) {
			text += done;
			n -= (size_t)done;
		}
	}
	return true;
}

static int screen_enter(void)
{
	struct termios raw = screen.before;

	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN);
	raw.c_iflag &= ~(tcflag_t)(ICRNL | IXON);
	raw.c_cc[VMIN] = 1;
	raw.c_cc[VTIME] = 0;
	if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) != 0)
		return -errno;
	screen.open = true;
	return screen_write(SCREEN_ENTER, strlen(SCREEN_ENTER)) ? 0 : -EIO;
}

void screen_close(void)
{
	if (!screen.open)
		return;
	screen.open = false;
	screen_write(SCREEN_LEAVE, strlen(SCREEN_LEAVE));
	tcsetattr(STDIN_FILENO, TCSANOW, &screen.before);
}

int screen_open(void)
{
	int err;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) ||
	    tcgetattr(STDIN_FILENO, &screen.before) != 0)
		return -ENOTTY;
	screen_catch_all();
	atexit(screen_close);
	err = screen_enter();
	if (err != 0)
		screen_close();
	return err;
}

/* Ctrl-Z: the shell gets its terminal, and SIGCONT brings ours back. */
static void screen_stop(void)
{
	sigset_t stop, before;

	screen_stopping = 0;
	screen_close();
	screen_catch(SIGTSTP, SIG_DFL, 0);
	sigemptyset(&stop);
	sigaddset(&stop, SIGTSTP);
	raise(SIGTSTP);
	sigprocmask(SIG_UNBLOCK, &stop, &before); /* stops here */
	sigprocmask(SIG_SETMASK, &before, NULL);
	screen_catch(SIGTSTP, screen_on_signal, 0);
	tcgetattr(STDIN_FILENO, &screen.before);
	screen_enter();
	screen_resized = 1;
}

void screen_size(u32 *rows, u32 *columns)
{
	struct winsize w;
	bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row > 0 && w.ws_col > 0;

	*rows = known ? w.ws_row : SCREEN_ROWS;
	*columns = known ? w.ws_col : SCREEN_COLUMNS;
}

bool screen_has_colours(void)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	return (no == NULL || no[0] == '\0') && (term == NULL || strcmp(term, "dumb") != 0);
}

/* ---- frames ---------------------------------------------------------------------------------- */

static void screen_add(const char *text, size_t n)
{
	n = MIN(n, sizeof(screen.frame) - screen.used);
	memcpy(screen.frame + screen.used, text, n);
	screen.used += n;
}

void screen_begin(void)
{
	screen_size(&screen.rows, &screen.columns);
	screen.used = screen.row = 0;
	screen_add("\033[H", 3);
}

void screen_line(enum screen_style style, const char *text)
{
	static const char *const codes[] = { [STYLE_PLAIN] = "",
					     [STYLE_BOLD] = "\033[1m",
					     [STYLE_REVERSE] = "\033[7m",
					     [STYLE_RED] = "\033[31m",
					     [STYLE_DIM] = "\033[2m" };
	bool styled = style != STYLE_PLAIN && screen_has_colours();

	if (screen.row >= screen.rows)
		return;
	if (screen.row++ > 0)
		screen_add("\r\n", 2);
	if (styled)
		screen_add(codes[style], strlen(codes[style]));
	screen_add(text, MIN(strlen(text), (size_t)screen.columns));
	if (styled)
		screen_add("\033[0m", 4);
	screen_add("\033[K", 3);
}

bool screen_end(void)
{
	if (screen.row < screen.rows)
		screen_add("\r\n\033[J", 5);
	return screen_write(screen.frame, screen.used);
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Waits for input: 1; 0: the time is up; a key for what happened instead. */
static int screen_poll(int other, int timeout_ms)
{
	struct pollfd fds[2] = { { STDIN_FILENO, POLLIN, 0 }, { other, POLLIN, 0 } };
	struct timespec limit = { timeout_ms / 1000, timeout_ms % 1000 * 1000000L };
	int n = ppoll(fds, 2, timeout_ms < 0 ? NULL : &limit, &screen.waiting);

	if (screen_ending != 0)
		return KEY_END_OF_INPUT;
	if (screen_stopping != 0)
		screen_stop();
	if (screen_resized != 0) {
		screen_resized = 0;
		return KEY_RESIZED;
	}
	if (n <= 0)
		return 0;
	if (fds[0].revents != 0)
		return 1;
	return KEY_OTHER_INPUT;
}

/* Reads what is there. False: the terminal is gone. */
static bool screen_fill(void)
{
	ssize_t n = read(STDIN_FILENO, screen.keys, sizeof(screen.keys));

	if (n <= 0)
		return n < 0 && errno == EINTR;
	screen.key_count = (u32)n;
	screen.key_at = 0;
	return true;
}

static int screen_next(void)
{
	return screen.key_at < screen.key_count ? screen.keys[screen.key_at++] : -1;
}

/* A control sequence behind ESC and '[' or 'O': parameters, then its last byte. */
static int screen_sequence(void)
{
	static const struct {
		char last;
		int number;
		int key;
	} known[] = { { 'A', 0, KEY_UP },   { 'B', 0, KEY_DOWN },    { 'C', 0, KEY_RIGHT },
		      { 'D', 0, KEY_LEFT }, { 'H', 0, KEY_HOME },    { 'F', 0, KEY_END },
		      { '~', 1, KEY_HOME }, { '~', 7, KEY_HOME },    { '~', 4, KEY_END },
		      { '~', 8, KEY_END },  { '~', 5, KEY_PAGE_UP }, { '~', 6, KEY_PAGE_DOWN } };
	int c, number = 0;

	while ((c = screen_next()) >= '0' && c <= ';')
		number = c <= '9' ? MIN(10 * number + c - '0', 100) : number;
	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (c == known[i].last && (c != '~' || number == known[i].number))
			return known[i].key;
	return KEY_UNKNOWN;
}

/* A key of its own, or the begin of a sequence whose rest is there or comes at once. */
static int screen_escape(void)
{
	int c = screen_next();

	if (c < 0) {
		struct pollfd in = { STDIN_FILENO, POLLIN, 0 };

		if (poll(&in, 1, SCREEN_ESCAPE_MS) != 1 || !screen_fill())
			return KEY_ESCAPE;
		c = screen_next();
	}
	return c == '[' || c == 'O' ? screen_sequence() : KEY_UNKNOWN;
}

int screen_wait(int other, int timeout_ms)
{
	int c = screen_next();

	if (c < 0) {
		int came = screen_poll(other, timeout_ms);

		if (came != 1)
			return came == 0 ? KEY_NONE : came;
		if (!screen_fill())
			return KEY_END_OF_INPUT;
		c = screen_next();
	}
	if (c == KEY_ESCAPE)
		return screen_escape();
	if (c == '\n')
		return KEY_ENTER;
	return c == '\b' ? KEY_BACKSPACE : c;
}
