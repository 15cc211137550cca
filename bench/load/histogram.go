package load

import (
	"math"
	"math/bits"
	"time"
)

// Histogram counts durations in buckets whose width is at most 1/64 of their value, as HdrHistogram
// does. The zero value is empty. It is not locked.
type Histogram struct {
	counts [subBuckets * octaves]int64
	n      int64
	sum    float64 // ns
	max    time.Duration
}

const (
	subBits    = 6
	subBuckets = 1 << subBits
	octaves    = 36 // up to 2^41 ns, 36 minutes; longer ones share the last bucket
)

// Add counts d. Below zero is zero.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.n++
	h.sum += float64(d)
	h.max = max(h.max, d)
	h.counts[bucketOf(d)]++
}

// bucketOf is exact below subBuckets; above, the octave of the value and its next subBits bits.
func bucketOf(d time.Duration) int {
	v := uint64(d)
	shift := max(0, bits.Len64(v)-subBits-1)
	return min(shift*subBuckets+int(v>>shift), subBuckets*octaves-1)
}

// upper is the largest value of a bucket.
func upper(i int) time.Duration {
	if i < 2*subBuckets {
		return time.Duration(i)
	}
	shift := i/subBuckets - 1
	return time.Duration((i%subBuckets+subBuckets+1)<<shift - 1)
}

// Merge adds what o has counted.
func (h *Histogram) Merge(o *Histogram) {
	for i, c := range o.counts {
		h.counts[i] += c
	}
	h.n += o.n
	h.sum += o.sum
	h.max = max(h.max, o.max)
}

// N is how many were counted.
func (h *Histogram) N() int64 { return h.n }

// Max is the largest, exactly.
func (h *Histogram) Max() time.Duration { return h.max }

// Mean is zero when nothing was counted.
func (h *Histogram) Mean() time.Duration {
	if h.n == 0 {
		return 0
	}
	return time.Duration(h.sum / float64(h.n))
}

// Quantile returns the value that the share q (0 to 1) of all does not exceed, by the nearest rank, up
// to a bucket's width too high; zero when nothing was counted.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := min(max(int64(math.Ceil(q*float64(h.n))), 1), h.n)
	var seen int64
	for i, c := range h.counts {
		if i == len(h.counts)-1 { // it has no upper limit
			break
		}
		if seen += c; seen >= rank && c > 0 {
			return min(upper(i), h.max)
		}
	}
	return h.max
}

// Bucket is a range of latencies, From exclusive, To inclusive, in ms.
type Bucket struct {
	From  float64 `json:"from_ms"`
	To    float64 `json:"to_ms"`
	Count int64   `json:"count"`
}

// buckets sums the counts into rows whose limits double, from the first that is not empty to the last.
func (h *Histogram) buckets() (out []Bucket) {
	for i := 0; i < len(h.counts); {
		// Rows begin where an octave does. The exact octaves are one row: below 64 ns nothing is measured.
		end := (i/subBuckets + 1) * subBuckets
		if i == 0 {
			end = 2 * subBuckets
		}
		first := i == 0
		var row Bucket
		for ; i < end; i++ {
			row.Count += h.counts[i]
		}
		row.To = ms(upper(end-1) + 1)
		if row.From = row.To / 2; first {
			row.From = 0
		}
		if row.Count > 0 || len(out) > 0 {
			out = append(out, row)
		}
	}
	for len(out) > 0 && out[len(out)-1].Count == 0 {
		out = out[:len(out)-1]
	}
	return out
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
