// Saved caches as they should not be: any bytes, and a valid file's with its checksum put right, so that the fields
// behind it are reached. What is refused changes nothing; what is accepted is a cache that can go on.

#include "buzz.h"
#include "fuzz.h"
#include "policy_life.h"
#include "typed.h"

namespace {

using fuzz::require;

template <class Cache>
std::string bytes_of(const Cache& cache) {
  std::ostringstream out;
  cache.save(out);
  return out.str();
}

template <class Cache>
bool load(Cache& cache, const std::string& file) {
  std::istringstream in(file);
  return !fuzz::refuses<buzz::FileError>([&] { cache.load(in); });
}

/// The file with the checksum that its other bytes have.
std::string checked(std::string file) {
  if (file.size() < 8) return file;
  buzz::Checksum sum;
  sum.add(reinterpret_cast<const unsigned char*>(file.data()), file.size() - 8);
  for (std::size_t i = 0; i < 8; ++i) file[file.size() - 8 + i] = static_cast<char>(sum.value() >> (8 * i));
  return file;
}

template <class T>
void holds(const buzz::BuzzCache<T>& cache) {
  const buzz::Regions r = cache.regions();
  require(cache.rows() >= 0 && cache.rows() <= cache.capacity(), "rows");
  require(r.sink >= 0 && r.hive >= 0 && r.unfiltered >= 0 && r.window >= 0 && r.rows() == cache.rows(), "regions");
  require(cache.next_position() >= cache.rows(), "next_position");
  for (int h = 0; h < cache.shape().kv_heads; ++h) {
    const auto positions = cache.positions(h);
    require(positions.size == cache.rows(), "count of positions");
    for (int i = 0; i < positions.size; ++i)
      require(positions[i] > (i == 0 ? -1 : positions[i - 1]) && positions[i] < cache.next_position(), "position");
  }
}

template <class T>
bool pins_hold(const buzz::BuzzCache<T>& cache) {
  for (const auto& range : cache.evictor().pins().ranges())
    for (int h = 0; h < cache.shape().kv_heads; ++h)
      for (int p = range.first; p < std::min(range.end(), cache.next_position()); ++p) {
        const auto positions = cache.positions(h);
        if (!std::binary_search(positions.begin(), positions.end(), p)) return false;
      }
  return true;
}

/// One more token. Some loaded caches can take none: their positions are used up.
template <class T>
bool decode(buzz::BuzzCache<T>& cache) {
  const buzz::Shape& s = cache.shape();
  std::vector<float> q(static_cast<std::size_t>(s.query_heads * s.head_dim), 0.5f), out(q.size());
  const std::vector<float> kv(static_cast<std::size_t>(s.kv_heads * s.head_dim), 0.25f);
  const auto rows = buzz::view(kv, 1, s.kv_heads, s.head_dim);
  const buzz::View<const float> queries(q.data(), 1, s.query_heads, s.head_dim);
  return !fuzz::refuses([&] { cache.attend(queries, rows, rows, buzz::view(out, 1, s.query_heads, s.head_dim)); });
}

template <class T>
void go_on(buzz::BuzzCache<T>& cache) {
  holds(cache);
  require(pins_hold(cache), "a pinned row is missing");
  const std::string saved = bytes_of(cache);
  buzz::BuzzCache<T> again = cache.fork();
  require(load(again, saved) && bytes_of(again) == saved, "save, load, save");
  require(fuzz::refuses([&] { cache.rollback(1); }), "a rollback past a load");
  cache.evict();
  for (int i = 0; i < 12; ++i) {
    holds(cache);
    require(pins_hold(cache), "a pinned row was evicted");
    const int next = cache.next_position();
    if (!decode(cache)) {
      require(next == std::numeric_limits<std::int32_t>::max(), "a loaded cache that does not go on");
      return;
    }
  }
}

template <class Cache>
void try_to_load(Cache& cache, const std::string& file) {
  const std::string before = bytes_of(cache);
  if (load(cache, file))
    go_on(cache);
  else
    require(bytes_of(cache) == before, "a refused file changed something");
}

/// A good file of a cache that has seen a few tokens, with some of its bytes replaced; else the input itself.
template <class Cache>
std::string damaged(Cache cache, fuzz::Bytes& in) {
  if (in.one_in(2)) return {reinterpret_cast<const char*>(in.data()), in.size()};
  for (int tokens = in.in(0, 20); tokens > 0; --tokens) decode(cache);
  if (in.one_in(2)) fuzz::refuses([&] { cache.pin(in.in(0, 22), in.in(1, 3)); });
  std::string file = bytes_of(cache);
  while (!in.done()) {
    const int at = in.word();
    file[static_cast<std::size_t>(at) % file.size()] = static_cast<char>(in.byte());
  }
  return file;
}

template <class T>
void try_cache(buzz::BuzzCache<T> cache, fuzz::Bytes& in) {
  const std::string file = damaged(cache.fork(), in);
  for (int i = 0; i < 3; ++i) decode(cache);  // so that it has something to lose
  try_to_load(cache, file);
  try_to_load(cache, checked(file));
}

void try_model(typed::Model<float> model, fuzz::Bytes& in) {
  const std::string file(reinterpret_cast<const char*>(in.data()), in.size());
  decode(model.layer(1));
  const std::string before = bytes_of(model);
  if (!load(model, checked(file))) return require(bytes_of(model) == before, "a refused file changed a layer");
  for (int i = 0; i < 2; ++i) go_on(model.layer(i));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Bytes in(data, size);
  buzz::Rope compact{10000};
  compact.positions = buzz::Positions::compact;
  typed::Options bees;
  bees.sink = 1;
  bees.window = 2;
  bees.threshold = 4;
  bees.stride = 2;
  typed::HeavyHitter::Options heavy;
  heavy.window = 2;
  heavy.heavy = 3;
  typed::Strided::Options strided;
  strided.window = 3;
  strided.threshold = 6;
  switch (in.in(0, 3)) {
    case 0:
      try_cache(typed::Cache<float>({2, 2, 2, 2}, bees, compact), in);
      break;
    case 1:
      try_cache(typed::Cache<std::int8_t, typed::HeavyHitter>({2, 2, 2, 1}, heavy), in);
      break;
    case 2:
      try_cache(typed::Cache<Eigen::half, typed::Strided>({1, 1, 1, 3}, strided), in);
      break;
    default:
      try_model(typed::Model<float>({1, 1, 1, 1}, {bees, bees}), in);
  }
  return 0;
}
