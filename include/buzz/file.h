#pragma once

#include <cstdio>
#include <fstream>
#include <string>

#include "buzz/error.h"

namespace buzz {

/// Saves a cache, or anything with save(std::ostream&), to a file: written under path + ".tmp", then renamed, so that
/// at `path` there is the old file or the whole new one. Errors: FileError: a path that cannot be written; what save()
/// refuses. The old file is then as it was.
template <class Cache>
void save_file(const Cache& cache, const std::string& path) {
  const std::string temporary = path + ".tmp";
  // Half a file is of no use to anybody.
  struct Remover {
    const std::string& name;
    bool armed;
    ~Remover() {
      if (armed) std::remove(name.c_str());
    }
  } remover{temporary, false};
  {
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    if (!out) fail<FileError>("path", temporary, "a file that can be written");
    remover.armed = true;
    cache.save(out);
    out.close();
    if (!out) fail<FileError>("path", temporary, "a file with room for all of it");
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0)
    fail<FileError>("path", path, "a place that a file can be renamed to");
  remover.armed = false;
}

/// Loads a cache, or anything with load(std::istream&). Errors, all of them FileError: no such file, and what
/// load() refuses. It is then as it was.
template <class Cache>
void load_file(Cache& cache, const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail<FileError>("path", path, "a file that can be read");
  cache.load(in);
}

}  // namespace buzz
