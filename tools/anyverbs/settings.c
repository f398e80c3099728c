/* settings.c: warns of misspelt variables and invalid values. The libraries ignore them without a
 * message; values are checked by the libraries' own functions.
 * In:    the environment           Out: warnings on standard error
 * Runs:  the only thread           Locks: none
 */
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/log.h"
#include "command.h"
#include "node/address.h"
#include "node/udp_socket.h"
#include "path/udp/udp.h"

#define SETTINGS_PREFIX "ANYVERBS_"

extern char **environ;

static bool settings_is_switch(const char *value)
{
	bool on;

	return env_means_switch(value, &on);
}

static bool settings_is_host(const char *value)
{
	return strlen(value) < NODE_HOST_NAME && strchr(value, ' ') == NULL;
}

static bool settings_is_level(const char *value)
{
	enum log_level level;

	return log_level_parse(value, &level);
}

static bool settings_is_paths(const char *value)
{
	static const char *const names[] = { "shm", "udp", NULL };
	u32 found;

	return env_means_words(value, names, &found);
}

static bool settings_is_queues(const char *value)
{
	static const char *const names[] = { "polled", "early", NULL };
	u32 found;

	return env_means_words(value, names, &found);
}

static bool settings_is_lanes(const char *value)
{
	u32 n;

	return env_means_number(value, UDP_LANES, &n);
}

static bool settings_is_lines(const char *value)
{
	u32 n;

	return env_means_number(value, UDP_CONNECTED_SOCKETS, &n);
}

static bool settings_is_ports(const char *value)
{
	bool named;

	return env_means_ports(value, 0, &named);
}

static bool settings_is_seconds(const char *value)
{
	u64 ns;

	return env_means_seconds(value, &ns);
}

static bool settings_is_addresses(const char *value)
{
	char *copy = strdup(value), *save = NULL;
	bool good = copy != NULL;
	u8 gid[16];

	for (char *word = good ? strtok_r(copy, ", ", &save) : NULL; good && word != NULL;
	     word = strtok_r(NULL, ", ", &save))
		good = node_udp_gid_parse(word, gid);
	free(copy);
	return good || strcmp(value, "own") == 0;
}

static bool settings_device_refused;

static void settings_refuse_device(const char *name)
{
	settings_device_refused = true;
}

static bool settings_is_devices(const char *value)
{
	char names[NODE_DEVICES][NODE_DEVICE_NAME];

	settings_device_refused = false;
	(void)address_devices(value, names, settings_refuse_device);
	return !settings_device_refused;
}

/* is_good NULL: any value, and no user sets it. `value` is what help shows: words in lower case are
 * the values themselves, which the completion of bash takes from there. */
static const struct {
	const char *name;
	bool (*is_good)(const char *value);
	const char *expected, *value, *summary;
} settings[] = {
	{ "NODE", address_name_valid, "at most 31 letters, digits, '.', '_' and '-'", "NAME",
	  "the node; nodes of one machine are independent, like hosts (default)" },
	{ "HOST", settings_is_host, "the name of a host of a fabric, of at most 63 characters",
	  "HOST", "the host of a fabric that the program runs on" },
	{ "LOG", settings_is_level, "error, warn, info or debug", "error|warn|info|debug",
	  "messages on standard error (none)" },
	{ "ADDR", settings_is_addresses,
	  "own, or addresses of hosts, IPv4 or IPv6, with commas between", "ADDRESS[,ADDRESS]...",
	  "the addresses of the host that the node uses; own: a loopback address (all)" },
	{ "DEVICES", settings_is_devices,
	  "roce0 and seven more names at most, with commas between, as roce0,roce1",
	  "roce0[,roceN]...", "the node's devices (roce0)" },
	{ "PATHS", settings_is_paths, "shm, udp or shm,udp", "shm|udp|shm,udp",
	  "what packets may take: shared memory, UDP, or both (shm,udp)" },
	{ "SOURCE_PORTS", settings_is_lanes, "a number from 0 to 8", "N",
	  "UDP source ports beside 4791, for each address (8)" },
	{ "CONNECTED_SOCKETS", settings_is_lines, "a number from 0 to 32", "N",
	  "connections with a UDP socket of their own (32)" },
	{ "DIRECT", settings_is_switch, "0 or 1", "0|1",
	  "0: one-sided operations go through the target's engine (1)" },
	{ "PTRACER", settings_is_switch, "0 or 1", "0|1",
	  "1: processes of this user may reach the memory in spite of Yama (0)" },
	{ "ADOPT", settings_is_switch, "0 or 1", "0|1", "0: registered memory stays private (1)" },
	{ "BORN_SHARED", settings_is_switch, "0 or 1", "0|1",
	  "1: blocks of 64 KiB and more lie in memory that peers map (0)" },
	{ "STRICT_NOTIFY", settings_is_switch, "0 or 1", "0|1",
	  "1: events only for completions after the arm (0)" },
	{ "QUEUES", settings_is_queues, "polled or early", "polled|early",
	  "when a place in a work queue is free: once its completion is polled, or before "
	  "(polled)" },
	{ "LOW_PORTS", settings_is_ports, "numbers of ports with commas between, or all",
	  "all|PORT[,PORT]...",
	  "ports below 1,024 of other hosts that --rsockets connects to by RDMA (none)" },
	{ "IDLE_S", settings_is_seconds, "seconds, or never", "SECONDS",
	  "how long a node without processes stays; never: for ever (300)" },
	{ "REST_S", settings_is_seconds, "seconds, or never", "SECONDS",
	  "how long queue pair numbers of an ended process rest (5)" },
	{ "DAEMON", NULL, NULL, NULL, NULL },
	{ "SYSFS", NULL, NULL, NULL, NULL },
};

void settings_show(FILE *out)
{
	fputs("Settings are variables of the environment; `anyverbs run` also takes them in front\n"
	      "of PROGRAM. In parentheses: what holds without it.\n\n",
	      out);
	for (size_t i = 0; i < ARRAY_LEN(settings); i++)
		if (settings[i].value != NULL)
			fprintf(out, "  " SETTINGS_PREFIX "%s=%s\n      %s\n", settings[i].name,
				settings[i].value, settings[i].summary);
}

/* NAME=VALUE, without the prefix. */
static void settings_check_one(const char *setting)
{
	size_t length = strcspn(setting, "=");
	const char *value = setting + length + (setting[length] == '=');

	for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
		if (strlen(settings[i].name) != length ||
		    strncmp(settings[i].name, setting, length) != 0)
			continue;
		if (value[0] != '\0' && settings[i].is_good != NULL && !settings[i].is_good(value))
			command_fail(0, "warning: " SETTINGS_PREFIX "%s: it takes %s",
				     setting, settings[i].expected);
		return;
	}
	command_fail(0, "warning: " SETTINGS_PREFIX "%.*s is no variable of anyverbs",
		     (int)length, setting);
}

bool settings_is_one(const char *word)
{
	return strncmp(word, SETTINGS_PREFIX, strlen(SETTINGS_PREFIX)) == 0 &&
	       strchr(word, '=') != NULL;
}

int settings_set(char *word)
{
	char *name = strndup(word, strcspn(word, "="));
	int err = name == NULL ? -1 : setenv(name, word + strlen(name) + 1, 1);

	free(name);
	if (err == 0)
		settings_check_one(word + strlen(SETTINGS_PREFIX));
	return err;
}

void settings_check(void)
{
	for (char **e = environ; *e != NULL; e++)
		if (settings_is_one(*e))
			settings_check_one(*e + strlen(SETTINGS_PREFIX));
}
