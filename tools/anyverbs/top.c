/* top.c: `anyverbs top`: what the node's processes do, as a live table or once as text or JSON.
 * In:    arguments, surveys, keys      Out: the terminal, or standard output
 * Runs:  the only thread beside the reader      Locks: none
 */
#include "top.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "screen.h"

enum { TOP_FILE_WIDTH = 120 }; /* of lines that go to no terminal */

/* ---- arguments ------------------------------------------------------------------------------- */

static bool top_set_interval(struct top *t, const char *text)
{
	char *end;
	double s = strtod(text, &end);

	if (end == text || *end != '\0' || !isfinite(s) || s * 1000 < TOP_INTERVAL_MIN_MS ||
	    s * 1000 > TOP_INTERVAL_MAX_MS)
		return false;
	t->interval_ms = (u32)(s * 1000);
	return true;
}

static bool top_set_view(struct top *t, const char *text)
{
	for (u32 i = 0; i < RATES_VIEWS; i++)
		if (strcmp(rates_view_names[i], text) == 0) {
			t->view = i;
			return true;
		}
	return false;
}

/* A column of the chosen view: read when all other options are. */
static bool top_set_sort(struct top *t, const char *text)
{
	struct table table;
	int column;

	rates_table(&table, t->view);
	column = table_column(&table, text);
	if (column < 0)
		return false;
	t->sort[t->view] = (u32)column;
	t->descending[t->view] = top_is_number(t->view, (u32)column);
	return true;
}

static bool top_set_filter(struct top *t, const char *text)
{
	if (strlen(text) >= sizeof(t->filter))
		return false;
	memcpy(t->filter, text, strlen(text) + 1);
	text_clean(t->filter, sizeof(t->filter));
	return true;
}

static int top_parse(struct top *t, int argc, char **argv)
{
	static const struct {
		const char *name;
		bool (*set)(struct top *t, const char *text);
		const char *takes;
	} options[] = {
		{ "--interval", top_set_interval, "seconds, 0.1 to 3600" },
		{ "--view", top_set_view, "processes, qps, devices or drops" },
		{ "--sort", NULL, "a column of the view, by its title" },
		{ "--filter", top_set_filter, "a text of at most 31 characters" },
	};
	const char *sort = NULL;

	for (int i = 0; i < argc; i++) {
		size_t k = 0;

		if (strcmp(argv[i], "--once") == 0 || strcmp(argv[i], "--json") == 0) {
			t->once = true;
			t->json |= strcmp(argv[i], "--json") == 0;
			continue;
		}
		while (k < ARRAY_LEN(options) && strcmp(options[k].name, argv[i]) != 0)
			k++;
		if (k == ARRAY_LEN(options))
			return command_fail(EXIT_USAGE, "top: unknown argument %s", argv[i]);
		if (i + 1 == argc ||
		    (options[k].set != NULL && !options[k].set(t, argv[i + 1])))
			return command_fail(EXIT_USAGE, "top: %s takes %s", argv[i],
					    options[k].takes);
		i++;
		if (options[k].set == NULL)
			sort = argv[i];
	}
	if (sort != NULL && !top_set_sort(t, sort))
		return command_fail(EXIT_USAGE, "top: --sort: the view %s has no column %s",
				    rates_view_names[t->view], sort);
	return EXIT_OK;
}

/* ---- surveys --------------------------------------------------------------------------------- */

/* A survey has come. Rates need two of the same node. */
static void top_add(struct top *t, struct top_sample *s)
{
	bool same = t->now != NULL && s != NULL && t->now->err == 0 && s->err == 0 &&
		    t->now->survey.node.pid == s->survey.node.pid;

	top_sample_free(t->before);
	t->before = NULL;
	if (same)
		t->before = t->now;
	else
		top_sample_free(t->now);
	t->now = s;
}

static void top_free(struct top *t)
{
	top_sample_free(t->now);
	top_sample_free(t->before);
}

/* ---- once ------------------------------------------------------------------------------------ */

static void top_pause(u32 ms)
{
	u64 end = clock_now_ns() + ms * NS_PER_MS;

	for (u64 now = clock_now_ns(); now < end; now = clock_now_ns()) {
		struct timespec left = { (time_t)((end - now) / NS_PER_S),
					 (long)((end - now) % NS_PER_S) };

		if (ppoll(NULL, 0, &left, NULL) == 0)
			return;
	}
}

