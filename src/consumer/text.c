/* text.c: what numbers mean, in a few words, for consumers' logs.
 * In: events, statuses, reasons    Out: texts that are never freed    Runs: anywhere    Locks: none
 */
#include "base/compiler.h"
#include "consumer/consumer_priv.h"

static const char *const event_texts[] = {
	[IB_EVENT_CQ_ERR] = "a CQ overran",
	[IB_EVENT_QP_FATAL] = "a queue pair failed",
	[IB_EVENT_QP_REQ_ERR] = "a peer's request was invalid",
	[IB_EVENT_QP_ACCESS_ERR] = "a peer's access was refused",
	[IB_EVENT_COMM_EST] = "first message before the connection's last",
	[IB_EVENT_SQ_DRAINED] = "send queue is drained",
	[IB_EVENT_PATH_MIG] = "moved to the alternate path",
	[IB_EVENT_PATH_MIG_ERR] = "cannot move to the alternate path",
	[IB_EVENT_DEVICE_FATAL] = "device failed",
	[IB_EVENT_PORT_ACTIVE] = "port is up",
	[IB_EVENT_PORT_ERR] = "port is down",
	[IB_EVENT_LID_CHANGE] = "new LID",
	[IB_EVENT_PKEY_CHANGE] = "new P_Keys",
	[IB_EVENT_SM_CHANGE] = "new subnet manager",
	[IB_EVENT_SRQ_ERR] = "an SRQ failed",
	[IB_EVENT_SRQ_LIMIT_REACHED] = "fewer requests in the SRQ than its limit",
	[IB_EVENT_QP_LAST_WQE_REACHED] = "last request of the SRQ taken",
	[IB_EVENT_CLIENT_REREGISTER] = "subscriptions to be made anew",
	[IB_EVENT_GID_CHANGE] = "new GIDs",
};

static const char *const status_texts[] = {
	[IB_WC_SUCCESS] = "done",
	[IB_WC_LOC_LEN_ERR] = "length does not fit here",
	[IB_WC_LOC_QP_OP_ERR] = "invalid request here",
	[IB_WC_LOC_EEC_OP_ERR] = "invalid EE context here",
	[IB_WC_LOC_PROT_ERR] = "key or range refused here",
	[IB_WC_WR_FLUSH_ERR] = "flushed",
	[IB_WC_MW_BIND_ERR] = "bind or registration refused",
	[IB_WC_BAD_RESP_ERR] = "peer answered nonsense",
	[IB_WC_LOC_ACCESS_ERR] = "write refused here",
	[IB_WC_REM_INV_REQ_ERR] = "request invalid to the peer",
	[IB_WC_REM_ACCESS_ERR] = "key or range refused by the peer",
	[IB_WC_REM_OP_ERR] = "peer failed",
	[IB_WC_RETRY_EXC_ERR] = "peer does not answer",
	[IB_WC_RNR_RETRY_EXC_ERR] = "peer has no receive request",
	[IB_WC_LOC_RDD_VIOL_ERR] = "RD domains differ here",
	[IB_WC_REM_INV_RD_REQ_ERR] = "RD request invalid to the peer",
	[IB_WC_REM_ABORT_ERR] = "aborted by the peer",
	[IB_WC_INV_EECN_ERR] = "no such EE context",
	[IB_WC_INV_EEC_STATE_ERR] = "EE context in another state",
	[IB_WC_FATAL_ERR] = "transport failed",
	[IB_WC_RESP_TIMEOUT_ERR] = "answer came too late",
	[IB_WC_GENERAL_ERR] = "failed",
};

static const char *const cm_texts[] = {
	[RDMA_CM_EVENT_ADDR_RESOLVED] = "address is resolved",
	[RDMA_CM_EVENT_ADDR_ERROR] = "address cannot be resolved",
	[RDMA_CM_EVENT_ROUTE_RESOLVED] = "route is resolved",
	[RDMA_CM_EVENT_ROUTE_ERROR] = "route cannot be resolved",
	[RDMA_CM_EVENT_CONNECT_REQUEST] = "a peer wants to connect",
	[RDMA_CM_EVENT_CONNECT_RESPONSE] = "the peer accepts",
	[RDMA_CM_EVENT_CONNECT_ERROR] = "connecting failed",
	[RDMA_CM_EVENT_UNREACHABLE] = "the peer does not answer",
	[RDMA_CM_EVENT_REJECTED] = "refused",
	[RDMA_CM_EVENT_ESTABLISHED] = "connected",
	[RDMA_CM_EVENT_DISCONNECTED] = "connection is over",
	[RDMA_CM_EVENT_DEVICE_REMOVAL] = "device goes",
	[RDMA_CM_EVENT_MULTICAST_JOIN] = "group is joined",
	[RDMA_CM_EVENT_MULTICAST_ERROR] = "group cannot be joined, or is lost",
	[RDMA_CM_EVENT_ADDR_CHANGE] = "own address has left the device",
	[RDMA_CM_EVENT_TIMEWAIT_EXIT] = "timewait is over",
};

