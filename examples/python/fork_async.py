"""Two continuations of one session at the same time, with asyncio. Usage: fork_async.py ADDRESS"""

import asyncio
import sys
import uuid

from tokend.v1 import generation_pb2 as g
from tokend.v1 import sessions_pb2 as s
from tokend_client import connect_async


async def say(stubs, session, text):
    turn = g.Turn(
        prompt=g.TextInput(text=text),
        session=g.SessionTarget(name=session, allow_missing=True),
        stop=g.StopRules(max_output_tokens=16),
    )
    answer = await stubs.generation.Generate(g.GenerateRequest(turn=turn))
    print(f"{answer.finished.version}:{answer.text!r}")


async def main(address):
    stubs = connect_async(address)
    trunk = f"sessions/trunk-{uuid.uuid4()}"
    await say(stubs, trunk, "The robot opened the door and saw")
    branch = (await stubs.sessions.ForkSession(s.ForkSessionRequest(source=trunk))).session
    await asyncio.gather(
        say(stubs, trunk, " In the garden"), say(stubs, branch.name, " In the cellar")
    )
    print(f"{branch.name} was forked from {branch.forked_from}")
    await stubs.channel.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
