/* ib_sa.h: the records of subnet administration that addresses and connections are made of.
 *
 * The fields are Linux's: what stands on the wire as a number of more than 8 bits is in network
 * order where its type says so, flow labels, LIDs, P_Keys and Q_Keys among them. On RoCE there is
 * no subnet administrator: the RDMA CM makes the records itself, and queries answer -ENODEV.
 *
 * Context: any, unless a call says otherwise. Callbacks run on a thread of the midlayer, one at a
 * time for a port or a group, never inside a call of their consumer, and without any lock.
 */
#ifndef IB_SA_H
#define IB_SA_H

#include <endian.h>
#include <rdma/ib_verbs.h>

enum { IB_SA_CLASS_VERSION = 2 };

/* Methods beside those of every class (ib_mad.h). */
enum {
	IB_SA_METHOD_GET_TABLE = 0x12,
	IB_SA_METHOD_GET_TABLE_RESP = 0x92,
	IB_SA_METHOD_GET_TRACE_TBL = 0x13,
	IB_SA_METHOD_GET_MULTI = 0x14,
	IB_SA_METHOD_GET_MULTI_RESP = 0x94,
	IB_SA_METHOD_DELETE = 0x15,
	IB_SA_METHOD_DELETE_RESP = 0x95,
};

enum {
	IB_SA_ATTR_CLASS_PORTINFO = 0x01,
	IB_SA_ATTR_NOTICE = 0x02,
	IB_SA_ATTR_INFORM_INFO = 0x03,
	IB_SA_ATTR_NODE_REC = 0x11,
	IB_SA_ATTR_PORT_INFO_REC = 0x12,
	IB_SA_ATTR_SL2VL_REC = 0x13,
	IB_SA_ATTR_SWITCH_REC = 0x14,
	IB_SA_ATTR_LINEAR_FDB_REC = 0x15,
	IB_SA_ATTR_RANDOM_FDB_REC = 0x16,
	IB_SA_ATTR_MCAST_FDB_REC = 0x17,
	IB_SA_ATTR_SM_INFO_REC = 0x18,
	IB_SA_ATTR_LINK_REC = 0x20,
	IB_SA_ATTR_GUID_INFO_REC = 0x30,
	IB_SA_ATTR_SERVICE_REC = 0x31,
	IB_SA_ATTR_PARTITION_REC = 0x33,
	IB_SA_ATTR_PATH_REC = 0x35,
	IB_SA_ATTR_VL_ARB_REC = 0x36,
	IB_SA_ATTR_MC_MEMBER_REC = 0x38,
	IB_SA_ATTR_TRACE_REC = 0x39,
	IB_SA_ATTR_MULTI_PATH_REC = 0x3a,
	IB_SA_ATTR_SERVICE_ASSOC_REC = 0x3b,
	IB_SA_ATTR_INFORM_INFO_REC = 0xf3,
};

/* Which fields of a record a query names, or an answer holds: a mask in network order. */
typedef u64 ib_sa_comp_mask;
#define IB_SA_COMP_MASK(n) ((ib_sa_comp_mask)htobe64(1ull << (n)))

/* ---- paths ----------------------------------------------------------------------------------- */

enum ib_sa_selector { IB_SA_GT = 0, IB_SA_LT = 1, IB_SA_EQ = 2, IB_SA_BEST = 3 };

