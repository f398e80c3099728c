/* memory_test.c: regions, windows, fast memory regions and their pools, over the real adapter;
 * the peer is the other queue pair of a link in the same process.
 * In:    -    Out: -    Runs: the test's threads, a completion vector
 */
#include "rig.h"

#include <rdma/ib_extended.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct link l;

static int setup(void **state)
{
	rig_setup(state);
	link_open(&l, IB_QPT_RC, NULL);
	return 0;
}

static int teardown(void **state)
{
	link_close(&l);
	return 0;
}

static u64 at(u64 offset)
{
	return (uintptr_t)rig.buf + offset;
}

static u8 pattern(u64 i, u8 seed)
{
	return (u8)(seed + i * 13 + (i >> 8));
}

/* a's WRITE or READ of `length` bytes between its own buffer at `own` and (va, rkey) of b. */
static enum ib_wc_status access_peer(enum ib_wr_opcode op, u64 own, u64 va, u32 rkey, u32 length)
{
	enum ib_wc_status status;

	rig_reach(l.a, op, own, va, rkey, length);
	status = rig_outcome(l.scq);
	if (status != IB_WC_SUCCESS)
		link_reset(&l);
	return status;
}

static void write_ok(u64 own, u64 va, u32 rkey, u32 length)
{
	assert_int_equal(access_peer(IB_WR_RDMA_WRITE, own, va, rkey, length), IB_WC_SUCCESS);
}

static void write_refused(u64 own, u64 va, u32 rkey, u32 length)
{
	assert_int_equal(access_peer(IB_WR_RDMA_WRITE, own, va, rkey, length),
			 IB_WC_REM_ACCESS_ERR);
}

static void read_ok(u64 own, u64 va, u32 rkey, u32 length)
{
	assert_int_equal(access_peer(IB_WR_RDMA_READ, own, va, rkey, length), IB_WC_SUCCESS);
}

static void fill(u64 offset, u32 n, u8 seed)
{
	for (u32 i = 0; i < n; i++)
		rig.buf[offset + i] = pattern(i, seed);
}

/* ---- regions --------------------------------------------------------------------------------- */

static u8 somewhere[256]; /* memory that nobody registered by itself */

static void get_dma_mr__is_the_whole_address_space(void **state)
{
	u8 on_the_stack[64] = { 0 };

	fill(0, 256, 1);
	write_ok(0, (uintptr_t)somewhere, rig.mr->rkey, 256);
	assert_memory_equal(somewhere, rig.buf, 256);
	write_ok(0, (uintptr_t)on_the_stack, rig.mr->rkey, 64);
	assert_memory_equal(on_the_stack, rig.buf, 64);
	read_ok(4096, (uintptr_t)somewhere, rig.mr->rkey, 256);
	assert_memory_equal(rig.buf + 4096, somewhere, 256);
}

static void get_dma_mr__keeps_to_its_access(void **state)
{
	struct ib_mr *local = rig_ok(ib_get_dma_mr(rig.pd, IB_ACCESS_LOCAL_WRITE));
	struct ib_mr *reads = rig_ok(ib_get_dma_mr(rig.pd, IB_ACCESS_REMOTE_READ));

	write_refused(0, at(4096), local->rkey, 8);
	write_refused(0, at(4096), reads->rkey, 8);
	read_ok(0, at(4096), reads->rkey, 8);
	assert_int_equal(PTR_ERR(ib_get_dma_mr(rig.pd, IB_ACCESS_REMOTE_WRITE)), -EINVAL);
	assert_int_equal(ib_dereg_mr(local), 0);
	u32 gone = reads->rkey;

	assert_int_equal(ib_dereg_mr(reads), 0);
	assert_int_equal(access_peer(IB_WR_RDMA_READ, 0, at(4096), gone, 8), IB_WC_REM_ACCESS_ERR);
}

static int page_guard(void *page)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .range = { (uintptr_t)page, RIG_PAGE },
					 .mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0 || ioctl(fd, UFFDIO_REGISTER, &range) != 0)
		skip();
	return fd;
}

static int dereg_returned; /* 1 and the negated error */

static void *dereg_main(void *mr)
{
	__atomic_store_n(&dereg_returned, 1 - ib_dereg_mr(mr), __ATOMIC_RELEASE);
	return NULL;
}

/* The adapter's engine is held in the middle of a copy into the region, by a page fault that only
 * this test can end. */
static void dereg_mr__waits_for_a_copy_under_way(void **state)
{
	void *page = mmap(NULL, RIG_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			  0);
	struct uffdio_zeropage zero = { .range = { (uintptr_t)page, RIG_PAGE } };
	struct ib_phys_buf buf = { .addr = (uintptr_t)page, .size = RIG_PAGE };
	u64 start = (uintptr_t)page;
	pthread_t t;

	if (rig.plug) /* it may copy wherever it likes, inside post_send too */
		skip();
	struct pollfd fault = { .fd = page_guard(page), .events = POLLIN };
	struct ib_mr *mr = rig_ok(ib_reg_phys_mr(rig.pd, &buf, 1, RIG_ALL, &start));

	dereg_returned = 0;
	rig_reach(l.a, IB_WR_RDMA_WRITE, 0, start, mr->rkey, 64);
	/* no poll: this thread must not be the engine */
	int inside = poll(&fault, 1, RIG_WAIT_MS);

	assert_int_equal(pthread_create(&t, NULL, dereg_main, mr), 0);
	rig_sleep_ms(RIG_QUIET_MS);
	int early = count_get(&dereg_returned);

	ioctl(fault.fd, UFFDIO_ZEROPAGE, &zero);
	pthread_join(t, NULL);
	assert_true(inside == 1 && fault.revents == POLLIN);
	assert_int_equal(early, 0);
	assert_int_equal(dereg_returned, 1);
	rig_expect(l.scq, IB_WC_SUCCESS);
	close(fault.fd);
	munmap(page, RIG_PAGE);
}

