/* path_test.c: paths as address vectors: by LID within a subnet, by GID beyond it.
 */
#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cm/ib/cm_priv.h"

static int path_find_gid(struct cm_device *dev, const union ib_gid *gid, u8 *port, u16 *index)
{
	*port = 2;
	*index = 3;
	return 0;
}

static int path_find_pkey(struct cm_device *dev, u8 port, u16 pkey, u16 *index)
{
	*index = 4;
	return pkey == 0x8001 ? 0 : -ENOENT;
}

static const struct cm_device_ops path_ops = { .find_gid = path_find_gid,
					       .find_pkey = path_find_pkey };

static struct ib_ah_attr path_ah(struct ib_sa_path_rec path)
{
	struct cm_device dev = { .ops = &path_ops };
	struct cm_av av;

	path.pkey = htobe16(0x8001);
	assert_int_equal(cm_av_from_path(&dev, &path, &av), 0);
	assert_int_equal(av.route.pkey_index, 4);
	assert_int_equal(av.route.ah.port_num, 2);
	return av.route.ah;
}

static void av_from_path__by_lid_within_the_subnet(void **state)
{
	struct ib_ah_attr ah = path_ah((struct ib_sa_path_rec){
		.dlid = htobe16(0x1234), .slid = htobe16(0x83), .sl = 5, .hop_limit = 0 });

	assert_int_equal(ah.ah_flags, 0);
	assert_int_equal(ah.dlid, 0x1234);
	assert_int_equal(ah.src_path_bits, 3);
	assert_int_equal(ah.sl, 5);
}

static void av_from_path__by_gid_beyond_it(void **state)
{
	struct ib_ah_attr ah = path_ah(
		(struct ib_sa_path_rec){ .dlid = htobe16(0x1234), .hop_limit = 2 });

	assert_int_equal(ah.ah_flags, IB_AH_GRH);
	assert_int_equal(ah.grh.hop_limit, 2);
	assert_int_equal(ah.grh.sgid_index, 3);
}

/* Ethernet has no LIDs, and its neighbours are a hop away. */
static void av_from_path__by_gid_without_lids(void **state)
{
	assert_int_equal(path_ah((struct ib_sa_path_rec){ .hop_limit = 1 }).ah_flags, IB_AH_GRH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(av_from_path__by_lid_within_the_subnet),
		cmocka_unit_test(av_from_path__by_gid_beyond_it),
		cmocka_unit_test(av_from_path__by_gid_without_lids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
