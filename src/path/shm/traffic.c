/* traffic.c: sums of what has crossed the ports of a process' devices.
 * In:    tallies of queue pairs on a board    Out: sums by device
 * Runs:  the board's owner, in verbs; the node, which reads the boards of all processes
 * Locks: none
 */
#include "path/shm/traffic.h"

#include "wire/roce.h"

enum {
	TALLY_HEADERS = ROCE_BTH + ROCE_ICRC, /* of each packet */
	TALLY_DETH = 8,			      /* of a datagram, beside them */
};

/* An entry as its owner shows it while it counts. */
struct tally_kind {
	u8 link, mtu;
	u16 to;
} OWNED_BY(the caller);

static u64 tally_load(const u64 *count)
{
	return __atomic_load_n(count, __ATOMIC_RELAXED);
}

/* Adds `payload` bytes in `packets`, for the port that `count` belongs to. */
static void tally_add(struct path_traffic *t, enum path_traffic_count count, u64 packets,
		      u64 payload)
{
	t->count[count] += packets;
	t->count[count + 1] += payload + packets * TALLY_HEADERS;
}
_Static_assert(TRAFFIC_XMIT_BYTES == TRAFFIC_XMIT_PACKETS + 1 &&
		       TRAFFIC_RCV_BYTES == TRAFFIC_RCV_PACKETS + 1,
	       "tally_add knows their order");

static void tally_merge(struct path_traffic *sum, const struct path_traffic *t)
{
	for (u32 i = 0; i < TRAFFIC_COUNTS; i++)
		sum->count[i] += t->count[i];
}

/* How many packets of the path MTU messages with so many bytes in all are at least: the messages'
 * lengths are not tallied. */
static u64 tally_packets(u64 messages, u64 bytes, u8 mtu)
{
	u32 shift = mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? mtu + 7u : 12u;

	return MAX(messages, (bytes + (1u << shift) - 1) >> shift);
}

/* Each end tells its own part: a datagram's sender does not know who takes it. */
static void tally_of_datagrams(const struct board_tally *t, struct path_traffic *port)
{
	u64 sent = tally_load(&t->sent), received = tally_load(&t->received);

	tally_add(port, TRAFFIC_XMIT_PACKETS, sent, tally_load(&t->sent_bytes) + sent * TALLY_DETH);
	tally_add(port, TRAFFIC_RCV_PACKETS, received,
		  tally_load(&t->received_bytes) + received * TALLY_DETH);
}

/* READs are among what is sent, and counted before. So what is sent is loaded first: a READ that
 * completes just now may be missing, but its data is never taken for a WRITE's. Their requests go
 * one way, and their data comes back. */
static void tally_of_connection(const struct board_tally *t, u8 mtu, struct path_traffic *here,
				struct path_traffic *there)
{
	u64 sent_bytes = __atomic_load_n(&t->sent_bytes, __ATOMIC_ACQUIRE);
	u64 sent = __atomic_load_n(&t->sent, __ATOMIC_ACQUIRE);
	u64 reads = tally_load(&t->reads), read_bytes = tally_load(&t->read_bytes);
	u64 bytes = sent_bytes - MIN(read_bytes, sent_bytes);
	u64 requests = MIN(reads, sent) + tally_packets(sent - MIN(reads, sent), bytes, mtu);
	u64 responses = tally_packets(reads, read_bytes, mtu);

	tally_add(here, TRAFFIC_XMIT_PACKETS, requests, bytes);
	tally_add(here, TRAFFIC_RCV_PACKETS, responses, read_bytes);
	tally_add(there, TRAFFIC_RCV_PACKETS, requests, bytes);
	tally_add(there, TRAFFIC_XMIT_PACKETS, responses, read_bytes);
}

_Static_assert(NODE_DEVICES == 1 << (8 - BOARD_DEVICE_SHIFT), "any `link` names a device");

static struct tally_kind tally_kind_of(const struct board_qp *q)
{
	return (struct tally_kind){ .link = __atomic_load_n(&q->link, __ATOMIC_ACQUIRE),
				    .mtu = __atomic_load_n(&q->mtu, __ATOMIC_ACQUIRE),
				    .to = __atomic_load_n(&q->to, __ATOMIC_ACQUIRE) };
}

/* Adds what one queue pair tells. Nothing, if its owner changes it meanwhile. */
static void tally_of_qp(const struct board *b, u32 index, struct path_traffic sum[NODE_DEVICES])
{
	struct tally_kind k = tally_kind_of(&b->qps[index]), after;
	struct path_traffic here = { 0 }, there = { 0 };
	u32 to = k.to / NODE_GIDS;

	if (k.link & BOARD_LIDS)
		return;
	if (k.link & BOARD_DATAGRAMS)
		tally_of_datagrams(&b->tallies[index], &here);
	else if (k.link & BOARD_TALLIED)
		tally_of_connection(&b->tallies[index], k.mtu, &here, &there);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	after = tally_kind_of(&b->qps[index]);
	if (after.link != k.link || after.mtu != k.mtu || after.to != k.to)
		return;
	tally_merge(&sum[k.link >> BOARD_DEVICE_SHIFT], &here);
	if (to < NODE_DEVICES)
		tally_merge(&sum[to], &there);
}

void board_traffic_begin(struct board *b, u32 index)
{
	/* pairs with board_traffic_sum */
	__atomic_fetch_or(&b->summed[index / 64], 1ull << index % 64, __ATOMIC_RELEASE);
}

/* The entry leaves `summed` first: a reader that finds its part in board.traffic does not find it
 * there, too. */
void board_traffic_end(struct board *b, u32 index)
{
	u64 bit = 1ull << index % 64;
	struct path_traffic sum[NODE_DEVICES] = { 0 };

	if ((__atomic_fetch_and(&b->summed[index / 64], ~bit, __ATOMIC_RELAXED) & bit) == 0)
		return;
	tally_of_qp(b, index, sum);
	for (u32 i = 0; i < NODE_DEVICES; i++)
		for (u32 k = 0; k < TRAFFIC_COUNTS; k++) /* pairs with board_traffic_sum */
			__atomic_fetch_add(&b->traffic[i].count[k], sum[i].count[k],
					   __ATOMIC_RELEASE);
}

void board_traffic_sum(const struct board *b, struct path_traffic sum[NODE_DEVICES])
{
	u32 words = board_shown_count(&b->slot_count, BOARD_SLOTS) * (BOARD_QPS_PER_SLOT / 64);

	for (u32 i = 0; i < NODE_DEVICES; i++)
		for (u32 k = 0; k < TRAFFIC_COUNTS; k++) /* pairs with board_traffic_end */
			sum[i].count[k] += __atomic_load_n(&b->traffic[i].count[k],
							   __ATOMIC_ACQUIRE);
	for (u32 w = 0; w < words; w++) {
		u64 left = __atomic_load_n(&b->summed[w], __ATOMIC_ACQUIRE);

		for (; left != 0; left &= left - 1)
			tally_of_qp(b, w * 64 + (u32)__builtin_ctzll(left), sum);
	}
}
