/* listeners.c: reads who listens from the node's directory, and prints it.
 * In:    the directory's descriptor      Out: standard output
 * Runs:  the only thread             Locks: none
 * Spec:  IBA vol 1, annex A11 (service IDs and private data of the RDMA CM)
 */
#include "listeners.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LISTENERS_CHUNK = 256, LISTENERS_TEXT = 16 };

const char *service_space(u64 service_id)
{
	static const struct {
		u64 above;
		const char *name;
	} spaces[] = {
		{ 0x0106, "TCP" }, { 0x0111, "UDP" }, { 0x013f, "IB" }, { 0x0002, "IPOIB" }
	};

	for (size_t i = 0; i < ARRAY_LEN(spaces); i++)
		if (service_id >> 16 == spaces[i].above)
			return spaces[i].name;
	return NULL;
}

static const char *listeners_space(const struct directory_listener *l)
{
	return l->mask == UINT64_MAX ? service_space(l->service_id) : NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int listeners_compare(const void *a, const void *b)
{
	const struct directory_listener *x = a, *y = b;

	if (x->process != y->process)
		return x->process < y->process ? -1 : 1;
	if (x->service_id != y->service_id)
		return x->service_id < y->service_id ? -1 : 1;
	return memcmp(x, y, sizeof(*x));
}

/* An id that listens on all devices is on the directory once for each. */
static void listeners_sort(struct listeners *l)
{
	u32 kept = 0;

	qsort(l->all, l->count, sizeof(*l->all), listeners_compare);
	for (u32 i = 0; i < l->count; i++)
		if (kept == 0 || listeners_compare(&l->all[kept - 1], &l->all[i]) != 0)
			l->all[kept++] = l->all[i];
	l->count = kept;
}

static int listeners_copy(const struct directory *n, struct listeners *out)
{
	u32 at = 0, more;

	do {
		struct directory_listener *grown =
			realloc(out->all, (out->count + LISTENERS_CHUNK) * sizeof(*grown));

		if (grown == NULL)
			return -ENOMEM;
		out->all = grown;
		more = directory_list_listeners(n, &at, out->all + out->count, LISTENERS_CHUNK);
		out->count += more;
	} while (more == LISTENERS_CHUNK);
	/* its place on the directory tells nobody anything */
	for (u32 i = 0; i < out->count; i++)
		out->all[i].next = 0;
	listeners_sort(out);
	return 0;
}

int listeners_read(int fd, struct listeners *out)
{
	const struct directory *n = directory_map(fd);
	int err;

	memset(out, 0, sizeof(*out));
	if (n == NULL)
		return -EPROTO;
	err = listeners_copy(n, out);
	directory_unmap(n);
	return err;
}

void listeners_free(struct listeners *l)
{
	free(l->all);
	l->all = NULL;
	l->count = 0;
}

/* ---- printing -------------------------------------------------------------------------------- */

/* The address that requests must name, by the private data that the listener takes. "*": any of
 * either family. */
static const char *listeners_address(const struct directory_listener *l,
				     char text[INET6_ADDRSTRLEN])
{
	enum { AT_VERSION = 1, AT_V6 = 20, AT_V4 = 32 };
	const u8 *data = l->match.data;

	if (l->match.mask[AT_VERSION] == 0)
		return "*";
	if (data[AT_VERSION] >> 4 == 4)
		return inet_ntop(AF_INET, data + AT_V4, text, INET6_ADDRSTRLEN);
	return inet_ntop(AF_INET6, data + AT_V6, text, INET6_ADDRSTRLEN);
}

static void listeners_print_one(const struct directory_listener *l)
{
	const char *space = listeners_space(l), *address;
	char text[INET6_ADDRSTRLEN];

	if (space != NULL) {
		address = listeners_address(l, text);
		printf(strchr(address, ':') != NULL ? "%s [%s]:%u" : "%s %s:%u", space, address,
		       (u32)(l->service_id & 0xffff));
	} else {
		printf("service %016llx", (unsigned long long)l->service_id);
	}
	if (l->mask != UINT64_MAX)
		printf("/%016llx", (unsigned long long)l->mask);
}

void listeners_print(const struct listeners *l, u64 process)
{
	u32 shown = 0, more = 0;

	for (u32 i = 0; i < l->count; i++) {
		if (l->all[i].process != process)
			continue;
		if (shown == LISTENERS_TEXT) {
			more++;
			continue;
		}
		printf("%*s", shown == 0 ? 25 : 0, shown == 0 ? "listens on " : ", ");
		listeners_print_one(&l->all[i]);
		shown++;
	}
	if (more > 0)
		printf(" and %u more (--json shows them)", more);
	if (shown > 0)
		putchar('\n');
}

void listeners_print_json(const struct listeners *l, u64 process)
{
	char text[INET6_ADDRSTRLEN];
	const char *comma = "";

	fputs(",\n      \"listeners\": [", stdout);
	for (u32 i = 0; i < l->count; i++) {
		const struct directory_listener *one = &l->all[i];
		const char *space = listeners_space(one);

		if (one->process != process)
			continue;
		printf("%s\n        {\"service_id\": \"%016llx\", \"mask\": \"%016llx\"", comma,
		       (unsigned long long)one->service_id, (unsigned long long)one->mask);
		if (space != NULL)
			printf(", \"space\": \"%s\", \"port\": %u, \"address\": \"%s\"", space,
			       (u32)(one->service_id & 0xffff), listeners_address(one, text));
		putchar('}');
		comma = ",";
	}
	putchar(']');
}