/* Three pieces far apart, the first beginning and the last ending inside a page. */
static void reg_phys_mr__joins_scattered_pages(void **state)
{
	rig_needs(reg_phys_mr);
	struct ib_phys_buf piece[3] = { { at(10 * 4096 + 100), 4096 - 100 },
					{ at(3 * 4096), 8192 },
					{ at(20 * 4096), 1000 } };
	u32 total = 4096 - 100 + 8192 + 1000;
	u64 iova = 0x700000064;
	struct ib_mr *mr = rig_ok(ib_reg_phys_mr(rig.pd, piece, 3, RIG_ALL, &iova));
	struct ib_mr_attr attr;
	u64 i = 0;

	assert_int_equal(iova & 4095, 100);
	assert_int_equal(ib_query_mr(mr, &attr), 0);
	assert_ptr_equal(attr.pd, rig.pd);
	assert_int_equal(attr.size, total);
	assert_int_equal(attr.device_virt_addr, iova);
	assert_int_equal(attr.rkey, mr->rkey);
	fill(40 * 4096, total, 9);
	write_ok(40 * 4096, iova, mr->rkey, total);
	for (int p = 0; p < 3; p++)
		for (u64 k = 0; k < piece[p].size; k++, i++)
			assert_int_equal(*(u8 *)(uintptr_t)(piece[p].addr + k), pattern(i, 9));
	assert_int_equal(rig.buf[10 * 4096 + 99], 0);
	assert_int_equal(rig.buf[20 * 4096 + 1000], 0);
	read_ok(50 * 4096, iova, mr->rkey, total);
	assert_memory_equal(rig.buf + 50 * 4096, rig.buf + 40 * 4096, total);
	write_refused(0, iova - 1, mr->rkey, 8);
	write_refused(0, iova + total - 7, mr->rkey, 8);
	assert_int_equal(ib_dereg_mr(mr), 0);
}

/* The region also serves as local memory: gather and scatter across its seams. */
static void reg_phys_mr__serves_local_requests(void **state)
{
	rig_needs(reg_phys_mr);
	struct ib_phys_buf piece[2] = { { at(5 * 4096), 4096 }, { at(4096), 4096 } };
	u64 iova = 0;
	struct ib_mr *mr = rig_ok(ib_reg_phys_mr(rig.pd, piece, 2, IB_ACCESS_LOCAL_WRITE, &iova));
	struct ib_sge sge = { .addr = iova + 4000, .length = 200, .lkey = mr->lkey };
	struct ib_send_wr wr = { .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IB_WR_SEND,
				 .send_flags = IB_SEND_SIGNALED };

	fill(5 * 4096 + 4000, 96, 4);
	fill(4096, 104, 5);
	rig_recv(l.b, 1, 8 * 4096, 200);
	rig_send(l.a, &wr);
	rig_drain(l.scq, 1);
	rig_drain(l.rcq, 1);
	assert_memory_equal(rig.buf + 8 * 4096, rig.buf + 5 * 4096 + 4000, 96);
	assert_memory_equal(rig.buf + 8 * 4096 + 96, rig.buf + 4096, 104);
	assert_int_equal(ib_dereg_mr(mr), 0);
}

static void reg_phys_mr__refuses_holes(void **state)
{
	rig_needs(reg_phys_mr);
	struct ib_phys_buf hole[2] = { { at(4096), 4000 }, { at(8192), 4096 } };
	struct ib_phys_buf late[2] = { { at(4096), 4096 }, { at(8192 + 8), 4088 } };
	struct ib_phys_buf wraps = { UINT64_MAX - 10, 4096 }, none = { at(0), 0 };
	u64 iova = 0x123456;

	assert_int_equal(PTR_ERR(ib_reg_phys_mr(rig.pd, hole, 2, RIG_ALL, &iova)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_reg_phys_mr(rig.pd, late, 2, RIG_ALL, &iova)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_reg_phys_mr(rig.pd, &wraps, 1, RIG_ALL, &iova)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_reg_phys_mr(rig.pd, &none, 1, RIG_ALL, &iova)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_reg_phys_mr(rig.pd, hole, 0, RIG_ALL, &iova)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_reg_phys_mr(rig.pd, hole, 1, 1 << 15, &iova)), -EINVAL);
	assert_int_equal(iova, 0x123456);
}

/* ---- fast memory regions --------------------------------------------------------------------- */

static struct ib_fmr *fmr_new(int max_pages)
{
	struct ib_fmr_attr attr = { .max_pages = max_pages, .max_maps = 32, .page_shift = 12 };

	return rig_ok(ib_alloc_fmr(rig.pd, RIG_ALL & ~IB_ACCESS_MW_BIND, &attr));
}

static int fmr_unmap(struct ib_fmr *const fmr[], int n)
{
	struct list_head list = { &list, &list };

	for (int i = 0; i < n; i++) {
		struct list_head *node = &fmr[i]->list;

		*node = (struct list_head){ .next = &list, .prev = list.prev };
		list.prev->next = node;
		list.prev = node;
	}
	int err = ib_unmap_fmr(&list);

	for (int i = 0; i < n; i++)
		fmr[i]->list.next = fmr[i]->list.prev = &fmr[i]->list;
	return err;
}

static int fmr_unmap_one(struct ib_fmr *fmr)
{
	return fmr_unmap(&fmr, 1);
}

