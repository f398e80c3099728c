/* sa_priv.h: what the files of the subnet administrator share.
 */
#ifndef SM_SA_PRIV_H
#define SM_SA_PRIV_H

#include "base/list.h"
#include "sm/sm_priv.h"

enum {
	SA_CLASS = 0x03,
	SA_CLASS_VERSION = 2,
	/* Where the fields of an SA MAD lie (IBA vol 1, 15.2.1.1). */
	SA_RMPP_VERSION = 24,
	SA_RMPP_TYPE = 25,
	SA_RMPP_FLAGS = 26, /* low three bits */
	SA_RMPP_STATUS = 27,
	SA_RMPP_SEGMENT = 28,
	SA_RMPP_LENGTH = 32, /* or the window's end */
	SA_KEY = 36,
	SA_OFFSET = 44, /* bytes of a record, by eight */
	SA_MASK = 48,
	SA_DATA = 56,
	SA_DATA_BYTES = 200,
	SA_HEAD_BYTES = 20, /* of each segment: SM_Key to ComponentMask */
	SA_TABLE_MAX = 4 << 20, /* bytes of an answer */
	SA_RMPPS = 64,		/* answers of several MADs at once */
	SA_MLIDS = 4096,
	SA_SERVICES = 4096,
	SA_SUBSCRIBERS = 4096,
	SA_REPORTS = 1024, /* that wait for their response */
};

enum sa_method {
	SA_GET = 0x01,
	SA_SET = 0x02,
	SA_REPORT = 0x06,
	SA_GET_TABLE = 0x12,
	SA_DELETE = 0x15,
	SA_GET_RESP = 0x81,
	SA_REPORT_RESP = 0x86,
	SA_GET_TABLE_RESP = 0x92,
	SA_DELETE_RESP = 0x95,
};

/* IBA vol 1, 15.2.3: the upper byte. */
enum sa_status {
	SA_OK = 0,
	SA_NO_RESOURCES = 0x0100,
	SA_INVALID = 0x0200,
	SA_NO_RECORDS = 0x0300,
	SA_TOO_MANY = 0x0400,
	SA_INVALID_GID = 0x0500,
	SA_INSUFFICIENT = 0x0600,
	SA_UNSUPPORTED = STATUS_BAD_ATTRIBUTE,
};

enum sa_attribute {
	SA_ATTR_CLASS_PORT_INFO = 0x01,
	SA_ATTR_NOTICE = 0x02,
	SA_ATTR_INFORM = 0x03,
	SA_ATTR_NODE = 0x11,
	SA_ATTR_PORT = 0x12,
	SA_ATTR_SWITCH = 0x14,
	SA_ATTR_LFT = 0x15,
	SA_ATTR_MFT = 0x17,
	SA_ATTR_SM = 0x18,
	SA_ATTR_LINK = 0x20,
	SA_ATTR_SERVICE = 0x31,
	SA_ATTR_PATH = 0x35,
	SA_ATTR_MEMBER = 0x38,
	SA_ATTR_INFORM_RECORD = 0xf3,
};

/* One request, and the records that answer it. */
struct sm_query {
	struct sm *sm;
	const struct fabric_mad *m;
	u8 method;
	u64 mask;
	const u8 *want; /* the request's record: SA_DATA_BYTES */
	bool trusted;	/* it has an SM_Key: it may see who the members of groups are */
	u16 size;	/* of a record */
	u8 *data;	/* records, each padded to eight bytes */
	u32 count, room;
	bool full; /* there are more than fit */
} OWNED_BY(the SM);

static inline bool sm_query_has(const struct sm_query *q, u32 component)
{
	return (q->mask >> component & 1) != 0;
}
static inline u32 sm_query_stride(const struct sm_query *q)
{
	return (q->size + 7u) & ~7u;
}
void sm_query_add(struct sm_query *q, const u8 *record);

/* An answer of several MADs. */
struct sm_rmpp {
	bool used;
	struct fabric_mad head; /* addresses, and the first SA_DATA bytes */
	u8 *data;
	u32 bytes, segments;
	u32 acked, sent, window; /* segments; window: the last that may be sent */
	u64 due_ns;
	u8 tries;
} OWNED_BY(the SM);

struct sm_member {
	u64 port_guid;
	u8 gid[16];
	u8 join_state; /* 1 full, 2 non-member, 4 and 8 those that send only */
	bool proxy;
} OWNED_BY(the SM);

