"""A real Prometheus server ($TOKEND_PROMETHEUS) scrapes tokend and computes tokens/s."""

import json
import os
import pathlib
import socket
import subprocess
import tempfile
import threading
import unittest
import urllib.error
import urllib.parse
import urllib.request

import grpc
from harness import SMOLLM2, DaemonTest, collect, long_turn, main, wait_until

CONFIG = """
global: {scrape_interval: 1s}
scrape_configs:
  - job_name: tokend
    static_configs:
      - targets: ['%s']
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class PrometheusTest(DaemonTest):
    MODEL = SMOLLM2

    @classmethod
    def setUpClass(cls):
        program = os.environ.get("TOKEND_PROMETHEUS")
        if not program:
            raise unittest.SkipTest("TOKEND_PROMETHEUS is not set; ./dev test sets it")
        super().setUpClass()
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        (folder / "prometheus.yml").write_text(CONFIG % cls.daemon.metrics_address)
        cls.address = f"127.0.0.1:{free_port()}"
        cls.log = folder / "log"
        with open(cls.log, "wb") as log:
            cls.server = subprocess.Popen(
                [program, f"--config.file={folder}/prometheus.yml",
                 f"--storage.tsdb.path={folder}/data", f"--web.listen-address={cls.address}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        cls.addClassCleanup(cls.server.wait)
        cls.addClassCleanup(cls.server.kill)

    def query(self, expression):
        """The value of an instant query's only series; None: no sample yet."""
        self.assertIsNone(self.server.poll(), self.log.read_text())
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        query = urllib.parse.urlencode({"query": expression})
        try:
            with opener.open(f"http://{self.address}/api/v1/query?{query}", timeout=10) as response:
                answer = json.load(response)
        except (urllib.error.URLError, ConnectionError):
            return None  # it still starts
        self.assertEqual(answer["status"], "success")
        series = answer["data"]["result"]
        self.assertLessEqual(len(series), 1)
        return float(series[0]["value"][1]) if series else None

    def test_tokens_per_second(self):
        wait_until("the first scrape", lambda: self.query('up{job="tokend"}') == 1, 60)
        stream = self.stream(long_turn())
        ended = threading.Thread(target=self.read, args=(stream,))
        ended.start()
        try:
            rate = "rate(tokend_generated_tokens_total[10s])"
            wait_until("a rate of tokens", lambda: (self.query(rate) or 0) > 0, 60)
            # While decoding: tokens over the time that decode steps took.
            busy = f"{rate} / rate(tokend_decode_seconds_total[10s])"
            wait_until("tokens/s while decoding", lambda: (self.query(busy) or 0) > 0, 60)
            self.assertLess(self.query(rate), 1e5)
        finally:
            stream.cancel()
            ended.join()
        pages = self.daemon.stats().pages.total
        wait_until("all pages", lambda: self.query("sum(tokend_kv_pages)") == pages, 30)
        # Exposition without a fault: nothing was dropped or refused.
        self.assertEqual(self.query("scrape_samples_scraped - "
                                    "scrape_samples_post_metric_relabeling"), 0)

    @staticmethod
    def read(stream):
        try:
            collect(stream)
        except grpc.RpcError:
            pass  # cancelled


if __name__ == "__main__":
    main()
