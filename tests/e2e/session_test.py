"""Versions of sessions: commit, fork, rollback, edit, conflicts, lists."""

import grpc
from harness import (
    SMOLLM2,
    DaemonTest,
    c,
    collect,
    error_of,
    g,
    long_turn,
    main,
    prompt_turn,
    run_threads,
    s,
)

ABORTED = grpc.StatusCode.ABORTED
NOT_FOUND = grpc.StatusCode.NOT_FOUND
OUT_OF_RANGE = grpc.StatusCode.OUT_OF_RANGE


class Sessions(DaemonTest):
    def say(self, session, text, tokens=6, **target):
        target.setdefault("allow_missing", True)
        turn = prompt_turn(text, session=g.SessionTarget(name=session, **target))
        turn.sampling.temperature = 0
        turn.stop.max_output_tokens = tokens
        turn.stop.ignore_end_of_text = True
        return self.generate(turn)

    def read(self, name):
        return self.stubs.sessions.ReadTokens(s.ReadTokensRequest(name=name))

    def versions(self, session):
        request = s.ListVersionsRequest(parent=session)
        return list(self.stubs.sessions.ListVersions(request).versions)

    def fork(self, source, session_id="", **fields):
        request = s.ForkSessionRequest(source=source, session_id=session_id, **fields)
        return self.stubs.sessions.ForkSession(request).session

    def rollback(self, version, **fields):
        request = s.RollbackSessionRequest(version=version, **fields)
        return self.stubs.sessions.RollbackSession(request).session

    def delete(self, name, **fields):
        return self.stubs.sessions.DeleteSession(s.DeleteSessionRequest(name=name, **fields))


