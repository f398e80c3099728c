/* dmabuf_test.c: regions of DMA buffers (ibv_reg_dmabuf_mr): what is refused, and, where the kernel
 * makes DMA buffers (/dev/udmabuf, a graphics driver such as vgem), every operation on one, by two
 * processes.
 *
 * In:    VERBS_VARIANT: `refused` looks at refusals alone
 * Out:   verdicts; 77: this host makes no DMA buffers
 * Runs:  two processes, in step: the parent initiates, the child owns the target
 * Locks: none
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "duo.h"
#include "pair.h"

enum {
	SKIPPED = 77,
	PAGE = 4096,
	BYTES = 2 << 20,
	AT = 3 * PAGE + 64, /* where the region begins in the buffer */
	REGION = 1 << 20,
	WAIT_MS = 20000,
	ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	      IBV_ACCESS_REMOTE_ATOMIC,
};

/* DRM_IOCTL_MODE_CREATE_DUMB and DRM_IOCTL_PRIME_HANDLE_TO_FD: Debian has their header among
 * libdrm's. */
struct dumb {
	uint32_t height, width, bpp, flags, handle, pitch;
	uint64_t size;
};
struct prime {
	uint32_t handle, flags;
	int32_t fd;
};
#define DUMB_CREATE _IOWR('d', 0xb2, struct dumb)
#define PRIME_TO_FD _IOWR('d', 0x2d, struct prime)

#define IOVA 0x7000000000ull

static const uint32_t lengths[] = { 8, 64, 1000, 4096, 20000, 300000, REGION };

struct scene {
	struct duo *d;
	struct ibv_mr *mr;
	uint8_t *memory; /* the region's bytes, by a mapping of the test's own */
	struct duo_place other;
};

/* Over a memory file. -1: this host has none. */
static int buffer_of_a_file(void)
{
	int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), fd;
	struct udmabuf_create create = { .flags = UDMABUF_FLAGS_CLOEXEC, .size = BYTES };

	if (device < 0)
		return -1;
	create.memfd = (uint32_t)memfd_create("buffer", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	must(ftruncate((int)create.memfd, BYTES) == 0);
	must(fcntl((int)create.memfd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	fd = ioctl(device, UDMABUF_CREATE, &create);
	must(fd >= 0);
	close((int)create.memfd);
	close(device);
	return fd;
}

/* Of a graphics driver, of the kind that every one of them has for programs that draw by the
 * processor; vgem has no hardware. Its pages are nothing that the kernel may copy from. */
static int buffer_of_graphics(const char *path)
{
	int device = open(path, O_RDWR | O_CLOEXEC), fd = -1;
	struct dumb create = { .width = PAGE / 4, .height = BYTES / PAGE, .bpp = 32 };
	struct prime prime = { .flags = O_CLOEXEC | O_RDWR };

	if (device < 0)
		return -1;
	if (ioctl(device, DUMB_CREATE, &create) == 0 && create.size == BYTES) {
		prime.handle = create.handle;
		if (ioctl(device, PRIME_TO_FD, &prime) == 0)
			fd = prime.fd;
	}
	close(device);
	return fd;
}

/* A buffer, mapped at *memory (out). -1: this host has none. */
static int buffer_new(uint8_t **memory)
{
	int fd = buffer_of_a_file();

	if (fd < 0)
		fd = buffer_of_graphics("/dev/dri/card0");
	if (fd < 0)
		return -1;
	*memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(*memory != MAP_FAILED);
	return fd;
}

/* ---- what is refused ---- */

struct refusal {
	uint64_t offset, length, iova;
	int access, error;
};

static void refuse(struct ibv_pd *pd, int fd, const struct refusal *r)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibv_reg_dmabuf_mr(pd, r->offset, r->length, r->iova, fd, r->access);
	if (mr == NULL && errno == r->error)
		return;
	fprintf(stderr, "offset %#lx length %#lx iova %#lx access %#x: %s, not %s\n", r->offset,
		r->length, r->iova, r->access, mr ? "taken" : strerror(errno), strerror(r->error));
	exit(1);
}

/* A plain file, a directory, a socket, a memory file, a pipe: none of them is a DMA buffer. */
static void other_descriptors_are_refused(struct ibv_pd *pd)
{
	const struct refusal none = { 0, PAGE, 0, ALL, EINVAL };
	const struct refusal bad = { 0, PAGE, 0, ALL, EBADF };
	int fds[] = { open("/proc/self/exe", O_RDONLY), open("/", O_RDONLY),
		      open("/dev/null", O_RDWR), memfd_create("none", 0) };

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		must(fds[i] >= 0);
		refuse(pd, fds[i], &none);
		close(fds[i]);
	}
	refuse(pd, -1, &bad);
	refuse(pd, fds[0], &bad);
	refuse(pd, INT32_MAX, &bad);
}

