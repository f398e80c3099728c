/* directory.c: the directory's two sides.
 * In:    the node's configuration and groups      Out: consistent copies in every process
 * Runs:  any thread                               Locks: none (a sequence counter; one writer)
 */
#include "node/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "node/agent.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

const struct directory *directory_map(int fd)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);
	struct directory *n;

	/* a directory that could shrink would kill its readers with SIGBUS */
	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) < 0 ||
	    (size_t)st.st_size != sizeof(*n))
		return NULL;
	n = mmap(NULL, sizeof(*n), PROT_READ, MAP_SHARED, fd, 0);
	if (n == MAP_FAILED)
		return NULL;
	if (n->magic != DIRECTORY_MAGIC) {
		munmap(n, sizeof(*n));
		return NULL;
	}
	return n;
}

void directory_unmap(const struct directory *n)
{
	if (n != NULL)
		munmap((void *)n, sizeof(*n));
}

static u32 directory_read_begin(const struct directory *n)
{
	/* pairs with the release in directory_write_end */
	return __atomic_load_n(&n->seq, __ATOMIC_ACQUIRE);
}

/* Copies so that the second look at `seq` comes after it: by acquiring loads of whole words.
 * Pairs with the fence in directory_write_begin: who reads a word that was written later sees
 * the odd number, too. */
static void directory_copy(void *to, const void *from, size_t size)
{
	const u64 *in = from;

	for (size_t i = 0; i < size / sizeof(u64); i++) {
		u64 word = __atomic_load_n(&in[i], __ATOMIC_ACQUIRE);

		memcpy((char *)to + i * sizeof(u64), &word, sizeof(word));
	}
}

/* True if what was read since `seq` is one state. */
static bool directory_read_end(const struct directory *n, u32 seq)
{
	return !(seq & 1) && __atomic_load_n(&n->seq, __ATOMIC_RELAXED) == seq;
}

u64 directory_device_id(const struct directory *n, u32 index)
{
	return __atomic_load_n(&n->devices[index].id, __ATOMIC_ACQUIRE);
}

void directory_read_device(const struct directory *n, u32 index, struct node_config *out)
{
	u32 seq;

	for (int i = 0; i < DIRECTORY_TRIES; i++) {
		seq = directory_read_begin(n);
		directory_copy(out, &n->devices[index], sizeof(*out));
		if (directory_read_end(n, seq))
			break;
		cpu_relax();
	}
	out->ports = 1;
	/* strings of a torn copy end, too */
	out->device[sizeof(out->device) - 1] = '\0';
	out->dev_path[sizeof(out->dev_path) - 1] = '\0';
	out->sysfs[sizeof(out->sysfs) - 1] = '\0';
	for (int i = 0; i < NODE_GIDS; i++)
		out->gids[i].ifname[sizeof(out->gids[i].ifname) - 1] = '\0';
}

static int directory_copy_members(const struct directory *n, const u8 gid[16], u32 from,
				  struct node_member *out, int max)
{
	u32 limit = __atomic_load_n(&n->members, __ATOMIC_ACQUIRE);
	struct directory_member m;
	int count = 0;

	limit = MIN(limit, (u32)DIRECTORY_MEMBERS);
	for (u32 i = from; i < limit && count < max; i++) {
		directory_copy(&m, &n->member[i], sizeof(m));
		if (m.process == 0 || memcmp(m.gid, gid, 16) != 0)
			continue;
		out[count++] = (struct node_member){ m.process, m.qpn, i };
	}
	return count;
}

int directory_read_members(const struct directory *n, const u8 gid[16], u32 from,
			   struct node_member *out, int max)
{
	int count = 0;
	u32 seq;

	for (int i = 0; i < DIRECTORY_TRIES; i++) {
		seq = directory_read_begin(n);
		count = directory_copy_members(n, gid, from, out, max);
		if (directory_read_end(n, seq))
			break;
		cpu_relax();
	}
	return count;
}

