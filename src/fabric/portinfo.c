/* portinfo.c: the attribute PortInfo between bytes and a port's record: one table for both ways.
 * Runs:  the owner's thread    Locks: none
 * Spec:  IBA vol 1, 14.2.5.6
 */
#include "fabric/portinfo.h"

#include "fabric/format.h"

/* No field of less than a byte crosses a byte's border. */
struct portinfo_field {
	u16 at; /* bits, from the highest of the first byte */
	u8 bits;
	u8 size; /* of the member; bytes */
	u16 member;
} FIXED;

#define PORTINFO_FIELD(at, bits, member)                                                         \
	{                                                                                        \
		at, bits, sizeof(((struct fabric_port_rec *)0)->member),                         \
			offsetof(struct fabric_port_rec, member)                                 \
	}

static const struct portinfo_field portinfo_fields[] = {
	PORTINFO_FIELD(0, 64, mkey),
	PORTINFO_FIELD(64, 64, gid_prefix),
	PORTINFO_FIELD(128, 16, lid),
	PORTINFO_FIELD(144, 16, sm_lid),
	PORTINFO_FIELD(160, 32, cap_mask),
	PORTINFO_FIELD(192, 16, diag_code),
	PORTINFO_FIELD(208, 16, mkey_lease),
	PORTINFO_FIELD(232, 8, width_enabled),
	PORTINFO_FIELD(240, 8, width_supported),
	PORTINFO_FIELD(248, 8, width),
	PORTINFO_FIELD(256, 4, speed_supported),
	PORTINFO_FIELD(260, 4, state),
	PORTINFO_FIELD(264, 4, phys),
	PORTINFO_FIELD(268, 4, link_down_default),
	PORTINFO_FIELD(272, 2, mkey_protect),
	PORTINFO_FIELD(277, 3, lmc),
	PORTINFO_FIELD(280, 4, speed),
	PORTINFO_FIELD(284, 4, speed_enabled),
	PORTINFO_FIELD(288, 4, mtu),
	PORTINFO_FIELD(292, 4, sm_sl),
	PORTINFO_FIELD(296, 4, vl_cap),
	PORTINFO_FIELD(300, 4, init_type),
	PORTINFO_FIELD(304, 8, vl_high_limit),
	PORTINFO_FIELD(312, 8, vlarb_high_cap),
	PORTINFO_FIELD(320, 8, vlarb_low_cap),
	PORTINFO_FIELD(328, 4, init_type_reply),
	PORTINFO_FIELD(332, 4, mtu_cap),
	PORTINFO_FIELD(336, 3, vl_stall_count),
	PORTINFO_FIELD(339, 5, hoq_life),
	PORTINFO_FIELD(344, 4, operational_vls),
	PORTINFO_FIELD(352, 16, mkey_violations),
	PORTINFO_FIELD(368, 16, pkey_violations),
	PORTINFO_FIELD(384, 16, qkey_violations),
	PORTINFO_FIELD(400, 8, guid_cap),
	PORTINFO_FIELD(409, 2, mcast_pkey_trap),
	PORTINFO_FIELD(411, 5, subnet_timeout),
	PORTINFO_FIELD(419, 5, resp_time),
	PORTINFO_FIELD(424, 4, local_phy_errors),
	PORTINFO_FIELD(428, 4, overrun_errors),
	PORTINFO_FIELD(496, 4, speed_ext),
	PORTINFO_FIELD(500, 4, speed_ext_supported),
	PORTINFO_FIELD(507, 5, speed_ext_enabled),
};

/* The four bits of partition enforcement and raw filters are bits of `flags` too. */
enum { PORTINFO_FLAGS_AT = 43 };

static u64 member_load(const void *member, u8 size)
{
	u16 v16;
	u32 v32;
	u64 v64;

	switch (size) {
	case 1:
		return *(const u8 *)member;
	case 2:
		memcpy(&v16, member, sizeof(v16));
		return v16;
	case 4:
		memcpy(&v32, member, sizeof(v32));
		return v32;
	default:
		memcpy(&v64, member, sizeof(v64));
		return v64;
	}
}

static void member_store(void *member, u8 size, u64 v)
{
	u16 v16 = (u16)v;
	u32 v32 = (u32)v;

	switch (size) {
	case 1:
		*(u8 *)member = (u8)v;
		break;
	case 2:
		memcpy(member, &v16, sizeof(v16));
		break;
	case 4:
		memcpy(member, &v32, sizeof(v32));
		break;
	default:
		memcpy(member, &v, sizeof(v));
		break;
	}
}

void portinfo_pack(const struct fabric_port_rec *p, u8 *out)
{
	memset(out, 0, PORTINFO_BYTES);
	for (u32 i = 0; i < ARRAY_LEN(portinfo_fields); i++) {
		const struct portinfo_field *f = &portinfo_fields[i];
		u64 v = member_load((const u8 *)p + f->member, f->size);
		u8 *at = out + f->at / 8;

		if (f->bits < 8)
			*at |= (u8)((v & ((1u << f->bits) - 1)) << (8 - f->at % 8 - f->bits));
		else
			for (u32 bits = f->bits; bits > 0; bits -= 8)
				*at++ = (u8)(v >> (bits - 8));
	}
	if ((p->flags & FABRIC_PORT_IN_PKEYS) != 0)
		out[PORTINFO_FLAGS_AT] |= 8;
	if ((p->flags & FABRIC_PORT_OUT_PKEYS) != 0)
		out[PORTINFO_FLAGS_AT] |= 4;
	if ((p->flags & FABRIC_PORT_IN_RAW) != 0)
		out[PORTINFO_FLAGS_AT] |= 2;
	if ((p->flags & FABRIC_PORT_OUT_RAW) != 0)
		out[PORTINFO_FLAGS_AT] |= 1;
}

void portinfo_unpack(struct fabric_port_rec *p, const u8 *in)
{
	u8 flags = in[PORTINFO_FLAGS_AT];

	for (u32 i = 0; i < ARRAY_LEN(portinfo_fields); i++) {
		const struct portinfo_field *f = &portinfo_fields[i];
		const u8 *at = in + f->at / 8;
		u64 v = 0;

		if (f->bits < 8)
			v = (*at >> (8 - f->at % 8 - f->bits)) & ((1u << f->bits) - 1);
		else
			for (u32 bits = f->bits; bits > 0; bits -= 8)
				v = v << 8 | *at++;
		member_store((u8 *)p + f->member, f->size, v);
	}
	p->flags &= (u8) ~(FABRIC_PORT_IN_PKEYS | FABRIC_PORT_OUT_PKEYS | FABRIC_PORT_IN_RAW |
			   FABRIC_PORT_OUT_RAW);
	p->flags |= (u8)(((flags & 8) != 0 ? FABRIC_PORT_IN_PKEYS : 0) |
			 ((flags & 4) != 0 ? FABRIC_PORT_OUT_PKEYS : 0) |
			 ((flags & 2) != 0 ? FABRIC_PORT_IN_RAW : 0) |
			 ((flags & 1) != 0 ? FABRIC_PORT_OUT_RAW : 0));
}
