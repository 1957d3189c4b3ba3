// CopyPlace: one argument of `weir cp`, a path here or ADDR:PORT:PATH at a peer.
#pragma once

#include <string>
#include <string_view>

namespace weir::command {

struct CopyPlace {
  std::string address;  // "10.0.0.7:4433"; empty: here
  std::string path;     // at a peer, relative to what it serves; empty: all of it
  bool is_remote() const { return !address.empty(); }
};

// A file here whose name looks like a peer is written with a directory: ./10.0.0.7:4433:x
CopyPlace parse_place(std::string_view text);
// What the copy is called in a directory; empty for everything that a peer serves, whose contents are copied.
std::string name_of(const CopyPlace& place);

}  // namespace weir::command
