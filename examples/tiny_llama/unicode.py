# Writes the tables of unicode.h: first and last character of each range of the general categories L and N.
import textwrap
import unicodedata


def table(category):
    ranges = []
    for c in range(0x110000):
        if unicodedata.category(chr(c))[0] == category:
            if ranges and ranges[-1][1] == c - 1:
                ranges[-1][1] = c
            else:
                ranges.append([c, c])
    return ", ".join(f"{first:#x},{last:#x}" for first, last in ranges)


for name, category in (("letters", "L"), ("numbers", "N")):
    print(f"constexpr char32_t {name}[] = {{  // Unicode {unicodedata.unidata_version}")
    print("\n".join(textwrap.wrap(table(category), 116, initial_indent="    ", subsequent_indent="    ")))
    print("};")
