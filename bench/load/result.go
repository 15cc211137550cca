package load

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
)

// Result is what a load has shown. Times are in ms where a name says so. Rates and latency are of the
// measured time; accounts are of all that was published.
type Result struct {
	Scenario  Scenario       `json:"scenario"`
	Transport WatchTransport `json:"transport"`
	Publisher string         `json:"publisher"` // http, stream or sdk
	Runs      int            `json:"runs"`
	Watchers  int            `json:"watchers_per_run"`
	Rate      int            `json:"rate"` // asked for; 0: as fast as taken
	Batch     int            `json:"batch"`
	Size      int            `json:"size_bytes"`

	System  string    `json:"system"` // of this process
	CPUs    int       `json:"cpus"`
	Began   time.Time `json:"began"`
	Seconds float64   `json:"measured_seconds"`

	Acked   int64 `json:"acked"`   // events that the server says are durable
	Refused int64 `json:"refused"` // events that it refused, or did not answer for
	// events that were due but never published: the server did not keep up with the rate
	Missed    int64  `json:"missed"`
	Expected  int64  `json:"expected"`  // acknowledged events times their watchers
	Delivered int64  `json:"delivered"` // of these and of refused ones, each once per watcher
	Lost      int64  `json:"lost"`
	Duplicate int64  `json:"duplicate"`
	Disorder  int64  `json:"out_of_order"`
	Stray     int64  `json:"stray"`           // events of another run
	Resumed   int64  `json:"resumed_streams"` // ended by the server or the network, and went on behind the last event
	Cut       int64  `json:"cut_streams"`     // could not be taken up again
	Trouble   string `json:"trouble,omitempty"`

	AckedPerSecond     float64 `json:"acked_per_second"`
	DeliveredPerSecond float64 `json:"delivered_per_second"`
	// Latency is from when an event was due to its arrival at a watcher; of s4, from asking to the last
	// byte, by client.
	Latency Summary `json:"latency_ms"`
	Ack     Summary `json:"ack_ms"` // to the server's answer

	Server *Cost   `json:"server,omitempty"` // nil: not known
	Client float64 `json:"client_cores"`     // CPU of this process; 0: not known

	Timeline []Sample `json:"timeline"`
}

// Summary is a distribution of times in ms.
type Summary struct {
	N       int64    `json:"n"`
	Mean    float64  `json:"mean"`
	P50     float64  `json:"p50"`
	P90     float64  `json:"p90"`
	P99     float64  `json:"p99"`
	P999    float64  `json:"p999"`
	Max     float64  `json:"max"`
	Buckets []Bucket `json:"buckets"`
	// Curve is the distribution for a picture: At[i] of the times are at most Ms[i].
	Curve Curve `json:"curve"`
}

// Curve is quantiles, ascending.
type Curve struct {
	At []float64 `json:"at"`
	Ms []float64 `json:"ms"`
}

// Cost is what the server used in the measured time.
type Cost struct {
	CPUSeconds float64 `json:"cpu_seconds"`
	Cores      float64 `json:"cores"`
	// PerMillion is CPU seconds for each million deliveries; without watchers, for each million
	// acknowledged events. 0 when there were none.
	PerMillion float64 `json:"cpu_seconds_per_million"`
	// MemoryBefore is before the watchers came, MemoryAfter at the end of the measured time.
	MemoryBefore int64 `json:"memory_before_bytes"`
	MemoryAfter  int64 `json:"memory_after_bytes"`
	// PerConnection is the difference by watcher, PerConnect the CPU time of opening one; both of s3 only.
	PerConnection float64 `json:"kib_per_connection,omitempty"`
	PerConnect    float64 `json:"cpu_us_per_connect,omitempty"`
}

// Sample is one moment of the measured time.
type Sample struct {
	Seconds   float64 `json:"s"`
	Acked     int64   `json:"acked"`     // events so far
	Delivered int64   `json:"delivered"` // so far, over all watchers
	CPU       float64 `json:"cpu_s"`     // of the server so far
	Memory    int64   `json:"memory_bytes"`
}

