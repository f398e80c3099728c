/* topo.h: the topology of an InfiniBand fabric: its switches, channel adapters and routers, and the
 * cables between their ports. Pure functions: text in, arrays out.
 *
 * file        | has
 * ------------|-------------------------------------------------------------------
 * topo.c      | nodes, ports, cables: adding, connecting, finding, freeing
 * lexer.c     | words of a text, each with its line and column
 * parse.c     | ibsim's net format, which ibnetdiscover writes, too
 * cables.c    | what cables' lines say, until all nodes are known; names.c finds those
 * spec.c      | the words of a generator: "fat-tree:8x16,speed=HDR"
 * tree.c      | star and fat trees
 * grid.c      | tori and meshes
 * dragonfly.c | groups of switches, each cabled to all others
 * random.c    | connected graphs from a seed
 *
 * A *node* here is a switch, a CA or a router. A *host* is all CAs whose description begins with
 * its name as the first word: "h17 ib0", "h17 ib1".
 */
#ifndef FABRIC_TOPO_TOPO_H
#define FABRIC_TOPO_TOPO_H

#include "base/compiler.h"

enum {
	TOPO_ID_BYTES = 33,   /* with the NUL */
	TOPO_DESC_BYTES = 65, /* with the NUL; a NodeDescription has 64 bytes */
	TOPO_HOST_BYTES = 64, /* with the NUL */
	TOPO_PORTS_MAX = 254, /* of one node: port numbers are 1 to 254 */
	TOPO_NODES_MAX = 1 << 16,
	TOPO_ALL_PORTS_MAX = 1 << 21,
	TOPO_TEXT_MAX = 64 << 20, /* bytes */
	TOPO_MESSAGE_BYTES = 160,
};

/* No cable, no node. */
#define TOPO_NONE UINT32_MAX

/* NodeInfo's NodeType. */
enum fabric_node_type { FABRIC_CA = 1, FABRIC_SWITCH = 2, FABRIC_ROUTER = 3 };

/* PortInfo's LinkWidthActive. */
enum topo_width { TOPO_1X = 1, TOPO_4X = 2, TOPO_8X = 4, TOPO_12X = 8, TOPO_2X = 16 };

/* Of one lane, in ascending order, for LinkSpeedActive and LinkSpeedExtActive. */
enum topo_speed {
	TOPO_SDR,
	TOPO_DDR,
	TOPO_QDR,
	TOPO_FDR10,
	TOPO_FDR,
	TOPO_EDR,
	TOPO_HDR,
	TOPO_NDR,
	TOPO_SPEEDS
};

struct topo_node {
	enum fabric_node_type type;
	u8 ports;	  /* numbers 1 to ports; a switch has port 0, too */
	bool enhanced;	  /* a switch whose port 0 is enhanced */
	u16 device_id;
	u32 vendor_id;
	u64 guid, sys_guid;
	u32 first_port;	  /* port n is topo.ports[first_port + n], 0 to ports */
	char id[TOPO_ID_BYTES];	    /* unique: "S-0002c90200000001", or the name in a net file */
	char desc[TOPO_DESC_BYTES]; /* NodeDescription */
} FIXED;

struct topo_port {
	/* unique; of a switch's port 0 the node's; 0 for a switch's others and a CA's 0 */
	u64 guid;
	u32 link; /* of topo.links, or TOPO_NONE */
} FIXED;

/* A cable. */
struct topo_link {
	u32 node_a, node_b;
	u8 port_a, port_b;
	u8 width; /* enum topo_width */
	u8 speed; /* enum topo_speed */
} FIXED;

struct topo {
	u32 node_count, port_count, link_count;
	u32 node_room, port_room, link_room; /* allocated */
	struct topo_node *nodes;
	struct topo_port *ports;
	struct topo_link *links;
} FIXED;

/* Where a text is wrong, and how: for a person. */
struct topo_error {
	u32 line, column; /* from 1; line 0: no place in particular */
	char message[TOPO_MESSAGE_BYTES];
} OWNED_BY(the caller);

/* All functions that return int return 0 or a negative errno: -EINVAL (*e says where and why),
 * -ENOMEM, -E2BIG (more nodes or ports than above). On failure *out is empty. */

/* Reads ibsim's net format and the output of ibnetdiscover. */
int topo_parse(const char *text, size_t bytes, struct topo *out, struct topo_error *e);
/* Makes a topology of a generator's words. Hosts are h1, h2, ..., with one CA ib0 each. */
int topo_generate(const char *spec, struct topo *out, struct topo_error *e);
void topo_free(struct topo *t);

/* For makers of topologies. `t` begins as zeros. *node is the new node's index. */
int topo_add(struct topo *t, const struct topo_node *n, u32 *node);
/* -EBUSY: one of the ports has a cable. -EINVAL: no such port, or both are the same one. */
int topo_connect(struct topo *t, const struct topo_link *l);

const struct topo_port *topo_port(const struct topo *t, u32 node, u8 port);
/* The other end of a port's cable; false: it has none. */
bool topo_peer(const struct topo *t, u32 node, u8 port, u32 *peer, u8 *peer_port);
/* The node with this id, GUID ("0x2c9..."), description, or, for a switch or a host with one CA,
 * first word of the description. TOPO_NONE: none, or several. Walks all nodes. */
u32 topo_find(const struct topo *t, const char *name);
/* The first word of a CA's description. */
void topo_host(const struct topo_node *n, char host[TOPO_HOST_BYTES]);

const char *topo_speed_name(enum topo_speed s);
unsigned topo_width_lanes(enum topo_width w);

#endif
