/* import_shared_test.c: a context, its domains, regions and device memory in a process that knows
 * the exporter by a descriptor and handles only, as secondary processes of DPDK do: both map one
 * file, and the importer posts by the keys of what it has imported.
 * In: descriptors by SCM_RIGHTS and exec, deaths    Out: verdicts
 * Runs: cmocka; exporters are processes of their own (fork and exec)    Locks: none
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

#define EXPORTER "--exporter"
#define IMPORTER "--importer"
#define STRANGER "--stranger" /* an importer of another user */

enum {
	BYTES = 64 << 10,
	HALF = BYTES / 2,
	DM_BYTES = 256,
	ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	      IBV_ACCESS_REMOTE_ATOMIC,
};

/* ThreadSanitizer does not see what orders processes. */
#define BETWEEN_PROCESSES __attribute__((no_sanitize_thread))

BETWEEN_PROCESSES static void fill(uint8_t *at, uint64_t length, uint64_t seed)
{
	for (uint64_t i = 0; i < length; i++)
		at[i] = (uint8_t)(i * 131 + (i >> 9) + seed * 29);
}

BETWEEN_PROCESSES static bool is_filled(const uint8_t *at, uint64_t length, uint64_t seed)
{
	for (uint64_t i = 0; i < length; i++)
		if (at[i] != (uint8_t)(i * 131 + (i >> 9) + seed * 29))
			return false;
	return true;
}

/* ---- orders ---------------------------------------------------------------------------------- */

enum order_kind {
	/* a: of the device roce1. Values: handles of pd, mr, dm, the address; descriptors: of the
	 * context, the file */
	O_OPEN,
	O_REGISTER,    /* a: offset, b: length, c: access; values: handle */
	O_PRIVATE,     /* a region of its own memory; values: handle */
	O_DM_REGION,   /* a region of its device memory; values: handle */
	O_REREGISTER,  /* the last region: a: offset, b: length */
	O_GONE,	       /* values: handles of a pd, mr, dm that have been destroyed */
	O_FILL,	       /* a: offset, b: length, c: seed */
	O_CHECK,       /* the same; EBADMSG: other bytes */
	O_DM_FILL,     /* c: seed */
	O_DM_CHECK,
	O_QP,	       /* values: number */
	O_WRITE,       /* the file's first half; a: peer, b: address, c: key; values: status */
	O_CLOSE,       /* destroys all of it */
	O_EXEC,	       /* becomes a fresh process of the same number */
};

struct order {
	uint64_t kind, a, b, c;
};

struct reply {
	uint64_t error; /* 0 or an errno */
	uint64_t value[4];
};

enum { FDS = 2 };

static void reply_send(int to, const struct reply *r, const int *fds)
{
	char room[CMSG_SPACE(FDS * sizeof(int))] = { 0 };
	struct iovec iov = { (void *)(uintptr_t)r, sizeof(*r) };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;

	if (fds) {
		h.msg_control = room;
		h.msg_controllen = sizeof(room);
		c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(FDS * sizeof(int));
		memcpy(CMSG_DATA(c), fds, FDS * sizeof(int));
	}
	must(sendmsg(to, &h, MSG_NOSIGNAL) == (ssize_t)sizeof(*r));
}

static bool reply_receive(int from, struct reply *r, int *fds)
{
	char room[CMSG_SPACE(FDS * sizeof(int))];
	struct iovec iov = { r, sizeof(*r) };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room,
			    .msg_controllen = sizeof(room) };

	if (recvmsg(from, &h, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*r))
		return false;
	if (CMSG_FIRSTHDR(&h))
		memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&h)), FDS * sizeof(int));
	return true;
}

/* ---- one side: a context, and traffic -------------------------------------------------------- */

static struct ibv_qp *qp_make(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
					 .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	must(qp != NULL);
	return qp;
}

static int qp_join(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr;
	union ibv_gid gid;

	must(ibv_query_gid(qp->context, 1, 1, &gid) == 0);
	attr = conn_attr(peer, &gid, 1);
	attr.qp_access_flags = ALL & ~IBV_ACCESS_LOCAL_WRITE;
	return conn_up(qp, &attr, IBV_QPS_RTS);
}