/* Bit 7 is a reserved field's. */
#define IB_SA_PATH_REC_SERVICE_ID (IB_SA_COMP_MASK(0) | IB_SA_COMP_MASK(1))
#define IB_SA_PATH_REC_DGID IB_SA_COMP_MASK(2)
#define IB_SA_PATH_REC_SGID IB_SA_COMP_MASK(3)
#define IB_SA_PATH_REC_DLID IB_SA_COMP_MASK(4)
#define IB_SA_PATH_REC_SLID IB_SA_COMP_MASK(5)
#define IB_SA_PATH_REC_RAW_TRAFFIC IB_SA_COMP_MASK(6)
#define IB_SA_PATH_REC_FLOW_LABEL IB_SA_COMP_MASK(8)
#define IB_SA_PATH_REC_HOP_LIMIT IB_SA_COMP_MASK(9)
#define IB_SA_PATH_REC_TRAFFIC_CLASS IB_SA_COMP_MASK(10)
#define IB_SA_PATH_REC_REVERSIBLE IB_SA_COMP_MASK(11)
#define IB_SA_PATH_REC_NUMB_PATH IB_SA_COMP_MASK(12)
#define IB_SA_PATH_REC_PKEY IB_SA_COMP_MASK(13)
#define IB_SA_PATH_REC_QOS_CLASS IB_SA_COMP_MASK(14)
#define IB_SA_PATH_REC_SL IB_SA_COMP_MASK(15)
#define IB_SA_PATH_REC_MTU_SELECTOR IB_SA_COMP_MASK(16)
#define IB_SA_PATH_REC_MTU IB_SA_COMP_MASK(17)
#define IB_SA_PATH_REC_RATE_SELECTOR IB_SA_COMP_MASK(18)
#define IB_SA_PATH_REC_RATE IB_SA_COMP_MASK(19)
#define IB_SA_PATH_REC_PACKET_LIFE_TIME_SELECTOR IB_SA_COMP_MASK(20)
#define IB_SA_PATH_REC_PACKET_LIFE_TIME IB_SA_COMP_MASK(21)
#define IB_SA_PATH_REC_PREFERENCE IB_SA_COMP_MASK(22)

/* A path from a port to a port. */
struct ib_sa_path_rec {
	__be64 service_id;
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
	__be16 qos_class;
	u8 sl;
	u8 mtu_selector; /* enum ib_sa_selector, as the next two */
	u8 mtu;		 /* enum ib_mtu */
	u8 rate_selector;
	u8 rate; /* enum ib_rate */
	u8 packet_life_time_selector;
	u8 packet_life_time; /* 4.096 us << packet_life_time */
	u8 preference;
};

enum { IB_SA_PATH_BYTES = 64 };

/* The record as a MAD has it, IB_SA_PATH_BYTES bytes; reserved fields are zeroes. */
AV_EXPORT void ib_sa_pack_path(struct ib_sa_path_rec *rec, void *attribute);
/* Reads it; the bytes may hold anything. */
AV_EXPORT void ib_sa_unpack_path(void *attribute, struct ib_sa_path_rec *rec);

/* The address vector of a path that begins at the port. It has a GRH on Ethernet, and where the
 * hop limit leads beyond the subnet. Asks the device what link it has: may block where its driver
 * does. -ENOENT: the port has no such GID; -EINVAL: no such port. */
AV_EXPORT int ib_init_ah_from_path(struct ib_device *device, u8 port_num,
				   struct ib_sa_path_rec *rec, struct ib_ah_attr *ah_attr);

/* ---- multicast ------------------------------------------------------------------------------- */

#define IB_SA_MCMEMBER_REC_MGID IB_SA_COMP_MASK(0)
#define IB_SA_MCMEMBER_REC_PORT_GID IB_SA_COMP_MASK(1)
#define IB_SA_MCMEMBER_REC_QKEY IB_SA_COMP_MASK(2)
#define IB_SA_MCMEMBER_REC_MLID IB_SA_COMP_MASK(3)
#define IB_SA_MCMEMBER_REC_MTU_SELECTOR IB_SA_COMP_MASK(4)
#define IB_SA_MCMEMBER_REC_MTU IB_SA_COMP_MASK(5)
#define IB_SA_MCMEMBER_REC_TRAFFIC_CLASS IB_SA_COMP_MASK(6)
#define IB_SA_MCMEMBER_REC_PKEY IB_SA_COMP_MASK(7)
#define IB_SA_MCMEMBER_REC_RATE_SELECTOR IB_SA_COMP_MASK(8)
#define IB_SA_MCMEMBER_REC_RATE IB_SA_COMP_MASK(9)
#define IB_SA_MCMEMBER_REC_PACKET_LIFE_TIME_SELECTOR IB_SA_COMP_MASK(10)
#define IB_SA_MCMEMBER_REC_PACKET_LIFE_TIME IB_SA_COMP_MASK(11)
#define IB_SA_MCMEMBER_REC_SL IB_SA_COMP_MASK(12)
#define IB_SA_MCMEMBER_REC_FLOW_LABEL IB_SA_COMP_MASK(13)
#define IB_SA_MCMEMBER_REC_HOP_LIMIT IB_SA_COMP_MASK(14)
#define IB_SA_MCMEMBER_REC_SCOPE IB_SA_COMP_MASK(15)
#define IB_SA_MCMEMBER_REC_JOIN_STATE IB_SA_COMP_MASK(16)
#define IB_SA_MCMEMBER_REC_PROXY_JOIN IB_SA_COMP_MASK(17)

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