class VersionTest(Sessions):
    def test_a_turn_commits_what_it_read_and_wrote(self):
        first = self.say("sessions/commit", "Hello there")
        self.assertEqual(first.finished.version, "sessions/commit/versions/1")
        self.assertEqual(first.started.base_version, "")
        second = self.say("sessions/commit", " and then")
        self.assertEqual(second.started.base_version, first.finished.version)
        self.assertEqual(second.finished.usage.base_tokens,
                         self.read(first.finished.version).tokens)
        head = self.session("sessions/commit")
        self.assertEqual(head.version, 2)
        tokens = list(self.read("sessions/commit").token_ids)
        self.assertEqual(len(tokens), head.tokens)
        self.assertEqual(tokens[second.started.output_position:], list(second.token_ids))
        at_1 = list(self.read("sessions/commit/versions/1").token_ids)
        self.assertEqual(tokens[:len(at_1)], at_1)
        newest, oldest = self.versions("sessions/commit")
        self.assertEqual((newest.number, newest.parent), (2, oldest.name))
        self.assertEqual(newest.request_id, second.started.request_id)
        self.assertEqual(newest.reason, c.FINISH_REASON_LENGTH)
        self.assertEqual((oldest.number, oldest.parent), (1, ""))

    def test_a_session_goes_on_as_one_long_prompt_would(self):
        whole = g.Turn(stop=g.StopRules(max_output_tokens=12, ignore_end_of_text=True))
        whole.sampling.temperature = 0
        self.say("sessions/long", "One two three", tokens=8)
        in_parts = self.say("sessions/long", " four five", tokens=12)
        tokens = list(self.read("sessions/long").token_ids)
        whole.tokens.token_ids.extend(tokens[:-12])
        self.assertEqual(list(in_parts.token_ids), list(self.generate(whole).token_ids))

    def test_fork_and_source_do_not_see_each_other(self):
        self.say("sessions/trunk", "The door opens")
        before = self.read("sessions/trunk")
        branch = self.fork("sessions/trunk", "branch")
        self.assertEqual((branch.name, branch.version), ("sessions/branch", 1))
        self.assertEqual(branch.forked_from, "sessions/trunk/versions/1")
        self.assertEqual(self.read(branch.name).token_ids, before.token_ids)
        left = self.say("sessions/trunk", " to a garden")
        right = self.say(branch.name, " to a cellar")
        again = self.say(self.fork("sessions/trunk/versions/1").name, " to a garden")
        self.assertEqual(again.token_ids, left.token_ids)
        self.assertEqual(self.read("sessions/trunk/versions/1").token_ids, before.token_ids)
        self.assertEqual(right.finished.version, "sessions/branch/versions/2")
        # A prefix alone, and what is refused.
        half = self.fork("sessions/trunk/versions/1", end_position=3)
        self.assertEqual(list(self.read(half.name).token_ids), list(before.token_ids)[:3])
        self.assert_fails(grpc.StatusCode.ALREADY_EXISTS, "SESSION_EXISTS",
                          lambda: self.fork("sessions/trunk", "branch"))
        self.assert_fails(OUT_OF_RANGE, "BAD_POSITION",
                          lambda: self.fork("sessions/trunk", end_position=10**6))
        self.assert_fails(NOT_FOUND, "NO_SUCH_RESOURCE", lambda: self.fork("sessions/nobody"))

    def test_rollback_is_a_new_version_with_old_content(self):
        for text in ("One", " two", " three"):
            last = self.say("sessions/back", text)
        old = self.read("sessions/back/versions/1")
        self.assertEqual(self.rollback("sessions/back/versions/1").version, 4)
        self.assertEqual(self.read("sessions/back").token_ids, old.token_ids)
        self.assertEqual(self.versions("sessions/back")[0].reason, c.FINISH_REASON_UNSPECIFIED)
        again = self.say("sessions/back", " two")
        self.assertEqual(again.finished.version, "sessions/back/versions/5")
        self.assertEqual(self.read("sessions/back").token_ids,
                         self.read("sessions/back/versions/2").token_ids)
        self.assertEqual(self.rollback(last.finished.version, expected_version=5).version, 6)
        error = self.assert_fails(ABORTED, "VERSION_MISMATCH", lambda: self.rollback(
            "sessions/back/versions/1", expected_version=5))
        self.assertEqual(error.metadata["current_version"], "6")
        self.assert_fails(NOT_FOUND, "NO_SUCH_RESOURCE",
                          lambda: self.rollback("sessions/back/versions/99"))

    def test_expected_version(self):
        self.say("sessions/cas", "Hello", expected_version=0)
        error = self.assert_fails(ABORTED, "VERSION_MISMATCH", lambda: self.say(
            "sessions/cas", "Hello", expected_version=0))
        self.assertEqual(error.metadata["current_version"], "1")
        # Of many who saw version 1, one commits.
        outcomes = run_threads([self.try_to_say] * 8)
        self.assertEqual(sorted(outcomes), ["VERSION_MISMATCH"] * 7 + ["ok"])
        self.assertEqual(self.session("sessions/cas").version, 2)
        self.assert_fails(ABORTED, "VERSION_MISMATCH",
                          lambda: self.delete("sessions/cas", expected_version=1))
        self.delete("sessions/cas", expected_version=2)

    def try_to_say(self):
        try:
            self.say("sessions/cas", " me", expected_version=1)
            return "ok"
        except grpc.RpcError as error:
            return error_of(error).reason

    def test_queued_turns_of_one_session_all_commit(self):
        run_threads([lambda i=i: self.say("sessions/queue", f" {i}") for i in range(8)])
        head = self.session("sessions/queue")
        self.assertEqual((head.version, head.active_turns), (8, 0))

    def test_edit_drops_the_tail(self):
        first = self.say("sessions/edit", "Speak of the weather", tokens=10)
        start = first.started.output_position
        edited = self.say("sessions/edit", " or", from_position=start + 4)
        tokens = list(self.read("sessions/edit").token_ids)
        self.assertEqual(tokens[start:start + 4], list(first.token_ids)[:4])
        self.assertEqual(edited.finished.usage.base_tokens, start + 4)
        self.assert_fails(OUT_OF_RANGE, "BAD_POSITION", lambda: self.say(
            "sessions/edit", "x", from_position=len(tokens) + 1))
        self.assertEqual(self.session("sessions/edit").version, 2)

    def test_input_alone_and_a_turn_that_is_not_kept(self):
        fed = self.say("sessions/feed", "Half a sent", tokens=0)
        self.assertEqual((fed.text, fed.finished.usage.output_tokens), ("", 0))
        self.assertEqual(self.session("sessions/feed").version, 1)
        asked = self.say("sessions/feed", "ence", commit=g.COMMIT_MODE_NEVER)
        self.assertEqual((len(asked.token_ids), asked.finished.version), (6, ""))
        self.assertEqual(self.session("sessions/feed").version, 1)

    def test_missing_sessions_and_old_versions(self):
        self.assert_fails(NOT_FOUND, "NO_SUCH_RESOURCE", lambda: self.say(
            "sessions/nobody", "Hello", allow_missing=False))
        self.assert_fails(NOT_FOUND, "NO_SUCH_RESOURCE", lambda: self.session("sessions/nobody"))
        self.assert_fails(NOT_FOUND, "NO_SUCH_RESOURCE", lambda: self.delete("sessions/nobody"))
        self.delete("sessions/nobody", allow_missing=True)
        for i in range(20):  # 16 are kept
            self.say("sessions/many", f" {i}", tokens=1)
        self.assertEqual([v.number for v in self.versions("sessions/many")], [*range(20, 4, -1)])
        error = self.assert_fails(NOT_FOUND, "VERSION_NOT_RETAINED",
                                  lambda: self.read("sessions/many/versions/4"))
        self.assertEqual(error.metadata["oldest_version"], "5")

    def test_a_name_created_again_is_another_session(self):
        create = s.CreateSessionRequest(session_id="twice")
        first = self.stubs.sessions.CreateSession(create).session
        self.assert_fails(grpc.StatusCode.ALREADY_EXISTS, "SESSION_EXISTS",
                          lambda: self.stubs.sessions.CreateSession(create))
        self.delete(first.name)
        second = self.stubs.sessions.CreateSession(create).session
        self.assertNotEqual(first.uid, second.uid)
        self.assertEqual(second.version, 0)

    def test_lists_come_in_pages(self):
        made = [f"sessions/page-{i:02}" for i in range(7)]
        for name in made:
            self.stubs.sessions.CreateSession(s.CreateSessionRequest(session_id=name[9:]))
        listed, token = [], ""
        while True:
            page = self.stubs.sessions.ListSessions(
                s.ListSessionsRequest(page_size=3, page_token=token))
            self.assertLessEqual(len(page.sessions), 3)
            listed += [session.name for session in page.sessions]
            token = page.next_page_token
            if not token:
                break
        self.assertEqual(listed, sorted(set(listed)))
        self.assertLessEqual(set(made), set(listed))

    def test_a_window_bounds_the_pages_of_an_endless_session(self):
        request = s.CreateSessionRequest(session_id="camera")
        window = request.session.retention.sliding_window
        window.sink_tokens, window.window_tokens = 4, 64
        self.stubs.sessions.CreateSession(request)
        resident = []
        for i in range(40):
            answer = self.say("sessions/camera", f" frame {i} shows a cat", tokens=8)
            self.assertEqual(len(answer.token_ids), 8)
            resident.append(self.session("sessions/camera").resident_tokens)
        head = self.session("sessions/camera")
        self.assertGreater(head.tokens, self.daemon.model().model.context_length)
        # Sinks and window, each rounded to pages of 16, and the page being written.
        self.assertLessEqual(max(resident), 16 + 64 + 2 * 16)
        self.assertGreater(answer.finished.usage.evicted_tokens, 0)

    def test_full_layers_remember_what_windowed_ones_forget(self):
        request = s.CreateSessionRequest(session_id="deep")
        request.session.retention.layered.full_layers = 1
        request.session.retention.layered.window.window_tokens = 32
        self.edit_far_back(request)

    def test_pages_that_stay_by_their_weight_are_the_same_again(self):
        request = s.CreateSessionRequest(session_id="heavy")
        heavy = request.session.retention.heavy_hitters
        heavy.window_tokens, heavy.kept_pages, heavy.epoch_tokens = 32, 1, 32
        self.edit_far_back(request)

    def edit_far_back(self, request):
        name = f"sessions/{request.session_id}"
        self.stubs.sessions.CreateSession(request)
        first = [self.say(name, f" frame {i}", tokens=8).token_ids for i in range(12)]
        # An edit far behind the window: what is gone is computed again, alike.
        head = self.session(name)
        self.rollback(f"{name}/versions/2")
        again = [self.say(name, f" frame {i}", tokens=8).token_ids
                 for i in range(2, 12)]
        self.assertEqual(again, first[2:])
        self.assertEqual(self.session(name).tokens, head.tokens)


