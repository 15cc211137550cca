package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// probe is an HTTP probe of a manifest.
type probe struct {
	HTTPGet struct {
		Path string
		Port any // a name or a number
	} `json:"httpGet"`
	InitialDelaySeconds, PeriodSeconds, TimeoutSeconds int
	SuccessThreshold, FailureThreshold                 int

	port int    // the number of HTTPGet.Port
	url  string // that is asked; set when the pod is started
}

// complete fills in Kubernetes's defaults, and the port's number.
func (p probe) complete(ports map[string]int) (probe, error) {
	for _, d := range []struct {
		field *int
		value int
	}{{&p.PeriodSeconds, 10}, {&p.TimeoutSeconds, 1}, {&p.SuccessThreshold, 1}, {&p.FailureThreshold, 3}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	var err error
	if p.port, err = portNumber(p.HTTPGet.Port, ports); err == nil && p.HTTPGet.Path == "" {
		err = fmt.Errorf("only httpGet is known here")
	}
	return p, err
}

// portNumber is the number of a port that is named or numbered.
func portNumber(port any, ports map[string]int) (int, error) {
	switch port := port.(type) {
	case string:
		if n := ports[port]; n != 0 {
			return n, nil
		}
	case float64:
		return int(port), nil
	}
	return 0, fmt.Errorf("there is no port %v", port)
}

// probed counts the results of a probe. Early are failures before the first success.
type probed struct {
	Passed int `json:"passed"`
	Failed int `json:"failed"`
	Early  int `json:"early"`
}

// kubelet probes one pod. It starts nothing again: a liveness probe that fails too often ends the topology.
type kubelet struct {
	ask func(context.Context, probe) error

	mu      sync.Mutex
	ready   bool
	results map[string]*probed // by kind of probe
}

// run probes until ctx ends. It returns an error when the pod would be started again.
func (k *kubelet) run(ctx context.Context, probes map[string]probe) error {
	if p, ok := probes["startup"]; ok {
		if err := k.repeat(ctx, "startup", p, true); err != nil {
			return err
		}
	}
	probing, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup
	for _, kind := range []string{"readiness", "liveness"} {
		if p, ok := probes[kind]; ok {
			all.Go(func() {
				if err := k.repeat(probing, kind, p, false); err != nil {
					stop(err)
				}
			})
		}
	}
	all.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(probing)
}

// repeat probes once a period; once it is enough, until the first success.
func (k *kubelet) repeat(ctx context.Context, kind string, p probe, once bool) error {
	k.mu.Lock()
	count := &probed{}
	k.results[kind] = count
	k.mu.Unlock()
	timer := time.NewTimer(time.Duration(p.InitialDelaySeconds) * time.Second)
	defer timer.Stop()
	row := 0 // results of one sort, failures below zero
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		timer.Reset(time.Duration(p.PeriodSeconds) * time.Second)
		err := k.ask(ctx, p)
		if ctx.Err() != nil {
			return nil
		}
		row = k.count(kind, count, err == nil, row, p)
		switch {
		case err == nil && once:
			return nil
		case err != nil && row <= -p.FailureThreshold && kind != "readiness":
			return fmt.Errorf("the %s probe has failed %d times: %w", kind, -row, err)
		}
	}
}

// count keeps a result, and what readiness comes of it. It returns how many results of this sort came in a row.
func (k *kubelet) count(kind string, c *probed, ok bool, row int, p probe) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case ok:
		c.Passed++
		row = max(row, 0) + 1
	case c.Passed == 0:
		c.Early++
		row = min(row, 0) - 1
	default:
		c.Failed++
		row = min(row, 0) - 1
	}
	if kind == "readiness" && row >= p.SuccessThreshold {
		k.ready = true
	}
	if kind == "readiness" && row <= -p.FailureThreshold {
		k.ready = false
	}
	return row
}

// askOverHTTP sends the request of a probe: 200 to 399 is a success.
func askOverHTTP(ctx context.Context, p probe) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.TimeoutSeconds)*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return err
	}
	req.Close = true // a kubelet keeps no connection
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode >= 400 {
		return fmt.Errorf("%s: %s", p.url, resp.Status)
	}
	return nil
}

// isReady reports what the readiness probe has found.
func (k *kubelet) isReady() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ready
}

// counts returns the results so far.
func (k *kubelet) counts() map[string]probed {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[string]probed{}
	for kind, c := range k.results {
		out[kind] = *c
	}
	return out
}
