"""What ./dev says while it installs, where its models lie, what it takes for a bench's name."""

import os
import pathlib
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# apt-get, played: talks on stdout, as the real one does.
SCRIPT = """
. cmake/dev_install.sh
missing_packages() { echo some-package; }
can_be_root() { true; }
as_root() { echo "ran $1 $2"; }
apt_install some-package
"""
MODEL = """
. cmake/dev_install.sh
model_is_whole() { true; }
ensure_model smollm2
printf %s "$MODEL_FILE"
"""
# Its functions, those that would do something replaced.
BENCH = """
arguments=("$@")
set -- help
. ./dev >/dev/null
build() { :; }
ensure_model() { MODEL_FILE=model; }
ensure_peer() { echo peer; }
exec() { :; }
bench "${arguments[@]}"
"""
# What is configured and compiled.
BUILD = """
arguments=("$@")
set -- help
. ./dev >/dev/null
configure() { echo "configure $*"; }
compile() { echo "compile $*"; }
grep() { return "$have_parts"; }
"${arguments[@]}"
"""


def run_bash(script, *arguments, **kwargs):
    return subprocess.run(["bash", "-euo", "pipefail", "-c", script, "bash", *arguments], cwd=ROOT,
                          text=True, capture_output=True, check=True, **kwargs)


class DevInstallTest(unittest.TestCase):
    # `./dev model` owns stdout.
    def test_apt_speaks_on_stderr(self):
        done = run_bash(SCRIPT)
        self.assertEqual(done.stdout, "")
        self.assertIn("ran apt-get update", done.stderr)
        self.assertIn("ran apt-get install", done.stderr)

    def test_models_have_a_place_without_a_home(self):
        path = {"PATH": os.environ["PATH"]}
        file = "tokend/models/SmolLM2-135M-Instruct.Q4_1.gguf"
        self.assertEqual(run_bash(MODEL, env=path).stdout, f"/root/.cache/{file}")
        done = run_bash(MODEL, env={**path, "HOME": "/home/a"})
        self.assertEqual(done.stdout, f"/home/a/.cache/{file}")

    # The programs alone, for every GPU; tests have kernels for one, unless there are more.
    def test_what_build_and_test_compile(self):
        def built(*arguments, have_parts="1"):
            env = {**os.environ, "have_parts": have_parts}
            return run_bash(BUILD, *arguments, env=env).stdout.splitlines()

        every_part = "-U TOKEND_CUDA_ARCHITECTURES"
        self.assertEqual(built("build"), [f"configure release {every_part}",
                                          "compile release programs"])
        self.assertEqual(built("build", "arm64", "all"), [f"configure arm64 {every_part}",
                                                          "compile arm64 all"])
        self.assertEqual(built("build_all", "release"),
                         ["configure release -D TOKEND_CUDA_ARCHITECTURES=90",
                          "compile release all"])
        self.assertEqual(built("build_all", "release", have_parts="0"),
                         ["configure release", "compile release all"])

    def test_all_benches_need_the_peer_and_a_value_is_no_name(self):
        for arguments in ((), ("--threads", "2"), ("--isa", "avx2", "--model", "m"),
                          ("--json", "file"), ("--threads=2",), ("peer", "kv")):
            self.assertEqual(run_bash(BENCH, *arguments).stdout, "peer\n", arguments)
        for arguments in (("kv",), ("--threads", "2", "kv"), ("kv", "--model", "peer")):
            self.assertEqual(run_bash(BENCH, *arguments).stdout, "", arguments)


if __name__ == "__main__":
    unittest.main()
