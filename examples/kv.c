/* kv.c: a key-value store whose clients read without the server: PUT is a message, GET is one RDMA
 * READ of the server's table.
 *
 *   cc kv.c -libverbs -lrdmacm -o kv
 *   anyverbs run ./kv &                                     the server; ends with its client
 *   anyverbs run ./kv 127.0.0.1 put color blue get color get size
 *
 * The server never hears of a GET, so it may change an entry while a client reads it. Adapters
 * promise no order inside a READ. So each entry has a checksum over its content, and a client that
 * finds it wrong reads again. That is what real stores do (Pilaf; FaRM has versions in each cache
 * line).
 *
 * Keys are found by linear probing from their hash: a client reads a few entries at once, since
 * bytes are cheaper than round trips.
 */
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 24, VALUE = 88, ENTRIES = 256, PROBES = 4, TRIES = 1000, OK = 0, FULL = 1 };
#define SERVICE "18520"

struct entry {
	char key[NAME], value[VALUE];
	uint64_t version; /* 0: free */
	uint64_t sum;	  /* over what is above */
};

struct offer {
	uint64_t address;
	uint32_t rkey;
};

/* A PUT, and its answer. An empty key says goodbye: a QP does not notice that its peer has gone,
 * and the RDMA CM tells who waits for its events only (cm_hello.c, events.c). */
struct request {
	char key[NAME], value[VALUE];
};
struct answer {
	int32_t status;
};

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

/* FNV-1a */
static uint64_t hash(const void *bytes, size_t size)
{
	uint64_t h = 0xcbf29ce484222325;

	for (size_t i = 0; i < size; i++)
		h = (h ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3;
	return h;
}

static uint64_t entry_sum(const struct entry *e)
{
	return hash(e, offsetof(struct entry, sum));
}

/* The first entry that a key may have; the next PROBES - 1 are the others. */
static uint32_t entry_first(const char *key)
{
	return (uint32_t)(hash(key, strnlen(key, NAME)) % (ENTRIES - PROBES));
}

static struct rdma_cm_id *endpoint(const char *host)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	struct rdma_cm_id *id;

	hints.ai_flags = host == NULL ? RAI_PASSIVE : 0;
	must(rdma_getaddrinfo(host, SERVICE, &hints, &found) == 0, "rdma_getaddrinfo");
	must(rdma_create_ep(&id, found, NULL, &init) == 0, "rdma_create_ep");
	rdma_freeaddrinfo(found);
	return id;
}

/* ---- the server ---- */

static struct entry table[ENTRIES];

static int store(const struct request *r)
{
	uint32_t first = entry_first(r->key);

	for (uint32_t i = first; i < first + PROBES; i++) {
		struct entry *e = &table[i], next = { .version = e->version + 1 };

		if (e->version != 0 && strncmp(e->key, r->key, NAME) != 0)
			continue;
		memcpy(next.key, r->key, NAME);
		memcpy(next.value, r->value, VALUE);
		next.sum = entry_sum(&next);
		/* A client that reads meanwhile finds a sum that does not fit. */
		memcpy(e, &next, sizeof(next));
		return OK;
	}
	return FULL;
}

