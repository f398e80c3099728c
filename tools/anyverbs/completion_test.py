#!/usr/bin/env python3
"""completion_test.py: what bash offers after the words of a command line.

usage: completion_test.py COMMAND       the command that answers `help`
"""
import os
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


def offered(*words):
    done = subprocess.run(["bash", "-c", SCRIPT, "bash", COMPLETION, COMMAND, *words], capture_output=True, text=True, check=True)
    return sorted(set(done.stdout.split()))


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

    def test_files(self):
        self.assertEqual(offered("capture", COMMAND[:-2]), [COMMAND] + ([COMMAND + "d"] if os.path.exists(COMMAND + "d") else []))

    def test_programs(self):
        self.assertIn("setpriv", offered("run", "setpri"))
        self.assertIn("setpriv", offered("run", "--rsockets", "setpri"))

    def test_settings(self):
        names = offered("run", "ANYVERBS_")
        self.assertLessEqual({"ANYVERBS_NODE=", "ANYVERBS_LOG=", "ANYVERBS_ADOPT="}, set(names))
        self.assertEqual(offered("run", "ANYVERBS_LO"), ["ANYVERBS_LOG="])
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
