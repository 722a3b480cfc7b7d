#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace buzz {

/// An allocator of memory that begins at a multiple of 64 bytes: a cache line, the widest packet. Whatever a
/// translation unit is compiled for, it frees what another allocated; Eigen's own depends on -m flags, and the
/// language's aligned new on -faligned-new. Takes up to 64 bytes more than are asked for. Where these fill pages of 2
/// MiB, Linux is asked for such, since a stream over many small ones waits for their addresses. Errors: no memory:
/// std::bad_alloc.
template <class T>
struct Aligned {
  using value_type = T;                         ///< for containers
  static constexpr std::size_t alignment = 64;  ///< bytes

  Aligned() = default;  ///< has no state
  /// The memory is the same, whatever lies in it.
  template <class U>
  Aligned(const Aligned<U>&) noexcept {}  // NOLINT: containers ask for the conversion

  /// Room for `count` values, which the container has checked to be no more than can be addressed.
  T* allocate(std::size_t count) {
    void* const whole = ::operator new(count * sizeof(T) + alignment);
    prefer_huge_pages(reinterpret_cast<std::uintptr_t>(whole), count * sizeof(T) + alignment);
    const std::uintptr_t past = reinterpret_cast<std::uintptr_t>(whole) % alignment;
    unsigned char* const begin = static_cast<unsigned char*>(whole) + (alignment - past);
    std::memcpy(begin - sizeof whole, &whole, sizeof whole);  // operator new leaves room for it: it aligns to pointers
    return reinterpret_cast<T*>(begin);
  }
  /// What any Aligned has allocated.
  void deallocate(T* values, std::size_t) noexcept {
    void* whole;
    std::memcpy(&whole, reinterpret_cast<unsigned char*>(values) - sizeof whole, sizeof whole);
    ::operator delete(whole);
  }

  /// Any frees what any other allocated.
  template <class U>
  bool operator==(const Aligned<U>&) const noexcept {
    return true;
  }
  /// The same.
  template <class U>
  bool operator!=(const Aligned<U>&) const noexcept {
    return false;
  }

 private:
  /// Asks for huge pages where bytes from an address on fill some; whatever the system says, the memory is as good.
  static void prefer_huge_pages(std::uintptr_t begin, std::size_t bytes) noexcept {
#if defined(MADV_HUGEPAGE)
    constexpr std::uintptr_t page = std::uintptr_t{1} << 21;
    const std::uintptr_t first = (begin + page - 1) / page * page, end = (begin + bytes) / page * page;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the system's pages, not the object's
    if (first < end) static_cast<void>(::madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE));
#else
    static_cast<void>(begin), static_cast<void>(bytes);
#endif
  }
};

/// Values side by side, from a multiple of 64 bytes on.
template <class T>
using AlignedVector = std::vector<T, Aligned<T>>;

}  // namespace buzz
