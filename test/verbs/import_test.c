/* import_test.c: contexts and objects by descriptor and handle in the same process and in a forked
 * child. import_shared_test.c has other processes.
 * In: descriptors, handles    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static union ibv_gid gid;
static uint8_t buffer[4096];

static int setup(void **state)
{
	ctx = device_open(NULL);
	assert_non_null(ctx);
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 64, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	return ibv_query_gid(ctx, 1, 1, &gid);
}

static int teardown(void **state)
{
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
	return 0;
}

/* The errno of a call that returns a pointer; what it made goes to `destroy`. */
#define MADE(type, call, destroy)                                                                  \
	({                                                                                         \
		type *made_ = (errno = 0, (call));                                                 \
		int errno_ = made_ ? 0 : errno;                                                    \
		if (made_)                                                                         \
			assert_int_equal(destroy(made_), 0);                                       \
		errno_;                                                                            \
	})

/* ---- one process ---- */

/* Two contexts of one file share all objects, whichever made them. */
static void files__contexts_of_one_are_one(void **state)
{
	struct ibv_context *twin = ibv_import_device(dup(ctx->cmd_fd));
	struct ibv_pd *shared = ibv_import_pd(twin, pd->handle);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
					 .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
	struct ibv_parent_domain_init_attr parent = { .pd = pd };
	struct ibv_mr *copy = ibv_import_mr(shared, mr->handle), *late;
	char bytes[8];

	assert_non_null(copy);
	assert_int_equal(MADE(struct ibv_qp, ibv_create_qp(shared, &init), ibv_destroy_qp), 0);
	assert_int_equal(MADE(struct ibv_cq, ibv_create_cq(twin, 4, NULL, channel, 0),
			      ibv_destroy_cq), 0);
	assert_int_equal(MADE(struct ibv_pd, ibv_alloc_parent_domain(twin, &parent),
			      ibv_dealloc_pd), 0);
	/* destroyed once, by either */
	late = ibv_reg_mr(pd, bytes, sizeof(bytes), 0);
	ibv_unimport_mr(copy);
	copy = ibv_import_mr(shared, late->handle);
	assert_int_equal(ibv_dereg_mr(copy), 0);
	assert_int_equal(ibv_dereg_mr(late), EINVAL);
	ibv_unimport_mr(late);
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
	ibv_unimport_pd(shared);
	assert_int_equal(ibv_close_device(twin), 0);
}

/* ---- other processes ---- */

enum { SHARED_BYTES = 8192, SHARED_HALF = 4096 };

static int stranger_fd; /* to a process that was there before any device was opened */