static void map_phys_fmr__maps_remaps_and_unmaps(void **state)
{
	rig_needs(alloc_fmr);
	struct ib_fmr *fmr = fmr_new(3);
	u64 pages[3] = { at(9 * 4096), at(2 * 4096), at(30 * 4096) };
	u64 other[1] = { at(11 * 4096) };

	write_refused(0, 0x50000, fmr->rkey, 8);
	assert_int_equal(ib_map_phys_fmr(fmr, pages, 3, 0x50000), 0);
	fill(40 * 4096, 3 * 4096, 2);
	write_ok(40 * 4096, 0x50000, fmr->rkey, 3 * 4096);
	assert_memory_equal(rig.buf + 9 * 4096, rig.buf + 40 * 4096, 4096);
	assert_memory_equal(rig.buf + 2 * 4096, rig.buf + 41 * 4096, 4096);
	assert_memory_equal(rig.buf + 30 * 4096, rig.buf + 42 * 4096, 4096);
	write_refused(0, 0x50000 + 3 * 4096 - 4, fmr->rkey, 8);
	u32 first = fmr->rkey;

	assert_int_equal(ib_map_phys_fmr(fmr, other, 1, 0x90000), 0);
	assert_int_not_equal(fmr->rkey, first);
	write_refused(0, 0x50000, first, 8);
	write_ok(40 * 4096, 0x90008, fmr->rkey, 8);
	assert_memory_equal(rig.buf + 11 * 4096 + 8, rig.buf + 40 * 4096, 8);
	assert_int_equal(fmr_unmap_one(fmr), 0);
	write_refused(0, 0x90008, fmr->rkey, 8);
	assert_int_equal(fmr_unmap_one(fmr), 0); /* nothing was mapped: no error */
	assert_int_equal(ib_map_phys_fmr(fmr, other, 1, 0x90000), 0);
	write_ok(0, 0x90000, fmr->rkey, 8);
	assert_int_equal(ib_dealloc_fmr(fmr), 0);
}

/* All of a list, the last as the first, beside one that was never mapped. */
static void unmap_fmr__all_of_a_list(void **state)
{
	rig_needs(alloc_fmr);
	struct ib_fmr *fmr[4];

	for (u32 i = 0; i < 4; i++) {
		u64 page = at((2 + i) * 4096);

		fmr[i] = fmr_new(1);
		if (i != 1)
			assert_int_equal(ib_map_phys_fmr(fmr[i], &page, 1, 0x50000), 0);
	}
	write_ok(0, 0x50000, fmr[3]->rkey, 8);
	assert_int_equal(fmr_unmap(fmr, 4), 0);
	for (u32 i = 0; i < 4; i++) {
		write_refused(0, 0x50000, fmr[i]->rkey, 8);
		assert_int_equal(ib_dealloc_fmr(fmr[i]), 0);
	}
}

/* As adapters whose old keys live until the unmap must. */
static void map_phys_fmr__only_so_often(void **state)
{
	rig_needs(alloc_fmr);
	struct ib_fmr_attr attr = { .max_pages = 1, .max_maps = 2, .page_shift = 12 };
	struct ib_fmr *fmr = rig_ok(ib_alloc_fmr(rig.pd, RIG_ALL & ~IB_ACCESS_MW_BIND, &attr));
	u64 page = at(4096);

	assert_int_equal(ib_map_phys_fmr(fmr, &page, 1, 0x10000), 0);
	assert_int_equal(ib_map_phys_fmr(fmr, &page, 1, 0x20000), 0);
	assert_int_equal(ib_map_phys_fmr(fmr, &page, 1, 0x30000), -EINVAL);
	write_ok(0, 0x20000, fmr->rkey, 8); /* the refused one changes nothing */
	write_refused(0, 0x30000, fmr->rkey, 8);
	assert_int_equal(fmr_unmap_one(fmr), 0);
	assert_int_equal(ib_map_phys_fmr(fmr, &page, 1, 0x30000), 0);
	assert_int_equal(ib_dealloc_fmr(fmr), 0);
	attr.max_maps = 0;
	assert_int_equal(PTR_ERR(ib_alloc_fmr(rig.pd, RIG_ALL, &attr)), -EINVAL);
}

static void map_phys_fmr__refuses_bad_lists(void **state)
{
	rig_needs(alloc_fmr);
	struct ib_fmr_attr attr = { .max_pages = 0, .max_maps = 1, .page_shift = 12 };
	struct ib_fmr *fmr = fmr_new(2);
	u64 pages[3] = { at(0), at(4096), at(8192) };

	assert_int_equal(ib_map_phys_fmr(fmr, pages, 3, 0x1000), -EINVAL);
	assert_int_equal(ib_map_phys_fmr(fmr, pages, 0, 0x1000), -EINVAL);
	assert_int_equal(ib_map_phys_fmr(fmr, NULL, 0, 0x1000), -EINVAL);
	assert_int_equal(ib_map_phys_fmr(fmr, pages, -1, 0x1000), -EINVAL);
	assert_int_equal(ib_map_phys_fmr(fmr, pages, 1, 0x1001), -EINVAL);
	assert_int_equal(ib_map_phys_fmr(fmr, pages, 2, 0x1000), 0);
	assert_int_equal(ib_dealloc_fmr(fmr), 0);
	assert_int_equal(PTR_ERR(ib_alloc_fmr(rig.pd, RIG_ALL, &attr)), -EINVAL);
	attr.max_pages = 1;
	attr.page_shift = 63;
	assert_int_equal(PTR_ERR(ib_alloc_fmr(rig.pd, RIG_ALL, &attr)), -EINVAL);
}

static struct ib_fmr *mapped_by_handler;
static int handler_maps, handler_errors;

