/* rate.c: static rates as numbers.
 * In: an enum ib_rate or a number    Out: the other    Runs: anywhere    Locks: none
 */
#include <rdma/ib_verbs.h>

#include "base/compiler.h"

/* mult: in units of 2.5 Gbit/s, rounded. mbps: what the link's lanes carry. */
static const struct {
	u32 mbps;
	u16 mult;
} FIXED rates[] = {
	[IB_RATE_2_5_GBPS] = { 2500, 1 },     [IB_RATE_5_GBPS] = { 5000, 2 },
	[IB_RATE_10_GBPS] = { 10000, 4 },     [IB_RATE_20_GBPS] = { 20000, 8 },
	[IB_RATE_30_GBPS] = { 30000, 12 },    [IB_RATE_40_GBPS] = { 40000, 16 },
	[IB_RATE_60_GBPS] = { 60000, 24 },    [IB_RATE_80_GBPS] = { 80000, 32 },
	[IB_RATE_120_GBPS] = { 120000, 48 },  [IB_RATE_14_GBPS] = { 14062, 6 },
	[IB_RATE_56_GBPS] = { 56250, 22 },    [IB_RATE_112_GBPS] = { 112500, 45 },
	[IB_RATE_168_GBPS] = { 168750, 67 },  [IB_RATE_25_GBPS] = { 25781, 10 },
	[IB_RATE_100_GBPS] = { 103125, 40 },  [IB_RATE_200_GBPS] = { 206250, 80 },
	[IB_RATE_300_GBPS] = { 309375, 120 }, [IB_RATE_28_GBPS] = { 28125, 11 },
	[IB_RATE_50_GBPS] = { 53125, 20 },    [IB_RATE_400_GBPS] = { 425000, 160 },
	[IB_RATE_600_GBPS] = { 637500, 240 }, [IB_RATE_800_GBPS] = { 850000, 320 },
	[IB_RATE_1200_GBPS] = { 1275000, 480 },
};

static bool ib_rate_is_known(enum ib_rate rate)
{
	return (u32)rate < ARRAY_LEN(rates) && rates[rate].mbps;
}

int ib_rate_to_mult(enum ib_rate rate)
{
	return ib_rate_is_known(rate) ? rates[rate].mult : -1;
}

enum ib_rate mult_to_ib_rate(int mult)
{
	for (u32 i = 0; i < ARRAY_LEN(rates); i++)
		if (mult > 0 && rates[i].mult == mult)
			return (enum ib_rate)i;
	return IB_RATE_PORT_CURRENT;
}

int ib_rate_to_mbps(enum ib_rate rate)
{
	return ib_rate_is_known(rate) ? (int)rates[rate].mbps : -1;
}
