/* ether_fuzz.c: Ethernet frames that anybody on the wire may send, and flow rules that a program
 * describes: no frame is read beyond its end, and each rule judges it the same way twice.
 *
 * The input is a rule's attributes with up to four specifications as the midlayer has them, and
 * then the frame, in memory that ends where it ends.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <rdma/ib_steer.h>
#include <stdlib.h>

#include "input.h"
#include "wire/ether.h"

/* Of the software adapters' rule.c, which this is built with. */
int rule_of_attr(const struct ib_flow_attr *attr, struct ether_rule *rule);

enum { SPECS = 4, FRAME_MOST = 2048 };

static const u32 spec_types[] = {
	IB_FLOW_SPEC_ETH, IB_FLOW_SPEC_IPV4, IB_FLOW_SPEC_IPV4_EXT, IB_FLOW_SPEC_IPV6,
	IB_FLOW_SPEC_TCP, IB_FLOW_SPEC_UDP, IB_FLOW_SPEC_ACTION_DROP, IB_FLOW_SPEC_ACTION_COUNT,
};

static struct ib_flow_attr fuzz_attr(struct input *in)
{
	struct ib_flow_attr attr = { .size = sizeof(attr), .port = 1 };

	attr.type = (enum ib_flow_attr_type)(input_u8(in) % 4);
	attr.flags = input_u8(in) & IB_FLOW_ATTR_FLAGS_DONT_TRAP;
	attr.priority = input_u8(in);
	attr.num_of_specs = input_u8(in) % (SPECS + 1);
	for (u32 i = 0; i < attr.num_of_specs; i++) {
		u8 type = input_u8(in);

		attr.specs[i].type = (enum ib_flow_spec_type)(
			type < 0xf0 ? spec_types[type % ARRAY_LEN(spec_types)] : type);
		input_bytes(in, &attr.specs[i].val, sizeof(attr.specs[i].val));
		input_bytes(in, &attr.specs[i].mask, sizeof(attr.specs[i].mask));
	}
	return attr;
}

/* What the header promises of a rule, and of the walk over a table of two. */
static void fuzz_judge(const struct ether_rule *rule, const struct ether_key *key)
{
	const u8 *value = (const u8 *)&rule->value, *mask = (const u8 *)&rule->mask;
	bool matches = ether_matches(rule, key);
	struct ether_walk walk = { .taken = NULL };
	enum ether_verdict first = ether_judge(&walk, rule, key);

	for (size_t i = 0; i < sizeof(rule->value); i++)
		fuzz_need((value[i] & ~mask[i]) == 0, "a value beyond its mask");
	fuzz_need(ether_is_same(rule, rule), "a rule is itself");
	fuzz_need(first == (matches && !rule->drops ? ETHER_DELIVER : ETHER_SKIP), "the verdict");
	if (walk.taken != NULL)
		fuzz_need(matches && ether_judge(&walk, rule, key) == first, "the same rule again");
}

static void fuzz_hash(const struct ether_key *key)
{
	static const u8 secret[RSS_KEY] = { 0x6d, 0x5a, 0x56, 0xda };

	for (u32 fields = 0; fields <= RSS_FIELDS; fields += 0x11)
		fuzz_need(rss_hash(secret, fields, key) == rss_hash(secret, fields, key), "a hash");
	fuzz_need(rss_hash(secret, 0, key) == 0, "the hash of nothing");
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct input in = { data, size };
	struct ib_flow_attr attr = fuzz_attr(&in);
	size_t length = MIN(in.left, (size_t)FRAME_MOST);
	u8 *frame = malloc(length);
	struct ether_rule rule;
	struct ether_key key;
	bool parsed;

	if (frame == NULL && length != 0)
		return 0;
	if (length != 0)
		memcpy(frame, in.at, length);
	parsed = ether_parse(frame, (u32)length, &key);
	fuzz_need(parsed == (length >= ETHER_HEADER), "a header's length");
	if (parsed) {
		fuzz_hash(&key);
		if (rule_of_attr(&attr, &rule) == 0)
			fuzz_judge(&rule, &key);
	}
	free(frame);
	return 0;
}
