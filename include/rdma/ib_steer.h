/* ib_steer.h: raw packet queue pairs' receive side: flow rules that steer frames, receive work
 * queues, and tables that spread frames over them.
 *
 * A raw packet queue pair (IB_QPT_RAW_PACKET) sends and receives whole Ethernet frames without
 * FCS. It receives what a flow rule of its own gives it, and nothing else. Its frames go to its own
 * receive queue, or, if it was created with an indirection table, to one of the table's work
 * queues, which a hash of the frame's fields chooses.
 *
 * Results, contexts and the rule of versions as in ib_extended.h.
 */
#ifndef IB_STEER_H
#define IB_STEER_H

#include <rdma/ib_verbs.h>

/* ---- counters -------------------------------------------------------------------------------- */

enum ib_counters_description {
	IB_COUNTER_PACKETS, /* frames */
	IB_COUNTER_BYTES, /* of these frames */
};
enum { IB_COUNTER_KINDS = 2 };

/* What the flow rules that name it have taken. Drivers embed it. */
struct ib_counters {
	struct ib_device *device;
	int usecnt; /* flow rules that name it */
};

/* Creates counters of 0. May block. ERR_PTR: -EOPNOTSUPP (the device has none), -ENOMEM. */
AV_EXPORT struct ib_counters *ib_create_counters(struct ib_device *device);
/* 0; -EBUSY: a flow rule names them, and they stay. */
AV_EXPORT int ib_destroy_counters(struct ib_counters *counters);
/* Writes the values by enum ib_counters_description. They never fall. 0 or the driver's errno. */
AV_EXPORT int ib_read_counters(struct ib_counters *counters, u64 values[IB_COUNTER_KINDS]);

/* ---- flow rules ------------------------------------------------------------------------------ */

enum ib_flow_attr_type {
	IB_FLOW_ATTR_NORMAL, /* frames that all specifications match */
	IB_FLOW_ATTR_ALL_DEFAULT, /* frames that no rule takes */
	IB_FLOW_ATTR_MC_DEFAULT, /* multicast frames that no NORMAL rule takes */
	IB_FLOW_ATTR_SNIFFER, /* a copy of each frame that the port receives */
};

enum ib_flow_flags {
	/* Of a NORMAL rule: the frame goes on to rules of higher priority values. */
	IB_FLOW_ATTR_FLAGS_DONT_TRAP = 1 << 1,
	IB_FLOW_ATTR_FLAGS_EGRESS = 1 << 2,
};

enum ib_flow_spec_type {
	IB_FLOW_SPEC_ETH = 0x20,
	IB_FLOW_SPEC_IPV4 = 0x30,
	IB_FLOW_SPEC_IPV6 = 0x31,
	IB_FLOW_SPEC_IPV4_EXT = 0x32,
	IB_FLOW_SPEC_ESP = 0x34,
	IB_FLOW_SPEC_TCP = 0x40,
	IB_FLOW_SPEC_UDP = 0x41,
	IB_FLOW_SPEC_VXLAN_TUNNEL = 0x50,
	IB_FLOW_SPEC_GRE = 0x51,
	IB_FLOW_SPEC_MPLS = 0x60,
	IB_FLOW_SPEC_INNER = 0x100,
	IB_FLOW_SPEC_ACTION_TAG = 0x1000,
	IB_FLOW_SPEC_ACTION_DROP = 0x1001,
	IB_FLOW_SPEC_ACTION_HANDLE = 0x1002,
	IB_FLOW_SPEC_ACTION_COUNT = 0x1003,
};

enum { IB_FLOW_SPEC_LAYERS = 10 }; /* specifications of one rule, at most */

/* Fields in network order. A bit that the mask does not name matches any. The layouts are those of
 * libibverbs. */
struct ib_flow_eth_filter {
	u8 dst_mac[6];
	u8 src_mac[6];
	u16 ether_type; /* behind the last VLAN tag */
	u16 vlan_tag;
};

struct ib_flow_ipv4_filter {
	u32 src_ip;
	u32 dst_ip;
	/* With IB_FLOW_SPEC_IPV4_EXT only. */
	u8 proto;
	u8 tos;
	u8 ttl;
	u8 flags; /* 2: do not fragment; 4: more fragments */
};

struct ib_flow_ipv6_filter {
	u8 src_ip[16];
	u8 dst_ip[16];
	u32 flow_label;
	u8 next_hdr;
	u8 traffic_class;
	u8 hop_limit;
	u8 reserved;
};

struct ib_flow_tcp_udp_filter {
	u16 dst_port;
	u16 src_port;
};

union ib_flow_filter {
	struct ib_flow_eth_filter eth;
	struct ib_flow_ipv4_filter ipv4;
	struct ib_flow_ipv6_filter ipv6;
	struct ib_flow_tcp_udp_filter tcp_udp;
};

struct ib_flow_spec {
	enum ib_flow_spec_type type;
	struct ib_counters *counters; /* with IB_FLOW_SPEC_ACTION_COUNT only, which has no filter */
	union ib_flow_filter val;
	union ib_flow_filter mask;
};

