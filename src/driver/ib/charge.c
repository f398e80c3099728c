/* charge.c: what data counts at the ports of its route.
 *
 * Queue pairs count what they complete as they do on every device (ibt_counters). A timer, the end
 * of a connection and the end of the process have the sums charged, so sending costs nothing.
 * Datagrams have a route each: they add to the route that address.c keeps.
 *
 * In:    sums of connections and of kept routes    Out: the fabric's counters
 * Runs:  the thread that runs timers, verbs that change a connection, exit    Locks: none
 */
#include "driver/ib/ib.h"

#include "base/clock.h"

enum {
	CHARGE_MS = 50,
	/* bytes of headers: LRH, BTH and ICRC; then what some packets have */
	CHARGE_PLAIN = 8 + 12 + 4,
	CHARGE_GRH = 40,
	CHARGE_DETH = 8,
	CHARGE_RETH = 16,
	CHARGE_AETH = 4,
};

static void hca_charge_tick(struct timer *t);

static struct {
	struct timer timer GUARDS_ITSELF;
	bool armed ATOMIC_ONLY;
} hca_charging = { .timer = { .fn = hca_charge_tick } };

static u32 hca_charge_headers(const struct path_av *av)
{
	return CHARGE_PLAIN + (av->no_grh ? 0 : CHARGE_GRH);
}

u32 hca_charge_datagram(const struct path_av *av, u32 length)
{
	return hca_charge_headers(av) + CHARGE_DETH + ((length + 3) & ~3u);
}

/* The way back of a response. */
static int hca_charge_back(const struct fabric_path *there, const struct fabric_flow *w,
			   struct fabric_path *out)
{
	struct fabric_flow back = { .slid = w->dlid, .dlid = w->slid, .pkey = w->pkey,
				    .sl = w->sl };

	return fabric_route(hca_view(), there->to, &back, out);
}

void hca_charge(struct soft_device *soft, const struct soft_way *way, const struct soft_load *load)
{
	const struct fabric_counters *c = &hca_fabric()->counters;
	struct hca_device *dev = hca_of(soft);
	struct fabric_flow w = hca_av_flow(&way->av);
	u32 headers = hca_charge_headers(&way->av);
	struct fabric_path there, back;

	if (!soft_has_port(soft, hca_av_port(&way->av)) ||
	    fabric_route(hca_view(), dev->port[hca_av_port(&way->av)].index, &w, &there) != 0)
		return;
	fabric_charge_load(c, &there,
			   &(struct fabric_load){ load->sent - load->reads,
						  load->sent_bytes - load->read_bytes, way->mtu,
						  headers });
	if (load->reads == 0)
		return;
	fabric_charge(c, &there, load->reads, load->reads * (headers + CHARGE_RETH));
	if (hca_charge_back(&there, &w, &back) == 0)
		fabric_charge_load(c, &back,
				   &(struct fabric_load){ load->reads, load->read_bytes, way->mtu,
							  headers + CHARGE_AETH });
}

void hca_charge_flow(u32 from, const struct fabric_flow *w, u64 packets, u64 bytes)
{
	struct fabric_path path;

	if (fabric_route(hca_view(), from, w, &path) == 0)
		fabric_charge(&hca_fabric()->counters, &path, packets, bytes);
}

static void hca_charge_all(void)
{
	struct hca_device *dev;

	for (u32 i = 0; (dev = hca_host_device(i)) != NULL; i++)
		soft_charge(&dev->soft);
	hca_ways_charge();
}

static bool hca_charge_goes_on(void)
{
	struct hca_device *dev;

	for (u32 i = 0; (dev = hca_host_device(i)) != NULL; i++)
		if (__atomic_load_n(&dev->soft.qp_count, __ATOMIC_RELAXED) != 0)
			return true;
	return false;
}

static void hca_charge_arm(void)
{
	struct seat *s = &the_seat;

	if (timer_arm(&s->a.timers, &hca_charging.timer, clock_now_ns() + CHARGE_MS * NS_PER_MS))
		progress_timer_kick(s);
}

/* A queue pair that is made meanwhile finds `armed` false, or is seen here. */
static void hca_charge_tick(struct timer *t)
{
	__atomic_store_n(&hca_charging.armed, false, __ATOMIC_SEQ_CST);
	hca_charge_all();
	if (hca_charge_goes_on())
		hca_charge_begin();
}

void hca_charge_begin(void)
{
	if (!__atomic_load_n(&hca_charging.armed, __ATOMIC_RELAXED) &&
	    !__atomic_exchange_n(&hca_charging.armed, true, __ATOMIC_SEQ_CST))
		hca_charge_arm();
}

/* A process may end with queue pairs. */
__attribute__((destructor)) static void hca_charge_end(void)
{
	if (hca_fabric() == NULL || !seat_is_attached(&the_seat))
		return;
	hca_charge_all();
}

void hca_charge_drop_in_child(void) NO_THREAD_SAFETY
{
	hca_charging.timer = (struct timer){ .fn = hca_charge_tick };
	hca_charging.armed = false;
}
