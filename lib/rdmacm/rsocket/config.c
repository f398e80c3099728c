/* config.c: the defaults of rsockets, which the host's administrator may set in files of one number
 * each, as with rdma-core.
 * In:    /etc/rdma/rsocket                 Out: struct rsocket_defaults
 * Runs:  the application's threads, once   Locks: none
 */
#include <pthread.h>
#include <stdio.h>

#include "rsocket.h"

#define CONFIG_FOLDER "/etc/rdma/rsocket/"

static struct rsocket_defaults config_values = {
	.receive_bytes = 1 << 19, /* pages that are not used cost nothing */
	.send_bytes = 1 << 17,
	.send_queue = 384,
	.receive_queue = 384,
	.inline_bytes = 64,
	.polling_us = 10,
};
static pthread_once_t config_once = PTHREAD_ONCE_INIT;

/* The number of a file, within limits; else what stands there. */
static void config_read(const char *path, u32 *value, u32 least, u32 most)
{
	FILE *f = fopen(path, "re");
	unsigned number;

	if (f == NULL)
		return;
	if (fscanf(f, "%u", &number) == 1)
		*value = MAX(MIN(number, most), least);
	fclose(f);
}

static void config_load(void)
{
	struct rsocket_defaults *c = &config_values;
	int saved = errno;

	config_read(CONFIG_FOLDER "mem_default", &c->receive_bytes, 1, INT32_MAX);
	config_read(CONFIG_FOLDER "wmem_default", &c->send_bytes, 1, INT32_MAX);
	config_read(CONFIG_FOLDER "sqsize_default", &c->send_queue, 0, UINT16_MAX);
	config_read(CONFIG_FOLDER "rqsize_default", &c->receive_queue, 0, UINT16_MAX);
	config_read(CONFIG_FOLDER "inline_default", &c->inline_bytes, 0, UINT16_MAX);
	config_read(CONFIG_FOLDER "iomap_size", &c->iomaps, 0, UINT16_MAX);
	config_read(CONFIG_FOLDER "polling_time", &c->polling_us, 0, UINT32_MAX);
	c->iomaps = iomaps_round(c->iomaps);
	errno = saved;
}

const struct rsocket_defaults *rsocket_defaults(void)
{
	pthread_once(&config_once, config_load);
	return &config_values;
}
