/* sm_priv.h: what the files of the subnet manager share.
 */
#ifndef SM_SM_PRIV_H
#define SM_SM_PRIV_H

#include "fabric/format.h"
#include "sm/sm.h"

enum {
	SM_SMPS = 64,
	SM_SMPS_MAX = 256,
	SM_TRIES = 3, /* of an SMP */
	SM_BATCH = 256, /* MADs of one sm_run */
	SM_NODES_MAX = 1 << 16,
	SM_LIDS = FABRIC_MLID_FIRST,
	SM_LFT_BLOCK = 64,
	SM_MFT_BLOCK = 32,
	SM_NO_PORT = 255,
	SM_PEERS = 16, /* other SMs that it remembers */
	SM_REPLIES = 4096, /* MADs that wait to be sent */
	SM_MASTER_PATIENCE = 5, /* polls of an SM that is not the master */
};
#define SM_NONE UINT32_MAX
#define SM_MS 1000000ull
#define SM_S 1000000000ull
#define SM_QKEY 0x80010000u
#define SM_PKEY 0xffff
#define SM_PREFIX 0xfe80000000000000ull

/* Where fields of PortInfo lie (IBA vol 1, 14.2.5.6). */
enum sm_portinfo_at {
	PI_MKEY = 0,
	PI_PREFIX = 8,
	PI_LID = 16,
	PI_SM_LID = 18,
	PI_CAPS = 20,
	PI_WIDTH_ENABLED = 29,
	PI_WIDTH = 31,
	PI_STATE = 32, /* low half; high: LinkSpeedSupported */
	PI_PHYS = 33,  /* high half; low: LinkDownDefaultState */
	PI_LMC = 34,
	PI_SPEED = 35,	/* high half; low: LinkSpeedEnabled */
	PI_MTU = 36,	/* high half; low: MasterSMSL */
	PI_VL_CAP = 37, /* high half */
	PI_MTU_CAP = 41, /* low half */
	PI_VLS = 43,	 /* high half; low: P_Key enforcement, raw filters */
	PI_SUBNET_TIMEOUT = 51, /* low 5 bits; highest: ClientReregister */
	PI_SPEED_EXT = 62,	/* high half */
	PI_SPEED_EXT_ENABLED = 63,
	PI_REREGISTER = 0x80,
	PI_ENFORCE = 0x0c,
	PI_CAP_SM = 1 << 1,
};

/* ---- a table from 64-bit keys to numbers (map.c) ----------------------------------------- */

struct sm_map {
	u64 *key; /* 0: no entry */
	u32 *value;
	u32 room, count; /* room: a power of two, or 0 */
} OWNED_BY(the SM);

/* SM_NONE: no such key. */
u32 sm_map_get(const struct sm_map *m, u64 key);
/* False: no memory, or key 0. */
bool sm_map_put(struct sm_map *m, u64 key, u32 value);
void sm_map_free(struct sm_map *m);

/* ---- the subnet as a sweep has found it (subnet.c) --------------------------------------- */

struct sm_port {
	u64 guid; /* of a port that has a LID of its own; else 0 */
	u32 peer; /* node at the other end; SM_NONE */
	u8 peer_port;
	bool read;   /* `info` is there */
	bool probed; /* its other end has been asked for */
	u16 lid;
	u8 info[MAD_SMP_DATA]; /* PortInfo */
} OWNED_BY(the SM);

struct sm_node {
	u64 guid;
	u8 type, ports;
	u8 up; /* the port towards the SM */
	u32 sw; /* among the switches; SM_NONE */
	u8 info[40]; /* NodeInfo */
	u8 desc[FABRIC_DESC];
	u8 switch_info[24];
	struct sm_port *port; /* 0 to ports */
	/* A switch's tables: what it has, but for dirty blocks. */
	u8 *lft, *lft_dirty;
	u32 lft_blocks;
	u16 *mft; /* [block][position][SM_MFT_BLOCK] */
	u8 *mft_dirty; /* two bytes of a block: a bit for each position */
	u32 mft_blocks;
} OWNED_BY(the SM);