// ErrIncomplete reports that not all was delivered once and in order.
var ErrIncomplete = errors.New("load: not all was delivered once and in order")

// ErrTrouble reports that the load could not be carried out as asked.
var ErrTrouble = errors.New("load: not carried out as asked")

// Err is nil when all that was published was acknowledged and came to each watcher once and in order.
func (r *Result) Err() error {
	if r.Lost+r.Duplicate+r.Disorder+r.Stray > 0 {
		return fmt.Errorf("%w: %d lost, %d twice, %d out of order, %d of another run, of %d", ErrIncomplete,
			r.Lost, r.Duplicate, r.Disorder, r.Stray, r.Expected)
	}
	if r.Refused+r.Missed+r.Cut > 0 || r.Trouble != "" {
		return fmt.Errorf("%w: %d events refused, %d due but not published, %d streams cut: %s", ErrTrouble, r.Refused,
			r.Missed, r.Cut, r.Trouble)
	}
	if r.Acked == 0 {
		return fmt.Errorf("%w: nothing was published", ErrTrouble)
	}
	return nil
}

func newResult(cfg Config) *Result {
	r := &Result{Scenario: cfg.Scenario, Transport: cfg.Transport, Publisher: "http", Runs: cfg.Runs,
		Watchers: cfg.Watchers,
		Rate:     cfg.Rate, Batch: cfg.Batch, Size: cfg.Size,
		System: runtime.GOOS + "/" + runtime.GOARCH + " " + runtime.Version(),
		CPUs:   runtime.NumCPU(), Began: time.Now().UTC()}
	if cfg.Log != nil {
		r.Publisher = "sdk"
	} else if cfg.Stream {
		r.Publisher = "stream"
	}
	return r
}

// quantiles are those of a Curve: ever finer towards the tail.
var quantiles = []float64{0, 0.1, 0.25, 0.5, 0.625, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998,
	0.999, 0.9995,
	0.9998, 0.9999, 0.99999, 0.999999}

func summarize(h *Histogram) Summary {
	s := Summary{N: h.N(), Mean: ms(h.Mean()), P50: ms(h.Quantile(0.5)), P90: ms(h.Quantile(0.9)),
		P99:  ms(h.Quantile(0.99)),
		P999: ms(h.Quantile(0.999)), Max: ms(h.Max()), Buckets: h.buckets()}
	for _, q := range quantiles {
		// A quantile that fewer than one value lies beyond says nothing of its own.
		if h.N() == 0 || (1-q)*float64(h.N()) < 1 {
			break
		}
		s.Curve.At, s.Curve.Ms = append(s.Curve.At, q), append(s.Curve.Ms, ms(h.Quantile(q)))
	}
	return s
}

// spend fills in what was used between two samples and how fast the load went.
func (r *Result) spend(from, to Sample, probed bool, own time.Duration) {
	r.Seconds = to.Seconds - from.Seconds
	acked, delivered := to.Acked-from.Acked, to.Delivered-from.Delivered
	r.AckedPerSecond, r.DeliveredPerSecond = float64(acked)/r.Seconds, float64(delivered)/r.Seconds
	r.Client = own.Seconds() / r.Seconds
	if !probed {
		return
	}
	r.Server.CPUSeconds = to.CPU - from.CPU
	r.Server.Cores = r.Server.CPUSeconds / r.Seconds
	r.Server.MemoryAfter = to.Memory
	if delivered == 0 {
		delivered = acked
	}
	if delivered > 0 {
		r.Server.PerMillion = r.Server.CPUSeconds / float64(delivered) * 1e6
	}
}

// ownCPU is the CPU time of this process; zero where there is no proc(5).
func ownCPU() time.Duration {
	u, err := processUsage(os.Getpid())
	if err != nil {
		return 0
	}
	return u.CPU
}
