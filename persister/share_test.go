package persister_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// partitions is a log in memory with a run in each of its streams.
type partitions struct {
	t       *testing.T
	streams []*queue
	writers []*persistertest.Writer
	packs   [][]schema.Pack
	store   *ledger
}

func newPartitions(t *testing.T, n int) *partitions {
	l := &partitions{t: t, store: newLedger(), packs: make([][]schema.Pack, n)}
	for i := range n {
		l.streams = append(l.streams, newQueue(fmt.Sprintf("AGENT_%d", i)))
		l.writers = append(l.writers, persistertest.NewWriter(key(fmt.Sprintf("run%d", i)), day))
	}
	return l
}

// put writes a pack into each stream.
func (l *partitions) put(events int) {
	for i := range l.streams {
		p := l.writers[i].Texts("", events)
		l.packs[i] = append(l.packs[i], p)
		l.streams[i].put(p)
	}
}

// traffic writes a pack into each stream twice a second.
func (l *partitions) traffic(d time.Duration) {
	for range d / (500 * time.Millisecond) {
		l.put(3)
		time.Sleep(500 * time.Millisecond)
	}
}

// member is one process of those that share the log.
type member struct {
	*process
	*persister.Persister
	stop func()
}

func (l *partitions) join(change ...func(*persister.Config)) *member {
	m := &member{process: &process{ledger: l.store}}
	cfg := persister.Config{Store: m.process}
	for _, q := range l.streams {
		cfg.Queues = append(cfg.Queues, q.open())
	}
	for _, fn := range change {
		fn(&cfg)
	}
	m.Persister, m.stop = start(l.t, cfg)
	return m
}

// has counts the partitions that a member stores.
func (m *member) has() (n int) {
	for _, s := range m.Status() {
		if !s.Standby {
			n++
		}
	}
	return n
}

// balanced checks that each member has its share, and each partition one.
func (l *partitions) balanced(when string, members ...*member) {
	l.t.Helper()
	synctest.Wait()
	sum, least, most := 0, len(l.streams), 0
	for _, m := range members {
		n := m.has()
		sum, least, most = sum+n, min(least, n), max(most, n)
	}
	if sum != len(l.streams) || most-least > 1 {
		l.t.Errorf("%s: members have %d to %d partitions, %d of %d in all", when, least, most, sum, len(l.streams))
	}
}

// end stops the members, and checks that each row was stored once and nothing is held.
func (l *partitions) end(members ...*member) {
	l.t.Helper()
	time.Sleep(10 * time.Second)
	synctest.Wait()
	for i, m := range members {
		for _, s := range m.Status() {
			if s.HeldBytes != 0 || !s.RetryingSince.IsZero() {
				l.t.Errorf("member %d: %+v", i, s)
			}
		}
		m.stop()
	}
	l.store.once(l.t, l.packs...)
}

// TestMembersShare: several processes and no election. Each row is stored once, the partitions are shared evenly,
// those of a process that dies go to the others, and one that joins gets its part.
func TestMembersShare(t *testing.T) {
	for _, n := range []int{2, 4} {
		for _, streams := range []int{4, 8} {
			t.Run(fmt.Sprintf("%d processes, %d partitions", n, streams), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newPartitions(t, streams)
					var members []*member
					for range n {
						members = append(members, l.join())
					}
					l.traffic(30 * time.Second)
					l.balanced("at first", members...)
					members[0].kill()
					l.traffic(8 * time.Second) // ShareStale and ShareEvery, and one more second
					for _, s := range l.streams {
						if at := l.store.offset(t, s.name); at.Idle > 2*time.Second {
							t.Errorf("%s is stored by nobody for %v", s.name, at.Idle)
						}
					}
					l.traffic(30 * time.Second)
					l.balanced("without the first", members[1:]...)
					members[0].stop()
					members[0] = l.join()
					l.traffic(40 * time.Second)
					l.balanced("when one has joined", members...)
					_, _, calls, _, overtaken := l.store.history()
					t.Logf("%d of %d transactions were overtaken", overtaken, calls)
					if overtaken > calls/10 {
						t.Errorf("%d of %d transactions were overtaken", overtaken, calls)
					}
					l.end(members...)
				})
			})
		}
	}
}

// TestJoinsUnderABacklog: a process that joins gets its part also while the one that is there writes one transaction
// after the other, without a pause.
func TestJoinsUnderABacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPartitions(t, 4)
		l.store.fault = func(ctx context.Context, tr *persister.Transfer) error {
			if tr == nil || len(tr.Chunks) == 0 {
				return nil
			}
			return pause(ctx, 2*time.Millisecond+time.Duration(rowsOf(tr.Chunks))*5*time.Millisecond)
		}
		for range 600 {
			l.put(10)
		}
		small := func(c *persister.Config) { c.BatchEvents = 40 } // 0.2 s
		a := l.join(small)
		time.Sleep(5 * time.Second)
		b := l.join(small)
		time.Sleep(20 * time.Second)
		if at := l.store.offset(t, "AGENT_0"); at.Position > 590 {
			t.Fatalf("the backlog is gone, at %d: the test shows nothing", at.Position)
		}
		l.balanced("with a backlog", a, b)
		time.Sleep(3 * time.Minute)
		l.end(a, b)
	})
}

