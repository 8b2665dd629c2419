"""Comes back to a session over a new connection, with asyncio. Usage: reconnect_async.py ADDRESS"""

import asyncio
import sys
import uuid

from tokend.v1 import generation_pb2 as g
from tokend.v1 import sessions_pb2 as s
from tokend_client import connect_async


async def say(stubs, session, text, version):
    # expected_version: fail instead of writing behind somebody else's turn.
    target = g.SessionTarget(name=session, allow_missing=True, expected_version=version)
    stop = g.StopRules(max_output_tokens=16)
    turn = g.Turn(prompt=g.TextInput(text=text), session=target, stop=stop)
    await stubs.generation.Generate(g.GenerateRequest(turn=turn))


async def main(address):
    session = f"sessions/note-{uuid.uuid4()}"
    stubs = connect_async(address)
    await say(stubs, session, "Things to buy:", 0)
    await stubs.channel.close()  # the connection is lost, the session is not

    stubs = connect_async(address)
    tokens = await stubs.sessions.ReadTokens(s.ReadTokensRequest(name=session))
    print(tokens.raw.decode(errors="replace"))
    await say(stubs, session, "\nAnd also:", int(tokens.version.rsplit("/", 1)[1]))
    head = (await stubs.sessions.GetSession(s.GetSessionRequest(name=session))).session
    print(f"{head.name} is at version {head.version}, {head.tokens} tokens")
    await stubs.channel.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