enum { IB_SA_MCMEMBER_BYTES = 52 };

/* As ib_sa_pack_path and ib_sa_unpack_path. */
AV_EXPORT void ib_sa_pack_mcmember(struct ib_sa_mcmember_rec *rec, void *attribute);
/* As ib_sa_unpack_path. */
AV_EXPORT void ib_sa_unpack_mcmember(void *attribute, struct ib_sa_mcmember_rec *rec);

/* The address vector of datagrams to the group, from the port that is its member. -ENOENT: the port
 * has no such GID; -EINVAL: no such port. Never blocks. */
AV_EXPORT int ib_init_ah_from_mcmember(struct ib_device *device, u8 port_num,
				       struct ib_sa_mcmember_rec *rec, struct ib_ah_attr *ah_attr);

/* ---- services -------------------------------------------------------------------------------- */

#define IB_SA_SERVICE_REC_SERVICE_ID IB_SA_COMP_MASK(0)
#define IB_SA_SERVICE_REC_SERVICE_GID IB_SA_COMP_MASK(1)
#define IB_SA_SERVICE_REC_SERVICE_PKEY IB_SA_COMP_MASK(2)
/* Bit 3 is a reserved field's. */
#define IB_SA_SERVICE_REC_SERVICE_LEASE IB_SA_COMP_MASK(4)
#define IB_SA_SERVICE_REC_SERVICE_KEY IB_SA_COMP_MASK(5)
#define IB_SA_SERVICE_REC_SERVICE_NAME IB_SA_COMP_MASK(6)
#define IB_SA_SERVICE_REC_SERVICE_DATA8_0 IB_SA_COMP_MASK(7)
#define IB_SA_SERVICE_REC_SERVICE_DATA8_1 IB_SA_COMP_MASK(8)
#define IB_SA_SERVICE_REC_SERVICE_DATA8_2 IB_SA_COMP_MASK(9)
#define IB_SA_SERVICE_REC_SERVICE_DATA8_3 IB_SA_COMP_MASK(10)
#define IB_SA_SERVICE_REC_SERVICE_DATA8_4 IB_SA_COMP_MASK(11)
#define IB_SA_SERVICE_REC_SERVICE_DATA8_5 IB_SA_COMP_MASK(12)
#define IB_SA_SERVICE_REC_SERVICE_DATA8_6 IB_SA_COMP_MASK(13)
#define IB_SA_SERVICE_REC_SERVICE_DATA8_7 IB_SA_COMP_MASK(14)
#define IB_SA_SERVICE_REC_SERVICE_DATA8_8 IB_SA_COMP_MASK(15)
#define IB_SA_SERVICE_REC_SERVICE_DATA8_9 IB_SA_COMP_MASK(16)
#define IB_SA_SERVICE_REC_SERVICE_DATA8_10 IB_SA_COMP_MASK(17)
#define IB_SA_SERVICE_REC_SERVICE_DATA8_11 IB_SA_COMP_MASK(18)
#define IB_SA_SERVICE_REC_SERVICE_DATA8_12 IB_SA_COMP_MASK(19)
#define IB_SA_SERVICE_REC_SERVICE_DATA8_13 IB_SA_COMP_MASK(20)
#define IB_SA_SERVICE_REC_SERVICE_DATA8_14 IB_SA_COMP_MASK(21)
#define IB_SA_SERVICE_REC_SERVICE_DATA8_15 IB_SA_COMP_MASK(22)
#define IB_SA_SERVICE_REC_SERVICE_DATA16_0 IB_SA_COMP_MASK(23)
#define IB_SA_SERVICE_REC_SERVICE_DATA16_1 IB_SA_COMP_MASK(24)
#define IB_SA_SERVICE_REC_SERVICE_DATA16_2 IB_SA_COMP_MASK(25)
#define IB_SA_SERVICE_REC_SERVICE_DATA16_3 IB_SA_COMP_MASK(26)
#define IB_SA_SERVICE_REC_SERVICE_DATA16_4 IB_SA_COMP_MASK(27)
#define IB_SA_SERVICE_REC_SERVICE_DATA16_5 IB_SA_COMP_MASK(28)
#define IB_SA_SERVICE_REC_SERVICE_DATA16_6 IB_SA_COMP_MASK(29)
#define IB_SA_SERVICE_REC_SERVICE_DATA16_7 IB_SA_COMP_MASK(30)
#define IB_SA_SERVICE_REC_SERVICE_DATA32_0 IB_SA_COMP_MASK(31)
#define IB_SA_SERVICE_REC_SERVICE_DATA32_1 IB_SA_COMP_MASK(32)
#define IB_SA_SERVICE_REC_SERVICE_DATA32_2 IB_SA_COMP_MASK(33)
#define IB_SA_SERVICE_REC_SERVICE_DATA32_3 IB_SA_COMP_MASK(34)
#define IB_SA_SERVICE_REC_SERVICE_DATA64_0 IB_SA_COMP_MASK(35)
#define IB_SA_SERVICE_REC_SERVICE_DATA64_1 IB_SA_COMP_MASK(36)

