#include "tests/support/golden.h"

#include <filesystem>
#include <fstream>

#include "nlohmann/json.hpp"

namespace tokend::testing {

std::optional<TinyModel> LoadTinyModel(const std::string& name) {
  const std::filesystem::path folder = "../shared/tiny_models";
  TinyModel model;
  model.gguf_path = folder / (name + ".gguf");
  std::ifstream in(folder / (name + ".json"));
  if (!in || !std::filesystem::exists(model.gguf_path)) return std::nullopt;
  const nlohmann::json json = nlohmann::json::parse(in);
  for (const auto& item : json.at("cases")) {
    GoldenCase& golden = model.cases.emplace_back();
    golden.name = item.at("name");
    golden.ids = item.at("ids").get<std::vector<int32_t>>();
    golden.greedy = item.at("greedy").get<std::vector<int32_t>>();
    golden.gap = item.at("gap").get<std::vector<double>>();
    for (const auto& [position, logits] : item.at("logits").items()) {
      golden.logits[std::stoll(position)] = logits.get<std::vector<double>>();
    }
  }
  return model;
}

}  // namespace tokend::testing
