"""tokctl without a server: tokenising from a file, usage errors, nobody there."""

import pathlib
import socket
import struct
import tempfile
import time
import unittest

from tokctl import BAD_MODEL, DONE, REFUSED, UNREACHABLE, USAGE, json_lines, run

from harness import SHARED, SMOLLM2, TINY, main, need

GPT2 = SHARED / "tokenizers" / "ggml-vocab-gpt-2.gguf"
MARKER = "\n__ggml_vocab_test__\n"


class VocabularyTest(unittest.TestCase):
    def setUp(self):
        need(GPT2)
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def write(self, text):
        path = f"{self.folder}/text"
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        return path

    def test_the_cases_of_the_vocabulary(self):
        texts = GPT2.with_suffix(".gguf.inp").read_bytes().decode().split(MARKER)
        lines = GPT2.with_suffix(".gguf.out").read_text().splitlines()
        self.assertGreater(len(lines), 40)
        for text, line in zip(texts, lines):
            done = run("tokenize", "--model", GPT2, "--text-file", self.write(text),
                       "--no-special", "--json")
            self.assertEqual(done.code, DONE, done.err)
            ids = json_lines(done.out)[0]["token_ids"]
            self.assertEqual(ids, [int(part) for part in line.split()], text)

    def test_people_get_a_list_that_detokenize_takes(self):
        done = run("tokenize", "--model", GPT2, "--text", "Hello world")
        self.assertEqual((done.code, done.out), (DONE, "15496,995\n"))
        back = run("detokenize", "--model", GPT2, "15496,995")
        self.assertEqual((back.code, back.out), (DONE, "Hello world\n"))
        back = run("detokenize", "--json", "--model", GPT2, "15496,995")
        self.assertEqual(json_lines(back.out)[0]["text"], "Hello world")
        empty = run("tokenize", "--model", GPT2, "--no-special", "--text-file", "-", "--json")
        self.assertEqual(json_lines(empty.out), [{"token_ids": []}])

    def test_special_tokens_are_read_unless_told_not_to(self):
        text = ("--text", "<|endoftext|>")
        special = run("tokenize", "--model", GPT2, "--json", *text)
        self.assertIn(50256, json_lines(special.out)[0]["token_ids"])
        plain = run("tokenize", "--model", GPT2, "--no-special", "--json", *text)
        self.assertNotIn(50256, json_lines(plain.out)[0]["token_ids"])

    def test_a_whole_model_does_as_well(self):
        need(SMOLLM2)
        done = run("tokenize", "--model", SMOLLM2, "--text", "<|im_start|>", "--json")
        self.assertEqual(json_lines(done.out)[0]["token_ids"], [1])

    def test_tensors_do_not_matter(self):
        need(TINY)
        expected = run("tokenize", "--model", TINY, "--text", "Once upon a time")
        self.assertEqual(expected.code, DONE, expected.err)
        whole = TINY.read_bytes()
        name = struct.pack("<Q", 17) + b"token_embd.weight"
        self.assertEqual(whole.count(name), 1)
        type_at = whole.index(name) + len(name) + 4 + 2 * 8  # rank, two dimensions
        unknown = whole[:type_at] + struct.pack("<I", 999) + whole[type_at + 4:]
        for data in (unknown, whole[:type_at]):  # a type of tomorrow; no tensors at all
            path = pathlib.Path(self.folder) / "model.gguf"
            path.write_bytes(data)
            done = run("tokenize", "--model", path, "--text", "Once upon a time")
            self.assertEqual((done.code, done.out, done.err), (DONE, expected.out, ""))
            back = run("detokenize", "--model", path, done.out.strip())
            self.assertEqual((back.code, back.out), (DONE, "Once upon a time\n"))

    def test_bad_files_and_ids(self):
        junk = self.write("no model at all" * 10)
        for path in (junk, "/nowhere.gguf", self.folder):
            done = run("tokenize", "--model", path, "--text", "x")
            self.assertEqual((done.code, done.out), (BAD_MODEL, ""))
            self.assertEqual(len(done.err.splitlines()), 1, done.err)
            self.assertIn(str(path), done.err)
            done = run("--json", "tokenize", "--model", path, "--text", "x")
            self.assertIn(str(path), json_lines(done.err)[0]["message"])
        for path in ("/nowhere", self.folder, "/dev/zero"):
            for command in (("tokenize", "--model", GPT2, "--text-file"),
                            ("generate", "--prompt-file")):
                done = run(*command, path)
                self.assertEqual((done.code, done.out), (REFUSED, ""))
                self.assertIn(f"cannot read {path}: ", done.err)
        done = run("detokenize", "--model", GPT2, "99999999")
        self.assertEqual(done.code, REFUSED)


