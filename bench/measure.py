"""measure.py: takes the figures that rows.py asks for. Runs programs, reads what they print; judges nothing."""
import concurrent.futures
import json
import math
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time

import counts
import rows

for _room in ("across", "clients", "interop"):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "test", _room))
import guest  # noqa: E402
import hosts  # noqa: E402
from across import ALONE, Alone  # noqa: E402
from ports import bound_by_cm, listening  # noqa: E402

TIMEOUT_S = 60  # for any one process
CLIENT_TIMEOUT_S = 120  # for our own clients: a million regions take their time
GUEST_TIMEOUT_S = 120  # there all takes longer
GUEST_TRIES = 5
GUEST_ADDRESS = "10.88.0.2"
GUEST_WAIT = """while ! grep -q ':4853 0*:0000 0A' /proc/self/net/tcp /proc/self/net/tcp6; do
	kill -0 $server || { cat /tmp/server; exit 1; }
	sleep 0.1
done
"""  # until the server listens on port 18515
PERFTEST_COLUMNS = {rows.LATENCY: "t_typical", rows.BANDWIDTH: "BW average", rows.RATE: "MsgRate"}
PERFTEST_UNITS = {rows.LATENCY: ("usec",), rows.BANDWIDTH: ("MB/sec", "MiB/sec"), rows.RATE: ("Mpps",)}  # its MB are 2^20
# ucx_perftest's columns, by their place in a row of its CSV form, and the factor to our unit. Its MB are 2^20, too.
UCX_COLUMNS = {rows.LATENCY: (1, 1), rows.BANDWIDTH: (5, 1), rows.RATE: (7, 1e-6)}


class Failure(Exception):
    """A measurement that could not be taken; the text says why."""


# ---- reading what tools print ----

def parse_perftest(text):
    """perftest's table as {heading: (number, unit)} of its one row. A heading may have words with a blank between, and
    ends with its unit in brackets, if any."""
    headings = None
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("#bytes"):
            headings = re.findall(r"([#\w.%]+(?: [a-z]+)*)(?:\[([^\]]*)\])?", line)
            continue
        if headings and re.match(r"\d", line):
            numbers = line.split()
            if len(numbers) < len(headings):
                raise Failure(f"perftest: {len(numbers)} numbers under {len(headings)} headings: {line}")
            return {name: (float(n), unit) for (name, unit), n in zip(headings, numbers)}
    raise Failure("perftest printed no result")


def parse_ucx(text, unit):
    """The last row of `ucx_perftest -f -v`: iterations, then three latencies, two bandwidths, two rates."""
    found = re.findall(r"(?m)^ *\d+(?:,[\d.]+){7}$", text)
    if not found:
        raise Failure("ucx_perftest printed no result")
    column, factor = UCX_COLUMNS[unit]
    return float(found[-1].split(",")[column]) * factor


def parse_rstream(text, unit):
    """rstream's one row: name, sizes and counts, seconds, Gb/sec of each direction, microseconds per transfer."""
    found = re.findall(r"(?m)^custom +.*s +([\d.]+) +([\d.]+)$", text)
    if not found:
        raise Failure("rstream printed no result")
    return float(found[-1][1]) if unit == rows.LATENCY else float(found[-1][0]) * 1e9 / 8 / (1 << 20)


def parse_lines(text):
    """`name value unit` lines of our own tools as {name: value}."""
    values = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2:
            values[words[0]] = float(words[1])
    return values


def parse_peers(text):
    """The lines of test/across/peers that are a name and a number."""
    return {name: float(value) for name, value in re.findall(r"(?m)^(\w+) ([\d.]+)$", text)}


# ---- running processes ----

def last_words(text):
    lines = [line.strip() for line in text.splitlines() if line.strip(" -\t")]
    return " / ".join(lines[-3:]) or "no output"


class Process:
    """A child in a session of its own, whose output is kept; the whole session ends with it. The output goes to a file:
    what nobody reads yet would fill a pipe (perftest says two lines per queue pair) and stop the child."""

    def __init__(self, command, env=None):
        self.command = command
        self.output = tempfile.TemporaryFile("w+")
        self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT,
                                      env=env, start_new_session=True)

    def result(self, timeout=TIMEOUT_S):
        try:
            self.child.wait(timeout)
        except subprocess.TimeoutExpired:
            self.end()
            raise Failure(f"{self.command[-1]}: took more than {timeout} s") from None
        self.output.seek(0)
        text = self.output.read()
        if self.child.returncode != 0:
            raise Failure(f"{os.path.basename(self.command[0])}: status {self.child.returncode}: {last_words(text)}")
        return text

    def end(self):
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()


