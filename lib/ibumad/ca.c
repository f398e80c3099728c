/* ca.c: the attributes of channel adapters and their ports.
 * In:    the midlayer's devices; the files fw_ver, hca_type and hw_rev of its sysfs tree
 * Out:   umad_ca_t, umad_port_t       Runs: the application's threads    Locks: none
 */
#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "core/uverbs.h"
#include "door.h"

void door_copy(char *to, size_t size, const char *from)
{
	size_t n = strlen(from);

	n = MIN(n, size - 1);
	memcpy(to, from, n);
	to[n] = '\0';
}

/* ---- a port ---------------------------------------------------------------------------------- */

/* In Gbit/s, cut to whole ones. */
static unsigned ca_rate(const struct ib_port_attr *attr)
{
	static const struct {
		u8 speed;
		u16 tenths; /* of Gbit/s, a lane */
	} FIXED lanes[] = { { 1, 25 },   { 2, 50 },	{ 4, 100 },  { 8, 100 },
		      { 16, 140 }, { 32, 250 }, { 64, 500 }, { 128, 1000 } };
	static const u8 widths[][2] = { { 1, 1 }, { 2, 4 }, { 4, 8 }, { 8, 12 }, { 16, 2 } };
	unsigned tenths = 25, width = 1;

	for (size_t i = 0; i < ARRAY_LEN(lanes); i++)
		if (lanes[i].speed == attr->active_speed)
			tenths = lanes[i].tenths;
	for (size_t i = 0; i < ARRAY_LEN(widths); i++)
		if (widths[i][0] == attr->active_width)
			width = widths[i][1];
	return tenths * width / 10;
}

static int ca_read_pkeys(struct ib_device *dev, u8 port, u16 count, umad_port_t *out)
{
	uint16_t *pkeys = calloc(MAX(count, 1), sizeof(*pkeys));

	if (pkeys == NULL)
		return -ENOMEM;
	for (u16 i = 0; i < count; i++)
		(void)ib_query_pkey(dev, port, i, &pkeys[i]);
	out->pkeys = pkeys;
	out->pkeys_size = count;
	return 0;
}

