/* tree.c: a star, and fat trees of two and three levels: each switch has as many cables up as down.
 * In:    dimensions        Out: switches, hosts, cables
 * Runs:  its caller        Locks: none
 */
#include <errno.h>
#include <stdlib.h>

#include "fabric/topo/topo_priv.h"

int topo_make_star(struct topo_spec *s)
{
	u32 hub;
	int err = topo_spec_switch(s, MAX(s->dim[0], s->radix), &hub, "leaf1");

	for (u32 i = 1; err == 0 && i <= s->dim[0]; i++)
		err = topo_spec_host(s, hub, i);
	return err;
}

/* `lower` switches with `ups` cables each, from port `first_up` on, meet in an upper level: every
 * upper switch has the same number of cables to every lower one. */
struct fattree_level {
	u32 lower, ups, first_up;
	u32 uppers; /* switches of the upper level */
	u32 bundle; /* cables between two switches */
} OWNED_BY(the caller);

/* The fewest upper switches: `ports` is how many ports one has for cables down. False: too few
 * ports, however many switches. */
static bool fattree_level_fit(struct fattree_level *l, u32 ports)
{
	for (l->uppers = 1; l->uppers <= l->ups; l->uppers++) {
		l->bundle = l->ups / l->uppers;
		if (l->ups % l->uppers == 0 && l->lower * l->bundle <= ports)
			return true;
	}
	return false;
}

/* Cables every lower switch to every upper one; these have consecutive indices. */
static int fattree_level_cable(struct topo_spec *s, const struct fattree_level *l, const u32 *lower,
			    u32 upper)
{
	int err = 0;

	for (u32 i = 0; i < l->lower; i++)
		for (u32 u = 0; u < l->uppers; u++)
			for (u32 k = 0; err == 0 && k < l->bundle; k++)
				err = topo_spec_cable(s, lower[i],
						      l->first_up + u * l->bundle + k, upper + u,
						      1 + i * l->bundle + k);
	return err;
}

static int fattree_uppers(struct topo_spec *s, const char *name, u32 *count, u32 n, u32 *first)
{
	u32 node;
	int err = 0;

	for (u32 i = 0; err == 0 && i < n; i++) {
		err = topo_spec_switch(s, 0, &node, "%s%u", name, ++*count);
		if (i == 0)
			*first = node;
	}
	return err;
}

/* `leaves` switches of `hosts` hosts each, and their upper level. */
static int fattree_pod(struct topo_spec *s, const struct fattree_level *l, u32 hosts,
		       u32 *leaf_count, const char *upper_name, u32 *upper_count, u32 *upper)
{
	u32 *leaf = calloc(l->lower, sizeof(*leaf));
	int err = leaf != NULL ? 0 : -ENOMEM;

	for (u32 i = 0; err == 0 && i < l->lower; i++) {
		err = topo_spec_switch(s, 0, &leaf[i], "leaf%u", ++*leaf_count);
		for (u32 h = 1; err == 0 && h <= hosts; h++)
			err = topo_spec_host(s, leaf[i], h);
	}
	if (err == 0)
		err = fattree_uppers(s, upper_name, upper_count, l->uppers, upper);
	if (err == 0)
		err = fattree_level_cable(s, l, leaf, *upper);
	free(leaf);
	return err;
}

/* Each group of cores joins the same spine of every pod. */
static int fattree_cores(struct topo_spec *s, const struct fattree_level *core, u32 spines,
		      const u32 *pod_spine)
{
	u32 *lower = calloc(core->lower, sizeof(*lower));
	u32 count = 0, first = 0;
	int err = lower != NULL ? 0 : -ENOMEM;

	for (u32 k = 0; err == 0 && k < spines; k++) {
		for (u32 p = 0; p < core->lower; p++)
			lower[p] = pod_spine[p] + k;
		err = fattree_uppers(s, "core", &count, core->uppers, &first);
		if (err == 0)
			err = fattree_level_cable(s, core, lower, first);
	}
	free(lower);
	return err;
}

static int fattree_three_levels(struct topo_spec *s, u32 pods, u32 leaves, u32 hosts)
{
	struct fattree_level pod = { .lower = leaves, .ups = hosts, .first_up = hosts + 1 };
	struct fattree_level core = { .lower = pods };
	u32 *spine, leaf_count = 0, spine_count = 0;
	int err = 0;

	if (hosts * 2 > s->radix || !fattree_level_fit(&pod, s->radix / 2))
		return topo_spec_fail(s, "a pod of %u leaves with %u hosts each needs switches of "
				      "more than %u ports", leaves, hosts, s->radix);
	core.ups = leaves * pod.bundle;
	core.first_up = core.ups + 1;
	if (!fattree_level_fit(&core, s->radix))
		return topo_spec_fail(s, "%u pods need switches of more than %u ports", pods,
				      s->radix);
	spine = calloc(pods, sizeof(*spine));
	if (spine == NULL)
		return -ENOMEM;
	for (u32 p = 0; err == 0 && p < pods; p++)
		err = fattree_pod(s, &pod, hosts, &leaf_count, "spine", &spine_count, &spine[p]);
	if (err == 0)
		err = fattree_cores(s, &core, pod.uppers, spine);
	free(spine);
	return err;
}

/* The most leaves per pod that divide their number and fit. 0: none. */
static u32 fattree_leaves_per_pod(const struct topo_spec *s, u32 leaves)
{
	for (u32 n = MIN(leaves, s->radix / 2); n > 0; n--)
		if (leaves % n == 0 && leaves / n <= s->radix)
			return n;
	return 0;
}

/* LEAVESxHOSTS, in three levels if two have too few ports, or PODSxLEAVESxHOSTS. */
int topo_make_fat_tree(struct topo_spec *s)
{
	u32 leaves = s->dim[0], hosts = s->dim[1], spine, leaf_count = 0, spine_count = 0, per_pod;
	struct fattree_level two = { .lower = leaves, .ups = hosts, .first_up = hosts + 1 };

	if (s->dims == 3)
		return fattree_three_levels(s, s->dim[0], s->dim[1], s->dim[2]);
	if (hosts * 2 > s->radix)
		return topo_spec_fail(s, "leaves of %u hosts need switches of %u ports, not %u",
				      hosts, hosts * 2, s->radix);
	if (fattree_level_fit(&two, s->radix))
		return fattree_pod(s, &two, hosts, &leaf_count, "spine", &spine_count, &spine);
	per_pod = fattree_leaves_per_pod(s, leaves);
	if (per_pod == 0)
		return topo_spec_fail(s, "%u leaves need switches of more than %u ports", leaves,
				      s->radix);
	return fattree_three_levels(s, leaves / per_pod, per_pod, hosts);
}
