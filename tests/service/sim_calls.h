// The calls of a simulation and their messages.
#ifndef TOKEND_TESTS_SERVICE_SIM_CALLS_H_
#define TOKEND_TESTS_SERVICE_SIM_CALLS_H_

#include <string>

#include "service/call_env.h"
#include "tests/core/engine/session_model.h"
#include "tests/service/simulation.h"
#include "tokend/v1/generation.pb.h"

namespace tokend::testing {

// Asks the session service and notes the answer.
absl::Status AskSession(const service::Caller& caller, SessionCall* call);

v1::Turn ToTurn(const SessionCall& call, const std::string& request_id);
engine::Started FromProto(const v1::Started& started);
engine::Finished FromProto(const v1::Finished& finished);

// Real calls on the simulation's transport; they hold themselves until it is done.
void StartSimStream(Simulation* simulation, const service::CallEnv* env, service::CallInfo info,
                    size_t client, const v1::Turn& turn);
void StartSimGenerate(Simulation* simulation, const service::CallEnv* env, service::CallInfo info,
                      size_t client, const v1::Turn& turn);

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SERVICE_SIM_CALLS_H_
