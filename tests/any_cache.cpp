#include "any_cache.h"

#include <cstring>
#include <stdexcept>

namespace oracle {

namespace {

template <class X>
std::vector<X> converted(buzz::View<const float> from) {
  std::vector<X> result;
  for (int i = 0; i < from.shape(0); ++i)
    for (int j = 0; j < from.shape(1); ++j)
      for (int d = 0; d < from.shape(2); ++d) result.push_back(X(from.row(i, j)[d]));
  return result;
}
template <class X>
buzz::View<const X> like(const std::vector<X>& flat, buzz::View<const float> from) {
  return {flat.data(), from.shape(0), from.shape(1), from.shape(2)};
}

template <class T>
class Typed final : public AnyCache {
 public:
  using In = std::conditional_t<std::is_same<T, std::int8_t>::value, float, T>;

  explicit Typed(buzz::BuzzCache<T> cache) : cache_(std::move(cache)) {}
  CachePtr fork() const override { return std::make_unique<Typed>(cache_.fork()); }

  void attend(buzz::View<const float> q, buzz::View<const float> k, buzz::View<const float> v, buzz::View<float> out,
              buzz::Executor run, Types types) override {
    if (types == Types::floats) return cache_.attend(q, k, v, out, run);
    const std::vector<In> qs = converted<In>(q);
    if (types == Types::mixed) return cache_.attend(like(qs, q), k, v, out, run);
    const std::vector<In> ks = converted<In>(k), vs = converted<In>(v);
    std::vector<In> outs = converted<In>(out);
    cache_.attend(like(qs, q), like(ks, k), like(vs, v), buzz::view(outs, out.shape(0), out.shape(1), out.shape(2)),
                  run);
    copy(outs, out);
  }
  void append(buzz::View<const float> k, buzz::View<const float> v, Types types) override {
    if (types != Types::elements) return cache_.append(k, v);
    const std::vector<In> ks = converted<In>(k), vs = converted<In>(v);
    cache_.append(like(ks, k), like(vs, v));
  }
  void attend(buzz::View<const float> q, buzz::View<float> out, Types types) override {
    if (types == Types::floats) return cache_.attend(q, out);
    const std::vector<In> qs = converted<In>(q);
    if (types == Types::mixed) return cache_.attend(like(qs, q), out);
    std::vector<In> outs = converted<In>(out);
    cache_.attend(like(qs, q), buzz::view(outs, out.shape(0), out.shape(1), out.shape(2)));
    copy(outs, out);
  }
  void observe() override { cache_.observe(); }
  int unobserved() const override { return cache_.unobserved(); }
  void discard() override { cache_.discard(); }
  double lse_mismatch() const override { return cache_.lse_mismatch(); }
  void observe(buzz::View<const float> q, buzz::View<const float> lse, buzz::Executor run) override {
    cache_.observe(q, lse, run);
  }
  void give(buzz::View<const float> scores) override { cache_.give(scores); }
  bool evict() override { return cache_.evict(); }
  void pin(int first, int count) override { cache_.pin(first, count); }
  void unpin(int first, int count) override { cache_.unpin(first, count); }
  bool can_rollback(int tokens) const override { return cache_.can_rollback(tokens); }
  void rollback(int tokens) override { cache_.rollback(tokens); }
  void reset() override { cache_.reset(); }
  void save(std::ostream& out) const override { cache_.save(out); }
  void load(std::istream& in) override { cache_.load(in); }

  const buzz::Shape& shape() const override { return cache_.shape(); }
  int rows() const override { return cache_.rows(); }
  int capacity() const override { return cache_.capacity(); }
  buzz::Regions regions() const override { return cache_.regions(); }
  int next_position() const override { return cache_.next_position(); }
  int next_rotary_position() const override { return cache_.next_rotary_position(); }
  buzz::Span<const std::int32_t> positions(int head) const override { return cache_.positions(head); }
  buzz::Span<const double> scores(int head) const override { return cache_.scores(head); }
  const buzz::Pins& pins() const override { return cache_.evictor().pins(); }
  bool has_raw_keys() const override { return cache_.has_raw_keys(); }
  std::size_t bytes() const override { return cache_.bytes(); }

  Rows keys(int head, int first) const override { return stored(cache_.keys(), cache_.key_scales(), head, first); }
  Rows values(int head, int first) const override {
    return stored(cache_.values(), cache_.value_scales(), head, first);
  }
  bool same_rows(const AnyCache& other) const override {
    const auto& o = dynamic_cast<const Typed&>(other).cache_;
    return same(cache_.keys(), o.keys()) && same(cache_.values(), o.values()) &&
           same(cache_.key_scales(), o.key_scales()) && same(cache_.value_scales(), o.value_scales());
  }

 private:
  template <class X>
  static bool same(buzz::View<const X> a, buzz::View<const X> b) {
    for (int axis = 0; axis < 3; ++axis)
      if (a.shape(axis) != b.shape(axis)) return false;
    const std::size_t bytes = static_cast<std::size_t>(a.shape(2)) * sizeof(X);
    for (int i = 0; i < a.shape(0) && !a.empty(); ++i)
      for (int j = 0; j < a.shape(1); ++j)
        if (std::memcmp(a.row(i, j), b.row(i, j), bytes) != 0) return false;
    return true;
  }
  static void copy(const std::vector<In>& from, buzz::View<float> to) {
    auto next = from.begin();
    for (int i = 0; i < to.shape(0); ++i)
      for (int j = 0; j < to.shape(1); ++j)
        for (int d = 0; d < to.shape(2); ++d) to.row(i, j)[d] = static_cast<float>(*next++);
  }
  Rows stored(buzz::View<const T> rows, buzz::View<const float> scales, int head, int first) const {
    if (rows.shape(1) != cache_.rows()) throw std::logic_error("K or V has other rows than the policy");
    Rows result;
    for (int r = first; r < rows.shape(1); ++r) {
      const double scale = scales.shape(2) > 0 ? static_cast<double>(scales.row(0, head)[r]) : 1;
      const T* row = rows.row(head, r);
      Vector values(row, row + rows.shape(2));
      for (double& x : values) x *= scale;
      result.push_back({std::move(values), scale});
    }
    return result;
  }

  buzz::BuzzCache<T> cache_;
};

template <class T>
CachePtr make(const Config& c, const buzz::Rope& rope, int max_rollback, const buzz::AttentionOptions& attention) {
  buzz::Shape shape = library_shape(c);
  shape.max_rollback = max_rollback;
  return std::make_unique<Typed<T>>(buzz::BuzzCache<T>(shape, library_policy(c), rope, attention));
}

}  // namespace

CachePtr make_cache(Element element, const Config& c, const buzz::Rope& rope, int max_rollback,
                    const buzz::AttentionOptions& attention) {
  switch (element) {
    case Element::float32:
      return make<float>(c, rope, max_rollback, attention);
    case Element::half:
      return make<Eigen::half>(c, rope, max_rollback, attention);
    case Element::bfloat16:
      return make<Eigen::bfloat16>(c, rope, max_rollback, attention);
    case Element::int8:
      return make<std::int8_t>(c, rope, max_rollback, attention);
  }
  throw std::logic_error("no such element");
}

}  // namespace oracle
