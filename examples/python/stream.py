"""Streams the answer to a question. Usage: stream.py ADDRESS"""

import sys

from tokend.v1 import generation_pb2 as g
from tokend_client import connect


def main(address):
    stubs = connect(address)
    question = g.Message(role=g.ROLE_USER, parts=[g.Part(text="Why is the sky blue?")])
    turn = g.Turn(
        chat=g.ChatInput(messages=[question]),
        stop=g.StopRules(max_output_tokens=32),
    )
    for response in stubs.generation.Stream(g.StreamRequest(turn=turn)):
        kind = response.WhichOneof("event")  # None: an event of a later server
        if kind == "delta":
            print(response.delta.text, end="", flush=True)
        elif kind == "finished":
            print(f"\n{response.finished.usage.output_tokens} tokens")
    stubs.channel.close()


if __name__ == "__main__":
    main(sys.argv[1])