#define IB_DEFAULT_SERVICE_LEASE 0xffffffff /* for ever */

/* A service that a port offers. Every number is in network order, those of the data too. */
struct ib_sa_service_rec {
	u64 id;
	union ib_gid gid;
	__be16 pkey;
	u32 lease; /* seconds */
	u8 key[16];
	u8 name[64];
	u8 data8[16];
	u16 data16[8];
	u32 data32[4];
	u64 data64[2];
};

enum { IB_SA_SERVICE_BYTES = 176 };

/* As ib_sa_pack_path and ib_sa_unpack_path. */
AV_EXPORT void ib_sa_pack_service(struct ib_sa_service_rec *rec, void *attribute);
/* As ib_sa_unpack_path. */
AV_EXPORT void ib_sa_unpack_service(void *attribute, struct ib_sa_service_rec *rec);

/* ---- notices --------------------------------------------------------------------------------- */

/* Traps of a subnet administrator; each names a GID. The traps of nodes (128 and up) have their
 * numbers in ib_mad.h's struct ib_mad_notice_attr. */
enum {
	IB_SA_TRAP_GID_IN_SERVICE = 64,
	IB_SA_TRAP_GID_OUT_OF_SERVICE = 65,
	IB_SA_TRAP_GROUP_CREATED = 66,
	IB_SA_TRAP_GROUP_DELETED = 67,
	IB_SA_TRAP_ALL = 0xffff, /* in a subscription */
};

/* What a port subscribes to. Numbers are in network order. */
struct ib_sa_inform {
	union ib_gid gid;	/* zeroes: by LIDs */
	__be16 lid_range_begin; /* 0xffff: of all */
	__be16 lid_range_end;
	u8 is_generic;
	u8 subscribe; /* 0: ends the subscription */
	__be16 type;  /* 0xffff: all; else the lower seven bits of IB_NOTICE_TYPE_* */
	__be16 trap_num; /* not generic: the device ID */
	__be32 qpn;
	u8 resp_time; /* 4.096 us << resp_time */
	__be32 producer_type; /* 24 bits; not generic: the vendor ID */
};

enum { IB_SA_INFORM_BYTES = 36 };

/* As ib_sa_pack_path and ib_sa_unpack_path. */
AV_EXPORT void ib_sa_pack_inform(struct ib_sa_inform *rec, void *attribute);
/* As ib_sa_unpack_path. */
AV_EXPORT void ib_sa_unpack_inform(void *attribute, struct ib_sa_inform *rec);

