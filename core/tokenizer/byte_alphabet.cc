#include "core/tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

namespace tokend::tokenizer {
namespace {

constexpr int kOthers = 256 - 188;
constexpr int kEnd = 0x100 + kOthers;  // first code point beyond the alphabet

struct Alphabet {
  std::array<uint16_t, 256> to_code_point;
  std::array<int16_t, kEnd> to_byte;  // -1: not in the alphabet
};

constexpr bool IsPrintableLatin1(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet{};
  for (int16_t& byte : alphabet.to_byte) byte = -1;
  int others = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const int code_point = IsPrintableLatin1(byte) ? byte : 0x100 + others++;
    alphabet.to_code_point[static_cast<size_t>(byte)] = static_cast<uint16_t>(code_point);
    alphabet.to_byte[static_cast<size_t>(code_point)] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

std::string ToByteAlphabet(absl::string_view bytes) {
  std::string text;
  for (char byte : bytes) {
    const unsigned code_point = kAlphabet.to_code_point[static_cast<unsigned char>(byte)];
    if (code_point < 0x80) {
      text.push_back(static_cast<char>(code_point));
    } else {
      text.push_back(static_cast<char>(0xC0 | (code_point >> 6)));
      text.push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
    }
  }
  return text;
}

std::optional<std::string> FromByteAlphabet(absl::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    size_t code_point = lead;
    if (lead >= 0x80) {
      // The alphabet ends at U+0143: two bytes are enough.
      if ((lead & 0xE0) != 0xC0 || i + 1 == text.size()) return std::nullopt;
      const auto next = static_cast<unsigned char>(text[++i]);
      if ((next & 0xC0) != 0x80) return std::nullopt;
      code_point = static_cast<size_t>(lead & 0x1F) << 6 | (next & 0x3F);
      if (code_point < 0x80) return std::nullopt;
    }
    if (code_point >= kEnd || kAlphabet.to_byte[code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.to_byte[code_point]));
  }
  return bytes;
}

}  // namespace tokend::tokenizer