struct sm_group {
	u8 mgid[16];
	u32 qkey, flow_label;
	u16 mlid, pkey;
	u8 mtu, rate, life, traffic_class, sl, hop_limit, scope;
	bool permanent, stale; /* stale: its tree is to be computed */
	struct sm_member *member;
	u32 members, room;
} OWNED_BY(the SM);

struct sm_service {
	u8 record[176];
	u64 ends_ns; /* UINT64_MAX: never */
} OWNED_BY(the SM);

struct sm_subscriber {
	u8 inform[36]; /* InformInfo */
	u16 lid;
	u32 qpn;
	u8 sl;
	u8 gid[16];
} OWNED_BY(the SM);

struct sm_notice {
	struct fabric_mad mad;
	u64 port_guid; /* of the subscriber */
	u64 due_ns;
	u8 tries;
} OWNED_BY(the SM);

struct sm_sa {
	struct sm_rmpp rmpp[SA_RMPPS];
	struct sm_group *group[SA_MLIDS]; /* by MLID */
	u16 dead[SA_MLIDS]; /* MLIDs whose tables are to be emptied */
	u32 dead_count;
	u32 group_top; /* behind the last one */
	u32 groups_max FIXED; /* the broadcast group among them */
	u64 made_up;   /* MGIDs of the SM's own */
	struct sm_service *service;
	u32 services, service_room;
	struct sm_subscriber *subscriber;
	u32 subscribers, subscriber_room;
	u32 subscribers_max FIXED;
	struct sm_notice *notice;
	u32 notices, notice_room;
	u64 sequence; /* of reports */
} OWNED_BY(the SM);

/* sa.c: room for one element more in an array of `count`. */
bool sm_sa_grow(void **array, u32 *room, u32 count, size_t size, u32 max);
/* Begins a MAD that goes back to the sender of another, or NULL: with zeroes. */
void sm_sa_answer_one(struct sm_query *q, u16 status, const u8 *record);

/* rmpp.c */
/* Sends q's records. */
void sm_rmpp_answer(struct sm_query *q);
/* ACK, STOP, ABORT. */
void sm_rmpp_receive(struct sm *sm, const struct fabric_mad *m);
void sm_rmpp_run(struct sm *sm);
u64 sm_rmpp_due_ns(const struct sm_sa *sa);
void sm_rmpp_free(struct sm_sa *sa);

/* Each returns a status; records go to the query. */
u16 sm_record_class(struct sm_query *q);
u16 sm_record_nodes(struct sm_query *q);
u16 sm_record_ports(struct sm_query *q);
u16 sm_record_switches(struct sm_query *q);
u16 sm_record_lfts(struct sm_query *q);
u16 sm_record_mfts(struct sm_query *q);
u16 sm_record_sms(struct sm_query *q);
u16 sm_record_links(struct sm_query *q);
u16 sm_path_query(struct sm_query *q);
u16 sm_group_query(struct sm_query *q);
/* These two, and the next ones, change q->data's only record in place of adding one. */
u16 sm_group_join(struct sm_query *q);
u16 sm_group_leave(struct sm_query *q);
u16 sm_service_query(struct sm_query *q);
u16 sm_service_set(struct sm_query *q);
u16 sm_service_delete(struct sm_query *q);
u16 sm_inform_set(struct sm_query *q);
u16 sm_inform_query(struct sm_query *q);

/* sa_path.c: rates. */
u8 sm_path_rate(const u8 *port_info); /* of a link: the code of PathRecord's Rate */
int sm_path_compare_rates(u8 a, u8 b);
/* Does a value fit the selector of a record (0 more than, 1 less than, 2 exactly, 3 the most)? */
bool sm_path_fits(u8 selector, int order);

/* sa_group.c */
void sm_group_forget(struct sm *sm);
/* Members whose ports have gone leave; every tree is stale. */
void sm_group_subnet_changed(struct sm *sm);
struct sm_group *sm_group_find(const struct sm_sa *sa, const u8 *mgid);

/* sa_service.c */
void sm_service_expire(struct sm *sm);
u64 sm_service_due_ns(const struct sm_sa *sa);

/* sa_inform.c */
/* Tells subscribers of a GID or group: traps 64 to 67. */
void sm_inform_subnet_changed(struct sm *sm);
void sm_inform_gid(struct sm *sm, u16 trap, const u8 *gid);
void sm_inform_answered(struct sm *sm, const struct fabric_mad *m);
void sm_inform_run(struct sm *sm);
u64 sm_inform_due_ns(const struct sm_sa *sa);

#endif
