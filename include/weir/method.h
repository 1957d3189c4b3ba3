// Methods are named by strings and travel as 64-bit hashes; a collision is refused at registration.
#pragma once

#include <cstdint>
#include <string_view>

namespace weir {

class Method {
 public:
  constexpr Method(const char* name)
      : Method(std::string_view{name}) {}  // NOLINT: implicit, so that literals read well
  constexpr Method(std::string_view name) : id_(hash(name)), name_(name) {}  // NOLINT

  constexpr std::uint64_t id() const { return id_; }
  constexpr std::string_view name() const { return name_; }

 private:
  // FNV-1a over the bytes, then a mixer so that short names differ in every bit.
  static constexpr std::uint64_t hash(std::string_view name) {
    std::uint64_t h = 0xcbf29ce484222325ULL;
    for (char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93ULL;
    h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93ULL;
    return h ^ (h >> 32);
  }

  std::uint64_t id_;
  std::string_view name_;
};

}  // namespace weir
