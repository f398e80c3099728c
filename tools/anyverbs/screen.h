/* screen.h: the terminal of `anyverbs top`: whole frames out, keys in, and the terminal as it was
 * afterwards, whichever way the program ends.
 */
#ifndef ANYVERBS_SCREEN_H
#define ANYVERBS_SCREEN_H

#include <stdio.h>

#include "base/compiler.h"

/* Keys that are no character. */
enum screen_key {
	KEY_NONE = 0x100, /* the time is up */
	KEY_END_OF_INPUT, /* the terminal is gone, or a signal asks the program to end */
	KEY_RESIZED,
	KEY_OTHER_INPUT, /* the other descriptor is readable */
	KEY_UP, KEY_DOWN, KEY_LEFT, KEY_RIGHT,
	KEY_PAGE_UP, KEY_PAGE_DOWN, KEY_HOME, KEY_END,
	KEY_UNKNOWN,
};
enum { KEY_TAB = '\t', KEY_ENTER = '\r', KEY_ESCAPE = 0x1b, KEY_BACKSPACE = 0x7f };

/* Takes the terminal over. 0; -ENOTTY: the standard input or output is none; another errno. */
int screen_open(void);
/* Gives it back; may be called twice. Signals that end or stop the program do so, too. */
void screen_close(void);
/* The signal that asked the program to end; 0: none. */
int screen_signal(void);
void screen_size(u32 *rows, u32 *columns);
/* Whether colours are wanted: not with NO_COLOR or TERM=dumb. */
bool screen_has_colours(void);
/* Waits for a key or for `other` (-1: none), at most so long. Negative: no limit. */
int screen_wait(int other, int timeout_ms);

/* A frame: begin, lines from the top, end. A line is cut at the screen's width; `style` is of enum
 * screen_style. Lines beyond the last row are ignored. */
enum screen_style { STYLE_PLAIN, STYLE_BOLD, STYLE_REVERSE, STYLE_RED, STYLE_DIM };
void screen_begin(void);
void screen_line(enum screen_style style, const char *text);
/* False: the terminal takes no more. */
bool screen_end(void);

#endif
