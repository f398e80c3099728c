"""rows.py: what bench/run measures, and against what. Data only; measure.py knows how a figure is taken.

A row's limit is taken before and after ours, on the same cores. Units: us (less is better), MiB/s and M/s (messages;
more is better).
"""
import collections

import counts

LATENCY, BANDWIDTH, RATE = "us", "MiB/s", "M/s"

# ---- where a figure comes from ----

# A probe of limits.c or netlimits.c. where: "host", or "guest", in the emulated machine.
Raw = collections.namedtuple("Raw", "name where", defaults=["host"])
# Debian's perftest over anyverbs. where: "host", between two processes of this host; "across", between two nodes; "lossy",
# over the wire of test/across/wire.c, which loses that share of the packets; "guest" and "rxe", in an emulated machine, over
# anyverbs by UDP or over Linux's rxe, looped back there; "one core", both on the first core of this host;
# "fabric", ib0 of two hosts behind a switch, by LID. pairs: so many
# servers and clients at once, of which the figures are added up.
Perftest = collections.namedtuple("Perftest", "tool size iters args where loss pairs", defaults=[(), "host", 0, 1])
# What somebody wants to see, in the unit of the row.
Wanted = collections.namedtuple("Wanted", "value")
# Debian's ucx_perftest over its own shared memory, or over anyverbs (rc_v). own: memory that UCX allocates itself. born: with
# ANYVERBS_BORN_SHARED, and its buffers from malloc.
Ucx = collections.namedtuple("Ucx", "test size iters tls own born", defaults=["shm,self", False, False])

# Two ranks of Open MPI (mpi.c). over: "rc_v", UCX over anyverbs; "vader", Open MPI's own shared memory. born: likewise. rndv: from
# so many bytes on UCX shall use its rendezvous; 0: as it likes.
Mpi = collections.namedtuple("Mpi", "size iters over born rndv", defaults=[False, 0])

# Debian's rstream over anyverbs' rsockets, or over TCP on loopback (its own -T s); both poll without sleeping.
Rstream = collections.namedtuple("Rstream", "size iters sockets", defaults=[False])

# iperf3 over TCP on loopback, or the same by `anyverbs run --rsockets`.
Iperf = collections.namedtuple("Iperf", "ms rsockets", defaults=[False])

# libfabric's fi_pingpong, reliable datagrams, in a network namespace with an interface: its verbs provider takes no loopback one.
FiPingpong = collections.namedtuple("FiPingpong", "provider size iters")

# name: what --only takes. group: what --group takes. target: a ratio; None: only reported.
Row = collections.namedtuple("Row", "name group title unit ours limit target")
# A fixed limit, in its unit, instead of something to compare with. program: one of our own clients with its arguments, on a
# node of its own; key: which of the lines that it prints. node: "warm", it runs already; "cold", the client starts it;
# "across": a server and a client, between two nodes.
Fixed = collections.namedtuple("Fixed", "name group title unit target program key node", defaults=["warm"])
# Instructions per message of a kind of messages.c: what is stored is the limit.
Count = collections.namedtuple("Count", "name group title unit target kind")

NET_PROBES = ("udp_stream", "tcp_stream", "udp_pingpong", "udp_woken")


def latency(tool, size=8, *args, **more):
    return Perftest(tool, size, 20000 if more.get("where", "host") == "host" else 4000, args, **more)


