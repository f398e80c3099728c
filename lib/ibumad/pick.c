/* pick.c: lists of channel adapters, and which port a program means that does not name it.
 * In:    names, numbers    Out: names, numbers
 * Runs:  the application's threads    Locks: none
 */
#include <stdio.h>
#include <string.h>

#include "core/uverbs.h"
#include "door.h"

#ifndef AV_HAS_UMAD_CA_PAIR /* libibumad's, newer than the header that this is built with */
struct umad_ca_pair {
	char smi_name[UMAD_CA_NAME_LEN];
	uint32_t smi_preferred_port;
	char gsi_name[UMAD_CA_NAME_LEN];
	uint32_t gsi_preferred_port;
} OWNED_BY(the application);

AV_EXPORT int umad_get_smi_gsi_pairs(struct umad_ca_pair cas[], size_t max);
AV_EXPORT int umad_get_smi_gsi_pair_by_ca_name(const char *devname, uint8_t portnum,
					       struct umad_ca_pair *ca, unsigned enforce_smi);
#endif

/* ---- lists ----------------------------------------------------------------------------------- */

static int pick_compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* InfiniBand's adapters only: an iWARP device has no MADs. Sorted. */
static int pick_names(char (*names)[UMAD_CA_NAME_LEN], int max)
{
	struct ib_device **list = NULL;
	int n = ib_uverbs_get_devices(&list), count = 0;

	if (n < 0)
		return n;
	for (int i = 0; i < n && count < max; i++)
		if (list[i]->node_type >= RDMA_NODE_IB_CA &&
		    list[i]->node_type <= RDMA_NODE_IB_ROUTER)
			door_copy(names[count++], UMAD_CA_NAME_LEN, list[i]->name);
	ib_uverbs_put_devices(list);
	qsort(names, (size_t)count, sizeof(*names), pick_compare);
	return count;
}

AV_EXPORT int umad_get_cas_names(char cas[][UMAD_CA_NAME_LEN], int max)
{
	int n = pick_names(cas, max);

	if (n >= 0)
		return n;
	errno = -n;
	return -1;
}

/* ---- one port -------------------------------------------------------------------------------- */

/* How good a port is for a program that lets the library choose; 0: not at all. */
static int pick_worth(const umad_port_t *port)
{
	if (port == NULL || !ca_port_is_infiniband(port))
		return 0;
	if (port->state == DOOR_STATE_ACTIVE)
		return 3;
	return port->phys_state != DOOR_PHYS_DISABLED ? 2 : 1;
}

/* The best port of a CA, or the one that is asked for if it is any good: its worth. */
static int pick_in_ca(const char *name, int portnum, int *port)
{
	umad_ca_t ca;
	int best = 0;

	if (ca_read(name, &ca) != 0)
		return 0;
	for (int i = 0; i < UMAD_CA_MAX_PORTS; i++) {
		int worth = portnum != 0 && portnum != i ? 0 : pick_worth(ca.ports[i]);

		if (worth > best) {
			best = worth;
			*port = i;
		}
	}
	umad_release_ca(&ca);
	return best;
}

static int pick_any(int portnum, char ca[UMAD_CA_NAME_LEN], int *port)
{
	char names[UMAD_MAX_DEVICES][UMAD_CA_NAME_LEN];
	int n = pick_names(names, UMAD_MAX_DEVICES), best = 0;

	if (n < 0)
		return n;
	for (int i = 0; i < n; i++) {
		int found = 0, worth = pick_in_ca(names[i], portnum, &found);

		if (worth <= best)
			continue;
		best = worth;
		*port = found;
		door_copy(ca, UMAD_CA_NAME_LEN, names[i]);
	}
	return best > 0 ? 0 : -ENODEV;
}

int pick_port(const char *name, int portnum, char ca[UMAD_CA_NAME_LEN], int *port)
{
	if (name == NULL || name[0] == '\0')
		return pick_any(portnum, ca, port);
	door_copy(ca, UMAD_CA_NAME_LEN, name);
	*port = portnum;
	if (portnum > 0)
		return 0;
	return pick_in_ca(name, 0, port) > 0 ? 0 : -ENODEV;
}