static int ca_read_port(struct ib_device *dev, u8 port, umad_port_t *out)
{
	struct ib_port_attr attr = { .lid = 0 };
	union ib_gid gid = { .raw = { 0 } };
	int err = ib_query_port(dev, port, &attr);

	if (err == 0)
		err = ib_query_gid(dev, port, 0, &gid);
	if (err != 0)
		return err;
	memset(out, 0, sizeof(*out));
	door_copy(out->ca_name, sizeof(out->ca_name), dev->name);
	out->portnum = port;
	out->base_lid = attr.lid;
	out->lmc = attr.lmc;
	out->sm_lid = attr.sm_lid;
	out->sm_sl = attr.sm_sl;
	out->state = (unsigned)attr.state;
	out->phys_state = attr.phys_state;
	out->rate = ca_rate(&attr);
	out->capmask = htobe32(attr.port_cap_flags);
	memcpy(&out->gid_prefix, gid.raw, 8);
	memcpy(&out->port_guid, gid.raw + 8, 8);
	door_copy(out->link_layer, sizeof(out->link_layer),
		  attr.link_layer == IB_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
	return ca_read_pkeys(dev, port, attr.pkey_tbl_len, out);
}

bool ca_port_is_infiniband(const umad_port_t *port)
{
	return strcmp(port->link_layer, "InfiniBand") == 0;
}

/* ---- a CA ------------------------------------------------------------------------------------ */

/* One line of a file of the tree; "" where there is none. */
static void ca_read_text(const char *folder, const char *file, char *out, size_t size)
{
	char path[512];
	FILE *f;

	out[0] = '\0';
	snprintf(path, sizeof(path), "%s/%s", folder, file);
	f = fopen(path, "re");
	if (f == NULL)
		return;
	if (fgets(out, (int)size, f) == NULL)
		out[0] = '\0';
	fclose(f);
	out[strcspn(out, "\n")] = '\0';
}

static int ca_fill(struct ib_device *dev, umad_ca_t *out)
{
	struct ib_uverbs_info info = { .name = "" };
	struct ib_device_attr attr;
	int err = ib_query_device(dev, &attr);

	if (err == 0)
		err = ib_uverbs_get_info(dev, &info);
	if (err != 0)
		return err;
	memset(out, 0, sizeof(*out));
	door_copy(out->ca_name, sizeof(out->ca_name), dev->name);
	out->node_type = dev->node_type;
	out->numports = MIN(dev->phys_port_cnt, UMAD_CA_MAX_PORTS - 1);
	out->node_guid = dev->node_guid;
	out->system_guid = attr.sys_image_guid;
	ca_read_text(info.ibdev_path, "fw_ver", out->fw_ver, sizeof(out->fw_ver));
	ca_read_text(info.ibdev_path, "hca_type", out->ca_type, sizeof(out->ca_type));
	ca_read_text(info.ibdev_path, "hw_rev", out->hw_ver, sizeof(out->hw_ver));
	return 0;
}

static int ca_fill_ports(struct ib_device *dev, umad_ca_t *out)
{
	int err = 0;

	for (int port = 1; port <= out->numports && err == 0; port++) {
		umad_port_t *p = calloc(1, sizeof(*p));

		if (p == NULL)
			return -ENOMEM;
		err = ca_read_port(dev, (u8)port, p);
		if (err == 0)
			out->ports[port] = p;
		else
			free(p);
	}
	return err;
}

static int ca_read_device(struct ib_device *dev, umad_ca_t *out)
{
	umad_ca_t ca;
	int err = ca_fill(dev, &ca);

	if (err != 0)
		return err;
	err = ca_fill_ports(dev, &ca);
	if (err == 0)
		*out = ca;
	else
		umad_release_ca(&ca);
	return err;
}

int ca_read(const char *name, umad_ca_t *out)
{
	struct ib_device **list = NULL;
	int n = ib_uverbs_get_devices(&list), err = -ENODEV;

	if (n < 0)
		return n;
	for (int i = 0; i < n && err == -ENODEV; i++)
		if (strcmp(list[i]->name, name) == 0)
			err = ca_read_device(list[i], out);
	ib_uverbs_put_devices(list);
	return err;
}

/* ---- numbers of character devices ------------------------------------------------------------ */

static bool ca_is_number(const char *tree, int number, const char *name, int portnum)
{
	char folder[320], text[64], want[16];

	snprintf(folder, sizeof(folder), "%s/class/infiniband_mad/umad%d", tree, number);
	ca_read_text(folder, "ibdev", text, sizeof(text));
	if (strcmp(text, name) != 0)
		return false;
	ca_read_text(folder, "port", text, sizeof(text));
	snprintf(want, sizeof(want), "%d", portnum);
	return strcmp(text, want) == 0;
}

static int ca_find_number(struct ib_device *dev, int portnum)
{
	struct ib_uverbs_info info = { .name = "" };

	if (ib_uverbs_get_info(dev, &info) != 0)
		return -EINVAL;
	for (int i = 0; i < UMAD_MAX_PORTS; i++)
		if (ca_is_number(info.sysfs, i, dev->name, portnum))
			return i;
	return -EINVAL;
}

int ca_port_number(const char *name, int portnum)
{
	struct ib_device **list = NULL;
	int n = ib_uverbs_get_devices(&list), number = -EINVAL;

	if (n < 0)
		return n;
	for (int i = 0; i < n && number < 0; i++)
		if (strcmp(list[i]->name, name) == 0)
			number = ca_find_number(list[i], portnum);
	ib_uverbs_put_devices(list);
	return number;
}

/* ---- for the application --------------------------------------------------------------------- */

AV_EXPORT int umad_get_ca(const char *ca_name, umad_ca_t *ca)
{
	char name[UMAD_CA_NAME_LEN];
	int port, err = 0;

	if (ca_name == NULL || ca_name[0] == '\0')
		err = pick_port(NULL, 0, name, &port);
	else
		door_copy(name, sizeof(name), ca_name);
	return door_result(err == 0 ? ca_read(name, ca) : err);
}

AV_EXPORT int umad_release_port(umad_port_t *port)
{
	free(port->pkeys);
	port->pkeys = NULL;
	port->pkeys_size = 0;
	return 0;
}

AV_EXPORT int umad_release_ca(umad_ca_t *ca)
{
	for (int i = 0; i < UMAD_CA_MAX_PORTS; i++) {
		if (ca->ports[i] == NULL)
			continue;
		umad_release_port(ca->ports[i]);
		free(ca->ports[i]);
		ca->ports[i] = NULL;
	}
	return 0;
}

AV_EXPORT int umad_get_port(const char *ca_name, int portnum, umad_port_t *port)
{
	char name[UMAD_CA_NAME_LEN];
	umad_ca_t ca;
	int err = pick_port(ca_name, portnum, name, &portnum);

	if (err == 0)
		err = ca_read(name, &ca);
	if (err != 0)
		return door_result(err);
	if (portnum < 0 || portnum > ca.numports || ca.ports[portnum] == NULL) {
		umad_release_ca(&ca);
		return door_result(-EINVAL);
	}
	*port = *ca.ports[portnum];
	ca.ports[portnum]->pkeys = NULL; /* they are the copy's now */
	return umad_release_ca(&ca);
}

AV_EXPORT int umad_get_ca_portguids(const char *ca_name, __be64 *portguids, int max)
{
	umad_ca_t ca;
	int err = umad_get_ca(ca_name, &ca), n;

	if (err != 0)
		return err;
	n = ca.numports + 1;
	if (portguids != NULL && n > max) {
		umad_release_ca(&ca);
		return door_result(-ENOMEM);
	}
	for (int i = 0; portguids != NULL && i < n; i++)
		portguids[i] = ca.ports[i] == NULL ? 0 : ca.ports[i]->port_guid;
	umad_release_ca(&ca);
	return n;
}

AV_EXPORT int umad_get_issm_path(const char *ca_name, int portnum, char path[], int max)
{
	char name[UMAD_CA_NAME_LEN];
	int number = pick_port(ca_name, portnum, name, &portnum);

	if (number == 0)
		number = ca_port_number(name, portnum);
	if (number < 0)
		return door_result(number);
	if (max > 0)
		snprintf(path, (size_t)max, "/dev/infiniband/issm%d", number);
	return 0;
}
