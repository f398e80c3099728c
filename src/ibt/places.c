/* places.c: where the fields lie that explain a queue pair to a reader of this process' memory.
 * In: nothing    Out: offsets    Runs: any thread    Locks: none
 */
#include "ibt/ibt_qp.h"

#define PLACE(type, field)                                                                         \
	{                                                                                          \
		(u16) offsetof(type, field), (u16)sizeof(((type *)NULL)->field)                    \
	}

void ibt_show_places(struct path_place out[INSIDE_COUNT])
{
	static const struct path_place places[INSIDE_COUNT] = {
		[INSIDE_QPN] = PLACE(struct ibt_qp, qpn),
		[INSIDE_SQ_PSN] = PLACE(struct ibt_qp, req.psn),
		[INSIDE_EPSN] = PLACE(struct ibt_qp, resp.epsn),
		[INSIDE_MSN] = PLACE(struct ibt_qp, resp.msn),
		[INSIDE_SQ_HEAD] = PLACE(struct ibt_qp, req.head),
		[INSIDE_SQ_NEXT] = PLACE(struct ibt_qp, req.next),
		[INSIDE_SQ_TAIL] = PLACE(struct ibt_qp, req.tail),
		[INSIDE_SQ_SIZE] = PLACE(struct ibt_qp, req.ring.size),
		[INSIDE_RQ_HEAD] = PLACE(struct ibt_qp, resp.head),
		[INSIDE_RQ_TAIL] = PLACE(struct ibt_qp, resp.tail),
		[INSIDE_RQ_SIZE] = PLACE(struct ibt_qp, resp.ring.size),
		[INSIDE_SRQ] = PLACE(struct ibt_qp, srq),
		[INSIDE_WAITS_RNR] = PLACE(struct ibt_qp, req.waiting),
		[INSIDE_RETRY_LEFT] = PLACE(struct ibt_qp, req.retry_left),
		[INSIDE_RNR_LEFT] = PLACE(struct ibt_qp, req.rnr_left),
		[INSIDE_STREAMS] = PLACE(struct ibt_qp, streams),
		[INSIDE_UNA] = PLACE(struct ibt_qp, req.stream.una),
		[INSIDE_BACKOFF] = PLACE(struct ibt_qp, req.stream.backoff),
		[INSIDE_SRTT_US] = PLACE(struct ibt_qp, req.stream.srtt_us),
		[INSIDE_CHARGED] = PLACE(struct ibt_qp, req.stream.charged),
		[INSIDE_DEST] = PLACE(struct ibt_qp, dest),
		[INSIDE_DEST_WINDOW] = PLACE(struct path_dest, window),
		[INSIDE_IN_FLIGHT] = PLACE(struct path_window, in_flight),
		[INSIDE_LIMIT] = PLACE(struct path_window, limit),
	};

	_Static_assert(WAIT_RNR == 1, "INSIDE_WAITS_RNR says so");
	memcpy(out, places, sizeof(places));
}
