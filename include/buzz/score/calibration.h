#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "buzz/archive.h"
#include "buzz/file.h"
#include "buzz/finite.h"
#include "buzz/sizes.h"

namespace buzz {

/// Of which model a calibration is.
struct CalibratedModel {
  std::string name;   ///< as its file has it; 0 to 255 bytes
  int layers = 0;     ///< all of them, sliding ones too
  int kv_heads = 0;   ///< of each layer
  int key_dim = 0;    ///< of a key
  int value_dim = 0;  ///< of a value
};

/// What a model's rows are worth, learnt beforehand (buzz-calibrate): for each KV head of its layers, or of some, a
/// weight for each number of an un-rotated key and of a value, and a bias. Their sum of products estimates the
/// logarithm of the highest attention that the row gets when the model reads the text again (KVzip's target, arXiv
/// 2505.23416).
///
/// The file, in archive.h's terms: magic "BUZW", version 1; the name's length and bytes; layers, kv_heads, key_dim,
/// value_dim; for each layer 0, or 1 and [kv_heads, key_dim + value_dim + 1] binary32, each head's bias behind its
/// weights; the checksum.
class Calibration {
 public:
  Calibration() = default;  ///< of no model
  /// No layer has weights yet. Errors: a name too long, a size out of 1 to 65536.
  explicit Calibration(CalibratedModel model) : model_(std::move(model)) {
    require_range("name", static_cast<long long>(model_.name.size()), 0, most_name);
    require_size("layers", model_.layers, most_heads);
    require_size("kv_heads", model_.kv_heads, most_heads);
    require_size("key_dim", model_.key_dim, most_head_dim);
    require_size("value_dim", model_.value_dim, most_head_dim);
    weights_.resize(static_cast<std::size_t>(model_.layers));
  }

  const CalibratedModel& model() const { return model_; }  ///< as given
  /// Numbers of a head: its weights of the key, of the value, and its bias.
  int head_size() const { return model_.key_dim + model_.value_dim + 1; }
  /// A layer's weights, [kv_heads, head_size()]. Errors: no such layer, another size, a number that is not finite.
  void set(int layer, std::vector<float> weights) {
    require_range("layer", layer, 0, model_.layers - 1);
    require_equal("weights", static_cast<long long>(weights.size()), 1LL * model_.kv_heads * head_size(),
                  "kv_heads * (key_dim + value_dim + 1)");
    for (const float& w : weights)
      if (!is_finite(w)) fail("weights", std::to_string(w), "finite");
    weights_[static_cast<std::size_t>(layer)] = std::move(weights);
  }
  /// Has that layer weights? Sliding ones have none.
  bool has(int layer) const {
    return layer >= 0 && layer < model_.layers && !weights_[static_cast<std::size_t>(layer)].empty();
  }
  /// A head's weights, [head_size()], of a layer that has some.
  const float* weights(int layer, int head) const {
    return weights_[static_cast<std::size_t>(layer)].data() + static_cast<std::ptrdiff_t>(head) * head_size();
  }

  /// Refuses another model than it is of. Errors, FileError: a name or a size that differs.
  void require_model(const CalibratedModel& m) const {
    if (model_.name != m.name)
      fail<FileError>("calibration.name", "'" + model_.name + "'", "'" + m.name + "', the model's");
    require_same("calibration.layers", model_.layers, m.layers);
    require_same("calibration.kv_heads", model_.kv_heads, m.kv_heads);
    require_same("calibration.key_dim", model_.key_dim, m.key_dim);
    require_same("calibration.value_dim", model_.value_dim, m.value_dim);
  }

  /// Which one it is: the checksum of its file. O(its numbers).
  std::uint64_t checksum() const {
    std::ostream nowhere(nullptr);
    Writer writer(nowhere, magic, version);
    archive(*this, writer);
    return writer.checksum();
  }
  /// Writes it; save_file(calibration, path) is to a file. Errors: the stream refuses (FileError).
  void save(std::ostream& out) const {
    Writer writer(out, magic, version);
    archive(*this, writer);
    writer.finish();
  }
  /// Becomes the one that was saved. Errors, all of them FileError: a stream that ends early, is damaged, or of another
  /// version. It is then as it was.
  void load(std::istream& in) {
    Reader reader(in, magic, version);
    Calibration loaded;
    archive(loaded, reader);
    reader.finish();
    loaded.path_ = std::move(path_);
    *this = std::move(loaded);
  }
  const std::string& path() const { return path_; }  ///< of load_calibration(), else ""

 private:
  friend std::shared_ptr<const Calibration> load_calibration(const std::string& path);

  static constexpr const char* magic = "BUZW";
  static constexpr int version = 1, most_name = 255;

  static void require_same(const char* field, int its, int model) {
    if (its != model) fail<FileError>(field, its, std::to_string(model) + ", the model's");
  }

  template <class Self, class Archive>
  static void archive(Self& self, Archive& a) {
    int length = static_cast<int>(self.model_.name.size());
    a.number("name", length, 0, most_name);
    resize(a, self.model_.name, length);
    a.array(&self.model_.name[0], static_cast<std::size_t>(length));
    a.number("layers", self.model_.layers, 1, most_heads);
    a.number("kv_heads", self.model_.kv_heads, 1, most_heads);
    a.number("key_dim", self.model_.key_dim, 1, most_head_dim);
    a.number("value_dim", self.model_.value_dim, 1, most_head_dim);
    resize(a, self.weights_, self.model_.layers);
    const int size = self.head_size();
    for (auto& layer : self.weights_) {
      int has = layer.empty() ? 0 : 1;
      a.number("layer's weights", has, 0, 1);
      // Head by head: what a damaged file says of its sizes allocates no more than the file has, and a head.
      for (int h = 0; h < self.model_.kv_heads * has; ++h) {
        resize(a, layer, (h + 1) * size);
        a.array(layer.data() + static_cast<std::ptrdiff_t>(h) * size, static_cast<std::size_t>(size));
        check(a, layer.data() + static_cast<std::ptrdiff_t>(h) * size, size);
      }
    }
  }
  template <class List>
  static void resize(const Writer&, const List&, int) {}
  template <class List>
  static void resize(const Reader&, List& list, int size) {
    list.resize(static_cast<std::size_t>(size));
  }
  static void check(const Writer&, const float*, int) {}
  static void check(const Reader&, const float* weights, int count) {
    for (int i = 0; i < count; ++i)
      if (!is_finite(weights[i])) fail<FileError>("weights", std::to_string(weights[i]), "finite");
  }

  CalibratedModel model_;
  std::vector<std::vector<float>> weights_;  // [layers], each [kv_heads, head_size()], or none
  std::string path_;
};

/// Reads a file of buzz-calibrate's. Errors, all of them FileError: no such file; what load() refuses.
inline std::shared_ptr<const Calibration> load_calibration(const std::string& path) {
  auto calibration = std::make_shared<Calibration>();
  load_file(*calibration, path);
  calibration->path_ = path;
  return calibration;
}

}  // namespace buzz