/* HALF bytes from `from`, by `lkey`. Returns the completion's status. */
static int qp_write(struct ibv_qp *qp, uint64_t from, uint32_t lkey, uint64_t to, uint32_t rkey)
{
	struct ibv_sge sge = { from, HALF, lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;

	wr.wr.rdma.remote_addr = to;
	wr.wr.rdma.rkey = rkey;
	must(ibv_post_send(qp, &wr, &bad) == 0);
	must(cq_wait(qp->send_cq, &wc, 1, PAIR_WAIT_MS) == 1);
	return (int)wc.status;
}

/* ---- the exporter ---------------------------------------------------------------------------- */

static struct {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr, *last;
	struct ibv_dm *dm;
	struct ibv_qp *qp;
	uint8_t *bytes, own[4096];
	int file;
} my;

static struct ibv_dm *my_alloc_dm(void)
{
	struct ibv_alloc_dm_attr attr = { .length = DM_BYTES };

	return ibv_alloc_dm(my.ctx, &attr);
}

static void my_open(const char *device, struct reply *r)
{
	my.ctx = device_open(device);
	my.file = memfd_create("shared", MFD_CLOEXEC);
	must(my.ctx && ftruncate(my.file, BYTES) == 0);
	my.bytes = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, my.file, 0);
	must(my.bytes != MAP_FAILED);
	my.pd = ibv_alloc_pd(my.ctx);
	my.cq = ibv_create_cq(my.ctx, 16, NULL, NULL, 0);
	my.mr = ibv_reg_mr(my.pd, my.bytes, BYTES, ALL);
	my.dm = my_alloc_dm();
	must(my.cq && my.mr && my.dm);
	r->value[0] = my.pd->handle;
	r->value[1] = my.mr->handle;
	r->value[2] = my.dm->handle;
	r->value[3] = (uintptr_t)my.bytes;
}

static void my_close(void)
{
	must(!my.qp || ibv_destroy_qp(my.qp) == 0);
	must(!my.last || ibv_dereg_mr(my.last) == 0);
	must(ibv_dereg_mr(my.mr) == 0 && ibv_free_dm(my.dm) == 0 && ibv_destroy_cq(my.cq) == 0);
	must(ibv_dealloc_pd(my.pd) == 0 && ibv_close_device(my.ctx) == 0);
}

static void my_gone(struct reply *r)
{
	struct ibv_pd *pd = ibv_alloc_pd(my.ctx);
	struct ibv_mr *mr = ibv_reg_mr(pd, my.bytes, BYTES, 0);
	struct ibv_dm *dm = my_alloc_dm();

	r->value[0] = pd->handle;
	r->value[1] = mr->handle;
	r->value[2] = dm->handle;
	must(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_free_dm(dm) == 0);
}

static void my_register(struct reply *r, struct ibv_mr *mr)
{
	must(mr && (!my.last || ibv_dereg_mr(my.last) == 0));
	my.last = mr;
	r->value[0] = mr->handle;
}

static int my_dm(const struct order *o)
{
	uint8_t bytes[DM_BYTES];

	fill(bytes, sizeof(bytes), o->c);
	if (o->kind == O_DM_FILL)
		return ibv_memcpy_to_dm(my.dm, 0, bytes, sizeof(bytes));
	must(ibv_memcpy_from_dm(bytes, my.dm, 0, sizeof(bytes)) == 0);
	return is_filled(bytes, sizeof(bytes), o->c) ? 0 : EBADMSG;
}

