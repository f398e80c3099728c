/* copy.c: bytes into and out of scatter/gather lists, and the ordered copy for one-sided writes.
 *
 * In:    lists as applications posted them, checked piece by piece
 * Out:   bytes moved
 * Runs:  any thread      Locks: none
 */
#include <errno.h>
#include <sys/uio.h>

#include "mem/mem.h"

enum { COPY_TAIL = 64 };

/* Stores up to COPY_TAIL bytes in ascending order: bytes until dst is aligned, words, bytes. An
 * aligned word is never torn, and each store releases those before it. */
static bool copy_tail(u8 *dst, const u8 *src, size_t n)
{
	bool done = true;

	for (; n && (uintptr_t)dst & 7 && done; dst++, src++, n--)
		done = fault_copy_u8(dst, src);
	for (; n >= 8 && done; dst += 8, src += 8, n -= 8)
		done = fault_copy_u64(dst, src);
	for (; n && done; dst++, src++, n--)
		done = fault_copy_u8(dst, src);
	return done;
}

/* Large copies may have used streaming stores, which a release does not order. */
static void copy_fence(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_sfence();
#endif
}

int mem_copy_ordered(void *dst, const void *src, size_t n)
{
	u8 tail[COPY_TAIL];
	size_t bulk = n > COPY_TAIL ? n - COPY_TAIL : 0;

	if (n == 8 && ((uintptr_t)dst & 7) == 0)
		return fault_copy_u64(dst, src) ? 0 : -EFAULT;
	/* Reads the tail first: the bulk copy would overwrite it where source and destination
	 * overlap. */
	if (fault_copy(tail, (const u8 *)src + bulk, n - bulk) != 0)
		return -EFAULT;
	if (bulk) {
		if (fault_copy(dst, src, bulk) != 0)
			return -EFAULT;
		copy_fence();
	}
	return copy_tail((u8 *)dst + bulk, tail, n - bulk) ? 0 : -EFAULT;
}

/* Takes the next piece of at most n bytes at the cursor, and moves the cursor past it. *got > 0, or
 * an error of mem_scatter. */
static int cursor_next(const struct mem_table *t, u32 pd, struct mem_cursor *c, size_t n,
		       u32 access, void **piece, u32 *got)
{
	const struct ibv_sge *sge;
	u64 va;

	while (c->index < c->count && c->offset >= c->sge[c->index].length) {
		c->index++;
		c->offset = 0;
	}
	if (c->index >= c->count)
		return -EMSGSIZE;
	sge = &c->sge[c->index];
	va = sge->addr + c->offset;
	if (va < sge->addr)
		return -EACCES;
	*piece = mem_local(t, pd, sge->lkey, va, (u32)MIN(n, sge->length - c->offset), access, got);
	if (!*piece)
		return -EACCES;
	c->offset += *got;
	return 0;
}

int mem_scatter_slow(const struct mem_table *t, u32 pd, struct mem_cursor *c, const void *src,
		     size_t n)
{
	while (n) {
		void *piece;
		u32 got;
		int err = cursor_next(t, pd, c, n, IBV_ACCESS_LOCAL_WRITE, &piece, &got);

		if (!err)
			err = fault_copy(piece, src, got);
		if (err)
			return err;
		src = (const u8 *)src + got;
		n -= got;
	}
	return 0;
}

int mem_gather_slow(const struct mem_table *t, u32 pd, struct mem_cursor *c, void *dst, size_t n)
{
	while (n) {
		void *piece;
		u32 got;
		int err = cursor_next(t, pd, c, n, 0, &piece, &got);

		if (!err)
			err = fault_copy(dst, piece, got);
		if (err)
			return err;
		dst = (u8 *)dst + got;
		n -= got;
	}
	return 0;
}

int mem_pieces(const struct mem_table *t, u32 pd, struct mem_cursor *c, size_t n, u32 access,
	       struct iovec *iov, int max)
{
	struct mem_cursor at = *c;
	int count = 0;

	while (n) {
		void *piece;
		u32 got;
		int err = cursor_next(t, pd, &at, n, access, &piece, &got);

		if (err)
			return err;
		if (count && (u8 *)iov[count - 1].iov_base + iov[count - 1].iov_len == piece)
			iov[count - 1].iov_len += got;
		else if (count == max)
			return -E2BIG;
		else
			iov[count++] = (struct iovec){ .iov_base = piece, .iov_len = got };
		n -= got;
	}
	*c = at;
	return count;
}

u64 mem_list_length(const struct ibv_sge *sge, int count)
{
	u64 sum = 0;

	for (int i = 0; i < count; i++)
		sum += sge[i].length;
	return sum;
}
