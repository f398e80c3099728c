/* filter.c: the kernel's filter in front of a receiving packet socket: whose frames come.
 * In: the instance's mark    Out: a classic BPF program    Runs: once per socket    Locks: none
 */
#include "path/raw/filter.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <sys/socket.h>

#include "path/raw/raw.h"

#define FILTER_LOAD(what) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (u32)(SKF_AD_OFF + (what)))
#define FILTER_IF(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), (yes), (no))
#define FILTER_RETURN(bytes) BPF_STMT(BPF_RET | BPF_K, (bytes))

static int filter_set(int fd, struct sock_filter *code, u32 count)
{
	struct sock_fprog program = { .len = (unsigned short)count, .filter = code };

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) != 0
		       ? -errno
		       : 0;
}

/* On the loopback interface each frame is seen twice, leaving and arriving: the first is left
 * out. */
static int filter_attach_loopback(int fd, u32 mark)
{
	struct sock_filter code[] = {
		FILTER_LOAD(SKF_AD_PKTTYPE),
		FILTER_IF(PACKET_OUTGOING, 3, 0),
		FILTER_LOAD(SKF_AD_MARK),
		FILTER_IF(mark, 1, 0),
		FILTER_RETURN(UINT32_MAX),
		FILTER_RETURN(0),
	};

	return filter_set(fd, code, ARRAY_LEN(code));
}

/* Of what leaves the host only the frames of the node's other instances come. */
static int filter_attach_wire(int fd, u32 mark)
{
	struct sock_filter code[] = {
		FILTER_LOAD(SKF_AD_PKTTYPE),
		FILTER_IF(PACKET_OUTGOING, 0, 4),
		FILTER_LOAD(SKF_AD_MARK),
		FILTER_IF(mark, 3, 0),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ~(u32)RAW_MARK_SLOTS),
		FILTER_IF(mark & ~(u32)RAW_MARK_SLOTS, 0, 1),
		FILTER_RETURN(UINT32_MAX),
		FILTER_RETURN(0),
	};

	return filter_set(fd, code, ARRAY_LEN(code));
}

int filter_attach(int fd, u32 mark, bool loopback)
{
	return loopback ? filter_attach_loopback(fd, mark) : filter_attach_wire(fd, mark);
}