def is_listening(port):
    """Asked of the kernel, not by connecting: perftest takes the first connection for its peer."""
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path) as f:
                lines = [line.split() for line in f.readlines()[1:]]
        except OSError:
            continue
        if any(words[3] == "0A" and int(words[1].rsplit(":", 1)[1], 16) == port for words in lines):
            return True
    return False


class Others:
    """How much of some cores went to programs that are not ours, since this was made. alive: a function that names the
    children that have not ended yet and yet are at work."""

    def __init__(self, cpus, alive=lambda: ()):
        self.names = {f"cpu{n}" for n in cpus}
        self.alive = alive
        self.begin = self.now()

    def now(self):
        """(wall clock, seconds that the cores were busy, seconds that we and our ended children were)."""
        busy = 0
        with open("/proc/stat") as f:
            for words in map(str.split, f):
                if words[0] in self.names:
                    user, nice, system, _, _, irq, softirq, steal = (int(w) for w in words[1:9])
                    busy += user + nice + system + irq + softirq + steal
        ours = sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF,
                                                                            resource.RUSAGE_CHILDREN)))
        for pid in self.alive():
            with open(f"/proc/{pid}/stat") as f:
                ours += sum(int(ticks) for ticks in f.read().rsplit(")", 1)[1].split()[11:13]) / os.sysconf("SC_CLK_TCK")
        return time.monotonic(), busy / os.sysconf("SC_CLK_TCK"), ours

    def share(self):
        wall, busy, ours = (end - begin for end, begin in zip(self.now(), self.begin))
        return max(busy - ours, 0) / (wall * len(self.names))


