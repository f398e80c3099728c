/* memory.c: the pocket adapter's regions and fast memory regions: a table of keys, each with the
 * pieces of memory that it names.
 * In: verbs, requests    Out: copies    Runs: any thread    Locks: the device's
 */
#include "pocket.h"

enum { PAGE = 4096, ACCESS = (IB_ACCESS_MW_BIND << 1) - 1 };

/* ---- keys: with the device's lock ------------------------------------------------------------ */

static struct pocket_region *key_find(struct pocket_device *d, u32 key)
{
	struct pocket_region *r = d->keys[key % POCKET_KEYS];

	return r && r->valid && r->key == key ? r : NULL;
}

/* A new name for the region: whoever has the old one is refused. */
static void key_renew(struct pocket_device *d, struct pocket_region *r)
{
	r->key = ++d->last_tag * POCKET_KEYS + r->key % POCKET_KEYS;
}

static int key_take(struct pocket_device *d, struct pocket_region *r)
{
	for (u32 i = 1; i < POCKET_KEYS; i++) {
		if (d->keys[i])
			continue;
		d->keys[i] = r;
		r->key = i;
		key_renew(d, r);
		return 0;
	}
	return -ENOMEM;
}

static struct pocket_region *key_check(struct pocket_device *d, struct ib_pd *pd, u32 key,
				       int access, u64 va, u32 length)
{
	struct pocket_region *r = key_find(d, key);

	if (!r || r->pd != pd || (r->access & access) != access)
		return NULL;
	if (r->pieces && (va < r->iova || va - r->iova > r->length ||
			  length > r->length - (va - r->iova)))
		return NULL;
	return r;
}

/* Where byte `va` lies, and how many follow it there. */
static u8 *region_at(const struct pocket_region *r, u64 va, u64 *room)
{
	u64 offset = va - r->iova;

	*room = UINT64_MAX;
	if (!r->pieces)
		return (u8 *)(uintptr_t)va;
	for (int i = 0; i < r->count; offset -= r->pieces[i++].size)
		if (offset < r->pieces[i].size) {
			*room = r->pieces[i].size - offset;
			return (u8 *)(uintptr_t)(r->pieces[i].addr + offset);
		}
	return NULL;
}

bool pocket_copy(struct pocket_device *d, struct ib_pd *pd, u32 key, int access, u64 va,
		 void *bytes, u32 length, bool into)
{
	struct pocket_region *r = key_check(d, pd, key, access, va, length);
	u8 *other = bytes;

	if (!r)
		return false;
	while (length) {
		u64 room;
		u8 *there = region_at(r, va, &room);
		u32 n = room < length ? (u32)room : length;

		if (into)
			memcpy(there, other, n);
		else
			memcpy(other, there, n);
		other += n;
		va += n;
		length -= n;
	}
	return true;
}

u64 *pocket_word(struct pocket_device *d, struct ib_pd *pd, u32 key, u64 va)
{
	struct pocket_region *r = key_check(d, pd, key, IB_ACCESS_REMOTE_ATOMIC, va, 8);
	u64 room;
	u8 *there = r ? region_at(r, va, &room) : NULL;

	return there && room >= 8 ? (u64 *)(void *)there : NULL;
}

bool pocket_invalidate(struct pocket_device *d, struct ib_pd *pd, u32 key)
{
	struct pocket_region *r = key_find(d, key);

	if (!r || r->pd != pd || !r->pieces)
		return false;
	r->valid = false;
	return true;
}

/* ---- regions --------------------------------------------------------------------------------- */

/* What is registered is valid at once; takes the pieces over. */
static struct ib_mr *mr_make(struct ib_pd *pd, struct pocket_region *region)
{
	struct pocket_device *d = pocket_of(pd->device);
	struct pocket_mr *mr = calloc(1, sizeof(*mr));
	int err = -ENOMEM;

	if (mr) {
		mr->region = *region;
		mr->region.pd = pd;
		mr->region.valid = true;
		pthread_mutex_lock(&d->lock);
		err = key_take(d, &mr->region);
		pthread_mutex_unlock(&d->lock);
	}
	if (err) {
		free(region->pieces);
		free(mr);
		return ERR_PTR(err);
	}
	mr->ib.lkey = mr->ib.rkey = mr->region.key;
	return &mr->ib;
}

static struct ib_mr *mr_get_dma(struct ib_pd *pd, int access)
{
	struct pocket_region all = { .access = access, .length = UINT64_MAX };

	return access & ~ACCESS ? ERR_PTR(-EINVAL) : mr_make(pd, &all);
}

/* Only the first may begin, and the last end, inside a page. */
static bool pieces_join(const struct ib_phys_buf *bufs, int count, u64 *total)
{
	*total = 0;
	for (int i = 0; i < count; i++) {
		u64 end = bufs[i].addr + bufs[i].size;

		if (end < bufs[i].addr || (i > 0 && bufs[i].addr % PAGE) ||
		    (i < count - 1 && end % PAGE))
			return false;
		*total += bufs[i].size;
	}
	return *total > 0;
}

