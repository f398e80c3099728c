#!/usr/bin/env python3
"""files_test: action.yml and the recipes of ci/ are what a CI system can read, and name files that exist.

usage: files_test.py [unittest's arguments]       needs python3-yaml, else it is skipped
"""
import os
import re
import subprocess
import sys
import unittest

TOP = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
try:
    import yaml
except ImportError:
    print("python3-yaml is not installed")
    sys.exit(77)


def read(name):
    with open(os.path.join(TOP, name), encoding="utf-8") as f:
        return yaml.safe_load(f)


def runs_of(name):
    """The shell texts of a file of GitHub or GitLab."""
    tree = read(name)
    if "jobs" in tree:
        return [step["run"] for job in tree["jobs"].values() for step in job["steps"] if "run" in step]
    if "runs" in tree:
        return [step["run"] for step in tree["runs"]["steps"]]
    return [line for job in tree.values() for part in ("before_script", "script") for line in job[part]]


FILES = ("action.yml", "ci/github.yml", "ci/gitlab-ci.yml")


class Files(unittest.TestCase):
    def test_shell_can_be_parsed(self):
        for name in FILES:
            runs = runs_of(name)
            self.assertTrue(runs, name)
            for text in runs:
                self.assertIsInstance(text, str)
                done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""), f"{name}: {text}")

    def test_scripts_exist(self):
        named = {path for name in FILES for text in runs_of(name) for path in re.findall(r"ci/[\w.-]+", text)}
        self.assertLessEqual({"ci/install", "ci/sample", "ci/two-containers", "ci/Dockerfile"}, named)
        for path in named:
            self.assertTrue(os.path.exists(os.path.join(TOP, path)), path)
        for script in ("install", "sample", "pair", "rping", "two-containers"):
            self.assertTrue(os.access(os.path.join(TOP, "ci", script), os.X_OK), script)
            subprocess.run(["bash", "-n", os.path.join(TOP, "ci", script)], check=True)

    def test_action(self):
        action = read("action.yml")
        self.assertEqual(action["runs"]["using"], "composite")
        for step in action["runs"]["steps"]:
            self.assertEqual(step["shell"], "bash")  # without one GitHub refuses a composite action
        used = set(re.findall(r"inputs\.(\w+)", str(action["runs"])))
        self.assertEqual(used, set(action["inputs"]))
        ids = {step.get("id") for step in action["runs"]["steps"]}
        for output in action["outputs"].values():
            self.assertIn(re.search(r"steps\.(\w+)\.outputs", output["value"])[1], ids)

    def test_workflow_uses_inputs_of_the_action(self):
        inputs = set(read("action.yml")["inputs"])
        for job in read("ci/github.yml")["jobs"].values():
            for step in job["steps"]:
                if "anyverbs@" in step.get("uses", "") or step.get("uses") == "./":
                    self.assertLessEqual(set(step["with"]), inputs)


if __name__ == "__main__":
    unittest.main()
