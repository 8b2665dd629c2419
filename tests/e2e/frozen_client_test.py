"""Client processes that freeze: the connection stays, and nothing answers on it."""

import os
import pathlib
import signal
import subprocess
import sys

from harness import SMOLLM2, Daemon, DaemonTest, main, need, wait_until

# A client that reads as fast as it can.
CLIENT = """
import sys
from harness import connect, g, long_turn
stubs = connect(sys.argv[1])
for response in stubs.generation.Stream(g.StreamRequest(turn=long_turn(tokens=8000))):
    print(response.WhichOneof("event"), flush=True)
"""
# By the ping that nobody answers: 10 s until it is sent, 5 s until it is missed.
NOTICED_SECONDS = 45


class FrozenClientTest(DaemonTest):
    @classmethod
    def setUpClass(cls):
        need(SMOLLM2)
        # The queue of a unix socket fills within seconds, and then holds up the ping too.
        cls.daemon = Daemon("--model", SMOLLM2, "--threads", "2", "--stall-timeout-ms", "3000",
                            listen=("127.0.0.1:0", "unix:FOLDER/socket"))
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.wait_ready()
        cls.stubs = cls.daemon.stubs

    def freeze(self, address):
        """A stopped process in the middle of a stream."""
        client = subprocess.Popen(
            [sys.executable, "-c", CLIENT, address], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parent)})

        def end():
            client.kill()
            client.wait()
            client.stdout.close()

        self.addCleanup(end)
        while client.stdout.readline() != "delta\n":
            self.assertIsNone(client.poll())
        client.send_signal(signal.SIGSTOP)

    def test_each_loses_its_turn(self):
        for address in self.daemon.addresses:
            self.freeze(address)
        stats = self.daemon.stats()
        self.assertEqual(stats.running_turns, 2)
        wait_until("both turns end", self.daemon.idle, NOTICED_SECONDS)
        ended = self.daemon.scrape()["tokend_requests_total"]
        gone = ended.get("reason=cancelled", 0) + ended.get("reason=reader_too_slow", 0)
        self.assertEqual(gone, 2, ended)
        pages = self.daemon.stats().pages
        self.assertEqual(pages.free + pages.cached, pages.total)


if __name__ == "__main__":
    main()
