#include "core/chat/json.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/chat/errors.h"
#include "core/chat/limits.h"
#include "nlohmann/json.hpp"

namespace tokend::chat {
namespace {

// Builds the value as nlohmann's parser meets its parts; false ends the parse.
class Builder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  bool null() { return Add(Value::None()); }
  bool boolean(bool value) { return Add(Value::Bool(value)); }
  bool number_integer(number_integer_t value) { return Add(Value::Int(value)); }
  bool number_unsigned(number_unsigned_t value) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Fail("an integer beyond 64 bits");
    }
    return Add(Value::Int(static_cast<int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t& source) {
    if (source.find_first_of(".eE") == string_t::npos) return Fail("an integer beyond 64 bits");
    return Add(Value::Float(value));
  }
  bool string(string_t& value) { return Add(Value::String(Text(std::move(value), false))); }
  bool binary(binary_t&) { return Fail("binary data"); }
  bool start_object(size_t) { return Open(true); }
  bool start_array(size_t) { return Open(false); }
  bool key(string_t& name) {
    open_.back().keys.push_back(Value::String(Text(std::move(name), false)));
    return true;
  }
  bool end_object() {
    Level level = std::move(open_.back());
    open_.pop_back();
    std::vector<std::pair<Value, Value>> entries;
    for (size_t i = 0; i < level.items.size(); ++i) {
      entries.emplace_back(std::move(level.keys[i]), std::move(level.items[i]));
    }
    return Close(MakeDict(std::move(entries)));
  }
  bool end_array() {
    Level level = std::move(open_.back());
    open_.pop_back();
    return Close(MakeList(std::move(level.items)));
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) {
    return Fail(absl::StrCat("no JSON at byte ", position));
  }

  const std::string& problem() const { return problem_; }
  Value Take() { return std::move(result_); }

 private:
  struct Level {
    bool is_object = false;
    std::vector<Value> keys;
    std::vector<Value> items;
  };

  bool Fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  bool Open(bool is_object) {
    if (open_.size() >= kMaxNesting) return Fail("nested too deep");
    open_.push_back({is_object, {}, {}});
    return true;
  }
  bool Close(absl::StatusOr<Value> value) {
    if (!value.ok()) return Fail(std::string(value.status().message()));
    return Add(*std::move(value));
  }
  bool Add(Value value) {
    value = std::move(value).WithTrust(false);
    if (open_.empty()) {
      result_ = std::move(value);
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }

  std::vector<Level> open_;
  Value result_;
  std::string problem_ = "no JSON";
};

}  // namespace

absl::StatusOr<Value> ParseJson(absl::string_view text, absl::string_view field) {
  Builder builder;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
    return BadJson(field, builder.problem());
  }
  return builder.Take();
}

}  // namespace tokend::chat
