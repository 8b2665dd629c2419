"""Principals from outside: who is let in by which token, and what others see of whom."""

import pathlib
import tempfile

import grpc
from callers import caller, principals
from grpc_health.v1 import health_pb2, health_pb2_grpc
from harness import (
    CALL_SECONDS,
    TINY,
    Daemon,
    DaemonTest,
    a,
    collect,
    error_of,
    g,
    m,
    main,
    need,
    prompt_turn,
    s,
)

ALICE, BOB = "alice-secret-5RfT", "bob-secret-9KlM"
NAME = "sessions/plan"


def write_turn(**session):
    stop = g.StopRules(max_output_tokens=4, ignore_end_of_text=True)
    return prompt_turn(stop=stop, session=g.SessionTarget(name=NAME, **session))


def calls_of(stubs):
    """One call of every RPC that a session or a turn of somebody else could be seen by."""
    sessions, generation = stubs.sessions, stubs.generation
    turn = write_turn()
    return {
        "Generate": lambda: generation.Generate(g.GenerateRequest(turn=turn)),
        "Stream": lambda: list(generation.Stream(g.StreamRequest(turn=turn))),
        "StopGeneration": lambda: generation.StopGeneration(
            g.StopGenerationRequest(request_id="of-alice")),
        "Get": lambda: sessions.GetSession(s.GetSessionRequest(name=NAME)),
        "Delete": lambda: sessions.DeleteSession(s.DeleteSessionRequest(name=NAME)),
        "Fork": lambda: sessions.ForkSession(
            s.ForkSessionRequest(source=NAME, session_id="branch")),
        "Rollback": lambda: sessions.RollbackSession(
            s.RollbackSessionRequest(version=f"{NAME}/versions/1")),
        "ListVersions": lambda: sessions.ListVersions(s.ListVersionsRequest(parent=NAME)),
        "ReadTokens": lambda: sessions.ReadTokens(s.ReadTokensRequest(name=NAME)),
    }


def open_calls_of(stubs):
    """Those that name nobody's session."""
    return {
        "Create": lambda: stubs.sessions.CreateSession(s.CreateSessionRequest()),
        "List": lambda: stubs.sessions.ListSessions(s.ListSessionsRequest()),
        "GetModel": lambda: stubs.model.GetModel(m.GetModelRequest()),
        "Tokenize": lambda: stubs.model.Tokenize(m.TokenizeRequest(text="a")),
        "Detokenize": lambda: stubs.model.Detokenize(m.DetokenizeRequest(token_ids=[1])),
        "GetStats": lambda: stubs.admin.GetStats(a.GetStatsRequest()),
    }


