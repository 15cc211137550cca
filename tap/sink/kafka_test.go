package sink

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"agentstream/tap"
)

// TestKafka: the events of a run are in one partition in their order, under a key that says which come again. What no
// broker takes is refused alone.
func TestKafka(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "events"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	s := open(t, Options{}, "kafka://"+cluster.ListenAddrs()[0]+"/events")
	var batch []tap.Event
	for seq := 1; seq <= 50; seq++ {
		for _, run := range []string{"a", "b", "c"} {
			batch = append(batch, event(run, seq))
		}
	}
	write(t, s, batch...)
	big := event("a", 51)
	big.Line = []byte(strings.Repeat("x", 2<<20))
	refused, err := s.Write(t.Context(), []tap.Event{big, event("b", 51)})
	if err != nil || len(refused) != 1 || refused[0].Event != 0 {
		t.Fatalf("%+v, %v", refused, err)
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("events"))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	next, partition := map[string]int{}, map[string]int32{}
	for n := 0; n < len(batch)+1; {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			n++
			run := string(r.Key)
			next[run]++
			if want := fmt.Sprint(run, "/", next[run]); string(r.Headers[0].Value) != want ||
				!strings.Contains(string(r.Value), fmt.Sprintf(`"seq":%d,`, next[run])) {
				t.Errorf("%s: %s, want %s", r.Headers[0].Value, r.Value, want)
			}
			if at, ok := partition[run]; ok && at != r.Partition {
				t.Errorf("%s is in partitions %d and %d", run, at, r.Partition)
			}
			partition[run] = r.Partition
		})
	}
	for _, address := range []string{"kafka://h/", "kafka://h/a/b", "kafka://127.0.0.1:1/t",
		"kafka://u:hush@h/t?sasl=hush", "kafka://h/t?tls=yes"} {
		if _, err := Open(t.Context(), []string{address}, Options{Timeout: 300 * time.Millisecond}); err == nil ||
			strings.Contains(err.Error(), "u:hush") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
