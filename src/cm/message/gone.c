/* gone.c: what a CM answers to a message for an id, or a service, that it does not have.
 * In: a MAD that found nobody    Out: the answer    Runs: any thread    Locks: none
 * Spec: IBA vol 1, 12.9.6, 12.9.8
 */
#include <string.h>

#include "cm/message/message.h"

bool msg_answer_for_gone(const u8 *mad, u8 *answer)
{
	struct cm_msg in, out;

	if (!msg_unpack(&in, mad, CM_MAD_BYTES))
		return false;
	memset(&out, 0, sizeof(out));
	out.tid = in.tid;
	switch (in.attr) {
	case CM_REQ:
		out.attr = CM_REJ;
		out.rej = (struct cm_rej_msg){ .remote_id = in.req.local_id,
					       .about = CM_ABOUT_REQ,
					       .reason = CM_REASON_UNKNOWN_SERVICE };
		break;
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
	case CM_SIDR_REQ:
		out.attr = CM_SIDR_REP;
		out.sidr_rep = (struct cm_sidr_rep_msg){ .request_id = in.sidr_req.request_id,
							 .service_id = in.sidr_req.service_id,
							 .status = CM_SIDR_UNKNOWN_SERVICE };
		break;
	default:
		return false;
	}
	msg_pack(&out, answer);
	return true;
}
