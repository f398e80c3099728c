/* query.c: questions about a device and its ports, and their settings.
 * In: consumers    Out: the driver's query and modify methods    Runs: the caller    Locks: none
 */
#include "core/core_priv.h"

static bool port_exists(const struct ib_device *device, u8 port_num)
{
	return port_num >= 1 && port_num <= device->phys_port_cnt;
}

int ib_query_device(struct ib_device *device, struct ib_device_attr *attr)
{
	return DRIVER_CALL(device->query_device(device, attr));
}

int ib_query_port(struct ib_device *device, u8 port_num, struct ib_port_attr *attr)
{
	if (!port_exists(device, port_num))
		return -EINVAL;
	return DRIVER_CALL(device->query_port(device, port_num, attr));
}

int ib_query_gid(struct ib_device *device, u8 port_num, int index, union ib_gid *gid)
{
	if (!port_exists(device, port_num) || index < 0)
		return -EINVAL;
	return DRIVER_CALL(device->query_gid(device, port_num, index, gid));
}

int ib_query_pkey(struct ib_device *device, u8 port_num, u16 index, u16 *pkey)
{
	if (!port_exists(device, port_num))
		return -EINVAL;
	return DRIVER_CALL(device->query_pkey(device, port_num, index, pkey));
}

int ib_modify_device(struct ib_device *device, int mask, struct ib_device_modify *modify)
{
	if (!device->modify_device)
		return -ENOSYS;
	return DRIVER_CALL(device->modify_device(device, mask, modify));
}

int ib_modify_port(struct ib_device *device, u8 port_num, int mask, struct ib_port_modify *modify)
{
	if (!device->modify_port)
		return -ENOSYS;
	if (!port_exists(device, port_num))
		return -EINVAL;
	return DRIVER_CALL(device->modify_port(device, port_num, mask, modify));
}

static int port_find_gid(struct ib_device *device, u8 port_num, const union ib_gid *wanted)
{
	struct ib_port_attr attr;
	union ib_gid gid;
	int err = ib_query_port(device, port_num, &attr);

	if (err)
		return err;
	if (core_gid_is_empty(wanted))
		return -ENOENT;
	for (int i = 0; i < attr.gid_tbl_len; i++)
		if (!ib_query_gid(device, port_num, i, &gid) &&
		    !__builtin_memcmp(&gid, wanted, sizeof(gid)))
			return i;
	return -ENOENT;
}

int ib_find_gid(struct ib_device *device, union ib_gid *gid, u8 *port_num, u16 *index)
{
	int err = -ENOENT;

	for (u32 port = 1; port <= device->phys_port_cnt; port++) {
		int found = port_find_gid(device, (u8)port, gid);

		if (found < 0) {
			err = found;
			continue;
		}
		if (port_num)
			*port_num = (u8)port;
		if (index)
			*index = (u16)found;
		return 0;
	}
	return err;
}

int ib_find_pkey(struct ib_device *device, u8 port_num, u16 pkey, u16 *index)
{
	int err, found = -ENOENT;
	struct ib_port_attr attr;
	bool full = false;
	u16 entry;

	err = ib_query_port(device, port_num, &attr);
	if (err)
		return err;
	for (u32 i = 0; i < attr.pkey_tbl_len && !full; i++) {
		if (ib_query_pkey(device, port_num, (u16)i, &entry) || !pkey_is_same(entry, pkey))
			continue;
		full = pkey_is_full(entry);
		if (full || found < 0)
			found = (int)i;
	}
	if (found < 0)
		return found;
	if (index)
		*index = (u16)found;
	return 0;
}

enum rdma_transport_type rdma_node_get_transport(enum rdma_node_type node_type)
{
	return node_type == RDMA_NODE_RNIC ? RDMA_TRANSPORT_IWARP : RDMA_TRANSPORT_IB;
}

enum rdma_link_layer rdma_port_get_link_layer(struct ib_device *device, u8 port_num)
{
	struct ib_port_attr attr = { 0 };

	/* of a device that has gone the port can be asked no more */
	if (ib_query_port(device, port_num, &attr))
		(void)cache_link_layer(device, port_num, &attr.link_layer);
	if (attr.link_layer)
		return (enum rdma_link_layer)attr.link_layer;
	return device->node_type == RDMA_NODE_RNIC ? IB_LINK_LAYER_ETHERNET :
						     IB_LINK_LAYER_INFINIBAND;
}