struct sm_subnet {
	struct sm_node *node; /* 0: the SM's own */
	u32 nodes, room;
	u8 root_port; /* the SM's port */
	u32 *sw; /* nodes that are switches */
	u32 switches;
	struct sm_map by_guid; /* nodes */
	struct sm_map by_port; /* GUID of a port: sm_at(node, port) */
	u32 by_lid[SM_LIDS];   /* sm_at + 1; 0: none */
	u16 lid_top;
	bool flawed; /* something did not answer, or made no sense */
} OWNED_BY(the SM);

static inline u32 sm_at(u32 node, u8 port)
{
	return node << 8 | port;
}

static inline u32 sm_at_node(u32 at)
{
	return at >> 8;
}

static inline u8 sm_at_port(u32 at)
{
	return (u8)at;
}

struct sm_subnet *sm_subnet_new(void);
void sm_subnet_free(struct sm_subnet *s);
/* SM_NONE: no memory, or too many. */
u32 sm_subnet_add(struct sm_subnet *s, const u8 *node_info);
/* Fills the initial path of a directed route to the node; of a CA by its port. Returns the hops,
 * or -1. */
int sm_subnet_way(const struct sm_subnet *s, u32 node, u8 port, u8 path[64]);
/* The port that has the LID of this one: a switch's port 0. */
static inline u8 sm_home(const struct sm_node *n, u8 port)
{
	return n->type == FABRIC_SWITCH ? 0 : port;
}
/* Does the port have a LID of its own, and has it been read? */
static inline bool sm_is_home(const struct sm_node *n, u32 port)
{
	return n->port[port].read && (n->type == FABRIC_SWITCH ? port == 0 : port != 0);
}
static inline u8 sm_port_state(const struct sm_port *p)
{
	return p->info[PI_STATE] & 15;
}
/* Makes the indices of what has a LID, once. False: no memory. */
bool sm_subnet_index(struct sm_subnet *s);
/* The port with a GUID, or a LID; NULL: none. *at: where it is. */
struct sm_port *sm_subnet_find_guid(const struct sm_subnet *s, u64 guid, u32 *at);
struct sm_port *sm_subnet_find_lid(const struct sm_subnet *s, u16 lid, u32 *at);

/* ---- SMPs (smp.c) ------------------------------------------------------------------------ */

enum sm_kind {
	SM_ASK_ROOT,	/* NodeInfo of the SM's own node */
	SM_ASK_PEER,	/* NodeInfo of what is behind a port */
	SM_ASK_DESC,
	SM_ASK_SWITCH,
	SM_ASK_PORT,
	SM_ASK_SM,	/* SMInfo */
	SM_ASK_PKEYS,
	SM_SET_PORT,
	SM_SET_STATE,	/* PortState ACTIVE */
	SM_SET_SWITCH,
	SM_SET_LFT,	/* arg: block */
	SM_SET_MFT,	/* arg: block << 8 | position */
	SM_SET_PKEYS,
	SM_SET_HANDOVER,
	SM_LOOK_SWITCH, /* SwitchInfo, in a light sweep */
	SM_LOOK_PORT,	/* the SM's own PortInfo, in a light sweep */
};

/* One SMP to be sent. */
struct sm_item {
	u32 node;
	u32 arg;
	u8 port;
	u8 kind; /* enum sm_kind */
} OWNED_BY(the SM);

struct sm_smp {
	bool used;
	u8 tries; /* that have been sent */
	struct sm_item item;
	u64 tid, due_ns;
	struct fabric_mad mad;
} OWNED_BY(the SM);

struct sm_item_queue {
	struct sm_item *item; /* a ring of `room`, a power of two */
	u32 room, head, count;
} OWNED_BY(the SM);