def bandwidth(tool, size=1 << 20, *args, **more):
    return Perftest(tool, size, max(2000, min(20000, (2000 << 20) // size)), args, **more)


def rate(tool, *args, size=8, iters=200000):
    return Perftest(tool, size, iters, args)


WRITE_LAT = latency("ib_write_lat")
ACROSS = {"where": "across"}
UDP_WRITE_BW = bandwidth("ib_write_bw", 1 << 20, **ACROSS)
# Requests handed over 16 at a time, with one completion.
LISTS = ("-l", "16", "-Q", "16")
# ucx_perftest warms up and perftest does not: so many messages that the first ones, before memory is mapped, do not count.
MANY = 2000000

SPINE = [
    Row("send_lat", "spine", "ib_send_lat 8 B", LATENCY, latency("ib_send_lat"), Raw("mailbox"), 3.0),
    Row("write_lat", "spine", "ib_write_lat 8 B", LATENCY, WRITE_LAT, Raw("writev8"), 1.5),
    Row("send_bw", "spine", "ib_send_bw 1 MiB", BANDWIDTH, bandwidth("ib_send_bw"), Raw("writev1m"), 0.8),
    Row("write_bw", "spine", "ib_write_bw 1 MiB", BANDWIDTH, bandwidth("ib_write_bw"), Raw("writev1m"), 0.8),
    Fixed("qp_memory", "spine", "idle RC QP, beside its rings", "bytes", 2112, ("footprint",), "footprint"),
    Fixed("first_warm", "spine", "first completion, node up", "ms", 50, ("first",), "first"),
    Fixed("first_cold", "spine", "first completion, node starts", "ms", 300, ("first",), "first", "cold"),
]
WIRE = [
    Row("udp_send_lat", "wire", "UDP: ib_send_lat 8 B", LATENCY, latency("ib_send_lat", **ACROSS), Raw("udp_pingpong"),
        1.5),
    Row("udp_write_lat", "wire", "UDP: ib_write_lat 8 B", LATENCY, latency("ib_write_lat", **ACROSS), Raw("udp_woken"),
        None),
    Row("udp_write_bw", "wire", "UDP: ib_write_bw 1 MiB", BANDWIDTH, UDP_WRITE_BW, Raw("udp_stream"), 0.5),
    Row("udp_write_bw_tcp", "wire", "the same, against TCP", BANDWIDTH, UDP_WRITE_BW, Raw("tcp_stream"), 1.0),
    Row("lossy_write_bw", "wire", "ib_write_bw 64 KiB, 0.1 % lost", BANDWIDTH,
        Perftest("ib_write_bw", 1 << 16, 4000, where="lossy", loss=0.001),
        Perftest("ib_write_bw", 1 << 16, 4000, where="lossy"), 0.5),
    Fixed("thousand_qps", "wire", "1,000 QPs, most against least", "x", 2.0,
          ("peers", "-m", "many", "-q", "1000", "-s", "2"), "unfair", "across"),
]
ONE_QP = rate("ib_write_bw", size=64, iters=2000000)
PEERS = [
    Row("write_lat_mailbox", "peers", "ib_write_lat 8 B", LATENCY, WRITE_LAT, Raw("mailbox"), 2.0),
    Row("write_lat_ucx", "peers", "ib_write_lat 8 B", LATENCY, WRITE_LAT, Ucx("ucp_put_lat", 8, 200000), 1.0),
    Row("send_lat_ucx", "peers", "ib_send_lat 8 B", LATENCY, latency("ib_send_lat"), Ucx("tag_lat", 8, 200000), 1.5),
    Row("send_lat_4k_ucx", "peers", "ib_send_lat 4 KiB", LATENCY, latency("ib_send_lat", 4096),
        Ucx("tag_lat", 4096, 100000), 1.2),
    Row("read_lat", "peers", "ib_read_lat 8 B", LATENCY, latency("ib_read_lat"), WRITE_LAT, 1.5),
    Row("atomic_lat", "peers", "ib_atomic_lat", LATENCY, latency("ib_atomic_lat"), WRITE_LAT, 1.5),
    Row("send_rate_ucx", "peers", "ib_send_bw 8 B, lists", RATE, rate("ib_send_bw", *LISTS, iters=MANY),
        Ucx("ucp_am_bw", 8, MANY), 1.0),
    Row("write_rate_ucx", "peers", "ib_write_bw 8 B, lists", RATE, rate("ib_write_bw", *LISTS, iters=MANY),
        Ucx("ucp_put_bw", 8, MANY, own=True), 0.5),
    Row("event_lat", "peers", "ib_send_lat -e 8 B", LATENCY, latency("ib_send_lat", 8, "-e"), Raw("eventfd"), 1.3),
    # Long enough that what happens once for each queue pair does not count.
    Row("many_qps", "peers", "ib_write_bw 64 B, 4,096 QPs", RATE, rate("ib_write_bw", "-q", "4096", size=64, iters=2000),
        ONE_QP, 0.8),
    Row("many_qps_512", "peers", "ib_write_bw 64 B, 512 QPs", RATE, rate("ib_write_bw", "-q", "512", size=64, iters=5000),
        ONE_QP, 0.8),
]
PEERS += [
    Row("ib0_send_lat", "peers", "ib0: ib_send_lat 8 B", LATENCY, Perftest("ib_send_lat", 8, 20000, where="fabric"),
        latency("ib_send_lat"), 1.1),
    Row("one_core_lat", "peers", "ib_send_lat 8 B, one core", LATENCY,
        Perftest("ib_send_lat", 8, 20000, where="one core"), Wanted(5.0), 1.0),
    Row("four_rate", "peers", "ib_send_bw 64 B, 4 on 2 cores", RATE, Perftest("ib_send_bw", 64, 400000, pairs=2),
        Perftest("ib_send_bw", 64, 800000), 0.7),
    Row("four_bw", "peers", "ib_write_bw 64 KiB, 4 on 2 cores", BANDWIDTH, Perftest("ib_write_bw", 1 << 16, 10000, pairs=2),
        Perftest("ib_write_bw", 1 << 16, 20000), 0.7),
]
# Signalled requests wake their sender, too: a completion more in each round.
for _busy, _more, _target in ((0, "", 1.5), (2, ", beside 2 busy", 2.0)):
    for _key, _text in (("send", "SEND"), ("imm", "WRITE with immediate")):
        PEERS.append(Fixed(f"asleep_{_key}" + ("_busy" if _busy else ""), "peers", f"{_text} unsignalled, asleep{_more}", "x",
                           _target, ("asleep", str(_busy)), f"{_key}_rarely"))
# Memory of malloc, beside the same with ANYVERBS_DIRECT=0: means over sizes and lists, and the cells that people meet.
for _key, _text, _target in (("write_asleep", "WRITEs, target asleep", 1.1), ("write_polls", "WRITEs, target polls", 1.25),
                             ("read_asleep", "READs, target asleep", 1.1), ("read_polls", "READs, target polls", 1.25),
                             ("write_asleep_1024_64", "lists of 64 WRITEs of 1 KiB", 1.1),
                             ("write_shared_8_1", "WRITE 8 B, 8 clients", None)):
    PEERS.append(Fixed(f"heap_{_key}", "peers", f"heap: {_text}, in packets'", "x", _target, ("heap",), _key))
for _size, _text in ((1 << 16, "64 KiB"), (1 << 20, "1 MiB")):
    _iters = (4000 << 20) // _size // 4
    for _tool, _test, _name, _peers in (
            ("ib_write_bw", "ucp_put_bw", "write_bw", (("own", {"own": True}, 0.8), ("user", {}, 1.5))),
            ("ib_send_bw", "tag_bw", "send_bw", (("tag", {}, 2.0), ("posix", {"tls": "posix,self"}, 1.0)))):
        for _peer, _how, _target in _peers:
            PEERS.append(Row(f"{_name}_{_text.split()[0]}_{_peer}", "peers", f"{_tool} {_text}", BANDWIDTH,
                             Perftest(_tool, _size, 6 * _iters), Ucx(_test, _size, _iters, **_how), _target))
for _test, _size, _unit, _target in (("tag_lat", 8, LATENCY, None), ("ucp_put_lat", 8, LATENCY, 2.5),
                                     ("tag_bw", 1 << 20, BANDWIDTH, None)):
    PEERS.append(Row(f"rc_v_{_test}", "peers", f"UCX {_test} {_size} B by rc_v", _unit,
                     Ucx(_test, _size, 200000 if _size == 8 else 1000, "rc_v,self"),
                     Ucx(_test, _size, 200000 if _size == 8 else 2000), _target))

for _name, _size, _text, _unit, _iters in (("lat", 8, "8 B", LATENCY, 100000), ("lat_1m", 1 << 20, "1 MiB", LATENCY, 4000),
                                           ("bw_1m", 1 << 20, "1 MiB", BANDWIDTH, 8000)):
    PEERS.append(Row(f"mpi_{_name}", "peers", f"Open MPI {_text} by rc_v", _unit, Mpi(_size, _iters, "rc_v"),
                     Mpi(_size, _iters, "vader"), None))

# The same in memory that is born shared.
for _test, _name in (("tag_bw", "tag"), ("ucp_put_bw", "put")):
    PEERS.append(Row(f"born_{_name}_bw", "peers", f"UCX {_test} 1 MiB, born", BANDWIDTH,
                     Ucx(_test, 1 << 20, 4000, "rc_v,self", born=True), Ucx(_test, 1 << 20, 2000), None))
for _name, _size, _text, _iters, _rndv in (("1m", 1 << 20, "1 MiB", 8000, 0), ("64k", 1 << 16, "64 KiB", 40000, 0),
                                           ("64k_rndv", 1 << 16, "64 KiB rndv", 80000, 1 << 14)):
    PEERS.append(Row(f"born_mpi_bw_{_name}", "peers", f"Open MPI {_text}, born", BANDWIDTH,
                     Mpi(_size, _iters, "rc_v", True, _rndv), Mpi(_size, _iters, "vader"), None))

TAGS = [
    Fixed("tag_eager", "tags", "8 B eager, expected, in plain SRQ's", "x", 1.25, ("tags",), "eager_ratio"),
    Fixed("tag_list", "tags", "found behind 10 to 50,000 tags", "x", 1.2, ("tags",), "list_ratio"),
    Fixed("tag_rendezvous", "tags", "READs of 1 MiB, in rendezvous", "x", 1.11, ("tags",), "rendezvous_ratio"),
]
SCALE = [
    Fixed("reg_4k", "scale", "ibv_reg_mr of 4 KiB", "us", 2, ("scale", "registration"), "reg_4k"),
    Fixed("reg_1g", "scale", "ibv_reg_mr of 1 GiB, in copies of it", "x", 1, ("scale", "registration"), "reg_1g_copies"),
    Fixed("reg_1g_time", "scale", "the same, which is not adopted", "ms", 1, ("scale", "registration"), "reg_1g"),
    Fixed("reg_million", "scale", "each of 1,000,000 regions", "us", 2, ("scale", "registration"), "reg_million"),
    Fixed("idle_qps", "scale", "a message beside 100,000 idle QPs", "x", 1.1, ("scale", "idle"), "idle_ratio"),
]
# A target of one over 5,000 is 5,000 connections a second.
CONNECTIONS = [
    Fixed("conn_connect", "connections", "rdma_connect, 5,000 RC QPs", "us", 200, ("connections", "rate"), "connect"),
    Fixed("conn_whole", "connections", "from rdma_create_id on, QP too", "us", 200, ("connections", "rate"), "whole"),
    Fixed("conn_tcp", "connections", "rdma_connect, in TCP's connects", "x", 3, ("connections", "rate"), "connect_per_tcp"),
    Fixed("conn_memory", "connections", "established id, beside its QP", "bytes", 4096, ("connections", "memory"), "larger_id"),
    Fixed("conn_listeners", "connections", "a request beside 10,000 listeners", "x", 1.1, ("connections", "listeners"),
          "listeners_ratio"),
]
RSOCKETS = [
    Row("rs_bw", "rsockets", "rstream 64 KiB", BANDWIDTH, Rstream(1 << 16, 10000), Rstream(1 << 16, 10000, True), 3.0),
    Row("rs_lat", "rsockets", "rstream 8 B", LATENCY, Rstream(8, 20000), Rstream(8, 20000, True), 0.2),
    Row("rs_iperf", "rsockets", "iperf3 --rsockets", BANDWIDTH, Iperf(2000, True), Iperf(2000), 2.0),
    Row("fi_rdm_lat", "rsockets", "fi_pingpong rdm 8 B, rxm", LATENCY, FiPingpong("verbs;ofi_rxm", 8, 20000),
        FiPingpong("shm", 8, 20000), None),
    Fixed("rs_poll", "rsockets", "a wake-up, 1,000 in rpoll, in poll's", "x", 1.5, ("rpoll",), "rpoll_per_poll"),
]
# The calls of Linux 6.1 over the verbs, in one process.
CONSUMER = [
    Fixed("cq_direct", "consumer", "ib_process_cq_direct, in ib_poll_cq's", "x", 1.1, ("consumer",), "process_direct_ratio"),
    Fixed("rw", "consumer", "rdma_rw of 4 KiB, in READs", "x", 1.1, ("consumer",), "rw_ratio"),
    Fixed("rw_registered", "consumer", "the same, registered", "x", 1.3, ("consumer",), "rw_registered_ratio"),
]
RXE = [Row(f"rxe_{_name}", "rxe", f"guest: {_tool} {_text}", _unit, Perftest(_tool, _size, _iters, where="guest"),
           Perftest(_tool, _size, _iters, where="rxe"), 1.0)
       for _name, _tool, _size, _text, _unit, _iters in (
           ("send_lat", "ib_send_lat", 8, "8 B", LATENCY, 8000), ("write_lat", "ib_write_lat", 8, "8 B", LATENCY, 8000),
           ("send_bw", "ib_send_bw", 1 << 16, "64 KiB", BANDWIDTH, 2000),
           ("write_bw", "ib_write_bw", 1 << 16, "64 KiB", BANDWIDTH, 2000))]
# What anyverbs could reach at best there: a bare UDP ping-pong costs more than a message of rxe, which stays in the kernel.
RXE.append(Row("rxe_floor", "rxe", "guest: bare UDP 8 B, send_lat", LATENCY, Raw("udp_pingpong", "guest"),
               Perftest("ib_send_lat", 8, 8000, where="rxe"), None))

COUNTS = [Count(f"count_{_kind}", "instructions", _text, "instructions", None, _kind) for _kind, _text in counts.KINDS.items()]

ROWS = SPINE + WIRE + PEERS + TAGS + SCALE + CONNECTIONS + RSOCKETS + CONSUMER + COUNTS + RXE
GROUPS = ("spine", "wire", "peers", "tags", "scale", "connections", "rsockets", "consumer", "instructions", "rxe")


def worse_sign(row):
    """+1 where a larger figure of this row is worse, -1 where a smaller one is."""
    return -1 if row.unit in (BANDWIDTH, RATE) else +1


def limit_name(source):
    """What the table calls the other side."""
    if isinstance(source, Raw):
        return source.name
    if isinstance(source, Ucx):
        return f"UCX {source.test}" + (", its memory" if source.own else "") + \
            (f", {source.tls}" if source.tls != "shm,self" else "")
    if isinstance(source, Rstream):
        return "rstream by TCP" if source.sockets else "rstream"
    if isinstance(source, Mpi):
        return f"Open MPI {source.over}"
    if isinstance(source, Iperf):
        return "iperf3 --rsockets" if source.rsockets else "iperf3 by TCP"
    if isinstance(source, FiPingpong):
        return f"fi_pingpong {source.provider}"
    if isinstance(source, Wanted):
        return "wanted"
    if source.where == "host" and source.tool == "ib_send_lat":
        return "the same on roce0"
    if source.where in ("lossy", "rxe"):
        return "lossless" if source.where == "lossy" else "rxe"
    return source.tool + (" alone" if source.size > 8 else "")
