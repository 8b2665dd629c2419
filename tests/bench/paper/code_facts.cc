#include "tests/bench/paper/code_facts.h"

#include <elf.h>
#include <link.h>

#include <cctype>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tokend::bench {
namespace {

// Where the program itself is loaded.
uintptr_t LoadAddress() {
  uintptr_t address = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        *static_cast<uintptr_t*>(out) = info->dlpi_addr;
        return 1;  // the program comes first
      },
      &address);
  return address;
}

template <typename T>
std::vector<T> Table(const std::string& file, const Elf64_Shdr& section) {
  std::vector<T> entries(section.sh_size / sizeof(T));
  if (section.sh_offset + section.sh_size <= file.size()) {
    std::memcpy(entries.data(), file.data() + section.sh_offset, entries.size() * sizeof(T));
  }
  return entries;
}

// Without a component <length>_GLOBAL__N_...: nvcc puts the file's name into it.
std::string WithoutFile(const std::string& symbol) {
  const size_t mark = symbol.find("_GLOBAL__N_");
  if (mark == std::string::npos) return symbol;
  size_t digits = mark;
  while (digits > 0 && std::isdigit(static_cast<unsigned char>(symbol[digits - 1]))) --digits;
  const size_t length = std::strtoul(symbol.c_str() + digits, nullptr, 10);
  return symbol.substr(0, digits) + symbol.substr(std::min(symbol.size(), mark + length));
}

}  // namespace

std::string SymbolOf(const void* function) {
  std::ifstream stream("/proc/self/exe", std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(stream)), {});
  Elf64_Ehdr header;
  if (file.size() < sizeof(header)) return "";
  std::memcpy(&header, file.data(), sizeof(header));
  Elf64_Shdr all = {};
  all.sh_offset = header.e_shoff;
  all.sh_size = uint64_t{header.e_shnum} * sizeof(Elf64_Shdr);
  const std::vector<Elf64_Shdr> sections = Table<Elf64_Shdr>(file, all);
  const uintptr_t wanted = reinterpret_cast<uintptr_t>(function) - LoadAddress();
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
    const std::vector<char> names = Table<char>(file, sections[section.sh_link]);
    for (const Elf64_Sym& symbol : Table<Elf64_Sym>(file, section)) {
      if (symbol.st_value != wanted || symbol.st_name >= names.size()) continue;
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC) {
        return WithoutFile(names.data() + symbol.st_name);
      }
    }
  }
  return "";
}

absl::StatusOr<CodeFacts> CodeFacts::Read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("no facts of the object code at ", path));
  CodeFacts facts;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind, name;
    words >> kind;
    if (kind == "registers") {
      int part = 0, count = 0;
      words >> part >> name >> count;
      facts.registers_[{part, WithoutFile(name)}] = count;
    } else if (kind == "cost") {
      BlockCost cost;
      words >> name >> cost.instructions >> cost.integer_instructions;
      facts.costs_[name] = cost;
    }
    if (!words) return absl::DataLossError(absl::StrCat(path, ": '", line, "'"));
  }
  return facts;
}

absl::StatusOr<int> CodeFacts::Registers(const void* kernel, int part) const {
  std::string& symbol = symbols_[kernel];
  if (symbol.empty()) symbol = SymbolOf(kernel);
  for (const int tried : {part, 90}) {
    const auto found = registers_.find({tried, symbol});
    if (found != registers_.end()) return found->second;
  }
  return absl::NotFoundError(absl::StrCat("no object code of '", symbol, "'"));
}

absl::StatusOr<BlockCost> CodeFacts::Cost(absl::string_view format) const {
  const auto found = costs_.find(std::string(format));
  if (found == costs_.end()) {
    return absl::NotFoundError(absl::StrCat("no instruction counts of ", format));
  }
  return found->second;
}

}  // namespace tokend::bench