static void mapping_handler(struct ib_cq *cq, void *context)
{
	u64 page = at((u64)(1 + handler_maps % 8) * 4096);
	struct ib_wc wc;

	while (ib_poll_cq(cq, 1, &wc) > 0)
		continue;
	if (ib_map_phys_fmr(mapped_by_handler, &page, 1, 0x40000) != 0 ||
	    ib_req_notify_cq(cq, IB_CQ_NEXT_COMP) < 0)
		count_add(&handler_errors);
	count_add(&handler_maps);
}

static void map_phys_fmr__from_a_completion_handler(void **state)
{
	rig_needs(alloc_fmr);
	struct ib_cq *cq = rig_handler_cq(mapping_handler, NULL, 64, 0);
	struct link h;

	handler_maps = handler_errors = 0;
	mapped_by_handler = fmr_new(1);
	link_open(&h, IB_QPT_RC, cq);
	assert_int_equal(ib_req_notify_cq(cq, IB_CQ_NEXT_COMP), 0);
	for (int i = 0; i < 20; i++) {
		link_ping(&h, 1, 0);
		assert_true(rig_await(&handler_maps, i + 1));
		fill(40 * 4096, 16, (u8)(i + 1));
		write_ok(40 * 4096, 0x40000, mapped_by_handler->rkey, 16);
		assert_memory_equal(rig.buf + (1 + i % 8) * 4096, rig.buf + 40 * 4096, 16);
	}
	link_close(&h);
	assert_int_equal(handler_errors, 0);
	assert_int_equal(ib_dealloc_fmr(mapped_by_handler), 0);
}

/* ---- pools ----------------------------------------------------------------------------------- */

static int flushes;

static void pool_flushed(struct ib_fmr_pool *pool, void *arg)
{
	count_add(arg);
}

static struct ib_fmr_pool *pool_new(int size, bool cache)
{
	struct ib_fmr_pool_param p = { .max_pages_per_fmr = 2,
				       .page_shift = 12,
				       .access = RIG_ALL & ~IB_ACCESS_MW_BIND,
				       .pool_size = size,
				       .dirty_watermark = 2,
				       .flush_function = pool_flushed,
				       .flush_arg = &flushes,
				       .cache = cache };

	flushes = 0;
	return rig_ok(ib_create_fmr_pool(rig.pd, &p));
}

static void fmr_pool__peer_reaches_it_until_the_flush(void **state)
{
	rig_needs(alloc_fmr);
	struct ib_fmr_pool *pool = pool_new(4, false);
	u64 pages[2] = { at(6 * 4096), at(4 * 4096) };
	struct ib_pool_fmr *f = rig_ok(ib_fmr_pool_map_phys(pool, pages, 2, 0x20000));
	u32 rkey = f->fmr->rkey;

	fill(0, 8192, 3);
	write_ok(0, 0x20000, rkey, 8192);
	assert_memory_equal(rig.buf + 6 * 4096, rig.buf, 4096);
	assert_memory_equal(rig.buf + 4 * 4096, rig.buf + 4096, 4096);
	read_ok(10 * 4096, 0x20000, rkey, 8192);
	assert_memory_equal(rig.buf + 10 * 4096, rig.buf, 8192);
	assert_int_equal(ib_fmr_pool_unmap(f), 0);
	assert_int_equal(ib_flush_fmr_pool(pool), 0);
	assert_true(count_get(&flushes) >= 1);
	write_refused(0, 0x20000, rkey, 8);
	assert_int_equal(ib_destroy_fmr_pool(pool), 0);
}

static void fmr_pool__runs_dry_and_shares(void **state)
{
	rig_needs(alloc_fmr);
	struct ib_fmr_pool *pool = pool_new(2, true);
	u64 one[1] = { at(4096) }, two[1] = { at(8192) }, three[1] = { at(12288) };
	struct ib_pool_fmr *a = rig_ok(ib_fmr_pool_map_phys(pool, one, 1, 0x1000));
	struct ib_pool_fmr *b = rig_ok(ib_fmr_pool_map_phys(pool, two, 1, 0x2000));

	assert_ptr_equal(rig_ok(ib_fmr_pool_map_phys(pool, one, 1, 0x1000)), a);
	assert_int_equal(PTR_ERR(ib_fmr_pool_map_phys(pool, three, 1, 0x3000)), -EAGAIN);
	assert_int_equal(PTR_ERR(ib_fmr_pool_map_phys(pool, three, 3, 0x3000)), -EINVAL);
	write_ok(0, 0x2000, b->fmr->rkey, 8);
	assert_int_equal(ib_fmr_pool_unmap(b), 0);
	struct ib_pool_fmr *c = rig_ok(ib_fmr_pool_map_phys(pool, three, 1, 0x3000));

	write_ok(0, 0x3000, c->fmr->rkey, 8);
	assert_int_equal(ib_fmr_pool_unmap(c), 0);
	assert_int_equal(ib_fmr_pool_unmap(a), 0);
	write_ok(0, 0x1000, a->fmr->rkey, 8); /* a's second holder */
	assert_int_equal(ib_fmr_pool_unmap(a), 0);
	assert_int_equal(ib_destroy_fmr_pool(pool), 0);
}

/* ---- memory windows -------------------------------------------------------------------------- */

static int bind_try(struct ib_mw *mw, struct ib_mr *mr, u64 addr, u32 length, int access)
{
	struct ib_mw_bind bind = { .mr = mr,
				   .wr_id = 77,
				   .addr = addr,
				   .length = length,
				   .send_flags = IB_SEND_SIGNALED,
				   .mw_access_flags = access };

	return ib_bind_mw(l.b, mw, &bind);
}

