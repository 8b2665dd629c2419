"""Comes back to a session over a new connection and goes on. Usage: reconnect.py ADDRESS"""

import sys
import uuid

from tokend.v1 import generation_pb2 as g
from tokend.v1 import sessions_pb2 as s
from tokend_client import connect


def say(stubs, session, text, version):
    # expected_version: fail instead of writing behind somebody else's turn.
    target = g.SessionTarget(name=session, allow_missing=True, expected_version=version)
    stop = g.StopRules(max_output_tokens=16)
    turn = g.Turn(prompt=g.TextInput(text=text), session=target, stop=stop)
    stubs.generation.Generate(g.GenerateRequest(turn=turn))


def main(address):
    session = f"sessions/note-{uuid.uuid4()}"
    stubs = connect(address)
    say(stubs, session, "Things to buy:", 0)
    stubs.channel.close()  # the connection is lost, the session is not

    stubs = connect(address)
    tokens = stubs.sessions.ReadTokens(s.ReadTokensRequest(name=session))
    print(tokens.raw.decode(errors="replace"))
    say(stubs, session, "\nAnd also:", int(tokens.version.rsplit("/", 1)[1]))
    head = stubs.sessions.GetSession(s.GetSessionRequest(name=session)).session
    print(f"{head.name} is at version {head.version}, {head.tokens} tokens")
    stubs.channel.close()


if __name__ == "__main__":
    main(sys.argv[1])
