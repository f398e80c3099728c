/* gone_test.c: what is answered to messages that find nobody. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cm/message/message.h"

enum { THEIRS = 0x11223344, OURS = 0x55667788 };
#define TID 0x0102030405060708ull

static bool ask_by(bool (*by)(const u8 *mad, u8 *answer), struct cm_msg *in, struct cm_msg *out)
{
	u8 mad[CM_MAD_BYTES], answer[CM_MAD_BYTES];

	in->tid = TID;
	msg_pack(in, mad);
	if (!by(mad, answer))
		return false;
	assert_true(msg_unpack(out, answer, sizeof(answer)));
	assert_int_equal(out->tid, TID);
	return true;
}

static bool ask(struct cm_msg *in, struct cm_msg *out)
{
	return ask_by(msg_answer_for_gone, in, out);
}

static void answer_for_full__refuses_what_would_begin(void **state)
{
	struct cm_msg in = { .attr = CM_REQ }, out;

	(void)state;
	in.req = (struct cm_req_msg){ .local_id = THEIRS, .service_id = 0x1061234 };
	assert_true(ask_by(msg_answer_for_full, &in, &out));
	assert_int_equal(out.attr, CM_REJ);
	assert_int_equal(out.rej.remote_id, THEIRS);
	assert_int_equal(out.rej.about, CM_ABOUT_OTHER);
	assert_int_equal(out.rej.reason, CM_REASON_NO_RESOURCES);
	in.attr = CM_SIDR_REQ;
	in.sidr_req = (struct cm_sidr_req_msg){ .request_id = THEIRS, .service_id = 0x1061234 };
	assert_true(ask_by(msg_answer_for_full, &in, &out));
	assert_int_equal(out.sidr_rep.request_id, THEIRS);
	assert_int_equal(out.sidr_rep.status, CM_SIDR_NO_QP);
	in.attr = CM_DREQ;
	assert_false(ask_by(msg_answer_for_full, &in, &out));
}

static void answer_for_gone__names_both_ids_the_other_way_round(void **state)
{
	struct cm_msg in = { .attr = CM_DREQ }, out;

	(void)state;
	in.dreq = (struct cm_dreq_msg){ .local_id = THEIRS, .remote_id = OURS };
	assert_true(ask(&in, &out));
	assert_int_equal(out.attr, CM_DREP);
	assert_int_equal(out.drep.local_id, OURS);
	assert_int_equal(out.drep.remote_id, THEIRS);
	in.attr = CM_REP;
	in.rep = (struct cm_rep_msg){ .local_id = THEIRS, .remote_id = OURS };
	assert_true(ask(&in, &out));
	assert_int_equal(out.attr, CM_REJ);
	assert_int_equal(out.rej.local_id, OURS);
	assert_int_equal(out.rej.remote_id, THEIRS);
	assert_int_equal(out.rej.about, CM_ABOUT_REP);
	assert_int_equal(out.rej.reason, CM_REASON_UNKNOWN_ID);
	in.attr = CM_LAP;
	in.lap = (struct cm_lap_msg){ .local_id = THEIRS, .remote_id = OURS };
	assert_true(ask(&in, &out));
	assert_int_equal(out.attr, CM_APR);
	assert_int_equal(out.apr.remote_id, THEIRS);
	assert_int_equal(out.apr.status, CM_APR_UNKNOWN_ID);
}

static void answer_for_gone__refuses_requests_for_a_service(void **state)
{
	struct cm_msg in = { .attr = CM_REQ }, out;

	(void)state;
	in.req = (struct cm_req_msg){ .local_id = THEIRS, .service_id = 0x1061234 };
	assert_true(ask(&in, &out));
	assert_int_equal(out.attr, CM_REJ);
	assert_int_equal(out.rej.remote_id, THEIRS);
	assert_int_equal(out.rej.local_id, 0);
	assert_int_equal(out.rej.about, CM_ABOUT_REQ);
	assert_int_equal(out.rej.reason, CM_REASON_UNKNOWN_SERVICE);
	in.attr = CM_SIDR_REQ;
	in.sidr_req = (struct cm_sidr_req_msg){ .request_id = THEIRS, .service_id = 0x1061234 };
	assert_true(ask(&in, &out));
	assert_int_equal(out.attr, CM_SIDR_REP);
	assert_int_equal(out.sidr_rep.request_id, THEIRS);
	assert_int_equal(out.sidr_rep.service_id, 0x1061234);
	assert_int_equal(out.sidr_rep.status, CM_SIDR_UNKNOWN_SERVICE);
}

/* An answer to an answer would go to and fro for ever. */
static void answer_for_gone__never_answers_an_answer(void **state)
{
	static const enum cm_attr answers[] = { CM_MRA, CM_REJ, CM_RTU, CM_DREP, CM_SIDR_REP,
						CM_APR };
	struct cm_msg out;
	u8 mad[CM_MAD_BYTES] = { 0 }, answer[CM_MAD_BYTES];

	(void)state;
	for (u32 i = 0; i < ARRAY_LEN(answers); i++) {
		struct cm_msg in = { .attr = answers[i] };

		assert_false(ask(&in, &out));
	}
	assert_false(msg_answer_for_gone(mad, answer));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(answer_for_full__refuses_what_would_begin),
		cmocka_unit_test(answer_for_gone__names_both_ids_the_other_way_round),
		cmocka_unit_test(answer_for_gone__refuses_requests_for_a_service),
		cmocka_unit_test(answer_for_gone__never_answers_an_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
