/* sa.c: the records of subnet administration: one table per record, and the address vectors that
 * come of them.
 * In:    records, bytes of MADs        Out: bytes, records, address vectors
 * Runs:  any thread                    Locks: none
 * Spec:  IBA vol 1, 15.2.5.16 (PathRecord), 15.2.5.17 (MCMemberRecord), 15.2.5.14 (ServiceRecord),
 *        13.4.8.2 (Notice), 13.4.8.3 (InformInfo)
 */
#include <errno.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_sa.h>
#include <string.h>

#include "pack/pack.h"

#define TYPE struct ib_sa_path_rec
static const struct ib_field sa_path[] = {
	PACK_FIELD(service_id, 0, 0, 64),
	PACK_FIELD(dgid, 2, 0, 128),
	PACK_FIELD(sgid, 6, 0, 128),
	PACK_FIELD(dlid, 10, 0, 16),
	PACK_FIELD(slid, 10, 16, 16),
	PACK_FIELD(raw_traffic, 11, 0, 1),
	PACK_RESERVED(11, 1, 3),
	PACK_FIELD(flow_label, 11, 4, 20),
	PACK_FIELD(hop_limit, 11, 24, 8),
	PACK_FIELD(traffic_class, 12, 0, 8),
	PACK_FIELD(reversible, 12, 8, 1),
	PACK_FIELD(numb_path, 12, 9, 7),
	PACK_FIELD(pkey, 12, 16, 16),
	PACK_FIELD(qos_class, 13, 0, 12),
	PACK_FIELD(sl, 13, 12, 4),
	PACK_FIELD(mtu_selector, 13, 16, 2),
	PACK_FIELD(mtu, 13, 18, 6),
	PACK_FIELD(rate_selector, 13, 24, 2),
	PACK_FIELD(rate, 13, 26, 6),
	PACK_FIELD(packet_life_time_selector, 14, 0, 2),
	PACK_FIELD(packet_life_time, 14, 2, 6),
	PACK_FIELD(preference, 14, 8, 8),
	PACK_RESERVED(14, 16, 48),
};
#undef TYPE

#define TYPE struct ib_sa_mcmember_rec
static const struct ib_field sa_mcmember[] = {
	PACK_FIELD(mgid, 0, 0, 128),
	PACK_FIELD(port_gid, 4, 0, 128),
	PACK_FIELD(qkey, 8, 0, 32),
	PACK_FIELD(mlid, 9, 0, 16),
	PACK_FIELD(mtu_selector, 9, 16, 2),
	PACK_FIELD(mtu, 9, 18, 6),
	PACK_FIELD(traffic_class, 9, 24, 8),
	PACK_FIELD(pkey, 10, 0, 16),
	PACK_FIELD(rate_selector, 10, 16, 2),
	PACK_FIELD(rate, 10, 18, 6),
	PACK_FIELD(packet_life_time_selector, 10, 24, 2),
	PACK_FIELD(packet_life_time, 10, 26, 6),
	PACK_FIELD(sl, 11, 0, 4),
	PACK_FIELD(flow_label, 11, 4, 20),
	PACK_FIELD(hop_limit, 11, 24, 8),
	PACK_FIELD(scope, 12, 0, 4),
	PACK_FIELD(join_state, 12, 4, 4),
	PACK_FIELD(proxy_join, 12, 8, 1),
	PACK_RESERVED(12, 9, 23),
};
#undef TYPE

#define TYPE struct ib_sa_service_rec
static const struct ib_field sa_service[] = {
	PACK_FIELD(id, 0, 0, 64),
	PACK_FIELD(gid, 2, 0, 128),
	PACK_FIELD(pkey, 6, 0, 16),
	PACK_RESERVED(6, 16, 16),
	PACK_FIELD(lease, 7, 0, 32),
	PACK_FIELD(key, 8, 0, 128),
	PACK_FIELD(name, 12, 0, 512),
	PACK_FIELD(data8, 28, 0, 128),
	PACK_FIELD(data16, 32, 0, 128),
	PACK_FIELD(data32, 36, 0, 128),
	PACK_FIELD(data64, 40, 0, 128),
};
#undef TYPE

#define TYPE struct ib_sa_inform
static const struct ib_field sa_inform[] = {
	PACK_FIELD(gid, 0, 0, 128),
	PACK_FIELD(lid_range_begin, 4, 0, 16),
	PACK_FIELD(lid_range_end, 4, 16, 16),
	PACK_RESERVED(5, 0, 16),
	PACK_FIELD(is_generic, 5, 16, 8),
	PACK_FIELD(subscribe, 5, 24, 8),
	PACK_FIELD(type, 6, 0, 16),
	PACK_FIELD(trap_num, 6, 16, 16),
	PACK_FIELD(qpn, 7, 0, 24),
	PACK_RESERVED(7, 24, 3),
	PACK_FIELD(resp_time, 7, 27, 5),
	PACK_RESERVED(8, 0, 8),
	PACK_FIELD(producer_type, 8, 8, 24),
};
#undef TYPE

#define TYPE struct ib_sa_notice
static const struct ib_field sa_notice[] = {
	PACK_FIELD(is_generic, 0, 0, 1),
	PACK_FIELD(type, 0, 1, 7),
	PACK_FIELD(producer_type, 0, 8, 24),
	PACK_FIELD(trap_num, 1, 0, 16),
	PACK_FIELD(issuer_lid, 1, 16, 16),
	PACK_FIELD(notice_toggle, 2, 0, 1),
	PACK_FIELD(notice_count, 2, 1, 15),
	PACK_FIELD(data.details, 2, 16, 432),
	PACK_FIELD(issuer_gid, 16, 0, 128),
};
#undef TYPE

