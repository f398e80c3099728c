"""counts.py: counts the instructions of one small message, which stay the same where times do not.

Each kind of messages.c runs twice under Debian's valgrind (callgrind), once for a few messages and once for many; the
difference, by the number of messages between, is what one costs: of the thread that posts and polls, the program's own
loop included.
"""
import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile

STORED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "instructions.json")
KINDS = {"send": "SEND 8 B, signalled, in turn", "send_inline": "the same, inline",
         "send_list": "SEND 8 B, lists of 16", "write": "WRITE 8 B, signalled",
         "udp_send": "SEND in turn over UDP", "rsocket": "8 B by rsend and rrecv, in turn",
         "ib0_send": "SEND in turn on ib0"}
# Kinds that leave by a socket, for this very process: the environment, with a node that has an address to itself, and the
# index of that address among the GIDs.
WIRE = {"udp_send": ({"ANYVERBS_PATHS": "udp", "ANYVERBS_NODE": f"count-udp-{os.getpid()}", "ANYVERBS_ADDR": "127.0.0.77"}, "1")}
# Kinds on a host of a fabric, which is brought up for them.
FABRIC = {"ib0_send": {"ANYVERBS_NODE": f"count-ib0-{os.getpid()}"}}
FEW, MANY = 3200, 35200  # multiples of a list; the first ones warm up
BUILD_TYPE = "RelWithDebInfo"  # the preset "release"; CMake's own "Release" has 5 to 7 % fewer
RUNS = 3
TOLERANCE = 0.02  # two runs differ by less than 0.2 %
# Under valgrind the engine's thread takes up to a fifth of the datagrams, now more, now fewer of them.
LOOSE = {"udp_send": 0.2}


class Failure(Exception):
    """Nothing could be counted; the text says why."""


def check_build(build):
    """Only what is compiled alike can be compared."""
    try:
        with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as f:
            kind = re.search(r"(?m)^CMAKE_BUILD_TYPE:\w+=(.*)$", f.read())
    except OSError as error:
        raise Failure(str(error)) from None
    if kind is None or kind[1] != BUILD_TYPE:
        raise Failure(f"{build} is a {kind[1] if kind else 'nameless'} build; what is stored was counted in one of preset release, {BUILD_TYPE}")


@contextlib.contextmanager
def place(anyverbs, kind):
    """Where a kind runs: the environment, options of `anyverbs run`, the index of a GID. What was started for it ends."""
    environment, gid = WIRE.get(kind, (FABRIC.get(kind, {}), "0"))
    environment = os.environ | environment

    def call(*words, check=False):
        subprocess.run([anyverbs, *words], capture_output=True, check=check, env=environment)

    fabric = ("--name", environment.get("ANYVERBS_NODE", ""))
    try:
        if kind in FABRIC:
            call("fabric", "up", "--topology", "star:2", *fabric, check=True)
        yield environment, ["--host", "h1"] if kind in FABRIC else [], gid
    except subprocess.CalledProcessError as failed:
        raise Failure(f"{kind}: {failed}: {failed.stderr.decode().strip()[-300:]}") from None
    finally:
        if kind in FABRIC:
            call("fabric", "down", "--force", *fabric)
        elif kind in WIRE:
            call("stop")


def count(build, kind, messages):
    """Instructions of the client's first thread."""
    if shutil.which("valgrind") is None:
        raise Failure("valgrind is missing (scripts/packages installs it)")
    anyverbs = os.path.join(build, "bin", "anyverbs")
    name = re.sub("^(udp|ib0)_", "", kind)
    with tempfile.TemporaryDirectory(prefix="anyverbs-instructions-") as folder, place(anyverbs, kind) as (environment, options, gid):
        out = os.path.join(folder, "out")
        client = ["rmessages", str(messages)] if kind == "rsocket" else ["messages", name, str(messages), gid]
        command = [anyverbs, "run", *options, "valgrind", "-q", "--tool=callgrind",
                   "--separate-threads=yes", f"--callgrind-out-file={out}",
                   os.path.join(build, "bench", client[0]), *client[1:]]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
        except subprocess.TimeoutExpired as late:
            raise Failure(f"{kind}: {late}") from None
        if done.returncode != 0:
            raise Failure(f"{kind}: exit status {done.returncode}: {done.stderr.strip()[-300:]}")
        with open(out + "-01", encoding="utf-8") as f:
            return int(re.search(r"^(?:summary|totals): (\d+)", f.read(), re.M).group(1))


def measure(build, kind, runs=RUNS):
    """The least of some runs: the engine's own thread takes a packet now and then, and the first one then polls more."""
    check_build(build)
    few, many = (min(count(build, kind, n) for _ in range(runs)) for n in (FEW, MANY))
    return round((many - few) / (MANY - FEW), 1)


def tolerance(kind):
    return LOOSE.get(kind, TOLERANCE)


def is_grown(kind, now, before):
    return before is not None and now > before * (1 + tolerance(kind))


def stored():
    """{kind: instructions} of the day when somebody last stored them."""
    if not os.path.exists(STORED):
        return {}
    with open(STORED, encoding="utf-8") as f:
        return json.load(f)


def store(now):
    kept = stored() | now
    with open(STORED, "w", encoding="utf-8") as f:
        json.dump(kept, f, indent=1)
        f.write("\n")