static void bind_ok(struct ib_mw *mw, struct ib_mr *mr, u64 addr, u32 length, int access)
{
	struct ib_wc wc;

	assert_int_equal(bind_try(mw, mr, addr, length, access), 0);
	wc = rig_expect(l.bscq, IB_WC_SUCCESS);
	assert_int_equal(wc.opcode, IB_WC_BIND_MW);
	assert_int_equal(wc.wr_id, 77);
}

enum { BOTH = IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE };

static void bind_mw__bounds_rebind_unbind(void **state)
{
	rig_needs(alloc_mw);
	struct ib_mw *mw = rig_ok(ib_alloc_mw(rig.pd));

	write_refused(0, at(8192), mw->rkey, 8);
	bind_ok(mw, rig.mr, at(8192), 100, BOTH);
	u32 first = mw->rkey;

	fill(0, 100, 8);
	write_ok(0, at(8192), first, 100);
	assert_memory_equal(rig.buf + 8192, rig.buf, 100);
	write_refused(0, at(8192 + 96), first, 8);
	write_refused(0, at(8191), first, 8);
	bind_ok(mw, rig.mr, at(16384), 64, IB_ACCESS_REMOTE_READ);
	assert_int_not_equal(mw->rkey, first);
	write_refused(0, at(8192), first, 8);
	write_refused(0, at(16384), mw->rkey, 8);
	read_ok(0, at(16384), mw->rkey, 64);
	bind_ok(mw, rig.mr, 0, 0, 0);
	assert_int_equal(access_peer(IB_WR_RDMA_READ, 0, at(16384), mw->rkey, 8),
			 IB_WC_REM_ACCESS_ERR);
	bind_ok(mw, rig.mr, at(8192), 8, BOTH);
	u32 last = mw->rkey;

	assert_int_equal(ib_dealloc_mw(mw), 0);
	write_refused(0, at(8192), last, 8);
}

static void bind_mw__holds_its_region(void **state)
{
	rig_needs(alloc_mw);
	struct ib_mr *mr = rig_ok(ib_get_dma_mr(rig.pd, RIG_ALL));
	struct ib_mr *no_bind = rig_ok(ib_get_dma_mr(rig.pd, RIG_ALL & ~IB_ACCESS_MW_BIND));
	struct ib_mw *mw = rig_ok(ib_alloc_mw(rig.pd));

	bind_ok(mw, mr, at(0), 64, BOTH);
	assert_int_equal(ib_dereg_mr(mr), -EBUSY);
	bind_ok(mw, mr, 0, 0, 0);
	assert_int_equal(ib_dereg_mr(mr), 0);
	assert_int_equal(bind_try(mw, no_bind, at(0), 64, BOTH), -EINVAL);
	assert_int_equal(ib_dereg_mr(no_bind), 0);
	assert_int_equal(ib_dealloc_mw(mw), 0);
}

/* A bind that is refused changes neither the window nor its key. */
static void bind_mw__refused_leaves_it_alone(void **state)
{
	rig_needs(alloc_mw);
	struct ib_pd *other = rig_ok(ib_alloc_pd(rig.dev));
	struct ib_mw *foreign = rig_ok(ib_alloc_mw(other));
	struct ib_mw *mw = rig_ok(ib_alloc_mw(rig.pd));
	struct ib_qp *idle = rig_qp(IB_QPT_RC, l.bscq, l.rcq, NULL);
	struct ib_qp *ud = rig_qp(IB_QPT_UD, l.bscq, l.rcq, NULL);
	struct ib_mw_bind bind = { .mr = rig.mr,
				   .addr = at(16384),
				   .length = 64,
				   .mw_access_flags = BOTH };

	bind_ok(mw, rig.mr, at(8192), 64, BOTH);
	u32 key = mw->rkey;

	rig_connect(ud, &rig.gid, 0);
	assert_int_equal(ib_bind_mw(idle, mw, &bind), -EINVAL);
	assert_int_equal(ib_bind_mw(ud, mw, &bind), -EINVAL);
	bind.length = 0;
	assert_int_equal(ib_bind_mw(idle, mw, &bind), -EINVAL);
	assert_int_equal(bind_try(foreign, rig.mr, at(0), 8, BOTH), -EINVAL);
	assert_int_equal(bind_try(mw, NULL, at(0), 8, BOTH), -EINVAL);
	assert_int_equal(mw->rkey, key);
	write_ok(0, at(8192), key, 8);
	assert_int_equal(ib_destroy_qp(idle), 0);
	assert_int_equal(ib_destroy_qp(ud), 0);
	assert_int_equal(ib_dealloc_mw(mw), 0);
	assert_int_equal(ib_dealloc_mw(foreign), 0);
	assert_int_equal(ib_dealloc_pd(other), 0);
}

/* ---- fast registration ----------------------------------------------------------------------- */

enum { FAST_PAGES = 8 };

#define MIN(a, b) ((a) < (b) ? (a) : (b))

static struct ib_mr *fast_region(void)
{
	struct ib_mr *mr = ib_alloc_mr(rig.pd, IB_MR_TYPE_MEM_REG, FAST_PAGES);

	if (PTR_ERR(mr) == -EOPNOTSUPP)
		skip();
	return rig_ok(mr);
}

/* Lays `length` bytes at `offset` of the buffer into the region. */
static void fast_map(struct ib_mr *mr, u64 offset, u32 length)
{
	struct scatterlist sg;

	sg_init_one(&sg, rig.buf + offset, length);
	assert_int_equal(ib_map_mr_sg(mr, &sg, 1, NULL, RIG_PAGE), 1);
	assert_int_equal(mr->iova, at(offset));
	assert_int_equal(mr->length, length);
}