static void serve(void)
{
	struct rdma_cm_id *listener = endpoint(NULL), *id;
	struct rdma_conn_param param = { .responder_resources = 4, .rnr_retry_count = 7 };
	struct request request;
	struct answer answer;
	struct ibv_mr *table_mr, *in, *out;
	struct offer offer;
	struct ibv_wc wc;
	int puts_done = 0;

	must(rdma_listen(listener, 1) == 0, "rdma_listen");
	must(rdma_get_request(listener, &id) == 0, "rdma_get_request");
	table_mr = rdma_reg_read(id, table, sizeof(table)); /* the peer may read, not write */
	in = rdma_reg_msgs(id, &request, sizeof(request));
	out = rdma_reg_msgs(id, &answer, sizeof(answer));
	must(table_mr && in && out, "registering");
	offer = (struct offer){ (uintptr_t)table, table_mr->rkey };
	param.private_data = &offer;
	param.private_data_len = sizeof(offer);
	must(rdma_post_recv(id, NULL, &request, sizeof(request), in) == 0, "rdma_post_recv");
	must(rdma_accept(id, &param) == 0, "rdma_accept");
	while (rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS &&
	       request.key[0] != '\0') {
		answer.status = store(&request);
		puts_done++;
		must(rdma_post_recv(id, NULL, &request, sizeof(request), in) == 0,
		     "rdma_post_recv");
		must(rdma_post_send(id, NULL, &answer, sizeof(answer), out, IBV_SEND_SIGNALED) ==
				     0 &&
			     rdma_get_send_comp(id, &wc) == 1,
		     "the answer");
	}
	printf("server: %d PUTs; of GETs I know nothing\n", puts_done);
	rdma_dereg_mr(table_mr);
	rdma_dereg_mr(in);
	rdma_dereg_mr(out);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

/* ---- the client ---- */

static struct rdma_cm_id *server;
static struct offer offer;

static void completed(const char *what)
{
	struct ibv_wc wc;

	must(rdma_get_send_comp(server, &wc) == 1, what);
	if (wc.status == IBV_WC_SUCCESS)
		return;
	fprintf(stderr, "%s: %s\n", what, ibv_wc_status_str(wc.status));
	exit(1);
}

static void put(const char *key, const char *value)
{
	struct request request = { "", "" };
	struct answer answer;
	struct ibv_mr *out = rdma_reg_msgs(server, &request, sizeof(request));
	struct ibv_mr *in = rdma_reg_msgs(server, &answer, sizeof(answer));
	struct ibv_wc wc;

	snprintf(request.key, NAME, "%s", key);
	snprintf(request.value, VALUE, "%s", value);
	must(in && out && rdma_post_recv(server, NULL, &answer, sizeof(answer), in) == 0, "in");
	must(rdma_post_send(server, NULL, &request, sizeof(request), out, IBV_SEND_SIGNALED) == 0,
	     "rdma_post_send");
	completed("PUT");
	if (key[0] != '\0') {
		must(rdma_get_recv_comp(server, &wc) == 1 && wc.status == IBV_WC_SUCCESS,
		     "the answer");
		printf("put %s: %s\n", key, answer.status == OK ? "ok" : "full");
	}
	rdma_dereg_mr(in);
	rdma_dereg_mr(out);
}

/* One READ brings all entries that the key may have. Those that were being changed: again. */
static void get(const char *key)
{
	struct entry seen[PROBES];
	struct ibv_mr *mr = rdma_reg_msgs(server, seen, sizeof(seen));
	uint64_t from = offer.address + entry_first(key) * sizeof(struct entry);
	int torn = 1;

	must(mr != NULL, "rdma_reg_msgs");
	for (int n = 0; torn && n < TRIES; n++) {
		must(rdma_post_read(server, NULL, seen, sizeof(seen), mr, IBV_SEND_SIGNALED, from,
				    offer.rkey) == 0, "rdma_post_read");
		completed("GET");
		torn = 0;
		for (int i = 0; i < PROBES; i++)
			torn |= seen[i].version != 0 && seen[i].sum != entry_sum(&seen[i]);
	}
	rdma_dereg_mr(mr);
	for (int i = 0; !torn && i < PROBES; i++)
		if (seen[i].version != 0 && strncmp(seen[i].key, key, NAME) == 0) {
			printf("get %s: %.*s (version %d)\n", key, VALUE, seen[i].value,
			       (int)seen[i].version);
			return;
		}
	printf("get %s: not there\n", key);
}

static void call(const char *host, int argc, char **argv)
{
	struct rdma_conn_param param = { .initiator_depth = 4, .retry_count = 7,
					 .rnr_retry_count = 7 };

	server = endpoint(host);
	must(rdma_connect(server, &param) == 0, "rdma_connect");
	memcpy(&offer, server->event->param.conn.private_data, sizeof(offer));
	for (int i = 0; i < argc;) {
		if (strcmp(argv[i], "put") == 0 && i + 2 < argc) {
			put(argv[i + 1], argv[i + 2]);
			i += 3;
		} else {
			must(strcmp(argv[i], "get") == 0 && i + 1 < argc,
			     "put KEY VALUE | get KEY");
			get(argv[i + 1]);
			i += 2;
		}
	}
	put("", "");
	rdma_disconnect(server);
	rdma_destroy_ep(server);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		call(argv[1], argc - 2, argv + 2);
	else
		serve();
	return 0;
}
