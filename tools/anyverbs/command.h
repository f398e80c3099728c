/* command.h: the parts of the `anyverbs` command. */
#ifndef ANYVERBS_COMMAND_H
#define ANYVERBS_COMMAND_H

#include <errno.h>
#include <stdio.h>

#include "node/message.h"
#include "node/place.h"

/* Exit codes: those of env(1) where a program is run. */
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_CANNOT_RUN = 126, EXIT_NOT_FOUND = 127 };

/* A message on standard error; returns `code`. */
int command_fail(int code, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Warns of each variable ANYVERBS_* that does not exist or has an invalid value. */
void settings_check(void);
/* ANYVERBS_NAME=VALUE. */
bool settings_is_one(const char *word);
/* Sets such a word's variable, with a warning as settings_check's. 0, or -1: no memory. */
int settings_set(char *word);
/* Lists the settings; the completion of bash reads that. */
void settings_show(FILE *out);

/* Each gets the arguments behind its own name, argv[argc] is NULL; returns the exit code. */
int command_run(int argc, char **argv);
int command_status(int argc, char **argv);
int command_top(int argc, char **argv);
int command_qp(int argc, char **argv);
int command_port(int argc, char **argv);
int command_device(int argc, char **argv);
int command_capture(int argc, char **argv);
int command_fabric(int argc, char **argv);
int command_ipoib(int argc, char **argv);
int command_stop(int argc, char **argv);

/* ---- run.c ---- */

/* Finds the folder of the doors: beside this program (build tree, moved installation), else where
 * it was installed. 0 or a negative errno. */
int run_find_doors(char *folder, size_t size);
/* A program that is run now is on this host, and attaches to the node that carries the fabric.
 * -EINVAL: no host can have the name. */
int run_set_host(const char *host);
/* Has the node write the tree of the host of ANYVERBS_HOST. 0, also without such a host; -ENODEV:
 * the node carries no fabric; -ENOENT: the fabric has no such host; another negative errno. */
int run_show_host(int fd);

/* ---- link.c: the connection to the node ---- */

/* Connects as a tool: a descriptor; -ECONNREFUSED: no node runs, or with `start` none can be
 * started. The next node of processes whose node has ended is started in any case. */
int link_open(bool start);
/* Has `ask` send its requests to the node, and again to the next one if the node ends meanwhile.
 * The result of `ask`, or as link_open. */
int link_do(bool start, int (*ask)(int fd, void *arg), void *arg);
static inline bool link_has_ended(int err)
{
	return err == -ECONNRESET || err == -EPIPE;
}
/* Connects to the node of this scope that is up, or with `start` starts it. As link_open. */
int link_open_at(enum place_scope scope, bool start);
/* The node that carries a fabric, where nothing names another. */
#define LINK_FABRIC "fabric"
/* Sends one request: 0 or a negative errno; *reply as in protocol.h. Its descriptors are in *m if m
 * is given. */
int link_ask(int fd, u16 type, void *request, size_t size, void *reply,
	     size_t reply_size, struct message *m);

/* As link_ask, with a descriptor, which stays the caller's. */
int link_ask_with(int fd, u16 type, void *request, size_t size, int given, void *reply,
		  size_t reply_size);
/* Sends a plain request with a descriptor, which stays the caller's. 0 or a negative errno. */
int link_give(int fd, u16 type, int given);

/* ---- absent.c: a node that is not up, or does not answer ---- */

/* Says on standard output that no node is up, and whether a fabric's is. */
void absent_say(void);
/* What a negative errno of link.c's functions means. Valid until the next call. */
const char *absent_strerror(int err);

/* ---- device.c ---- */

/* Reads the node's first device whose index is `index` or above, its texts clean: 0; -ENODEV: none;
 * or another negative errno. */
int device_read(int fd, u32 index, struct proto_device_reply *out);

/* ---- json.c ---- */

/* Terminates a text of a node or a process, and removes control characters. */
void text_clean(char *text, size_t size);

/* Text in quotes, escaped; bytes that are not printable ASCII become \u00XX. */
void json_string(FILE *out, const char *text);

#endif