/* ---- other SMs (manager.c) --------------------------------------------------------------- */

struct sm_peer {
	u64 guid;
	u32 node;
	u8 port;
	u8 priority, state;
} OWNED_BY(the SM);

enum sm_phase {
	SM_IDLE,
	SM_DISCOVER,
	SM_CONFIGURE, /* LIDs, and links to ARMED */
	SM_ROUTE,     /* tables are computed */
	SM_TABLES,    /* and set */
	SM_TREES,     /* multicast */
	SM_ACTIVATE,
	SM_LIGHT,
	SM_POLL,
	SM_HANDOVER,
};

/* ---- the SA (sa.c and others) ------------------------------------------------------------ */

struct sm_sa;

/* ---- the SM ------------------------------------------------------------------------------ */

struct sm {
	const struct sm_ops *ops;
	void *arg;
	struct sm_config config;
	/* SMPs */
	struct sm_item_queue queue;
	struct sm_smp *smp; /* config.smps */
	u32 in_flight;
	u64 sequence; /* of transaction IDs */
	u64 smp_due_ns; /* the first timeout, or earlier */
	/* MADs that answer: a ring of SM_REPLIES */
	struct fabric_mad *reply;
	u32 reply_head, reply_count, reply_room;
	/* sweeps */
	enum sm_phase phase;
	struct sm_subnet *subnet; /* the latest whose discovery has ended; NULL before the first */
	struct sm_subnet *next;	  /* while it is discovered */
	u32 route_next; /* the switch that the computation has come to */
	u32 *load; /* of SM_ROUTE: paths by each port of each switch */
	bool sweeping; /* the phases are those of a sweep */
	/* It has become the master, or was handed a fabric: until a sweep without flaw it writes
	 * every table, reads P_Keys, and asks ports to register again. */
	bool fresh;
	bool wanted; /* another sweep, soon */
	u64 wanted_ns; /* not before */
	u64 sweep_began_ns, sweep_ended_ns;
	u64 light_due_ns;   /* of a light sweep, or of a look at other SMs alone */
	u64 light_whole_ns; /* of a light sweep of all switches */
	u64 backoff_ns; /* after a flawed sweep */
	/* LIDs: who had which, since the SM began */
	u32 lid_end FIXED; /* behind the last that it gives out */
	u64 *lid_guid;	/* by LID */
	u32 *lid_stamp; /* the sweep that has given it out */
	u32 lid_sweep;
	struct sm_map lid_of; /* by the port's GUID */
	/* other SMs */
	enum sm_state state;
	struct sm_peer peer[SM_PEERS]; /* of the latest discovery */
	u32 peers;
	struct sm_peer master; /* whom a standby polls */
	u32 polls_bad;
	bool impatient; /* no master has come: it becomes one */
	u64 shunned, shunned_until_ns; /* an SM that did not become the master */
	u64 poll_due_ns;
	u32 act_count;
	u64 guid; /* of the SM's port; 0: not known yet */
	u64 asked_ns; /* until then no question of others leads to a sweep */
	/* multicast */
	bool trees_stale;
	struct sm_sa *sa;
	struct sm_report report;
} OWNED_BY(the thread of the host);

static inline u64 sm_now(const struct sm *sm)
{
	return sm->ops->now_ns(sm->arg);
}

/* smp.c */
void sm_push(struct sm *sm, enum sm_kind kind, u32 node, u8 port, u32 arg);
/* Sends SMPs as far as *budget and what may be in flight permit. */
void sm_smp_send(struct sm *sm, u32 *budget);
/* Repeats, and gives up, those without an answer. */
void sm_smp_expire(struct sm *sm, u32 *budget);
bool sm_smp_receive(struct sm *sm, const struct fabric_mad *m);
/* Forgets all that wait and all in flight. */
void sm_smp_clear(struct sm *sm);
u64 sm_smp_due_ns(const struct sm *sm);
/* The subnet that SMPs go through now. */
struct sm_subnet *sm_here(struct sm *sm);
/* Has a MAD sent as an answer. */
void sm_reply(struct sm *sm, const struct fabric_mad *m);