static void top_print(const struct top *t, const struct table *table)
{
	char line[TOP_LINE];
	u32 rows, width = TOP_FILE_WIDTH;

	if (isatty(STDOUT_FILENO))
		screen_size(&rows, &width);
	width = MIN(width, (u32)TOP_LINE - 1);
	for (u32 i = 0; i < TOP_HEAD; i++) {
		top_head(t, i, line);
		puts(line);
	}
	putchar('\n');
	table_title_line(table, width, line, sizeof(line));
	puts(line);
	for (u32 i = 0; i < table->shown; i++) {
		table_row_line(table, i, width, line, sizeof(line));
		puts(line);
	}
}

/* All views, each sorted and filtered as asked. */
static bool top_print_json(const struct top *t)
{
	printf("{\"running\": true, \"seconds\": %.3f, \"node\": ", top_seconds(t));
	json_string(stdout, t->now->survey.node.node);
	printf(", \"pid\": %d", t->now->survey.node.pid);
	for (u32 i = 0; i < RATES_VIEWS; i++) {
		struct table table;
		bool ok = top_arrange(t, i, &table);

		printf(",\n  \"%s\": ", rates_view_names[i]);
		if (ok)
			table_json(&table, stdout);
		table_free(&table);
		if (!ok)
			return false;
	}
	puts("}");
	return true;
}

static int top_once_print(const struct top *t)
{
	struct table table;
	bool ok;

	if (t->json) {
		ok = top_print_json(t);
	} else {
		ok = top_arrange(t, t->view, &table);
		if (ok)
			top_print(t, &table);
		table_free(&table);
	}
	return ok ? EXIT_OK : command_fail(EXIT_FAILED, "top: %s", strerror(ENOMEM));
}

static int top_once(struct top *t)
{
	for (int i = 0; i < 2; i++) {
		if (i > 0)
			top_pause(t->interval_ms);
		top_add(t, top_sample_take());
		if (t->now == NULL)
			return command_fail(EXIT_FAILED, "top: %s", strerror(ENOMEM));
		if (t->now->err == -ECONNREFUSED) {
			if (t->json)
				puts("{\"running\": false}");
			else
				absent_say();
			return EXIT_FAILED;
		}
		if (t->now->err != 0)
			return command_fail(EXIT_FAILED, "top: %s", absent_strerror(t->now->err));
	}
	return top_once_print(t);
}

/* ---- live ------------------------------------------------------------------------------------ */

static void top_ask(struct top *t)
{
	if (t->asked)
		return;
	t->asked = true;
	t->asked_ns = clock_now_ns();
	top_reader_ask();
}

/* Milliseconds until the next survey is due, or the next frame while the node is silent. */
static int top_timeout(const struct top *t)
{
	u64 age_ms = (clock_now_ns() - t->asked_ns) / NS_PER_MS;

	if (t->asked)
		return 1000;
	return age_ms >= t->interval_ms ? 0 : (int)(t->interval_ms - age_ms);
}

/* Whether to go on. */
static bool top_step(struct top *t, int answers)
{
	int key = screen_wait(answers, top_timeout(t));

	switch (key) {
	case KEY_END_OF_INPUT:
		return false;
	case KEY_OTHER_INPUT:
		t->asked = false;
		top_add(t, top_reader_take());
		break;
	case KEY_NONE:
		top_ask(t);
		break;
	case KEY_RESIZED:
		break;
	default:
		if (!top_key(t, key))
			return false;
		if (key == ' ' && !t->editing)
			top_ask(t);
	}
	return top_draw(t);
}

/* Ends as the signal would have ended it; Ctrl-C is a way to quit. */
static void top_end_by_signal(void)
{
	int number = screen_signal();
	sigset_t none;

	if (number == 0 || number == SIGINT)
		return;
	signal(number, SIG_DFL);
	raise(number);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL); /* ends here */
}

static int top_live(struct top *t)
{
	int answers, err = screen_open();

	if (err == -ENOTTY)
		return command_fail(EXIT_USAGE, "top: the standard input and output are no "
						"terminal: --once prints one table");
	answers = err == 0 ? top_reader_start() : err;
	if (answers < 0) {
		screen_close();
		return command_fail(EXIT_FAILED, "top: %s", strerror(-answers));
	}
	top_ask(t);
	if (top_draw(t))
		while (top_step(t, answers))
			;
	screen_close();
	top_end_by_signal();
	return EXIT_OK;
}

int command_top(int argc, char **argv)
{
	struct top t = { .view = VIEW_PROCESSES, .interval_ms = 1000 };
	int code;

	top_sort_first(&t);
	code = top_parse(&t, argc, argv);
	if (code == EXIT_OK)
		code = t.once ? top_once(&t) : top_live(&t);
	top_free(&t);
	return code;
}
