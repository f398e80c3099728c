/* sysfs_file.c: single files of a tree that stands for /sys, in the kernel's formats.
 * In:    values                        Out: files under the folder, each replaced in one step
 * Runs:  the daemon's only thread      Locks: none
 */
#include "daemon/fabric/sysfs_priv.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

static void sysfs_fail(struct sysfs *s, const char *path, int err)
{
	if (s->err == 0)
		log_error("node", "cannot write %s/%s: %s", s->folder->path, path, strerror(-err));
	s->err = s->err == 0 ? err : s->err;
}

void sysfs_make(struct sysfs *s, const char *path)
{
	char full[256];
	int err;

	snprintf(full, sizeof(full), "%s/%s", s->base, path);
	err = folder_make(s->folder, full);
	if (err < 0)
		sysfs_fail(s, full, err);
}

void sysfs_put(struct sysfs *s, const char *path, const char *fmt, ...)
{
	char full[256], text[512];
	va_list args;
	int err;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	snprintf(full, sizeof(full), "%s/%s", s->base, path);
	err = folder_put(s->folder, full, text);
	if (err < 0)
		sysfs_fail(s, full, err);
}

void sysfs_link(struct sysfs *s, const char *path, const char *to)
{
	char full[256];
	int err;

	snprintf(full, sizeof(full), "%s/%s", s->base, path);
	err = folder_link(s->folder, full, to);
	if (err < 0)
		sysfs_fail(s, full, err);
}

void sysfs_delete(struct sysfs *s, const char *path)
{
	char full[256];

	snprintf(full, sizeof(full), "%s/%s", s->base, path);
	folder_delete(s->folder, full);
}

void sysfs_put_table(struct sysfs *s, const struct sysfs_text *table, size_t count)
{
	for (size_t i = 0; i < count; i++)
		sysfs_put(s, table[i].path, "%s", table[i].text);
}

void sysfs_put_guid(struct sysfs *s, const char *path, u64 guid)
{
	sysfs_put(s, path, "%04x:%04x:%04x:%04x\n", (unsigned)(guid >> 48),
		  (unsigned)(guid >> 32 & 0xffff), (unsigned)(guid >> 16 & 0xffff),
		  (unsigned)(guid & 0xffff));
}

void sysfs_put_gid_text(struct sysfs *s, int i, const u8 gid[16])
{
	char path[64], text[64];
	u16 word[8];

	memcpy(word, gid, 16);
	for (int w = 0; w < 8; w++)
		snprintf(text + 5 * w, sizeof(text) - 5 * (size_t)w, "%04x%s", ntohs(word[w]),
			 w < 7 ? ":" : "\n");
	snprintf(path, sizeof(path), "gids/%d", i);
	sysfs_put(s, path, "%s", text);
}

/* Writes the host's CPUs in the kernel's format of a mask: words of 32 bits, the highest first. */
static void sysfs_put_cpus(struct sysfs *s)
{
	long count = sysconf(_SC_NPROCESSORS_CONF);
	char text[512] = "";
	size_t n = 0;

	count = count < 1 ? 1 : MIN(count, 1024);
	for (long word = (count - 1) / 32; word >= 0; word--) {
		long bits = MIN(count - word * 32, 32);
		u32 mask = bits == 32 ? ~0u : (1u << bits) - 1;

		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%0*x", n > 0 ? "," : "",
				      bits == 32 || n > 0 ? 8 : (int)((bits + 3) / 4), mask);
	}
	sysfs_put(s, "local_cpus", "%s\n", text);
	sysfs_put(s, "local_cpulist", count > 1 ? "0-%ld\n" : "%ld\n", count - 1);
}

void sysfs_put_machine(struct sysfs *s)
{
	static const struct sysfs_text texts[] = {
		{ "numa_node", "-1\n" },
		{ "class", "0x020700\n" },
		{ "vendor", "0xa7b5\n" },
		{ "device", "0x0001\n" },
		{ "subsystem_vendor", "0xa7b5\n" },
		{ "subsystem_device", "0x0001\n" },
	};

	sysfs_make(s, "infiniband");
	sysfs_put_table(s, texts, ARRAY_LEN(texts));
	sysfs_put_cpus(s);
}

void sysfs_put_function(struct sysfs *s, const char *device)
{
	char to[64];

	sysfs_make(s, "");
	snprintf(to, sizeof(to), "../../../devices/anyverbs/%s", device);
	sysfs_link(s, "device", to);
}

void sysfs_put_numbers(struct sysfs *s, u32 minor, const char *device, u32 port)
{
	sysfs_put(s, "dev", "231:%u\n", minor);
	sysfs_put(s, "ibdev", "%s\n", device);
	if (port != 0)
		sysfs_put(s, "port", "%u\n", port);
}

void sysfs_put_versions(struct sysfs *s)
{
	sysfs_put(s, "class/infiniband_verbs/abi_version", "6\n");
	sysfs_put(s, "class/infiniband_mad/abi_version", "5\n");
}
