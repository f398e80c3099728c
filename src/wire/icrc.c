/* icrc.c: RoCEv2's invariant CRC, and what of the covered bytes explains a difference.
 *
 * The CRC is Ethernet's (reflected 0x04c11db7, all ones before and after), sent least significant
 * byte first. It covers 8 bytes of ones in the place of InfiniBand's local header, the IP and UDP
 * headers, BTH, extension headers, payload and padding, with ones for what routers may change: ToS
 * or traffic class, flow label, TTL or hop limit, both checksums, and BTH's FECN byte.
 * source.c judges received packets by it.
 * In: headers and pieces    Out: 4 bytes    Runs: any thread    Locks: none
 * Spec: IBA vol 1, A17.3.3
 */
#include <endian.h>
#include <pthread.h>
#include <string.h>

#include "wire/crc.h"
#include "wire/roce.h"

/* The CRC of 8 bytes of ones. */
static const u32 icrc_of_ones = 0x2144df1c;
/* Where the masked bytes lie. */
enum { IPV4_TOS = 1, IPV4_TTL = 8, IPV4_CHECKSUM = 10, IPV6_HOPS = 7, BTH_FECN = 4 };
enum { IPV4_BYTES = 28, UDP_CHECKSUM = 2 /* before the end of the headers */, IPV4_DF = 0x40 };
enum { ICRC_PAIR_SAME = 8 /* pairs of the same lengths in a row before they are learned */ };
enum { ICRC_FROM_ID = 16 + 8 /* bytes of IPv4 and UDP from the identification on */ };
enum { IPV4_ID = 4, IPV4_FLAGS = 6, ICRC_SHORT = 64 /* are copied, and done at once */ };

static void icrc_mask_ip(u8 *ip, u32 bytes)
{
	if (bytes == IPV4_BYTES) {
		ip[IPV4_TOS] = ip[IPV4_TTL] = 0xff;
		memset(ip + IPV4_CHECKSUM, 0xff, 2);
	} else {
		ip[0] |= 0x0f;
		memset(ip + 1, 0xff, 3);
		ip[IPV6_HOPS] = 0xff;
	}
	memset(ip + bytes - UDP_CHECKSUM, 0xff, UDP_CHECKSUM);
}

u32 roce_icrc_begin(const struct roce_flow *f, u32 length, const u8 *headers, u32 bytes)
{
	u8 all[ROCE_IP_MAX + ROCE_HEADERS_MAX];
	u32 ip = roce_ip_pack(f, length, all);

	icrc_mask_ip(all, ip);
	memcpy(all + ip, headers, bytes);
	all[ip + BTH_FECN] = 0xff;
	return crc_add(icrc_of_ones, all, ip + bytes);
}

u32 roce_icrc_add(u32 icrc, const void *piece, u32 bytes)
{
	return crc_add(icrc, piece, bytes);
}

u32 roce_icrc_end(u32 icrc, u32 pad, u8 out[ROCE_TRAILER_MAX])
{
	memset(out, 0, pad);
	icrc = htole32(crc_add(icrc, out, pad));
	memcpy(out + pad, &icrc, ROCE_ICRC);
	return pad + ROCE_ICRC;
}

/* ---- the same in one go, for packets of one flow ---- */

/* A CRC is linear: what each byte of IPv4's identification, and its DF, add to the CRC of the
 * headers. */
static u32 icrc_by_id[2][256], icrc_by_df;
static pthread_once_t icrc_by_once = PTHREAD_ONCE_INIT;

static u32 icrc_of_byte(u32 at, u8 value)
{
	u8 none[IPV4_BYTES] = { 0 }, one[IPV4_BYTES] = { [0] = 0 };

	one[at] = value;
	return crc_add(0, one, IPV4_BYTES) ^ crc_add(0, none, IPV4_BYTES);
}

