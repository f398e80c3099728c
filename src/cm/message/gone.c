/* gone.c: what a CM answers to a message for an id, or a service, that it does not have, or that it
 * cannot take.
 * In: a MAD that was not taken    Out: the answer    Runs: any thread    Locks: none
 * Spec: IBA vol 1, 12.9.6, 12.9.8
 */
#include <string.h>

#include "cm/message/message.h"

/* Refuses a request for a service by `rej` or by the status. False: it is none. */
static bool msg_refuse(const struct cm_msg *in, struct cm_rej_msg rej, u8 sidr_status,
		       struct cm_msg *out)
{
	if (in->attr == CM_REQ) {
		out->attr = CM_REJ;
		rej.remote_id = in->req.local_id;
		out->rej = rej;
	} else if (in->attr == CM_SIDR_REQ) {
		out->attr = CM_SIDR_REP;
		out->sidr_rep =
			(struct cm_sidr_rep_msg){ .request_id = in->sidr_req.request_id,
						  .service_id = in->sidr_req.service_id,
						  .status = sidr_status };
	} else {
		return false;
	}
	return true;
}

/* False: `mad` is no message. */
static bool msg_begin_answer(const u8 *mad, struct cm_msg *in, struct cm_msg *out)
{
	if (!msg_unpack(in, mad, CM_MAD_BYTES))
		return false;
	memset(out, 0, sizeof(*out));
	out->tid = in->tid;
	return true;
}

bool msg_answer_for_full(const u8 *mad, u8 *answer)
{
	struct cm_rej_msg rej = { .about = CM_ABOUT_OTHER, .reason = CM_REASON_NO_RESOURCES };
	struct cm_msg in, out;

	if (!msg_begin_answer(mad, &in, &out) || !msg_refuse(&in, rej, CM_SIDR_NO_QP, &out))
		return false;
	msg_pack(&out, answer);
	return true;
}

bool msg_answer_for_gone(const u8 *mad, u8 *answer)
{
	struct cm_rej_msg rej = { .about = CM_ABOUT_REQ, .reason = CM_REASON_UNKNOWN_SERVICE };
	struct cm_msg in, out;

	if (!msg_begin_answer(mad, &in, &out))
		return false;
	switch (in.attr) {
	case CM_REP:
		out.attr = CM_REJ;
		out.rej = (struct cm_rej_msg){ .local_id = in.rep.remote_id,
					       .remote_id = in.rep.local_id,
					       .about = CM_ABOUT_REP,
					       .reason = CM_REASON_UNKNOWN_ID };
		break;
	case CM_DREQ:
		out.attr = CM_DREP;
		out.drep = (struct cm_pair_msg){ .local_id = in.dreq.remote_id,
						 .remote_id = in.dreq.local_id };
		break;
	case CM_LAP:
		out.attr = CM_APR;
		out.apr = (struct cm_apr_msg){ .local_id = in.lap.remote_id,
					       .remote_id = in.lap.local_id,
					       .status = CM_APR_UNKNOWN_ID };
		break;
	default:
		if (!msg_refuse(&in, rej, CM_SIDR_UNKNOWN_SERVICE, &out))
			return false;
	}
	msg_pack(&out, answer);
	return true;
}
