/* ib_smi.h: subnet management packets (SMPs), their attributes and two attributes' data, as they
 * lie on the wire: IBA vol 1, 14.2.1 and 14.2.5.
 *
 * An SMP is a MAD of QP0, so that the agents of ib_mad.h send and receive it. All numbers of more
 * than 8 bits are in network order, those that the macros stand for too.
 */
#ifndef IB_SMI_H
#define IB_SMI_H

#include <rdma/ib_mad.h>

#define IB_SMP_DATA_SIZE 64
#define IB_SMP_MAX_PATH_HOPS 64 /* bytes of a path; hop 0 is the sender, so that it has 63 hops */

/* 256 bytes. hop_ptr, hop_cnt and all from dr_slid on, but for `data`, belong to directed routes
 * (class IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE); they are reserved in LID-routed SMPs, which have the
 * lower half of a 16-bit class_specific field where hop_ptr and hop_cnt lie. */
struct ib_smp {
	u8 base_version;
	u8 mgmt_class;
	u8 class_version;
	u8 method;
	__be16 status; /* of a directed route with IB_SMP_DIRECTION in it */
	u8 hop_ptr;
	u8 hop_cnt;
	__be64 tid;
	__be16 attr_id; /* IB_SMP_ATTR_* */
	__be16 resv;
	__be32 attr_mod;
	__be64 mkey;
	__be16 dr_slid; /* IB_LID_PERMISSIVE: the route begins at the sender, */
	__be16 dr_dlid; /* ... or ends at the receiver */
	u8 reserved[28];
	u8 data[IB_SMP_DATA_SIZE];
	u8 initial_path[IB_SMP_MAX_PATH_HOPS]; /* ports by which each hop leaves; [0] is not used */
	u8 return_path[IB_SMP_MAX_PATH_HOPS];  /* ports by which each hop has come */
} __attribute__((packed));

#define IB_SMP_DIRECTION __constant_htons(0x8000)

#define IB_SMP_ATTR_NOTICE __constant_htons(0x0002)
#define IB_SMP_ATTR_NODE_DESC __constant_htons(0x0010)
#define IB_SMP_ATTR_NODE_INFO __constant_htons(0x0011)
#define IB_SMP_ATTR_SWITCH_INFO __constant_htons(0x0012)
#define IB_SMP_ATTR_GUID_INFO __constant_htons(0x0014)
#define IB_SMP_ATTR_PORT_INFO __constant_htons(0x0015)
#define IB_SMP_ATTR_PKEY_TABLE __constant_htons(0x0016)
#define IB_SMP_ATTR_SL_TO_VL_TABLE __constant_htons(0x0017)
#define IB_SMP_ATTR_VL_ARB_TABLE __constant_htons(0x0018)
#define IB_SMP_ATTR_LINEAR_FORWARD_TABLE __constant_htons(0x0019)
#define IB_SMP_ATTR_RANDOM_FORWARD_TABLE __constant_htons(0x001a)
#define IB_SMP_ATTR_MCAST_FORWARD_TABLE __constant_htons(0x001b)
#define IB_SMP_ATTR_SM_INFO __constant_htons(0x0020)
#define IB_SMP_ATTR_VENDOR_DIAG __constant_htons(0x0030)
#define IB_SMP_ATTR_LED_INFO __constant_htons(0x0031)
#define IB_SMP_ATTR_VENDOR_MASK __constant_htons(0xff00)

/* PortInfo, without what later versions of the specification put behind it. A name of several parts
 * names the fields of one byte, from its highest bit on; their widths stand behind it. */
struct ib_port_info {
	__be64 mkey;
	__be64 gid_prefix;
	__be16 lid;
	__be16 sm_lid;
	__be32 cap_mask; /* enum ib_port_cap_flags */
	__be16 diag_code;
	__be16 mkey_lease_period; /* seconds; 0: for ever */
	u8 local_port_num;
	u8 link_width_enabled;
	u8 link_width_supported;
	u8 link_width_active;
	u8 linkspeed_portstate;		  /* 4, 4: supported speeds; enum ib_port_state */
	u8 portphysstate_linkdown;	  /* 4, 4 */
	u8 mkeyprot_resv_lmc;		  /* 2, 3, 3 */
	u8 linkspeedactive_enabled;	  /* 4, 4 */
	u8 neighbormtu_mastersmsl;	  /* 4, 4: enum ib_mtu; an SL */
	u8 vlcap_inittype;		  /* 4, 4 */
	u8 vl_high_limit;
	u8 vl_arb_high_cap;
	u8 vl_arb_low_cap;
	u8 inittypereply_mtucap;	  /* 4, 4 */
	u8 vlstallcnt_hoqlife;		  /* 3, 5 */
	u8 operationalvl_pei_peo_fpi_fpo; /* 4, 1, 1, 1, 1 */
	__be16 mkey_violations;
	__be16 pkey_violations;
	__be16 qkey_violations;
	u8 guid_cap;
	u8 clientrereg_resv_subnetto;	 /* 1, 2, 5 */
	u8 resv_resptimevalue;		 /* 3, 5: 4.096 us << value */
	u8 localphyerrors_overrunerrors; /* 4, 4 */
	__be16 max_credit_hint;
	u8 resv;
	u8 link_roundtrip_latency[3];
};

/* NodeInfo: 40 bytes of `data`. */
struct ib_node_info {
	u8 base_version;
	u8 class_version;
	u8 node_type; /* enum rdma_node_type */
	u8 num_ports; /* of a switch without port 0 */
	__be64 sys_guid;
	__be64 node_guid;
	__be64 port_guid; /* of the port that the SMP came by */
	__be16 partition_cap;
	__be16 device_id;
	__be32 revision;
	u8 local_port_num; /* that port */
	u8 vendor_id[3];
} __attribute__((packed));

/* Does the SMP of a directed route return to its sender? Any context. */
static inline u8 ib_get_smp_direction(const struct ib_smp *smp)
{
	return (smp->status & IB_SMP_DIRECTION) == IB_SMP_DIRECTION;
}

#endif
