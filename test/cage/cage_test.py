#!/usr/bin/env python3
"""cage_test.py CAGE: a test in the cage ends when it ends, with its status, its output, and without leaving anybody behind."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

CAGE = sys.argv.pop(1)
LONG = 300   # seconds that nobody here waits for
LIMIT = 60   # for what takes milliseconds


def shell(command, **environment):
    return subprocess.Popen([CAGE, "sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, **environment})


def is_there(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def numbers(line):
    return [int(word) for word in line.split()]


class Cage(unittest.TestCase):
    def gone(self, pids):
        end = time.monotonic() + LIMIT
        while any(is_there(p) for p in pids):
            self.assertLess(time.monotonic(), end, pids)
            time.sleep(0.01)

    def test_status_and_output(self):
        for status in (0, 1, 77, 255):
            p = shell(f"echo to the one; echo to the other >&2; exit {status}")
            self.assertEqual(p.communicate(timeout=LIMIT)[0], "to the one\nto the other\n")
            self.assertEqual(p.returncode, status)

    def test_signal(self):
        p = shell("kill -ABRT $$")
        p.communicate(timeout=LIMIT)
        self.assertEqual(p.returncode, -signal.SIGABRT)

    def test_much_output(self):
        said, _ = shell("seq 1 300000").communicate(timeout=LIMIT)
        self.assertEqual(said.count("\n"), 300000)
        self.assertTrue(said.endswith("\n300000\n"))

    def test_no_such_program(self):
        p = subprocess.run([CAGE, "/no/such/program"], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(p.returncode, 127)

    def test_apart(self):
        """Two servers on one port, and each client finds its own."""
        if os.geteuid() != 0:
            self.skipTest("SKIPPED: only root makes network namespaces")
        talk = ("import socket, sys\ns = socket.socket(); s.bind(('127.0.0.1', 18515)); s.listen()\n"
                "print('listens', flush=True); input()\n"
                "c = socket.create_connection(('127.0.0.1', 18515)); print(s.accept()[1] == c.getsockname())")
        both = [subprocess.Popen([CAGE, "--apart", sys.executable, "-c", talk], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True) for _ in range(2)]
        self.assertEqual([p.stdout.readline() for p in both], ["listens\n"] * 2)
        self.assertEqual([p.communicate("\n", timeout=LIMIT)[0] for p in both], ["True\n"] * 2)

    def test_child_that_keeps_the_pipe(self):
        """In the group, in a session of its own, and below one that is gone."""
        p = shell(f"sleep {LONG} & a=$!; setsid sleep {LONG} & b=$!; c=$(sh -c 'sleep {LONG} >/dev/null & echo $!'); echo $a $b $c; exit 5")
        said = p.communicate(timeout=LIMIT)[0].splitlines()
        self.assertEqual(p.returncode, 5)
        self.assertEqual(len(said), 4, said)
        self.assertTrue(all(line.startswith("cage: killed ") for line in said[1:]), said)
        self.gone(numbers(said[0]))

    def test_killed_as_ctest_does(self):
        """The pipe is closed at once, and nobody stays."""
        for number in (signal.SIGKILL, signal.SIGTERM):
            p = shell(f"trap '' TERM; sleep {LONG} & a=$!; setsid sleep {LONG} & echo $$ $a $!; wait")
            pids = numbers(p.stdout.readline())
            self.assertTrue(all(is_there(pid) for pid in pids))
            p.send_signal(number)
            p.communicate(timeout=LIMIT)
            self.assertNotEqual(p.returncode, 0)
            self.gone(pids)

    def late(self, limit, command, **environment):
        """The command is ended by this limit, with nothing left of it."""
        p = shell(f"echo $$; {command}", **environment)
        said = p.communicate(timeout=LIMIT)[0]
        self.assertEqual(p.returncode, 124, said)
        self.assertRegex(said, f"(?m)^LATE: cage: ended after .* s {limit} ")
        self.assertRegex(said, r"(?m)^cage: there is sh ")
        self.gone([int(said.split()[0])])

    def test_limit_of_processor_time(self):
        """Of all processes below it together: of a child, of one whose parent has ended, of one that has ended itself."""
        spin = "while :; do :; done"
        # Ended by the kernel after 1 s of processor time, as its ticks count it: on a busy machine that may be half of what was used. So there
        # are four of them.
        short = "ulimit -St 1; " + spin
        for command in (spin, f"sh -c '{spin}' & wait", f"sh -c 'sh -c \"{spin}\" &'; sleep {LONG}",
                        f"sh -c '{short}'; " * 4 + f"sleep {LONG}"):
            self.late("of processor time", command, AV_CAGE_SECONDS="1" if "ulimit" not in command else "1.2", AV_CAGE_CLOCK_SECONDS=str(LIMIT))

    def test_limit_by_the_clock(self):
        self.late("by the clock", f"sleep {LONG}", AV_CAGE_SECONDS="0.5")

    def test_limit_without_processor_time(self):
        self.late("without processor time", f"sleep {LONG}", AV_CAGE_SECONDS="100", AV_CAGE_IDLE_SECONDS="2")

    def test_limits_are_of_this_test_only(self):
        said, _ = shell("printenv AV_CAGE_SECONDS; sleep 2.5", AV_CAGE_SECONDS="1").communicate(timeout=LIMIT)
        self.assertEqual(said, "")

    def test_a_node_stays(self):
        with tempfile.TemporaryDirectory() as folder:
            node = os.path.join(folder, "anyverbsd")
            shutil.copy(shutil.which("sleep"), node)
            p = shell(f"{node} {LONG} & until grep -q anyverbsd /proc/$!/comm; do sleep 0.01; done; echo $!")
            pid = int(p.communicate(timeout=LIMIT)[0])
            self.assertTrue(is_there(pid))
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    unittest.main()
