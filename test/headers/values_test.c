/* values_test.c: layouts of the wire and of the kernel's ABI in the headers that no room of src/
 * stands behind, and their inline calls. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <rdma/ib_smi.h>
#include <rdma/ib_user_cm.h>
#include <rdma/ib_user_mad.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/iw_cm.h>
#include <rdma/rdma_user_cm.h>

#define AT(type, field, offset) _Static_assert(offsetof(struct type, field) == (offset), #field)
#define BYTES(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)

/* IBA vol 1, 14.2.1 */
BYTES(ib_smp, IB_MGMT_MAD_SIZE);
AT(ib_smp, hop_ptr, 6);
AT(ib_smp, tid, offsetof(struct ib_mad_hdr, tid));
AT(ib_smp, attr_id, offsetof(struct ib_mad_hdr, attr_id));
AT(ib_smp, attr_mod, offsetof(struct ib_mad_hdr, attr_mod));
AT(ib_smp, mkey, 24);
AT(ib_smp, dr_slid, 32);
AT(ib_smp, data, 64);
AT(ib_smp, initial_path, 128);
AT(ib_smp, return_path, 192);
/* 14.2.5.6, in bits there */
AT(ib_port_info, lid, 128 / 8);
AT(ib_port_info, cap_mask, 160 / 8);
AT(ib_port_info, linkspeed_portstate, 256 / 8);
AT(ib_port_info, neighbormtu_mastersmsl, 288 / 8);
AT(ib_port_info, operationalvl_pei_peo_fpi_fpo, 344 / 8);
AT(ib_port_info, mkey_violations, 352 / 8);
AT(ib_port_info, guid_cap, 400 / 8);
AT(ib_port_info, link_roundtrip_latency, 456 / 8);
BYTES(ib_port_info, IB_SMP_DATA_SIZE);
/* 14.2.5.3 */
BYTES(ib_node_info, 40);
AT(ib_node_info, node_guid, 12);
AT(ib_node_info, revision, 32);

/* The kernel's ABI of ib_ucm, version 5. */
BYTES(ib_ucm_cmd_hdr, 8);
BYTES(ib_ucm_create_id, 16);
BYTES(ib_ucm_destroy_id, 16);
BYTES(ib_ucm_attr_id_resp, 24);
BYTES(ib_ucm_init_qp_attr, 16);
BYTES(ib_ucm_listen, 24);
BYTES(ib_ucm_private_data, 16);
BYTES(ib_ucm_req, 64);
BYTES(ib_ucm_rep, 40);
BYTES(ib_ucm_info, 32);
BYTES(ib_ucm_mra, 16);
BYTES(ib_ucm_lap, 24);
BYTES(ib_ucm_sidr_req, 40);
BYTES(ib_ucm_sidr_rep, 40);
BYTES(ib_ucm_event_get, 32);
BYTES(ib_ucm_rep_event_resp, 32);
BYTES(ib_ucm_req_event_resp, 2 * sizeof(struct ib_user_path_rec) + 40);
BYTES(ib_ucm_event_resp, 24 + sizeof(struct ib_ucm_req_event_resp));
_Static_assert(IB_USER_CM_CMD_SEND_REQ == 5 && IB_USER_CM_CMD_INIT_QP_ATTR == 17, "commands");

/* Linux's numbers, which drivers of iWARP devices bring. */
_Static_assert(IW_CM_EVENT_CONNECT_REQUEST == 1 && IW_CM_EVENT_CLOSE == 5, "events");
_Static_assert((int)IW_CM_EVENT_STATUS_ACCEPTED == 0 && IW_CM_EVENT_STATUS_EINVAL == 4, "statuses");

static void ib_get_smp_direction__is_the_highest_bit(void **state)
{
	struct ib_smp smp = { .status = htons(0x7fff) };

	(void)state;
	assert_int_equal(ib_get_smp_direction(&smp), 0);
	smp.status = htons(0x8000);
	assert_int_equal(ib_get_smp_direction(&smp), 1);
}

static void ib_sg_dma__is_what_was_mapped(void **state)
{
	static char memory[3][64];
	struct scatterlist sg[3], *s;
	u32 i = 0;

	(void)state;
	sg_init_table(sg, 3);
	for (i = 0; i < 3; i++)
		sg_set_buf(&sg[i], memory[i], 10 + i);
	assert_int_equal(ib_dma_map_sg(NULL, sg, 3, DMA_TO_DEVICE), 3);
	for (s = sg, i = 0; s != NULL; s = sg_next(s), i++) {
		assert_ptr_equal((void *)(uintptr_t)ib_sg_dma_address(NULL, s), memory[i]);
		assert_int_equal(ib_sg_dma_len(NULL, s), 10 + i);
	}
	assert_int_equal(i, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ib_get_smp_direction__is_the_highest_bit),
		cmocka_unit_test(ib_sg_dma__is_what_was_mapped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
