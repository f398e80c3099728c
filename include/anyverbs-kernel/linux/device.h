/* device.h: a device (struct device of <anyverbs/device.h>), as far as messages need one: its name
 * goes before them (linux/printk.h). */
#ifndef ANYVERBS_LINUX_DEVICE_H
#define ANYVERBS_LINUX_DEVICE_H

#include <anyverbs/device.h>
#include <linux/kernel.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/numa.h>
#include <linux/slab.h>

static inline const char *dev_name(const struct device *device)
{
	return device && device->init_name ? device->init_name : "device";
}

/* Memory of a program is of no node. */
static inline int dev_to_node(const struct device *device)
{
	(void)device;
	return NUMA_NO_NODE;
}

static inline void *dev_get_drvdata(const struct device *device)
{
	return device->driver_data;
}

static inline void dev_set_drvdata(struct device *device, void *data)
{
	device->driver_data = data;
}

#define anyverbs_dev_printk(level, device, format, ...)                                            \
	printk(level "%s: " format, dev_name(device), ##__VA_ARGS__)
#define dev_err(device, format, ...) anyverbs_dev_printk(KERN_ERR, device, format, ##__VA_ARGS__)
#define dev_warn(device, format, ...)                                                              \
	anyverbs_dev_printk(KERN_WARNING, device, format, ##__VA_ARGS__)
#define dev_notice(device, format, ...)                                                            \
	anyverbs_dev_printk(KERN_NOTICE, device, format, ##__VA_ARGS__)
#define dev_info(device, format, ...) anyverbs_dev_printk(KERN_INFO, device, format, ##__VA_ARGS__)
#define dev_dbg(device, format, ...) anyverbs_dev_printk(KERN_DEBUG, device, format, ##__VA_ARGS__)

#endif
