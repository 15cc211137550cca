package sink

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"agentstream/tap"
	"agentstream/tap/otlp"
)

// OTLP are options of the sinks otlp+http and otlp+grpc.
type OTLP struct {
	Contents bool            // what people, models and tools have said is in spans, unless the address says otherwise
	Headers  func() []string // of each request, "Name: value" or "name=value"; nil: none
	History  otlp.History    // nil: spans that began before this process have no beginning
}

func openOTLP(_ context.Context, u *url.URL, o Options) (tap.Receiver, error) {
	q := u.Query()
	if err := checkQuery(q, "contents", "pending", "parents", "metrics", "service"); err != nil {
		return nil, err
	}
	cfg := otlp.Config{Options: otlp.Options{Contents: o.OTLP.Contents, Pending: true}, History: o.OTLP.History,
		Service: q.Get("service"), Metrics: true}
	parents := true
	for name, value := range map[string]*bool{"contents": &cfg.Contents, "pending": &cfg.Pending, "parents": &parents,
		"metrics": &cfg.Metrics} {
		if v := q.Get(name); v != "" {
			on, err := strconv.ParseBool(v)
			if err != nil {
				return nil, fmt.Errorf("%s %.10q: want true or false", name, v)
			}
			*value = on
		}
	}
	cfg.Links = !parents
	var err error
	if cfg.Sender, err = OpenCollector(u, o); err != nil {
		return nil, err
	}
	return otlp.New(cfg), nil
}

// OpenCollector returns what hands spans to the collector at an address: otlp+http, otlp+https, otlp+grpc or otlp+grpcs.
// Its query is another's to read.
func OpenCollector(u *url.URL, o Options) (otlp.Sender, error) {
	if u.Host == "" || u.User != nil {
		return nil, errors.New("want otlp+https://HOST[:PORT][/PATH] or otlp+grpcs://HOST[:PORT], " +
			"and credentials in headers (--otlp-headers)")
	}
	if o.Timeout == 0 {
		o.Timeout = 15 * time.Second
	}
	headers := func() ([][2]string, error) { return headersOf(o.OTLP.Headers) }
	if _, err := headers(); err != nil {
		return nil, err
	}
	switch scheme := strings.TrimPrefix(u.Scheme, "otlp+"); scheme {
	case "http", "https":
		o.Private = true // it is the operator's own collector
		target := url.URL{Scheme: scheme, Host: u.Host, Path: strings.TrimSuffix(u.Path, "/")}
		return &otlpHTTP{client: newClient(o), url: target.String(), headers: headers}, nil
	case "grpc", "grpcs":
		return newOTLPGRPC(u, scheme == "grpcs", o, headers)
	default:
		return nil, fmt.Errorf("%.20q is not otlp+http, otlp+https, otlp+grpc or otlp+grpcs", u.Scheme)
	}
}

// headersOf reads headers. None of their values is in an error.
func headersOf(lines func() []string) (headers [][2]string, err error) {
	if lines == nil {
		return nil, nil
	}
	for i, line := range lines() {
		at := strings.IndexAny(line, ":=")
		if at <= 0 || strings.ContainsAny(line[:at], " \t") {
			return nil, fmt.Errorf("header %d: want name: value, or name=value", i+1)
		}
		headers = append(headers, [2]string{line[:at], strings.TrimSpace(line[at+1:])})
	}
	return headers, nil
}
