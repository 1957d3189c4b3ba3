// The results as a table and as JSON.
#pragma once

#include <string>
#include <vector>

#include "run.h"

namespace weir::bench {

std::string table_heading();
// The first round and the median of the others.
std::string table_lines(const RowResult& row);
std::string to_json(const RunOptions& options, const std::vector<RowResult>& rows);

}  // namespace weir::bench
