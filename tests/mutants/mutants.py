"""Faults planted in the session store, one at a time: the tests must find each.

Each is (name, file, text, what stands there instead, test programs that run until
one fails). The text must be in the file once, so that a change of the code shows
that its mutant wants a change too.
"""

TREE = ("session_store_test", "kv_memory_test")
PROGRAMS = (*TREE, "kv_random_program_test")

MUTANTS = [
    ("a claim is dropped and its KV is not released", "core/kv/node_claims.cc",
     "  Release(&claim);\n  dropped_", "  claim.lease_.reset();\n  dropped_", TREE),
    ("pages that a branch returns stay counted", "core/kv/branch_pages.cc",
     "    prepared_.pop_back();\n    store_->branch_pages -= layout_->layers;",
     "    prepared_.pop_back();", TREE),
    ("children are found by their digest alone", "core/kv/node_tree.h",
     "node->parent == key.parent && absl::MakeConstSpan(node->tokens) == key.tokens",
     "node->parent == key.parent", TREE),
    ("children are found whoever their parent is", "core/kv/node_tree.h",
     "node->parent == key.parent && absl::MakeConstSpan(node->tokens) == key.tokens",
     "absl::MakeConstSpan(node->tokens) == key.tokens", TREE),
    ("rows are lent whatever their tokens", "core/kv/node_tree.cc",
     "while (rows < most && node->tokens[rows] == tokens[rows]) ++rows;", "rows = most;", TREE),
    ("a row less is copied than is lent", "core/kv/branch_pages.cc",
     ".rows = donor_rows_", ".rows = donor_rows_ - 1", TREE),
    ("the window is a token wider than its mask", "core/ops/step.h",
     "p < window_tokens ? 0 : p - window_tokens + 1",
     "p <= window_tokens ? 0 : p - window_tokens", TREE),
    ("a local layer sees as much as the policy", "core/kv/policy.cc",
     "local_tokens <= window_tokens) return {.window_tokens = local_tokens}",
     "local_tokens <= window_tokens) return {.window_tokens = window_tokens}", TREE),
    ("sinks of a local layer stay in sight", "core/kv/policy.cc",
     "sink_tokens > 0 ? local_tokens : 0", "0", TREE),
    ("the window's pages go a token early", "core/kv/policy.cc",
     "mask.WindowBegin(position) / page_tokens", "mask.WindowBegin(position + 1) / page_tokens",
     TREE),
    ("the sinks' pages go a token early", "core/kv/policy.cc",
     "!mask.SeesSinks(position)", "!mask.SeesSinks(position + 1)", TREE),
    ("a lead-in lets go of sinks that it still sees", "core/kv/branch_lead_in.cc",
     "position = plan.start;", "position = plan.end;", TREE),
    ("any commit wins", "core/kv/branch_state.cc",
     "if (session->head() != expected) {", "if (false) {", TREE),
    ("a session made anew takes the old one's turn", "core/kv/branch_state.cc",
     "if (session->deleted || base_", "if (base_", TREE),
    ("principals share their prefixes", "core/kv/root_key.cc",
     'share_ ? "" : absl::StrCat', 'true ? "" : absl::StrCat', TREE),
    ("owned windows may go", "core/kv/node_pages.cc",
     ": node->windows[g].strong > 0;", ": false;", TREE),
    ("a lead-in starts a token late", "core/kv/lead_in.cc",
     "next - (mask.window_tokens - 1)", "next - (mask.window_tokens - 2)", TREE),
    ("rows of a lead-in go on too early", "core/kv/lead_in.cc",
     "plan.attend_begin[layer] = next;", "plan.attend_begin[layer] = next - 1;", TREE),
    ("a parked branch keeps what it has computed", "core/kv/branch_park.cc",
     "  computed_ = 0;\n", "", PROGRAMS),
    ("a retired head keeps its KV", "core/kv/store_state.cc",
     "tree.Change(&oldest->versions.back().claim, Claim::Kind::kWeak);", "", PROGRAMS),
]
