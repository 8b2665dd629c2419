"""Every numeric field that a request can hold, and what is wrong with which value.

Each case sets one value in an otherwise good request and names the field that the
error must name. numeric_paths() finds every number of every request, so that the test
can tell which has no case.
"""

import math
import types

from google.protobuf import descriptor
from harness import g, m, s

NAN, INF = math.nan, math.inf
MAX32, MAX64 = 2**31 - 1, 2**63 - 1
HUGE_FLOAT = 3e38
BAD_FLOATS = (NAN, INF, -INF, HUGE_FLOAT, -HUGE_FLOAT)
BAD_ENUMS = (-1, 99, MAX32)

# Given to the cases below: what the served model allows.
Limits = types.SimpleNamespace


def set_path(message, path, value):
    *parents, name = path.split(".")
    for parent in parents:
        message = getattr(message, parent)
    if message.DESCRIPTOR.fields_by_name[name].is_repeated:
        getattr(message, name).append(value)
    else:
        setattr(message, name, value)


def good_turn():
    turn = g.Turn(prompt=g.TextInput(text="Once"))
    turn.stop.max_output_tokens = 2
    return turn


def turn_values(limits):
    """(path in Turn, path in the error, bad values) of every number but seed's."""
    vocabulary, context = limits.vocabulary, limits.context
    ids = (-1, vocabulary, MAX32, -MAX32 - 1)
    return [
        ("tokens.token_ids", "turn.tokens.token_ids[0]", ids),
        ("session.expected_version", None, (-1, -MAX64 - 1)),
        ("session.on_conflict", None, BAD_ENUMS),
        ("session.commit", None, BAD_ENUMS),
        ("session.from_position", None, (-1, -MAX64 - 1)),
        ("sampling.temperature", None, (-0.001, 10.01, *BAD_FLOATS)),
        ("sampling.top_k", None, (-1, vocabulary + 1, MAX32, -MAX32 - 1)),
        ("sampling.top_p", None, (0.0, -0.1, 1.001, *BAD_FLOATS)),
        ("sampling.min_p", None, (-0.001, 1.001, *BAD_FLOATS)),
        ("sampling.repetition_penalty", None, (0.0, -1.0, 10.01, *BAD_FLOATS)),
        ("sampling.presence_penalty", None, (-2.01, 2.01, *BAD_FLOATS)),
        ("sampling.frequency_penalty", None, (-2.01, 2.01, *BAD_FLOATS)),
        ("stop.max_output_tokens", None, (-1, context + 1, MAX32, -MAX32 - 1)),
        ("stop.stop_token_ids", "turn.stop.stop_token_ids[0]", ids),
        ("output.top_logprobs", None, (-1, 21, MAX32, -MAX32 - 1)),
        ("scheduling.priority", None, BAD_ENUMS),
        ("input_overflow", None, BAD_ENUMS),
    ]


def turn_cases(limits):
    """(name, Turn, field in the error)."""
    for path, field, values in turn_values(limits):
        for value in values:
            turn = good_turn()
            if path.startswith("session."):
                turn.session.name, turn.session.allow_missing = "sessions/never", True
            set_path(turn, path, value)
            yield f"{path}={value}", turn, field or f"turn.{path}"
    for key, value in ((-1, 0), (limits.vocabulary, 0), (MAX32, 0), *((7, v) for v in BAD_FLOATS),
                       (7, 100.5), (7, -100.5)):
        turn = good_turn()
        turn.sampling.logit_bias[key] = value
        yield f"logit_bias[{key}]={value}", turn, f"turn.sampling.logit_bias[{key}]"
    for role in (0, *BAD_ENUMS):
        turn = good_turn()
        turn.chat.messages.add(role=role).parts.add(text="Hello")
        yield f"role={role}", turn, "turn.chat.messages[0].role"
    yield from absent_and_too_many(limits)


