#!/usr/bin/env python3
"""completion_test.py: what bash offers after the words of a command line.

usage: completion_test.py COMMAND       the command that answers `help`
"""
import json
import os
import shutil
import subprocess
import sys
import unittest

COMMAND = os.path.abspath(sys.argv.pop(1))
COMPLETION = os.path.join(os.path.dirname(os.path.abspath(__file__)), "completion.bash")
# As bash does it: the words, of which `=` is one of its own, and the last one is being completed.
SCRIPT = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_anyverbs "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}" 2>&1
printf '%s\\n' "${COMPREPLY[@]}"
"""


# A node that nothing runs in: what the test's own environment names may be up, with devices and processes.
QUIET = {**os.environ, "ANYVERBS_NODE": f"completion-quiet-{os.getpid()}"}


def offered(*words, env=QUIET):
    done = subprocess.run(["bash", "-c", SCRIPT, "bash", COMPLETION, COMMAND, *words], capture_output=True, text=True, check=True, env=env)
    return sorted(set(done.stdout.split()))


class Fabric:
    """A star of two hosts, while it is used."""

    def __init__(self, env):
        self.env = env

    def __enter__(self):
        subprocess.run([COMMAND, "fabric", "up"], env=self.env, check=True)

    def __exit__(self, *_):
        subprocess.run([COMMAND, "fabric", "down"], env=self.env, check=True)
        subprocess.run([COMMAND, "stop", "--force"], env=self.env, check=True)


class Completion(unittest.TestCase):
    def test_commands(self):
        self.assertLessEqual({"run", "status", "capture", "fabric", "stop", "help"}, set(offered("")))
        self.assertEqual(offered("st"), ["status", "stop"])
        self.assertEqual(offered("nonsense"), [])

    def test_every_command_of_help(self):
        said = subprocess.run([COMMAND, "help"], capture_output=True, text=True, check=True).stdout
        names = sorted(line.split()[0] for line in said.splitlines() if line.startswith("  "))
        self.assertGreater(len(names), 8)
        self.assertEqual(offered(""), names)
        self.assertEqual(offered("help", ""), sorted(names + ["settings"]))

    def test_options(self):
        self.assertEqual(offered("status", "--j"), ["--json"])
        self.assertEqual(offered("capture", "--"), ["--count", "--seconds", "--snaplen"])
        self.assertEqual(offered("run", "--"), ["--host", "--rsockets"])
        self.assertEqual(offered("stop", ""), ["--force"])

    def test_words(self):
        self.assertEqual(offered("port", ""), ["down", "up"])
        self.assertEqual(offered("device", ""), ["add", "list", "remove"])
        self.assertEqual(offered("top", "--view", ""), ["devices", "drops", "processes", "qps"])
        self.assertIn("--view", offered("top", "--once", ""))
        self.assertEqual(offered("top", "--filter", ""), [])

    def test_verbs_of_fabric(self):
        self.assertEqual(offered("fabric", ""), ["--name", "down", "error", "fail", "hosts", "link", "reboot", "show", "up"])
        self.assertEqual(offered("fabric", "--name", "x", "sh"), ["show"])
        self.assertEqual(offered("fabric", "--name", ""), [])
        self.assertEqual(offered("fabric", "show", ""), ["--dot", "--json", "--svg"])
        self.assertEqual(offered("fabric", "down", ""), ["--force"])
        self.assertEqual(offered("fabric", "up", "--"), ["--no-sm", "--topology"])
        self.assertEqual(offered("fabric", "up", COMPLETION[:-1]), [COMPLETION])
        self.assertEqual(offered("fabric", "up", "--topology", ""), ["dragonfly:", "fat-tree:", "mesh:", "random:", "star:", "torus:"])
        self.assertEqual(offered("fabric", "link", "h1", ""), ["down", "up"])
        counters = offered("fabric", "error", "h1", "")
        self.assertEqual((len(counters), counters[:2]), (13, ["buffer-overrun", "link-downed"]))

    def test_verbs_of_ipoib(self):
        self.assertEqual(offered("ipoib", ""), ["down", "status", "up"])
        self.assertEqual(offered("ipoib", "down", "--"), ["--host", "--name"])
        self.assertEqual(offered("ipoib", "status", ""), ["--host"])
        self.assertLessEqual({"--address", "--foreground", "--host", "--netns"}, set(offered("ipoib", "up", "")))
        self.assertEqual(offered("ipoib", "up", "--address", ""), [])

    def test_each_counter_of_fabric_is_in_its_help(self):
        """The command names its counters when it is given none of them; without a fabric it has no port to count at."""
        env = {**os.environ, "ANYVERBS_NODE": f"completion-{os.getpid()}", "ANYVERBS_ADDR": "own"}
        with Fabric(env):
            done = subprocess.run([COMMAND, "fabric", "error", "h1:1", "none", "1"], env=env, capture_output=True, text=True, check=False)
        self.assertEqual(sorted(done.stderr.split("a counter is")[1].split()), offered("fabric", "error", "h1", ""))

    def test_names_of_what_runs(self):
        env = {**os.environ, "ANYVERBS_NODE": f"completion-{os.getpid()}", "ANYVERBS_ADDR": "own"}
        with Fabric(env):
            self.assertEqual(offered("run", "--host", "", env=env), ["h1", "h2"])
            self.assertEqual(offered("run", "--host", "h2", "setpri", env=env), ["setpriv"])
            self.assertEqual(offered("ipoib", "up", "--host", "", env=env), ["h1", "h2"])
            self.assertEqual(offered("fabric", "link", "h", env=env), ["h1", "h2"])
            self.assertEqual(len(offered("fabric", "reboot", "", env=env)), 3)
            self.assertEqual(offered("device", "remove", "", env=env), ["roce0"])
            self.assertEqual(offered("device", "add", "", env=env), [])
            self.assertEqual(offered("port", "", env=env), ["down", "roce0", "up"])
            self.assertEqual(offered("qp", "", env=env), [])

    @unittest.skipUnless(shutil.which(os.path.join(os.path.dirname(COMMAND), "../test/node_attach")), "node_attach is not built")
    def test_queue_pairs(self):
        env = {**os.environ, "ANYVERBS_NODE": f"completion-{os.getpid()}", "ANYVERBS_ADDR": "own",
               "PATH": os.path.dirname(COMMAND) + ":" + os.environ["PATH"]}
        with subprocess.Popen([os.path.join(os.path.dirname(COMMAND), "../test/node_attach"), "60"], env=env, stdout=subprocess.PIPE) as child:
            try:
                child.stdout.readline()
                said = json.loads(subprocess.run([COMMAND, "status", "--json"], env=env, capture_output=True, check=True).stdout)
                self.assertEqual(offered("qp", "", env=env), [str(child.pid)])
                self.assertEqual(offered("qp", str(child.pid), "", env=env), [f"0x{said['processes'][0]['qps'][0]['qpn']:06x}"])
                self.assertEqual(offered("qp", "1", "", env=env), [])
            finally:
                child.kill()
                subprocess.run([COMMAND, "stop", "--force"], env=env, check=True, capture_output=True)

    def test_files(self):
        self.assertEqual(offered("capture", COMMAND[:-2]), [COMMAND] + ([COMMAND + "d"] if os.path.exists(COMMAND + "d") else []))

    def test_programs(self):
        self.assertIn("setpriv", offered("run", "setpri"))
        self.assertIn("setpriv", offered("run", "--rsockets", "setpri"))

    def test_settings(self):
        names = offered("run", "ANYVERBS_")
        self.assertLessEqual({"ANYVERBS_NODE=", "ANYVERBS_LOG=", "ANYVERBS_ADOPT="}, set(names))
        self.assertEqual(offered("run", "ANYVERBS_LO"), ["ANYVERBS_LOG=", "ANYVERBS_LOW_PORTS="])
        self.assertEqual(offered("run", "ANYVERBS_LOG", "="), ["debug", "error", "info", "warn"])
        self.assertEqual(offered("run", "ANYVERBS_LOG", "=", "d"), ["debug"])
        self.assertEqual(offered("run", "ANYVERBS_NODE", "=", ""), [])  # a name of the user's own

    def test_program_after_settings(self):
        self.assertIn("setpriv", offered("run", "ANYVERBS_LOG", "=", "info", "setpri"))

    def test_programs_of_the_command_line(self):
        """Behind the program its own words are completed: files, without bash-completion."""
        self.assertEqual(offered("run", "ls", COMPLETION[:-1]), [COMPLETION])


if __name__ == "__main__":
    unittest.main()