static const char *const reject_texts[] = {
	[IB_CM_REJ_NO_QP] = "no queue pair",
	[IB_CM_REJ_NO_EEC] = "no EE context",
	[IB_CM_REJ_NO_RESOURCES] = "no resources",
	[IB_CM_REJ_TIMEOUT] = "an answer came too late",
	[IB_CM_REJ_UNSUPPORTED] = "not supported",
	[IB_CM_REJ_INVALID_COMM_ID] = "no such communication ID",
	[IB_CM_REJ_INVALID_COMM_INSTANCE] = "no such instance",
	[IB_CM_REJ_INVALID_SERVICE_ID] = "nobody listens",
	[IB_CM_REJ_INVALID_TRANSPORT_TYPE] = "wrong transport",
	[IB_CM_REJ_STALE_CONN] = "an older connection stands there",
	[IB_CM_REJ_RDC_NOT_EXIST] = "no RD channel",
	[IB_CM_REJ_INVALID_GID] = "wrong GID",
	[IB_CM_REJ_INVALID_LID] = "wrong LID",
	[IB_CM_REJ_INVALID_SL] = "wrong service level",
	[IB_CM_REJ_INVALID_TRAFFIC_CLASS] = "wrong traffic class",
	[IB_CM_REJ_INVALID_HOP_LIMIT] = "wrong hop limit",
	[IB_CM_REJ_INVALID_PACKET_RATE] = "wrong rate",
	[IB_CM_REJ_INVALID_ALT_GID] = "wrong alternate GID",
	[IB_CM_REJ_INVALID_ALT_LID] = "wrong alternate LID",
	[IB_CM_REJ_INVALID_ALT_SL] = "wrong alternate service level",
	[IB_CM_REJ_INVALID_ALT_TRAFFIC_CLASS] = "wrong alternate traffic class",
	[IB_CM_REJ_INVALID_ALT_HOP_LIMIT] = "wrong alternate hop limit",
	[IB_CM_REJ_INVALID_ALT_PACKET_RATE] = "wrong alternate rate",
	[IB_CM_REJ_PORT_CM_REDIRECT] = "sent to another CM",
	[IB_CM_REJ_PORT_REDIRECT] = "sent to another port",
	[IB_CM_REJ_INVALID_MTU] = "wrong MTU",
	[IB_CM_REJ_INSUFFICIENT_RESP_RESOURCES] = "too many READs at once",
	[IB_CM_REJ_CONSUMER_DEFINED] = "the consumer refuses",
	[IB_CM_REJ_INVALID_RNR_RETRY] = "wrong RNR retry count",
	[IB_CM_REJ_DUPLICATE_LOCAL_COMM_ID] = "the communication ID is in use",
	[IB_CM_REJ_INVALID_CLASS_VERSION] = "another version of the CM",
	[IB_CM_REJ_INVALID_FLOW_LABEL] = "wrong flow label",
	[IB_CM_REJ_INVALID_ALT_FLOW_LABEL] = "wrong alternate flow label",
	[IB_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED] = "a vendor's option",
};

static const char *text_at(const char *const *texts, size_t count, u32 number)
{
	return number < count && texts[number] != NULL ? texts[number] : "unknown";
}

const char *ib_event_msg(enum ib_event_type event)
{
	return text_at(event_texts, ARRAY_LEN(event_texts), (u32)event);
}

const char *ib_wc_status_msg(enum ib_wc_status status)
{
	return text_at(status_texts, ARRAY_LEN(status_texts), (u32)status);
}

const char *rdma_event_msg(enum rdma_cm_event_type event)
{
	return text_at(cm_texts, ARRAY_LEN(cm_texts), (u32)event);
}

const char *rdma_reject_msg(struct rdma_cm_id *id, int reason)
{
	return text_at(reject_texts, ARRAY_LEN(reject_texts), (u32)reason);
}

const void *rdma_consumer_reject_data(struct rdma_cm_id *id, struct rdma_cm_event *event,
				      u8 *data_len)
{
	bool consumers = event != NULL && event->status == IB_CM_REJ_CONSUMER_DEFINED;

	*data_len = consumers ? event->param.conn.private_data_len : 0;
	return consumers ? event->param.conn.private_data : NULL;
}