class Bench:
    """Takes figures. options: build, device, gid, cpus, quick."""

    def __init__(self, options):
        self.options = options
        self.anyverbs = os.path.join(options.build, "bin", "anyverbs")
        self.serial = 0
        self.pairs = {}
        self.guest = None  # (the machine, the namespace of its tap)
        self.alone = None  # a host with an interface that is no loopback
        for path in (self.anyverbs, self.tool("limits")):
            if not os.access(path, os.X_OK):
                raise Failure(f"{path} is missing: build first (cmake --preset release && cmake --build build)")

    def tool(self, name):
        return os.path.join(self.options.build, "bench", name)

    def close(self):
        for pair in self.pairs.values():
            pair.close()
        if self.guest:
            self.guest[0].close()
            guest.drop_tap(self.guest[1])
        if self.alone:
            self.alone.close()

    def alive(self):
        return [self.guest[0].process.pid] if self.guest else []

    def take(self, source, unit):
        """One figure, in this unit."""
        if isinstance(source, rows.Raw):
            return self.raw(source)
        if isinstance(source, rows.Wanted):
            return source.value
        if isinstance(source, rows.Ucx):
            return self.ucx(source, unit)
        if isinstance(source, rows.Mpi):
            return self.mpi(source, unit)
        if isinstance(source, rows.Rstream):
            return self.rstream(source, unit)
        if isinstance(source, rows.Iperf):
            return self.iperf(source)
        if isinstance(source, rows.FiPingpong):
            return self.fi_pingpong(source)
        if source.pairs == 1:
            return self.perftest(source, unit)
        with concurrent.futures.ThreadPoolExecutor(source.pairs) as pool:
            return sum(pool.map(lambda _: self.perftest(source, unit), range(source.pairs)))

    def raw(self, source):
        a, b = self.options.cpus if source.where == "host" else (0, 1)
        ms = 20 if self.options.quick else 50
        tool = self.tool("netlimits" if source.name in rows.NET_PROBES else "limits")
        words = ["--ms", str(ms), "--cpus", f"{a},{b}", source.name]
        text = Process([tool, *words]).result() if source.where == "host" else self.raw_in_guest(tool, words)
        return parse_lines(text)[source.name]

    def iterations(self, source):
        return str(max(source.iters // (4 if self.options.quick else 1), 5))

    # ---- perftest ----

    def perftest(self, source, unit):
        """One run of a perftest tool, server on the first core and client on the second: the client's figure."""
        device = {"rxe": "rxe0", "fabric": "ib0"}.get(source.where, self.options.device)
        words = [source.tool, "-F", "-d", device, "-n", self.iterations(source)]
        if source.where != "fabric":
            words += ["-x", str(self.options.gid)]
        if source.tool != "ib_atomic_lat":
            words += ["-s", str(source.size)]
        if unit != rows.LATENCY:
            words.append("-N")
        words += source.args
        if source.where in ("rxe", "guest"):
            row = parse_perftest(self.in_guest(source.where, words, PERFTEST_COLUMNS[unit]))
        elif source.where in ("host", "one core"):
            cpus = self.options.cpus if source.where == "host" else self.options.cpus[:1] * 2
            row = parse_perftest(self.on_one_host([self.anyverbs, "run", *words], cpus=cpus))
        elif source.where == "fabric":
            row = parse_perftest(self.on_a_fabric(words))
        else:
            if source.where == "lossy":
                self.two_hosts("lossy").lay(seed=1, **({"loss": source.loss} if source.loss else {}))
            row = parse_perftest(self.across(source.where, words + ["-m", "4096"]))
        column = PERFTEST_COLUMNS[unit]
        value, found = row.get(column, (0, None))
        if row["#bytes"][0] != source.size or found not in PERFTEST_UNITS[unit]:
            raise Failure(f"{source.tool}: no {column} in {unit} for {source.size} bytes")
        return value

    def on_a_fabric(self, words):
        """The same of a server and a client on two hosts behind a switch, with a node of their own."""
        env = self.fresh_node()
        name = ["--name", env["ANYVERBS_NODE"]]
        del env["ANYVERBS_ADDR"]
        Process([self.anyverbs, "fabric", "up", "--topology", "star:2", *name], env).result()
        try:
            run = [self.anyverbs, "run", "--host"]
            return self.on_one_host([*run, "h1", *words], env, client=[*run, "h2", *words])
        finally:
            Process([self.anyverbs, "fabric", "down", "--force", *name], env).result()

    def on_one_host(self, words, env=None, cpus=None, client=None):
        """What the client of a pair of programs said; both take -p PORT, the client the server's address, too."""
        port = hosts.free_port()
        on = [["taskset", "-c", str(cpu), *each, "-p", str(port)]
              for each, cpu in zip((words, client or words), cpus or self.options.cpus)]
        server = Process(on[0], env)
        try:
            deadline = time.monotonic() + TIMEOUT_S
            while not is_listening(port):
                if server.child.poll() is not None or time.monotonic() > deadline:
                    server.result(1)
                    raise Failure(f"{words[0]}: the server never listened")
                time.sleep(0.01)
            text = Process(on[1] + ["127.0.0.1"], env).result()
            server.result()
            return text
        finally:
            server.end()

    def two_hosts(self, where):
        """The pair of hosts of this kind, made when it is first needed."""
        if where not in self.pairs:
            why = hosts.can_be_wired() if where == "lossy" else None
            if why:
                raise Failure(why)
            self.pairs[where] = (hosts.Wired if where == "lossy" else hosts.Loopback)(self.options.build)
        return self.pairs[where]

    def across(self, where, words):
        """What the client of a pair of programs said, server and client on a host and a core each."""
        try:
            return self.two_hosts(where).run_pair(words, TIMEOUT_S, cpus=self.options.cpus)[1]
        except hosts.Failure as failure:
            lines = str(failure).splitlines()
            raise Failure(f"{lines[0]}: {last_words(str(failure))}") from None

    # ---- in the guest ----

    def boot(self):
        why = guest.missing()
        if why:
            raise Failure(why)
        netns = f"anyverbs-bench-{os.getpid()}"
        guest.make_tap(netns, "10.88.0.1/24", "fd88::1/64")
        try:
            self.guest = guest.boot(netns, "tap0", GUEST_ADDRESS + "/24", "fd88::2/64"), netns
        except TimeoutError as error:
            guest.drop_tap(netns)
            raise Failure(str(error)) from None

    def raw_in_guest(self, tool, words):
        if self.guest is None:
            self.boot()
        script = "unshare -n sh -c " + guest.shell_quote(f"ip link set lo up; {guest.inside(tool)} {' '.join(words)}")
        status, said = self.guest[0].run(script, GUEST_TIMEOUT_S)
        if status != 0:
            raise Failure(f"{tool} in the guest: status {status}: {last_words(said)}")
        return said

    def in_guest(self, where, words, column):
        """What the client of a pair in the guest said, one process on each of its processors: over rxe, whose packets then never
        leave it, or over anyverbs by UDP, in a network namespace of its own, since rxe has the port. perftest fits a line
        through some looks at two clocks, and where the guest has been interrupted meanwhile it prints nonsense: then again."""
        if self.guest is None:
            self.boot()
        pair = " ".join(words) + " -m 4096 -p 18515"
        address = GUEST_ADDRESS
        if where == "guest":
            pair, address = f"{guest.inside(self.anyverbs)} run {pair}", "127.0.0.1"
        script = f"taskset -c 0 {pair} >/tmp/server 2>&1 & server=$!\n" + GUEST_WAIT + \
            f"taskset -c 1 {pair} {address} || exit\nwait $server"
        if where == "guest":
            script = "ip link set lo up; export ANYVERBS_PATHS=udp\n" + script
            script = "unshare -n bash -c " + guest.shell_quote(script)
        for _ in range(GUEST_TRIES):
            status, said = self.guest[0].run(script, GUEST_TIMEOUT_S)
            if status != 0:
                raise Failure(f"{words[0]} in the guest: status {status}: {last_words(said)}")
            value = parse_perftest(said).get(column, (0, None))[0]
            if math.isfinite(value) and value > 0:
                return said
        raise Failure(f"{words[0]} in the guest: no sensible figure: {last_words(said)}")

    # ---- UCX ----

    def ucx(self, source, unit):
        words = ["ucx_perftest", "-f", "-v", "-t", source.test, "-s", str(source.size), "-n", self.iterations(source)]
        env = dict(os.environ, UCX_TLS=source.tls)
        if not source.own:
            env["UCX_ALLOC_PRIO"] = "mmap"  # of its own it would take shared memory
        if source.tls.startswith("rc_v"):
            env["UCX_NET_DEVICES"] = f"{self.options.device}:1"
            words[:0] = [self.anyverbs, "run"]
        if source.born:
            env.update(ANYVERBS_BORN_SHARED="1", UCX_ALLOC_PRIO="heap")
        return parse_ucx(self.on_one_host(words, env), unit)

    # ---- rsockets ----

    def rstream(self, source, unit):
        """Server on the first core, client on the second: what the client says."""
        port, count = hosts.free_port(), self.iterations(source)
        words = ["rstream", "-p", str(port), "-S", str(source.size)]
        words += ["-I", count, "-C", "1"] if unit == rows.LATENCY else ["-I", "1", "-C", count]
        words = words + ["-T", "s"] if source.sockets else [self.anyverbs, "run", *words]
        on = [["taskset", "-c", str(cpu), *words] for cpu in self.options.cpus]
        server = Process(on[0])
        try:
            deadline = time.monotonic() + TIMEOUT_S
            while not (is_listening(port) if source.sockets else bound_by_cm(port)):
                if server.child.poll() is not None or time.monotonic() > deadline:
                    server.result(1)
                    raise Failure("rstream: the server never listened")
                time.sleep(0.01)
            text = Process(on[1] + ["-s", "127.0.0.1"]).result()
            server.result()
            return parse_rstream(text, unit)
        finally:
            server.end()

    def served(self, server, client, env=None):
        """What the client said of a pair of commands with {port}, a core each; the server listens by TCP."""
        port = hosts.free_port()
        on = [["taskset", "-c", str(cpu), *(word.format(port=port) for word in words)]
              for cpu, words in zip(self.options.cpus, (server, client))]
        process = Process(on[0], env)
        try:
            deadline = time.monotonic() + TIMEOUT_S
            while not listening(port, process.child.pid):
                if process.child.poll() is not None or time.monotonic() > deadline:
                    process.result(1)
                    raise Failure(f"{on[0][-1]}: the server never listened")
                time.sleep(0.01)
            text = Process(on[1], env).result()
            process.result()
            return text
        finally:
            process.end()

    def iperf(self, source):
        """What the server received."""
        prefix = [self.anyverbs, "run", "--rsockets"] if source.rsockets else []
        seconds = source.ms / 1000 / (2 if self.options.quick else 1)
        text = self.served(prefix + ["iperf3", "-s", "-1", "-p", "{port}"],
                           prefix + ["iperf3", "-c", "127.0.0.1", "-J", "-t", f"{seconds:.0f}", "-p", "{port}"])
        return json.loads(text)["end"]["sum_received"]["bits_per_second"] / 8 / (1 << 20)

    def fi_pingpong(self, source):
        """Microseconds of a transfer, one way."""
        if os.geteuid() != 0:
            raise Failure("only root can make a network namespace")
        if self.alone is None:
            self.alone = Alone(f"bench-{os.getpid()}")
        words = [*self.alone.prefix(), *([] if source.provider == "shm" else [self.anyverbs, "run"]), "fi_pingpong", "-p", source.provider,
                 "-e", "rdm", "-S", str(source.size), "-I", self.iterations(source)]
        text = self.served(words + ["-B", "{port}"], words + ["-P", "{port}", ALONE], {**os.environ, **self.alone.environment()})
        found = re.findall(r"(?m)^\d\S* .* ([\d.]+) +[\d.]+ *$", text)
        if not found:
            raise Failure("fi_pingpong printed no result")
        return float(found[-1])

    # ---- Open MPI ----

    def mpi(self, source, unit):
        """Rank 0 runs on the first core, rank 1 on the second."""
        a, b = self.options.cpus
        program = self.tool("mpi")
        if not os.access(program, os.X_OK):
            raise Failure(f"{program} is missing: Debian's libopenmpi-dev was not there when this was built")
        words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "plm", "isolated"]
        if source.over == "vader":
            words += ["--mca", "pml", "ob1", "--mca", "btl", "vader,self"]
        else:
            words[:0] = [self.anyverbs, "run"]
            words += ["--mca", "pml", "ucx", "--mca", "osc", "ucx", "--mca", "opal_common_ucx_devices", "any",
                      "-x", "UCX_TLS=rc_v,self", "-x", f"UCX_NET_DEVICES={self.options.device}:1"]
        kind = "latency" if unit == rows.LATENCY else "bandwidth"
        rank = [program, kind, str(source.size), self.iterations(source)]
        words += ["-np", "1", "taskset", "-c", str(a), *rank, ":", "-np", "1", "taskset", "-c", str(b), *rank]
        env = dict(os.environ, ANYVERBS_BORN_SHARED="1" if source.born else "0")
        if source.rndv:
            env["UCX_RNDV_THRESH"] = str(source.rndv)
        for line in Process(words, env).result().splitlines():
            if line.startswith(kind + " "):
                return float(line.split()[1])
        raise Failure("mpirun printed no result")

    # ---- our own small clients, on nodes of their own ----

    def fresh_node(self):
        """An environment whose node is not running yet: a second, independent host."""
        self.serial += 1
        return dict(os.environ, ANYVERBS_NODE=f"bench-{os.getpid()}-{self.serial}", ANYVERBS_ADDR="own")

    def stop_node(self, env):
        try:
            Process([self.anyverbs, "stop"], env).result(10)
        except Failure:
            pass  # it leaves by itself when idle

    def client(self, words, env, before=()):
        return parse_lines(Process([*before, self.tool(words[0]), *words[1:]], env).result(CLIENT_TIMEOUT_S))

    def count(self, row):
        return counts.measure(self.options.build, row.kind, 1 if self.options.quick else counts.RUNS)

    def fixed(self, row):
        """One figure of a row with a fixed limit."""
        if row.node == "across":
            words = [self.two_hosts("across").program(row.program[0]), *row.program[1:]]
            return parse_peers(self.across("across", words))[row.key]
        env = self.fresh_node()
        try:
            if row.node == "cold":  # `anyverbs run` would have the node up before the client begins
                env["LD_LIBRARY_PATH"] = os.path.join(self.options.build, "lib", "anyverbs")
                return self.client(row.program, env)[row.key]
            return self.client(row.program, env, (self.anyverbs, "run"))[row.key]
        finally:
            self.stop_node(env)
