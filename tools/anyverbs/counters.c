/* counters.c: the meaning of each counter of a process, for people.
 * In:    numbers of counters         Out: words
 * Runs:  any thread                  Locks: none
 */
#include "counters.h"

static const struct {
	const char *meaning;
	bool drop;
} counter_table[PATH_COUNTERS] = {
	[COUNT_RX_PACKETS] = { "packets received", false },
	[COUNT_RX_MALFORMED] = { "malformed headers", true },
	[COUNT_RX_NO_QP] = { "for queue pairs that do not exist", true },
	[COUNT_RX_NOT_RECEIVING] = { "for queue pairs that are not in RTR or above", true },
	[COUNT_RX_WRONG_PEER] = { "from another peer than the connected one", true },
	[COUNT_RX_OPCODE] = { "an opcode that the queue pair does not take", true },
	[COUNT_RX_PSN] = { "out of order: behind a lost or refused packet", true },
	[COUNT_RX_QKEY] = { "a wrong Q_Key", true },
	[COUNT_RX_NO_WQE] = { "no receive was posted", true },
	[COUNT_RX_LENGTH] = { "a wrong length, or longer than the receive buffer", true },
	[COUNT_RX_DUPLICATE] = { "requests that had been executed before", false },
	[COUNT_TX_NAK] = { "NAKs sent", false },
	[COUNT_TX_RNR] = { "RNR NAKs sent: no receive was posted in time", false },
	[COUNT_TX_RETRY] = { "retransmissions", false },
	[COUNT_DIRECT] = { "one-sided operations in shared memory", false },
	[COUNT_DIRECT_REFUSED] = { "one-sided operations that went as packets instead", false },
	[COUNT_DIRECT_LEFT] = { "one-sided operations that were left to a faster peer", false },
	[COUNT_DIRECT_HELD] = { "waits for peers inside our memory that were given up", false },
	[COUNT_TX_BLOCKED] = { "waits for room on the way", false },
	[COUNT_CQ_OVERFLOW] = { "completions that found their queue full", true },
	[COUNT_PEER_DEATHS] = { "peer processes that ended", false },
	[COUNT_BELLS] = { "sleeping peers woken", false },
	[COUNT_RX_ICRC] = { "a wrong ICRC", true },
	[COUNT_RX_PKEY] = { "a wrong P_Key", true },
	[COUNT_RX_WRONG_SLOT] = { "joined to a datagram for another process", true },
	[COUNT_TX_PACKETS] = { "packets handed to the kernel", false },
	[COUNT_TX_TOO_LONG] = { "longer than the route's MTU", true },
	[COUNT_TX_FAILED] = { "refused by the kernel", true },
	[COUNT_PORT_DOWN] = { "the port was down", true },
	[COUNT_RX_MARKED] = { "packets that a congested switch has marked", false },
	[COUNT_RX_CNP] = { "congestion notifications received", false },
	[COUNT_TX_CNP] = { "congestion notifications sent", false },
	[COUNT_TX_UNBATCHED] = { "destinations that fell back to one packet per call", false },
	[COUNT_TX_PACED] = { "waits between packets, after a notification", false },
	[COUNT_RX_REFUSED] = { "UC requests without access or in bad form, XRC ones of no domain",
			       true },
	[COUNT_MAD_FIRST] = { "MADs sent", false },
	{ "MADs received", false },
	{ "MADs that could not be sent", true },
	{ "MADs sent again", false },
	{ "MADs that were never answered", false },
	{ "MADs of a wrong length", true },
	{ "MADs of a wrong version", true },
	{ "MADs with a wrong Q_Key", true },
	{ "MADs with a wrong P_Key", true },
	{ "MADs that found no room", true },
	{ "MADs for which no agent is there", true },
	{ "MADs with a wrong RMPP header", true },
	[COUNT_CM_FIRST] = { "messages of the communication manager sent", false },
	{ "messages of the communication manager received", false },
	{ "messages of the communication manager sent again", false },
	{ "connection requests that were never answered", false },
	{ "messages of the communication manager received twice", false },
	{ "malformed messages of the communication manager", true },
	{ "messages for connections that do not exist", true },
	{ "connection requests beyond the backlog", true },
	{ "messages of the communication manager without memory", true },
	{ "connections found stale", false },
	{ "connection requests that name an address of another host", true },
};

bool counter_is_drop(u32 counter)
{
	return counter_table[counter].drop;
}

const char *counter_meaning(u32 counter)
{
	const char *meaning = counter_table[counter].meaning;

	return meaning != NULL ? meaning : path_counter_names[counter];
}

u64 counter_drops(const u64 counters[PATH_COUNTERS])
{
	u64 sum = 0;

	for (u32 i = 0; i < PATH_COUNTERS; i++)
		if (counter_table[i].drop)
			sum += counters[i];
	return sum;
}
