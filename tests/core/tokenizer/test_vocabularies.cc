#include "tests/core/tokenizer/test_vocabularies.h"

namespace tokend::tokenizer {

std::string CodePointUtf8(char32_t c) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 | (c >> 6)), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0 | (c >> 12)), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | (c >> 18)), tail(12), tail(6), tail(0)};
}

std::string RandomText(std::mt19937_64& rng, size_t code_points) {
  std::string text;
  while (code_points > 0) {
    const size_t run = std::min<size_t>(code_points, rng() % 8 + 1);
    code_points -= run;
    const uint64_t kind = rng() % 8;
    for (size_t i = 0; i < run; ++i) {
      char32_t c = 0;
      if (kind == 0) c = U' ';
      if (kind == 1) c = static_cast<char32_t>(U'0' + rng() % 10);
      if (kind == 2) c = static_cast<char32_t>(U'a' + rng() % 26);
      if (kind == 3) c = U"\t\n\r\v\f\u00A0\u2009\u3000"[rng() % 8];
      if (kind == 4) c = static_cast<char32_t>(rng() % 0x80);
      if (kind == 5) c = static_cast<char32_t>(0x80 + rng() % 0x780);
      if (kind == 6) c = static_cast<char32_t>(0x800 + rng() % 0xD000);
      if (kind == 7) c = static_cast<char32_t>(0xE000 + rng() % 0x102000);
      text += CodePointUtf8(c);
    }
  }
  return text;
}

std::string RandomBytes(std::mt19937_64& rng, size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(rng() & 0xff);
  return bytes;
}

}  // namespace tokend::tokenizer
