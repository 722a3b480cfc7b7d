#pragma once

#include <cstddef>
#include <string>

namespace buzz {

/// Is shown every option of a score, a selection or a policy: its name, where it is, its range and what it does. The
/// options of a thing are listed once, in its options(OptionVisitor&); parsing, printing, tables, checks and saved
/// files are visitors.
class OptionVisitor {
 public:
  virtual ~OptionVisitor() = default;
  /// Are the options wanted as saved files have them: those that have no effect left out?
  virtual bool saves() const { return false; }

  /// A whole number, low to high.
  virtual void whole(const char* name, int& value, long long low, long long high, const char* text) = 0;
  /// A real number; `range` says which.
  template <class Real>
  void real(const char* name, Real& value, bool (*allowed)(double), const char* range, const char* text) {
    double x = static_cast<double>(value);
    number(name, x, allowed, range, text);
    value = static_cast<Real>(x);
  }
  /// One of `names`, in the order of the enum's values.
  template <class Enum, std::size_t N>
  void choice(const char* name, Enum& value, const char* const (&names)[N], const char* text) {
    int i = static_cast<int>(value);
    one_of(name, i, names, static_cast<int>(N), text);
    value = static_cast<Enum>(i);
  }
  /// The path of a file, or "". Saved files have a number in its place.
  virtual void path(const char* name, std::string& value, const char* text) {
    (void)name;
    (void)value;
    (void)text;
  }

 protected:
  /// What real() and choice() come to.
  /// @{
  virtual void number(const char* name, double& value, bool (*allowed)(double), const char* range,
                      const char* text) = 0;
  virtual void one_of(const char* name, int& value, const char* const* names, int count, const char* text) = 0;
  /// @}
};

}  // namespace buzz
