/* ib_sa.h: the records of subnet administration that addresses and connections are made of.
 *
 * The fields are Linux's: what stands on the wire as a number of more than 8 bits is in network
 * order where its type says so, flow labels, LIDs, P_Keys and Q_Keys among them. On RoCE there is
 * no subnet administrator: the RDMA CM makes the records itself.
 */
#ifndef IB_SA_H
#define IB_SA_H

#include <rdma/ib_verbs.h>

enum ib_sa_selector { IB_SA_GT = 0, IB_SA_LT = 1, IB_SA_EQ = 2, IB_SA_BEST = 3 };

/* A path from a port to a port. */
struct ib_sa_path_rec {
	union ib_gid dgid;
	union ib_gid sgid;
	__be16 dlid;
	__be16 slid;
	int raw_traffic;
	__be32 flow_label;
	u8 hop_limit;
	u8 traffic_class;
	int reversible;
	u8 numb_path;
	__be16 pkey;
	u8 sl;
	u8 mtu_selector; /* enum ib_sa_selector, as the next two */
	u8 mtu;		 /* enum ib_mtu */
	u8 rate_selector;
	u8 rate; /* enum ib_rate */
	u8 packet_life_time_selector;
	u8 packet_life_time; /* 4.096 us << packet_life_time */
	u8 preference;
};

enum ib_sa_mc_join_states {
	IB_SA_FULL_MEMBER = 1,
	IB_SA_NON_MEMBER = 1 << 1,
	IB_SA_SEND_ONLY_NON_MEMBER = 1 << 2,
	IB_SA_SEND_ONLY_FULL_MEMBER = 1 << 3,
};

/* A port's membership of a multicast group. */
struct ib_sa_mcmember_rec {
	union ib_gid mgid;
	union ib_gid port_gid;
	__be32 qkey;
	__be16 mlid;
	u8 mtu_selector;
	u8 mtu;
	u8 traffic_class;
	__be16 pkey;
	u8 rate_selector;
	u8 rate;
	u8 packet_life_time_selector;
	u8 packet_life_time;
	u8 sl;
	__be32 flow_label;
	u8 hop_limit;
	u8 scope;
	u8 join_state; /* enum ib_sa_mc_join_states */
	int proxy_join;
};

#endif
