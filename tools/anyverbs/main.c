/* main.c: the `anyverbs` command: finds the subcommand and gives help.
 * In:    arguments            Out: an exit code
 * Runs:  the only thread      Locks: none
 */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "command.h"

static int main_version(int argc, char **argv);
static int main_help(int argc, char **argv);

static const struct {
	const char *name;
	int (*fn)(int argc, char **argv);
	const char *summary, *help;
} main_commands[] = {
	{ "run", command_run, "run a program on anyverbs",
	  "usage: anyverbs run [--host HOST] [--rsockets] [NAME=VALUE...] [--] PROGRAM\n"
	  "                    [ARGUMENT...]\n"
	  "\n"
	  "Runs PROGRAM, unmodified, with anyverbs' libibverbs and librdmacm in front of the\n"
	  "system's.\n"
	  "Starts the node if none is up; the node ends when it is idle.\n"
	  "\n"
	  "  --host HOST  run it on a host of the fabric (`anyverbs fabric`)\n"
	  "  --rsockets  carry PROGRAM's TCP connections over RDMA, where the peer does so, too\n"
	  "  NAME=VALUE  a setting (see `anyverbs help settings`), also for a node that starts\n"
	  "\n"
	  "Exit codes: PROGRAM's; 126 if it cannot be run, 127 if it is not found.\n" },
	{ "status", command_status, "show the node, its device and its processes",
	  "usage: anyverbs status [--json | --prometheus]\n"
	  "\n"
	  "Shows the running node: its devices with port state and GIDs, the state of UDP\n"
	  "port 4791 of each address, and the attached processes. It does not start a node.\n"
	  "--prometheus prints all figures in Prometheus' text format: anyverbs_up is 0 if no\n"
	  "node is up.\n"
	  "\n"
	  "Exit codes: 0, or 1 if no node is up (with --json: {\"running\": false}).\n" },
	{ "top", command_top, "watch processes, queue pairs, rates, errors and drops",
	  "usage: anyverbs top [--interval S] [--view VIEW] [--sort COLUMN] [--filter TEXT]\n"
	  "                    [--once | --json]\n"
	  "\n"
	  "A live table of what happens per second: processes, queue pairs, devices, drops by\n"
	  "reason. Keys: h explains them, q quits. It waits while no node is up.\n"
	  "\n"
	  "  --interval S    between two looks, 0.1 to 3600 seconds (default: 1)\n"
	  "  --view VIEW     processes, qps, devices or drops\n"
	  "  --sort COLUMN   by its title or JSON key; numbers begin with the greatest\n"
	  "  --filter TEXT   only rows that contain it\n"
	  "  --once          print one table, of one interval, without control sequences\n"
	  "  --json          print all four tables, of one interval, as JSON\n"
	  "\n"
	  "NO_COLOR=1 switches colours off.\n"
	  "\n"
	  "Exit codes: 0; with --once or --json 1 if no node is up; 2 without a terminal.\n" },
	{ "qp", command_qp, "explain one queue pair of a process",
	  "usage: anyverbs qp PID QPN\n"
	  "\n"
	  "Explains the queue pair QPN (0x4011, say; `anyverbs top` lists them) of the process\n"
	  "PID in words: its state and what that means, its peer and the peer's state, its\n"
	  "GIDs and MTU, what the peer may do, messages, errors, drops of its process.\n"
	  "\n"
	  "Exit codes: 0; 1 if there is no such process or queue pair.\n" },
	{ "port", command_port, "take the device's port down, or up again",
	  "usage: anyverbs port [DEVICE] up|down\n"
	  "\n"
	  "Sets the state of the port of DEVICE (default: roce0), like a cable that is pulled\n"
	  "or plugged in. Otherwise it follows the links of the interfaces. Programs get\n"
	  "IBV_EVENT_PORT_ERR and IBV_EVENT_PORT_ACTIVE. A port that is down passes no packet,\n"
	  "not even between processes of this host: datagrams are lost, RC connections\n"
	  "retransmit until their retries are used up. Starts the node if none is up. The\n"
	  "state lasts as long as the node.\n"
	  "\n"
	  "Exit codes: 0, also if the port had that state; 1 if there is no such device.\n" },
	{ "device", command_device, "add a device, remove one, or list them",
	  "usage: anyverbs device add NAME | remove NAME | list\n"
	  "\n"
	  "A node starts with roce0 and the devices that ANYVERBS_DEVICES names.\n"
	  "add makes another one, named roce and a number, which every process sees at once.\n"
	  "remove takes one away, like an adapter that is unplugged; roce0 cannot be removed.\n"
	  "list prints each device with its GUID and its port's state.\n"
	  "add and remove start the node if none is up. A node that ends forgets added devices.\n"
	  "\n"
	  "Exit codes: 0; 1 if the device exists already (add), does not exist (remove), or\n"
	  "there is no room for another one.\n" },
	{ "capture", command_capture, "record packets for Wireshark",
	  "usage: anyverbs capture [--snaplen BYTES] [--count FRAMES] [--seconds S] FILE\n"
	  "\n"
	  "Records the packets of every process of the node as RoCEv2 frames into FILE (pcapng;\n"
	  "- is standard output). Local packets pass through memory: anyverbs(1) says which\n"
	  "of their header fields are made up.\n"
	  "Starts the node if none is up.\n"
	  "\n"
	  "  --snaplen BYTES  keep so many bytes of a frame, 64 to 65535 (default: all)\n"
	  "  --count FRAMES   end after so many\n"
	  "  --seconds S      end after so many (default of both: at Ctrl-C)\n"
	  "\n"
	  "Exit codes: 0; 1 if another capture runs, or FILE cannot be written. It ends by\n"
	  "SIGPIPE when the reader of a pipe leaves.\n" },
	{ "fabric", command_fabric, "bring an InfiniBand fabric up, show it, change it",
	  "usage: anyverbs fabric [--name NAME] VERB\n"
	  "\n"
	  "A fabric of InfiniBand switches and hosts, carried by a node of its own (NAME, default\n"
	  "fabric). `anyverbs run --host HOST` runs a program on one of its hosts.\n"
	  "\n"
	  "  up [--no-sm] [--topology SPEC | FILE]\n"
	  "                               make one: of SPEC (default star:2), or of a net file of\n"
	  "                               ibsim or the output of ibnetdiscover; --no-sm: without\n"
	  "                               a subnet manager of the node\n"
	  "  down [--force]               end it; with --force under the processes on its hosts\n"
	  "  show [--json|--dot|--svg]    its nodes, links, rates, states and errors\n"
	  "  hosts                        its hosts, with their ports' states and LIDs\n"
	  "  link NODE[:PORT] up|down     plug in or pull the cable of a port, or all of a node\n"
	  "  fail NODE                    pull all cables of a node\n"
	  "  reboot NODE                  restart a switch or adapter: its tables are lost\n"
	  "  error NODE:PORT COUNTER N    count N errors at a port\n"
	  "\n"
	  "SPEC: star:HOSTS, fat-tree:[PODSx]LEAVESxHOSTS, torus:SIZExSIZE..., mesh:SIZExSIZE...,\n"
	  "dragonfly:ROUTERSxHOSTSxGLOBAL[xGROUPS], random:SWITCHESxHOSTS; behind it, after\n"
	  "commas, radix=PORTS (36), speed=EDR, of torus and mesh hosts=N (of a switch), of\n"
	  "random seed=N.\n"
	  "NODE: a description or its first word (h17, leaf3), a GUID (0x...), or S-GUID.\n"
	  "COUNTER: symbol, link-recovery, link-downed, receive, receive-remote-physical,\n"
	  "receive-switch-relay, transmit-discards, transmit-constraint, receive-constraint,\n"
	  "local-integrity, buffer-overrun, vl15-dropped or transmit-wait.\n"
	  "\n"
	  "Exit codes: 0; 1 if no fabric is up, one is up already (up), or processes are on its\n"
	  "hosts (down).\n" },
	{ "ipoib", command_ipoib, "give a host of the fabric an IP interface",
	  "usage: anyverbs ipoib up --host HOST [--name IF] [--netns NS] [--address A/P]...\n"
	  "                         [--device DEV] [--port N] [--pkey K] [--foreground]\n"
	  "       anyverbs ipoib down --host HOST [--name IF]\n"
	  "       anyverbs ipoib status [--host HOST]\n"
	  "\n"
	  "IP over InfiniBand (RFC 4391): an interface of the kernel, in a network namespace,\n"
	  "whose packets go over the fabric (`anyverbs fabric`). It is there while its program\n"
	  "runs. Needs CAP_NET_ADMIN in that namespace: root, or `unshare -rn`.\n"
	  "\n"
	  "  up            makes it, and returns when it has a link\n"
	  "  --host HOST     the host of the fabric\n"
	  "  --name IF       the interface's name (ib0)\n"
	  "  --netns NS      a name of `ip netns`, a path, or a process' number (this one)\n"
	  "  --address A/P   an address of IPv4 or IPv6 and its prefix length; also by\n"
	  "                  `ip address`, at any time\n"
	  "  --device DEV    the host's adapter (ib0)\n"
	  "  --port N        the adapter's port (1)\n"
	  "  --pkey K        the partition (the port's first P_Key)\n"
	  "  --foreground    stays until Ctrl-C, then says what it has sent and dropped\n"
	  "  down          ends it: all of the host, or the one named\n"
	  "  status        lists them: state, program, MTU, addresses\n"
	  "\n"
	  "Exit codes: 0; 1 if there is no such host, device or right (up), or no such\n"
	  "interface (down).\n" },
	{ "stop", command_stop, "end the node",
	  "usage: anyverbs stop [--force]\n"
	  "\n"
	  "Ends the node, unless processes are attached or it carries a fabric. With --force it\n"
	  "ends even then: processes keep their connections and start another node, but a\n"
	  "fabric ends, and programs on its hosts lose their devices.\n"
	  "\n"
	  "Exit codes: 0, also if no node is up; 1 if processes are attached, or if it carries\n"
	  "a fabric.\n" },
	{ "version", main_version, "print the version", "usage: anyverbs version\n" },
	{ "help", main_help, "explain a command", "usage: anyverbs help [COMMAND|settings]\n" },
};

