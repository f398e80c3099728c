/* umad_test.c: every call of libibumad of a forked child on a port of its parent and its agents.
 * In:    the first port that there is    Out: the exit status
 * Runs:  one thread; a child for each call    Locks: none
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/umad.h>

#include "inherit.h"

enum { CLASS = 0x0a, VERSION = 1, MAD = 256, WAIT_MS = 20000, QUICKLY_MS = 50 };

int umad_open_smi_port(const char *ca_name, int portnum);

static char name[UMAD_CA_NAME_LEN];
static int port, agent, agent2, client; /* client: sends to `agent` */
static umad_port_t there;
static union ibv_gid gid; /* on Ethernet: one that leads over UDP, too */
static void *buffer;

static int open_port(void)
{
	return umad_open_port(name, 1);
}

static int register_on(int on, int class)
{
	long methods[16 / sizeof(long)] = { 1 << 1 }; /* Get */

	return umad_register(on, class, VERSION, 0, methods);
}

/* A request to an agent of this process. */
static int send_class(int on, int from, uint8_t class)
{
	uint8_t *mad = umad_get_mad(buffer);

	memset(buffer, 0, umad_size() + MAD);
	umad_set_addr(buffer, (int)there.base_lid, 1, 0, 0x80010000);
	if (strcmp(there.link_layer, "InfiniBand") != 0) {
		ib_mad_addr_t grh = { .gid_index = 1, .hop_limit = 64 };

		memcpy(grh.gid, gid.raw, sizeof(grh.gid));
		umad_set_grh(buffer, &grh);
	}
	mad[0] = 1;
	mad[1] = class;
	mad[2] = VERSION;
	mad[3] = 1;
	return umad_send(on, from, buffer, MAD, WAIT_MS, 0);
}

static int send_to(int on, int from)
{
	return send_class(on, from, CLASS);
}

static int receive(int on, int timeout_ms)
{
	int length = MAD;

	return umad_recv(on, buffer, &length, timeout_ms);
}

static void bed_make(void)
{
	must(umad_init() == 0);
	must(umad_get_cas_names((char(*)[UMAD_CA_NAME_LEN])name, 1) >= 1);
	must(umad_get_port(name, 1, &there) == 0);
	must(ibv_query_gid(device_open(name), 1, 1, &gid) == 0 ||
	     strcmp(there.link_layer, "InfiniBand") == 0);
	buffer = umad_alloc(1, umad_size() + MAD);
	port = open_port();
	must(port >= 0 && buffer != NULL);
	agent = register_on(port, CLASS);
	agent2 = register_on(port, CLASS + 1);
	client = umad_register(port, CLASS, VERSION, 0, NULL);
	must(agent >= 0 && agent2 >= 0 && client >= 0);
}

/* A request and its answer go from agent to agent of one port. 0, or a negative errno. */
static int exchange(int on, int from, int to, uint8_t class)
{
	int got = send_class(on, from, class);

	if (got == 0)
		got = receive(on, WAIT_MS);
	if (got != to || umad_status(buffer) != 0)
		return got < 0 ? got : -EIO;
	((uint8_t *)umad_get_mad(buffer))[3] |= 0x80;
	got = umad_send(on, to, buffer, MAD, 0, 0);
	if (got == 0)
		got = receive(on, WAIT_MS);
	if (got != from || umad_status(buffer) != 0)
		return got < 0 ? got : -EIO;
	return 0;
}

static void bed_works(const char *after)
{
	int got = exchange(port, client, agent, CLASS);

	if (got != 0)
		fprintf(stderr, "the parent's agent after %s: %d\n", after, got);
	must(got == 0);
}

static void bed_attach(void)
{
	int own = open_port(), id;

	must(own >= 0);
	id = register_on(own, CLASS + 2);
	must(id >= 0 && umad_unregister(own, id) == 0 && umad_close_port(own) == 0);
}

static int register2(void)
{
	struct umad_reg_attr attr = { .mgmt_class = CLASS + 3, .mgmt_class_version = VERSION };
	uint32_t id;

	return umad_register2(port, &attr, &id);
}

static int register_oui(void)
{
	uint8_t oui[3] = { 0, 2, 0xc9 };

	return umad_register_oui(port, 0x30, 0, oui, NULL);
}

/* A file of the child's own works as any. */
static int own_port(void)
{
	int on = open_port(), to = on < 0 ? on : register_on(on, CLASS + 4), from, err;

	if (to < 0)
		return to;
	from = umad_register(on, CLASS + 4, VERSION, 0, NULL);
	err = from < 0 ? from : exchange(on, from, to, CLASS + 4);
	return err != 0 ? err : umad_unregister(on, to) + umad_close_port(on);
}

static void calls(void)
{
	umad_port_t p;
	umad_ca_t ca;
	__be64 guids[4];

	inherit_about("port");
	CALL(0, umad_get_fd(port) >= 0 ? 0 : EBADF);
	CALL(EIO, send_to(port, client));
	CALL(EIO, receive(port, 0));
	CALL(EIO, receive(port, QUICKLY_MS));
	CALL(EIO, receive(port, -1));
	CALL(0, umad_poll(port, 0));
	CALL(0, umad_poll(port, -1));
	CALL(EPERM, register_on(port, CLASS + 5) < 0 ? EPERM : 0);
	CALL(EIO, register2());
	CALL(EPERM, register_oui() < 0 ? EPERM : 0);
	CALL(EINVAL, umad_unregister(port, agent));
	CALL(EINVAL, umad_unregister(port, agent2));
	CALL(0, umad_close_port(port));
	CALL(0, umad_close_port(port) + own_port());
	CALL(0, own_port());
	CALL(0, umad_get_port(name, 1, &p));
	CALL(0, umad_release_port(&there));
	CALL(0, umad_get_ca(name, &ca));
	CALL(0, umad_get_ca_portguids(name, guids, 4) > 0 ? 0 : EIO);
	CALL(ANY, umad_get_ca_device_list());
	CALL(ANY, umad_open_smi_port(name, 1) < 0 ? ENODEV : 0);
	CALL(0, umad_init());
	CALL(0, umad_done());
}

int main(void)
{
	static const struct inherit_bed kit = {
		.last = GRANDCHILD, .attach = bed_attach, .works = bed_works
	};
	int status;

	bed_make();
	status = inherit_run(&kit, calls);
	must(umad_unregister(port, agent) == 0 && umad_close_port(port) == 0);
	return status;
}
