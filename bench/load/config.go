package load

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"agentstream/producers"
	"agentstream/schema"
)

// Scenario is the shape of a load.
type Scenario string

// The scenarios of docs/performance.md.
const (
	FanOut   Scenario = "s1" // one run, many watchers, as fast as they take it
	ManyRuns Scenario = "s2" // many runs, few watchers each, a fixed rate of single events
	Idle     Scenario = "s3" // connections on which nothing is sent
	Replay   Scenario = "s4" // many clients ask for one stored run at once
	Publish  Scenario = "s5" // no watchers; what was stored is read back and checked
)

// WatchTransport is how watchers are connected.
type WatchTransport string

// The transports that can be measured.
const (
	SSE       WatchTransport = "sse"
	WebSocket WatchTransport = "ws"
)

// Config is what to do to which server. Zero fields get the scenario's defaults, shown as
// s1/s2/s3/s4/s5 where they differ.
type Config struct {
	URL   string // of the server: http or https, without a path. Required
	Token string // bearer token; "" sends none
	// TLS is for https; nil trusts what the system does. NextProtos is not looked at.
	TLS       *tls.Config
	Scenario  Scenario
	Transport WatchTransport

	Runs     int // 1/500/500/1/64
	Watchers int // of each run; 1000/2/2/50/0
	Rate     int // events a second over all runs; 0: as fast as taken. 0/10000/-/0/0
	Batch    int // events in one request, all of one run; 16/1/-/64/64
	Size     int // bytes of one event as it is published; at least 96; default 240
	Events   int // s4: events in the stored run; default 10,000
	Writers  int // publishing connections; default 4, at most one for each run
	Depth    int // requests of one writer that may be unanswered; default 16
	// events that watchers may be behind on average before writers wait, when there is no rate; default 512
	Window   int
	Duration time.Duration // of what is measured; default 10 s
	Warm     time.Duration // before it; default 1 s; below zero: none
	Settle   time.Duration // how long to wait without progress for what is missing at the end; default 5 s

	// Log makes writers publish with the SDK, as Tenant, instead of over HTTP.
	Log    producers.Log
	Tenant string // default "default"

	// Stream makes writers publish lines in a request that stays open, each with up to 4,096 events unanswered.
	Stream bool

	// Probe reads the server's use of CPU and memory; nil: not known.
	Probe Probe
	Hooks Hooks
}

// Hooks tell how the load goes. They are called from one goroutine at a time; nil fields are off.
type Hooks struct {
	Phase    func(name string)
	Progress func(Progress) // about once a second while events are published or awaited
}

// Progress is where a load stands.
type Progress struct {
	Elapsed   time.Duration // since publishing began
	Acked     int64         // events
	Delivered int64         // events times watchers
}

// ErrConfig reports that a load cannot be run as described.
var ErrConfig = errors.New("load: bad configuration")

func (c Config) withDefaults() Config {
	if c.Scenario == "" {
		c.Scenario = ManyRuns
	}
	if c.Transport == "" {
		c.Transport = SSE
	}
	type preset struct{ runs, watchers, rate, batch int }
	p := map[Scenario]preset{FanOut: {1, 1000, 0, 16}, ManyRuns: {500, 2, 10000, 1}, Idle: {500, 2, 0, 1},
		Replay: {1, 50, 0, 64}, Publish: {64, 0, 0, 64}}[c.Scenario]
	or := func(to *int, or int) {
		if *to == 0 {
			*to = or
		}
	}
	or(&c.Runs, p.runs)
	or(&c.Watchers, p.watchers)
	or(&c.Rate, p.rate)
	c.Rate = max(c.Rate, 0) // from here on, zero is as fast as taken
	or(&c.Batch, p.batch)
	or(&c.Size, 240)
	or(&c.Events, 10000)
	or(&c.Writers, 4)
	c.Writers = min(c.Writers, c.Runs)
	or(&c.Depth, 16)
	or(&c.Window, 512)
	if c.Duration == 0 {
		c.Duration = 10 * time.Second
	}
	if c.Warm == 0 {
		c.Warm = time.Second
	}
	c.Warm = max(c.Warm, 0)
	if c.Settle == 0 {
		c.Settle = 5 * time.Second
	}
	if c.Tenant == "" {
		c.Tenant = "default"
	}
	return c
}

func (c Config) validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...))
	}
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		return bad("url: %v", err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return bad("url %q is no http or https address", c.URL)
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil:
		return bad("url %q has more than a host", u.Redacted())
	case strings.ContainsAny(c.Token, "\r\n "):
		return bad("the token has a space or a line break in it")
	case c.Transport != SSE && c.Transport != WebSocket:
		return bad("transport %q", c.Transport)
	case c.Runs < 1 || c.Runs > maxRuns:
		return bad("%d runs", c.Runs)
	case c.Size < minSize || c.Size > maxSize:
		return bad("size %d is not between %d and %d", c.Size, minSize, maxSize)
	case c.Watchers < 0 || c.Batch < 1 || c.Events < 1 || c.Writers < 1 || c.Depth < 1 || c.Window < 1:
		return bad("a number is below its least")
	case c.Batch*(c.Size+1) > maxBody:
		return bad("%d events of %d bytes are more than one request may have (%d bytes)", c.Batch, c.Size, maxBody)
	case c.Duration < 0 || c.Settle < 0:
		return bad("a duration is below zero")
	case schema.ValidTenant(c.Tenant) != nil:
		return bad("tenant: %v", schema.ValidTenant(c.Tenant))
	}
	return c.validScenario(bad)
}

func (c Config) validScenario(bad func(string, ...any) error) error {
	switch c.Scenario {
	case FanOut, ManyRuns, Idle:
		if c.Watchers == 0 {
			return bad("%s needs watchers", c.Scenario)
		}
	case Replay:
		if c.Watchers == 0 || c.Runs != 1 {
			return bad("%s is of one run and at least one watcher", c.Scenario)
		}
	case Publish:
	default:
		return bad("scenario %q", c.Scenario)
	}
	return nil
}

const (
	maxRuns = 1 << 24
	minSize = 96
	maxSize = 256 << 10
	maxBody = 8 << 20 // edge: the most that one POST may have
)
