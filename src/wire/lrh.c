/* lrh.c: InfiniBand's local and global route headers, and its CRCs.
 *
 * The ICRC of a packet without a GRH covers the LRH but its VL. With a GRH, routers may change all
 * of the LRH, and the traffic class, flow label and hop limit of the GRH: ones stand for these.
 * The VCRC (0x100b, reflected here; all ones before and after) covers everything.
 * In: fields, packets    Out: bytes, CRCs    Runs: any thread    Locks: none
 * Spec: IBA vol 1, 7.7, 7.8, 8.3
 */
#include "wire/lrh.h"

#include <endian.h>
#include <pthread.h>
#include <string.h>

#include "wire/crc.h"

/* LNH: what follows the LRH. */
enum { LNH_LOCAL = 2, LNH_GLOBAL = 3, GRH_NEXT_BTH = 0x1b };
/* Where the masked bytes lie. */
enum { LRH_VL_MASK = 0xf0, GRH_HOP_LIMIT = 7, BTH_RESERVED = 4 };
enum { VCRC_POLYNOMIAL = 0xd008 };

static void lrh_put16(u8 *out, u32 v)
{
	out[0] = (u8)(v >> 8);
	out[1] = (u8)v;
}

static void lrh_pack_grh(const struct roce_flow *f, u32 length, u8 out[LRH_GRH])
{
	u32 first = htobe32(6u << 28 | (u32)f->traffic_class << 20 | (f->flow_label & 0xfffff));

	memcpy(out, &first, sizeof(first));
	lrh_put16(out + 4, length);
	out[6] = GRH_NEXT_BTH;
	out[GRH_HOP_LIMIT] = f->hop_limit;
	memcpy(out + 8, f->sgid, 16);
	memcpy(out + 24, f->dgid, 16);
}

u32 lrh_pack(const struct lrh *h, const struct roce_flow *grh, u32 length, u8 out[LRH_HEADERS_MAX])
{
	u32 bytes = LRH_BYTES + (grh != NULL ? LRH_GRH : 0);

	out[0] = (u8)(h->vl << 4);
	out[1] = (u8)(h->sl << 4 | (grh != NULL ? LNH_GLOBAL : LNH_LOCAL));
	lrh_put16(out + 2, h->dlid);
	lrh_put16(out + 4, (bytes + length) / 4 & 0x7ff);
	lrh_put16(out + 6, h->slid);
	if (grh != NULL)
		lrh_pack_grh(grh, length, out + LRH_BYTES);
	return bytes;
}

u32 lrh_icrc_begin(const u8 *packet, u32 link, u32 bytes)
{
	u8 all[LRH_HEADERS_MAX + ROCE_HEADERS_MAX];

	memcpy(all, packet, link + bytes);
	if (link == LRH_BYTES) {
		all[0] |= LRH_VL_MASK;
	} else {
		u8 *grh = all + LRH_BYTES;

		memset(all, 0xff, LRH_BYTES);
		grh[0] |= 0x0f;
		memset(grh + 1, 0xff, 3);
		grh[GRH_HOP_LIMIT] = 0xff;
	}
	all[link + BTH_RESERVED] = 0xff;
	return crc_add(0, all, link + bytes);
}

static u16 vcrc_by_byte[256];
static pthread_once_t vcrc_once = PTHREAD_ONCE_INIT;

static void vcrc_fill(void)
{
	for (u32 v = 0; v < 256; v++) {
		u32 crc = v;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? VCRC_POLYNOMIAL : 0);
		vcrc_by_byte[v] = (u16)crc;
	}
}

u16 lrh_vcrc(const u8 *packet, u32 bytes)
{
	u32 crc = 0xffff;

	pthread_once(&vcrc_once, vcrc_fill);
	for (u32 i = 0; i < bytes; i++)
		crc = crc >> 8 ^ vcrc_by_byte[(crc ^ packet[i]) & 0xff];
	return (u16)~crc;
}