/* What has happened. Numbers are in network order. */
struct ib_sa_notice {
	u8 is_generic;
	u8 type;	      /* the lower seven bits of IB_NOTICE_TYPE_* */
	__be32 producer_type; /* IB_NOTICE_PROD_* as 24 bits; not generic: the vendor ID */
	__be16 trap_num;      /* not generic: the device ID */
	__be16 issuer_lid;
	u8 notice_toggle;
	__be16 notice_count;
	union {
		u8 details[54];
		struct { /* traps 64 to 67 */
			u8 reserved[6];
			union ib_gid gid;
		} __attribute__((packed)) gid_event;
	} data;
	union ib_gid issuer_gid;
};

enum { IB_SA_NOTICE_BYTES = 80 };

/* As ib_sa_pack_path and ib_sa_unpack_path. */
AV_EXPORT void ib_sa_pack_notice(struct ib_sa_notice *rec, void *attribute);
/* As ib_sa_unpack_path. */
AV_EXPORT void ib_sa_unpack_notice(void *attribute, struct ib_sa_notice *rec);

/* ---- queries --------------------------------------------------------------------------------- */

/* A consumer of the calls below. The fields are the midlayer's. */
struct ib_sa_client {
	u32 users;
	u32 registered;
};

/* Registers a consumer, before its first query. May block. */
AV_EXPORT void ib_sa_register_client(struct ib_sa_client *client);
/* Ends it: waits for the callbacks of its queries and for its memberships, which it has cancelled
 * and ended. May block; not from a callback. */
AV_EXPORT void ib_sa_unregister_client(struct ib_sa_client *client);

struct ib_sa_query;

/* Asks for a path: the fields of *rec that comp_mask names are what it must have. The request is
 * repeated three times, each after timeout_ms. `callback` runs once: status 0 with the first record
 * that fits, valid until it returns; -ETIMEDOUT; -EINTR: cancelled, or the device is gone;
 * -EINVAL: the SA refuses; -EIO. *query may be set after the callback has run. Returns an id above
 * 0 for ib_sa_cancel_query; -ENODEV: no InfiniBand port; -EAGAIN: it knows no subnet manager;
 * -EINVAL: timeout_ms below 1, or the client is not registered; -ENOMEM. Never blocks. */
AV_EXPORT int ib_sa_path_rec_get(struct ib_sa_client *client, struct ib_device *device, u8 port_num,
				 struct ib_sa_path_rec *rec, ib_sa_comp_mask comp_mask,
				 int timeout_ms, unsigned int gfp_mask,
				 void (*callback)(int status, struct ib_sa_path_rec *resp,
						  void *context),
				 void *context, struct ib_sa_query **query);
/* Registers (IB_MGMT_METHOD_SET), removes (IB_SA_METHOD_DELETE) or asks for a service; else as
 * ib_sa_path_rec_get. -EINVAL: another method. */
AV_EXPORT int ib_sa_service_rec_query(struct ib_sa_client *client, struct ib_device *device,
				      u8 port_num, u8 method, struct ib_sa_service_rec *rec,
				      ib_sa_comp_mask comp_mask, int timeout_ms,
				      unsigned int gfp_mask,
				      void (*callback)(int status, struct ib_sa_service_rec *resp,
						       void *context),
				      void *context, struct ib_sa_query **query);
/* Asks for a multicast group, joins (IB_MGMT_METHOD_SET) or leaves one (IB_SA_METHOD_DELETE) for
 * the caller alone: memberships of this kind are not those of ib_sa_join_multicast. Else as
 * ib_sa_path_rec_get. -EINVAL: another method. */
AV_EXPORT int ib_sa_mcmember_rec_query(struct ib_sa_client *client, struct ib_device *device,
				       u8 port_num, u8 method, struct ib_sa_mcmember_rec *rec,
				       ib_sa_comp_mask comp_mask, int timeout_ms,
				       unsigned int gfp_mask,
				       void (*callback)(int status, struct ib_sa_mcmember_rec *resp,
							void *context),
				       void *context, struct ib_sa_query **query);
