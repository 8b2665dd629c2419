"""Bad input at every field: an error that names it, and a daemon that goes on."""

import re
import unittest

import bad_input
import grpc
from google.protobuf import duration_pb2
from harness import CALL_SECONDS, SMOLLM2, DaemonTest, collect, g, m, main, prompt_turn, s

from tokend.v1 import admin_pb2, generation_pb2, model_pb2, sessions_pb2

INVALID = grpc.StatusCode.INVALID_ARGUMENT
FAILED = grpc.StatusCode.FAILED_PRECONDITION


class BadInputTest(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        model = cls.daemon.model().model
        cls.limits = bad_input.Limits(vocabulary=model.vocabulary_size,
                                      context=model.context_length, layers=model.layer_count)
        cls.stubs.sessions.CreateSession(s.CreateSessionRequest(session_id="a"))

    def tearDown(self):
        super().tearDown()
        after = self.daemon.stats()
        self.assertEqual((after.sessions, after.versions), (1, 0), "a bad call left something")
        self.assertEqual(after.running_turns + after.waiting_turns, 0)
        self.assert_pages_sum(after.pages)

    def assert_names(self, field, call):
        error = self.assert_fails(INVALID, "INVALID_FIELD", call)
        self.assertIn(field, error.fields)
        self.assertIn(error.fields[0], error.message)
        self.assertLess(len(error.message), 1000)

    def assert_still_good(self):
        turn = prompt_turn("Once", stop=g.StopRules(max_output_tokens=2, ignore_end_of_text=True))
        self.assertEqual(len(self.generate(turn).token_ids), 2)

    def test_turn(self):
        for name, turn, field in bad_input.turn_cases(self.limits):
            with self.subTest(name):
                self.assert_names(field, lambda turn=turn: self.generate(turn))
                self.assert_names(field, lambda turn=turn: collect(self.stream(turn)))
        self.assert_still_good()

    def test_sessions(self):
        for rpc, request, field in bad_input.session_cases(self.limits):
            with self.subTest(f"{rpc} {str(request)[:200]}"):
                call = getattr(self.stubs.sessions, rpc)
                self.assert_names(field, lambda call=call, request=request: call(
                    request, timeout=CALL_SECONDS))

    def test_tokens_and_stops(self):
        for request, field in bad_input.detokenize_cases(self.limits):
            self.assert_names(field, lambda request=request: self.stubs.model.Detokenize(request))
        self.assert_names("text", lambda: self.stubs.model.Tokenize(
            m.TokenizeRequest(text="a" * ((1 << 20) + 1))))
        stop = self.stubs.generation.StopGeneration
        self.assert_names("request_id", lambda: stop(g.StopGenerationRequest()))
        for keep in (-1, -(2**31)):
            self.assert_names("keep_output_tokens", lambda keep=keep: stop(
                g.StopGenerationRequest(request_id="x", keep_output_tokens=keep)))
        self.assert_fails(grpc.StatusCode.NOT_FOUND, "NO_SUCH_RESOURCE", lambda: stop(
            g.StopGenerationRequest(request_id="x", keep_output_tokens=2**31 - 1)))
        self.assert_names("turn", lambda: self.stubs.generation.Generate(g.GenerateRequest()))
        self.assert_names("turn", lambda: collect(self.stubs.generation.Stream(g.StreamRequest())))

    def test_values_at_the_bounds_are_good(self):
        vocabulary, context = self.limits.vocabulary, self.limits.context
        bounds = [("sampling.temperature", 0, 10), ("sampling.top_k", 0, vocabulary),
                  ("sampling.top_p", 1e-6, 1), ("sampling.min_p", 0, 1),
                  ("sampling.repetition_penalty", 1e-3, 10), ("sampling.presence_penalty", -2, 2),
                  ("sampling.frequency_penalty", -2, 2), ("sampling.seed", -(2**63), 2**63 - 1),
                  ("stop.stop_token_ids", 0, vocabulary - 1), ("output.top_logprobs", 0, 20),
                  ("tokens.token_ids", 0, vocabulary - 1)]
        for path, *values in bounds:
            for value in values:
                with self.subTest(f"{path}={value}"):
                    turn = bad_input.good_turn()
                    bad_input.set_path(turn, path, value)
                    self.generate(turn)
        for value in (0, context):
            turn = bad_input.good_turn()
            turn.stop.max_output_tokens = value
            self.generate(turn)

    def test_too_far_is_not_invalid(self):
        """Well-formed numbers that no session has: their own errors."""
        target = g.SessionTarget(name="sessions/a", expected_version=2**63 - 1)
        error = self.assert_fails(grpc.StatusCode.ABORTED, "VERSION_MISMATCH",
                                  lambda: self.generate(prompt_turn(session=target)))
        self.assertEqual(error.metadata["current_version"], "0")
        target = g.SessionTarget(name="sessions/a", from_position=2**63 - 1)
        self.assert_fails(grpc.StatusCode.OUT_OF_RANGE, "BAD_POSITION",
                          lambda: self.generate(prompt_turn(session=target)))
        self.assert_fails(grpc.StatusCode.OUT_OF_RANGE, "BAD_POSITION",
                          lambda: self.stubs.sessions.ForkSession(s.ForkSessionRequest(
                              source="sessions/a", end_position=2**63 - 1)))
        self.assert_fails(grpc.StatusCode.OUT_OF_RANGE, "BAD_POSITION",
                          lambda: self.stubs.sessions.ReadTokens(s.ReadTokensRequest(
                              name="sessions/a", start_position=2**63 - 1)))

    def test_known_fields_that_are_not_honoured(self):
        budget = duration_pb2.Duration(seconds=1, nanos=1)
        turn = prompt_turn(scheduling=g.Scheduling(time_budget=budget))
        self.assert_fails(FAILED, "FEATURE_UNAVAILABLE", lambda: self.generate(turn))
        resume = g.StreamRequest(resume=g.ResumePoint(request_id="x", from_index=-1))
        self.assert_fails(FAILED, "FEATURE_UNAVAILABLE",
                          lambda: collect(self.stubs.generation.Stream(resume)))

    def test_many_violations_stay_small(self):
        turn = prompt_turn(request_id="x" * 100000, input_overflow=9)
        for path in ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty",
                     "frequency_penalty"):
            setattr(turn.sampling, path, float("nan"))
        turn.sampling.top_k = turn.stop.max_output_tokens = turn.output.top_logprobs = -1
        turn.stop.stop_strings.extend(["y" * 100000] * 16)
        error = self.assert_fails(INVALID, "INVALID_FIELD", lambda: self.generate(turn))
        self.assertEqual(len(error.fields), 8)
        self.assertNotIn("x" * 65, error.message)

    def test_bytes_that_are_no_message(self):
        call = self.stubs.channel.unary_unary("/tokend.v1.GenerationService/Generate")
        for junk in (b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x0f", b"\x00"):
            with self.assertRaises(grpc.RpcError):
                call(junk, timeout=CALL_SECONDS)
        self.assert_still_good()


class ByteWithoutTokenTest(DaemonTest):
    """SmolLM2 has no token for some bytes."""

    MODEL = SMOLLM2

    def assert_names(self, field, call):
        error = self.assert_fails(INVALID, "INVALID_FIELD", call)
        self.assertEqual(error.fields, [field])
        self.assertEqual(error.message, f"{field}: byte 0x04 at offset 2 has no token in this "
                                        "model's vocabulary")

    def test_each_input_is_named(self):
        text = "ab\x04"
        self.assert_names("turn.prompt.text", lambda: self.generate(prompt_turn(text)))
        self.assert_names("turn.prompt.text", lambda: collect(self.stream(prompt_turn(text))))
        messages = [g.Message(role=role, parts=[g.Part(text=said)])
                    for role, said in ((g.ROLE_USER, "ab"), (g.ROLE_ASSISTANT, text))]
        turn = g.Turn(chat=g.ChatInput(messages=messages))
        self.assert_names("turn.chat.messages[1]", lambda: self.generate(turn))
        tokenize = self.stubs.model.Tokenize
        self.assert_names("text", lambda: tokenize(m.TokenizeRequest(text=text)))
        self.assert_names("raw", lambda: tokenize(m.TokenizeRequest(raw=text.encode())))


class UnknownFieldTest(DaemonTest):
    """A field that the server does not know is refused in every message of every request."""

    UNKNOWN = b"\xc0\x9f\x02\x01"  # field 4600, varint 1

    def reach(self, message):
        """Every message below this one, its own included, as a function that makes the
        whole request with an unknown field there."""

        def walk(descriptor, path):
            yield path, descriptor
            for field in descriptor.fields:
                inner = field.message_type
                if inner is not None and not inner.GetOptions().map_entry:
                    yield from walk(inner, [*path, field])

        for path, descriptor in walk(message.DESCRIPTOR, []):
            request = type(message)()
            request.CopyFrom(message)
            target = request
            for field in path:
                target = getattr(target, field.name)
                if field.is_repeated:
                    target = target[0] if target else target.add()
                target.SetInParent()
            target.MergeFromString(self.UNKNOWN)
            yield ".".join(field.name for field in path), descriptor.full_name, request

    def check(self, message, call):
        seen = 0
        for path, full_name, request in self.reach(message):
            with self.subTest(f"{message.DESCRIPTOR.name} {path}"):
                error = self.assert_fails(INVALID, "UNKNOWN_FIELD", lambda request=request: call(
                    request))
                self.assertEqual(error.metadata["message"], full_name)
                self.assertEqual(error.metadata["field_number"], "4600")
                self.assertIn(path, re.sub(r"\[\d+\]", "", error.message))
            seen += 1
        return seen

    def test_generation(self):
        generation = self.stubs.generation
        self.assertGreater(self.check(g.GenerateRequest(), generation.Generate), 12)
        self.check(g.StreamRequest(), lambda request: collect(generation.Stream(request)))
        self.check(g.StopGenerationRequest(), generation.StopGeneration)

    def test_the_rest(self):
        services = ((sessions_pb2, "SessionService", self.stubs.sessions),
                    (model_pb2, "ModelService", self.stubs.model),
                    (admin_pb2, "AdminService", self.stubs.admin))
        for module, service, stub in services:
            for method in module.DESCRIPTOR.services_by_name[service].methods:
                request = getattr(module, method.input_type.name)()
                self.check(request, getattr(stub, method.name))


class CoverageTest(unittest.TestCase):
    def test_every_numeric_field_has_bad_values(self):
        limits = bad_input.Limits(vocabulary=384, context=512, layers=2)
        covered = set()
        for _, turn, _ in bad_input.turn_cases(limits):
            covered.update(bad_input.set_paths(turn, "GenerateRequest.turn"))
        for _, request, _ in bad_input.session_cases(limits):
            covered.update(bad_input.set_paths(request, request.DESCRIPTOR.name))
        for request, _ in bad_input.detokenize_cases(limits):
            covered.update(bad_input.set_paths(request, request.DESCRIPTOR.name))
        # Zero is the bad value, or the field is only read together with another.
        covered.add("CreateSessionRequest.session.retention.sliding_window.sink_tokens")
        missing = []
        for module in (generation_pb2, sessions_pb2, model_pb2, admin_pb2):
            for service in module.DESCRIPTOR.services_by_name.values():
                for method in service.methods:
                    kind = method.input_type
                    for path in bad_input.numeric_paths(kind, kind.name):
                        # Stream takes the same Turn and is given the same ones.
                        path = path.replace("StreamRequest.turn", "GenerateRequest.turn")
                        if path in covered or path.startswith(tuple(bad_input.ELSEWHERE)):
                            continue
                        missing.append(path)
        self.assertEqual(missing, [])


if __name__ == "__main__":
    main()
