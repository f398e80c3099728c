/* rate.c: static rates as enumerators, as multiples of 2.5 Gbit/s and as Mbit/s.
 * In: a rate in one form
 * Out: another form, -1 or IBV_RATE_MAX (0) if there is none
 * Runs: any thread
 * Locks: none
 */
#include "door.h"

/* `multiple` is 0 where lanes of 14 or 25 Gbit/s make none; `mbps` counts the bits on the wire
 * after coding. */
static const struct rate_row {
	enum ibv_rate rate;
	int multiple;
	int mbps;
} FIXED rate_table[] = {
	/* clang-format off */
	{ IBV_RATE_2_5_GBPS, 1, 2500 },
	{ IBV_RATE_5_GBPS, 2, 5000 },
	{ IBV_RATE_10_GBPS, 4, 10000 },
	{ IBV_RATE_20_GBPS, 8, 20000 },
	{ IBV_RATE_30_GBPS, 12, 30000 },
	{ IBV_RATE_40_GBPS, 16, 40000 },
	{ IBV_RATE_60_GBPS, 24, 60000 },
	{ IBV_RATE_80_GBPS, 32, 80000 },
	{ IBV_RATE_120_GBPS, 48, 120000 },
	{ IBV_RATE_14_GBPS, 0, 14062 },
	{ IBV_RATE_56_GBPS, 0, 56250 },
	{ IBV_RATE_112_GBPS, 0, 112500 },
	{ IBV_RATE_168_GBPS, 0, 168750 },
	{ IBV_RATE_25_GBPS, 0, 25781 },
	{ IBV_RATE_100_GBPS, 0, 103125 },
	{ IBV_RATE_200_GBPS, 0, 206250 },
	{ IBV_RATE_300_GBPS, 0, 309375 },
	{ IBV_RATE_28_GBPS, 11, 28125 },
	{ IBV_RATE_50_GBPS, 20, 53125 },
	{ IBV_RATE_400_GBPS, 160, 425000 },
	{ IBV_RATE_600_GBPS, 240, 637500 },
	{ IBV_RATE_800_GBPS, 320, 850000 },
	{ IBV_RATE_1200_GBPS, 480, 1275000 },
	/* clang-format on */
};

static const struct rate_row *rate_find(enum ibv_rate rate)
{
	for (size_t i = 0; i < ARRAY_LEN(rate_table); i++)
		if (rate_table[i].rate == rate)
			return &rate_table[i];
	return NULL;
}

AV_EXPORT int ibv_rate_to_mult(enum ibv_rate rate)
{
	const struct rate_row *row = rate_find(rate);

	return row && row->multiple ? row->multiple : -1;
}

AV_EXPORT enum ibv_rate mult_to_ibv_rate(int mult)
{
	for (size_t i = 0; i < ARRAY_LEN(rate_table); i++)
		if (mult > 0 && rate_table[i].multiple == mult)
			return rate_table[i].rate;
	return IBV_RATE_MAX;
}

AV_EXPORT int ibv_rate_to_mbps(enum ibv_rate rate)
{
	const struct rate_row *row = rate_find(rate);

	return row ? row->mbps : -1;
}

AV_EXPORT enum ibv_rate mbps_to_ibv_rate(int mbps)
{
	for (size_t i = 0; i < ARRAY_LEN(rate_table); i++)
		if (rate_table[i].mbps == mbps)
			return rate_table[i].rate;
	return IBV_RATE_MAX;
}
