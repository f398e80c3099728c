/* protocol.h: the messages between a process and the node: head.h has what all
 * messages share, each service a header of its own.
 */
#ifndef NODE_PROTOCOL_H
#define NODE_PROTOCOL_H

#include "node/protocol/address.h"
#include "node/protocol/agent.h"
#include "node/protocol/capture.h"
#include "node/protocol/device.h"
#include "node/protocol/flow.h"
#include "node/protocol/fabric.h"
#include "node/protocol/head.h"
#include "node/protocol/listen.h"
#include "node/protocol/mcast.h"
#include "node/protocol/pair.h"
#include "node/protocol/session.h"
#include "node/protocol/slot.h"
#include "node/protocol/status.h"
#include "node/protocol/will.h"

/* The largest of each direction. */
union proto_request {
	struct proto_head head;
	struct proto_hello hello;
	struct proto_resume resume;
	struct proto_succeed succeed;
	struct proto_slot_claim slot_claim;
	struct proto_udp_sockets udp_sockets;
	struct proto_connect connect;
	struct proto_pair_claim pair_claim;
	struct proto_pair_end pair_end;
	struct proto_mcast mcast;
	struct proto_listen listen;
	struct proto_agent agent;
	struct proto_flow flow;
	struct proto_stop stop;
	struct proto_port port;
	struct proto_device_read device_read;
	struct proto_device_name device_name;
	struct proto_processes processes;
	struct proto_connections connections;
	struct proto_fabric_enter fabric_enter;
	struct proto_fabric_issm fabric_issm;
	struct proto_fabric_member fabric_member;
	struct proto_fabric_up fabric_up;
	struct proto_fabric_down fabric_down;
	struct proto_fabric_command fabric_command;
};

union proto_reply {
	struct proto_head head;
	struct proto_hello_reply hello;
	struct proto_slot_reply slot;
	struct proto_slot_claim slot_claim;
	struct proto_udp_sockets_reply udp_sockets;
	struct proto_peer peer;
	struct proto_status_reply status;
	struct proto_addresses_reply addresses;
	struct proto_device_reply device;
	struct proto_flow_reply flow;
	struct proto_processes_reply processes;
	struct proto_connections_reply connections;
	struct proto_fabric_entered fabric_entered;
	struct proto_fabric_show fabric_show;
};

#endif
