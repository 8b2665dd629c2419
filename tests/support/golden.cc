#include "tests/support/golden.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "nlohmann/json.hpp"

namespace tokend::testing {

std::vector<std::string> TinyModelNames() {
  return {"gemma3",        "glm4_chat",           "gpt2",  "llama", "llama3", "mistral", "phi3",
          "phi3_longrope", "phi3_longrope_short", "qwen2", "qwen3"};
}

std::optional<TinyModel> LoadTinyModel(const std::string& name) {
  const std::filesystem::path folder = "../shared/tiny_models";
  const std::string kShort = "_short";
  const bool is_short = name.ends_with(kShort);
  const std::string stem = is_short ? name.substr(0, name.size() - kShort.size()) : name;
  TinyModel model;
  model.gguf_path = folder / (stem + ".gguf");
  std::ifstream in(folder / (stem + ".json"));
  if (!in || !std::filesystem::exists(model.gguf_path)) return std::nullopt;
  const nlohmann::json json = nlohmann::json::parse(in);
  for (const auto& item : json.at("cases")) {
    if (item.value("attention", "window") != "window") continue;
    if (item.contains("rope_factors") && (item["rope_factors"] == "short") != is_short) continue;
    GoldenCase& golden = model.cases.emplace_back();
    golden.name = item.at("name");
    golden.ids = item.at("ids").get<std::vector<int32_t>>();
    golden.greedy = item.at("greedy").get<std::vector<int32_t>>();
    golden.gap = item.at("gap").get<std::vector<double>>();
    for (const auto& [position, logits] : item.at("logits").items()) {
      golden.logits[std::stoll(position)] = logits.get<std::vector<double>>();
    }
    const auto tokens = static_cast<int64_t>(golden.ids.size() + golden.greedy.size());
    if (is_short) model.context_tokens = std::max(model.context_tokens, tokens);
  }
  return model;
}

}  // namespace tokend::testing