struct ib_flow_attr {
	u32 size;
	enum ib_flow_attr_type type;
	u16 priority; /* a lower value is tried first */
	u8 num_of_specs;
	u8 port;
	u32 flags; /* enum ib_flow_flags */
	struct ib_flow_spec specs[IB_FLOW_SPEC_LAYERS];
};

/* Drivers embed it. */
struct ib_flow {
	struct ib_device *device;
	struct ib_qp *qp;
	struct ib_counters *counters; /* NULL: none */
};

/* Gives the queue pair the frames that the rule describes, from the return of this call on. The
 * queue pair and the counters cannot be destroyed before the rule. May block. ERR_PTR: -EINVAL
 * (size, type, port, flags, a specification twice or against another one, counters of another
 * device, a queue pair of another type), -EOPNOTSUPP
 * (the device has no rules, or lacks a specification or flag), -EPERM, -ENOMEM. */
AV_EXPORT struct ib_flow *ib_create_flow(struct ib_qp *qp, const struct ib_flow_attr *attr);
/* No frame comes by the rule any more when this returns. May block. 0 or the driver's errno. */
AV_EXPORT int ib_destroy_flow(struct ib_flow *flow);

/* ---- receive work queues --------------------------------------------------------------------- */

enum ib_wq_type { IB_WQT_RQ };
enum ib_wq_state { IB_WQS_RESET, IB_WQS_RDY, IB_WQS_ERR };
enum ib_wq_attr_mask {
	IB_WQ_STATE = 1 << 0,
	IB_WQ_CUR_STATE = 1 << 1,
	IB_WQ_FLAGS = 1 << 2,
};

struct ib_wq_init_attr {
	u32 size;
	enum ib_wq_type wq_type;
	u32 max_wr; /* in and out, as is the next */
	u32 max_sge;
	struct ib_cq *cq;
	u32 create_flags; /* none is defined; a driver refuses what it does not know */
};

struct ib_wq_attr {
	u32 size;
	enum ib_wq_state wq_state;
	enum ib_wq_state curr_wq_state; /* the call fails in any other state */
	u32 flags;
	u32 flags_mask;
};

/* A receive queue without a queue pair. Its completions name it by `wq_num`. Drivers embed it. */
struct ib_wq {
	struct ib_device *device;
	struct ib_pd *pd;
	struct ib_cq *cq;
	enum ib_wq_type wq_type;
	enum ib_wq_state state; /* as the last modify has left it */
	u32 wq_num;
	int usecnt; /* tables that it is in */
};

/* Creates a work queue in RESET. May block. ERR_PTR: -EINVAL (size, type, limits, a CQ of another
 * device), -EOPNOTSUPP (the device has none, a flag that it does not know), -ENOMEM. */
AV_EXPORT struct ib_wq *ib_create_wq(struct ib_pd *pd, struct ib_wq_init_attr *init);
/* To RDY from RESET, to RESET and ERR from anywhere; to its own state always. May block. 0;
 * -EINVAL: size, mask, states; -EOPNOTSUPP: flags. */
AV_EXPORT int ib_modify_wq(struct ib_wq *wq, const struct ib_wq_attr *attr, u32 mask);
/* May block. 0; -EBUSY: a table has it, and it stays. */
AV_EXPORT int ib_destroy_wq(struct ib_wq *wq);

/* ---- tables of work queues ------------------------------------------------------------------- */

struct ib_rwq_ind_table_init_attr {
	u32 size;
	u32 log_ind_tbl_size; /* entries, as a power of two */
	struct ib_wq **ind_tbl; /* read during the call only; a queue may stand in several places */
};

/* Drivers embed it. */
struct ib_rwq_ind_table {
	struct ib_device *device;
	int usecnt; /* queue pairs that were created with it */
	u32 ind_tbl_num;
	u32 log_ind_tbl_size;
	struct ib_wq **ind_tbl; /* the midlayer's copy */
};

/* Creates a table, which keeps its work queues. May block. ERR_PTR: -EINVAL (size, no table, a
 * queue of another device, more entries than the device takes), -EOPNOTSUPP, -ENOMEM. */
AV_EXPORT struct ib_rwq_ind_table *
ib_create_rwq_ind_table(struct ib_device *device, const struct ib_rwq_ind_table_init_attr *init);
/* May block. 0; -EBUSY: a queue pair was created with it, and it stays. */
AV_EXPORT int ib_destroy_rwq_ind_table(struct ib_rwq_ind_table *table);

enum ib_rx_hash_function { IB_RX_HASH_FUNC_TOEPLITZ = 1 << 0 };
enum { IB_RX_HASH_KEY = 40 };

/* How a queue pair with a table chooses a work queue: the hash of the named fields that a frame
 * has, modulo the size of the table. */
struct ib_rx_hash_conf {
	u64 fields_mask; /* enum ibv_rx_hash_fields; 0: always the first entry */
	u8 function; /* enum ib_rx_hash_function */
	u8 key_len;
	u8 key[IB_RX_HASH_KEY];
};

struct ib_rss_caps {
	u32 supported_qpts; /* bits by enum ib_qp_type; 0: the device has no tables */
	u32 max_rwq_indirection_tables;
	u32 max_rwq_indirection_table_size;
	u64 rx_hash_fields_mask;
	u8 rx_hash_function;
};

#endif