/* Has the query of this id end with -EINTR, if it has not ended: both arguments as the query gave
 * them. The callback follows. Never blocks. */
AV_EXPORT void ib_sa_cancel_query(int id, struct ib_sa_query *query);

/* ---- memberships ----------------------------------------------------------------------------- */

/* A membership that its consumer keeps until ib_sa_free_multicast. `rec` is what the consumer asked
 * for, and what the SA granted once the callback has said 0. */
struct ib_sa_multicast {
	struct ib_sa_mcmember_rec rec;
	ib_sa_comp_mask comp_mask;
	int (*callback)(int status, struct ib_sa_multicast *multicast);
	void *context;
};

/* Joins the group of rec->mgid with rec->join_state; comp_mask names the other fields that count,
 * which must hold those of a group that is to be created. A port joins once for all its consumers.
 * The callback tells: 0: a member; -ENETRESET, later: the port has lost its memberships (another
 * SM, a link that was down, a client reregistration), and this one is to be freed and may be joined
 * anew; -ENODEV: the device is gone; -EINVAL: refused, or other values than the group's;
 * -ETIMEDOUT; -EAGAIN: no subnet manager. It returns 0, or else the membership ends as by
 * ib_sa_free_multicast. ERR_PTR: -ENODEV, -EINVAL: no join state, or the client is not registered;
 * -ENOMEM. Never blocks. */
AV_EXPORT struct ib_sa_multicast *
ib_sa_join_multicast(struct ib_sa_client *client, struct ib_device *device, u8 port_num,
		     struct ib_sa_mcmember_rec *rec, ib_sa_comp_mask comp_mask,
		     unsigned int gfp_mask,
		     int (*callback)(int status, struct ib_sa_multicast *multicast), void *context);
/* Ends a membership; the port leaves the group when nobody of it is a member. Waits for a callback
 * that runs, unless it is called from it; none follows. */
AV_EXPORT void ib_sa_free_multicast(struct ib_sa_multicast *multicast);
/* The record of a group of which the port is a member. -EADDRNOTAVAIL: it is not; -ENODEV. Never
 * blocks. */
AV_EXPORT int ib_sa_get_mcmember_rec(struct ib_device *device, u8 port_num, union ib_gid *mgid,
				     struct ib_sa_mcmember_rec *rec);

/* ---- subscriptions --------------------------------------------------------------------------- */

/* A subscription that its consumer keeps until ib_sa_unregister_inform_info. */
struct ib_inform_info {
	void *context;
	int (*callback)(int status, struct ib_inform_info *info, struct ib_sa_notice *notice);
	u16 trap_number; /* host order */
};

/* Subscribes to a trap of the subnet (enum above, host order), or to all generic ones. A port
 * subscribes once for all its consumers, and again by itself when its SA may have forgotten it:
 * another SM, another LID, a client reregistration, a link that was down. The callback tells:
 * 0 and a notice, valid until it returns; 0 and NULL: subscribed, for the first time or again, and
 * what happened before may have been missed, so look anew; or why the port is not subscribed now:
 * -EINVAL: refused; -ETIMEDOUT; -EAGAIN: no subnet manager; -EBUSY: a program has the reports of
 * the port (a MAD agent); -ENOMEM; -ENODEV: the device is gone, for good. After the others the next
 * of those events has it tried again. A report that the SM repeats is told again. The callback
 * returns 0, or else the subscription ends as by ib_sa_unregister_inform_info. ERR_PTR: -ENODEV;
 * -EINVAL: the client is not registered; -ENOMEM. Never blocks. */
AV_EXPORT struct ib_inform_info *
ib_sa_register_inform_info(struct ib_sa_client *client, struct ib_device *device, u8 port_num,
			   u16 trap_number, unsigned int gfp_mask,
			   int (*callback)(int status, struct ib_inform_info *info,
					   struct ib_sa_notice *notice),
			   void *context);
/* Ends a subscription; the port unsubscribes when no consumer of its host is left. Waits for a
 * callback that runs, unless it is called from it; none follows. 0. */
AV_EXPORT int ib_sa_unregister_inform_info(struct ib_inform_info *info);

#endif
