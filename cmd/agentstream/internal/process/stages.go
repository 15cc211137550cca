package process

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Part is something that runs until its context ends.
type Part struct {
	Name string
	Run  func(context.Context) error
}

// RunStages runs all parts at once and ends them in the order of their stages: a stage is asked to
// stop when everything in the stage before it has returned. The end begins when ctx ends or when any
// part returns by itself. All errors are returned.
//
//	edge, admin ─▶ hub ─▶ live copies ─▶ persister ─▶ (NATS, database: closed by the caller)
//	     1           2         3             4
func RunStages(ctx context.Context, stages ...[]Part) error {
	easeMonitor()
	var mu sync.Mutex
	var errs []error
	stop := make(chan struct{})
	var once sync.Once
	end := func() { once.Do(func() { close(stop) }) }
	base := context.WithoutCancel(ctx)
	cancels := make([]context.CancelFunc, len(stages))
	groups := make([]sync.WaitGroup, len(stages))
	for i, parts := range stages {
		var stageCtx context.Context
		stageCtx, cancels[i] = context.WithCancel(base)
		for _, p := range parts {
			groups[i].Go(func() {
				defer end()
				if err := p.Run(stageCtx); err != nil && !errors.Is(err, context.Canceled) {
					mu.Lock()
					errs = append(errs, fmt.Errorf("%s: %w", p.Name, err))
					mu.Unlock()
				}
			})
		}
	}
	select {
	case <-ctx.Done():
	case <-stop:
	}
	for i := range stages {
		cancels[i]()
		groups[i].Wait()
	}
	return errors.Join(errs...)
}