/* These are judged before the descriptor. */
static const struct refusal of_any[] = {
	{ 0, 0, 0, ALL, EINVAL },
	{ 0, PAGE, 1, ALL, EINVAL },
	{ 1, PAGE, 0, ALL, EINVAL },
	{ PAGE - 1, PAGE, PAGE, ALL, EINVAL },
	{ UINT64_MAX - PAGE + 1, 2 * PAGE, 0, ALL, EINVAL },
	{ 0, 2 * PAGE, UINT64_MAX - PAGE + 1, ALL, EINVAL },
	{ 0, UINT64_MAX, PAGE, ALL, EINVAL },
	{ 0, PAGE, 0, IBV_ACCESS_REMOTE_WRITE, EINVAL },
	{ 0, PAGE, 0, IBV_ACCESS_REMOTE_ATOMIC, EINVAL },
	{ 0, PAGE, 0, ALL | IBV_ACCESS_MW_BIND, EINVAL },
	{ 0, PAGE, 0, ALL | IBV_ACCESS_ZERO_BASED, EINVAL },
	{ 0, PAGE, 0, ALL | IBV_ACCESS_ON_DEMAND, EINVAL },
	{ 0, PAGE, 0, ALL | IBV_ACCESS_HUGETLB, EINVAL },
	{ 0, PAGE, 0, ALL | 1 << 19, EINVAL },
};

static const struct refusal of_a_buffer[] = {
	{ 0, BYTES + 1, 0, ALL, EINVAL },
	{ 1, BYTES, 1, ALL, EINVAL },
	{ BYTES - 1, 2, BYTES - 1, ALL, EINVAL },
	{ BYTES, 1, 0, ALL, EINVAL },
	{ 1ull << 40, 1, 0, ALL, EINVAL },
	{ UINT64_MAX - PAGE + 1, 1, 0, ALL, EINVAL },
};

static const struct refusal taken[] = {
	{ 0, BYTES, 0, ALL, 0 },
	{ 0, 1, PAGE, ALL, 0 },
	{ BYTES - 1, 1, BYTES - 1, ALL, 0 },
	{ 1, BYTES - 1, PAGE + 1, IBV_ACCESS_REMOTE_READ, 0 },
	{ 0, PAGE, 0, 0, 0 },
	{ 0, PAGE, 0, ALL | IBV_ACCESS_RELAXED_ORDERING, 0 },
};

static void limits_of_a_buffer(struct ibv_pd *pd, int fd)
{
	for (size_t i = 0; i < sizeof(of_a_buffer) / sizeof(of_a_buffer[0]); i++)
		refuse(pd, fd, &of_a_buffer[i]);
	for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
		const struct refusal *t = &taken[i];
		struct ibv_mr *mr =
			ibv_reg_dmabuf_mr(pd, t->offset, t->length, t->iova, fd, t->access);

		must(mr != NULL && mr->length == t->length);
		must(mr->addr == (void *)(uintptr_t)t->offset && mr->pd == pd);
		must(ibv_dealloc_pd(pd) == EBUSY);
		must(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) != 0 &&
		     errno == EOPNOTSUPP);
		must(ibv_dereg_mr(mr) == 0);
	}
}

/* ---- traffic ---- */

/* Mappings of the file that is mapped at `memory`. */
static int mappings_of(const uint8_t *memory)
{
	char line[1024], file[64], own[64] = "";
	FILE *f = fopen("/proc/self/maps", "re");
	uint64_t start;
	int n = 0;

	must(f != NULL);
	for (int look = 0; look < 2; look++, rewind(f))
		while (fgets(line, sizeof(line), f) != NULL) {
			/* device and inode */
			if (sscanf(line, "%lx-%*x %*s %*s %63[0-9a-f: ]", &start, file) != 2)
				continue;
			if (look == 0 && start == (uintptr_t)memory)
				memcpy(own, file, sizeof(own));
			n += look == 1 && strcmp(file, own) == 0;
		}
	fclose(f);
	must(own[0] != 0);
	return n;
}

/* The descriptor is closed: the region keeps the buffer. */
static void open_scene(struct scene *s)
{
	struct duo_place mine;
	int fd = buffer_new(&s->memory);

	must(fd >= 0);
	s->memory += AT;
	s->mr = ibv_reg_dmabuf_mr(s->d->pd, AT, REGION, IOVA + AT % PAGE, fd, ALL);
	must(s->mr != NULL && close(fd) == 0);
	mine = (struct duo_place){ .addr = IOVA + AT % PAGE, .rkey = s->mr->rkey };
	duo_tell(s->d, &mine, sizeof(mine));
	must(duo_hear(s->d, &s->other, sizeof(s->other)));
	must(mappings_of(s->memory - AT) == 2);
}

static void close_scene(struct scene *s)
{
	duo_step(s->d);
	must(ibv_dereg_mr(s->mr) == 0);
	must(mappings_of(s->memory - AT) == 1);
	must(munmap(s->memory - AT, BYTES) == 0);
	duo_step(s->d);
}

