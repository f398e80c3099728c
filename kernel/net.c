/* net.c: addresses in texts, interfaces by name, random numbers.
 * Runs:  the caller's thread         Locks: device_lock, in which nothing else is taken
 */
#include <linux/err.h>
#include <linux/inet.h>
#include <linux/kstrtox.h>
#include <linux/list.h>
#include <linux/netdevice.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <net/if.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>

struct net {
	int unused;
};

struct net init_net;

/* ---- addresses ------------------------------------------------------------------------------- */

static int address_parse(int family, const char *from, int length, u8 *to, int delimiter,
			 const char **end)
{
	size_t n = length < 0 ? strlen(from) : strnlen(from, (size_t)length);
	const char *cut = delimiter < 0 ? NULL : memchr(from, delimiter, n);
	char text[INET6_ADDRSTRLEN];

	if (cut)
		n = (size_t)(cut - from);
	if (n >= sizeof(text))
		return 0;
	memcpy(text, from, n);
	text[n] = '\0';
	if (inet_pton(family, text, to) != 1)
		return 0;
	if (end)
		*end = from + n;
	return 1;
}

int in4_pton(const char *from, int length, u8 *to, int delimiter, const char **end)
{
	return address_parse(AF_INET, from, length, to, delimiter, end);
}

int in6_pton(const char *from, int length, u8 *to, int delimiter, const char **end)
{
	return address_parse(AF_INET6, from, length, to, delimiter, end);
}

static int scope_find(const char *name, u32 *scope)
{
	*scope = if_nametoindex(name);
	return *scope != 0 ? 0 : kstrtouint(name, 10, scope);
}

int inet_pton_with_scope(struct net *net, sa_family_t family, const char *from, const char *port,
			 struct sockaddr_storage *to)
{
	struct sockaddr_in *in4 = (struct sockaddr_in *)to;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)to;
	const char *end;
	u16 number = 0;

	(void)net;
	if (port && kstrtou16(port, 0, &number) != 0)
		return -EINVAL;
	memset(to, 0, sizeof(*to));
	if (family != AF_INET6 && in4_pton(from, -1, (u8 *)&in4->sin_addr, -1, NULL)) {
		in4->sin_family = AF_INET;
		in4->sin_port = htons(number);
		return 0;
	}
	if (family == AF_INET || !in6_pton(from, -1, (u8 *)&in6->sin6_addr, '%', &end))
		return -EINVAL;
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(number);
	return *end == '%' && scope_find(end + 1, &in6->sin6_scope_id) != 0 ? -EINVAL : 0;
}

/* ---- interfaces ------------------------------------------------------------------------------ */

/* One per interface that was found, for ever. */
struct device_entry {
	struct list_head entry;
	struct net_device device;
};

static pthread_mutex_t device_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(devices);

static struct net_device *device_get(const char *name, int index)
{
	struct device_entry *d;

	list_for_each_entry(d, &devices, entry)
		if (d->device.ifindex == index && strcmp(d->device.name, name) == 0)
			return &d->device;
	d = kzalloc(sizeof(*d), GFP_NOWAIT);
	if (!d)
		return NULL;
	d->device.ifindex = index;
	memcpy(d->device.name, name, strnlen(name, sizeof(d->device.name) - 1));
	list_add(&d->entry, &devices);
	return &d->device;
}

struct net_device *dev_get_by_name(struct net *net, const char *name)
{
	int index = (int)if_nametoindex(name);
	struct net_device *device;

	(void)net;
	if (index == 0)
		return NULL;
	pthread_mutex_lock(&device_lock);
	device = device_get(name, index);
	pthread_mutex_unlock(&device_lock);
	return device;
}

/* ---- random numbers -------------------------------------------------------------------------- */

void get_random_bytes(void *buffer, size_t size)
{
	ssize_t n;

	for (size_t done = 0; done < size; done += n > 0 ? (size_t)n : 0)
		n = getrandom((char *)buffer + done, size - done, 0);
}

u32 get_random_u32(void)
{
	u32 n;

	get_random_bytes(&n, sizeof(n));
	return n;
}

u64 get_random_u64(void)
{
	u64 n;

	get_random_bytes(&n, sizeof(n));
	return n;
}
