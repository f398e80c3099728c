/* icrc.c: RoCEv2's invariant CRC, and its check where part of what it covers cannot be seen.
 *
 * The CRC is Ethernet's (reflected 0x04c11db7, all ones before and after), sent least significant
 * byte first. It covers 8 bytes of ones in the place of InfiniBand's local header, the IP and UDP
 * headers, BTH, extension headers, payload and padding, with ones for what routers may change: ToS
 * or traffic class, flow label, TTL or hop limit, both checksums, and BTH's FECN byte.
 * In: headers and pieces    Out: 4 bytes, verdicts    Runs: any thread    Locks: none
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
enum { IPV4_TOS = 1, IPV4_TTL = 8, IPV4_CHECKSUM = 10, IPV6_HOPS = 7, BTH_FECN = 4,
       BTH_DQPN = 5, BTH_PSN = 9 };
enum { IPV4_BYTES = 28, UDP_CHECKSUM = 2 /* before the end of the headers */, IPV4_DF = 0x40 };
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

/* The two CRCs belong to packets that differ in the four bytes only which `rest` bytes follow: the
 * exclusive or of these four, as they lie. */
static void source_solve(struct roce_source *s, u32 difference, u32 rest, u8 word[4])
{
	if (s->unshift == 0 || s->rest != rest) {
		s->rest = rest;
		s->unshift = poly_unshift(rest + 4);
	}
	difference = htole32(poly_times(difference, s->unshift));
	memcpy(word, &difference, 4);
}

/* ---- which identifications a source may have ---- */

static bool source_is_near(u16 id, u16 track, u32 ahead)
{
	return (u16)(id - track) <= ahead || (u16)(track - id) <= ROCE_BEHIND;
}

/* Hosts advance identifications with time. */
static u32 source_ahead(u64 seen_ms, u64 now_ms)
{
	return ROCE_AHEAD + 4 * (u32)MIN(now_ms - seen_ms, (u64)(1u << 14));
}

/* The index of the track that `id` lies near, or s->tracks. */
static u32 source_track(const struct roce_source *s, u16 id, u64 now_ms)
{
	u32 ahead, i = 0;

	if (likely(s->tracks != 0 && (u16)(id - s->track[0]) <= 1))
		return 0;
	ahead = source_ahead(s->seen_ms, now_ms);
	while (i < s->tracks && !source_is_near(id, s->track[i], ahead))
		i++;
	return i;
}

static struct roce_port *source_port(struct roce_source *s, u16 sport)
{
	return &s->port[(sport ^ sport >> 6 ^ sport >> 12) % ROCE_PORTS];
}

/* Have packets from there been accepted, not long ago? */
static bool port_is_known(const struct roce_port *p, u16 sport)
{
	return p->known && p->sport == sport;
}

/* As the port counts by itself. `first`: alone, or first among joined ones. */
static u16 port_next(const struct roce_port *p, bool first)
{
	return first ? (u16)(p->head + p->step) : (u16)(p->last + 1);
}

/* What the next packet of this port is expected to have. */
static u16 source_next(struct roce_source *s, u16 sport, bool first)
{
	const struct roce_port *p = source_port(s, sport);

	if (port_is_known(p, sport) && !p->shared)
		return port_next(p, first);
	return first ? (u16)(s->head + s->step) : (u16)(s->track[0] + 1);
}

/* The next one of the host is judged by this one. `i` is its track, or s->tracks: it gets one. */
static void source_accept(struct roce_source *s, u32 i, u16 id, bool first, u64 now_ms)
{
	if (first && s->tracks != 0 && (u16)(id - s->head) <= 1)
		s->step = id - s->head;
	if (first)
		s->head = id;
	if (i == s->tracks && s->tracks < ROCE_TRACKS)
		s->tracks++;
	i = MIN(i, ROCE_TRACKS - 1u);
	if (unlikely(i != 0))
		memmove(s->track + 1, s->track, i * sizeof(s->track[0]));
	s->track[0] = id;
	s->seen_ms = now_ms;
}

/* The next one of the port. `before`: of the host, in the packet before. */
static void port_accept(struct roce_port *p, u16 before, const struct roce_flow *f, bool first,
			u64 now_ms)
{
	if (!port_is_known(p, f->sport))
		*p = (struct roce_port){
			.known = true, .sport = f->sport, .head = f->id, .df = f->df
		};
	else if (f->id == port_next(p, first))
		p->shared = false;
	else if ((u16)(f->id - before) <= 1)
		p->shared = true;
	if (first && (u16)(f->id - p->head) <= 1)
		p->step = f->id - p->head;
	if (first)
		p->head = f->id;
	if (f->id != 0)
		p->df = f->df;
	p->last = f->id;
	p->strangers = 0;
	p->seen_ms = now_ms;
}

/* One that is far: is it believed by now? */
static bool port_believe(struct roce_source *s, struct roce_port *p, u16 id, bool df)
{
	bool again = p->strangers != 0 && df == p->stranger_df;
	bool follows = again && source_is_near(id, p->stranger, ROCE_AHEAD);

	p->strangers = again ? p->strangers + 1 : 1;
	p->stranger = id;
	p->stranger_df = df;
	if (follows || p->strangers < ROCE_STRANGERS)
		return follows;
	s->wild = true;
	return true;
}

