package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// jobKey names a measurement.
type jobKey struct {
	Round  int    `json:"round"`
	Line   string `json:"line"`
	Target string `json:"target"`
}

// record is a measurement: what the harness counted, and what each process of the product took.
type record struct {
	jobKey
	At      time.Time          `json:"at"`
	Err     string             `json:"err,omitempty"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
	Cores   map[string]float64 `json:"cores,omitempty"`   // by process, in the busiest window
	PeakMiB map[string]float64 `json:"peakMiB,omitempty"` // resident memory by process
	Lag     float64            `json:"lag,omitempty"`     // most packs that waited for the persister
	CPU     string             `json:"cpu,omitempty"`     // model of the machine's
	// share of the machine that processes took which are no part of this
	Others float64 `json:"others,omitempty"`
}

// spoilReason returns why a figure must not count, or "".
func (r record) spoilReason() string {
	if r.Err != "" {
		return r.Err
	}
	for _, name := range mustBeZero {
		if v := r.Metrics[name]; v != 0 {
			return fmt.Sprintf("%s = %s in round %d", name, figure(v), r.Round)
		}
	}
	return ""
}

// results is the folder of one comparison.
type results struct {
	dir     string
	records map[jobKey]record
}

const resultsFile, subjectFile = "results.jsonl", "subject.json"

// openResults reads what a folder has, and makes it if there is none. A last line that an interrupted
// writer left torn is not a result.
func openResults(dir string) (*results, error) {
	if err := os.MkdirAll(filepath.Join(dir, "logs"), 0o755); err != nil {
		return nil, err
	}
	r := &results{dir: dir, records: map[jobKey]record{}}
	f, err := os.Open(filepath.Join(dir, resultsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewReader(f)
	for {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return nil, err
		}
		var rec record
		if json.Unmarshal(text, &rec) == nil && rec.Line != "" {
			r.records[rec.jobKey] = rec
		}
	}
}

// has reports whether a measurement need not be repeated. One that failed is tried again.
func (r *results) has(k jobKey) bool {
	rec, ok := r.records[k]
	return ok && rec.Err == ""
}

// add keeps a measurement. It begins a line of its own even behind a torn one.
func (r *results) add(rec record) error {
	b, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(r.dir, resultsFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	end, err := f.Seek(0, io.SeekEnd)
	if err == nil && end > 0 {
		last := make([]byte, 1)
		if _, err = f.ReadAt(last, end-1); err == nil && last[0] != '\n' {
			b = append([]byte{'\n'}, b...)
		}
	}
	if err == nil {
		_, err = f.Write(append(b, '\n'))
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("keep %v: %w", rec.jobKey, err)
	}
	r.records[rec.jobKey] = rec
	return nil
}

// subject is what a folder's figures are of.
type subject struct {
	Agentstream string `json:"agentstream"` // SHA-256 of the binary
	Before      string `json:"before,omitempty"`
	Harness     string `json:"harness"`
	Short       bool   `json:"short"`
}

var errOtherSubject = errors.New("the folder has results of another build, harness or length: remove it or name another")

// claim ties the folder to what is measured now.
func (r *results) claim(s subject) error {
	file := filepath.Join(r.dir, subjectFile)
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		if b, err = json.Marshal(s); err != nil {
			return err
		}
		return os.WriteFile(file, b, 0o644)
	}
	if err != nil {
		return err
	}
	var before subject
	if err := json.Unmarshal(b, &before); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if before != s {
		return fmt.Errorf("%s: %w", r.dir, errOtherSubject)
	}
	return nil
}

func hashOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// spread is a metric over rounds.
type spread struct{ median, least, most float64 }

func spreadOf(values []float64) (spread, bool) {
	if len(values) == 0 {
		return spread{}, false
	}
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	return spread{median: (v[(n-1)/2] + v[n/2]) / 2, least: v[0], most: v[n-1]}, true
}

func (s spread) String() string {
	if figure(s.least) == figure(s.most) {
		return figure(s.median)
	}
	return fmt.Sprintf("%s (%s–%s)", figure(s.median), figure(s.least), figure(s.most))
}

// of returns the measurements of a line on a target, by round.
func (r *results) of(line, target string) (list []record) {
	for k, rec := range r.records {
		if k.Line == line && k.Target == target {
			list = append(list, rec)
		}
	}
	slices.SortFunc(list, func(a, b record) int { return a.Round - b.Round })
	return list
}

// metric returns what was counted in the rounds that went through.
func (r *results) metric(line, target, name string) (spread, bool) {
	var values []float64
	for _, rec := range r.of(line, target) {
		if v, ok := rec.Metrics[name]; ok && rec.Err == "" {
			values = append(values, v)
		}
	}
	return spreadOf(values)
}

// cores returns what one process took.
func (r *results) cores(line, target, process string) (spread, bool) {
	var values []float64
	for _, rec := range r.of(line, target) {
		if v, ok := rec.Cores[process]; ok && rec.Err == "" {
			values = append(values, v)
		}
	}
	return spreadOf(values)
}

// spoilReason returns the first reason why a line's figures on a target must not count, or "".
func (r *results) spoilReason(line, target string) string {
	for _, rec := range r.of(line, target) {
		if why := rec.spoilReason(); why != "" {
			return strings.TrimSpace(why)
		}
	}
	return ""
}