int command_fail(int code, const char *fmt, ...)
{
	va_list args;

	fputs("anyverbs: ", stderr);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	return code;
}

static int main_overview(FILE *out)
{
	fputs("usage: anyverbs COMMAND [ARGUMENT...]\n\n"
	      "RDMA verbs on any Linux machine, without an adapter.\n\n",
	      out);
	for (size_t i = 0; i < ARRAY_LEN(main_commands); i++)
		fprintf(out, "  %-8s %s\n", main_commands[i].name, main_commands[i].summary);
	fputs("\n`anyverbs COMMAND --help` explains a command, `anyverbs help settings` the\n"
	      "variables. ANYVERBS_NODE chooses among the nodes of a machine;\n"
	      "ANYVERBS_LOG=error|warn|info|debug prints messages.\n",
	      out);
	return EXIT_OK;
}

static int main_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(main_commands); i++)
		if (strcmp(main_commands[i].name, name) == 0)
			return (int)i;
	return -1;
}

static int main_version(int argc, char **argv)
{
	if (argc > 0)
		return command_fail(EXIT_USAGE, "version takes no arguments");
	puts("anyverbs " AV_VERSION);
	return EXIT_OK;
}

static int main_help(int argc, char **argv)
{
	int i;

	if (argc == 0)
		return main_overview(stdout);
	if (argc == 1 && strcmp(argv[0], "settings") == 0) {
		settings_show(stdout);
		return EXIT_OK;
	}
	if (argc > 1)
		return command_fail(EXIT_USAGE, "help explains one command, or settings");
	i = main_find(argv[0]);
	if (i < 0)
		return command_fail(EXIT_USAGE, "no command %s; see `anyverbs help`", argv[0]);
	fputs(main_commands[i].help, stdout);
	return EXIT_OK;
}

static bool main_asks_help(const char *word)
{
	return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

int main(int argc, char **argv)
{
	int i, code;

	if (argc < 2) {
		main_overview(stderr);
		return EXIT_USAGE;
	}
	if (main_asks_help(argv[1]))
		return main_overview(stdout);
	i = main_find(strcmp(argv[1], "--version") == 0 ? "version" : argv[1]);
	if (i < 0)
		return command_fail(EXIT_USAGE, "no command %s; see `anyverbs help`", argv[1]);
	/* also behind a verb; behind a program's name the word is the program's */
	if ((argc > 2 && main_asks_help(argv[2])) ||
	    (argc > 3 && main_asks_help(argv[3]) && main_commands[i].fn != command_run))
		return main_help(1, (char *[]){ (char *)main_commands[i].name, NULL });
	settings_check();
	code = main_commands[i].fn(argc - 2, argv + 2);
	if (fflush(stdout) != 0)
		return command_fail(EXIT_FAILED, "cannot write the output: %s", strerror(errno));
	if (ferror(stdout))
		return command_fail(EXIT_FAILED, "cannot write the output");
	return code;
}