/* Packets between the last accepted one and this were lost, if both are of one connection: so far
 * has the identification gone on, too. */
static bool port_is_behind_gap(const struct roce_port *p, const struct roce_place *at, u16 id)
{
	return at->dqpn == p->place.dqpn &&
	       source_is_near(id, p->last + (u16)(at->psn - p->place.psn), ROCE_AHEAD);
}

/* Is it near the last one of its port, which has accepted some? */
static bool port_owns(const struct roce_port *p, const struct roce_place *at,
		      const struct roce_flow *f, u64 now_ms)
{
	return port_is_known(p, f->sport) &&
	       (source_is_near(f->id, p->last, source_ahead(p->seen_ms, now_ms)) ||
		port_is_behind_gap(p, at, f->id));
}

/* The packet has f->id and f->df, if any. */
static bool source_judge(struct roce_source *s, const struct roce_place *at,
			 const struct roce_flow *f, bool first, u64 now_ms)
{
	struct roce_port *p = source_port(s, f->sport);
	u16 before = s->track[0];
	bool known = port_is_known(p, f->sport), own = false, common;
	/* where the host's counter stands if this is an identification of it: near a track, or of a
	 * port whose last one was */
	u32 i = source_track(s, f->id, now_ms);

	if (unlikely(i == s->tracks)) {
		own = port_owns(p, at, f, now_ms);
		if (own)
			i = source_track(s, p->last, now_ms);
	}
	/* the host's one counter, or batches from 0 */
	common = i != s->tracks || source_is_near(f->id, 0, ROCE_AHEAD);
	if (known && f->id != 0 && !((common || own || s->wild) && f->df == p->df)) {
		if (!port_believe(s, p, f->id, f->df))
			return false;
		common = true;
	}
	if (common || s->tracks == 0)
		source_accept(s, i, f->id, first, now_ms);
	port_accept(p, before, f, first, now_ms);
	p->place = *at;
	s->id = f->id;
	s->df = f->df;
	return true;
}

/* With the difference to the ICRC of a packet that has f->id and f->df. `rest`: as source_solve. */
static bool source_explains(struct roce_source *s, const struct roce_place *at, u32 difference,
			    u32 rest, struct roce_flow *f, bool first, u64 now_ms)
{
	u8 word[4];

	source_solve(s, difference, rest, word);
	if ((word[2] & ~IPV4_DF) != 0 || word[3] != 0)
		return false;
	f->id ^= (u16)(word[0] << 8 | word[1]);
	f->df ^= word[2] != 0;
	return source_judge(s, at, f, first, now_ms);
}

static u32 icrc_24_bits(const u8 *at)
{
	return (u32)at[0] << 16 | (u32)at[1] << 8 | at[2];
}

static struct roce_place icrc_place(const u8 *bth)
{
	return (struct roce_place){ icrc_24_bits(bth + BTH_DQPN), icrc_24_bits(bth + BTH_PSN) };
}

/* Says in `e` what is expected of a packet of this flow, and how far its ICRC is from that. */
static u32 source_difference(struct roce_source *s, const struct roce_flow *f, const u8 *data,
			     u32 length, struct roce_flow *e)
{
	const struct roce_port *p = source_port(s, f->sport);
	u32 received;

	*e = *f;
	e->id = source_next(s, f->sport, f->id == 0);
	e->df = port_is_known(p, f->sport) ? p->df : s->df;
	memcpy(&received, data + length - ROCE_ICRC, ROCE_ICRC);
	return roce_icrc_whole(&s->prefix[f->sport % ROCE_SOURCE_PREFIXES], e, data, length) ^
	       le32toh(received);
}

bool roce_icrc_matches(struct roce_source *s, const struct roce_flow *f, const u8 *data, u32 length,
		       u64 now_ms)
{
	struct roce_place at;
	struct roce_flow e;
	u32 difference;

	if (length < ROCE_BTH + ROCE_ICRC || length > ROCE_UDP_MAX)
		return false;
	difference = source_difference(s, f, data, length, &e);
	if (!roce_gid_is_ipv4(f->dgid))
		return difference == 0;
	at = icrc_place(data);
	if (difference == 0)
		return source_judge(s, &at, &e, f->id == 0, now_ms);
	/* behind identification and flags: 12 bytes of IPv4, UDP's header, the packet */
	return source_explains(s, &at, difference, 12 + 8 + length - ROCE_ICRC, &e, f->id == 0,
			       now_ms);
}

bool roce_icrc_is_expected(struct roce_source *s, const struct roce_flow *f, const u8 *data,
			   u32 length, u64 now_ms)
{
	struct roce_place at;
	struct roce_flow e;

	if (length < ROCE_BTH + ROCE_ICRC || length > ROCE_UDP_MAX ||
	    source_difference(s, f, data, length, &e) != 0)
		return false;
	at = icrc_place(data);
	return !roce_gid_is_ipv4(f->dgid) || source_judge(s, &at, &e, f->id == 0, now_ms);
}