static int my_obey(const struct order *o, struct reply *r)
{
	switch ((enum order_kind)o->kind) {
	case O_OPEN:
		my_open(o->a ? "roce1" : NULL, r);
		return 0;
	case O_REGISTER:
		my_register(r, ibv_reg_mr(my.pd, my.bytes + o->a, o->b, (int)o->c));
		return 0;
	case O_PRIVATE:
		my_register(r, ibv_reg_mr(my.pd, my.own, sizeof(my.own), ALL));
		return 0;
	case O_DM_REGION:
		my_register(r, ibv_reg_dm_mr(my.pd, my.dm, 0, DM_BYTES, IBV_ACCESS_ZERO_BASED));
		return 0;
	case O_REREGISTER:
		return ibv_rereg_mr(my.last, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
				    my.bytes + o->a, o->b, 0);
	case O_GONE:
		my_gone(r);
		return 0;
	case O_FILL:
		fill(my.bytes + o->a, o->b, o->c);
		return 0;
	case O_CHECK:
		return is_filled(my.bytes + o->a, o->b, o->c) ? 0 : EBADMSG;
	case O_DM_FILL:
	case O_DM_CHECK:
		return my_dm(o);
	case O_QP:
		my.qp = qp_make(my.pd, my.cq);
		r->value[0] = my.qp->qp_num;
		return 0;
	case O_WRITE:
		must(qp_join(my.qp, (uint32_t)o->a) == 0);
		r->value[0] = (uint64_t)qp_write(my.qp, (uintptr_t)my.bytes, my.mr->lkey, o->b,
						 (uint32_t)o->c);
		return 0;
	case O_CLOSE:
		my_close();
		return 0;
	case O_EXEC:
		break;
	}
	return ENOSYS;
}

static void exporter_run(int socket, const char *number)
{
	struct order o;

	while (recv(socket, &o, sizeof(o), 0) == (ssize_t)sizeof(o)) {
		struct reply r = { 0 };

		if (o.kind == O_EXEC)
			execl("/proc/self/exe", "exporter", EXPORTER, number, (char *)NULL);
		r.error = (uint64_t)my_obey(&o, &r);
		reply_send(socket, &r,
			   o.kind == O_OPEN ? (int[]){ my.ctx->cmd_fd, my.file } : NULL);
	}
	_exit(0);
}

/* ---- the importer: this process -------------------------------------------------------------- */

static struct {
	pid_t pid; /* the exporter */
	int socket, cmd_fd, file;
	uint32_t pd, mr, dm; /* its handles */
	uint64_t address;
	struct ibv_context *ctx;
	struct ibv_pd *import;
	uint8_t *bytes; /* the file, here */
} x;

static struct reply try(enum order_kind kind, uint64_t a, uint64_t b, uint64_t c)
{
	struct order o = { kind, a, b, c };
	int fds[FDS] = { -1, -1 };
	struct reply r;

	assert_int_equal(send(x.socket, &o, sizeof(o), MSG_NOSIGNAL), sizeof(o));
	assert_true(reply_receive(x.socket, &r, fds));
	for (int i = 0; i < FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return r;
}

static uint64_t ask(enum order_kind kind, uint64_t a, uint64_t b, uint64_t c)
{
	struct reply r = try(kind, a, b, c);

	assert_int_equal(r.error, 0);
	return r.value[0];
}

static pid_t start(const char *role, int inherited)
{
	char number[16];
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		snprintf(number, sizeof(number), "%d", inherited);
		execl("/proc/self/exe", role, role, number, (char *)NULL);
		_exit(127);
	}
	return pid;
}

static void exporter_start(bool other_device)
{
	struct order o = { O_OPEN, other_device, 0, 0 };
	int ends[2], fds[FDS] = { -1, -1 };
	struct reply r;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	fcntl(ends[0], F_SETFD, FD_CLOEXEC);
	x.socket = ends[0];
	x.pid = start(EXPORTER, ends[1]);
	close(ends[1]);
	assert_int_equal(send(x.socket, &o, sizeof(o), MSG_NOSIGNAL), sizeof(o));
	assert_true(reply_receive(x.socket, &r, fds));
	x.cmd_fd = fds[0];
	x.file = fds[1];
	x.pd = (uint32_t)r.value[0];
	x.mr = (uint32_t)r.value[1];
	x.dm = (uint32_t)r.value[2];
	x.address = r.value[3];
}

static void exporter_kill(void)
{
	if (!x.pid)
		return;
	kill(x.pid, SIGKILL);
	waitpid(x.pid, NULL, 0);
	x.pid = 0;
}

