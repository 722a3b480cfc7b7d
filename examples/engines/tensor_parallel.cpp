// Heads split over MPI ranks. Where each head keeps its own rows, a rank decides alone. Where all heads share one list,
// the ranks add their scores up once an eviction and choose the same rows. What is printed does not depend on how many
// ranks there are:  mpirun -n 4 buzz-tensor-parallel
#include <buzz.h>
#include <mpi.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "engines/made_up.h"

namespace {

constexpr int query_heads = 16, kv_heads = 8, group = query_heads / kv_heads, tokens = 1000;

/// The KV heads of a rank: [first, first + count).
struct Ranks {
  Ranks() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (kv_heads % size != 0) buzz::fail("ranks", size, "a divisor of kv_heads = " + std::to_string(kv_heads));
    count = kv_heads / size;
    first = rank * count;
  }
  int rank = 0, size = 1, count = 0, first = 0;
};

/// All ranks' rows one after the other, on rank 0. Every rank has to bring the same number.
std::vector<std::int32_t> gather(const Ranks& ranks, const std::vector<std::int32_t>& own) {
  std::vector<std::int32_t> all(own.size() * static_cast<std::size_t>(ranks.size));
  const int count = static_cast<int>(own.size());
  MPI_Gather(own.data(), count, MPI_INT32_T, all.data(), count, MPI_INT32_T, 0, MPI_COMM_WORLD);
  return all;
}

/// A sum that says whether two lists of positions are the same.
unsigned digest(const std::int32_t* positions, int count) {
  unsigned sum = 2166136261u;
  for (int i = 0; i < count; ++i) sum = (sum ^ static_cast<unsigned>(positions[i])) * 16777619u;
  return sum;
}

buzz::BeehiveOptions options() {
  buzz::BeehiveOptions o;
  o.sink = 4;
  o.window = 32;
  o.threshold = 64;
  return o;
}

/// Each head keeps its own rows: nothing is said between ranks.
void apart(const Ranks& ranks) {
  buzz::Evictor evictor(buzz::beehive(options()), ranks.count);
  std::vector<float> probabilities;  // [this rank's query heads, 1, rows]
  for (int t = 0; t < tokens; ++t) {
    evictor.append(1);
    probabilities.clear();
    for (int q = 0; q < ranks.count * group; ++q)
      for (std::int32_t p : evictor.positions(q / group))
        probabilities.push_back(made_up::attention(ranks.first * group + q, t, p));
    evictor.observe(buzz::view(probabilities, ranks.count * group, 1, evictor.rows()));
    if (evictor.should_evict()) evictor.select();  // and compact this rank's K and V
  }
  std::vector<std::int32_t> own;
  for (int h = 0; h < ranks.count; ++h) own.insert(own.end(), evictor.positions(h).begin(), evictor.positions(h).end());
  const std::vector<std::int32_t> all = gather(ranks, own);
  if (ranks.rank != 0) return;
  std::printf("each head its own %d of %d rows:", evictor.rows(), tokens);
  for (int h = 0; h < kv_heads; ++h)
    std::printf(" %08x", digest(all.data() + static_cast<std::ptrdiff_t>(h) * evictor.rows(), evictor.rows()));
  std::printf("\n");
}

/// All heads keep the same rows: the attention that a row got from this rank's heads is added up here, and from all
/// heads by one all-reduce an eviction. In whole numbers, so that the sum is the same in any order and on every rank:
/// of floats it need not be, and ranks that keep different rows compute nonsense. Returns whether all keep the same.
bool together(const Ranks& ranks) {
  buzz::TopK::Options o;
  o.heavy = 32;
  o.threshold = 64;
  buzz::Evictor evictor(buzz::policy(buzz::user_score(), o, {/*sink*/ 0, /*window*/ 32}), /*kv_heads*/ 1);
  const auto capacity = static_cast<std::size_t>(evictor.capacity());
  std::vector<std::int64_t> sums(capacity), total(capacity);  // of each row: to this rank's heads, to all
  std::vector<float> scores(capacity);
  int reductions = 0;
  for (int t = 0; t < tokens; ++t) {
    sums[static_cast<std::size_t>(evictor.rows())] = 0;
    evictor.append(1);
    for (int r = 0; r < evictor.rows(); ++r)
      for (int q = 0; q < ranks.count * group; ++q) {
        const float p = made_up::attention(ranks.first * group + q, t, evictor.positions(0)[r]);
        sums[static_cast<std::size_t>(r)] += std::llround(std::ldexp(p, 30));
      }
    if (!evictor.should_evict()) continue;
    const int rows = evictor.rows();
    MPI_Allreduce(sums.data(), total.data(), rows, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    ++reductions;
    for (std::size_t r = 0; r < capacity; ++r) scores[r] = static_cast<float>(total[r]);
    evictor.give(buzz::View<const float>(scores.data(), 1, 1, rows));
    const buzz::KeptRows& kept = evictor.select();
    buzz::compact(kept, 0, buzz::view(sums, 1, evictor.capacity(), 1));  // and this rank's K and V
  }
  const std::vector<std::int32_t> own(evictor.positions(0).begin(), evictor.positions(0).end());
  const std::vector<std::int32_t> all = gather(ranks, own);
  if (ranks.rank != 0) return true;
  const unsigned first = digest(all.data(), evictor.rows());
  std::printf("all heads the same %d of %d rows, by %d all-reduces: %08x\n", evictor.rows(), tokens, reductions, first);
  for (int rank = 1; rank < ranks.size; ++rank)
    if (digest(all.data() + static_cast<std::ptrdiff_t>(rank) * evictor.rows(), evictor.rows()) != first) {
      std::printf("rank %d keeps other rows\n", rank);
      return false;
    }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const Ranks ranks;
  apart(ranks);
  const bool same = together(ranks);
  MPI_Finalize();
  return same ? 0 : 1;
}