/* A file of SHARED_BYTES, and where the sender has it mapped. */
static void descriptor_send(int to, int fd, uint64_t mapped)
{
	char room[CMSG_SPACE(sizeof(fd))] = { 0 };
	struct iovec iov = { &mapped, sizeof(mapped) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room,
			    .msg_controllen = sizeof(room) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	must(sendmsg(to, &m, 0) == (ssize_t)sizeof(mapped));
}

/* -1: the other process has ended. */
static int descriptor_receive(int from, uint64_t *mapped)
{
	char room[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { mapped, sizeof(*mapped) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room,
			    .msg_controllen = sizeof(room) };
	int fd = -1;

	if (recvmsg(from, &m, 0) == (ssize_t)sizeof(*mapped) && CMSG_FIRSTHDR(&m))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

/* Elsewhere than the sender has it. */
static void *stranger_map(int fd, uint64_t mapped)
{
	void *place[2];

	for (int i = 0; i < 2; i++) {
		place[i] = mmap(NULL, SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		must(place[i] != MAP_FAILED);
	}
	if ((uintptr_t)place[0] == mapped) {
		void *other = place[0];

		place[0] = place[1];
		place[1] = other;
	}
	must(munmap(place[1], SHARED_BYTES) == 0);
	return place[0];
}

/* Writes the first half of the memory to the second one, by the addresses that the sender has it
 * at; here it is mapped elsewhere. */
static int stranger_write(struct ibv_context *own, int fd, uint64_t mapped)
{
	struct ibv_pd *domain = ibv_alloc_pd(own);
	struct ibv_cq *queue = ibv_create_cq(own, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = queue, .recv_cq = queue,
					 .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	void *here = stranger_map(fd, mapped);
	struct ibv_mr *region = ibv_reg_mr_iova(domain, here, SHARED_BYTES, mapped,
						IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_qp *qp = ibv_create_qp(domain, &init);
	struct ibv_qp_attr attr = conn_attr(qp->qp_num, &gid, 1);
	struct ibv_sge sge = { mapped, SHARED_HALF, region->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;

	wr.wr.rdma.remote_addr = mapped + SHARED_HALF;
	wr.wr.rdma.rkey = region->rkey;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	must(conn_up(qp, &attr, IBV_QPS_RTS) == 0 && ibv_post_send(qp, &wr, &bad) == 0);
	must(cq_wait(queue, &wc, 1, PAIR_WAIT_MS) == 1);
	must(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(region) == 0 && ibv_destroy_cq(queue) == 0);
	must(ibv_dealloc_pd(domain) == 0 && munmap(here, SHARED_BYTES) == 0);
	return (int)wc.status;
}

static int stranger_share(int fd, uint64_t mapped)
{
	struct ibv_context *own = device_open(NULL);
	int status;

	must(own && ibv_query_gid(own, 1, 1, &gid) == 0);
	status = stranger_write(own, fd, mapped);
	must(ibv_close_device(own) == 0);
	return status;
}

static void stranger_run(int fd)
{
	int answer, received;
	uint64_t mapped;

	while ((received = descriptor_receive(fd, &mapped)) >= 0) {
		answer = stranger_share(received, mapped);
		close(received);
		must(other_tell(fd, &answer, sizeof(answer)));
	}
	_exit(0);
}

/* Without an import, too, another process may name memory that both have by the addresses of the
 * first one. */
static void processes__share_memory_by_addresses_of_one(void **state)
{
	int fd = memfd_create("import_test", MFD_CLOEXEC), answer = -1;
	uint8_t *bytes;

	assert_int_equal(ftruncate(fd, SHARED_BYTES), 0);
	bytes = mmap(NULL, SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(bytes, MAP_FAILED);
	for (int i = 0; i < SHARED_HALF; i++)
		bytes[i] = (uint8_t)(i * 7 + i / 256);
	descriptor_send(stranger_fd, fd, (uintptr_t)bytes);
	assert_int_equal(other_hear(stranger_fd, &answer, sizeof(answer)), sizeof(answer));
	assert_int_equal(answer, IBV_WC_SUCCESS);
	assert_memory_equal(bytes + SHARED_HALF, bytes, SHARED_HALF);
	assert_int_equal(munmap(bytes, SHARED_BYTES), 0);
	close(fd);
}

/* A forked child has the contexts of its parent, so their descriptors lead to them; what it makes
 * there is its own. The parent's region is none of the child's. */
static int child_imports(void)
{
	struct ibv_context *twin = ibv_import_device(dup(ctx->cmd_fd));
	struct ibv_pd *shared = twin ? ibv_import_pd(twin, pd->handle) : NULL;
	struct ibv_mr *own = shared ? ibv_reg_mr(shared, buffer, 64, IBV_ACCESS_LOCAL_WRITE) : NULL;
	struct ibv_cq *queue = own ? ibv_create_cq(twin, 16, NULL, NULL, 0) : NULL;
	struct ibv_qp_init_attr init = { .send_cq = queue, .recv_cq = queue,
					 .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_qp *qp = queue ? ibv_create_qp(shared, &init) : NULL;
	struct ibv_qp_attr a = conn_attr(qp ? qp->qp_num : 0, &gid, 1);
	struct ibv_sge sge = { (uintptr_t)buffer, 8, own ? own->lkey : 0 };
	struct ibv_recv_wr rwr = { .sg_list = &sge, .num_sge = 1 }, *rbad;
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc[2];

	if (!qp || conn_up(qp, &a, IBV_QPS_RTS) || ibv_post_recv(qp, &rwr, &rbad) ||
	    ibv_post_send(qp, &wr, &bad))
		return 1;
	if (cq_wait(queue, wc, 2, PAIR_WAIT_MS) != 2 || wc[0].status || wc[1].status)
		return 2;
	if (ibv_destroy_qp(qp) || ibv_destroy_cq(queue) || ibv_dereg_mr(own))
		return 3;
	ibv_unimport_pd(shared);
	return ibv_close_device(twin) ? 4 : 0;
}

static void processes__a_child_imports_what_it_has(void **state)
{
	int status, child = fork();

	if (child == 0)
		_exit(child_imports());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(files__contexts_of_one_are_one),
		TEST(processes__share_memory_by_addresses_of_one),
		TEST(processes__a_child_imports_what_it_has),
	};

	if (other_fork(&stranger_fd) == 0)
		stranger_run(stranger_fd);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