/* What comes of an item: `data` is the answer's, NULL: there was none, or with an error.
 * status: of the answer, or STATUS_NONE. */
struct sm_answer {
	struct sm_item item;
	const u8 *data;
	u16 status;
} OWNED_BY(the SM);

/* sweep.c */
void sm_sweep_begin(struct sm *sm);
/* A sweep is wanted, `delay_ns` from now at the earliest. */
void sm_sweep_want(struct sm *sm, u64 delay_ns);
/* All that the phase had to send has been answered. */
void sm_sweep_step(struct sm *sm);
/* Begins what is due while nothing is in progress. */
void sm_sweep_idle(struct sm *sm);
u64 sm_sweep_due_ns(const struct sm *sm);
/* Goes on as the master with what has been discovered. */
void sm_sweep_configure(struct sm *sm);
void sm_sweep_light(struct sm *sm, const struct sm_answer *a);

/* discover.c */
void sm_discover(struct sm *sm, const struct sm_answer *a);

/* lid.c */
bool sm_lid_init(struct sm *sm);
void sm_lid_destroy(struct sm *sm);
/* Gives each port of the subnet its LID. */
void sm_lid_assign(struct sm *sm, struct sm_subnet *s);

/* routes.c */
/* Takes over the tables of the subnet before. False: no memory. */
bool sm_routes_begin(struct sm *sm, struct sm_subnet *s, struct sm_subnet *before);
/* Does a part of the computation. True: it has ended. */
bool sm_routes_go_on(struct sm *sm);

/* config.c */
void sm_config_ports(struct sm *sm);
void sm_config_tables(struct sm *sm);
void sm_config_activate(struct sm *sm);
void sm_config_answer(struct sm *sm, const struct sm_answer *a);
/* Fills an SMP's data; false: there is nothing to set any more. */
bool sm_config_fill(struct sm *sm, const struct sm_item *it, u8 *data, u32 *modifier);

/* tree.c */
void sm_trees_push(struct sm *sm);

/* manager.c */
/* The discovery has ended: who is the master? */
void sm_manager_decide(struct sm *sm);
void sm_manager_note(struct sm *sm, const struct sm_answer *a);
void sm_manager_polled(struct sm *sm, const struct sm_answer *a);
void sm_manager_handed_over(struct sm *sm, const struct sm_answer *a);
/* Is there an SM that may become the master soon? */
bool sm_manager_expects(const struct sm *sm);
/* The light sweep of a master has ended. */
void sm_manager_look(struct sm *sm);
/* SMInfo of another SM: Get, Set. */
void sm_manager_receive(struct sm *sm, const struct fabric_mad *m);
/* Fills SMInfo. */
void sm_manager_info(struct sm *sm, u8 *d);
void sm_manager_state(struct sm *sm, enum sm_state state);

/* trap.c */
void sm_trap_receive(struct sm *sm, const struct fabric_mad *m);

/* sa.c */
struct sm_sa *sm_sa_new(void);
void sm_sa_free(struct sm_sa *sa);
/* False: it is not for an SA. */
bool sm_sa_receive(struct sm *sm, const struct fabric_mad *m);
u64 sm_sa_due_ns(const struct sm *sm);
/* Tells subscribers of a trap: the 64 bytes of a Notice. */
void sm_sa_notice(struct sm *sm, const u8 *notice);
void sm_sa_run(struct sm *sm);
/* Memberships, subscriptions and services are lost: another SM is the master, or was. */
void sm_sa_forget(struct sm *sm);
/* The subnet is another one now; `before` is about to go. */
void sm_sa_subnet_changed(struct sm *sm, const struct sm_subnet *before);

#endif
