/* port.c: open ports: their number is that of their descriptor.
 * In:    names, numbers, buffers of the application    Out: files of the stack's umad
 * Runs:  the application's threads; a wait in umad_recv and umad_poll is a cancellation point
 * Locks: port_table.lock, not held across a call of the stack
 */
#include <fcntl.h>
#include <pthread.h>
#include <string.h>

#include "base/fork.h"
#include "door.h"

AV_EXPORT int umad_open_smi_port(const char *ca_name, int portnum);

struct port_entry {
	struct umad_file *file FIXED;
	u32 refs OWNED_BY(port_table.lock); /* the table's, and calls that use it */
};

static struct {
	struct lock lock;
	struct port_entry **entries GUARDED_BY(lock); /* by descriptor */
	size_t count GUARDED_BY(lock);
} port_table;
FORK_TAKES(FORK_UMAD_PORTS, &port_table.lock);

/* ---- the table ------------------------------------------------------------------------------- */

/* The open port, until port_put. NULL: no such number. */
static struct port_entry *port_get(int portid)
{
	struct port_entry *e = NULL;

	lock_acquire(&port_table.lock);
	if (portid >= 0 && (size_t)portid < port_table.count)
		e = port_table.entries[portid];
	if (e != NULL)
		e->refs++;
	lock_release(&port_table.lock);
	return e;
}

static void port_put(void *arg)
{
	struct port_entry *e = arg;
	bool last;

	lock_acquire(&port_table.lock);
	last = --e->refs == 0;
	lock_release(&port_table.lock);
	if (!last)
		return;
	umad_file_close(e->file);
	free(e);
}

/* Makes the number stand for *e, or for nothing; what it stood for, in *old. -ENOMEM. */
static int port_set(int portid, struct port_entry *e, struct port_entry **old)
{
	size_t need = (size_t)portid + 1, count;
	struct port_entry **grown;
	int err = 0;

	lock_acquire(&port_table.lock);
	if (need > port_table.count) {
		count = need + 32;
		grown = realloc(port_table.entries, count * sizeof(*grown));
		err = grown == NULL ? -ENOMEM : 0;
		if (err == 0) {
			memset(grown + port_table.count, 0,
			       (count - port_table.count) * sizeof(*grown));
			port_table.entries = grown;
			port_table.count = count;
		}
	}
	if (err == 0) {
		*old = port_table.entries[portid];
		port_table.entries[portid] = e;
	}
	lock_release(&port_table.lock);
	return err;
}

/* ---- open and close -------------------------------------------------------------------------- */

/* The application may have closed a descriptor of ours, whose number is then given again. */
static int port_enter(struct umad_file *file)
{
	struct port_entry *e = calloc(1, sizeof(*e)), *old = NULL;
	int fd = umad_file_fd(file), err = e == NULL ? -ENOMEM : 0;

	if (err == 0) {
		*e = (struct port_entry){ .file = file, .refs = 1 };
		err = port_set(fd, e, &old);
	}
	if (err != 0) {
		free(e);
		return err;
	}
	if (old != NULL)
		port_put(old);
	(void)fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK);
	return fd;
}

AV_EXPORT int umad_open_port(const char *ca_name, int portnum)
{
	char name[UMAD_CA_NAME_LEN];
	struct umad_file *file;
	int port, result = pick_port(ca_name, portnum, name, &port);

	if (result != 0)
		return door_result(result);
	if (port < 0 || port > UINT8_MAX)
		return door_result(-EINVAL);
	result = umad_file_open(name, (u8)port, &file);
	if (result == -ENODEV || result == -EINVAL)
		return door_result(-EINVAL);
	if (result != 0)
		return door_result(-EIO);
	result = port_enter(file);
	if (result < 0)
		umad_file_close(file);
	return door_result(result);
}

/* A CA has both queue pairs here. */
AV_EXPORT int umad_open_smi_port(const char *ca_name, int portnum)
{
	return umad_open_port(ca_name, portnum);
}