static int begin(bool other_device)
{
	exporter_start(other_device);
	x.bytes = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, x.file, 0);
	x.ctx = ibv_import_device(dup(x.cmd_fd));
	x.import = x.ctx ? ibv_import_pd(x.ctx, x.pd) : NULL;
	return x.bytes != MAP_FAILED && x.import ? 0 : -1;
}

static int setup(void **state)
{
	return begin(false);
}

static void import_end(void)
{
	if (!x.ctx)
		return;
	ibv_unimport_pd(x.import);
	assert_int_equal(ibv_close_device(x.ctx), 0);
	x.ctx = NULL;
}

static int teardown(void **state)
{
	import_end();
	exporter_kill();
	munmap(x.bytes, BYTES);
	close(x.file);
	close(x.cmd_fd);
	close(x.socket);
	return 0;
}

static int try_device(int fd)
{
	struct ibv_context *ctx = (errno = 0, ibv_import_device(fd));
	int error = ctx ? 0 : errno;

	if (ctx)
		assert_int_equal(ibv_close_device(ctx), 0);
	else
		close(fd);
	return error;
}

static int try_pd(uint32_t handle)
{
	struct ibv_pd *pd = (errno = 0, ibv_import_pd(x.ctx, handle));

	if (!pd)
		return errno;
	ibv_unimport_pd(pd);
	return 0;
}

static int try_mr(uint32_t handle)
{
	struct ibv_mr *mr = (errno = 0, ibv_import_mr(x.import, handle));

	if (!mr)
		return errno;
	ibv_unimport_mr(mr);
	return 0;
}

static int try_dm(uint32_t handle)
{
	struct ibv_dm *dm = (errno = 0, ibv_import_dm(x.ctx, handle));

	if (!dm)
		return errno;
	ibv_unimport_dm(dm);
	return 0;
}

