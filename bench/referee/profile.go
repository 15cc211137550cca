package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"agentstream/bench/load"
)

// profileLine is what a profile is of: the commonest load, at a rate that leaves the machine room.
func profileLine(short bool) line {
	dur := 8 * time.Second
	if short {
		dur = 2 * time.Second
	}
	return line{id: "profile", what: "500 runs × 2 watchers, 5,000 ev/s, a POST each", window: dur, profile: true,
		show: []string{"acked_s", "cpu_s_per_M"},
		load: &load.Config{Scenario: load.ManyRuns, Rate: 5000, Duration: dur, Warm: 1500 * time.Millisecond}}
}

// group is a row of a profile's table: what is under its functions, unless a function that one of these called is of
// another group.
type group struct {
	name string
	of   *regexp.Regexp // of a function with its file
}

// groups are looked through in this order for each function, from the one that ran to the one that began.
var groups = []group{
	{"broker", regexp.MustCompile(`^github\.com/nats-io/nats-server/`)},
	{"nats.go, and ours beside it", regexp.MustCompile(`^(github\.com/nats-io/nats(\.|%2e)go|agentstream/(producers/natsjs|fanout/natsjs|internal/natskit))\b`)},
	{"SQLite and persister", regexp.MustCompile(`^(modernc\.org/|database/sql\.|agentstream/persister)`)},
	{"delivery", regexp.MustCompile(`^agentstream/edge(/live|/transport|/shape|/ends|/dialect)|^agentstream/edge\..* .*/(conn_linux|park|view|writer|stream|timed|reader|session|source|tracks)\.go:`)},
	{"hub", regexp.MustCompile(`^agentstream/fanout\b`)},
	{"numbering", regexp.MustCompile(`^agentstream/producers\b`)},
	{"routing and decoding", regexp.MustCompile(`^agentstream/(edge|cmd)\b`)},
	{"net/http", regexp.MustCompile(`^net/http\.`)},
}

const runtimeGroup, otherGroup = "collector and scheduler", "other"

// groupOf returns the group of a stack, of which the function that ran comes first.
func groupOf(stack []string) string {
	for _, f := range stack {
		for _, g := range groups {
			if g.of.MatchString(f) {
				return g.name
			}
		}
	}
	if len(stack) > 0 && strings.HasPrefix(stack[len(stack)-1], "runtime.") {
		return runtimeGroup
	}
	return otherGroup
}

// groupStacks adds up the stacks that go tool pprof prints with -traces.
func groupStacks(traces io.Reader) (sums map[string]time.Duration, err error) {
	sums = map[string]time.Duration{}
	var took time.Duration
	var stack []string
	inside := false
	end := func() {
		if len(stack) > 0 {
			sums[groupOf(stack)] += took
		}
		took, stack = 0, nil
	}
	lines := bufio.NewScanner(traces)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(text, "-----") {
			end()
			inside = true
			continue
		}
		if !inside || text == "" {
			continue
		}
		if len(stack) == 0 {
			value, rest, _ := strings.Cut(text, " ")
			if strings.HasSuffix(value, ":") {
				continue // a label of what follows
			}
			if took, err = time.ParseDuration(value); err != nil {
				return nil, fmt.Errorf("profile: %q: %w", text, err)
			}
			text = strings.TrimSpace(rest)
		}
		stack = append(stack, text)
	}
	end()
	return sums, lines.Err()
}

// fetchProfile takes a CPU profile from a process' address for operators.
func fetchProfile(ctx context.Context, admin, file string, length time.Duration) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%.0f", admin, length.Seconds()), nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, b)
	}
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	return os.WriteFile(file, b, 0o644)
}

// profiling has a profile taken of the measured part of a load; done returns when it is there.
func profiling(ctx context.Context, cfg *load.Config, admin, file string) (done func() error) {
	taken := make(chan error, 1)
	cfg.Hooks.Phase = func(name string) {
		if !strings.HasPrefix(name, "publishing") {
			return
		}
		warm, length := cfg.Warm, cfg.Duration.Truncate(time.Second)
		go func() {
			select {
			case <-time.After(warm):
				taken <- fetchProfile(ctx, admin, file, length)
			case <-ctx.Done():
				taken <- ctx.Err()
			}
		}()
	}
	return func() error { return <-taken }
}

func (r *results) profileFile(k jobKey) string {
	return filepath.Join(r.dir, fmt.Sprintf("profile.%s.%d.pb.gz", k.Target, k.Round))
}

const profilesFile = "profiles.md"

// reportProfiles writes the table of profiles to the folder and to the standard output.
func (r *results) reportProfiles(ctx context.Context, l line, shapes []string) error {
	var text bytes.Buffer
	if err := r.writeProfiles(ctx, &text, l, shapes); err != nil {
		return err
	}
	fmt.Printf("%s", &text)
	return os.WriteFile(filepath.Join(r.dir, profilesFile), text.Bytes(), 0o644)
}

// writeProfiles prints what an event takes by group, of all rounds of each shape.
func (r *results) writeProfiles(ctx context.Context, w io.Writer, l line, shapes []string) error {
	sums, total := map[string]map[string]time.Duration{}, map[string]time.Duration{}
	events := map[string]float64{}
	for _, shape := range shapes {
		args := []string{"tool", "pprof", "-traces", "-lines", "-unit=us"}
		for _, rec := range r.of(l.id, shape) {
			if rec.Err == "" {
				args = append(args, r.profileFile(rec.jobKey))
				events[shape] += rec.Metrics["acked_s"] * l.window.Seconds()
			}
		}
		if events[shape] == 0 {
			continue
		}
		out, err := exec.CommandContext(ctx, "go", args...).Output()
		if err != nil {
			return fmt.Errorf("go tool pprof: %w", err)
		}
		if sums[shape], err = groupStacks(bytes.NewReader(out)); err != nil {
			return err
		}
		for _, v := range sums[shape] {
			total[shape] += v
		}
	}
	shapes = slices.DeleteFunc(slices.Clone(shapes), func(s string) bool { return events[s] == 0 })
	if len(shapes) == 0 {
		return errors.New("no profiles")
	}
	row(w, append([]string{l.what + ": CPU µs an event"}, shapes...)...)
	rule(w, 1+len(shapes))
	var names []string
	for _, g := range groups {
		names = append(names, g.name)
	}
	for _, name := range append(names, runtimeGroup, otherGroup) {
		cells := []string{name}
		for _, s := range shapes {
			cells = append(cells, fmt.Sprintf("%.1f (%.0f %%)", sums[s][name].Seconds()*1e6/events[s],
				100*sums[s][name].Seconds()/total[s].Seconds()))
		}
		row(w, cells...)
	}
	cells := []string{"all"}
	for _, s := range shapes {
		cells = append(cells, fmt.Sprintf("%.1f", total[s].Seconds()*1e6/events[s]))
	}
	row(w, cells...)
	return nil
}