static struct ib_mr *mr_reg_phys(struct ib_pd *pd, struct ib_phys_buf *bufs, int count, int access,
				 u64 *iova)
{
	struct pocket_region r = { .access = access, .count = count };
	struct ib_mr *mr;

	if (count <= 0 || (access & ~ACCESS) || !pieces_join(bufs, count, &r.length))
		return ERR_PTR(-EINVAL);
	r.iova = (*iova & ~(u64)(PAGE - 1)) | bufs[0].addr % PAGE;
	r.pieces = calloc((size_t)count, sizeof(*bufs));
	if (!r.pieces)
		return ERR_PTR(-ENOMEM);
	memcpy(r.pieces, bufs, (size_t)count * sizeof(*bufs));
	mr = mr_make(pd, &r);
	if (!IS_ERR(mr))
		*iova = r.iova;
	return mr;
}

static int mr_query(struct ib_mr *ib, struct ib_mr_attr *attr)
{
	const struct pocket_region *r = &((struct pocket_mr *)ib)->region;

	*attr = (struct ib_mr_attr){ .pd = ib->pd,
				     .device_virt_addr = r->iova,
				     .size = r->length,
				     .mr_access_flags = r->access,
				     .lkey = r->key,
				     .rkey = r->key };
	return 0;
}

static int mr_dereg(struct ib_mr *ib)
{
	struct pocket_device *d = pocket_of(ib->device);
	struct pocket_mr *mr = (struct pocket_mr *)ib;

	pthread_mutex_lock(&d->lock);
	d->keys[mr->region.key % POCKET_KEYS] = NULL;
	pthread_mutex_unlock(&d->lock);
	free(mr->region.pieces);
	free(mr);
	return 0;
}

/* ---- fast memory regions --------------------------------------------------------------------- */

static struct ib_fmr *fmr_alloc(struct ib_pd *pd, int access, struct ib_fmr_attr *attr)
{
	struct pocket_device *d = pocket_of(pd->device);
	struct pocket_fmr *fmr;
	int err;

	if (attr->max_pages < 1 || attr->max_maps < 1 || attr->max_maps > POCKET_MAPS ||
	    attr->page_shift < 12 || attr->page_shift > 30 || (access & ~ACCESS))
		return ERR_PTR(-EINVAL);
	fmr = calloc(1, sizeof(*fmr));
	if (!fmr)
		return ERR_PTR(-ENOMEM);
	fmr->attr = *attr;
	fmr->region = (struct pocket_region){ .pd = pd, .access = access };
	fmr->region.pieces = calloc((size_t)attr->max_pages, sizeof(struct ib_phys_buf));
	pthread_mutex_lock(&d->lock);
	err = fmr->region.pieces ? key_take(d, &fmr->region) : -ENOMEM;
	pthread_mutex_unlock(&d->lock);
	if (err) {
		free(fmr->region.pieces);
		free(fmr);
		return ERR_PTR(err);
	}
	fmr->ib.lkey = fmr->ib.rkey = fmr->region.key;
	return &fmr->ib;
}

static int fmr_map(struct ib_fmr *ib, u64 *pages, int count, u64 iova)
{
	struct pocket_fmr *fmr = (struct pocket_fmr *)ib;
	struct pocket_device *d = pocket_of(ib->device);
	u64 size = 1ull << fmr->attr.page_shift;
	int err = -EINVAL;

	if (count < 1 || count > fmr->attr.max_pages || iova % size)
		return -EINVAL;
	pthread_mutex_lock(&d->lock);
	if (fmr->maps < fmr->attr.max_maps) {
		struct pocket_region *r = &fmr->region;

		for (int i = 0; i < count; i++)
			r->pieces[i] = (struct ib_phys_buf){ .addr = pages[i], .size = size };
		r->count = count;
		r->iova = iova;
		r->length = (u64)count * size;
		r->valid = true;
		key_renew(d, r);
		ib->lkey = ib->rkey = r->key;
		fmr->maps++;
		err = 0;
	}
	pthread_mutex_unlock(&d->lock);
	return err;
}

static int fmr_unmap(struct list_head *list)
{
	for (struct list_head *at = list->next; at != list; at = at->next) {
		struct ib_fmr *ib = (struct ib_fmr *)((u8 *)at - offsetof(struct ib_fmr, list));
		struct pocket_fmr *fmr = (struct pocket_fmr *)ib;
		struct pocket_device *d = pocket_of(ib->device);

		pthread_mutex_lock(&d->lock);
		fmr->region.valid = false;
		fmr->maps = 0;
		pthread_mutex_unlock(&d->lock);
	}
	return 0;
}

static int fmr_dealloc(struct ib_fmr *ib)
{
	struct pocket_fmr *fmr = (struct pocket_fmr *)ib;
	struct pocket_device *d = pocket_of(ib->device);

	pthread_mutex_lock(&d->lock);
	d->keys[fmr->region.key % POCKET_KEYS] = NULL;
	pthread_mutex_unlock(&d->lock);
	free(fmr->region.pieces);
	free(fmr);
	return 0;
}

void pocket_memory_methods(struct ib_device *ib)
{
	ib->get_dma_mr = mr_get_dma;
	ib->reg_phys_mr = mr_reg_phys;
	ib->query_mr = mr_query;
	ib->dereg_mr = mr_dereg;
	ib->alloc_fmr = fmr_alloc;
	ib->map_phys_fmr = fmr_map;
	ib->unmap_fmr = fmr_unmap;
	ib->dealloc_fmr = fmr_dealloc;
}