class BusySessionTest(Sessions):
    """SmolLM2: a turn that still runs while others come."""

    MODEL = SMOLLM2

    def test_a_second_writer_queues_aborts_or_forks(self):
        self.say("sessions/busy", "Once upon a time", tokens=4)
        target = g.SessionTarget(name="sessions/busy")
        running = self.stream(long_turn(session=target, request_id="writer"))
        self.assertEqual(next(running).started.base_version, "sessions/busy/versions/1")
        self.assertEqual(self.session("sessions/busy").active_turns, 1)
        abort = g.CONFLICT_POLICY_ABORT
        self.assert_fails(ABORTED, "SESSION_BUSY",
                          lambda: self.say("sessions/busy", " Then", on_conflict=abort))
        turn = prompt_turn(" But", session=g.SessionTarget(
            name="sessions/busy", on_conflict=g.CONFLICT_POLICY_FORK))
        turn.stop.max_output_tokens = 4
        forked = collect(self.stream(turn))
        self.assertTrue(forked.started.fork_name)
        self.assertEqual(forked.finished.version, f"{forked.started.fork_name}/versions/1")
        self.assertEqual(self.session(forked.started.fork_name).forked_from,
                         "sessions/busy/versions/1")
        self.assert_fails(grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED", lambda: collect(
            self.stream(long_turn(request_id="writer"))))
        self.assertEqual(self.session("sessions/busy").version, 1)
        self.delete("sessions/busy")
        self.assert_fails(ABORTED, "SESSION_DELETED", lambda: list(running))


if __name__ == "__main__":
    main()