static void icrc_fill_by(void)
{
	for (u32 v = 0; v < 256; v++) {
		icrc_by_id[0][v] = icrc_of_byte(IPV4_ID, (u8)v);
		icrc_by_id[1][v] = icrc_of_byte(IPV4_ID + 1, (u8)v);
	}
	icrc_by_df = icrc_of_byte(IPV4_FLAGS, IPV4_DF);
}

static bool prefix_is_of(const struct roce_prefix *x, const struct roce_flow *f)
{
	u64 gids[4];

	memcpy(gids, f->sgid, 16);
	memcpy(gids + 2, f->dgid, 16);
	return ((x->gids[0] ^ gids[0]) | (x->gids[1] ^ gids[1]) | (x->gids[2] ^ gids[2]) |
		(x->gids[3] ^ gids[3]) | (u64)(x->sport ^ f->sport)) == 0;
}

static NOINLINE void prefix_fill(struct roce_prefix *x, u32 i, const struct roce_flow *f,
				 u32 length)
{
	struct roce_flow plain = *f;
	u8 all[ROCE_IP_MAX];
	u32 ip;

	pthread_once(&icrc_by_once, icrc_fill_by);
	if (!prefix_is_of(x, f)) {
		*x = (struct roce_prefix){ .sport = f->sport };
		memcpy(x->gids, f->sgid, 16);
		memcpy(x->gids + 2, f->dgid, 16);
	}
	plain.id = 0;
	plain.df = true;
	ip = roce_ip_pack(&plain, length, all);
	icrc_mask_ip(all, ip);
	x->v4 = ip == IPV4_BYTES;
	x->crc[i] = crc_add(icrc_of_ones, all, ip);
	x->length[i] = (u16)length;
}

/* The CRC of the IP and UDP headers. */
static inline u32 prefix_crc(struct roce_prefix *x, const struct roce_flow *f, u32 length)
{
	u32 i = length / 4 % ROCE_PREFIXES;

	if (unlikely(x->length[i] != length || !prefix_is_of(x, f)))
		prefix_fill(x, i, f, length);
	if (!x->v4)
		return x->crc[i];
	return x->crc[i] ^ icrc_by_id[0][f->id >> 8] ^ icrc_by_id[1][f->id & 255] ^
	       (f->df ? 0 : icrc_by_df);
}

u32 roce_icrc_whole(struct roce_prefix *x, const struct roce_flow *f, const u8 *data, u32 length)
{
	u32 icrc = prefix_crc(x, f, length), first = length - ROCE_ICRC;
	u8 copy[ICRC_SHORT];

	if (first > ICRC_SHORT)
		first = ROCE_BTH;
	memcpy(copy, data, first);
	copy[BTH_FECN] = 0xff;
	icrc = crc_add(icrc, copy, first);
	return likely(first == length - ROCE_ICRC)
		       ? icrc
		       : crc_add(icrc, data + first, length - ROCE_ICRC - first);
}

/* ---- polynomials modulo the CRC's, as 32 bits with x^0 in the highest one ---- */

static u32 poly_times(u32 a, u32 b)
{
	u32 product = 0;

	for (; a != 0; a <<= 1) {
		product ^= a & 0x80000000 ? b : 0;
		b = b >> 1 ^ (b & 1 ? CRC_POLYNOMIAL : 0);
	}
	return product;
}

/* x^-8n: what undoes that n bytes followed. n < 8192. */
static u32 poly_unshift(u32 n)
{
	/* x^-8, x^-16, x^-32, ...: each is the square of the one before. */
	static const u32 power[] = { 0x6567cb95, 0xd7125358, 0x5b358fd3, 0x2e9bb40b, 0x12a59a49,
				     0x8df9403d, 0x5139de12, 0xba340226, 0x29c45641, 0x12fbc105,
				     0xecd30c55, 0x3755ebd8, 0x24ee460c };
	u32 product = 0x80000000;

	for (u32 i = 0; n != 0; n >>= 1, i++)
		if (n & 1)
			product = poly_times(product, power[i]);
	return product;
}

