#include "tests/golden/smollm2_goldens.h"

#include <cstddef>
#include <fstream>

#include "core/base/check.h"
#include "nlohmann/json.hpp"

namespace tokend::testing {
namespace {

constexpr char kFolder[] = "tests/golden/smollm2/";

nlohmann::json ReadJson(const std::string& name) {
  std::ifstream in(kFolder + name);
  TOKEND_CHECK(in.good());
  return nlohmann::json::parse(in);
}

std::vector<GoldenRow> ReadRows(const nlohmann::json& json, size_t vocabulary,
                                std::ifstream* logits) {
  std::vector<GoldenRow> rows;
  for (const auto& item : json.at("rows")) {
    std::vector<float> values(vocabulary);
    const auto bytes = static_cast<std::streamsize>(vocabulary * sizeof(float));
    logits->seekg(item.at("row").get<std::streamoff>() * bytes);
    logits->read(reinterpret_cast<char*>(values.data()), bytes);
    TOKEND_CHECK(logits->good());
    rows.push_back({.position = item.at("position"),
                    .std = item.at("std"),
                    .logits = {values.begin(), values.end()}});
  }
  return rows;
}

std::vector<GoldenTop> ReadTop(const nlohmann::json& json) {
  std::vector<GoldenTop> top;
  for (size_t i = 0; i < json.at("top_ids").size(); ++i) {
    top.push_back({.ids = json["top_ids"][i].get<std::vector<int32_t>>(),
                   .logprobs = json.at("top_logprobs").at(i).get<std::vector<double>>()});
  }
  return top;
}

}  // namespace

SmolLm2Goldens LoadSmolLm2Goldens() {
  const nlohmann::json json = ReadJson("goldens.json");
  const nlohmann::json peer = ReadJson("peer_llama_cpp.json");
  std::ifstream logits(std::string(kFolder) + "logits.f32", std::ios::binary);
  const size_t vocabulary = json.at("vocab_size");
  SmolLm2Goldens goldens;
  for (size_t i = 0; i < json.at("prompts").size(); ++i) {
    const auto& item = json["prompts"][i];
    const auto& peer_item = peer.at("prompts").at(i);
    TOKEND_CHECK(item.at("name") == peer_item.at("name"));
    goldens.prompts.push_back({.name = item.at("name"),
                               .ids = item.at("ids").get<std::vector<int32_t>>(),
                               .rows = ReadRows(item, vocabulary, &logits),
                               .greedy = item.at("greedy").get<std::vector<int32_t>>(),
                               .gap = item.at("gap").get<std::vector<double>>(),
                               .top = ReadTop(item),
                               .peer_first_error = peer_item.at("first_top20_error")});
  }
  const auto& text = json.at("perplexity");
  goldens.text = {.ids = text.at("ids").get<std::vector<int32_t>>(),
                  .perplexity = text.at("perplexity"),
                  .rows = ReadRows(text, vocabulary, &logits),
                  .logprobs = text.at("logprobs").get<std::vector<double>>(),
                  .peer_perplexity = peer.at("perplexity").at("perplexity"),
                  .peer_kl = peer.at("perplexity").at("kl_rows")};
  goldens.peer_mean_first_error = peer.at("mean_first_top20_error");
  return goldens;
}

}  // namespace tokend::testing