static void check(const struct scene *s, uint32_t length, int value)
{
	must(s->memory[-1] == 0 && s->memory[REGION] == 0);
	for (uint32_t i = 0; i < length; i++)
		if (s->memory[i] != value) {
			fprintf(stderr, "byte %u is %d, not %d\n", i, s->memory[i], value);
			exit(1);
		}
}

static void *local(void)
{
	return (void *)(uintptr_t)(IOVA + AT % PAGE);
}

static void write_round(struct scene *s, uint32_t length, int value)
{
	if (!duo_is_child(s->d)) {
		memset(s->memory, value, length);
		duo_do(s->d, IBV_WR_RDMA_WRITE, s->mr, local(), length, s->other.addr,
		       s->other.rkey);
	}
	duo_step(s->d);
	check(s, length, value);
	duo_step(s->d);
}

static void read_round(struct scene *s, uint32_t length, int value)
{
	if (duo_is_child(s->d))
		memset(s->memory, value, length);
	duo_step(s->d);
	if (!duo_is_child(s->d))
		duo_do(s->d, IBV_WR_RDMA_READ, s->mr, local(), length, s->other.addr,
		       s->other.rkey);
	check(s, length, value);
	duo_step(s->d);
}

static void atomic_round(struct scene *s, uint64_t value)
{
	if (duo_is_child(s->d))
		memcpy(s->memory, &value, 8);
	duo_step(s->d);
	if (!duo_is_child(s->d))
		duo_do(s->d, IBV_WR_ATOMIC_FETCH_AND_ADD, s->mr, local(), 8, s->other.addr,
		       s->other.rkey);
	duo_step(s->d);
	value += duo_is_child(s->d);
	must(memcmp(s->memory, &value, 8) == 0);
	duo_step(s->d);
}

static void send_round(struct scene *s, uint32_t length, int value)
{
	struct ibv_sge sge = { (uintptr_t)local(), length, s->mr->lkey };
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED }, *bad_send;
	struct ibv_wc wc = { 0 };

	memset(s->memory, duo_is_child(s->d) ? 0 : value, length);
	if (duo_is_child(s->d))
		must(ibv_post_recv(s->d->qp, &recv, &bad_recv) == 0);
	duo_step(s->d);
	if (!duo_is_child(s->d))
		must(ibv_post_send(s->d->qp, &send, &bad_send) == 0);
	must(cq_wait(s->d->cq, &wc, 1, WAIT_MS) == 1 && wc.status == IBV_WC_SUCCESS);
	check(s, length, value);
	duo_step(s->d);
}

static void every_operation(struct scene *s)
{
	int value = 1;

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		write_round(s, lengths[i], value++);
		read_round(s, lengths[i], value++);
		send_round(s, lengths[i], value++);
	}
	atomic_round(s, 1ull << 40);
}

/* A forked child has the mapping, too, and ends it with its copy of the region. */
static void a_child_deregisters(struct scene *s)
{
	int child = fork(), status;

	if (child == 0)
		_exit(ibv_dereg_mr(s->mr) == 0 && mappings_of(s->memory - AT) == 1 ? 0 : 1);
	must(waitpid(child, &status, 0) == child && status == 0);
	must(mappings_of(s->memory - AT) == 2);
	write_round(s, 5000, 99);
}

static void of_a_real_one(struct duo *d)
{
	struct scene s = { .d = d };
	uint8_t *memory;
	int fd = buffer_new(&memory);

	limits_of_a_buffer(d->pd, fd);
	close(fd);
	must(mappings_of(memory) == 1 && munmap(memory, BYTES) == 0);
	open_scene(&s);
	every_operation(&s);
	if (duo_is_child(s.d))
		a_child_deregisters(&s);
	else
		write_round(&s, 5000, 99);
	close_scene(&s);
}

static bool has_buffers(void)
{
	uint8_t *memory;
	int fd = buffer_new(&memory);

	return fd >= 0 && munmap(memory, BYTES) == 0 && close(fd) == 0;
}

int main(void)
{
	const char *variant = getenv("VERBS_VARIANT");
	bool refused = variant != NULL && strcmp(variant, "refused") == 0;
	struct duo d;

	if (!refused && !has_buffers()) {
		fprintf(stderr, "SKIPPED: no /dev/udmabuf or /dev/dri/card0 makes DMA buffers\n");
		return SKIPPED;
	}
	duo_start(&d);
	other_descriptors_are_refused(d.pd);
	for (size_t i = 0; i < sizeof(of_any) / sizeof(of_any[0]); i++)
		refuse(d.pd, -1, &of_any[i]);
	if (!refused)
		of_a_real_one(&d);
	if (!duo_end(&d))
		return 1;
	printf("%s: ok\n", refused ? "what is refused" : "every operation on a DMA buffer");
	return 0;
}
