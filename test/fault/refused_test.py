#!/usr/bin/env python3
"""refused_test: a program whose Nth thread, or Nth descriptor, the system refuses ends by success, or by a failure with a message.

usage: refused_test.py [--all] [--match REGEX] [--from N] [-v]

Each row of PAIRS runs with its server, then with its client refused, for N from 1 until nothing is left to refuse. Threads are refused
once (the next one is granted), and from the Nth on; descriptors once. Without --all: threads from the Nth on, a sample of descriptors.
Prints what went wrong, and how often programs succeeded all the same.
"""
import argparse
import concurrent.futures
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
import time

import fault

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "clients"))
from ports import bound_by_cm, listening  # pylint: disable=wrong-import-position

PAIRS = {  # name: (options of `anyverbs run` of server and client, server, client)
    "pingpong": ("", "", "ibv_rc_pingpong -g 1 -n 20 -p PORT", "ibv_rc_pingpong -g 1 -n 20 -p PORT ADDR"),
    "rping": ("", "", "rping -s -a ADDR -p PORT -C 3", "rping -c -a ADDR -p PORT -C 3"),
    "ucmatose": ("", "", "ucmatose -b ADDR -p PORT -C 3", "ucmatose -s ADDR -p PORT -C 3"),
    "rstream": ("", "", "rstream -b ADDR -p PORT -T v -S 4096 -C 20", "rstream -s ADDR -p PORT -T v -S 4096 -C 20"),
    "rsockets": ("--rsockets", "--rsockets", "rstream -b ADDR -T s -p PORT -T v -S 4096 -C 20",
                 "rstream -s ADDR -T s -p PORT -T v -S 4096 -C 20"),
    "fabric": ("--host h1", "--host h2", "ibv_rc_pingpong -n 20 -p PORT", "ibv_rc_pingpong -n 20 -p PORT 127.0.0.1"),
}
LAST = 200  # no program asks for so many
SAMPLE = 23  # without --all: one N of so many descriptors, another for each row


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Run:
    """One server and one client, one of them refused."""

    def __init__(self, world, pair, side, refusal):
        self.world, self.pair, self.side, self.refusal = world, pair, side, refusal
        self.port = free_port()
        self.seen = os.path.join(world.folder, f"seen-{self.port}-{threading.get_ident()}")
        self.made = {}

    def start(self, side):
        options, words = PAIRS[self.pair][side == "client"], PAIRS[self.pair][2 + (side == "client")]
        words = shlex.split(words.replace("PORT", str(self.port)).replace("ADDR", self.world.address))
        more = {}
        if side == self.side:
            more = {"REFUSE": f"{words[0]} {self.refusal}", "REFUSE_SEEN": self.seen, "LD_PRELOAD": fault.program("refuse.so")}
        # output goes to a file: a pipe would be held open by a node that the run starts
        out = open(f"{self.seen}-{side}", "w+b")  # pylint: disable=consider-using-with
        process = subprocess.Popen([fault.TOOL, "run", *shlex.split(options), *words], env=self.world.with_env(more), cwd="/",
                                   stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        self.made[side] = (process, out)
        return process

    def said(self, side):
        out = self.made[side][1]
        out.seek(0)
        return out.read().decode(errors="replace").strip()

    def wait(self, side):
        """The exit status; "hangs"."""
        try:
            return self.made[side][0].wait(fault.PATIENCE_S)
        except subprocess.TimeoutExpired:
            return "hangs"

    def wait_listening(self):
        server = self.made["server"][0]
        deadline = time.monotonic() + fault.PATIENCE_S
        while server.poll() is None and time.monotonic() < deadline:
            if listening(self.port, server.pid) or bound_by_cm(self.port):
                return True
            time.sleep(0.01)
        return False

    def what(self):
        """The first call that was refused; "": none."""
        if not os.path.exists(self.seen):
            return ""
        with open(self.seen, encoding="ascii") as f:
            return f.read().strip()

    def judge(self, side):
        """None, or what is wrong with how the refused program has ended."""
        status = self.wait(side)
        if status == "hangs" or status < 0:
            return f"{side}: {status}"
        # a socket that the program itself asks the shim for is its own: rstream says nothing
        if status != 0 and not self.said(side) and not re.match("socket at .*-rsockets", self.what()):
            return f"{side}: exit {status} without a message"
        return None

    def wait_client(self):
        """The client hangs while the refused server runs, or after it has ended well. (Of a peer that is gone rstream's client may not hear:
        it takes the end of the stream for an earlier EAGAIN.)"""
        server, client = self.made["server"][0], self.made["client"][0]
        deadline = time.monotonic() + fault.PATIENCE_S
        while client.poll() is None and not server.poll():
            if time.monotonic() > deadline:
                return "the client hangs"
            time.sleep(0.01)
        return None

    def play(self):
        self.start("server")
        if not self.wait_listening():
            return self.judge("server") if self.side == "server" else "the server does not listen"
        self.start("client")
        if self.side == "server":
            return self.wait_client() or self.judge("server")
        wrong = self.judge("client")
        if wrong is None and self.wait("client") == 0:
            wrong = self.wait("server") != 0 and f"server: {self.wait('server')}"
        return wrong

    def close(self):
        for process, out in self.made.values():
            if process.poll() is None:
                process.kill()
            process.wait()
            out.close()

    def run(self):
        """(what was refused, did the program succeed, what is wrong or None)"""
        try:
            wrong = self.play() or None
            if wrong:
                wrong += f"\n    {self.what()}" + "".join(f"\n    {side}: {line}" for side in self.made for line in self.said(side).splitlines()[-6:])
            succeeded = self.side in self.made and self.made[self.side][0].poll() == 0
        finally:
            self.close()
        return self.what(), succeeded, wrong


class Table:
    """All runs, and their counts."""

    def __init__(self, options):
        self.options = options
        self.runs = self.succeeded = 0
        self.failures = []
        self.lock = threading.Lock()

    def numbers(self, kind, row):
        step = SAMPLE if kind == "descriptor" and not self.options.all else 1
        return range(self.options.first + (row * 5 % step), LAST, step)

    def row(self, world, row, pair, side, kind, times):
        for n in self.numbers(kind, row):
            refused, succeeded, wrong = Run(world, pair, side, f"{kind} {n} {times}").run()
            with self.lock:
                self.runs += 1
                self.succeeded += succeeded
                name = f"{pair} {side}: {kind} {n} {'and all others' if times == 0 else 'once'}"
                if self.options.verbose or wrong:
                    print(f"{name}: {wrong or ('succeeds' if succeeded else 'fails')}", flush=True)
                if wrong:
                    self.failures.append(name)
            if not refused:
                break

    def rows(self, worlds):
        for pair in PAIRS:
            for side in ("server", "client"):
                for kind, times in (("thread", 0), ("thread", 1), ("descriptor", 1)):
                    if re.search(self.options.match, f"{pair} {side} {kind} {times}") and \
                            (self.options.all or (kind, times) != ("thread", 1)):
                        yield worlds[pair == "fabric"], pair, side, kind, times

    def go(self, worlds):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            done = [pool.submit(self.row, world, i, *what) for i, (world, *what) in enumerate(self.rows(worlds))]
            for each in done:
                each.result()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--match", default="")
    parser.add_argument("--from", dest="first", type=int, default=1)
    parser.add_argument("-v", "--verbose", action="store_true")
    table = Table(parser.parse_args())
    with fault.World() as world, fault.World() as fabric:
        world.run(fault.TOOL, "run", "true")
        world.address = world.status()["devices"][0]["ports"][0]["gids"][-1]["gid"].rsplit(":", 1)[-1]
        up = fabric.run(fault.TOOL, "fabric", "up", "--topology", "fat-tree:2x2")
        if up.returncode != 0:
            sys.exit(f"no fabric: {up.stderr}")
        fabric.address = "127.0.0.1"
        table.go((world, fabric))
    print(f"{table.runs} runs, {table.succeeded} programs succeeded, {len(table.failures)} are wrong")
    sys.exit(bool(table.failures))


if __name__ == "__main__":
    main()
