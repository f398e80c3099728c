/* map.c: where things lie in a map, and whether a map is one.
 * In:    a mapped file, hostile    Out: bounded pointers and values
 * Runs:  readers in any process, the owner    Locks: none; layout.h says who writes
 */
#include "fabric/layout.h"

#include <errno.h>

static u64 whole_pages(u64 bytes)
{
	return (bytes + FABRIC_PAGE - 1) / FABRIC_PAGE * FABRIC_PAGE;
}

void fabric_layout(struct fabric_header *h, u32 nodes, u32 ports)
{
	h->magic = FABRIC_MAGIC;
	h->version = FABRIC_VERSION;
	h->nodes = nodes;
	h->ports = ports;
	h->header_size = sizeof(*h);
	h->node_size = sizeof(struct fabric_node_rec);
	h->port_size = sizeof(struct fabric_port_rec);
	h->node_at = FABRIC_PAGE;
	h->port_at = whole_pages(h->node_at + (u64)nodes * h->node_size);
	h->pkey_at = whole_pages(h->port_at + (u64)ports * h->port_size);
	h->bytes = whole_pages(h->pkey_at + (u64)ports * FABRIC_PKEYS * sizeof(u16));
}

u64 fabric_switch_bytes(u16 ports)
{
	u64 count = ports + 1u;

	return whole_pages(FABRIC_LFT_CAP +
			   FABRIC_MFT_CAP * fabric_mft_positions(ports) * sizeof(u16) +
			   count * count * FABRIC_SL2VL);
}

void fabric_layout_switch(struct fabric_header *h, struct fabric_node_rec *n)
{
	n->lft_at = h->bytes;
	n->mft_at = n->lft_at + FABRIC_LFT_CAP;
	n->sl2vl_at = n->mft_at +
		      (u64)FABRIC_MFT_CAP * fabric_mft_positions(n->ports) * sizeof(u16);
	h->bytes += fabric_switch_bytes(n->ports);
}

static bool judge_header(const struct fabric_header *h)
{
	return h->magic == FABRIC_MAGIC && h->version == FABRIC_VERSION &&
	       h->header_size == sizeof(struct fabric_header) &&
	       h->node_size == sizeof(struct fabric_node_rec) &&
	       h->port_size == sizeof(struct fabric_port_rec) && h->nodes <= FABRIC_NODES_MAX &&
	       h->ports <= FABRIC_PORTS_MAX;
}

/* A section of `n` records lies in the file, aligned. */
static bool judge_section(u64 bytes, u64 at, u64 n, u64 size)
{
	return at % CACHE_LINE == 0 && at <= bytes && n * size <= bytes - at;
}

int fabric_view_judge(struct fabric_view *v, const void *map, size_t bytes)
{
	struct fabric_header h;

	if (bytes < FABRIC_PAGE)
		return -EINVAL;
	__builtin_memcpy(&h, map, sizeof(h));
	if (!judge_header(&h) || h.bytes > bytes ||
	    !judge_section(h.bytes, h.node_at, h.nodes, h.node_size) ||
	    !judge_section(h.bytes, h.port_at, h.ports, h.port_size) ||
	    !judge_section(h.bytes, h.pkey_at, h.ports, FABRIC_PKEYS * sizeof(u16)))
		return -EINVAL;
	*v = (struct fabric_view){
		.base = map,
		.bytes = h.bytes,
		.nodes = h.nodes,
		.ports = h.ports,
		.node = (const void *)((const u8 *)map + h.node_at),
		.port = (const void *)((const u8 *)map + h.port_at),
		.pkeys = (const void *)((const u8 *)map + h.pkey_at),
	};
	return 0;
}

int fabric_view_open(struct fabric_view *v, const void *map, size_t bytes)
{
	const struct fabric_header *h = map;

	/* Pairs with the release in create_fill. */
	if (bytes < FABRIC_PAGE || __atomic_load_n(&h->complete, __ATOMIC_ACQUIRE) != 1)
		return -EINVAL;
	return fabric_view_judge(v, map, bytes);
}

u64 fabric_generation(const struct fabric_view *v)
{
	/* Pairs with the release in fabric_routes_changed. */
	return __atomic_load_n(&fabric_header(v)->generation, __ATOMIC_ACQUIRE);
}

u64 fabric_identity(const struct fabric_view *v)
{
	return fabric_load(fabric_header(v)->identity);
}

const u16 *fabric_pkeys(const struct fabric_view *v, u32 port)
{
	return v->pkeys + (size_t)port * FABRIC_PKEYS;
}

u8 fabric_lft(const struct fabric_view *v, const struct fabric_node_rec *n, u16 lid)
{
	const u8 *entry;

	if (lid >= FABRIC_LFT_CAP || lid > fabric_load(n->lft_top))
		return FABRIC_NO_PORT;
	entry = fabric_at(v, fabric_load(n->lft_at) + lid, 1);
	return entry == NULL ? FABRIC_NO_PORT : FABRIC_NO_PORT - fabric_load(*entry);
}

u16 fabric_mft(const struct fabric_view *v, const struct fabric_node_rec *n, u16 mlid,
	       u32 position)
{
	u32 positions = fabric_mft_positions(fabric_load(n->ports));
	u32 entry = mlid - FABRIC_MLID_FIRST;
	const u8 *at;

	if (mlid < FABRIC_MLID_FIRST || entry >= FABRIC_MFT_CAP || position >= positions)
		return 0;
	at = fabric_at(v,
		       fabric_load(n->mft_at) + ((u64)entry * positions + position) * sizeof(u16),
		       sizeof(u16));
	return at == NULL || (uintptr_t)at % sizeof(u16) != 0 ? 0 : fabric_load(*(const u16 *)at);
}

u8 fabric_vl(const struct fabric_view *v, u32 out, u8 in, u8 sl)
{
	const struct fabric_port_rec *p = &v->port[out];
	const struct fabric_node_rec *n;
	u32 node = fabric_load(p->node);
	const u8 *table = p->sl2vl;
	u8 pair, vl;

	if (node >= v->nodes)
		return FABRIC_VL15;
	n = &v->node[node];
	if (fabric_load(n->type) == FABRIC_SWITCH) {
		u64 count = fabric_load(n->ports) + 1u;

		table = fabric_at(v,
				  fabric_load(n->sl2vl_at) +
					  (fabric_load(p->number) * count + in) * FABRIC_SL2VL,
				  FABRIC_SL2VL);
		if (table == NULL)
			return FABRIC_VL15;
	}
	pair = fabric_load(table[sl / 2 % FABRIC_SL2VL]);
	vl = sl % 2 == 0 ? pair >> 4 : pair & 15;
	return vl < fabric_vls(fabric_load(p->operational_vls)) ? vl : FABRIC_VL15;
}