/* Makes it valid under its present key, on b. */
static int fast_try_register(struct ib_mr *mr, u32 key, int access)
{
	struct ib_send_wr reg = { .wr_id = 88,
				  .opcode = IB_WR_REG_MR,
				  .send_flags = IB_SEND_SIGNALED,
				  .wr.reg = { .mr = mr, .key = key, .access = access } };

	return rig_try_send(l.b, &reg);
}

static void fast_register(struct ib_mr *mr, int access)
{
	struct ib_wc wc;

	ib_update_fast_reg_key(mr, (u8)(mr->rkey + 1));
	assert_int_equal(fast_try_register(mr, mr->rkey, access), 0);
	wc = rig_expect(l.bscq, IB_WC_SUCCESS);
	assert_int_equal(wc.opcode, IB_WC_REG_MR);
	assert_int_equal(wc.wr_id, 88);
}

static void fast_invalidate(u32 key, enum ib_wc_status status)
{
	struct ib_send_wr wr = { .opcode = IB_WR_LOCAL_INV,
				 .send_flags = IB_SEND_SIGNALED,
				 .ex.invalidate_rkey = key };

	rig_send(l.b, &wr);
	rig_expect(l.bscq, status);
	if (status != IB_WC_SUCCESS)
		link_reset(&l);
}

/* Map, register, use, invalidate; again elsewhere, under another key. */
static void reg_mr__comes_and_goes_in_the_order_of_the_queue(void **state)
{
	struct ib_mr *mr = fast_region();
	u32 before = mr->rkey;

	write_refused(0, at(8192), before, 8);
	for (u64 i = 0; i < 5; i++) {
		u64 place = 8192 + i * 100;

		fill(0, 5000, (u8)i);
		fast_map(mr, place, 5000);
		write_refused(0, at(place), mr->rkey, 8); /* a mapping is no registration */
		fast_register(mr, RIG_ALL & ~IB_ACCESS_MW_BIND);
		write_ok(0, at(place), mr->rkey, 5000);
		assert_memory_equal(rig.buf + place, rig.buf, 5000);
		write_refused(0, at(place + 4993), mr->rkey, 8);
		write_refused(0, at(place) - 1, mr->rkey, 8);
		write_refused(0, at(place), ib_inc_rkey(mr->rkey), 8);
		assert_int_equal(mr->rkey & ~0xffu, before & ~0xffu);
		fast_invalidate(mr->rkey, IB_WC_SUCCESS);
		write_refused(0, at(place), mr->rkey, 8);
	}
	assert_int_equal(ib_dereg_mr(mr), 0);
}

/* A list of work requests alone: nobody waits in between. */
static void reg_mr__in_one_list_with_its_use(void **state)
{
	struct ib_mr *mr = fast_region();
	struct ib_sge sge = { at(8192), 64, mr->lkey };
	struct ib_send_wr inv = { .opcode = IB_WR_LOCAL_INV,
				  .send_flags = IB_SEND_SIGNALED,
				  .ex.invalidate_rkey = mr->rkey };
	struct ib_send_wr send = { .next = &inv,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IB_WR_SEND,
				   .send_flags = IB_SEND_SIGNALED };
	struct ib_send_wr reg = { .next = &send,
				  .opcode = IB_WR_REG_MR,
				  .send_flags = IB_SEND_SIGNALED,
				  .wr.reg = { .mr = mr, .key = mr->lkey } };

	fill(8192, 64, 3);
	fast_map(mr, 8192, 64);
	rig_recv(l.a, 1, 0, 64);
	rig_send(l.b, &reg);
	rig_drain(l.bscq, 3);
	rig_expect(l.arcq, IB_WC_SUCCESS);
	assert_memory_equal(rig.buf, rig.buf + 8192, 64);
	assert_int_equal(ib_dereg_mr(mr), 0);
}

static void reg_mr__keeps_to_its_access(void **state)
{
	struct ib_mr *mr = fast_region();

	fast_map(mr, 8192, 4096);
	fast_register(mr, IB_ACCESS_REMOTE_READ);
	read_ok(0, at(8192), mr->rkey, 64);
	write_refused(0, at(8192), mr->rkey, 64);
	assert_int_equal(access_peer(IB_WR_RDMA_READ, 0, at(8192), mr->rkey, 64), IB_WC_SUCCESS);
	fast_invalidate(mr->rkey, IB_WC_SUCCESS);
	assert_int_equal(ib_dereg_mr(mr), 0);
}

/* The consumer's peer may end it. */
static void reg_mr__ended_by_send_with_inv(void **state)
{
	struct ib_mr *mr = fast_region();
	struct ib_send_wr wr = { .opcode = IB_WR_SEND_WITH_INV, .send_flags = IB_SEND_SIGNALED };
	struct ib_wc wc;

	fast_map(mr, 8192, 64);
	fast_register(mr, BOTH | IB_ACCESS_LOCAL_WRITE);
	write_ok(0, at(8192), mr->rkey, 64);
	rig_recv(l.b, 4, 0, 8);
	wr.ex.invalidate_rkey = mr->rkey;
	rig_send(l.a, &wr);
	rig_expect(l.scq, IB_WC_SUCCESS);
	wc = rig_expect(l.rcq, IB_WC_SUCCESS);
	assert_int_equal(wc.wc_flags & IB_WC_WITH_INVALIDATE, IB_WC_WITH_INVALIDATE);
	assert_int_equal(wc.ex.invalidate_rkey, mr->rkey);
	write_refused(0, at(8192), mr->rkey, 8);
	fast_invalidate(mr->rkey, IB_WC_SUCCESS); /* it is free already */
	fast_invalidate(ib_inc_rkey(mr->rkey), IB_WC_MW_BIND_ERR);
	assert_int_equal(ib_dereg_mr(mr), 0);
}