/* The flags of a record are an int each, which a table would take for a number in network order. */

void ib_sa_pack_path(struct ib_sa_path_rec *rec, void *attribute)
{
	struct ib_sa_path_rec be = *rec;

	be.raw_traffic = (int)htobe32((u32)rec->raw_traffic);
	be.reversible = (int)htobe32((u32)rec->reversible);
	ib_pack(sa_path, ARRAY_LEN(sa_path), &be, attribute);
}

void ib_sa_unpack_path(void *attribute, struct ib_sa_path_rec *rec)
{
	memset(rec, 0, sizeof(*rec));
	ib_unpack(sa_path, ARRAY_LEN(sa_path), attribute, rec);
	rec->raw_traffic = (int)be32toh((u32)rec->raw_traffic);
	rec->reversible = (int)be32toh((u32)rec->reversible);
}

void ib_sa_pack_mcmember(struct ib_sa_mcmember_rec *rec, void *attribute)
{
	struct ib_sa_mcmember_rec be = *rec;

	be.proxy_join = (int)htobe32((u32)rec->proxy_join);
	ib_pack(sa_mcmember, ARRAY_LEN(sa_mcmember), &be, attribute);
}

void ib_sa_unpack_mcmember(void *attribute, struct ib_sa_mcmember_rec *rec)
{
	memset(rec, 0, sizeof(*rec));
	ib_unpack(sa_mcmember, ARRAY_LEN(sa_mcmember), attribute, rec);
	rec->proxy_join = (int)be32toh((u32)rec->proxy_join);
}

void ib_sa_pack_service(struct ib_sa_service_rec *rec, void *attribute)
{
	ib_pack(sa_service, ARRAY_LEN(sa_service), rec, attribute);
}

void ib_sa_unpack_service(void *attribute, struct ib_sa_service_rec *rec)
{
	memset(rec, 0, sizeof(*rec));
	ib_unpack(sa_service, ARRAY_LEN(sa_service), attribute, rec);
}

void ib_sa_pack_inform(struct ib_sa_inform *rec, void *attribute)
{
	ib_pack(sa_inform, ARRAY_LEN(sa_inform), rec, attribute);
}

void ib_sa_unpack_inform(void *attribute, struct ib_sa_inform *rec)
{
	memset(rec, 0, sizeof(*rec));
	ib_unpack(sa_inform, ARRAY_LEN(sa_inform), attribute, rec);
}

void ib_sa_pack_notice(struct ib_sa_notice *rec, void *attribute)
{
	ib_pack(sa_notice, ARRAY_LEN(sa_notice), rec, attribute);
}

void ib_sa_unpack_notice(void *attribute, struct ib_sa_notice *rec)
{
	memset(rec, 0, sizeof(*rec));
	ib_unpack(sa_notice, ARRAY_LEN(sa_notice), attribute, rec);
}

/* ---- address vectors ------------------------------------------------------------------------- */

/* An address vector's index has 8 bits. */
static int record_find_gid(struct ib_device *device, u8 port_num, const union ib_gid *gid,
			   u8 *index)
{
	u16 found;
	int err = ib_find_cached_gid_by_port(device, gid, port_num, &found);

	if (err == 0 && found > 0xff)
		err = -ENOENT;
	if (err == 0)
		*index = (u8)found;
	return err;
}

int ib_init_ah_from_path(struct ib_device *device, u8 port_num, struct ib_sa_path_rec *rec,
			 struct ib_ah_attr *ah_attr)
{
	struct ib_ah_attr ah = { .dlid = be16toh(rec->dlid),
				 .sl = rec->sl,
				 .src_path_bits = be16toh(rec->slid) & 0x7f,
				 .static_rate = rec->rate,
				 .port_num = port_num };
	int err;

	if (port_num < 1 || port_num > device->phys_port_cnt)
		return -EINVAL;
	if (rec->hop_limit > 1 ||
	    rdma_port_get_link_layer(device, port_num) == IB_LINK_LAYER_ETHERNET) {
		err = record_find_gid(device, port_num, &rec->sgid, &ah.grh.sgid_index);
		if (err < 0)
			return err;
		ah.ah_flags = IB_AH_GRH;
		ah.grh.dgid = rec->dgid;
		ah.grh.flow_label = be32toh(rec->flow_label);
		ah.grh.hop_limit = rec->hop_limit;
		ah.grh.traffic_class = rec->traffic_class;
	}
	*ah_attr = ah;
	return 0;
}

int ib_init_ah_from_mcmember(struct ib_device *device, u8 port_num, struct ib_sa_mcmember_rec *rec,
			     struct ib_ah_attr *ah_attr)
{
	struct ib_ah_attr ah = { .dlid = be16toh(rec->mlid),
				 .sl = rec->sl,
				 .static_rate = rec->rate,
				 .ah_flags = IB_AH_GRH,
				 .port_num = port_num };
	int err = record_find_gid(device, port_num, &rec->port_gid, &ah.grh.sgid_index);

	if (err < 0)
		return err;
	ah.grh.dgid = rec->mgid;
	ah.grh.flow_label = be32toh(rec->flow_label);
	ah.grh.hop_limit = rec->hop_limit;
	ah.grh.traffic_class = rec->traffic_class;
	*ah_attr = ah;
	return 0;
}