// TestIdleLogIsQuiet: nobody has anything to do, so that everybody may do it: what comes then is stored once, and
// little is asked meanwhile.
func TestIdleLogIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPartitions(t, 4)
		members := []*member{l.join(), l.join(), l.join()}
		time.Sleep(time.Minute)
		_, _, calls, reads, _ := l.store.history()
		asked := l.streams[0].asked()
		time.Sleep(time.Hour)
		_, _, calls2, reads2, _ := l.store.history()
		// Each asks who stores what every two seconds, and waits for a message about a second long. The lag of what
		// another process may be storing is asked every ten seconds, with the offset before it.
		if calls2 != calls || reads2-reads > 3*(1800+4*360)+10 || l.streams[0].asked()-asked > 3*3700 {
			t.Errorf("in an idle hour: %d transactions, %d reads, %d fetches of a stream", calls2-calls, reads2-reads,
				l.streams[0].asked()-asked)
		}
		for range 10 { // now and then
			l.put(1)
			time.Sleep(20 * time.Second)
		}
		_, _, calls3, _, overtaken := l.store.history()
		if n := calls3 - calls2; n > 10*4*3 || overtaken > 10*4*2+8 {
			t.Errorf("%d transactions for 40 messages, %d overtaken", n, overtaken)
		}
		l.end(members...)
	})
}

// TestStandby: the status shows that a partition is another's, and who is on standby leaves the warning
// to the other.
func TestStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPartitions(t, 1)
		l.streams[0].window = 4 * time.Second
		slow(l.store, func(int) time.Duration { return 3 * time.Second })
		a := l.join()
		time.Sleep(time.Second)
		var text logText
		b := l.join(func(c *persister.Config) { c.Logger = slog.New(slog.NewTextHandler(&text, nil)) })
		l.traffic(30 * time.Second)
		if s := b.Status()[0]; !s.Standby || s.Lag.Messages == 0 || s.Alarm == "" || a.Status()[0].Standby {
			t.Errorf("status %+v", s)
		}
		if strings.Contains(text.String(), "the log may") {
			t.Errorf("who is on standby says %s", text.String())
		}
		a.kill()
		l.traffic(15 * time.Second)
		if b.Status()[0].Standby {
			t.Error("still on standby")
		}
		a.stop()
		l.end(b)
	})
}

// TestAlone: a process that is alone does not wait for the one before it, and does not ask who stores what.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPartitions(t, 2)
		alone := func(c *persister.Config) { c.Alone = true }
		a := l.join(alone)
		l.traffic(5 * time.Second)
		a.kill()
		a.stop()
		b := l.join(alone)
		l.put(1)
		time.Sleep(2 * time.Second) // longer than Linger, shorter than ShareStale
		l.store.once(t, l.packs...)
		if n := b.Status()[0].BatchRows; n != 2000 {
			t.Errorf("transactions begin with %d rows, as beside another process", n)
		}
		_, _, _, reads, _ := l.store.history()
		time.Sleep(time.Hour)
		_, _, _, reads2, _ := l.store.history()
		if reads2 != reads || b.has() != 2 {
			t.Errorf("%d reads in an hour, %d partitions", reads2-reads, b.has())
		}
		l.end(b)
	})
}

// TestTwoThatAreAlone: a setting that is wrong costs, and harms nothing.
func TestTwoThatAreAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPartitions(t, 2)
		alone := func(c *persister.Config) { c.Alone = true }
		a, b := l.join(alone), l.join(alone)
		l.traffic(time.Minute)
		l.end(a, b)
	})
}

// TestNextProcess: a process that has stopped leaves its partitions to the next one soon.
func TestNextProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPartitions(t, 4)
		for range 5 {
			m := l.join()
			l.traffic(9 * time.Second)
			time.Sleep(time.Second)
			l.store.once(t, l.packs...)
			m.stop()
		}
	})
}

// TestStoreAwayFromMany: when the store is back after an hour, each row is stored once, and the partitions are
// shared again.
func TestStoreAwayFromMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPartitions(t, 6)
		members := []*member{l.join(), l.join(), l.join()}
		l.traffic(20 * time.Second)
		for _, m := range members {
			m.kill()
		}
		for range 60 {
			l.put(20)
			time.Sleep(time.Minute)
		}
		for _, m := range members {
			held := 0
			for _, s := range m.Status() {
				held += s.HeldBytes
			}
			if held > 64<<20 {
				t.Errorf("%d bytes are held in the outage", held)
			}
			m.cut(false)
		}
		l.traffic(time.Minute)
		l.balanced("after the outage", members...)
		l.end(members...)
	})
}