static bool directory_matches(const struct node_match *m, const u8 *private_data)
{
	u8 differ = 0;

	for (u32 i = 0; i < NODE_MATCH; i++)
		differ |= (u8)((private_data[i] ^ m->data[i]) & m->mask[i]);
	return differ == 0;
}

static bool directory_copy_listener(const struct directory *n, u32 chain, u64 service_id,
				    const u8 *private_data, u32 from,
				    const struct directory_filter *only,
				    struct directory_listener *out)
{
	u32 at = __atomic_load_n(&n->chain[chain], __ATOMIC_ACQUIRE);
	struct directory_listener l;
	bool found = false;

	/* a torn chain may be a circle */
	for (u32 steps = 0; at != 0 && at <= NODE_LISTENERS && steps < NODE_LISTENERS; steps++) {
		directory_copy(&l, &n->listener[at - 1], sizeof(l));
		at = l.next;
		if (l.process == 0 || (service_id & l.mask) != l.service_id ||
		    !directory_matches(&l.match, private_data) ||
		    (only != NULL && !only->fits(only->arg, l.process)))
			continue;
		if (l.slot != from || !found)
			*out = l;
		found = true;
		if (l.slot != from)
			break;
	}
	return found;
}

bool directory_read_listener(const struct directory *n, u64 service_id, const u8 *private_data,
			     u32 from, const struct directory_filter *only, u64 *process, u32 *slot)
{
	struct directory_listener found;
	bool any = false;
	u32 seq;

	for (int i = 0; i < DIRECTORY_TRIES; i++) {
		seq = directory_read_begin(n);
		any = directory_copy_listener(n, directory_chain(service_id, UINT64_MAX),
					      service_id, private_data, from, only, &found) ||
		      directory_copy_listener(n, DIRECTORY_BUCKETS, service_id, private_data, from,
					      only, &found);
		if (directory_read_end(n, seq))
			break;
		cpu_relax();
	}
	if (any) {
		*process = found.process;
		*slot = found.slot;
	}
	return any;
}

static bool directory_copy_agent(const struct directory *n, u64 device, u8 port, u8 qpn,
				 const u8 *mad, struct directory_agent *out)
{
	u32 limit = __atomic_load_n(&n->agents, __ATOMIC_ACQUIRE);

	limit = MIN(limit, (u32)NODE_AGENTS);
	for (u32 i = 0; i < limit; i++) {
		directory_copy(out, &n->agent[i], sizeof(*out));
		if (out->process != 0 && node_agent_takes(&out->agent, device, port, qpn, mad))
			return true;
	}
	return false;
}

bool directory_read_agent(const struct directory *n, u64 device, u8 port, u8 qpn, const u8 *mad,
			  u64 *process, u32 *slot)
{
	struct directory_agent found;
	bool any = false;
	u32 seq;

	for (int i = 0; i < DIRECTORY_TRIES; i++) {
		seq = directory_read_begin(n);
		any = directory_copy_agent(n, device, port, qpn, mad, &found);
		if (directory_read_end(n, seq))
			break;
		cpu_relax();
	}
	if (any) {
		*process = found.process;
		*slot = found.slot;
	}
	return any;
}

static u32 directory_copy_listeners(const struct directory *n, u32 *at,
				    struct directory_listener *out, u32 max)
{
	u32 count = 0, limit = __atomic_load_n(&n->listeners, __ATOMIC_ACQUIRE);

	limit = MIN(limit, (u32)NODE_LISTENERS);
	for (; *at < limit && count < max; ++*at) {
		directory_copy(&out[count], &n->listener[*at], sizeof(*out));
		count += out[count].process != 0;
	}
	return count;
}

u32 directory_list_listeners(const struct directory *n, u32 *at, struct directory_listener *out,
			     u32 max)
{
	u32 count = 0, end = *at;

	for (int i = 0; i < DIRECTORY_TRIES; i++) {
		u32 seq = directory_read_begin(n);

		end = *at;
		count = directory_copy_listeners(n, &end, out, max);
		if (directory_read_end(n, seq))
			break;
		cpu_relax();
	}
	*at = end;
	return count;
}

