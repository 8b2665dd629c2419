"""Interrupts an answer, with asyncio: another task stops it. Usage: barge_in_async.py ADDRESS"""

import asyncio
import sys
import uuid

from tokend.v1 import generation_pb2 as g
from tokend_client import connect_async

SPOKEN = 8  # tokens that the loudspeaker had said when the user interrupted


async def main(address):
    stubs = connect_async(address)
    turn = g.Turn(
        prompt=g.TextInput(text="Once upon a time"),
        session=g.SessionTarget(name=f"sessions/talk-{uuid.uuid4()}", allow_missing=True),
        stop=g.StopRules(max_output_tokens=4000, ignore_end_of_text=True),
        request_id=str(uuid.uuid4()),
    )
    stop = g.StopGenerationRequest(request_id=turn.request_id, keep_output_tokens=SPOKEN)
    received, interruption = 0, None
    async for response in stubs.generation.Stream(g.StreamRequest(turn=turn)):
        print(response.delta.text, end="", flush=True)
        received += len(response.delta.token_ids)
        if interruption is None and received >= SPOKEN:
            interruption = asyncio.ensure_future(stubs.generation.StopGeneration(stop))
        if response.HasField("finished"):  # reason INTERRUPTED, status OK
            print(f"\nkept {SPOKEN} tokens of the answer in {response.finished.version}")
    await interruption
    await stubs.channel.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