bool roce_icrc_explain(struct roce_unshift *x, u32 difference, u32 length, struct roce_flow *f)
{
	u8 word[4];

	if (x->unshift == 0 || x->length != length) {
		x->length = length;
		x->unshift = poly_unshift(ICRC_FROM_ID + length - ROCE_ICRC);
	}
	difference = htole32(poly_times(difference, x->unshift));
	memcpy(word, &difference, 4);
	if ((word[2] & ~IPV4_DF) != 0 || word[3] != 0)
		return false;
	f->id ^= (u16)(word[0] << 8 | word[1]);
	f->df ^= word[2] != 0;
	return true;
}

/* ---- one packet, or several joined ---- */

/* What is wrong of bytes that shall be one packet of this flow, with f->id and f->df. */
static u32 trial_difference(struct roce_trial *x, const struct roce_flow *f, const u8 *data,
			    u32 length)
{
	u32 received;

	memcpy(&received, data + length - ROCE_ICRC, ROCE_ICRC);
	return roce_icrc_whole(&x->prefix, f, data, length) ^ le32toh(received);
}

bool roce_icrc_is_possible(struct roce_trial *x, const struct roce_flow *f, const u8 *data,
			   u32 length)
{
	struct roce_flow any = *f;
	u32 difference;

	if (length < ROCE_BTH + ROCE_ICRC || length > ROCE_UDP_MAX)
		return false;
	difference = trial_difference(x, f, data, length);
	return difference == 0 ||
	       (x->prefix.v4 && roce_icrc_explain(&x->unshift, difference, length, &any));
}

static bool trial_is_as_before(const struct roce_trial *x, const struct roce_flow *f,
			      const u8 *data, u32 first, u32 all)
{
	return x->first == first && x->all == all && x->fecn == data[first + BTH_FECN] &&
	       x->df == f->df && prefix_is_of(&x->prefix, f);
}

/* The bits of an explanation that are neither identification nor DF. */
static u32 trial_unexplained(u32 difference, u32 unshift)
{
	return poly_times(difference, unshift) >> 16 & ~(u32)IPV4_DF;
}

static u32 trial_of_id(const struct roce_trial *x, u16 id)
{
	return x->by_id[0][id & 15] ^ x->by_id[1][id >> 4 & 15] ^ x->by_id[2][id >> 8 & 15] ^
	       x->by_id[3][id >> 12];
}

static NOINLINE void trial_learn(struct roce_trial *x, const struct roce_flow *f, const u8 *data)
{
	u32 difference = trial_difference(x, f, data, x->all), second;

	memset(x->by_id, 0, sizeof(x->by_id));
	x->residue = difference;
	if (!x->prefix.v4)
		return;
	/* the second packet's identification lies so far before the end of its ICRC's CRC, and the
	 * whole one's so much farther */
	second = poly_unshift(ICRC_FROM_ID + x->first);
	for (u32 i = 0; i < 4; i++)
		for (u32 v = 1; v < 16; v++) {
			u16 id = (u16)(v << 4 * i);

			x->by_id[i][v] = (u16)trial_unexplained(
				icrc_by_id[0][id >> 8] ^ icrc_by_id[1][id & 255], second);
		}
	x->residue = trial_unexplained(difference,
				      poly_unshift(ICRC_FROM_ID + x->all - ROCE_ICRC)) ^
		     trial_of_id(x, f->id);
}

bool roce_icrc_is_pair_possible(struct roce_trial *x, const struct roce_flow *f, const u8 *data,
				u32 first, u32 all)
{
	if (all > ROCE_UDP_MAX)
		return false;
	if (unlikely(!trial_is_as_before(x, f, data, first, all))) {
		x->first = (u16)first;
		x->all = (u16)all;
		x->fecn = data[first + BTH_FECN];
		x->df = f->df;
		x->same = 0;
	}
	if (likely(x->same > ICRC_PAIR_SAME))
		return x->residue == trial_of_id(x, f->id);
	if (x->same++ == ICRC_PAIR_SAME)
		trial_learn(x, f, data);
	return roce_icrc_is_possible(x, f, data, all);
}
