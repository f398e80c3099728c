/* device.c: what the pocket adapter is; its port, its protection domains and address handles.
 * In: contract_plug    Out: a registered device    Runs: any thread    Locks: the device's
 */
#include "pocket.h"

#include "../driver.h"

static int device_query(struct ib_device *ib, struct ib_device_attr *attr)
{
	*attr = (struct ib_device_attr){ .vendor_id = 0xfffffe,
					 .max_qp = POCKET_QPS - 2,
					 .max_qp_wr = POCKET_MAX_WR,
					 .max_sge = POCKET_SGES,
					 .max_cq = 1 << 16,
					 .max_cqe = POCKET_MAX_CQE,
					 .timestamp_mask = UINT64_MAX,
					 .hca_core_clock = 1000000,
					 .max_mr = POCKET_KEYS - 1,
					 .max_mr_size = UINT64_MAX,
					 .max_pd = 1 << 16,
					 .max_qp_rd_atom = 16,
					 .max_qp_init_rd_atom = 16,
					 .max_ah = 1 << 16,
					 .max_fmr = POCKET_KEYS - 1,
					 .max_map_per_fmr = POCKET_MAPS,
					 .max_srq = 1 << 16,
					 .max_srq_wr = POCKET_MAX_WR,
					 .max_srq_sge = POCKET_SGES,
					 .atomic_cap = IB_ATOMIC_HCA,
					 .max_mcast_grp = 1 << 16,
					 .max_mcast_qp_attach = POCKET_QPS,
					 .max_pkeys = 1 };
	return 0;
}

static int port_query(struct ib_device *ib, u8 port_num, struct ib_port_attr *attr)
{
	*attr = (struct ib_port_attr){ .state = IB_PORT_ACTIVE,
				       .max_mtu = IB_MTU_4096,
				       .active_mtu = IB_MTU_4096,
				       .gid_tbl_len = 1,
				       .max_msg_sz = POCKET_MESSAGE,
				       .pkey_tbl_len = 1,
				       .active_width = IB_WIDTH_1X,
				       .active_speed = 1,
				       .phys_state = 5,
				       .link_layer = IB_LINK_LAYER_ETHERNET };
	return 0;
}

static int gid_query(struct ib_device *ib, u8 port_num, int index, union ib_gid *gid)
{
	if (index)
		return -EINVAL;
	*gid = pocket_of(ib)->gid;
	return 0;
}

static int pkey_query(struct ib_device *ib, u8 port_num, u16 index, u16 *pkey)
{
	if (index)
		return -EINVAL;
	*pkey = 0xffff;
	return 0;
}

void pocket_event(struct ib_device *ib, enum ib_event_type type, void *element)
{
	struct ib_event event = { .device = ib, .event = type };

	event.element.qp = element;
	ib_dispatch_event(&event);
}

/* ---- protection domains and address handles -------------------------------------------------- */

static struct ib_pd *pd_alloc(struct ib_device *ib)
{
	struct ib_pd *pd = calloc(1, sizeof(*pd));

	return pd ? pd : ERR_PTR(-ENOMEM);
}

static int pd_dealloc(struct ib_pd *pd)
{
	free(pd);
	return 0;
}

bool pocket_way_is_ok(const struct ib_ah_attr *way)
{
	return (way->ah_flags & IB_AH_GRH) && way->grh.sgid_index == 0 && way->port_num == 1;
}

static struct ib_ah *ah_create(struct ib_pd *pd, struct ib_ah_attr *attr)
{
	struct pocket_ah *ah;

	if (!pocket_way_is_ok(attr))
		return ERR_PTR(-EINVAL);
	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return ERR_PTR(-ENOMEM);
	ah->attr = *attr;
	return &ah->ib;
}

static int ah_modify(struct ib_ah *ib, struct ib_ah_attr *attr)
{
	struct pocket_device *d = pocket_of(ib->device);

	if (!pocket_way_is_ok(attr))
		return -EINVAL;
	pthread_mutex_lock(&d->lock);
	((struct pocket_ah *)ib)->attr = *attr;
	pthread_mutex_unlock(&d->lock);
	return 0;
}

static int ah_query(struct ib_ah *ib, struct ib_ah_attr *attr)
{
	struct pocket_device *d = pocket_of(ib->device);

	pthread_mutex_lock(&d->lock);
	*attr = ((struct pocket_ah *)ib)->attr;
	pthread_mutex_unlock(&d->lock);
	return 0;
}

static int ah_destroy(struct ib_ah *ah)
{
	free(ah);
	return 0;
}

/* ---- coming and going ------------------------------------------------------------------------ */

static void device_fill(struct pocket_device *d)
{
	static const char name[] = "pocket%d";
	struct ib_device *ib = &d->ib;

	memcpy(ib->name, name, sizeof(name));
	ib->node_type = RDMA_NODE_IB_CA;
	ib->phys_port_cnt = 1;
	ib->query_device = device_query;
	ib->query_port = port_query;
	ib->query_gid = gid_query;
	ib->query_pkey = pkey_query;
	ib->alloc_pd = pd_alloc;
	ib->dealloc_pd = pd_dealloc;
	ib->create_ah = ah_create;
	ib->modify_ah = ah_modify;
	ib->query_ah = ah_query;
	ib->destroy_ah = ah_destroy;
	pocket_cq_methods(ib);
	pocket_memory_methods(ib);
	pocket_qp_methods(ib);
}

struct ib_device *contract_plug(void)
{
	static u32 plugged;
	struct pocket_device *d = (struct pocket_device *)ib_alloc_device(sizeof(*d));
	const char *strict = getenv("ANYVERBS_STRICT_NOTIFY");

	if (!d)
		return NULL;
	d->eager = strict && strcmp(strict, "0") == 0;
	d->gid.raw[0] = 0xfd;
	d->gid.raw[15] = (u8)__atomic_add_fetch(&plugged, 1, __ATOMIC_RELAXED);
	pthread_mutex_init(&d->lock, NULL);
	device_fill(d);
	if (pocket_vectors_start(d)) {
		ib_dealloc_device(&d->ib);
		return NULL;
	}
	if (ib_set_device_ops(&d->ib, &pocket_ops) == 0 && ib_register_device(&d->ib) == 0)
		return &d->ib;
	pocket_vectors_stop(d);
	ib_dealloc_device(&d->ib);
	return NULL;
}

void contract_unplug(struct ib_device *ib)
{
	struct pocket_device *d = pocket_of(ib);

	ib_unregister_device(ib);
	pocket_vectors_stop(d);
	ib_dealloc_device(ib);
}
