/* board.c: makes and maps boards.
 * In: nothing, or a descriptor from a peer    Out: a mapping    Runs: any thread that may sleep
 * Locks: none
 */
#include "path/shm/board.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memfile.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

const char *const path_counter_names[PATH_COUNTERS] = {
	[COUNT_RX_PACKETS] = "rx_packets",
	[COUNT_RX_MALFORMED] = "rx_malformed",
	[COUNT_RX_NO_QP] = "rx_no_qp",
	[COUNT_RX_NOT_RECEIVING] = "rx_not_receiving",
	[COUNT_RX_WRONG_PEER] = "rx_wrong_peer",
	[COUNT_RX_OPCODE] = "rx_wrong_opcode",
	[COUNT_RX_PSN] = "rx_psn_errors",
	[COUNT_RX_QKEY] = "rx_wrong_qkey",
	[COUNT_RX_NO_WQE] = "rx_no_receive_posted",
	[COUNT_RX_LENGTH] = "rx_wrong_length",
	[COUNT_RX_REFUSED] = "rx_refused",
	[COUNT_RX_DUPLICATE] = "rx_duplicates",
	[COUNT_TX_NAK] = "tx_naks",
	[COUNT_TX_RNR] = "tx_rnr_naks",
	[COUNT_TX_RETRY] = "tx_retries",
	[COUNT_DIRECT] = "direct_operations",
	[COUNT_DIRECT_REFUSED] = "direct_refused",
	[COUNT_DIRECT_LEFT] = "direct_left",
	[COUNT_DIRECT_HELD] = "direct_held",
	[COUNT_TX_BLOCKED] = "tx_blocked",
	[COUNT_CQ_OVERFLOW] = "cq_overflows",
	[COUNT_PEER_DEATHS] = "peer_deaths",
	[COUNT_RX_ICRC] = "rx_wrong_icrc",
	[COUNT_RX_PKEY] = "rx_wrong_pkey",
	[COUNT_RX_WRONG_SLOT] = "rx_wrong_slot",
	[COUNT_TX_PACKETS] = "tx_packets",
	[COUNT_TX_TOO_LONG] = "tx_too_long",
	[COUNT_TX_FAILED] = "tx_failed",
	[COUNT_PORT_DOWN] = "port_down",
	[COUNT_RX_MARKED] = "rx_ecn_marked",
	[COUNT_RX_CNP] = "rx_cnps",
	[COUNT_TX_CNP] = "tx_cnps",
	[COUNT_TX_PACED] = "tx_paced",
	[COUNT_TX_UNBATCHED] = "tx_unbatched",
	[COUNT_BELLS] = "doorbells_rung",
	[COUNT_MAD_FIRST] = "mad_sent", "mad_received", "mad_send_failed", "mad_retried",
	"mad_timed_out", "mad_wrong_length", "mad_wrong_version", "mad_wrong_qkey",
	"mad_wrong_pkey", "mad_no_room", "mad_no_agent", "mad_wrong_rmpp",
	[COUNT_CM_FIRST] = "cm_sent", "cm_received", "cm_resent", "cm_failed", "cm_duplicates",
	"cm_malformed", "cm_unknown", "cm_no_room", "cm_no_memory", "cm_stale",
	"cm_wrong_source",
};

/* Address of the nonce in private memory: a peer that finds it in an address space that it has
 * opened has the right one. A forked child holds zero there until it has a board. */
static u64 *board_nonce;

static int board_make_nonce(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *p;

	if (board_nonce == NULL) {
		p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED)
			return -errno;
		madvise(p, page, MADV_WIPEONFORK);
		board_nonce = p;
	}
	if (*board_nonce == 0 &&
	    getrandom(board_nonce, sizeof(*board_nonce), 0) != (ssize_t)sizeof(*board_nonce))
		*board_nonce = (u64)getpid() << 32 ^ (u64)(uintptr_t)board_nonce;
	return 0;
}

static void board_fill(struct board *b)
{
	b->magic = BOARD_MAGIC;
	b->version = BOARD_VERSION;
	b->size_check = (u32)sizeof(*b);
	b->nonce = *board_nonce;
	b->nonce_addr = (u64)(uintptr_t)board_nonce;
	b->pid = getpid();
	prctl(PR_GET_NAME, b->command, 0, 0, 0);
}

static int board_seal(int fd)
{
	int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;

	return fcntl(fd, F_ADD_SEALS, seals) < 0 ? -errno : 0;
}

struct board *board_create(int *fd, int *err)
{
	struct board *b = NULL;
	int f = memfile_create("anyverbs-board", sizeof(*b));
	void *p;

	*err = MIN(f, 0);
	if (f < 0)
		return NULL;
	p = mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, f, 0);
	b = p == MAP_FAILED ? NULL : p;
	*err = b == NULL ? -errno : board_seal(f);
	if (*err == 0)
		*err = board_make_nonce();
	if (*err != 0) {
		if (b != NULL)
			munmap(b, sizeof(*b));
		close(f);
		return NULL;
	}
	madvise(b, sizeof(*b), MADV_DONTFORK);
	board_fill(b);
	*fd = f;
	return b;
}

static bool board_valid_fd(int fd)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	return fstat(fd, &st) == 0 && st.st_size == (off_t)sizeof(struct board) && seals >= 0 &&
	       (seals & F_SEAL_SHRINK) != 0;
}

const struct board *board_map(int fd)
{
	const struct board *b;
	void *p;

	if (!board_valid_fd(fd))
		return NULL;
	p = mmap(NULL, sizeof(*b), PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (p == MAP_FAILED)
		return NULL;
	madvise(p, sizeof(*b), MADV_DONTFORK);
	b = p;
	if (b->magic != BOARD_MAGIC || b->version != BOARD_VERSION || b->size_check != sizeof(*b)) {
		munmap(p, sizeof(*b));
		return NULL;
	}
	return b;
}

void board_unmap(const struct board *b)
{
	if (b != NULL)
		munmap((void *)(uintptr_t)b, sizeof(*b));
}
