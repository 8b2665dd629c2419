"""Renders real chat templates with jinja2, set up as Hugging Face's transformers does it.

Usage: make.py TEMPLATES_DIR. In an environment with jinja2 3.1 (`pip install jinja2==3.1.6`).
Writes beside itself NAME.json for each NAME.jinja: for each conversation of conversations.json
the text, or null where jinja2 raises. A text that is that of an earlier conversation is its index.
And snippets_rendered.json, the same for each source in snippets.json, with its variables.
"""

import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

HERE = pathlib.Path(__file__).parent
NOW = datetime.datetime(2024, 7, 26, 13, 5, 9)


class Generation(jinja2.ext.Extension):
    """The tag that marks an assistant's text; it changes nothing."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_pass_through")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _pass_through(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(env, source, variables):
    try:
        return env.from_string(source).render(**variables)
    except Exception:  # whatever Python raises is the template's failure
        return None


def main():
    conversations = json.loads((HERE / "conversations.json").read_text())
    env = environment()
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.jinja")):
        texts = []
        for conversation in conversations:
            text = render(env, path.read_text(), conversation["variables"])
            texts.append(texts.index(text) if text is not None and text in texts else text)
        out = json.dumps(texts, ensure_ascii=False, indent=0)
        (HERE / (path.stem + ".json")).write_text(out + "\n")
    snippets = json.loads((HERE / "snippets.json").read_text())
    texts = [render(env, source, snippets["variables"]) for source in snippets["sources"]]
    (HERE / "snippets_rendered.json").write_text(
        json.dumps(texts, ensure_ascii=False, indent=0) + "\n")


if __name__ == "__main__":
    main()
