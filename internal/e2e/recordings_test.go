package e2e_test

import (
	"path/filepath"
	"strings"
	"testing"

	"agentstream/producers/anthropic/anthropictest"
	"agentstream/schema"
)

// Every recorded stream of the provider, published by the command line into a running server and
// read back from it, is what the provider's own client libraries make of it: assembled text and
// reasoning, tool calls with their parsed input, stop reason, usage, errors.
func TestRecordingsThroughTheProduct(t *testing.T) {
	want, _ := anthropictest.Recorded(t)
	p := newProc(t, "dev", "--no-demo", "--data", t.TempDir())
	p.start()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for name, w := range want {
		t.Run(strings.TrimPrefix(name, "anthropic/"), func(t *testing.T) {
			run := "rec_" + strings.NewReplacer("/", "_", ".", "_").Replace(name)
			file := filepath.Join(anthropictest.Dir(t), filepath.FromSlash(name))
			out, err := command(path, "publish", "--server", p.url(""), "--run", run, "--format", "anthropic", file).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var recorded []schema.Event
			lines := events(t, p.url("/v1/agent/runs/"+run))
			for i, line := range lines {
				e, err := schema.DecodeLine([]byte(line))
				if err != nil || e.Seq != schema.Seq(i+1) {
					t.Fatalf("seq %d: %v", e.Seq, err)
				}
				if e.Type != schema.TypeRunLifecycle {
					recorded = append(recorded, e)
				}
			}
			anthropictest.Check(t, recorded, w)
			end, err := schema.DecodeLine([]byte(lines[len(lines)-1]))
			if err != nil || end.Type != schema.TypeRunLifecycle {
				t.Fatalf("the run does not end: %v", err)
			}
			l, err := schema.ParseLifecycle(end.Payload)
			if err != nil || !l.State.Final() || (l.State == schema.StateError) != (w.Error != nil) {
				t.Errorf("the run ends in state %s, error %v", l.State, w.Error)
			}
		})
	}
}