/* Who invalidates the last key before each use need not know whether there was one. */
static void reg_mr__begins_with_an_invalidate(void **state)
{
	struct ib_mr *mr = fast_region();

	for (u32 i = 0; i < 3; i++) {
		struct ib_send_wr reg = { .opcode = IB_WR_REG_MR,
					  .send_flags = IB_SEND_SIGNALED,
					  .wr.reg = { .mr = mr,
						      .access = BOTH | IB_ACCESS_LOCAL_WRITE } };
		struct ib_send_wr inv = { .next = &reg,
					  .opcode = IB_WR_LOCAL_INV,
					  .send_flags = IB_SEND_SIGNALED,
					  .ex.invalidate_rkey = mr->rkey };

		fast_map(mr, 8192, 64);
		ib_update_fast_reg_key(mr, (u8)(mr->rkey + 1));
		reg.wr.reg.key = mr->rkey;
		rig_send(l.b, &inv);
		rig_drain(l.bscq, 2);
		write_ok(0, at(8192), mr->rkey, 64);
	}
	assert_int_equal(ib_dereg_mr(mr), 0);
}

/* What fails in its turn ends its queue pair, as any request that fails. */
static void reg_mr__refused(void **state)
{
	struct ib_pd *other = rig_ok(ib_alloc_pd(rig.dev));
	struct ib_mr *mr = fast_region();
	struct ib_mr *foreign = rig_ok(ib_alloc_mr(other, IB_MR_TYPE_MEM_REG, 1));
	struct ib_sge sge = { at(0), 8, rig.mr->lkey };
	struct ib_send_wr read_inv = { .sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IB_WR_RDMA_READ_WITH_INV,
				       .wr.rdma = { at(8192), rig.mr->rkey } };
	const struct {
		struct ib_mr *mr;
		int access;
	} cases[] = {
		{ mr, 0 },				       /* valid already */
		{ foreign, IB_ACCESS_LOCAL_WRITE },	       /* of another domain */
		{ mr, IB_ACCESS_REMOTE_WRITE },		       /* no local right */
		{ mr, IB_ACCESS_LOCAL_WRITE | 1 << 19 },       /* no right at all */
	};

	assert_int_equal(fast_try_register(mr, mr->rkey, 0), 0);
	rig_expect(l.bscq, IB_WC_MW_BIND_ERR); /* nothing is mapped */
	link_reset(&l);
	assert_int_equal(fast_try_register(mr, mr->rkey ^ 0x100, 0), -EINVAL);
	assert_int_equal(fast_try_register(NULL, mr->rkey, 0), -EINVAL);
	assert_int_equal(rig_try_send(l.b, &read_inv), -EINVAL); /* iWARP's */
	fast_map(mr, 8192, 64);
	fast_map(foreign, 8192, 64);
	fast_register(mr, 0);
	for (u32 i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(fast_try_register(cases[i].mr, cases[i].mr->rkey,
						   cases[i].access),
				 0);
		rig_expect(l.bscq, IB_WC_MW_BIND_ERR);
		assert_int_equal(rig_state(l.b), IB_QPS_ERR);
		link_reset(&l);
		if (i == 0)
			fast_invalidate(mr->rkey, IB_WC_SUCCESS);
	}
	assert_int_equal(ib_dealloc_pd(other), -EBUSY);
	assert_int_equal(ib_dereg_mr(foreign), 0);
	assert_int_equal(ib_dealloc_pd(other), 0);
	assert_int_equal(ib_dereg_mr(mr), 0);
}

static void alloc_mr__limits(void **state)
{
	struct ib_device_attr_ex attr = { .size = sizeof(attr) };
	struct ib_mr *mr = fast_region();
	u32 most;

	assert_int_equal(ib_dereg_mr(mr), 0);
	assert_int_equal(ib_query_device_ex(rig.dev, &attr), 0);
	most = attr.max_fast_reg_page_list_len;
	assert_true(most >= 256 && attr.base.device_cap_flags & IB_DEVICE_MEM_MGT_EXTENSIONS);
	assert_int_equal(ib_dereg_mr(rig_ok(ib_alloc_mr(rig.pd, IB_MR_TYPE_MEM_REG, 1))), 0);
	assert_int_equal(ib_dereg_mr(rig_ok(ib_alloc_mr(rig.pd, IB_MR_TYPE_MEM_REG, most))), 0);
	assert_int_equal(PTR_ERR(ib_alloc_mr(rig.pd, IB_MR_TYPE_MEM_REG, 0)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_alloc_mr(rig.pd, IB_MR_TYPE_MEM_REG, most + 1)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_alloc_mr(rig.pd, IB_MR_TYPE_MEM_REG, UINT32_MAX)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_alloc_mr(rig.pd, IB_MR_TYPE_SG_GAPS, 1)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_alloc_mr(rig.pd, (enum ib_mr_type)77, 1)), -EINVAL);
}

/* Elements: offset in the buffer and length, in bytes; the list ends with a length of 0. */
struct sg_case {
	struct {
		u32 at, length;
	} part[4];
	u32 offset, page_size;
	int taken; /* or a negative errno */
	u32 length, rest; /* mapped bytes; the offset that comes back */
};

