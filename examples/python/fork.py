"""Two continuations of one session, neither seeing the other. Usage: fork.py ADDRESS"""

import sys
import uuid

from tokend.v1 import generation_pb2 as g
from tokend.v1 import sessions_pb2 as s
from tokend_client import connect


def say(stubs, session, text):
    turn = g.Turn(
        prompt=g.TextInput(text=text),
        session=g.SessionTarget(name=session, allow_missing=True),
        stop=g.StopRules(max_output_tokens=16),
    )
    answer = stubs.generation.Generate(g.GenerateRequest(turn=turn))
    print(f"{answer.finished.version}:{answer.text!r}")


def main(address):
    stubs = connect(address)
    trunk = f"sessions/trunk-{uuid.uuid4()}"
    say(stubs, trunk, "The robot opened the door and saw")
    branch = stubs.sessions.ForkSession(s.ForkSessionRequest(source=trunk)).session
    say(stubs, trunk, " In the garden")
    say(stubs, branch.name, " In the cellar")
    print(f"{branch.name} was forked from {branch.forked_from}")
    stubs.channel.close()


if __name__ == "__main__":
    main(sys.argv[1])
