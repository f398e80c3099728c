/* bed.c: an interface in virtual time, over a device that has address handles only. */
#include "ulp/ipoib/test_support/bed.h"

#include <stdlib.h>
#include <string.h>

u64 bed_now_ns;
u32 bed_handles;

int ib_init_ah_from_path(struct ib_device *device, u8 port_num, struct ib_sa_path_rec *rec,
			 struct ib_ah_attr *ah_attr)
{
	(void)device;
	(void)port_num;
	(void)rec;
	memset(ah_attr, 0, sizeof(*ah_attr));
	return 0;
}

int ib_init_ah_from_mcmember(struct ib_device *device, u8 port_num, struct ib_sa_mcmember_rec *rec,
			     struct ib_ah_attr *ah_attr)
{
	(void)device;
	(void)port_num;
	(void)rec;
	memset(ah_attr, 0, sizeof(*ah_attr));
	return 0;
}

struct ib_ah *ib_create_ah(struct ib_pd *pd, struct ib_ah_attr *ah_attr)
{
	static char handle;

	(void)pd;
	(void)ah_attr;
	bed_handles++;
	return (void *)&handle;
}

int ib_destroy_ah(struct ib_ah *ah)
{
	(void)ah;
	assert_true(bed_handles > 0);
	bed_handles--;
	return 0;
}

static u64 bed_now(void)
{
	return bed_now_ns;
}

struct ipoib *bed_create(void)
{
	struct ipoib *ip = calloc(1, sizeof(*ip));

	assert_non_null(ip);
	list_init(&ip->groups);
	list_init(&ip->queries);
	list_init(&ip->waiting);
	for (u32 i = 0; i < IPOIB_BUCKETS; i++)
		list_init(&ip->bucket[i]);
	bed_now_ns = NS_PER_S;
	bed_handles = 0;
	clock_set_source(bed_now);
	return ip;
}

void bed_free(struct ipoib *ip)
{
	clock_set_source(NULL);
	assert_int_equal(bed_handles, 0);
	free(ip);
}