class CallerTest(DaemonTest):
    SETTINGS = ""

    @classmethod
    def setUpClass(cls):
        need(TINY)
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        config = folder / "config"
        config.write_text(principals(alice=ALICE, bob=BOB) + cls.SETTINGS)
        cls.daemon = Daemon("--model", TINY, "--threads", "2", "--config", config,
                            connect=lambda address: caller(address, ALICE))
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.wait_ready()
        cls.stubs = cls.daemon.stubs

    def tearDown(self):
        for token in (ALICE, BOB):
            self.assertNotIn(token, self.daemon.log())
        super().tearDown()

    def caller(self, *arguments, **kwargs):
        stubs = caller(self.daemon.address, *arguments, **kwargs)
        self.addCleanup(stubs.channel.close)
        return stubs

    def names(self, stubs):
        listed = stubs.sessions.ListSessions(s.ListSessionsRequest()).sessions
        return {session.name for session in listed}

    def assert_refused(self, stubs, token=None):
        for name, call in {**calls_of(stubs), **open_calls_of(stubs)}.items():
            with self.subTest(name):
                error = self.assert_fails(grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED", call)
                if token:
                    self.assertNotIn(token, error.message)


class PrincipalTest(CallerTest):
    def test_without_the_right_token_nothing_is_done(self):
        before = self.daemon.stats().sessions
        self.assert_refused(self.caller())
        for authorization in ("Bearer wrong-token", "Bearer ", "Bearer", f"Basic {ALICE}", ALICE,
                              f"Bearer {ALICE[:-1]}", f"Bearer {ALICE}x", f"Bearer {ALICE} x"):
            with self.subTest(authorization):
                self.assert_refused(self.caller(authorization=authorization), ALICE[:-1])
        self.assertEqual(self.daemon.stats().sessions, before)

    def test_one_does_not_see_the_other(self):
        alice, bob = self.stubs, self.caller(BOB)
        turn = write_turn(allow_missing=True)
        turn.request_id = "of-alice"
        whole = collect(self.stream(turn))
        self.assertEqual(whole.finished.version, f"{NAME}/versions/1")
        before = self.session(NAME)
        for name, call in calls_of(bob).items():
            with self.subTest(name), self.assertRaises(grpc.RpcError) as caught:
                call()
            self.assertEqual(error_of(caught.exception).code, grpc.StatusCode.NOT_FOUND, name)
        self.assertIn(NAME, self.names(alice))
        self.assertEqual(self.names(bob), set())
        self.assertEqual(self.session(NAME), before)

        # The same name is another session.
        bob.generation.Generate(g.GenerateRequest(turn=write_turn(allow_missing=True)))
        self.assertEqual(self.names(bob), {NAME})
        his = bob.sessions.GetSession(s.GetSessionRequest(name=NAME)).session
        self.assertNotEqual(his.uid, before.uid)
        bob.sessions.DeleteSession(s.DeleteSessionRequest(name=NAME))
        self.assertEqual(self.session(NAME), before)
        # All of these do something for its owner.
        for name, call in calls_of(alice).items():
            if name not in ("Delete", "Rollback"):
                with self.subTest(name):
                    call()
        calls_of(alice)["Rollback"]()
        calls_of(alice)["Delete"]()

    def test_a_prompt_of_another_is_not_in_my_cache(self):
        turn = prompt_turn("Only one of them has said this before. " * 8,
                           stop=g.StopRules(max_output_tokens=1))
        cached = [stubs.generation.Generate(g.GenerateRequest(turn=turn), timeout=CALL_SECONDS)
                  .finished.usage.cached_tokens
                  for stubs in (self.stubs, self.stubs, self.caller(BOB))]
        self.assertEqual((cached[0], cached[2]), (0, 0))
        self.assertGreater(cached[1], 0)

    def test_probes_need_no_token(self):
        health = health_pb2_grpc.HealthStub(self.caller().channel)
        request = health_pb2.HealthCheckRequest()
        self.assertEqual(health.Check(request, timeout=CALL_SECONDS).status,
                         health_pb2.HealthCheckResponse.SERVING)
        watch = health.Watch(request, timeout=CALL_SECONDS)
        self.assertEqual(next(watch).status, health_pb2.HealthCheckResponse.SERVING)
        watch.cancel()
        self.assertIn("tokend_kv_pages", self.daemon.scrape())


class QuotaTest(CallerTest):
    CAROL = "carol-secret-3XzP"
    SETTINGS = principals(carol=CAROL).replace("}", "quota_pages: 0 }")

    def test_who_may_pin_nothing_is_told_so(self):
        carol = self.caller(self.CAROL)
        request = s.CreateSessionRequest(session_id="fixed", session=s.Session(pinned=True))
        error = self.assert_fails(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED",
                                  lambda: carol.sessions.CreateSession(request))
        self.assertIn("carol", error.message)
        self.assertEqual(self.names(carol), set())
        request.session.pinned = False
        carol.sessions.CreateSession(request)
        # Who has no quota has no bound.
        request.session.pinned = True
        self.stubs.sessions.CreateSession(request)


class AnonymousTest(CallerTest):
    SETTINGS = "allow_anonymous: true"

    def test_callers_without_a_token_are_one_more(self):
        nobody = self.caller()
        self.generate(write_turn(allow_missing=True))
        for call in open_calls_of(nobody).values():
            call()
        self.assertNotIn(NAME, self.names(nobody))
        with self.assertRaises(grpc.RpcError) as caught:
            calls_of(nobody)["Get"]()
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)
        nobody.generation.Generate(g.GenerateRequest(turn=write_turn(allow_missing=True)))
        self.assertIn(NAME, self.names(self.caller()))

    def test_a_wrong_token_is_not_no_token(self):
        self.assert_refused(self.caller("wrong-token"), "wrong-token")


if __name__ == "__main__":
    main()
