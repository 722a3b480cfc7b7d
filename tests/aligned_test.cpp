#include "buzz/aligned.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace {

using buzz::AlignedVector;

TEST(Aligned, BeginsAtACacheLine) {
  for (std::size_t count : {1u, 3u, 16u, 1000u, 3u << 20}) {
    const AlignedVector<float> values(count, 1.5f);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(values.data()) % 64, 0u);
    EXPECT_EQ(std::count(values.begin(), values.end(), 1.5f), static_cast<std::ptrdiff_t>(count));
  }
}

// The flags of this process's memory at an address, as Linux shows them.
std::string flags_at(std::uintptr_t address) {
  std::ifstream maps("/proc/self/smaps");
  bool within = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    if (std::istringstream in(line); in >> std::hex >> begin >> dash >> end && dash == '-')
      within = begin <= address && address < end;
    if (within && line.rfind("VmFlags:", 0) == 0) return line + ' ';
  }
  return "";
}

TEST(Aligned, AsksForHugePagesOfWhatFillsThem) {
  const std::size_t count = 3u << 20;  // 12 MiB
  const AlignedVector<float> values(count);
  const std::string flags = flags_at(reinterpret_cast<std::uintptr_t>(values.data() + count / 2));
  if (flags.empty() || !std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"))
    GTEST_SKIP() << "no Linux that has huge pages and says which memory wants them";
  EXPECT_NE(flags.find(" hg "), std::string::npos) << flags;
}

}  // namespace
