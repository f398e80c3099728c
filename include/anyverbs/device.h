/* device.h: a device as Linux has it, as far as messages need one: the last field of struct
 * ib_device, and what linux/device.h of kernel code in a program has calls for. */
#ifndef ANYVERBS_DEVICE_H
#define ANYVERBS_DEVICE_H

struct device {
	const char *init_name; /* the owner's; NULL: "device" */
	struct device *parent;
	void *driver_data;
};

#endif
