#include "service/admin_service.h"

#include "service/convert_output.h"

namespace tokend::service {

grpc::ServerUnaryReactor* AdminServiceImpl::GetStats(grpc::CallbackServerContext* context,
                                                     const v1::GetStatsRequest* request,
                                                     v1::GetStatsResponse* response) {
  return AnswerNow(*env_, context, *request, [&](const Caller& caller) {
    const engine::EngineSnapshot snapshot = caller.serving->engine->Snapshot();
    const kv::PageCounts& pages = snapshot.store.pages;
    response->set_server_version(env_->server_version());
    *response->mutable_uptime() = ToProto(env_->uptime());
    auto* out = response->mutable_pages();
    out->set_total(pages.total);
    out->set_free(pages.free);
    out->set_cached(pages.cached);
    out->set_private_pages(pages.private_pages);
    out->set_shared(pages.shared);
    out->set_pinned(pages.pinned);
    out->set_quarantined(pages.quarantined);
    response->set_kv_bytes_total(pages.total * snapshot.store.page_bytes);
    response->set_sessions(static_cast<int32_t>(snapshot.store.sessions));
    response->set_versions(static_cast<int32_t>(snapshot.store.versions));
    response->set_running_turns(snapshot.running);
    response->set_waiting_turns(snapshot.waiting);
    response->set_prefill_tokens_per_second(snapshot.prefill_tokens_per_second);
    response->set_decode_tokens_per_second(snapshot.decode_tokens_per_second);
    response->set_device(caller.serving->device);
    response->set_huge_page_bytes(caller.serving->huge_page_bytes);
    response->set_saturated_activations(snapshot.saturated_activations);
    return absl::OkStatus();
  });
}

}  // namespace tokend::service