static void mr__carries_traffic_of_both(void **state)
{
	struct ibv_mr *mr = ibv_import_mr(x.import, x.mr);
	struct ibv_cq *cq = ibv_create_cq(x.ctx, 16, NULL, NULL, 0);
	struct ibv_qp *loop = qp_make(x.import, cq), *qp = qp_make(x.import, cq);
	uint32_t peer = (uint32_t)ask(O_QP, 0, 0, 0);

	assert_non_null(mr);
	assert_null(mr->addr);
	assert_int_equal(mr->length, BYTES);
	assert_int_equal(mr->handle, x.mr);
	assert_ptr_equal(mr->pd, x.import);
	/* by the exporter's addresses, which are others here: from its bytes to its bytes */
	assert_int_equal(qp_join(loop, loop->qp_num), 0);
	ask(O_FILL, 0, HALF, 1);
	assert_int_equal(qp_write(loop, x.address, mr->lkey, x.address + HALF, mr->rkey),
			 IBV_WC_SUCCESS);
	ask(O_CHECK, HALF, HALF, 1);
	/* a peer that is told the remote key */
	assert_int_equal(qp_join(qp, peer), 0);
	ask(O_FILL, 0, HALF, 2);
	assert_int_equal(ask(O_WRITE, qp->qp_num, x.address + HALF, mr->rkey), IBV_WC_SUCCESS);
	assert_true(is_filled(x.bytes + HALF, HALF, 2));
	/* the end of the exporter, by force */
	exporter_kill();
	fill(x.bytes, HALF, 3);
	assert_int_equal(qp_write(loop, x.address, mr->lkey, x.address + HALF, mr->rkey),
			 IBV_WC_SUCCESS);
	assert_true(is_filled(x.bytes + HALF, HALF, 3));
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_qp(loop), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

/* Between two queue pairs of x.import. Returns the completion's status. */
static int write_by(struct ibv_mr *mr, struct ibv_mr *to)
{
	struct ibv_cq *cq = ibv_create_cq(x.ctx, 16, NULL, NULL, 0);
	struct ibv_qp *qp = qp_make(x.import, cq), *peer = qp_make(x.import, cq);
	int status;

	assert_int_equal(qp_join(peer, qp->qp_num), 0);
	assert_int_equal(qp_join(qp, peer->qp_num), 0);
	status = qp_write(qp, x.address, mr->lkey, x.address + HALF, to->rkey);
	assert_int_equal(ibv_destroy_qp(peer), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	return status;
}

/* No more rights than the exporter's region has, nor than the map here. */
static void mr__has_the_rights_of_both(void **state)
{
	uint32_t reader = (uint32_t)ask(O_REGISTER, 0, BYTES, IBV_ACCESS_REMOTE_READ);
	struct ibv_mr *all = ibv_import_mr(x.import, x.mr);
	struct ibv_mr *read = ibv_import_mr(x.import, reader), *poor;

	assert_non_null(all);
	assert_non_null(read);
	assert_int_equal(write_by(read, all), IBV_WC_SUCCESS);
	assert_int_equal(write_by(all, read), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(mprotect(x.bytes, BYTES, PROT_READ), 0);
	poor = ibv_import_mr(x.import, x.mr);
	assert_non_null(poor);
	assert_int_equal(mprotect(x.bytes, BYTES, PROT_READ | PROT_WRITE), 0);
	assert_int_equal(write_by(poor, all), IBV_WC_SUCCESS);
	assert_int_equal(write_by(all, poor), IBV_WC_REM_ACCESS_ERR);
	ibv_unimport_mr(poor);
	ibv_unimport_mr(read);
	ibv_unimport_mr(all);
}

static void mr__follows_what_the_exporter_changes(void **state)
{
	uint32_t handle = (uint32_t)ask(O_REGISTER, 0, BYTES, ALL);
	struct ibv_mr *mr;

	ask(O_REREGISTER, HALF, HALF, 0);
	mr = ibv_import_mr(x.import, handle);
	assert_non_null(mr);
	assert_int_equal(mr->length, HALF);
	ibv_unimport_mr(mr);
}

static void mr__of_memory_that_is_not_here(void **state)
{
	static const struct {
		const char *what;
		enum order_kind how;
	} rows[] = {
		{ "private memory of the exporter", O_PRIVATE },
		{ "device memory", O_DM_REGION },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		print_message("%s\n", rows[i].what);
		assert_int_equal(try_mr((uint32_t)ask(rows[i].how, 0, 0, 0)), EOPNOTSUPP);
	}
	assert_int_equal(try_mr(x.mr), 0);
	munmap(x.bytes, BYTES);
	assert_int_equal(try_mr(x.mr), EOPNOTSUPP);
	x.bytes = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, x.file, 0);
	assert_int_equal(try_mr(x.mr), 0);
}

/* Every import of a domain is the same domain. */
static void pd__imported_twice_is_one(void **state)
{
	struct ibv_context *twin = ibv_import_device(dup(x.cmd_fd));
	struct ibv_pd *pd = ibv_import_pd(twin, x.pd), *again = ibv_import_pd(x.ctx, x.pd);
	struct ibv_mr *mr = ibv_import_mr(pd, x.mr);

	assert_non_null(mr);
	assert_int_equal(pd->handle, x.pd);
	assert_int_equal(write_by(mr, mr), IBV_WC_SUCCESS); /* a queue pair of x.import */
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	ibv_unimport_mr(mr);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	ibv_unimport_pd(again);
	assert_int_equal(ibv_close_device(twin), 0);
	assert_int_equal(try_pd(x.pd), 0); /* the exporter still has it */
	ask(O_CLOSE, 0, 0, 0);
}

/* What the importer makes has handles of its own. */
static void handles__do_not_meet(void **state)
{
	struct ibv_pd *own = ibv_alloc_pd(x.ctx);
	struct ibv_mr *mr = ibv_reg_mr(x.import, x.bytes, BYTES, 0);

	assert_int_equal(try_pd(own->handle), 0);
	assert_int_equal(try_mr(mr->handle), 0);
	assert_int_equal(try_pd(mr->handle), ENOENT);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(own), 0);
}

static void handles__that_name_nothing(void **state)
{
	struct reply gone = try(O_GONE, 0, 0, 0);

	assert_int_equal(try_pd(0), ENOENT);
	assert_int_equal(try_pd(UINT32_MAX), ENOENT);
	assert_int_equal(try_pd(x.mr), ENOENT);
	assert_int_equal(try_pd((uint32_t)gone.value[0]), ENOENT);
	assert_int_equal(try_mr(0), ENOENT);
	assert_int_equal(try_mr(UINT32_MAX), ENOENT);
	assert_int_equal(try_mr(x.dm), ENOENT);
	assert_int_equal(try_mr((uint32_t)gone.value[1]), ENOENT);
	assert_int_equal(try_dm(0), ENOENT);
	assert_int_equal(try_dm(UINT32_MAX), ENOENT);
	assert_int_equal(try_dm(x.pd), ENOENT);
	assert_int_equal(try_dm((uint32_t)gone.value[2]), ENOENT);
}

static void dm__is_one_memory(void **state)
{
	struct ibv_dm *dm = ibv_import_dm(x.ctx, x.dm);
	uint8_t bytes[DM_BYTES];
	struct ibv_mr *mr;

	assert_non_null(dm);
	assert_int_equal(dm->handle, x.dm);
	ask(O_DM_FILL, 0, 0, 1);
	assert_int_equal(ibv_memcpy_from_dm(bytes, dm, 0, sizeof(bytes)), 0);
	assert_true(is_filled(bytes, sizeof(bytes), 1));
	fill(bytes, sizeof(bytes), 2);
	assert_int_equal(ibv_memcpy_to_dm(dm, 0, bytes, sizeof(bytes)), 0);
	ask(O_DM_CHECK, 0, 0, 2);
	assert_int_equal(ibv_memcpy_to_dm(dm, 4, bytes, sizeof(bytes)), EFAULT);
	mr = ibv_reg_dm_mr(x.import, dm, 0, DM_BYTES, IBV_ACCESS_ZERO_BASED);
	assert_non_null(mr);
	assert_int_equal(ibv_free_dm(dm), EBUSY);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	exporter_kill();
	assert_int_equal(ibv_memcpy_to_dm(dm, 0, bytes, sizeof(bytes)), 0);
	memset(bytes, 0, sizeof(bytes));
	assert_int_equal(ibv_memcpy_from_dm(bytes, dm, 0, sizeof(bytes)), 0);
	assert_true(is_filled(bytes, sizeof(bytes), 2));
	assert_int_equal(ibv_free_dm(dm), 0);
}

/* ---- exporters that are not there ------------------------------------------------------------ */

static void expect_all(int answer)
{
	assert_int_equal(try_pd(x.pd), answer);
	assert_int_equal(try_mr(x.mr), answer);
	assert_int_equal(try_dm(x.dm), answer);
}

static void exporter__has_closed_the_context(void **state)
{
	ask(O_CLOSE, 0, 0, 0);
	expect_all(ENODEV);
}

static void exporter__is_killed(void **state)
{
	exporter_kill();
	expect_all(ENODEV);
	import_end();
	assert_int_equal(try_device(dup(x.cmd_fd)), ENODEV);
}

static void run(const char *command)
{
	assert_int_equal(system(command), 0);
}

/* It lives, and has the context, of a device that has gone; one of the same name is another. */
static void exporter__has_a_device_that_is_removed(void **state)
{
	teardown(state);
	run(VERBS_COMMAND " device add roce1");
	assert_int_equal(begin(true), 0);
	assert_string_equal(ibv_get_device_name(x.ctx->device), "roce1");
	run(VERBS_COMMAND " device remove roce1");
	while (try_pd(x.pd) != ENODEV)
		usleep(1000);
	expect_all(ENODEV);
	import_end();
	run(VERBS_COMMAND " device add roce1");
	assert_int_equal(try_device(dup(x.cmd_fd)), ENODEV);
	run(VERBS_COMMAND " device remove roce1");
}

/* Its number is the same, but it is another program. */
static void exporter__becomes_another_program(void **state)
{
	struct order o = { O_EXEC, 0, 0, 0 };

	assert_int_equal(send(x.socket, &o, sizeof(o), MSG_NOSIGNAL), sizeof(o));
	try(O_OPEN, 0, 0, 0); /* an answer of the new program */
	expect_all(ENODEV);
}

/* It is asked nothing. */
static void exporter__is_stopped(void **state)
{
	assert_int_equal(kill(x.pid, SIGSTOP), 0);
	assert_int_equal(waitpid(x.pid, NULL, WUNTRACED), x.pid);
	expect_all(0);
	assert_int_equal(try_device(dup(x.cmd_fd)), 0);
}

static void on_alarm(int signal)
{
	kill(x.pid, SIGKILL);
}

/* At whatever moment it dies, an import works or says ENODEV. */
static void exporter__dies_meanwhile(void **state)
{
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	int answers[3];

	sigaction(SIGALRM, &action, NULL);
	for (int round = 0; round < 8; round++) {
		struct itimerval after = { .it_value = { .tv_usec = 1 + round * 100 } };

		assert_int_equal(setitimer(ITIMER_REAL, &after, NULL), 0);
		do {
			answers[0] = try_pd(x.pd);
			answers[1] = try_mr(x.mr);
			answers[2] = try_dm(x.dm);
			for (int i = 0; i < 3; i++)
				assert_true(answers[i] == 0 || answers[i] == ENODEV);
		} while (answers[0] == 0);
		teardown(state);
		assert_int_equal(setup(state), 0);
	}
}

/* ---- importers of other kinds ---------------------------------------------------------------- */

static int status_of(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* A descriptor that exec leaves open; the exporter is the parent, or no relation. */
static void importer__has_the_descriptor_by_exec(void **state)
{
	struct ibv_context *own = device_open(NULL);
	int fd = dup(own->cmd_fd), other = dup(x.cmd_fd);

	assert_int_equal(status_of(start(IMPORTER, fd)), 0);
	assert_int_equal(status_of(start(IMPORTER, other)), 0);
	assert_int_equal(ibv_close_device(own), 0);
	assert_int_equal(status_of(start(IMPORTER, fd)), ENODEV);
	close(fd);
	close(other);
}

/* The kernel shows it nothing of the exporter. */
static void importer__of_another_user(void **state)
{
	int fd = dup(x.cmd_fd);

	if (geteuid() != 0)
		skip();
	assert_int_equal(status_of(start(STRANGER, fd)), EACCES);
	close(fd);
}

#ifndef __SANITIZE_THREAD__ /* its runtime starts no thread in a forked child */
/* A forked child has what its parent imported, and may import more. */
static int child_imports(void)
{
	struct ibv_mr *mr = ibv_import_mr(x.import, x.mr);
	int status = mr ? write_by(mr, mr) : -1;

	if (mr)
		ibv_unimport_mr(mr);
	return status || try_pd(x.pd) || try_dm(x.dm);
}

static void importer__forks(void **state)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(child_imports());
	assert_int_equal(status_of(pid), 0);
	expect_all(0);
}
#endif

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(mr__carries_traffic_of_both),
		TEST(mr__has_the_rights_of_both),
		TEST(mr__follows_what_the_exporter_changes),
		TEST(mr__of_memory_that_is_not_here),
		TEST(pd__imported_twice_is_one),
		TEST(handles__do_not_meet),
		TEST(handles__that_name_nothing),
		TEST(dm__is_one_memory),
		TEST(exporter__has_closed_the_context),
		TEST(exporter__is_killed),
		TEST(exporter__has_a_device_that_is_removed),
		TEST(exporter__becomes_another_program),
		TEST(exporter__is_stopped),
		TEST(exporter__dies_meanwhile),
		TEST(importer__has_the_descriptor_by_exec),
		TEST(importer__of_another_user),
#ifndef __SANITIZE_THREAD__
		TEST(importer__forks),
#endif
	};

	if (argc == 3 && !strcmp(argv[1], EXPORTER))
		exporter_run(atoi(argv[2]), argv[2]);
	if (argc == 3 && !strcmp(argv[1], IMPORTER))
		_exit(try_device(atoi(argv[2])));
	if (argc == 3 && !strcmp(argv[1], STRANGER))
		_exit(setresuid(65534, 65534, 65534) ? 255 : try_device(atoi(argv[2])));
	pair_supervise();
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
