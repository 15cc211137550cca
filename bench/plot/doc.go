// Package plot draws charts as SVG, so that a report can carry its picture without any tool.
//
// # What it is
//
// A [Chart] is lines over two axes, linear or logarithmic. [Bars] is one bar per label. Each writes
// one self-contained SVG document: no script, no font, no outside reference.
//
// # Contract
//
// The same values give the same bytes, so that pictures can be kept in a repository and compared.
// What cannot be drawn truthfully is refused before anything is written: no points, a value that is
// not finite, nothing above zero on a logarithmic axis. Text is escaped. Colours follow the reader's
// light or dark scheme and remain apart for colour-blind readers; fonts are generic families.
//
// # Concurrency
//
// Values are plain data; drawing them reads only.
//
// # What it does not do
//
// It does not measure, thin out or smooth: a caller hands in the points that are to be seen.
//
// # Where to look next
//
// Package load draws latency with it; docs/performance.md shows results.
package plot
