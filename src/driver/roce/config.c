/* config.c: what the node says of the host's addresses, as this process has it: the GID table.
 * In: the node's configuration    Out: GIDs and their indices    Runs: any thread
 * Locks: config_lock
 */
#include "driver/roce/roce.h"

#include <errno.h>
#include <string.h>

void roce_config_refresh(struct roce_device *dev)
{
	struct node_config config;

	node_config_get(dev->a.node, &config);
	lock_acquire(&dev->config_lock);
	dev->config = config;
	lock_release(&dev->config_lock);
}

int roce_gid(struct roce_device *dev, u32 index, u8 gid[16])
{
	if (index >= NODE_GIDS)
		return -EINVAL;
	lock_acquire(&dev->config_lock);
	memcpy(gid, dev->config.gids[index].gid, 16);
	lock_release(&dev->config_lock);
	return 0;
}

int roce_find_gid(struct roce_device *dev, const u8 gid[16])
{
	int found = -ENOENT;

	lock_acquire(&dev->config_lock);
	for (int i = 0; i < NODE_GIDS && found < 0; i++)
		if (memcmp(dev->config.gids[i].gid, gid, 16) == 0)
			found = i;
	lock_release(&dev->config_lock);
	return found;
}

bool roce_is_own_gid(struct roce_device *dev, const u8 gid[16])
{
	static const u8 link_local[8] = { 0xfe, 0x80 };
	u64 guid;

	memcpy(&guid, gid + 8, sizeof(guid));
	/* the GUID never changes */
	return roce_find_gid(dev, gid) >= 0 ||
	       (memcmp(gid, link_local, 8) == 0 && guid == dev->ib.node_guid);
}
