"""The bundle's script, with programs that are played: what passes, fails, hangs or is
missing is told apart, and nothing keeps the rest from running."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import pack  # noqa: E402  # of the same folder


def benches(parts):
    return [name for name in parts if name.startswith("bench_")]


class RunTest(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.bundle = pathlib.Path(temp.name) / "bundle"
        for folder in ("bin", "lib", "tests", "work", "models"):
            (self.bundle / folder).mkdir(parents=True)
        for name in ("run.sh", "sanitizer.sh"):
            shutil.copy(HERE / name, self.bundle / name)
        self.play("bin/cuda_device", "echo 'cuda:0 (Played)'")
        self.play("bin/tokend_device_bench",
                  "echo ' x_decode_1 12 tokens/s'; echo ' x_decode_1_share 80 % of the floor'")
        self.play("daemon.sh", "echo turns done")
        self.play("sanitizer.sh", "exit 77")

    def play(self, name, body):
        path = self.bundle / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def run_all(self, seconds=60):
        done = subprocess.run([self.bundle / "run.sh"], capture_output=True, text=True, timeout=90,
                              env={"PATH": "/usr/bin:/bin", "RUN_SECONDS": str(seconds)})
        summary = json.loads((self.bundle / "results/summary.json").read_text())
        parts = {part["name"]: part for part in summary["parts"]}
        # The table comes last and has every part.
        table = done.stdout.rsplit("\n\n", 1)[1].splitlines()[1:]
        self.assertEqual([line.split()[0] for line in table], list(parts))
        return done, parts

    def test_all_parts_run(self):
        self.play("tests/one", "echo '[  PASSED  ] 3 tests.'")
        done, parts = self.run_all()
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertGreater(len(benches(parts)), 4)
        self.assertEqual({name: part["state"] for name, part in parts.items()},
                         {"device": "ok", "op_one": "ok", "daemon": "ok", "sanitizer": "skipped",
                          **{name: "ok" for name in benches(parts)}})
        self.assertIn("3 tests", parts["op_one"]["note"])
        for name in benches(parts):
            self.assertEqual(parts[name]["note"].strip(), "12 tokens/s 80 % of the floor")
            self.assertTrue((self.bundle / f"results/{name}.log").exists())

    def test_a_failure_hides_nothing(self):
        self.play("tests/a", "echo 'bad \"quote\\\\ and\ttab'; exit 3")
        self.play("tests/b", "exit 0")
        self.play("daemon.sh", "kill -SEGV $$")
        done, parts = self.run_all()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(parts["op_a"]["state"], "FAILED")
        self.assertIn('"quote', parts["op_a"]["note"])
        self.assertEqual(parts["op_b"]["state"], "ok")
        self.assertEqual(parts["daemon"]["state"], "FAILED")
        for name in benches(parts):
            self.assertEqual(parts[name]["state"], "ok")

    def test_what_hangs_is_ended_and_time_is_bounded(self):
        self.play("tests/hangs", "trap '' TERM; sleep 100 & wait; sleep 100")
        start = time.monotonic()
        done, parts = self.run_all(seconds=4)
        self.assertLess(time.monotonic() - start, 20)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(parts["op_hangs"]["state"], "TIMEOUT")
        for name in benches(parts):
            self.assertEqual(parts[name]["note"], "no time left")

    def test_without_a_device_each_part_says_so(self):
        self.play("bin/cuda_device", "echo 'cuda: no NVIDIA driver is installed'; exit 77")
        self.play("tests/one", "exit 1")
        done, parts = self.run_all()
        self.assertEqual(done.returncode, 77)
        self.assertIn("no NVIDIA driver", parts["device"]["note"])
        for name in ("op_one", "daemon", "sanitizer", *benches(parts)):
            self.assertEqual((parts[name]["state"], parts[name]["note"]), ("skipped", "no device"))

    def test_what_the_scripts_start_is_packed(self):
        started = set()
        for name in pack.SCRIPTS:
            started |= set(re.findall(r"\$here/bin/(\w+)", (HERE / name).read_text()))
        self.assertEqual(started, set(pack.PROGRAMS))

    # Its device is the CPU here: what it asks and compares is the same.
    def test_daemon_script(self):
        programs = pathlib.Path(os.environ["TOKEND_BIN_DIR"])
        model = HERE.parents[2] / "shared/tiny_models/llama.gguf"
        if not (programs / "tokend").exists() or not model.exists():
            self.skipTest("no daemon or no model")
        for name in ("tokend", "tokctl"):
            (self.bundle / "bin" / name).symlink_to(programs / name)
        done = subprocess.run([HERE / "daemon.sh", self.bundle, model], capture_output=True,
                              text=True, timeout=120, env={**os.environ, "BUNDLE_DEVICE": "cpu"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("7 turns alike", done.stdout)
        (self.bundle / "bin/tokctl").unlink()
        self.play("bin/tokctl", f'exec {programs}/tokctl "$@" --seed $$ --temperature 2')
        done = subprocess.run([HERE / "daemon.sh", self.bundle, model], capture_output=True,
                              text=True, timeout=120, env={**os.environ, "BUNDLE_DEVICE": "cpu"})
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("FAILED", done.stdout)


if __name__ == "__main__":
    program = unittest.main(exit=False)
    if not program.result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if program.result.skipped else 0)
