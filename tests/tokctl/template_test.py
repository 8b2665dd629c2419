"""tokctl template: chat templates rendered without a server."""

import json
import pathlib
import tempfile
import unittest

from tokctl import BAD_MODEL, DONE, REFUSED, USAGE, json_lines, run

from harness import SHARED, SMOLLM2, main, need

TEMPLATES = SHARED / "chat_templates"
GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "chat_templates"


class TemplateTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def write(self, name, content):
        path = self.folder / name
        path.write_text(content, encoding="utf-8", newline="")
        return path

    def render(self, source, variables, *more):
        return run("template", "--template", self.write("t.jinja", source), "--messages",
                   self.write("m.json", json.dumps(variables)), *more)

    def test_real_templates_as_jinja2_renders_them(self):
        need(TEMPLATES)
        conversations = json.loads((GOLDEN / "conversations.json").read_text())
        for name in ("Qwen-Qwen3-0.6B", "meta-llama-Llama-3.2-3B-Instruct", "google-gemma-2-2b-it"):
            texts = json.loads((GOLDEN / f"{name}.json").read_text())
            for conversation, text in list(zip(conversations, texts))[:9]:
                messages = self.write("m.json", json.dumps(conversation["variables"]))
                done = run("template", "--template", TEMPLATES / f"{name}.jinja", "--messages",
                           messages, "--date", "2024-07-26")
                if text is None:
                    self.assertEqual((done.code, done.out), (REFUSED, ""), name)
                    self.assertRegex(done.err, "line [0-9]+, column [0-9]+: ")
                else:
                    # Python reads every end of a line as a newline.
                    self.assertEqual((done.code, done.out), (DONE, text.replace("\r\n", "\n")),
                                     done.err)

    def test_every_variable_of_the_file_reaches_the_template(self):
        done = self.render("{{ messages[0].content }}{{ enable_thinking }}{{ q is defined }}",
                           {"messages": [{"content": "\u00e9"}], "enable_thinking": False})
        self.assertEqual((done.code, done.out), (DONE, "\u00e9FalseFalse"))
        done = self.render("a\n\n", {"messages": []}, "--json")
        self.assertEqual(json_lines(done.out), [{"text": "a\n"}])

    def test_dates(self):
        source = "{{ strftime_now('%d %b %Y') }}"
        done = self.render(source, {"messages": []}, "--date", "2026-02-28")
        self.assertEqual((done.code, done.out), (DONE, "28 Feb 2026"))
        self.assertEqual(self.render(source, {"messages": []}).code, DONE)
        for date in ("2026-02-30", "yesterday", "2026", "2026-1-1"):
            self.assertEqual(self.render(source, {"messages": []}, "--date", date).code, USAGE, date)

    def test_a_model_file_holds_one(self):
        need(SMOLLM2)
        messages = self.write("m.json", json.dumps(
            {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": True}))
        done = run("template", "--model", SMOLLM2, "--messages", messages)
        self.assertEqual(done.code, DONE, done.err)
        self.assertTrue(done.out.endswith(
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"), done.out)
        done = run("template", "--model", self.write("junk.gguf", "junk" * 20), "--messages",
                   messages)
        self.assertEqual((done.code, done.out), (BAD_MODEL, ""))

    def test_what_cannot_be_rendered(self):
        done = self.render("a\n {{ raise_exception('no system') }}", {"messages": []})
        self.assertEqual((done.code, done.out), (REFUSED, ""))
        self.assertIn("line 2, column 5: no system", done.err)
        for variables in ([], {"message": []}, 3):
            done = self.render("x", variables)
            self.assertEqual((done.code, done.out), (REFUSED, ""))
            self.assertIn("messages", done.err)
        done = run("template", "--template", self.write("t", "x"), "--messages",
                   self.write("m", '{"messages": [}'))
        self.assertEqual((done.code, done.out), (REFUSED, ""))
        self.assertIn("no JSON at byte", done.err)
        self.assertEqual(run("template", "--messages", "x").code, USAGE)
        self.assertEqual(run("template", "--template", "x").code, USAGE)


if __name__ == "__main__":
    main()