/* ---- lists that the application frees -------------------------------------------------------- */

/* A node and its name. */
struct pick_node {
	struct umad_device_node node;
	char name[UMAD_CA_NAME_LEN];
} OWNED_BY(the application);

AV_EXPORT void umad_free_ca_device_list(struct umad_device_node *head)
{
	while (head != NULL) {
		struct umad_device_node *next = head->next;

		free(head);
		head = next;
	}
}

AV_EXPORT struct umad_device_node *umad_get_ca_device_list(void)
{
	char names[UMAD_MAX_DEVICES][UMAD_CA_NAME_LEN];
	struct umad_device_node *head = NULL;
	int n = pick_names(names, UMAD_MAX_DEVICES);

	errno = n < 0 ? -n : 0;
	while (n-- > 0) {
		struct pick_node *p = calloc(1, sizeof(*p));

		if (p == NULL) {
			umad_free_ca_device_list(head);
			errno = ENOMEM;
			return NULL;
		}
		memcpy(p->name, names[n], sizeof(p->name));
		p->node = (struct umad_device_node){ .next = head, .ca_name = p->name };
		head = &p->node;
	}
	return head;
}

/* Takes the node of the least name off the list. */
static struct umad_device_node *pick_least(struct umad_device_node **head)
{
	struct umad_device_node **least = head, *node;

	for (struct umad_device_node **at = head; *at != NULL; at = &(*at)->next)
		if (strcmp((*at)->ca_name, (*least)->ca_name) < 0)
			least = at;
	node = *least;
	*least = node->next;
	return node;
}

/* By name. `size` is how many nodes to sort, 0: all of them; those behind keep their order. */
AV_EXPORT int umad_sort_ca_device_list(struct umad_device_node **head, size_t size)
{
	struct umad_device_node *sorted = NULL, **end = &sorted, **at = head;
	size_t n = 0;

	if (head == NULL)
		return EINVAL;
	while (*at != NULL && (size == 0 || n < size)) {
		n++;
		at = &(*at)->next;
	}
	struct umad_device_node *rest = *at, *first = *head;

	*at = NULL;
	if (n == 0)
		first = NULL;
	while (first != NULL) {
		*end = pick_least(&first);
		end = &(*end)->next;
	}
	*end = rest;
	*head = sorted;
	return 0;
}

/* ---- pairs: one CA has both QP0 and QP1 here ------------------------------------------------- */

static bool pick_pair(const char *name, int portnum, struct umad_ca_pair *pair)
{
	int port = 0;

	if (pick_in_ca(name, portnum, &port) == 0)
		return false;
	memset(pair, 0, sizeof(*pair));
	door_copy(pair->smi_name, sizeof(pair->smi_name), name);
	door_copy(pair->gsi_name, sizeof(pair->gsi_name), name);
	pair->smi_preferred_port = pair->gsi_preferred_port = (uint32_t)port;
	return true;
}

AV_EXPORT int umad_get_smi_gsi_pairs(struct umad_ca_pair cas[], size_t max)
{
	char names[UMAD_MAX_DEVICES][UMAD_CA_NAME_LEN];
	int n = pick_names(names, UMAD_MAX_DEVICES), count = 0;

	if (n < 0)
		return door_result(n);
	for (int i = 0; i < n && (size_t)count < max; i++)
		if (pick_pair(names[i], 0, &cas[count]))
			count++;
	return count;
}

AV_EXPORT int umad_get_smi_gsi_pair_by_ca_name(const char *devname, uint8_t portnum,
					       struct umad_ca_pair *ca, unsigned enforce_smi)
{
	char name[UMAD_CA_NAME_LEN];
	int port = portnum, err = pick_port(devname, portnum, name, &port);

	if (err != 0)
		return door_result(err);
	return pick_pair(name, port, ca) ? 0 : door_result(-ENODEV);
}