AV_EXPORT int umad_close_port(int portid)
{
	struct port_entry *e = port_get(portid), *mine = NULL;

	if (e == NULL)
		return door_result(-EINVAL);
	lock_acquire(&port_table.lock);
	if (port_table.entries[portid] == e) {
		port_table.entries[portid] = NULL;
		mine = e;
	}
	lock_release(&port_table.lock);
	umad_file_shut(e->file);
	if (mine != NULL)
		port_put(mine);
	port_put(e);
	return mine != NULL ? 0 : door_result(-EINVAL);
}

AV_EXPORT int umad_get_fd(int portid)
{
	struct port_entry *e = port_get(portid);

	if (e == NULL)
		return door_result(-EINVAL);
	port_put(e);
	return portid;
}

/* ---- agents ---------------------------------------------------------------------------------- */

static bool port_class_is_smi(int mgmt_class)
{
	return mgmt_class == IB_MGMT_CLASS_SUBN_LID_ROUTED ||
	       mgmt_class == IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE;
}

static void port_attr_oui(struct umad_agent_attr *attr, u32 oui)
{
	attr->oui[0] = (u8)(oui >> 16);
	attr->oui[1] = (u8)(oui >> 8);
	attr->oui[2] = (u8)oui;
}

static int port_register(int portid, const struct umad_agent_attr *attr)
{
	struct port_entry *e = port_get(portid);
	int id;

	if (e == NULL)
		return -EINVAL;
	id = umad_file_register(e->file, attr);
	port_put(e);
	return id < 0 ? -EPERM : id;
}

static void port_attr_mask(struct umad_agent_attr *attr, const long *mask)
{
	_Static_assert(sizeof(attr->method_mask) == 16, "the application's array");
	if (mask != NULL)
		memcpy(attr->method_mask, mask, sizeof(attr->method_mask));
}

AV_EXPORT int umad_register(int portid, int mgmt_class, int mgmt_version, uint8_t rmpp_version,
			    long method_mask[16 / sizeof(long)])
{
	struct umad_agent_attr attr = { .smi = port_class_is_smi(mgmt_class),
					.mgmt_class = (u8)mgmt_class,
					.mgmt_class_version = (u8)mgmt_version,
					.rmpp_version = rmpp_version };

	port_attr_oui(&attr, IB_OPENIB_OUI);
	port_attr_mask(&attr, method_mask);
	return door_result(port_register(portid, &attr));
}

AV_EXPORT int umad_register_oui(int portid, int mgmt_class, uint8_t rmpp_version, uint8_t oui[3],
				long method_mask[16 / sizeof(long)])
{
	struct umad_agent_attr attr = { .mgmt_class = (u8)mgmt_class,
					.mgmt_class_version = 1,
					.rmpp_version = rmpp_version };

	if (mgmt_class < IB_MGMT_CLASS_VENDOR_RANGE2_START ||
	    mgmt_class > IB_MGMT_CLASS_VENDOR_RANGE2_END)
		return door_result(-EINVAL);
	memcpy(attr.oui, oui, sizeof(attr.oui));
	port_attr_mask(&attr, method_mask);
	return door_result(port_register(portid, &attr));
}

/* Returns a positive errno, unlike all others. */
AV_EXPORT int umad_register2(int port_fd, struct umad_reg_attr *reg, uint32_t *agent_id)
{
	struct umad_agent_attr attr;
	struct port_entry *e;
	int id;

	if (reg == NULL || agent_id == NULL || reg->oui > 0xffffff)
		return EINVAL;
	if ((reg->flags & ~(u32)UMAD_USER_RMPP) != 0) {
		reg->flags = UMAD_USER_RMPP;
		return EINVAL;
	}
	e = port_get(port_fd);
	if (e == NULL)
		return EBADF;
	attr = (struct umad_agent_attr){ .smi = port_class_is_smi(reg->mgmt_class),
					 .mgmt_class = reg->mgmt_class,
					 .mgmt_class_version = reg->mgmt_class_version,
					 .rmpp_version = reg->rmpp_version,
					 .user_rmpp = (reg->flags & UMAD_USER_RMPP) != 0 };
	memcpy(attr.method_mask, reg->method_mask, sizeof(attr.method_mask));
	port_attr_oui(&attr, reg->oui);
	id = umad_file_register(e->file, &attr);
	port_put(e);
	if (id < 0)
		return -id;
	*agent_id = (u32)id;
	return 0;
}