bool directory_is_incomplete(const struct directory *n)
{
	/* pairs with the release in route_show: behind a 0 the listeners are there */
	return __atomic_load_n(&n->incomplete, __ATOMIC_ACQUIRE) != 0;
}

bool directory_slot_is_wire_only(const struct directory *n, u32 slot)
{
	/* pairs with the release in serve_slot_show: a slot that is known is shown */
	u64 word = __atomic_load_n(&n->wire_only[slot % NODE_SLOTS / 64], __ATOMIC_ACQUIRE);

	return (word & 1ull << slot % 64) != 0;
}

u64 directory_flow_generation(const struct directory *n)
{
	return __atomic_load_n(&n->flow_generation, __ATOMIC_ACQUIRE);
}

static u32 directory_copy_flows(const struct directory *n, u64 device, u64 process,
				struct node_flow *out, u32 max)
{
	u32 count = 0, limit = __atomic_load_n(&n->flows, __ATOMIC_ACQUIRE);
	struct directory_flow f;

	limit = MIN(limit, (u32)NODE_FLOWS);
	for (u32 i = 0; i < limit && count < max; i++) {
		directory_copy(&f, &n->flow[i], sizeof(f));
		if (f.process != 0 && f.process != process && f.flow.device == device)
			out[count++] = f.flow;
	}
	return count;
}

u32 directory_list_flows(const struct directory *n, u64 device, u64 process, struct node_flow *out,
			 u32 max)
{
	u32 count = 0;

	for (int i = 0; i < DIRECTORY_TRIES; i++) {
		u32 seq = directory_read_begin(n);

		count = directory_copy_flows(n, device, process, out, max);
		if (directory_read_end(n, seq))
			break;
		cpu_relax();
	}
	return count;
}

_Static_assert(sizeof(struct directory_flow) % sizeof(u64) == 0 &&
		       offsetof(struct directory, flow) % sizeof(u64) == 0,
	       "the directory is copied by words");
_Static_assert(sizeof(struct directory_agent) % sizeof(u64) == 0 &&
		       offsetof(struct directory, agent) % sizeof(u64) == 0,
	       "the directory is copied by words");
_Static_assert(sizeof(struct directory_listener) % sizeof(u64) == 0 &&
		       offsetof(struct directory, listener) % sizeof(u64) == 0,
	       "the directory is copied by words");
_Static_assert(sizeof(struct node_config) % sizeof(u64) == 0 &&
		       sizeof(struct directory_member) % sizeof(u64) == 0 &&
		       offsetof(struct directory, devices) % sizeof(u64) == 0 &&
		       offsetof(struct directory, member) % sizeof(u64) == 0,
	       "the directory is copied by words");

struct directory *directory_create(int *fd, int *err)
{
	struct directory *n;
	int f = memfd_create("anyverbs-notice", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (f < 0)
		goto fail;
	errno = posix_fallocate(f, 0, sizeof(*n));
	if (errno != 0)
		goto fail;
	n = mmap(NULL, sizeof(*n), PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
	if (n == MAP_FAILED)
		goto fail;
	n->magic = DIRECTORY_MAGIC;
	/* kernels before 5.1 know no FUTURE_WRITE: there a process of the same user could write
	 * it */
	if (fcntl(f, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE) < 0)
		(void)fcntl(f, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
	*fd = f;
	return n;
fail:
	*err = -errno;
	if (f >= 0)
		close(f);
	return NULL;
}

void directory_write_begin(struct directory *n)
{
	__atomic_store_n(&n->seq, n->seq | 1, __ATOMIC_RELAXED);
#ifndef __SANITIZE_THREAD__ /* which knows no fences; this side has one thread */
	/* no change comes before the odd number; pairs with the acquires in directory_copy */
	__atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

void directory_write_end(struct directory *n)
{
	/* pairs with the acquire in directory_read_begin */
	__atomic_store_n(&n->seq, (n->seq | 1) + 1, __ATOMIC_RELEASE);
}
