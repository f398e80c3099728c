/* host_fuzz.c: what the kernel may answer about interfaces and addresses, and what ANYVERBS_ADDR,
 * ANYVERBS_NODE may say, up to the adapter's configuration.
 *
 * The input is two texts and packets of rtnetlink. The table of GIDs must stay one: names end, no
 * address is there twice, GID 1 is not empty.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <unistd.h>

#include "input.h"
#include "node/address.h"
#include "daemon/config.h"

enum { TEXT = 255 };

static struct input in;
static struct node_config config;
static struct config_links links;

ssize_t __wrap_recv(int fd, void *to, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *data, size_t size, int flags);

/* The next packet: its length in words, its type, then what follows. `type` makes the first
 * message right. */
ssize_t __wrap_recv(int fd, void *to, size_t size, int flags)
{
	static const u16 types[] = { RTM_NEWLINK, RTM_NEWADDR, NLMSG_DONE };
	u8 words = input_u8(&in), type = input_u8(&in);
	size_t length = MIN((size_t)words * 4, size);

	if (in.left == 0) {
		errno = EAGAIN;
		return -1;
	}
	input_bytes(&in, to, length);
	if (type < 2 * ARRAY_LEN(types) && length >= sizeof(struct nlmsghdr)) {
		struct nlmsghdr *m = to;

		m->nlmsg_type = types[type % ARRAY_LEN(types)];
		m->nlmsg_flags = NLM_F_MULTI;
		if (type < ARRAY_LEN(types))
			m->nlmsg_len = (u32)length;
	}
	return (ssize_t)length;
}

ssize_t __wrap_send(int fd, const void *data, size_t size, int flags)
{
	return (ssize_t)size;
}

static void fuzz_text(char text[TEXT + 1])
{
	u8 length = input_u8(&in);

	memset(text, 0, TEXT + 1);
	input_bytes(&in, text, length);
}

static bool fuzz_mine(void *arg, const u8 gid[16], u32 ifindex)
{
	return gid[15] % 8 != 7;
}

static void fuzz_check(const struct node_config *c)
{
	static const u8 none[16];

	fuzz_need(memcmp(c->gids[1].gid, none, 16) != 0, "GID 1 is empty");
	for (int i = 0; i < NODE_GIDS; i++) {
		const struct node_gid *g = &c->gids[i];

		fuzz_need(memchr(g->ifname, '\0', sizeof(g->ifname)) != NULL, "a name without end");
		if (memcmp(g->gid, none, 16) == 0)
			continue;
		fuzz_need(g->mtu >= 256 && g->mtu <= 4096, "no MTU of InfiniBand");
		/* GIDs 0 and 1 are never empty: one may keep its index elsewhere as well */
		for (int k = 0; k < i; k++)
			fuzz_need(k <= 1 || memcmp(g->gid, c->gids[k].gid, 16) != 0,
				  "an address twice");
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	handles_open();
	return 0;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	static struct host host;
	static struct config_told told;
	struct node_config fresh;
	char address[TEXT + 1], name[TEXT + 1], node[NODE_NAME_MAX];
	struct config_source s = { .host = &host,
				   .node = "default",
				   .device = "roce0",
				   .id = 1,
				   .told = &told,
				   .first = true,
				   .mine = fuzz_mine };

	in = (struct input){ data, size };
	fuzz_text(address);
	fuzz_text(name);
	setenv("ANYVERBS_NODE", name, 1);
	if (address_node_name(node) == 0)
		s.node = node;
	config_parse_told(address, &told);
	s.first = name[0] % 2 == 0;
	fuzz_need(told.count <= NODE_GIDS, "more addresses than there is room for");
	memset(&config, 0, sizeof(config));
	memset(&links, 0, sizeof(links));
	for (int look = 0; look < 3; look++) {
		host_read(&host);
		fuzz_need(host.link_count <= HOST_INTERFACES &&
				  host.address_count <= HOST_ADDRESSES,
			  "more than there is room for");
		config_fill(&fresh, &s);
		fuzz_check(&fresh);
		config_link(&links, &s);
		if (look == 0)
			config = fresh;
		else
			config_merge(&config, &fresh);
		fuzz_check(&config);
	}
	return 0;
}
