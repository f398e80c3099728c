/* message_test.c: the CM's messages: where each field lies, and that nothing else does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cm/message/message.h"

/* A REQ whose bytes were written down from the figure of the specification, not by our tables. */
static void req_bytes(u8 *mad)
{
	static const u8 head[] = {
		1, 7, 2, 3, 0, 0, 0, 0, /* versions, class, method Send */
		0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, /* transaction ID */
		0, 0x10, 0, 0, 0, 0, 0, 9, /* REQ, attribute modifier */
		/* 0 */ 0xa1, 0xa2, 0xa3, 0xa4, 0, 0x12, 0x34, 0x56, /* ID, vendor ID */
		/* 8 */ 0, 0, 0, 0, 1, 6, 0x1f, 0x90, /* service ID */
		/* 16 */ 1, 2, 3, 4, 5, 6, 7, 8, /* GUID */
		/* 24 */ 0, 0, 0, 0, 0x80, 1, 0, 0, /* Q_Key */
		/* 32 */ 0xab, 0xcd, 0xef, 5, /* QPN, responder resources */
		/* 36 */ 0, 0, 0, 6, /* EECN, initiator depth */
		/* 40 */ 0, 0, 0, 20 << 3 | 1 << 1 | 1, /* response timeout, UC, flow control */
		/* 44 */ 0x12, 0x34, 0x56, 19 << 3 | 7, /* PSN, response timeout, retry count */
		/* 48 */ 0xff, 0xff, 3 << 4 | 1 << 3 | 6, 15 << 4 | 1 << 3 | 1,
		/* 52 */ 0, 1, 0, 2, /* LIDs */
	};

	memset(mad, 0, CM_MAD_BYTES);
	memcpy(mad, head, sizeof(head));
	memset(mad + 24 + 56, 0xc1, 16);
	memset(mad + 24 + 72, 0xc2, 16);
	memcpy(mad + 24 + 88, (u8[]){ 0xfe, 0xdc, 0xb0, 16, 33, 64, 5 << 4 | 1 << 3, 18 << 3 }, 8);
	memset(mad + 24 + 140, 'p', 92);
}

static void req__each_field_lies_where_the_specification_says(void **state)
{
	u8 mad[CM_MAD_BYTES], again[CM_MAD_BYTES];
	const struct cm_req_msg *m;
	struct cm_msg msg;

	(void)state;
	req_bytes(mad);
	assert_true(msg_unpack(&msg, mad, sizeof(mad)));
	m = &msg.req;
	assert_int_equal(msg.attr, CM_REQ);
	assert_int_equal(msg.tid, 0x1122334455667788);
	assert_int_equal(msg.attr_mod, 9);
	assert_int_equal(m->local_id, 0xa1a2a3a4);
	assert_int_equal(m->vendor_id, 0x123456);
	assert_int_equal(m->service_id, 0x01061f90);
	assert_int_equal(m->local_ca_guid, 0x0102030405060708);
	assert_int_equal(m->local_qkey, 0x80010000);
	assert_int_equal(m->local_qpn, 0xabcdef);
	assert_int_equal(m->responder_resources, 5);
	assert_int_equal(m->initiator_depth, 6);
	assert_int_equal(m->remote_response_timeout, 20);
	assert_int_equal(m->transport, CM_TRANSPORT_UC);
	assert_int_equal(m->flow_control, 1);
	assert_int_equal(m->starting_psn, 0x123456);
	assert_int_equal(m->local_response_timeout, 19);
	assert_int_equal(m->retry_count, 7);
	assert_int_equal(m->pkey, 0xffff);
	assert_int_equal(m->path_mtu, 3);
	assert_int_equal(m->rdc_exists, 1);
	assert_int_equal(m->rnr_retry_count, 6);
	assert_int_equal(m->max_cm_retries, 15);
	assert_int_equal(m->srq, 1);
	assert_int_equal(m->extended_transport, 1);
	assert_int_equal(m->primary.local_lid, 1);
	assert_int_equal(m->primary.remote_lid, 2);
	assert_int_equal(m->primary.local_gid[15], 0xc1);
	assert_int_equal(m->primary.remote_gid[0], 0xc2);
	assert_int_equal(m->primary.flow_label, 0xfedcb);
	assert_int_equal(m->primary.packet_rate, 16);
	assert_int_equal(m->primary.traffic_class, 33);
	assert_int_equal(m->primary.hop_limit, 64);
	assert_int_equal(m->primary.sl, 5);
	assert_int_equal(m->primary.subnet_local, 1);
	assert_int_equal(m->primary.local_ack_timeout, 18);
	assert_int_equal(m->private_data[91], 'p');
	msg_pack(&msg, again);
	assert_memory_equal(mad, again, sizeof(mad));
}

/* A MAD of random bytes with a right header. */
static void random_mad(u8 *mad, u32 attr, u32 *seed)
{
	static const u8 head[] = { 1, 7, 2, 3 };

	for (u32 i = 0; i < CM_MAD_BYTES; i++) {
		*seed = *seed * 1664525 + 1013904223;
		mad[i] = (u8)(*seed >> 24);
	}
	memcpy(mad, head, sizeof(head));
	mad[16] = 0;
	mad[17] = (u8)attr;
}

/* Whatever a MAD holds: what is read from it and written again reads the same. */
static void each_message__survives_the_way_there_and_back(void **state)
{
	u8 mad[CM_MAD_BYTES], out[CM_MAD_BYTES], again[CM_MAD_BYTES];
	struct cm_msg msg;
	u32 seed = 1, bytes;

	(void)state;
	for (u32 round = 0; round < 500; round++) {
		for (u32 attr = CM_REQ; attr < CM_ATTR_END; attr++) {
			random_mad(mad, attr, &seed);
			assert_true(msg_unpack(&msg, mad, sizeof(mad)));
			msg_pack(&msg, out);
			for (u32 i = 0; i < sizeof(mad); i++)
				assert_int_equal(out[i] & ~mad[i], 0); /* nothing invented */
			assert_true(msg_unpack(&msg, out, sizeof(out)));
			msg_pack(&msg, again);
			assert_memory_equal(out, again, sizeof(out));
			/* the private data is the end of each message */
			(void)msg_private(&msg, &bytes);
			assert_memory_equal(mad + sizeof(mad) - bytes, out + sizeof(mad) - bytes,
					    bytes);
		}
	}
}

static void unpack__refuses_what_is_no_message_of_the_cm(void **state)
{
	u8 mad[CM_MAD_BYTES];
	struct cm_msg msg;

	(void)state;
	req_bytes(mad);
	assert_false(msg_unpack(&msg, mad, sizeof(mad) - 1));
	assert_false(msg_unpack(&msg, mad, 0));
	for (u32 i = 0; i < 4; i++) {
		mad[i] ^= 0x40;
		assert_false(msg_unpack(&msg, mad, sizeof(mad)));
		mad[i] ^= 0x40;
	}
	mad[17] = 0x0f;
	assert_false(msg_unpack(&msg, mad, sizeof(mad)));
	mad[17] = CM_ATTR_END;
	assert_false(msg_unpack(&msg, mad, sizeof(mad)));
	mad[16] = 1;
	mad[17] = CM_REQ;
	assert_false(msg_unpack(&msg, mad, sizeof(mad)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(req__each_field_lies_where_the_specification_says),
		cmocka_unit_test(each_message__survives_the_way_there_and_back),
		cmocka_unit_test(unpack__refuses_what_is_no_message_of_the_cm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
