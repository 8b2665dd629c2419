"""Plants violations in a temporary tree: check_tree must name each of them."""

import pathlib
import tempfile
import unittest

import check_tree


class CheckTreeTest(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.temp.name)
        self.addCleanup(self.temp.cleanup)
        self.write("core/base/error.h", self.header("CORE_BASE_ERROR"))
        self.write("core/ops/rope.h", self.header("CORE_OPS_ROPE", '#include "core/base/error.h"'))
        self.write("core/kv/pool.h", self.header("CORE_KV_POOL", '#include "core/ops/rope.h"'))
        self.write("core/model/plan.h", self.header("CORE_MODEL_PLAN"))

    @staticmethod
    def header(guard, body=""):
        return f"#ifndef TOKEND_{guard}_H_\n#define TOKEND_{guard}_H_\n{body}\n#endif\n"

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def assert_one(self, *needles):
        problems = check_tree.check_tree(self.root)
        self.assertEqual(len(problems), 1, problems)
        for needle in needles:
            self.assertIn(needle, problems[0])

    def test_good_tree_is_clean(self):
        self.write("tests/core/kv/pool_test.cc", '#include "core/model/plan.h"\n')
        self.write("service/device.cc", '#include "cuda_kernels/backend/create.h"\n')
        self.write("service/server.cc", '#include "core/kv/pool.h"\n#include <grpcpp/grpcpp.h>\n')
        self.write("metrics/families.cc", "#include <prometheus/counter.h>\n")
        self.assertEqual(check_tree.check_tree(self.root), [])

    def test_arrow_that_points_back(self):
        self.write("core/ops/bad.cc", '#include "core/kv/pool.h"\n')
        self.assert_one("core/ops/bad.cc:1", "core/ops must not depend on core/kv")

    def test_kv_knows_nothing_of_models(self):
        self.write("core/kv/bad.cc", "\n#include <vector>\n#include \"core/model/plan.h\"\n")
        self.assert_one("core/kv/bad.cc:3", "core/kv must not depend on core/model")

    def test_metrics_sees_base_only(self):
        self.write("metrics/bad.cc", '#include "core/kv/pool.h"\n')
        self.assert_one("metrics must not depend on core/kv")

    def test_angle_brackets_do_not_hide_an_arrow(self):
        self.write("core/ops/bad.cc", "#include <core/kv/pool.h>\n")
        self.assert_one("core/ops must not depend on core/kv")

    def test_foreign_headers_in_core(self):
        for header in (
            "grpcpp/grpcpp.h", "grpc/grpc.h", "google/protobuf/message.h", "google/rpc/status.pb.h",
            "tokend/v1/common.pb.h", "prometheus/counter.h", "cuda_runtime.h", "cuda.h",
            "cublas_v2.h",
        ):
            with self.subTest(header):
                self.write("core/engine/bad.cc", f"  #  include <{header}>\n")
                problems = check_tree.check_tree(self.root)
                self.assertTrue(any("core/ must not include" in p for p in problems), problems)

    def test_product_code_does_not_include_tests(self):
        self.write("tests/support/fake.h", self.header("TESTS_SUPPORT_FAKE"))
        self.write("service/bad.cc", '#include "tests/support/fake.h"\n')
        self.assert_one("product code must not include tests/support/fake.h")

    def test_relative_include(self):
        self.write("core/ops/bad.cc", '#include "rope.h"\n')
        self.assert_one("no path from the root")

    def test_banned_header(self):
        self.write("core/base/bad.cc", '#include "absl/synchronization/mutex.h"\n')
        self.assert_one("core/base/mutex.h")

    def test_unknown_folder(self):
        self.write("core/extra/new.cc", "\n")
        self.assert_one("core/extra/new.cc", "table of arrows")

    def test_wrong_guard(self):
        self.write("core/ops/softmax.h", self.header("CORE_OPS_SOFT_MAX"))
        self.assert_one("TOKEND_CORE_OPS_SOFTMAX_H_")

    def test_long_file(self):
        self.write("core/ops/long.cc", "\n" * 400)
        self.assertEqual(check_tree.check_tree(self.root), [])
        self.write("core/ops/long.cc", "\n" * 401)
        self.assert_one("core/ops/long.cc: 401 lines")


if __name__ == "__main__":
    unittest.main()