AV_EXPORT int umad_unregister(int portid, int agentid)
{
	struct port_entry *e = port_get(portid);
	int err = -EINVAL;

	if (e == NULL)
		return door_result(err);
	if (agentid >= 0)
		err = umad_file_unregister(e->file, (u32)agentid);
	port_put(e);
	return door_result(err);
}

/* ---- MADs ------------------------------------------------------------------------------------ */

_Static_assert(sizeof(struct ib_user_mad) == UMAD_HEADER, "one layout");

/* errno says why the stack refuses. */
AV_EXPORT int umad_send(int portid, int agentid, void *umad, int length, int timeout_ms,
			int retries)
{
	struct ib_user_mad *mad = umad;
	struct port_entry *e;
	int err;

	if (umad == NULL || length < 0)
		return door_result(-EINVAL);
	e = port_get(portid);
	if (e == NULL)
		return door_result(-EINVAL);
	mad->agent_id = (u32)agentid;
	mad->timeout_ms = (u32)timeout_ms;
	mad->retries = (u32)retries;
	err = umad_file_write(e->file, mad, sizeof(*mad) + (size_t)length);
	port_put(e);
	if (err == 0)
		return 0;
	errno = -err;
	return err == -EINVAL ? -EINVAL : -EIO;
}

/* Waits; the hold on the port is given up if the thread is cancelled meanwhile. */
static int port_wait(struct port_entry *e, int timeout_ms)
{
	int err;

	pthread_cleanup_push(port_put, e);
	err = umad_file_wait(e->file, timeout_ms);
	pthread_cleanup_pop(0);
	return err;
}

/* May a read wait, though no timeout is given? As a read() of the descriptor would. */
static bool port_blocks(int portid)
{
	int flags = fcntl(portid, F_GETFL);

	return flags >= 0 && (flags & O_NONBLOCK) == 0;
}

/* The bytes read, or a negative errno; *wait_err: why the wait has ended. */
static ssize_t port_read(struct port_entry *e, int portid, void *umad, size_t bytes,
			 int timeout_ms, int *wait_err)
{
	ssize_t n;

	*wait_err = 0;
	for (;;) {
		n = umad_file_read(e->file, umad, bytes);
		if (n != -EAGAIN)
			return n;
		if (timeout_ms == 0 && !port_blocks(portid))
			return n;
		*wait_err = port_wait(e, timeout_ms == 0 ? -1 : timeout_ms);
		if (*wait_err != 0)
			return *wait_err;
	}
}

/* OpenSM reads on from a device that is gone, and logs each failure: without a rest its log grows
 * by 50 MB a second. */
static void port_rest(struct port_entry *e)
{
	pthread_cleanup_push(port_put, e);
	umad_file_rest(e->file);
	pthread_cleanup_pop(0);
}

/* A timeout counts anew for a thread from which another one has taken the MAD. */
AV_EXPORT int umad_recv(int portid, void *umad, int *length, int timeout_ms)
{
	struct ib_user_mad *mad = umad;
	struct port_entry *e = umad == NULL || length == NULL || *length < 0 ? NULL :
									       port_get(portid);
	int wait_err;
	ssize_t n;

	if (e == NULL)
		return door_result(-EINVAL);
	n = port_read(e, portid, umad, sizeof(*mad) + (size_t)*length, timeout_ms, &wait_err);
	if (n == -EIO && timeout_ms != 0)
		port_rest(e);
	port_put(e);
	if (n >= 0) {
		*length = (int)((size_t)n - sizeof(*mad));
		return (int)mad->agent_id;
	}
	errno = (int)-n;
	if (n == -ENOSPC)
		*length = (int)(mad->length - sizeof(*mad));
	return wait_err == -EINTR ? -EIO : (int)n;
}

AV_EXPORT int umad_poll(int portid, int timeout_ms)
{
	struct port_entry *e = port_get(portid);
	int err;

	if (e == NULL)
		return door_result(-EINVAL);
	err = port_wait(e, timeout_ms);
	port_put(e);
	if (err != 0)
		errno = -err;
	return err == -EINTR ? -EIO : err;
}