class UsageTest(unittest.TestCase):
    def test_wrong_usage(self):
        for arguments in (
                (), ("frobnicate",), ("generate",),
                ("generate", "--prompt", "a", "--token-ids", "1"),
                ("generate", "--prompt", "a", "--max-tokens", "many"),
                ("generate", "--prompt", "a", "--on-conflict", "fight"), ("sessions",),
                ("sessions", "rollback", "a"), ("sessions", "create", "a", "--sinks", "4"),
                ("tokenize",), ("detokenize", "one"), ("chat",), ("model", "--wait", "soon"),
                ("model", "--wait", "-1s"),
                *(("sessions", "create", "a", "--idle-ttl", ttl)
                  for ttl in ("nan", "inf", "-inf", "1e300", "3.3e8", "-1", "soon"))):
            done = run(*arguments)
            self.assertEqual((done.code, done.out), (USAGE, ""), arguments)
            self.assertTrue(done.err, arguments)
            for line in ((*arguments, "--json"), ("--json", *arguments)):
                done = run(*line)
                self.assertEqual((done.code, done.out), (USAGE, ""), line)
                (error,) = json_lines(done.err)
                self.assertTrue(error["message"], line)

    def test_options_that_would_have_no_effect(self):
        for option in (("--expected-version", "1"), ("--from-position", "1"),
                       ("--commit", "never"), ("--on-conflict", "fork"), ("--logprobs", "1")):
            for command in (("generate", "--prompt", "a"), ("chat", "--message", "a")):
                done = run(*command, *option)
                self.assertEqual((done.code, done.out), (USAGE, ""))
                self.assertIn(option[0], done.err)
        done = run("generate", "--token-ids", "1", "--parse-special")
        self.assertEqual(done.code, USAGE)

    def test_lists_of_ids(self):
        for ids in ("", "1,,2", "1,", ",", "1 2", "99999999999"):
            for command in (("generate", "--token-ids"), ("detokenize", "--model", TINY)):
                done = run(*command, ids)
                self.assertEqual((done.code, done.out), (USAGE, ""), (command, ids))
                self.assertIn("is no token id", done.err)

    def test_a_token_that_no_header_can_carry(self):
        for token in ("a\nb", "t\u00e9", "secret\r", "\x7f"):
            for done in (run("--token", token, "model"), run("model", env={"TOKEND_TOKEN": token})):
                self.assertEqual((done.code, done.out), (USAGE, ""))
                self.assertIn("--token: byte ", done.err)
                self.assertNotIn("secret", done.err)

    def test_text_that_is_not_utf8(self):
        for option in (("generate", "--prompt"), ("chat", "--message"),
                       ("chat", "--message", "a", "--system"),
                       ("generate", "--prompt", "a", "--stop"), ("sessions", "show")):
            done = run(*option, b"abc\xff")
            self.assertEqual((done.code, done.out), (USAGE, ""))
            self.assertIn("not UTF-8 at byte 3", done.err)
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"\xc3\xa9\xc3")
            file.flush()
            done = run("generate", "--prompt-file", file.name)
            self.assertEqual((done.code, done.out), (REFUSED, ""))
            self.assertIn(f"{file.name}: not UTF-8 at byte 2", done.err)

    def test_help(self):
        for arguments in (("--help",), ("generate", "--help"), ("sessions", "create", "--help")):
            done = run(*arguments)
            self.assertEqual((done.code, done.err), (DONE, ""))
            self.assertTrue(done.out)
        self.assertIn("Exit codes", run("--help").out)

    def test_nobody_there(self):
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))  # not listening
            address = f"127.0.0.1:{held.getsockname()[1]}"
            for command in (("model",), ("stats",), ("sessions", "list"),
                            ("generate", "--prompt", "a"),
                            ("generate", "--prompt", "a", "--json"), ("tokenize", "--text", "a")):
                done = run("--server", address, *command, seconds=60)
                self.assertEqual((done.code, done.out), (UNREACHABLE, ""), done.err)
                self.assertIn(address, done.err)
            start = time.monotonic()
            done = run("--server", address, "--wait", "1500ms", "model")
            self.assertEqual(done.code, UNREACHABLE)
            self.assertGreater(time.monotonic() - start, 1)
        self.assertEqual(run("--server", "unix:/nowhere.sock", "model").code, UNREACHABLE)


if __name__ == "__main__":
    main()