def absent_and_too_many(limits):
    turn = good_turn()
    turn.ClearField("prompt")
    yield "no input", turn, "turn"
    turn = good_turn()
    turn.session.allow_missing = True
    yield "no session name", turn, "turn.session.name"
    for name in ("never", "sessions/", "sessions/a b", "sessions/" + "a" * 64,
                 "sessions/a/versions/1", "sessions/-a", "sessions/..%2f", "x" * 100000):
        turn = good_turn()
        turn.session.name = name
        yield f"session {name[:80]}", turn, "turn.session.name"
    turn = good_turn()
    turn.chat.SetInParent()
    yield "no message", turn, "turn.chat.messages"
    turn = good_turn()
    turn.chat.messages.add(role=g.ROLE_USER)
    yield "no part", turn, "turn.chat.messages[0].parts"
    turn = good_turn()
    turn.chat.messages.add(role=g.ROLE_USER).parts.add()
    yield "empty part", turn, "turn.chat.messages[0].parts[0]"
    turn = good_turn()
    turn.prompt.text = "a" * ((1 << 20) + 1)
    yield "long text", turn, "turn.prompt.text"
    turn = good_turn()
    turn.tokens.token_ids.extend([1] * ((1 << 20) + 1))
    yield "many tokens", turn, "turn.tokens.token_ids"
    for request_id in ("a b", "a" * 65, "a/b", "a\n"):
        turn = good_turn()
        turn.request_id = request_id
        yield f"request_id {request_id!r}", turn, "turn.request_id"
    for strings, field in (([""], "[0]"), (["a" * 257], "[0]"), (["a"] * 17, "")):
        turn = good_turn()
        turn.stop.stop_strings.extend(strings)
        yield f"{len(strings)} stop strings", turn, f"turn.stop.stop_strings{field}"
    turn = good_turn()
    turn.stop.stop_token_ids.extend([1] * 17)
    yield "17 stop tokens", turn, "turn.stop.stop_token_ids"
    turn = good_turn()
    for key in range(1025):
        turn.sampling.logit_bias[key % limits.vocabulary + key // limits.vocabulary * 1000] = 1
    yield "1,025 biases", turn, "turn.sampling.logit_bias"


def session_cases(limits):
    """(RPC, request, field in the error)."""
    context = limits.context

    def create(field, path, value):
        request = s.CreateSessionRequest()
        set_path(request, path, value)
        return "CreateSession", request, field or path

    def window(sinks, tokens, field):
        request = s.CreateSessionRequest()
        policy = request.session.retention.sliding_window
        policy.sink_tokens, policy.window_tokens = sinks, tokens
        return "CreateSession", request, f"session.retention.sliding_window.{field}"

    def layered(full, sinks, tokens, field):
        request = s.CreateSessionRequest()
        policy = request.session.retention.layered
        policy.full_layers = full
        policy.window.sink_tokens, policy.window.window_tokens = sinks, tokens
        return "CreateSession", request, f"session.retention.layered.{field}"

    def heavy(field, sink_tokens=0, window_tokens=16, kept_pages=1, epoch_tokens=32):
        request = s.CreateSessionRequest()
        policy = request.session.retention.heavy_hitters
        policy.sink_tokens, policy.window_tokens = sink_tokens, window_tokens
        policy.kept_pages, policy.epoch_tokens = kept_pages, epoch_tokens
        return "CreateSession", request, f"session.retention.heavy_hitters.{field}"

    for value in (-1, MAX32, -MAX32 - 1):
        yield heavy("kept_pages", kept_pages=value)
    for value in (-1, 17, MAX32, -MAX32 - 1):
        yield heavy("epoch_tokens", epoch_tokens=value)
    for value in (-1, context, MAX32, -MAX32 - 1):
        yield heavy("sink_tokens", sink_tokens=value)
        yield window(value, 16, "sink_tokens")
        yield layered(1, value, 16, "window.sink_tokens")
    for value in (0, -1, context + 1, MAX32, -MAX32 - 1):
        yield window(0, value, "window_tokens")
        yield heavy("window_tokens", window_tokens=value)
        yield layered(1, 0, value, "window.window_tokens")
    yield window(16, context - 15, "window_tokens")
    for value in (0, -1, limits.layers, MAX32, -MAX32 - 1):
        yield layered(value, 0, 16, "full_layers")
    for seconds in (0, -1, MAX64, -MAX64 - 1, 10**10):
        yield create("session.idle_ttl", "session.idle_ttl.seconds", seconds)
    for nanos in (-1, 999_999_999, 10**9, MAX32, -MAX32 - 1):
        yield create("session.idle_ttl", "session.idle_ttl.nanos", nanos)
    for value in (-1, -MAX64 - 1):
        yield create(None, "session.history_tokens", value)
    for name in ("version", "tokens", "first_position", "resident_tokens", "active_turns"):
        for value in (1, -1, MAX32):
            yield create(None, f"session.{name}", value)
    for name in ("create_time", "update_time"):
        for part in ("seconds", "nanos"):
            yield create(f"session.{name}", f"session.{name}.{part}", 1)
    for value in (-1, 1001, MAX32, -MAX32 - 1):
        yield "ListSessions", s.ListSessionsRequest(page_size=value), "page_size"
        request = s.ListVersionsRequest(parent="sessions/a", page_size=value)
        yield "ListVersions", request, "page_size"
    for value in (-1, 65537, MAX32, -MAX32 - 1):
        yield "ReadTokens", s.ReadTokensRequest(name="sessions/a", page_size=value), "page_size"
    for value in (-1, -MAX64 - 1):
        request = s.ReadTokensRequest(name="sessions/a", start_position=value)
        yield "ReadTokens", request, "start_position"
        request = s.DeleteSessionRequest(name="sessions/a", expected_version=value)
        yield "DeleteSession", request, "expected_version"
        request = s.ForkSessionRequest(source="sessions/a", end_position=value)
        yield "ForkSession", request, "end_position"
        request = s.RollbackSessionRequest(version="sessions/a/versions/1", expected_version=value)
        yield "RollbackSession", request, "expected_version"
    yield from name_cases()


def name_cases():
    for bad in ("", "a", "sessions/", "sessions/a/b", "sessions/a/versions/",
                "sessions/a/versions/-1", "sessions/a/versions/99999999999999999999",
                "sessions/a/versions/1x"):
        yield "GetSession", s.GetSessionRequest(name=bad), "name"
        yield "ReadTokens", s.ReadTokensRequest(name=bad), "name"
        yield "DeleteSession", s.DeleteSessionRequest(name=bad), "name"
        yield "ForkSession", s.ForkSessionRequest(source=bad), "source"
        yield "RollbackSession", s.RollbackSessionRequest(version=bad), "version"
        yield "ListVersions", s.ListVersionsRequest(parent=bad), "parent"
    for bad in ("a b", "a" * 64, "-a", ".a", "a/b", "é"):
        yield "CreateSession", s.CreateSessionRequest(session_id=bad), "session_id"
        request = s.ForkSessionRequest(source="sessions/a", session_id=bad)
        yield "ForkSession", request, "session_id"
    for token in ("x", "AAAA", "a" * 1000):
        yield "ListSessions", s.ListSessionsRequest(page_token=token), "page_token"
        request = s.ListVersionsRequest(parent="sessions/a", page_token=token)
        yield "ListVersions", request, "page_token"


def detokenize_cases(limits):
    for value in (-1, limits.vocabulary, MAX32, -MAX32 - 1):
        yield m.DetokenizeRequest(token_ids=[5, value]), "token_ids[1]"


# Fields that the tests hold to other outcomes than INVALID_ARGUMENT.
ELSEWHERE = {
    "GenerateRequest.turn.sampling.seed",  # every value is good
    "GenerateRequest.turn.scheduling.time_budget.seconds",  # FEATURE_UNAVAILABLE
    "GenerateRequest.turn.scheduling.time_budget.nanos",
    "StreamRequest.resume.from_index",  # FEATURE_UNAVAILABLE
    "StopGenerationRequest.keep_output_tokens",  # by its own test
}


def numeric_paths(message_type, prefix):
    """Paths of all number and enum fields below a message type; maps as one field."""
    kinds = descriptor.FieldDescriptor
    for field in message_type.fields:
        path = f"{prefix}.{field.name}"
        if field.message_type is None:
            if field.cpp_type not in (kinds.CPPTYPE_STRING, kinds.CPPTYPE_BOOL):
                yield path
        elif field.message_type.GetOptions().map_entry:
            yield path
        else:
            yield from numeric_paths(field.message_type, path)


def set_paths(message, prefix):
    """Paths of the number and enum fields that are set in a message."""
    for field, value in message.ListFields():
        path = f"{prefix}.{field.name}"
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            yield path
            continue
        for item in value if field.is_repeated else [value]:
            yield from set_paths(item, path)
