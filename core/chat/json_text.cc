// json.dumps, as Hugging Face's tojson filter calls it.
#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/chat/errors.h"
#include "core/chat/python_text.h"
#include "core/chat/unicode.h"
#include "core/chat/value.h"

namespace tokend::chat {
namespace {

std::string JsonEscape(uint32_t c, bool ensure_ascii) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\f':
      return "\\f";
    case '\b':
      return "\\b";
    default:
      break;
  }
  if (c < 0x20 || (ensure_ascii && c >= 0x7F && c < 0x10000)) return absl::StrFormat("\\u%04x", c);
  if (!ensure_ascii || c < 0x7F) return "";
  const uint32_t beyond = c - 0x10000;
  return absl::StrFormat("\\u%04x\\u%04x", 0xD800 + (beyond >> 10), 0xDC00 + (beyond & 0x3FF));
}

void AppendJsonString(const Text& text, bool ensure_ascii, TextBuilder* out) {
  out->Append("\"", false);
  const absl::string_view bytes = text.bytes();
  size_t plain = 0;  // from here on nothing needed an escape
  for (size_t at = 0; at < bytes.size() && !out->overflowed();) {
    const CodePoint point = FirstCodePoint(bytes.substr(at));
    const std::string escape = JsonEscape(point.value, ensure_ascii);
    if (!escape.empty()) {
      out->Append(text, plain, at);
      out->Append(escape, text.IsTrusted(at));
      plain = at + point.size;
    }
    at += point.size;
  }
  out->Append(text, plain, bytes.size());
  out->Append("\"", false);
}

std::string JsonFloat(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return FloatText(value);
}

class Writer {
 public:
  Writer(const JsonOptions& options, TextBuilder* out) : options_(options), out_(out) {}

  absl::Status Write(const Value& value, size_t level) {
    if (out_->overflowed()) return absl::OkStatus();
    switch (value.kind()) {
      case Kind::kNone:
        out_->Append("null", value.trusted());
        return absl::OkStatus();
      case Kind::kBool:
        out_->Append(value.boolean() ? "true" : "false", value.trusted());
        return absl::OkStatus();
      case Kind::kInt:
        out_->Append(absl::StrCat(value.integer()), value.trusted());
        return absl::OkStatus();
      case Kind::kFloat:
        out_->Append(JsonFloat(value.floating()), value.trusted());
        return absl::OkStatus();
      case Kind::kString:
        AppendJsonString(value.text(), options_.ensure_ascii, out_);
        return absl::OkStatus();
      case Kind::kList:
        return WriteList(value, level);
      case Kind::kDict:
        return WriteDict(value.dict(), level);
      case Kind::kUndefined:
        return Problem(absl::StrCat(value.why(), ": not JSON serializable"));
      default:
        return NotJson(value);
    }
  }

 private:
  static absl::Status NotJson(const Value& value) {
    return Problem(absl::StrCat("'", TypeName(value), "' is not JSON serializable"));
  }

  void NewLine(size_t level) {
    if (!options_.indent.has_value()) return;
    out_->Append("\n", false);
    out_->Repeat(*options_.indent, level);
  }

  absl::Status WriteList(const Value& value, size_t level) {
    const List& list = value.list();
    if (!list.CanIndex() || list.shape == List::Shape::kRange) return NotJson(value);
    if (list.items.empty()) {
      out_->Append("[]", false);
      return absl::OkStatus();
    }
    out_->Append("[", false);
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_->Append(options_.item_separator);
      NewLine(level + 1);
      TOKEND_RETURN_IF_ERROR(Write(list.items[i], level + 1));
    }
    NewLine(level);
    out_->Append("]", false);
    return absl::OkStatus();
  }

  absl::Status WriteKey(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        AppendJsonString(key.text(), options_.ensure_ascii, out_);
        return absl::OkStatus();
      case Kind::kNone:
      case Kind::kBool:
      case Kind::kInt:
      case Kind::kFloat:
        out_->Append("\"", false);
        TOKEND_RETURN_IF_ERROR(Write(key, 0));
        out_->Append("\"", false);
        return absl::OkStatus();
      default:
        return Problem("a key that JSON has no form for");
    }
  }

  absl::Status WriteDict(const Dict& dict, size_t level) {
    if (dict.entries.empty()) {
      out_->Append("{}", false);
      return absl::OkStatus();
    }
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (options_.sort_keys) {
      absl::Status failure;
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        const auto order = Compare(a->first, b->first);
        if (!order.ok()) failure = order.status();
        return order.ok() && *order < 0;
      });
      TOKEND_RETURN_IF_ERROR(failure);
    }
    out_->Append("{", false);
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_->Append(options_.item_separator);
      NewLine(level + 1);
      TOKEND_RETURN_IF_ERROR(WriteKey(entries[i]->first));
      out_->Append(options_.key_separator);
      TOKEND_RETURN_IF_ERROR(Write(entries[i]->second, level + 1));
    }
    NewLine(level);
    out_->Append("}", false);
    return absl::OkStatus();
  }

  const JsonOptions& options_;
  TextBuilder* const out_;
};

}  // namespace

absl::Status AppendJson(const Value& value, const JsonOptions& options, TextBuilder* out) {
  return Writer(options, out).Write(value, 0);
}

}  // namespace tokend::chat
