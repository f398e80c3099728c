/* neighbour_test.c: ibv_create_ah and ibv_modify_qp to RTR say what routes and neighbours say:
 * another host at the end of a veth pair answers for some addresses, for others nobody does.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/ib_verbs.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "own_net.h"
#include "pair.h"

enum { NB_SKIPPED = 77, NB_GIDS = 64 };

#define NB_V4 "10.97.0.1"
#define NB_V6 "fd97::1"
#define NB_LOCAL "fe80::97"
#define NB_RAIL "10.97.0.5" /* of a second link with the same subnet */

static struct nb {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ib_device *ib;
	bool has_v6, has_rails;
} n;

/* ---- this host and the other one ---- */

static int other_pid;

/* It ends with this process. False: no namespace. */
static bool nb_other_host(void)
{
	int ready[2];
	char byte;
	bool is_there;

	if (pipe2(ready, O_CLOEXEC) != 0)
		return false;
	other_pid = fork();
	if (other_pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (unshare(CLONE_NEWNET) == 0 && write(ready[1], "r", 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	is_there = other_pid > 0 && read(ready[0], &byte, 1) == 1;
	close(ready[0]);
	return is_there;
}

static bool nb_host(void)
{
	char command[1024];

	if (!own_net_enter() || !nb_other_host())
		return false;
	snprintf(command, sizeof(command),
		 "ip link set lo up && ip link add va type veth peer name vb && "
		 "ip link set va addrgenmode none; ip link set vb netns %d && "
		 "ip addr add " NB_V4 "/24 dev va && ip addr add 10.97.0.4/24 dev va && "
		 "ip link set va up && "
		 "nsenter -t %d -n ip addr add 10.97.0.2/24 dev vb && "
		 "nsenter -t %d -n ip addr add fd97::2/64 dev vb nodad; "
		 "nsenter -t %d -n ip link set vb up && "
		 "ip route add 198.51.100.0/24 via 10.97.0.2 && "
		 "ip route add 198.51.101.0/24 via 10.97.0.77 && "
		 "ip route add unreachable 198.51.102.0/24 && "
		 "ip route add blackhole 198.51.103.0/24",
		 other_pid, other_pid, other_pid, other_pid);
	if (system(command) != 0)
		return false;
	n.has_v6 = system("ip addr add " NB_V6 "/64 dev va nodad 2>/dev/null && "
			  "ip addr add " NB_LOCAL "/64 dev va nodad 2>/dev/null") == 0;
	/* A rule for the source, as hosts with two rails have it: the main table has the first. */
	snprintf(command, sizeof(command),
		 "ip link add wa type veth peer name wb && ip link set wb netns %d && "
		 "ip addr add " NB_RAIL "/24 dev wa && ip link set wa up && "
		 "nsenter -t %d -n ip addr add 10.97.0.6/24 dev wb && "
		 "nsenter -t %d -n ip link set wb up && "
		 "ip route add 10.97.0.0/24 dev wa table 97 && "
		 "ip rule add from " NB_RAIL " lookup 97 2>/dev/null",
		 other_pid, other_pid, other_pid);
	n.has_rails = system(command) == 0;
	return true;
}

/* A state that lasts until the test ends. */
static void nb_know(const char *address, const char *state)
{
	char command[160];

	snprintf(command, sizeof(command),
		 "ip neigh replace %s lladdr 02:00:00:00:00:99 dev va nud %s", address, state);
	assert_int_equal(system(command), 0);
}

/* ---- the verbs ---- */

static union ibv_gid nb_gid(const char *text)
{
	union ibv_gid gid = { .raw = { [10] = 0xff, [11] = 0xff } };

	assert_int_equal(strchr(text, ':') != NULL ? inet_pton(AF_INET6, text, gid.raw)
						   : inet_pton(AF_INET, text, gid.raw + 12),
			 1);
	return gid;
}

static struct ibv_ah_attr nb_vector(const char *from, const char *to)
{
	union ibv_gid source = nb_gid(from), gid;

	for (int i = 0; i < NB_GIDS && ibv_query_gid(n.ctx, 1, i, &gid) == 0; i++)
		if (memcmp(&gid, &source, sizeof(gid)) == 0)
			return (struct ibv_ah_attr){ .is_global = 1,
						     .port_num = 1,
						     .grh = { .dgid = nb_gid(to),
							      .sgid_index = (uint8_t)i,
							      .hop_limit = 64 } };
	fail_msg("no GID %s", from);
	return (struct ibv_ah_attr){ .port_num = 0 };
}

static int nb_handle(const char *from, const char *to)
{
	struct ibv_ah_attr attr = nb_vector(from, to);
	struct ibv_ah *ah;

	errno = 0;
	ah = ibv_create_ah(n.pd, &attr);
	if (ah == NULL)
		return errno;
	assert_int_equal(ibv_destroy_ah(ah), 0);
	return 0;
}

static struct ibv_qp *nb_qp(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = n.cq, .recv_cq = n.cq, .qp_type = type, .cap = { 1, 1, 1, 1, 0 }
	};
	struct ibv_qp *qp = ibv_create_qp(n.pd, &init);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	assert_non_null(qp);
	assert_int_equal(
		ibv_modify_qp(qp, &a,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	return qp;
}

static int nb_rtr(struct ibv_qp *qp, const char *from, const char *to)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR,
				 .path_mtu = IBV_MTU_1024,
				 .dest_qp_num = 17,
				 .max_dest_rd_atomic = 1,
				 .min_rnr_timer = 12,
				 .ah_attr = nb_vector(from, to) };

	return ibv_modify_qp(qp, &a,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN |
				     (qp->qp_type == IBV_QPT_UC
					      ? 0
					      : IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
}

static enum ibv_qp_state nb_state(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	assert_int_equal(ibv_query_qp(qp, &a, IBV_QP_STATE, &init), 0);
	return a.qp_state;
}

/* Both calls, of every connected type that is made without an XRC domain. */
static void nb_expect(const char *from, const char *to, int wanted)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_XRC_SEND };
	int got = nb_handle(from, to);

	if (got != wanted)
		fail_msg("ibv_create_ah from %s to %s: %d, not %d", from, to, got, wanted);
	for (unsigned i = 0; i < sizeof(types) / sizeof(*types); i++) {
		struct ibv_qp *qp = nb_qp(types[i]);

		got = nb_rtr(qp, from, to);
		if (got != wanted)
			fail_msg("RTR of type %d from %s to %s: %d, not %d", types[i], from, to,
				 got, wanted);
		assert_int_equal(nb_state(qp), wanted == 0 ? IBV_QPS_RTR : IBV_QPS_INIT);
		assert_int_equal(ibv_destroy_qp(qp), 0);
	}
}

/* ---- tests ---- */

/* With ANYVERBS_PATHS=shm no packet goes to another host, and nobody asks for one. */
static int nb_unless_local(int error)
{
	const char *paths = getenv("ANYVERBS_PATHS");

	return paths != NULL && strcmp(paths, "shm") == 0 ? 0 : error;
}

/* The first of all tests: a process has sockets from its first queue pair on. */
static void neighbour__before_the_first_queue_pair(void **state)
{
	(void)state;
	assert_int_equal(nb_handle(NB_V4, "10.97.0.76"), nb_unless_local(ETIMEDOUT));
	assert_int_equal(nb_handle(NB_V4, "203.0.113.7"), nb_unless_local(ENETUNREACH));
	assert_int_equal(nb_handle(NB_V4, "198.51.102.7"), nb_unless_local(EHOSTUNREACH));
	assert_int_equal(nb_handle(NB_V4, "10.97.0.2"), 0);
	assert_int_equal(nb_handle(NB_V4, NB_V4), 0);
	assert_int_equal(nb_handle(NB_V4, "10.97.0.4"), 0);
}

static void neighbour__that_answers(void **state)
{
	(void)state;
	nb_expect(NB_V4, "10.97.0.2", 0);
	nb_expect(NB_V4, "198.51.100.7", 0); /* behind a gateway that does */
}

static void neighbour__that_does_not_answer(void **state)
{
	(void)state;
	nb_expect(NB_V4, "10.97.0.77", nb_unless_local(ETIMEDOUT));
	nb_expect(NB_V4, "198.51.101.7", nb_unless_local(ETIMEDOUT));
}

static void neighbour__no_route(void **state)
{
	(void)state;
	nb_expect(NB_V4, "203.0.113.7", nb_unless_local(ENETUNREACH));
	nb_expect(NB_V4, "198.51.102.7", nb_unless_local(EHOSTUNREACH));
	nb_expect(NB_V4, "198.51.103.7",
		  0); /* the kernel says EINVAL, which is no word of the peer */
}

static void neighbour__known_in_every_state(void **state)
{
	static const char *const states[] = { "permanent", "noarp", "reachable",
					      "stale",	   "delay", "probe" };
	char address[32];

	(void)state;
	for (unsigned i = 0; i < sizeof(states) / sizeof(*states); i++) {
		snprintf(address, sizeof(address), "10.97.0.%u", 100 + i);
		nb_know(address, states[i]);
		assert_int_equal(nb_handle(NB_V4, address), 0);
	}
}

static void neighbour__none_is_asked_for_this_host(void **state)
{
	(void)state;
	nb_expect(NB_V4, NB_V4, 0);
	nb_expect(NB_V4, "10.97.0.4", 0); /* no GID of this node: another one may have it */
	nb_expect(NB_V4, "127.0.0.1", 0);
	assert_int_equal(nb_handle(NB_V4, "239.1.2.3"), 0);
}

static void neighbour__of_ipv6(void **state)
{
	(void)state;
	if (!n.has_v6)
		skip();
	nb_expect(NB_V6, "fd97::2", 0);
	nb_expect(NB_V6, "fd97::77", nb_unless_local(ETIMEDOUT));
	nb_expect(NB_V6, "2001:db8::7", nb_unless_local(ENETUNREACH));
	nb_expect(NB_LOCAL, "fe80::7777", nb_unless_local(ETIMEDOUT));
	nb_expect(NB_LOCAL, NB_LOCAL, 0);
}

/* Linux compares the two before it looks for a route, also to an address of this host. A group has
 * no neighbour. */
static void neighbour__of_another_family(void **state)
{
	(void)state;
	nb_expect(NB_V4, "fd97::2", EINVAL);
	nb_expect(NB_V4, "2001:db8::7", EINVAL);
	assert_int_equal(nb_handle(NB_V4, "ff0e::97"), 0);
	if (!n.has_v6)
		skip();
	nb_expect(NB_V4, NB_V6, EINVAL);
	nb_expect(NB_V4, NB_LOCAL, EINVAL);
	nb_expect(NB_V6, NB_V4, EINVAL);
	nb_expect(NB_LOCAL, NB_V4, EINVAL);
	nb_expect(NB_V6, "10.97.0.2", EINVAL);
	nb_expect(NB_V6, NB_LOCAL, 0);
	assert_int_equal(nb_handle(NB_V6, "239.1.2.3"), 0);
}

/* Asked by the link that the route names, whatever the main table says. */
static void neighbour__of_the_second_link(void **state)
{
	if (!n.has_rails)
		skip();
	nb_expect(NB_RAIL, "10.97.0.6", 0);
	nb_expect(NB_RAIL, "10.97.0.66", nb_unless_local(ETIMEDOUT));
}

/* What failed may be tried again, with another peer or when the same one is there. */
static void neighbour__that_comes_later(void **state)
{
	struct ibv_qp *qp = nb_qp(IBV_QPT_RC);

	(void)state;
	assert_int_equal(nb_rtr(qp, NB_V4, "10.97.0.78"), nb_unless_local(ETIMEDOUT));
	nb_know("10.97.0.78", "permanent");
	if (nb_state(qp) == IBV_QPS_INIT)
		assert_int_equal(nb_rtr(qp, NB_V4, "10.97.0.78"), 0);
	assert_int_equal(nb_state(qp), IBV_QPS_RTR);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

/* What no verb takes is refused as ever, without a wait. */
static void neighbour__of_no_vector(void **state)
{
	struct ibv_ah_attr attr = nb_vector(NB_V4, "10.97.0.77");
	struct ibv_qp *qp = nb_qp(IBV_QPT_RC);

	(void)state;
	attr.grh.sgid_index = 0xff;
	assert_null(ibv_create_ah(n.pd, &attr));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(nb_rtr(qp, NB_V4, "239.1.2.3"), EINVAL);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

/* ---- the midlayer's consumers, who may not sleep ---- */

static void nb_add(struct ib_device *dev)
{
	if (n.ib == NULL)
		n.ib = dev;
}

static void nb_remove(struct ib_device *dev)
{
	(void)dev;
}

static void consumers__ask_for_no_neighbour(void **state)
{
	static struct ib_client client = { .name = "neighbour",
					   .add = nb_add,
					   .remove = nb_remove };
	struct ibv_ah_attr vector = nb_vector(NB_V4, "10.97.0.77");
	struct ib_ah_attr attr = { .ah_flags = IB_AH_GRH, .port_num = 1 };
	struct ib_pd *pd;
	struct ib_ah *ah;

	(void)state;
	assert_int_equal(ib_register_client(&client), 0);
	assert_non_null(n.ib);
	pd = ib_alloc_pd(n.ib);
	assert_false(IS_ERR(pd));
	attr.grh.sgid_index = vector.grh.sgid_index;
	attr.grh.hop_limit = 64;
	memcpy(attr.grh.dgid.raw, vector.grh.dgid.raw, 16);
	ah = ib_create_ah(pd, &attr);
	assert_false(IS_ERR(ah));
	assert_int_equal(ib_destroy_ah(ah), 0);
	assert_int_equal(ib_dealloc_pd(pd), 0);
	ib_unregister_client(&client);
}

/* ---- all ---- */

static int nb_setup(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	(void)state;
	assert_non_null(list);
	assert_non_null(list[0]);
	n.ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	assert_non_null(n.ctx);
	n.pd = ibv_alloc_pd(n.ctx);
	n.cq = ibv_create_cq(n.ctx, 16, NULL, NULL, 0);
	return n.pd == NULL || n.cq == NULL;
}

static int nb_teardown(void **state)
{
	(void)state;
	assert_int_equal(ibv_destroy_cq(n.cq), 0);
	assert_int_equal(ibv_dealloc_pd(n.pd), 0);
	assert_int_equal(ibv_close_device(n.ctx), 0);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(neighbour__before_the_first_queue_pair),
		cmocka_unit_test(neighbour__that_answers),
		cmocka_unit_test(neighbour__that_does_not_answer),
		cmocka_unit_test(neighbour__no_route),
		cmocka_unit_test(neighbour__known_in_every_state),
		cmocka_unit_test(neighbour__none_is_asked_for_this_host),
		cmocka_unit_test(neighbour__of_ipv6),
		cmocka_unit_test(neighbour__of_another_family),
		cmocka_unit_test(neighbour__of_the_second_link),
		cmocka_unit_test(neighbour__that_comes_later),
		cmocka_unit_test(neighbour__of_no_vector),
		cmocka_unit_test(consumers__ask_for_no_neighbour),
	};

	if (!nb_host()) {
		fprintf(stderr, "SKIPPED: no network namespace with a veth pair can be made\n");
		return NB_SKIPPED;
	}
	pair_supervise();
	setenv("ANYVERBS_ADDR",
	       n.has_v6 ? NB_V4 "," NB_RAIL "," NB_V6 "," NB_LOCAL : NB_V4 "," NB_RAIL, 1);
	return cmocka_run_group_tests(tests, nb_setup, nb_teardown);
}