static const struct sg_case sg_cases[] = {
	{ { { 0, 4096 }, { 8192, 4096 } }, 0, 4096, 2, 8192, 0 },
	{ { { 100, 3996 }, { 8192, 100 } }, 0, 4096, 2, 4096, 0 }, /* the ends may be partial */
	{ { { 0, 100 }, { 8192, 100 } }, 0, 4096, 1, 100, 0 },	   /* a gap */
	{ { { 0, 4096 }, { 8200, 100 } }, 0, 4096, 1, 4096, 0 },   /* another */
	{ { { 0, 100 }, { 100, 5000 } }, 0, 4096, 2, 5100, 0 },	   /* they meet */
	{ { { 50, 100 }, { 8192, 8 } }, 100, 4096, 1, 0, 0 },	   /* nothing of the first */
	{ { { 0, 4096 } }, 96, 4096, 1, 4000, 0 },
	{ { { 0, 9 * 4096 } }, 0, 4096, 0, 8 * 4096, 8 * 4096 }, /* more pages than it holds */
	{ { { 0, 4096 }, { 8192, 8 * 4096 } }, 0, 4096, 1, 8 * 4096, 7 * 4096 },
	{ { { 0, 16384 } }, 0, 16384, 1, 16384, 0 },
	{ { { 0, 4096 } }, 4097, 4096, -EINVAL, 0, 4097 },
	{ { { 0, 4096 } }, 0, 0, -EINVAL, 0, 0 },
	{ { { 0, 4096 } }, 0, 4097, -EINVAL, 0, 0 },
	{ { { 0, 4096 } }, 0, 2048, -EINVAL, 0, 0 },
	{ { { 0, 4096 } }, 0, 1u << 31, -EINVAL, 0, 0 },
};

static void map_mr_sg__joins_what_fits(void **state)
{
	struct ib_mr *mr = fast_region();

	for (u32 i = 0; i < sizeof(sg_cases) / sizeof(sg_cases[0]); i++) {
		const struct sg_case *k = &sg_cases[i];
		struct scatterlist sg[4];
		u32 n = 0, offset = k->offset;

		print_message("%u\n", i);
		sg_init_table(sg, 4);
		for (; n < 4 && k->part[n].length; n++)
			sg_set_buf(&sg[n], rig.buf + k->part[n].at, k->part[n].length);
		assert_int_equal(ib_map_mr_sg(mr, sg, (int)n, &offset, k->page_size), k->taken);
		assert_int_equal(offset, k->rest);
		if (k->taken >= 0)
			assert_int_equal(mr->length, k->length);
		if (k->taken <= 0 || !k->length)
			continue;
		assert_int_equal(mr->iova, at(k->part[0].at) + k->offset);
		fast_register(mr, RIG_ALL & ~IB_ACCESS_MW_BIND);
		fill(32 * RIG_PAGE, k->length, (u8)i);
		write_ok(32 * RIG_PAGE, mr->iova, mr->rkey, k->length);
		for (u32 j = 0, done = 0, skip = k->offset; j < n && done < k->length; j++) {
			u32 here = MIN(k->part[j].length - skip, k->length - done);

			assert_memory_equal(rig.buf + k->part[j].at + skip,
					    rig.buf + 32 * RIG_PAGE + done, here);
			done += here;
			skip = 0;
		}
		write_refused(32 * RIG_PAGE, mr->iova + k->length - 7, mr->rkey, 8);
		fast_invalidate(mr->rkey, IB_WC_SUCCESS);
	}
	assert_int_equal(ib_map_mr_sg(mr, NULL, 0, NULL, 4096), -EINVAL);
	assert_int_equal(ib_map_mr_sg(mr, NULL, -1, NULL, 4096), -EINVAL);
	assert_int_equal(ib_dereg_mr(mr), 0);
}

/* Valid or not, a region can be deregistered; then no key of it reaches anything. */
static void dereg_mr__of_a_registered_region(void **state)
{
	struct ib_mr *mr = fast_region();
	u32 key;

	fast_map(mr, 8192, 64);
	fast_register(mr, BOTH | IB_ACCESS_LOCAL_WRITE);
	key = mr->rkey;
	write_ok(0, at(8192), key, 8);
	assert_int_equal(ib_dereg_mr(mr), 0);
	write_refused(0, at(8192), key, 8);
}

#define MEMORY_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		MEMORY_TEST(get_dma_mr__is_the_whole_address_space),
		MEMORY_TEST(get_dma_mr__keeps_to_its_access),
		MEMORY_TEST(dereg_mr__waits_for_a_copy_under_way),
		MEMORY_TEST(reg_phys_mr__joins_scattered_pages),
		MEMORY_TEST(reg_phys_mr__serves_local_requests),
		MEMORY_TEST(reg_phys_mr__refuses_holes),
		MEMORY_TEST(map_phys_fmr__maps_remaps_and_unmaps),
		MEMORY_TEST(unmap_fmr__all_of_a_list),
		MEMORY_TEST(map_phys_fmr__only_so_often),
		MEMORY_TEST(map_phys_fmr__refuses_bad_lists),
		MEMORY_TEST(map_phys_fmr__from_a_completion_handler),
		MEMORY_TEST(fmr_pool__peer_reaches_it_until_the_flush),
		MEMORY_TEST(fmr_pool__runs_dry_and_shares),
		MEMORY_TEST(bind_mw__bounds_rebind_unbind),
		MEMORY_TEST(bind_mw__holds_its_region),
		MEMORY_TEST(bind_mw__refused_leaves_it_alone),
		MEMORY_TEST(reg_mr__comes_and_goes_in_the_order_of_the_queue),
		MEMORY_TEST(reg_mr__in_one_list_with_its_use),
		MEMORY_TEST(reg_mr__keeps_to_its_access),
		MEMORY_TEST(reg_mr__ended_by_send_with_inv),
		MEMORY_TEST(reg_mr__begins_with_an_invalidate),
		MEMORY_TEST(reg_mr__refused),
		MEMORY_TEST(alloc_mr__limits),
		MEMORY_TEST(map_mr_sg__joins_what_fits),
		MEMORY_TEST(dereg_mr__of_a_registered_region),
	};

	return rig_run_tests(tests);
}
