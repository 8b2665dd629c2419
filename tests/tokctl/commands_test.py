"""Every command of tokctl, as people and as scripts read it, and its exit codes."""

import base64
import unittest

from tokctl import DONE, REFUSED, USAGE, json_lines, run

from harness import SMOLLM2, Daemon, DaemonTest, main, need

GREEDY = ("--temperature", "0", "--max-tokens", "8", "--ignore-eos")


class CommandTest(DaemonTest):
    MODEL = SMOLLM2

    def ctl(self, *arguments, code=DONE, **kwargs):
        done = run("--server", self.daemon.address, *arguments, **kwargs)
        self.assertEqual(done.code, code, done.err)
        return done

    def json(self, *arguments, **kwargs):
        done = self.ctl("--json", *arguments, **kwargs)
        self.assertEqual(done.err, "")
        return json_lines(done.out)

    def refused(self, reason, *arguments):
        done = self.ctl(*arguments, code=REFUSED)
        self.assertEqual(done.out, "")
        self.assertEqual(len(done.err.splitlines()), 1)
        self.assertRegex(done.err, rf"^tokctl: [A-Z_]+ \({reason}\): ")
        (error,) = json_lines(self.ctl("--json", *arguments, code=REFUSED).err)
        self.assertEqual(error["reason"], reason)
        return error

    def test_generate_for_scripts(self):
        (answer,) = self.json("generate", "--prompt", "Once upon a time", *GREEDY, "--seed", "5",
                              "--logprobs", "2")
        self.assertEqual(len(answer["token_ids"]), 8)
        self.assertEqual(len(answer["logprobs"]), 8)
        self.assertEqual(len(answer["logprobs"][0]["top"]), 2)
        self.assertEqual(answer["started"]["seed"], "5")  # int64 is a string
        self.assertEqual(answer["raw"], "")  # fields of value zero are printed
        self.assertEqual(answer["finished"]["reason"], "FINISH_REASON_LENGTH")
        self.assertEqual(answer["finished"]["usage"]["output_tokens"], 8)

        *middle, last = self.json("generate", "--stream", "--prompt", "Once upon a time", *GREEDY)
        self.assertIn("started", middle[0])
        self.assertEqual("".join(part["delta"]["text"] for part in middle[1:]), answer["text"])
        self.assertEqual(last["finished"]["reason"], "FINISH_REASON_LENGTH")

        (ids,) = self.json("tokenize", "--text", "Once upon a time")
        numbers = ",".join(map(str, ids["token_ids"]))
        (same,) = self.json("generate", *GREEDY, "--token-ids", numbers)
        self.assertEqual(same["text"], answer["text"])
        (same,) = self.json("generate", "--prompt-file", "-", *GREEDY, stdin="Once upon a time")
        self.assertEqual(same["text"], answer["text"])

    def test_generate_for_people(self):
        done = self.ctl("generate", "--prompt", "Once upon a time", *GREEDY)
        (answer,) = self.json("generate", "--prompt", "Once upon a time", *GREEDY)
        self.assertEqual(done.out.rstrip("\n"), answer["text"].rstrip("\n"))
        self.assertRegex(done.err, r"^\[LENGTH; 4 input tokens, .*8 output tokens; first after "
                                   r"\d+ ms, then [\d.]+ tokens/s\]\n$")
        text = answer["text"]
        done = self.ctl("generate", "--prompt", "Once upon a time", *GREEDY, "--stop", text[5:9])
        self.assertEqual(done.out.rstrip("\n"), text[:text.index(text[5:9])].rstrip("\n"))
        self.assertRegex(done.err, r"^\[STOP; ")

    def test_every_sampling_option_arrives(self):
        for option, bad, field in (
                ("--temperature", "11", "turn.sampling.temperature"),
                ("--top-k", "-1", "turn.sampling.top_k"), ("--top-p", "1.5", "turn.sampling.top_p"),
                ("--min-p", "1.5", "turn.sampling.min_p"),
                ("--repetition-penalty", "0", "turn.sampling.repetition_penalty"),
                ("--presence-penalty", "3", "turn.sampling.presence_penalty"),
                ("--frequency-penalty", "nan", "turn.sampling.frequency_penalty"),
                ("--max-tokens", "-1", "turn.stop.max_output_tokens"),
                ("--request-id", "a b", "turn.request_id"),
                ("--session", "a b", "turn.session.name"),
                ("--stop", "x" * 257, "turn.stop.stop_strings")):
            error = self.refused("INVALID_FIELD", "generate", "--prompt", "x", option, bad)
            self.assertIn(field, error["message"])
        done = self.ctl("--json", "generate", "--prompt", "x", "--logprobs", "21", code=REFUSED)
        self.assertIn("turn.output.top_logprobs", json_lines(done.err)[0]["message"])

    def test_chat(self):
        done = self.ctl("chat", "--session", "chat", "--temperature", "0", "--max-tokens", "30",
                        "--message", "What is the capital of France?")
        self.assertIn("Paris", done.out)
        self.assertIn("sessions/chat/versions/1", done.err)
        lines = self.ctl("chat", "--session", "chat", "--temperature", "0", "--max-tokens", "12",
                         stdin="And of Italy?\n\nThank you.\n")
        self.assertIn("sessions/chat/versions/2", lines.err)
        self.assertIn("sessions/chat/versions/3", lines.err)
        # Version, place and handle are of the first line: the second goes on behind it.
        self.ctl("chat", "--session", "chat", "--max-tokens", "4", "--expected-version", "3",
                 "--from-position", "0", "--request-id", "first", stdin="Good day.\nAnd you?\n")
        _, versions = self.json("sessions", "show", "chat")
        second, first, *_ = versions["versions"]
        self.assertEqual((first["number"], first["request_id"]), ("4", "first"))
        self.assertNotEqual(second["request_id"], "first")
        self.assertGreater(int(second["tokens"]), int(first["tokens"]))
        events = self.json("chat", "--max-tokens", "4", "--message", "Hello",
                           "--system", "Be brief.")
        self.assertIn("finished", events[-1])

    def test_sessions(self):
        feed = ("generate", "--session", "s", "--prompt", "One two", *GREEDY)
        (first,) = self.json(*feed)
        self.assertEqual(first["finished"]["version"], "sessions/s/versions/1")
        self.refused("VERSION_MISMATCH", *feed, "--expected-version", "7")
        self.json(*feed, "--expected-version", "1")

        (fork,) = self.json("sessions", "fork", "s", "branch", "--version", "1")
        self.assertEqual(fork["session"]["forked_from"], "sessions/s/versions/1")
        self.refused("SESSION_EXISTS", "sessions", "fork", "s", "branch")
        (back,) = self.json("sessions", "rollback", "s", "1")
        self.assertEqual(back["session"]["version"], "3")
        self.refused("VERSION_MISMATCH", "sessions", "rollback", "s", "1",
                     "--expected-version", "1")

        session, versions = self.json("sessions", "show", "s")
        self.assertEqual(session["session"]["name"], "sessions/s")
        self.assertEqual([v["number"] for v in versions["versions"]], ["3", "2", "1"])
        shown = self.ctl("sessions", "show", "s").out
        self.assertRegex(shown, r"(?m)^name +sessions/s$")
        self.assertRegex(shown, r"(?m)^VERSION +PARENT +TOKENS +REASON")
        self.assertRegex(shown, r"(?m)^2 +1 +\d+ +LENGTH ")

        (listed,) = self.json("sessions", "list")
        self.assertLessEqual({"sessions/s", "sessions/branch"},
                             {one["name"] for one in listed["sessions"]})
        self.assertRegex(self.ctl("sessions", "list").out, r"(?m)^NAME .*\n(.*\n)*sessions/branch ")

        self.refused("VERSION_MISMATCH", "sessions", "delete", "s", "--expected-version", "1")
        self.assertEqual(self.ctl("sessions", "delete", "s").out, "")
        self.refused("NO_SUCH_RESOURCE", "sessions", "delete", "s")
        self.assertEqual(self.json("sessions", "delete", "s", "--allow-missing"), [{}])
        self.refused("NO_SUCH_RESOURCE", "sessions", "show", "s")

    def test_a_windowed_session(self):
        (made,) = self.json("sessions", "create", "camera", "--sinks", "4", "--window", "256",
                            "--idle-ttl", "90.5")
        self.assertEqual(made["session"]["retention"]["sliding_window"],
                         {"sink_tokens": 4, "window_tokens": 256})
        self.assertEqual(made["session"]["idle_ttl"], "90.500s")
        shown = self.ctl("sessions", "show", "camera").out
        self.assertRegex(shown, r"(?m)^retention +window 256, sinks 4$")
        self.refused("SESSION_EXISTS", "sessions", "create", "camera")
        self.ctl("sessions", "create", "deep", "--full-layers", "1", "--window", "64")
        shown = self.ctl("sessions", "show", "deep").out
        self.assertRegex(shown, r"(?m)^retention +1 full layers, then window 64, sinks 0$")
        self.ctl("sessions", "create", "heavy", "--kept-pages", "8", "--window", "64")
        shown = self.ctl("sessions", "show", "heavy").out
        self.assertRegex(shown, r"(?m)^retention +window 64, sinks 0, 8 heavy pages$")
        named = self.json("sessions", "create")[0]["session"]["name"]
        self.assertRegex(named, r"^sessions/[0-9a-f]+$")

    def test_model_and_stats(self):
        (model,) = self.json("model")
        self.assertEqual((model["ready"], model["model"]["layer_count"]), (True, 30))
        self.assertRegex(self.ctl("model").out, r"(?m)^weights +Q4_1, 96.4 MB$")
        (stats,) = self.json("stats")
        pages = {key: int(value) for key, value in stats["pages"].items()}
        self.assertEqual(sum(pages.values()), 2 * pages["total"])
        self.assertRegex(self.ctl("stats").out, r"(?m)^turns +0 running, 0 waiting$")

    def test_tokenize_and_detokenize(self):
        (ids,) = self.json("tokenize", "--text", "<|im_start|>hi")
        self.assertEqual(ids["token_ids"][0], 1)
        (plain,) = self.json("tokenize", "--no-special", "--text", "<|im_start|>hi")
        self.assertNotIn(1, plain["token_ids"])
        numbers = ",".join(map(str, ids["token_ids"]))
        self.assertEqual(self.ctl("tokenize", "--text", "<|im_start|>hi").out, numbers + "\n")
        self.assertEqual(self.ctl("detokenize", numbers).out, "<|im_start|>hi\n")
        self.assertEqual(self.ctl("detokenize", numbers, "--skip-special").out, "hi\n")
        (text,) = self.json("detokenize", numbers)
        self.assertEqual(base64.b64decode(text["raw"]).decode(), text["text"])
        self.refused("INVALID_FIELD", "detokenize", "99999999")

    def test_the_server_from_the_environment(self):
        done = run("stats", env={"TOKEND_SERVER": self.daemon.address,
                                 "http_proxy": "http://127.0.0.1:1"})
        self.assertEqual(done.code, DONE, done.err)
        self.assertEqual(run("--server", self.daemon.address, "--ca-file", "/nowhere",
                             "stats").code, USAGE)
        self.assertEqual(run("--json", "--server", self.daemon.address).code, USAGE)


class WaitTest(unittest.TestCase):
    def test_wait_outlasts_the_load(self):
        need(SMOLLM2)
        daemon = Daemon("--model", SMOLLM2, "--threads", "2", listen=("unix:FOLDER/s",))
        self.addCleanup(daemon.close)
        # Even before the socket is there.
        done = run("--server", f"unix:{daemon.folder}/s", "--wait", "60s", "--json", "model")
        self.assertEqual(done.code, DONE, done.err)
        self.assertTrue(json_lines(done.out)[0]["ready"])
        self.assertEqual(daemon.stop(), 0)


if __name__ == "__main__":
    main()
