/* crc.c: the CRC-32 of Ethernet, by whichever of two ways is faster on this processor.
 *
 * ISA-L has the processor's carry-less multiplication, 20 times as fast as anything else. Where
 * there is none it goes byte by byte, and an emulator may have one that is slower than tables: then
 * eight tables do it, 8 bytes at a time. Which it is is not asked of the processor but measured.
 *
 * In: bytes    Out: a CRC    Runs: any thread    Locks: none
 */
#include "wire/crc.h"

#include <endian.h>
#include <isa-l/crc.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"

/* The race: so many times so many bytes each, the best one counts. Long enough for a clock that
 * costs a microsecond. */
enum { CRC_TRIES = 4, CRC_TRY_BYTES = 2048 };

typedef u32 crc_way(u32 crc, const void *data, u32 bytes);

static u32 crc_first(u32 crc, const void *data, u32 bytes);

static crc_way *crc_chosen = crc_first;
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;
/* crc_table[i][b]: what the byte b does to the CRC when i more bytes follow. */
static u32 crc_table[8][256];

u32 crc_add_isal(u32 crc, const void *data, u32 bytes)
{
	return crc32_gzip_refl(crc, data, bytes);
}

u32 crc_add_tables(u32 crc, const void *data, u32 bytes)
{
	const u8 *p = data;

	crc = ~crc;
	for (; bytes >= 8; bytes -= 8, p += 8) {
		u64 w;

		memcpy(&w, p, 8);
		w = le64toh(w) ^ crc;
		crc = crc_table[7][w & 255] ^ crc_table[6][w >> 8 & 255] ^
		      crc_table[5][w >> 16 & 255] ^ crc_table[4][w >> 24 & 255] ^
		      crc_table[3][w >> 32 & 255] ^ crc_table[2][w >> 40 & 255] ^
		      crc_table[1][w >> 48 & 255] ^ crc_table[0][w >> 56];
	}
	for (; bytes > 0; bytes--)
		crc = crc_table[0][(crc ^ *p++) & 255] ^ crc >> 8;
	return ~crc;
}

static void crc_fill_tables(void)
{
	for (u32 b = 0; b < 256; b++) {
		u32 crc = b;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? CRC_POLYNOMIAL : 0);
		crc_table[0][b] = crc;
	}
	for (int i = 1; i < 8; i++)
		for (u32 b = 0; b < 256; b++)
			crc_table[i][b] =
				crc_table[i - 1][b] >> 8 ^ crc_table[0][crc_table[i - 1][b] & 255];
}

static u64 crc_time(crc_way *way, const u8 *data)
{
	volatile u32 sink;
	u64 begin = clock_now_ns();

	sink = way(0, data, CRC_TRY_BYTES);
	(void)sink;
	return clock_now_ns() - begin;
}

static void crc_choose(void)
{
	u8 data[CRC_TRY_BYTES];
	u64 isal = ~0ull, tables = ~0ull;

	crc_fill_tables();
	memset(data, 0x5a, sizeof(data));
	for (int i = 0; i < CRC_TRIES; i++) {
		isal = MIN(isal, crc_time(crc_add_isal, data));
		tables = MIN(tables, crc_time(crc_add_tables, data));
	}
	/* pairs with crc_add: who calls the tables sees them */
	__atomic_store_n(&crc_chosen, tables < isal ? crc_add_tables : crc_add_isal,
			 __ATOMIC_RELEASE);
}

static u32 crc_first(u32 crc, const void *data, u32 bytes)
{
	pthread_once(&crc_once, crc_choose);
	return crc_add(crc, data, bytes);
}

u32 crc_add(u32 crc, const void *data, u32 bytes)
{
	/* acquire: pairs with crc_choose */
	return __atomic_load_n(&crc_chosen, __ATOMIC_ACQUIRE)(crc, data, bytes);
}
